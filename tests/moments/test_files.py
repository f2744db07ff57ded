"""Saved states: bit for bit, or a clear error."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.moments import Moments


@pytest.fixture
def state(rng):
    return Moments.of(rng.normal(size=(300, 4)), 4, n_blocks=4)


def test_round_trip_is_bit_for_bit(state, tmp_path, rng):
    path = tmp_path / "state.npz"
    state.save(path)
    loaded = Moments.load(path)
    assert loaded == state
    np.testing.assert_array_equal(loaded.blocks, state.blocks)
    more = Moments.of(rng.normal(size=(50, 4)), 4, state.shift, 300, n_blocks=4)
    assert loaded + more == state + more
    assert [p.name for p in tmp_path.iterdir()] == ["state.npz"]  # no temporary left behind


def test_numpy_can_read_the_arrays(state, tmp_path):
    state.save(tmp_path / "state.npz")
    with np.load(tmp_path / "state.npz", allow_pickle=False) as archive:
        assert archive["sums"].shape[1] == state.layout.size


def test_empty_round_trips(tmp_path):
    Moments.empty(3, 4).save(tmp_path / "empty.npz")
    assert Moments.load(tmp_path / "empty.npz") == Moments.empty(3, 4)


def rewrite(path, change):
    """Apply `change` to the dict of members of the archive."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def header(members, **changes):
    old = json.loads(members["header.json"])
    old.update(changes)
    members["header.json"] = json.dumps(old).encode()


def layout(members, **changes):
    """Change the layout that the table of objects describes."""
    old = json.loads(members["header.json"])
    next(row for row in old["rows"] if row.get("class") == "Layout")["fields"].update(changes)
    members["header.json"] = json.dumps(old).encode()


def array_bytes(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: header(m, version=99), "version 99.*update"),
        (lambda m: header(m, version="1"), "version"),
        (lambda m: header(m, version=3), "an older edition of richcomponents.*sum the rows"),
        (lambda m: header(m, format="richcomponents.Moments", version=2), "an older edition of richcomponents"),
        (lambda m: header(m, format="other"), "does not hold"),
        (lambda m: header(m, arrays=None), "not a readable file"),
        (lambda m: header(m, arrays={}), "it should be None"),
        (lambda m: m.update({"header.json": b"not json"}), "not a readable file"),
        (lambda m: m.update({"header.json": b" " * 5_000_000}), "too large"),
        (lambda m: m.pop("shift.npy"), "is None, it should be"),
        (lambda m: m.update({"shift.npy": array_bytes(np.zeros(9))}), "it should be"),
        (lambda m: m.update({"shift.npy": array_bytes(np.array([{}] * 4), allow_pickle=True)}), "Python objects"),
        (lambda m: m.update({"sums.npy": m["sums.npy"][:-64]}), "instead"),
        (lambda m: layout(m, n_columns=10**6), "more than the limit"),
        (lambda m: layout(m, surprise=1), "no part 'surprise'"),
        (lambda m: layout(m, n_columns=3), "the shift has shape"),
        (lambda m: layout(m, n_columns=10**30), "more than the limit"),  # sizes, not lists
        (lambda m: layout(m, n_blocks=10**12), "more than the limit"),
        (lambda m: layout(m, n_blocks=3), "cannot exist"),
        (lambda m: m.update({"header.json": m["header.json"].decode().encode("utf-16")}), "not a readable file"),
    ],
)
def test_damaged_and_hostile_files_are_refused(state, tmp_path, change, message):
    path = tmp_path / "state.npz"
    state.save(path)
    rewrite(path, change)
    with pytest.raises(rc.StateFileError, match=message):
        Moments.load(path)


def test_nodes_that_cannot_exist_are_refused(state, tmp_path):
    path = tmp_path / "state.npz"
    state.save(path)

    def change(members):
        nodes = np.load(io.BytesIO(members["nodes.npy"]))
        nodes[0, 0] = 77
        members["nodes.npy"] = array_bytes(nodes)

    rewrite(path, change)
    with pytest.raises(rc.StateFileError, match="cannot exist"):
        Moments.load(path)


def test_sums_that_no_rows_have_are_refused(state, tmp_path):
    path = tmp_path / "state.npz"
    for count in (-1.0, 0.5, 2.0**60, np.nan):
        state.save(path)

        def change(members, count=count):
            sums = np.load(io.BytesIO(members["sums.npy"]))
            sums[0, 0] = count
            members["sums.npy"] = array_bytes(sums)

        rewrite(path, change)
        with pytest.raises(rc.StateFileError, match="sums are damaged"):
            Moments.load(path)


def test_blocks_that_would_not_fit_into_memory_are_refused(tmp_path):
    path = tmp_path / "empty.npz"
    Moments.empty(3, 4).save(path)
    rewrite(path, lambda m: layout(m, n_blocks=10**9))
    with pytest.raises(rc.StateFileError, match="more than the limit"):
        Moments.load(path)


def test_a_cap_is_kept(state, tmp_path):
    state.save(tmp_path / "state.npz")
    with pytest.raises(rc.StateFileError, match="more than the limit 100"):
        Moments.load(tmp_path / "state.npz", max_bytes=100)


def test_every_truncation_and_bit_flip_is_refused_or_harmless(state, tmp_path):
    path = tmp_path / "state.npz"
    state.save(path)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for cut in rng.integers(0, len(good), size=60):
        path.write_bytes(good[:cut])
        with pytest.raises(rc.StateFileError):
            Moments.load(path)
    for at, bit in zip(rng.integers(0, len(good), size=200), rng.integers(0, 8, size=200), strict=True):
        bad = bytearray(good)
        bad[at] ^= 1 << bit
        path.write_bytes(bytes(bad))
        with suppress(rc.StateFileError):
            assert Moments.load(path) == state  # a flag of the archive that nobody reads


def test_a_failed_write_leaves_the_old_file(state, tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    state.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(np.lib.format, "write_array", lambda *a, **k: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        state.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["state.npz"]


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        Moments.load(tmp_path / "nothing.npz")
