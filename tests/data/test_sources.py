"""Every source gives the rows of the table, and so the same bits as the table in memory."""

from __future__ import annotations

import gzip
import os
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import richcomponents as rc
from richcomponents.data.sources import base
from richcomponents.moments import Accumulator, Moments, Rows, open_source
from richcomponents.moments.accumulator import column_means, reduce_rows

N, NAMES = 3000, ["a", "b", "c", "d"]


@pytest.fixture
def frame(rng):
    return pd.DataFrame(rng.exponential(size=(N, 4)) * [1, 10, 0.1, 3] + [0, 5, 0, 1], columns=NAMES)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 700 rows, so that a small table makes several."""
    monkeypatch.setattr(base, "_MOST_ROWS", 700)


def write_npy(frame, place):
    np.save(place / "t.npy", frame.to_numpy())
    return place / "t.npy"


def write_parquet(frame, place):
    frame.assign(label="x").to_parquet(place / "t.parquet", row_group_size=800)  # a column that is not a number
    return place / "t.parquet"


def write_directory(frame, place):
    (place / "parts").mkdir()
    for i, low in enumerate((0, 1100, 1101, 2500)):
        high = (1100, 1101, 2500, N)[i]
        frame[low:high].to_parquet(place / "parts" / f"{i}.parquet")
    return place / "parts"


def write_zarr(frame, place):
    zarr = pytest.importorskip("zarr")
    zarr.save(str(place / "t.zarr"), frame.to_numpy())
    return place / "t.zarr"


def write_zarr_group(frame, place):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(place / "g.zarr"), mode="w")
    group["table"] = frame.to_numpy()
    group["labels"] = np.arange(N)
    return place / "g.zarr"


def write_h5ad(frame, place):
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(frame.set_index(frame.index.astype(str))).write_h5ad(place / "t.h5ad")
    return place / "t.h5ad"


def write_sparse_h5ad(frame, place):
    anndata = pytest.importorskip("anndata")
    table = frame.set_index(frame.index.astype(str))
    cells = anndata.AnnData(sparse.csr_matrix(table.to_numpy()), var=pd.DataFrame(index=NAMES))
    cells.write_h5ad(place / "s.h5ad")
    return place / "s.h5ad"


def write_csv(frame, place):
    frame.assign(label="x").to_csv(place / "t.csv", index=False)
    return place / "t.csv"


def write_tsv(frame, place):
    with gzip.open(place / "t.tsv.gz", "wt") as file:
        frame.to_csv(file, index=False, sep="\t")
    return place / "t.tsv.gz"


def write_several(frame, place):
    frame[:1234].to_csv(place / "0.csv", index=False)
    frame[1234:].to_csv(place / "1.csv", index=False)
    return [place / "0.csv", str(place / "1.csv")]


WRITERS = [
    write_npy,
    write_parquet,
    write_directory,
    write_zarr,
    write_zarr_group,
    write_h5ad,
    write_sparse_h5ad,
    write_csv,
    write_tsv,
    write_several,
]


@pytest.mark.parametrize("write", WRITERS, ids=lambda w: w.__name__[6:])
def test_every_source_gives_the_bits_of_the_table(frame, tmp_path, write):
    X = frame.to_numpy()
    path = write(frame, tmp_path)
    source = rc.open_source(path)
    columns = NAMES if source.names else [0, 1, 2, 3]
    assert Moments.from_source(path, 4, columns=columns) == Moments.of(X)
    few = [columns[2], columns[0]]
    assert Moments.from_source(source, 3, columns=few) == Moments.of(X[:, [2, 0]], 3)
    read = list(Rows(source.source, columns=np.array([3, 0])).chunks())
    np.testing.assert_array_equal(np.concatenate(read), X[:, [3, 0]])


def test_a_second_pass_sees_what_the_first_saw(rng):
    X = rng.exponential(size=(3000, 2))
    X[7, 1] = np.nan
    turned, shorter = X[::-1], X[:-1]
    other = X.copy()
    other[2999, 0] = -other[2999, 0]

    class Table:
        """Blocks of rows that are cut anew in every pass, of one table after another."""

        def __init__(self, *tables):
            self.passes = iter(enumerate(tables, start=3))

        def __iter__(self):
            pieces, table = next(self.passes)
            return iter(np.array_split(table, pieces))

    def read(then):
        rows = open_source(Table(X, X, then))  # to be opened, and twice
        return [np.concatenate(list(rows.chunks())) for _ in range(2)]

    np.testing.assert_array_equal(*read(X))
    for then, said in (
        (turned, "column 'x0' has other values"),
        (other, "column 'x0' has other values"),
        (shorter, "it had 3000 rows and has 2999"),
    ):
        with pytest.raises(rc.DataError, match=rf"the table is not what was read before \({said}\): read it again"):
            read(then)


def test_text_without_names(tmp_path, rng):
    X = rng.normal(size=(50, 3))
    np.savetxt(tmp_path / "x.csv", X, delimiter=",", fmt="%.17g")
    assert Moments.from_source(rc.open_source(tmp_path / "x.csv", header=False)) == Moments.of(X)


def test_h5ad_layers(frame, tmp_path):
    anndata = pytest.importorskip("anndata")
    table = frame.set_index(frame.index.astype(str))
    cells = anndata.AnnData(table, layers={"double": 2 * table.to_numpy()})
    cells.write_h5ad(tmp_path / "l.h5ad")
    source = rc.open_source(tmp_path / "l.h5ad", layer="double")
    assert source.names == tuple(NAMES)
    assert Moments.from_source(source) == Moments.of(2 * frame.to_numpy())
    with pytest.raises(rc.DataError, match=r"no 'layers/half'; its layers are: double"):
        rc.open_source(tmp_path / "l.h5ad", layer="half")


def test_means_do_not_depend_on_the_chunks(rng):
    X = rng.exponential(size=(9000, 3)) * 1e3
    reference = column_means(open_source(X))
    np.testing.assert_allclose(reference, X.mean(axis=0), rtol=1e-14)
    for cuts in ([4000], [1, 2, 3], [2048, 2049], sorted(rng.choice(9000, 40, replace=False).tolist())):
        np.testing.assert_array_equal(column_means(open_source(np.split(X, cuts))), reference)


def test_maps_do_not_depend_on_the_chunks(rng):
    X, matrix = rng.normal(size=(70_000, 3)), rng.normal(size=(3, 2))
    reference = reduce_rows(Rows(X).mapped(lambda b: b @ matrix), Accumulator(3, np.zeros(2)))
    for cuts in ([1], [30_000, 65_536], sorted(rng.choice(70_000, 9, replace=False).tolist())):
        mapped = open_source(np.split(X, cuts)).mapped(lambda b: b @ matrix)
        assert reduce_rows(mapped, Accumulator(3, np.zeros(2))) == reference


def test_groups_of_a_stream_are_those_of_the_table(rng):
    X, groups = rng.normal(size=(900, 2)), rng.integers(0, 70, size=900)
    blocks = [X[i : i + 110] for i in range(0, 900, 110)]
    assert Moments.of(iter(blocks), 4, np.zeros(2), groups=groups) == Moments.of(X, 4, np.zeros(2), groups=groups)
    for wrong in (groups[:-1], [*groups, 0]):
        with pytest.raises(rc.DataError, match="one label per row"):
            Moments.of(iter(blocks), 4, np.zeros(2), groups=wrong)


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: (
            b[:100] + b[101:200] + b"\1" + b[200:]
        ),  # numpy takes the first byte of the values for the header's last
        lambda b: b[:100] + b"\n" + b[101:],
        lambda b: b.replace(b"(30, 2)", b"(3, 2) "),
        lambda b: b + b,
    ],
)
def test_an_npy_file_whose_values_are_not_where_its_header_says_is_refused(tmp_path, damage):
    path = tmp_path / "t.npy"
    np.save(path, np.full((30, 2), 9, dtype=np.int16))
    whole = path.read_bytes()
    assert (rc.open_source(path).n_rows, b"\n" in whole[12:127]) == (30, False)
    path.write_bytes(damage(whole))
    with warnings.catch_warnings(action="ignore"):
        np.load(path)  # numpy does not mind
    with pytest.raises(
        rc.DataError,
        match=r"cannot read t.npy: it (does not begin like an array|holds \d+ bytes of values instead of)",
    ):
        rc.open_source(path)


def test_a_bar_changes_nothing(frame, tmp_path, capsys):
    path = write_npy(frame, tmp_path)
    assert Moments.from_source(path, 4, progress=True) == Moments.of(frame)


def test_errors_name_the_column_and_the_remedy(frame, tmp_path):
    frame.loc[1500, "c"] = np.nan
    path = write_parquet(frame, tmp_path)
    with pytest.raises(rc.DataError, match="column 'c' holds a missing"):
        Moments.from_source(path, columns=["a", "c"])
    assert Moments.from_source(path, columns=["a", "b"]).n == N
    with pytest.raises(rc.DataError, match=r"'label' of t.parquet is not numeric.*columns="):
        Moments.from_source(path)
    with pytest.raises(rc.DataError, match=r"names column 'z'.*the first are"):
        Moments.from_source(path, columns=["z"])
    with pytest.raises(rc.DataError, match=r"t.csv is not a table of numbers"):
        Moments.from_source(write_csv(frame, tmp_path))
    (tmp_path / "t.xlsx").touch()
    with pytest.raises(rc.DataError, match=r"the formats are \.npy"):
        rc.open_source(tmp_path / "t.xlsx")
    frame[["a"]].to_parquet(tmp_path / "u.parquet")
    with pytest.raises(rc.DataError, match="different columns"):
        rc.open_source([path, tmp_path / "u.parquet"])
    with pytest.raises(rc.DataError, match="with these options"):
        rc.open_source(path, layer="x")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(rc.DataError, match=r"cannot read bad.parquet"):
        rc.open_source(tmp_path / "bad.parquet")


def test_a_first_line_with_a_gap_is_no_names(tmp_path):
    for text in ("1,,3\n4,5,6\n", "1,NA,3\n4,5,6\n"):
        (tmp_path / "t.csv").write_text(text)
        with pytest.raises(rc.DataError, match=r"first line of t.csv holds only numbers or gaps"):
            rc.open_source(tmp_path / "t.csv")


def test_cells_without_a_value_and_rows_that_cannot_be_read(tmp_path):
    path = tmp_path / "t.csv"
    for cell in ("", "NA", "null", "None", ".", "#N/A", " na ", '"NA"', "<NA>"):
        path.write_text(f"a,b\n1,{cell}\n\n2,3\n")
        np.testing.assert_array_equal(open_source(path).array(), [[1, np.nan], [2, 3]])
        with pytest.raises(rc.DataError, match="column 'b' holds a missing"):
            Moments.from_source(path, 2)
    for wrong, message in (
        ("1,2,3", "line 3: 3 cells"),
        ("1", "line 3: 1 cells"),
        ("1,1_0", "column 'b' holds '1_0' in line 3"),
        ("1,x", "column 'b' holds 'x' in line 3"),
    ):
        path.write_text(f"a,b\n1,2\n{wrong}\n")
        with pytest.raises(rc.DataError, match=f"t.csv.*{message}"):
            open_source(path).array()


def test_damaged_files_are_refused(tmp_path):
    whole = bytearray(gzip.compress(b"u,v\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(3000))))
    whole[2000:2100] = bytes(100)
    for name, content in (
        ("a.csv.gz", bytes(whole)),
        ("b.csv.gz", b"u,v\n1,2\n"),
        ("c.csv", "é,b\n1,2\n".encode("latin-1")),
        ("e.npy", b""),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(rc.DataError, match=name):
            open_source(tmp_path / name).array()
    np.savez(tmp_path / "z.npz", a=np.zeros((2, 2)))
    (tmp_path / "z.npz").rename(tmp_path / "z.npy")
    with pytest.raises(rc.DataError, match=r"z.npy is an archive of arrays"):
        rc.open_source(tmp_path / "z.npy")


def test_damaged_and_ambiguous_parquet_is_refused(tmp_path):
    import pyarrow as arrow
    from pyarrow.parquet import write_table

    path = tmp_path / "t.parquet"
    write_table(arrow.Table.from_arrays([arrow.array([1.0]), arrow.array([2.0])], names=["a", "a"]), path)
    with pytest.raises(rc.DataError, match=r"t.parquet names two columns 'a'"):
        rc.open_source(path)
    write_table(arrow.table({"a": np.random.default_rng(0).normal(size=5000)}), path)
    content = bytearray(path.read_bytes())
    for low, high in ((4, 200), (len(content) - 60, len(content) - 8)):
        damaged = bytearray(content)
        damaged[low:high] = bytes([0xAB]) * (high - low)
        path.write_bytes(bytes(damaged))
        with pytest.raises(rc.DataError, match=r"cannot read t.parquet"):
            open_source(path).array()


def test_an_empty_block_has_no_groups(rng):
    X, groups = rng.normal(size=(300, 2)), np.arange(300) // 10
    pieces = [X[:100], X[:0], X[100:]]
    assert Moments.of(pieces, 3, np.zeros(2), groups=groups) == Moments.of(X, 3, np.zeros(2), groups=groups)


def test_a_pipe_is_refused_before_anybody_waits_for_it(tmp_path):
    for name in ("t.csv", "t.npy", "t.parquet", "t.h5ad"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(rc.DataError, match="not a regular file"):
            rc.open_source(tmp_path / name)
