"""Every kind of file gives the same columns; what cannot be read is refused by name."""

from __future__ import annotations

import gzip
from decimal import Decimal

import numpy as np
import pytest

from richcomponents.cli import main
from richcomponents.data.rows import open_source
from richcomponents.data.sources.base import digest
from richcomponents.errors import DataError
from richcomponents.moments import Moments


def columns_of(path, **options):
    rows = open_source(path, **options)
    return rows.read(rows.source.all_names)


def joined(*paths, id=None):
    """Files side by side, each a view called like the file."""
    return open_source({path.name.partition(".")[0]: path for path in paths}, id=id)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_text_numbers_missing_and_words(tmp_path):
    table = columns_of(write(tmp_path / "a.csv", '\ufeffid, "x, y",b\ns1,1.5,NA\n\ns2,-2e3,\n'))
    assert list(table) == ["id", "x, y", "b"]
    assert table["x, y"].tolist() == [1.5, -2000.0]
    assert np.isnan(table["b"]).all()
    assert table["id"].tolist() == ["s1", "s2"]


@pytest.mark.parametrize(("name", "sign"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t"), ("a.txt", "\t")])
def test_separators(tmp_path, name, sign):
    table = columns_of(write(tmp_path / name, f"u{sign}v\n1{sign}2\n3{sign}4\n"))
    assert {k: v.tolist() for k, v in table.items()} == {"u": [1.0, 3.0], "v": [2.0, 4.0]}


def test_compressed_text(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"u,v\n1,2\n"))
    assert columns_of(path)["v"].tolist() == [2.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,b\n", "holds no rows"),
        ("a,a\n1,2\n", "names two columns 'a'"),
        ("1,2\n3,4\n", "put column names there"),
        ("1,,3\n4,5,6\n", "put column names there"),
        ("a,b\n1,2\n3\n", "line 3: 1 cells, the first line has 2"),
    ],
)
def test_unusable_text(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        columns_of(write(tmp_path / "bad.csv", text))


def test_unusable_files(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        columns_of(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"cannot read a.xlsx: the formats are .npy"):
        columns_of(write(tmp_path / "a.xlsx", "x"))
    (tmp_path / "latin.csv").write_bytes("é,b\n1,2\n".encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        columns_of(tmp_path / "latin.csv")
    with pytest.raises(DataError, match=r"cannot read broken.npz"):
        columns_of(write(tmp_path / "broken.npz", "no"))


def test_matrices_are_views(tmp_path, rng):
    U, V, y = rng.normal(size=(6, 2)), rng.normal(size=(6, 3)), np.arange(6)
    np.savez(tmp_path / "a.npz", U=U, V=V, y=y)
    table = open_source(tmp_path / "a.npz")
    assert table.views == {"U": ("U_0", "U_1"), "V": ("V_0", "V_1", "V_2")}
    assert table.read(["y"])["y"].dtype == np.float64
    np.testing.assert_array_equal(table.array(), np.column_stack([U, V, y]))
    assert Moments.from_source(tmp_path / "a.npz", columns=["U_*", "V_2"]) == Moments.of(np.column_stack([U, V[:, 2]]))
    np.savez(tmp_path / "b.npz", U=U, A=np.eye(2))
    with pytest.raises(DataError, match="same number of rows: U has 6, A has 2"):
        columns_of(tmp_path / "b.npz")


def test_parquet_agrees_with_text(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    write_table(pyarrow.table({"a": [1, 2, None], "s": ["x", None, "z"]}), tmp_path / "a.parquet")
    one = columns_of(tmp_path / "a.parquet")
    two = columns_of(write(tmp_path / "a.csv", "a,s\n1,x\n2,\n,z\n"))
    np.testing.assert_array_equal(one["a"], two["a"])
    assert one["s"].tolist() == two["s"].tolist() == ["x", None, "z"]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_annotated_files(tmp_path, rng):
    anndata, mudata = pytest.importorskip("anndata"), pytest.importorskip("mudata")
    import pandas as pd

    obs = pd.DataFrame({"age": [1.0, 2.0, 3.0]}, index=["a", "b", "c"])
    parts = {
        name: anndata.AnnData(rng.normal(size=(3, 2)), obs=obs.copy(), var=pd.DataFrame(index=[f"{name}1", f"{name}2"]))
        for name in ("rna", "prot")
    }
    parts["rna"].write_h5ad(tmp_path / "a.h5ad")
    table = columns_of(tmp_path / "a.h5ad")
    assert list(table) == ["rna1", "rna2", "age"]
    np.testing.assert_array_equal(table["rna2"], parts["rna"].X[:, 1])
    cells = mudata.MuData(parts)
    cells.obs["site"] = ["x", "y", "NA"]
    cells.write(tmp_path / "a.h5mu")
    both = open_source(tmp_path / "a.h5mu")
    assert both.views == {"rna": ("rna1", "rna2"), "prot": ("prot1", "prot2")}
    np.testing.assert_array_equal(both.array(), np.hstack([part.X for part in parts.values()]))
    assert both.read(["site"])["site"].tolist() == ["x", "y", None]


def test_two_files_by_label_are_the_same_rows(tmp_path):
    one = write(tmp_path / "one.csv", "id,a\ns1,1\ns2,2\ns3,3\n")
    two = write(tmp_path / "two.csv", "id,a,b\ns3,30,33\ns4,40,44\ns1,10,11\n")
    table = joined(one, two, id="id")
    assert table.views == {"one": ("one:a",), "two": ("two:a", "two:b")}
    assert table.read(["id"])["id"].tolist() == ["s1", "s3"]
    assert table.array().tolist() == [[1, 10, 11], [3, 30, 33]]
    assert table.source.notes == (
        "1 sample of 'one' is not in every table and was left out (s2); 2 are kept.",
        "1 sample of 'two' is not in every table and was left out (s4); 2 are kept.",
    )


def test_two_files_that_do_not_match(tmp_path):
    one = write(tmp_path / "one.csv", "id,a\ns1,1\ns2,2\n")
    short = write(tmp_path / "two.csv", "id,b\ns1,1\n")
    twice = write(tmp_path / "three.csv", "id,b\ns1,1\ns1,2\n")
    other = write(tmp_path / "four.csv", "id,b\nt1,1\n")
    with pytest.raises(DataError, match=r"one.csv has 2, two.csv has 1.*--id"):
        joined(one, short)
    with pytest.raises(DataError, match=r"'three' has two rows labelled 's1'"):
        joined(one, twice, id="id")
    with pytest.raises(DataError, match="share no sample label"):
        joined(one, other, id="id")
    with pytest.raises(DataError, match=r"one.csv has no column 'sample' .the sample labels, --id."):
        joined(one, short, id="sample")


@pytest.mark.parametrize("name", ["sample_id", "donor"])
def test_labels_that_contradict_the_order_are_refused(tmp_path, capsys, name):
    rows = ["ann,1,2\n", "bob,2,1\n", "cid,3,5\n"]
    one = write(tmp_path / "t1.csv", f"{name},a,b\n" + "".join(rows))
    turned = write(tmp_path / "t2.csv", f"{name},c,d\n" + "".join(rows[::-1]))
    others = write(tmp_path / "t3.csv", f"{name},c,d\nann,1,2\nbob,2,1\ndan,3,5\n")
    for path, message in (
        (turned, rf"t1.csv and t2.csv.*another order: data row 1 is 'ann'.*'cid'.*--id {name}"),
        (others, rf"t1.csv and t3.csv.*other values: data row 3 is 'cid'.*'dan'.*--id {name}"),
    ):
        with pytest.raises(DataError, match=message):
            joined(one, path)
        with pytest.raises(SystemExit, match="1"):
            main(["diagnose", str(one), str(path)])
        assert f"--id {name}" in capsys.readouterr().err
        joined(one, path, id=name)
    assert joined(one, write(tmp_path / "t4.csv", one.read_text())).n_rows == 3


def test_whole_numbers_called_id_are_labels_and_measurements_are_not(tmp_path):
    one = write(tmp_path / "t1.csv", "id,crp,site,mass_index\n1,<LOD,x,21.5\n2,0.5,x,30.2\n3,0.7,x,18.1\n")
    two = "id,crp,site,mass_index\n{},0.4,y,21.7\n{},<LOD,y,29.9\n{},0.8,y,18.3\n"
    joined(one, write(tmp_path / "t2.csv", two.format(1, 2, 3)))
    with pytest.raises(DataError, match=r"another order.*--id id"):
        joined(one, write(tmp_path / "t2.csv", two.format(3, 2, 1)))


def test_digest_is_sha256(tmp_path):
    import hashlib

    path = write(tmp_path / "a.csv", "x\n1\n")
    assert digest(path) == hashlib.sha256(b"x\n1\n").hexdigest()


def test_labels_are_texts_and_never_rounded(tmp_path):
    one = write(tmp_path / "one.csv", "id,a\n9007199254740993,1\n007,2\n12,3\n 5 ,4\n")
    two = write(tmp_path / "two.csv", "id,b\n9007199254740992,10\n7,20\n1_2,30\n5,40\n")
    table = joined(one, two, id="id")
    assert table.read(["b"])["b"].tolist() == [40.0]
    assert table.read(["id"], written=["id"])["id"].tolist() == ["5"]
    assert "3 samples of 'one' are not in every table" in table.source.notes[0]
    gap = write(tmp_path / "gap.csv", "id,c\n5,1\n,2\n")
    with pytest.raises(DataError, match=r"data row 2 of 'gap' has no sample label"):
        joined(one, gap, id="id")


def test_labels_of_other_files_are_whole_numbers_too(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    large = 9007199254740993
    write_table(pyarrow.table({"id": [large, 5], "a": [1, 2]}), tmp_path / "one.parquet")
    np.savez(tmp_path / "two.npz", id=np.array([large - 1, large, 5]), b=np.arange(3.0))
    text = write(tmp_path / "three.csv", f"id,c\n5,1\n{large},2\n")
    paths = [tmp_path / "one.parquet", tmp_path / "two.npz", text]
    table = joined(*paths, id="id").read(["b", "c"])
    assert (table["b"].tolist(), table["c"].tolist()) == ([1.0, 2.0], [2.0, 1.0])


def test_no_column_is_lost(tmp_path, rng):
    np.savez(tmp_path / "a.npz", a=rng.normal(size=(4, 2)), a_0=np.arange(4.0))
    with pytest.raises(DataError, match=r"two arrays of a.npz make a column 'a_0', 'a_0' is one of them"):
        columns_of(tmp_path / "a.npz")
    anndata = pytest.importorskip("anndata")
    import pandas as pd

    data = anndata.AnnData(rng.normal(size=(3, 2)), var=pd.DataFrame(index=["g", "h"]))
    data.var_names = ["g", "g"]
    data.write_h5ad(tmp_path / "a.h5ad")
    with pytest.raises(DataError, match=r"a.h5ad names two columns 'g'"):
        columns_of(tmp_path / "a.h5ad")


def test_damaged_files_are_refused_by_name(tmp_path):
    whole = gzip.compress(b"u,v\n" + b"1.25,2.5\n" * 500)
    middle = bytearray(whole)
    middle[12:40] = bytes(28)
    for name, content in (
        ("a.csv.gz", bytes(middle)),
        ("b.csv.gz", b"u,v\n1,2\n"),
        ("c.csv", b'u,v\n1,"' + b"x" * 140_000 + b"\n"),
        ("d.npz", b"PK\3\4" + bytes(50)),
        ("e.npy", b""),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=name):
            columns_of(tmp_path / name)


def test_underscores_make_words(tmp_path):
    assert columns_of(write(tmp_path / "a.csv", "u,v\n1_2,3\n,4\n"))["u"].tolist() == ["1_2", None]


def test_decimals_of_parquet_are_numbers(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    values = [Decimal("1.50"), Decimal("2.25"), Decimal("-3.00")]
    write_table(pyarrow.table({"a": values, "b": [1.0, 2.0, 3.0]}), tmp_path / "a.parquet")
    np.testing.assert_array_equal(open_source(tmp_path / "a.parquet").array(), [[1.5, 1.0], [2.25, 2.0], [-3.0, 3.0]])
