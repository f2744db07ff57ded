"""Stores of others' making: what they say of themselves is checked before it is believed."""

from __future__ import annotations

import io
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import richcomponents as rc
from richcomponents.moments import Moments, open_source

h5py, anndata = pytest.importorskip("h5py"), pytest.importorskip("anndata")

N, NAMES = 30, ["a", "b", "c", "d"]


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, 4)) * (rng.random((N, 4)) < 0.7)


def write(path, values, kind=sparse.csr_matrix):
    cells = anndata.AnnData(
        kind(values), obs=pd.DataFrame({"age": np.arange(float(N))}, index=list(map(str, range(N))))
    )
    cells.var_names = NAMES
    cells.write_h5ad(path)
    return path


def doors(path):
    """The table by Python and by the command line."""
    yield lambda: open_source(path).array()
    yield lambda: np.column_stack(list(open_source(path).read(NAMES).values()))
    yield lambda: rc.ContrastiveRCA(views={"U": NAMES[:2], "V": NAMES[2:]}).fit(path)


def forge(path, name, change):
    with h5py.File(path, "r+") as file:
        values = file[name][:]
        del file[name]
        file[name] = change(values)


def first(value):
    return lambda array: np.concatenate([[value], array[1:]]).astype(array.dtype)


FORGED = {
    "a column that is not there": ("X/indices", first(N + 5)),
    "far away": ("X/indices", first(2_000_000_000)),
    "before the first": ("X/indices", first(-1)),
    "not whole": ("X/indices", lambda a: a + 0.5),
    "one too few": ("X/indices", lambda a: a[:-1]),
    "ends go back": ("X/indptr", lambda a: np.concatenate([a[:3], a[2:3] - 1, a[4:]])),
    "ends behind the end": ("X/indptr", lambda a: np.concatenate([a[:-1], [a[-1] + 9]])),
    "does not begin at the beginning": ("X/indptr", first(1)),
    "a row too many": ("X/indptr", lambda a: np.append(a, a[-1])),
    "rows of two dimensions": ("X/data", lambda a: a[:, None]),
    "other names": ("var/_index", lambda a: a[:-1]),
    "other samples": ("obs/_index", lambda a: a[:-1]),
}


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_matrix])
@pytest.mark.parametrize("how", FORGED)
def test_forged_sparse_matrices_are_refused_by_every_door(X, tmp_path, how, kind):
    path = write(tmp_path / "t.h5ad", X, kind)
    for door in list(doors(path))[:2]:
        np.testing.assert_array_equal(door(), X)
    name, change = FORGED[how]
    forge(path, name, change)
    for door in doors(path):
        with pytest.raises(rc.DataError, match=r"t.h5ad"):
            door()


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "lil"])
def test_forged_matrices_in_memory_are_refused(X, kind):
    matrix = sparse.coo_matrix(X).asformat(kind)
    for wrong in (7, -1):
        forged = matrix.copy()
        if kind == "lil":
            forged.rows[3] = [wrong]
            forged.data[3] = [1.0]
        elif kind == "coo":
            forged.coords[0][3] = wrong if wrong < 0 else N
        else:
            forged.indices[3] = wrong if kind != "csc" or wrong < 0 else N
        for tried in (Moments.of, rc.cumulant, lambda x: rc.ContrastiveRCA().fit_views([x, X])):
            with pytest.raises(rc.DataError, match="the sparse matrix is damaged: its indices do not fit its shape"):
                tried(forged)
    assert Moments.of(matrix) == Moments.of(X)


def test_an_annotated_matrix_in_memory_is_checked_too(X):
    cells = anndata.AnnData(sparse.csr_matrix(X))
    cells.X.indices[0] = 4
    with pytest.raises(rc.DataError, match="view 'U': the sparse matrix is damaged"):
        rc.ContrastiveRCA().fit_views([cells, X])


