"""Every kind of file gives the same columns; what cannot be read is refused by name."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from richcomponents.cli import main
from richcomponents.errors import DataError
from richcomponents.tables import digest, join_files, read_table


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_text_numbers_missing_and_words(tmp_path):
    table = read_table(write(tmp_path / "a.csv", '\ufeffid, "x, y",b\ns1,1.5,NA\n\ns2,-2e3,\n'))
    assert list(table.columns) == ["id", "x, y", "b"]
    assert table.columns["x, y"].tolist() == [1.5, -2000.0]
    assert np.isnan(table.columns["b"]).all()
    assert table.columns["id"].tolist() == ["s1", "s2"]


@pytest.mark.parametrize(("name", "sign"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t"), ("a.txt", "\t")])
def test_separators(tmp_path, name, sign):
    table = read_table(write(tmp_path / name, f"u{sign}v\n1{sign}2\n3{sign}4\n"))
    assert {k: v.tolist() for k, v in table.columns.items()} == {"u": [1.0, 3.0], "v": [2.0, 4.0]}


def test_compressed_text(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"u,v\n1,2\n"))
    assert read_table(path).columns["v"].tolist() == [2.0]


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
        read_table(write(tmp_path / "bad.csv", text))


def test_unusable_files(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"must end in one of .csv"):
        read_table(write(tmp_path / "a.xlsx", "x"))
    (tmp_path / "latin.csv").write_bytes("é,b\n1,2\n".encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        read_table(tmp_path / "latin.csv")
    with pytest.raises(DataError, match=r"cannot read broken.npz"):
        read_table(write(tmp_path / "broken.npz", "no"))


def test_matrices_are_views(tmp_path, rng):
    U, V, y = rng.normal(size=(6, 2)), rng.normal(size=(6, 3)), np.arange(6)
    np.savez(tmp_path / "a.npz", U=U, V=V, y=y)
    table = read_table(tmp_path / "a.npz")
    assert table.views == {"U": ("U_0", "U_1"), "V": ("V_0", "V_1", "V_2")}
    np.testing.assert_array_equal(table.columns["V_2"], V[:, 2])
    assert table.columns["y"].dtype == np.float64
    np.savez(tmp_path / "b.npz", U=U, A=np.eye(2))
    with pytest.raises(DataError, match="same number of rows: U has 6, A has 2"):
        read_table(tmp_path / "b.npz")


def test_parquet_agrees_with_text(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    write_table(pyarrow.table({"a": [1, 2, None], "s": ["x", None, "z"]}), tmp_path / "a.parquet")
    one = read_table(tmp_path / "a.parquet").columns
    two = read_table(write(tmp_path / "a.csv", "a,s\n1,x\n2,\n,z\n")).columns
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
    table = read_table(tmp_path / "a.h5ad")
    assert list(table.columns) == ["rna1", "rna2", "age"]
    np.testing.assert_array_equal(table.columns["rna2"], parts["rna"].X[:, 1])
    mudata.MuData(parts).write(tmp_path / "a.h5mu")
    assert read_table(tmp_path / "a.h5mu").views == {"rna": ("rna1", "rna2"), "prot": ("prot1", "prot2")}


def test_two_files_by_label_are_the_same_rows(tmp_path):
    one = read_table(write(tmp_path / "one.csv", "id,a\ns1,1\ns2,2\ns3,3\n"))
    two = read_table(write(tmp_path / "two.csv", "id,a,b\ns3,30,33\ns4,40,44\ns1,10,11\n"))
    table, notes = join_files([one, two], "id")
    assert table.views == {"one": ("one:a",), "two": ("two:a", "two:b")}
    assert table.columns["id"].tolist() == ["s1", "s3"]
    assert table.columns["two:b"].tolist() == [11.0, 33.0]
    assert "2 samples are not in every file" in notes[0]


def test_two_files_that_do_not_match(tmp_path):
    one = read_table(write(tmp_path / "one.csv", "id,a\ns1,1\ns2,2\n"))
    short = read_table(write(tmp_path / "two.csv", "id,b\ns1,1\n"))
    twice = read_table(write(tmp_path / "three.csv", "id,b\ns1,1\ns1,2\n"))
    other = read_table(write(tmp_path / "four.csv", "id,b\nt1,1\n"))
    with pytest.raises(DataError, match=r"one.csv has 2, two.csv has 1.*--id"):
        join_files([one, short])
    with pytest.raises(DataError, match=r"three.csv has two rows labelled 's1'"):
        join_files([one, twice], "id")
    with pytest.raises(DataError, match="share no sample label"):
        join_files([one, other], "id")
    with pytest.raises(DataError, match=r"one.csv has no column 'sample' .the sample labels, --id."):
        join_files([one, short], "sample")


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
            join_files([read_table(one), read_table(path)])
        with pytest.raises(SystemExit, match="1"):
            main(["diagnose", str(one), str(path)])
        assert f"--id {name}" in capsys.readouterr().err
        join_files([read_table(one), read_table(path)], name)
    table, _ = join_files([read_table(one), read_table(write(tmp_path / "t4.csv", one.read_text()))])
    assert len(table) == 3


def test_whole_numbers_called_id_are_labels_and_measurements_are_not(tmp_path):
    one = read_table(write(tmp_path / "t1.csv", "id,crp,site,mass_index\n1,<LOD,x,21.5\n2,0.5,x,30.2\n3,0.7,x,18.1\n"))
    two = "id,crp,site,mass_index\n{},0.4,y,21.7\n{},<LOD,y,29.9\n{},0.8,y,18.3\n"
    join_files([one, read_table(write(tmp_path / "t2.csv", two.format(1, 2, 3)))])
    with pytest.raises(DataError, match=r"another order.*--id id"):
        join_files([one, read_table(write(tmp_path / "t2.csv", two.format(3, 2, 1)))])


def test_digest_is_sha256(tmp_path):
    import hashlib

    path = write(tmp_path / "a.csv", "x\n1\n")
    assert digest(path) == hashlib.sha256(b"x\n1\n").hexdigest()


def test_labels_are_texts_and_never_rounded(tmp_path):
    one = write(tmp_path / "one.csv", "id,a\n9007199254740993,1\n007,2\n12,3\n 5 ,4\n")
    two = write(tmp_path / "two.csv", "id,b\n9007199254740992,10\n7,20\n1_2,30\n5,40\n")
    table, notes = join_files([read_table(path, ["id"]) for path in (one, two)], "id")
    assert table.columns["b"].tolist() == [40.0]
    assert table.labelled("id", "").tolist() == ["5"]
    assert "6 samples are not in every file" in notes[0]
    gap = write(tmp_path / "gap.csv", "id,c\n5,1\n,2\n")
    with pytest.raises(DataError, match=r"data row 2 of gap.csv has no label in 'id'"):
        join_files([read_table(path, ["id"]) for path in (one, gap)], "id")


def test_labels_of_other_files_are_whole_numbers_too(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    large = 9007199254740993
    write_table(pyarrow.table({"id": [large, 5], "a": [1, 2]}), tmp_path / "one.parquet")
    np.savez(tmp_path / "two.npz", id=np.array([large - 1, large, 5]), b=np.arange(3.0))
    text = write(tmp_path / "three.csv", f"id,c\n5,1\n{large},2\n")
    paths = [tmp_path / "one.parquet", tmp_path / "two.npz", text]
    table, _ = join_files([read_table(path, ["id"]) for path in paths], "id")
    assert (table.columns["b"].tolist(), table.columns["c"].tolist()) == ([1.0, 2.0], [2.0, 1.0])


def test_no_column_is_lost(tmp_path, rng):
    np.savez(tmp_path / "a.npz", a=rng.normal(size=(4, 2)), a_0=np.arange(4.0))
    with pytest.raises(DataError, match=r"two arrays of a.npz make a column 'a_0', 'a_0' is one of them"):
        read_table(tmp_path / "a.npz")
    anndata = pytest.importorskip("anndata")
    import pandas as pd

    data = anndata.AnnData(rng.normal(size=(3, 2)), var=pd.DataFrame(index=["g", "h"]))
    data.var_names = ["g", "g"]
    data.write_h5ad(tmp_path / "a.h5ad")
    with pytest.raises(DataError, match=r"a.h5ad names two columns 'g'"):
        read_table(tmp_path / "a.h5ad")


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
            read_table(tmp_path / name)


def test_underscores_make_words(tmp_path):
    assert read_table(write(tmp_path / "a.csv", "u,v\n1_2,3\n,4\n")).columns["u"].tolist() == ["1_2", None]