def test_values_of_other_files_are_not_read(X, tmp_path):
    path, other = write(tmp_path / "t.h5ad", X, np.asarray), tmp_path / "secret"
    other.write_bytes(X.tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["X"] = X

    def external_storage(file):
        file.create_dataset("X", X.shape, "f8", external=[(str(other), 0, X.nbytes)])

    def external_link(file):
        file["X"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "X")

    def soft_link(file):
        file["elsewhere"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/")
        file["X"] = h5py.SoftLink("/elsewhere/X")

    def virtual(file):
        layout = h5py.VirtualLayout(X.shape, "f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "X", X.shape)
        file.create_virtual_dataset("X", layout)

    for change in (external_storage, external_link, soft_link, virtual):
        with h5py.File(path, "r+") as file:
            del file["X"]
            change(file)
        for door in doors(path):
            with pytest.raises(rc.DataError, match=r"'X' of t.h5ad (is a link|keeps its values in other files)"):
                door()
    write(path, X, np.asarray)
    with h5py.File(path, "r+") as file:
        del file["obs/age"]
        file["obs/age"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "X")
    with pytest.raises(rc.DataError, match=r"'age' of t.h5ad is a link"):
        open_source(path)


def test_sparse_groups_of_zarr_are_checked(X, tmp_path):
    zarr = pytest.importorskip("zarr")
    matrix = sparse.csr_matrix(X)
    for wrong in (None, 9):
        group = zarr.open_group(str(tmp_path / "t.zarr"), mode="w")
        part = group.create_group("X")
        part.attrs["shape"], part.attrs["encoding-type"] = list(X.shape), "csr_matrix"
        if wrong is not None:
            matrix.indices[-1] = wrong
        for name in ("data", "indices", "indptr"):
            part[name] = getattr(matrix, name)
        if wrong is None:
            assert Moments.from_source(tmp_path / "t.zarr") == Moments.of(X)
        else:
            with pytest.raises(rc.DataError, match=r"damaged"):
                Moments.from_source(tmp_path / "t.zarr")


def test_modalities_of_a_file_are_checked(X, tmp_path):
    mudata = pytest.importorskip("mudata")
    parts = {name: anndata.AnnData(sparse.csr_matrix(X)) for name in ("rna", "protein")}
    for name, part in parts.items():
        part.var_names = [f"{name}{i}" for i in range(4)]
    path = tmp_path / "t.h5mu"
    mudata.MuData(parts).write(path)
    np.testing.assert_array_equal(open_source(path).read(["protein3"])["protein3"], X[:, 3])
    forge(path, "mod/protein/X/indices", first(4))
    with pytest.raises(rc.DataError, match=r"damaged"):
        open_source(path).array()


def test_a_heap_without_end_is_refused(X, tmp_path):
    """libhdf5 would walk it forever."""
    write(tmp_path / "t.h5ad", X)
    raw = bytearray((tmp_path / "t.h5ad").read_bytes())
    heap = raw.find(b"GCOL\x01\0\0\0")
    assert heap >= 0
    at, end = heap + 16, heap + int.from_bytes(raw[heap + 8 : heap + 16], "little")
    while int.from_bytes(raw[at : at + 2], "little"):
        at += 16 + (int.from_bytes(raw[at + 8 : at + 16], "little") + 7) // 8 * 8
    assert at < end
    raw[at + 8 : at + 16] = bytes(8)
    (tmp_path / "t.h5ad").write_bytes(raw)
    for door in doors(tmp_path / "t.h5ad"):
        with pytest.raises(rc.DataError, match="a heap without end"):
            door()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("order", ["same", "fewer", "turned"])
def test_modalities_are_read_in_step_and_by_label(X, tmp_path, monkeypatch, order):
    """Blocks of a few rows of all modalities; samples that one has not are left out, others come in the file's order."""
    mudata = pytest.importorskip("mudata")
    monkeypatch.setattr(import_module("richcomponents.data.sources.base"), "block_rows", lambda width: 7)
    labels = [f"s{i}" for i in range(N)]
    rows = {"same": np.arange(N), "fewer": np.arange(3, N, 2), "turned": np.arange(N)[::-1]}[order]
    cells = anndata.AnnData(sparse.csr_matrix(X), obs=pd.DataFrame(index=labels), var=pd.DataFrame(index=NAMES))
    proteins = anndata.AnnData(
        X[rows, :2] + 1, obs=pd.DataFrame(index=[labels[i] for i in rows]), var=pd.DataFrame(index=["p", "q"])
    )
    mudata.MuData({"rna": cells, "protein": proteins}).write(tmp_path / "t.h5mu")
    opened = open_source(tmp_path / "t.h5mu")
    kept = np.sort(rows)
    expected = np.hstack([X[kept], X[kept, :2] + 1])
    blocks = list(opened.chunks())
    assert max(map(len, blocks)) == 7
    np.testing.assert_array_equal(np.concatenate(blocks), expected)
    np.testing.assert_array_equal(opened.select(["q", "b", "p"]).array(), expected[:, [5, 1, 4]])


def test_rows_of_wide_tables_are_mapped_a_few_at_a_time(rng, monkeypatch):
    """The same bits, and no more of them in memory than of a block that is read."""
    wide = rng.normal(size=(3 * 2048 + 5, 1200))

    def turn(rows):
        return rows @ wide[:1200, :3]

    monkeypatch.setattr("richcomponents.data.rows.block_rows", lambda width: 100)
    blocks = list(open_source(wide).mapped(turn).chunks())
    assert [len(block) for block in blocks] == [2048, 2048, 2048, 5]
    monkeypatch.undo()
    np.testing.assert_array_equal(np.concatenate(blocks), open_source(wide).mapped(turn).array())


def test_a_sparse_matrix_gives_the_bits_of_the_dense_one(X, rng):
    """A few rows at a time are made dense, in memory too; alone or in an AnnData, for every choice of columns."""
    big = np.where(rng.random((9000, 6)) < 0.3, rng.exponential(size=(9000, 6)), 0.0)
    dense = Moments.of(big, 4)
    assert max(map(len, open_source(sparse.random(10_000, 5_000, 1e-4)).chunks())) < 2000
    for kind in (sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix):
        assert Moments.of(kind(big), 4) == dense
        np.testing.assert_array_equal(open_source(kind(big)).select([4, 1]).array(), big[:, [4, 1]])
    cells = anndata.AnnData(sparse.csr_matrix(big), var=pd.DataFrame(index=list("abcdef")))
    views = {"U": ["a", "b", "c"], "V": ["d", "e", "f"]}
    one, two = rc.ContrastiveRCA(views=views).fit(cells), rc.ContrastiveRCA(views=3).fit(big)
    np.testing.assert_array_equal(one.A_, two.A_)
    np.testing.assert_array_equal(one.transform(cells), two.transform(big))
    grouped = rc.ContrastiveRCA(views=3).fit(sparse.csr_matrix(big), groups=np.arange(9000) // 3)
    y = rng.normal(size=9000)
    assert (
        grouped.outcome_test(big, y).p_value
        == rc.ContrastiveRCA(views=3).fit(big, groups=np.arange(9000) // 3).outcome_test(big, y).p_value
    )


def test_a_sign_is_found_wherever_the_pieces_of_a_file_end(monkeypatch):
    arrays = import_module("richcomponents.data.sources.arrays")
    text = b"GCOL..GCOLGCOL.....GCO"
    for size in range(1, 12):
        monkeypatch.setattr(arrays, "_PART", size)
        assert list(arrays._found(io.BytesIO(text), b"GCOL")) == [0, 6, 10]
