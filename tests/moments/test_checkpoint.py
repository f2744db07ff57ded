"""A pass that was interrupted goes on to the same bits; a checkpoint of anything else is refused."""

from __future__ import annotations

import io
import os
import signal
import zipfile

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.data.sources.base import BlockSource
from richcomponents.moments import Accumulator, Moments, Rows, open_source, partial_out


class Stops(BlockSource):
    """Blocks of rows whose reading is interrupted before block number `at`, after so many readings that are not (the means)."""

    def __init__(self, blocks, at, error=KeyboardInterrupt, free=1):
        super().__init__(blocks)
        self.at, self.error, self.free = at, error, free

    def blocks(self, columns):
        self.free -= 1
        for i, block in enumerate(super().blocks(columns)):
            if i == self.at and self.free < 0:
                raise self.error
            yield block


@pytest.fixture(autouse=True)
def heard_interrupts():
    """Shells start what runs in the background deaf to interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def X(rng):
    return rng.exponential(size=(50_000, 3))


def cut(X, size=3333):
    return [X[i : i + size] for i in range(0, len(X), size)]


@pytest.mark.parametrize("options", [{}, {"n_blocks": 1}, {"shift": np.ones(3)}])
@pytest.mark.parametrize("order", [2, 5])
def test_an_interrupted_pass_goes_on_to_the_same_bits(X, tmp_path, options, order):
    path = tmp_path / "c.npz"
    reference = Moments.of(X, order, **options)
    for stop in (1, 7, 10):
        source = Stops(cut(X), stop, free=int(not path.exists() and "shift" not in options))
        with pytest.raises(KeyboardInterrupt):
            Moments.from_source(source, order, checkpoint=path, **options)
        assert path.exists()
    assert Moments.from_source(BlockSource(cut(X)), order, checkpoint=path, **options) == reference
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_waits_for_the_block(X, tmp_path, monkeypatch):
    path = tmp_path / "c.npz"
    real, calls = Accumulator._take, []

    def interrupted(self, pieces):
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)  # in the middle of an update
        real(self, pieces)

    with monkeypatch.context() as patched:
        patched.setattr(Accumulator, "_take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Moments.from_source(cut(X), 3, checkpoint=path)
    assert len(calls) == 4
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    reference, taken, whole = Moments.of(X, 3), [], Accumulator.update
    monkeypatch.setattr(
        Accumulator, "update", lambda self, rows, start: taken.append(start) or whole(self, rows, start)
    )
    assert Moments.from_source(cut(X), 3, checkpoint=path) == reference
    assert min(taken) == 4 * 3333  # what was read is compared, not summed again


def test_groups_go_on_too(X, tmp_path, rng):
    groups = rng.integers(0, 300, size=len(X))
    path = tmp_path / "c.npz"
    with pytest.raises(OSError, match="disk"):
        Moments.from_source(Stops(cut(X), 7, OSError("disk")), 3, checkpoint=path, groups=groups)
    done = Moments.from_source(BlockSource([X[:1000], X[1000:]]), 3, checkpoint=path, groups=groups)
    assert done == Moments.of(X, 3, groups=groups)


def test_other_sources_columns_and_options_are_refused(X, tmp_path):
    path = tmp_path / "c.npz"
    with pytest.raises(KeyboardInterrupt):
        Moments.from_source(Stops(cut(X), 5), 3, checkpoint=path)
    before = path.read_bytes()
    for source, options in (
        (X[1:], {}),
        (cut(X[::-1]), {}),
        (cut(X), {"columns": [0, 1]}),
        (cut(X), {"n_blocks": 10}),
        (cut(X), {"groups": np.zeros(len(X))}),
    ):
        with pytest.raises(rc.DataError, match="belongs to another source"):
            Moments.from_source(source, 3, checkpoint=path, **options)
    with pytest.raises(rc.DataError, match="another shift"):
        Moments.from_source(cut(X), 3, checkpoint=path, shift=np.zeros(3))
    with pytest.raises(rc.DataError, match="another source"):
        Moments.from_source(cut(X), 4, checkpoint=path)
    assert path.read_bytes() == before
    assert Moments.from_source(cut(X), 3, checkpoint=path, threads=1) == Moments.of(X, 3)


def test_a_changed_file_is_refused(X, tmp_path, monkeypatch):
    monkeypatch.setattr("richcomponents.data.sources.base._MOST_ROWS", 9000)
    broken = X.copy()
    broken[-1, 0] = np.nan
    np.save(tmp_path / "x.npy", broken)
    path = tmp_path / "c.npz"
    shift = np.zeros(3)
    with pytest.raises(rc.DataError, match="missing or infinite"):
        Moments.from_source(tmp_path / "x.npy", 2, shift=shift, checkpoint=path, checkpoint_every=0)
    np.save(tmp_path / "x.npy", X[:100])
    with pytest.raises(rc.DataError, match="belongs to another source"):
        Moments.from_source(tmp_path / "x.npy", 2, shift=shift, checkpoint=path)


def test_a_damaged_checkpoint_says_what_to_do_and_leftovers_go(X, tmp_path):
    path = tmp_path / "c.npz"
    (tmp_path / ".c.npz.abcd1234").touch()  # of a process that was killed while it wrote
    (tmp_path / ".c.npz.not-ours").touch()
    with pytest.raises(KeyboardInterrupt):
        Moments.from_source(Stops(cut(X), 5), 2, checkpoint=path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".c.npz.not-ours", "c.npz"]
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(rc.StateFileError, match="delete it to start again"):
        Moments.from_source(cut(X), 2, checkpoint=path)


def test_writing_at_every_step_changes_nothing(X, tmp_path):
    path = tmp_path / "c.npz"
    assert Moments.from_source(cut(X), 2, checkpoint=path, checkpoint_every=0) == Moments.of(X, 2)


def test_a_row_in_the_middle_tells_one_source_from_another(X, tmp_path):
    path = tmp_path / "c.npz"
    other = X.copy()
    other[20_000, 1] += 1.0
    for source in (cut, lambda rows: rows):
        with pytest.raises(KeyboardInterrupt):
            Moments.from_source(stopped(source(X)), 2, checkpoint=path, shift=np.zeros(3))
        with pytest.raises(rc.DataError, match="belongs to another source"):
            Moments.from_source(source(other), 2, checkpoint=path, shift=np.zeros(3))
        path.unlink()


def stopped(source):
    """Rows of the source, interrupted before the last quarter."""
    rows = open_source(source)
    real = rows.source.blocks

    def blocks(columns):
        for at, block in enumerate(np.array_split(np.concatenate(list(real(columns))), 4)):
            if at == 3:
                raise KeyboardInterrupt
            yield block

    rows.source.blocks = blocks
    return rows


def test_a_map_without_a_mark_is_refused(X, tmp_path):
    rows = Rows(X).mapped(lambda block: 2 * block)
    with pytest.raises(rc.DataError, match="attribute `mark`"):
        Moments.of(rows, 2, np.zeros(3), checkpoint=tmp_path / "c.npz")
    partial = partial_out(Moments.of(X, 2), [2])
    other = partial_out(Moments.of(np.column_stack([X[:, :2], X[::-1, 2]]), 2), [2])
    mapped = Rows(X).mapped(partial.residuals)
    assert mapped.mark() != Rows(X).mapped(other.residuals).mark()
    assert Moments.of(mapped, 2, np.zeros(2), checkpoint=tmp_path / "c.npz") == Moments.of(mapped, 2, np.zeros(2))


def test_watching_changes_no_bit_of_an_iterator(rng, tmp_path):
    X = rng.exponential(size=(80_000, 2)) + np.linspace(0, 5, 80_000)[:, None]
    plain = Moments.of(iter([X]), 3)
    assert Moments.of(iter([X]), 3, progress=True) == plain
    assert Moments.of(iter([X]), 3, checkpoint=tmp_path / "c.npz") == plain


def test_an_interrupt_behind_the_last_block_is_heard(X, tmp_path):
    path = tmp_path / "c.npz"

    class Late(BlockSource):
        def blocks(self, columns):
            yield from super().blocks(columns)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        Moments.from_source(Late(cut(X)), 2, checkpoint=path, shift=np.zeros(3))
    assert Moments.from_source(BlockSource(cut(X)), 2, checkpoint=path, shift=np.zeros(3)) == Moments.of(
        X, 2, np.zeros(3)
    )


def test_a_checkpoint_is_private_and_a_state_is_not(X, tmp_path, monkeypatch):
    mask = os.umask(0o022)
    try:
        monkeypatch.setattr(os, "umask", None)  # it belongs to all threads of the process
        with pytest.raises(KeyboardInterrupt):
            Moments.from_source(Stops(cut(X), 5), 2, checkpoint=tmp_path / "c.npz")
        Moments.of(X, 2).save(tmp_path / "s.npz", force=True)
    finally:
        monkeypatch.undo()
        os.umask(mask)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("c.npz", "s.npz")] == [0o600, 0o644]


@pytest.mark.parametrize("shift", [None, np.zeros(3)])
def test_a_checkpoint_of_a_file_of_equal_size_and_time_but_other_content_is_refused(X, tmp_path, monkeypatch, shift):
    monkeypatch.setattr("richcomponents.data.sources.base._MOST_ROWS", 9000)
    path, kept = tmp_path / "x.npy", tmp_path / "c.npz"
    np.save(path, X)
    before = path.stat()
    real, calls = Accumulator.update, []

    def interrupted(self, rows, start=None):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(start)
        real(self, rows, start)

    with monkeypatch.context() as patched:
        patched.setattr(Accumulator, "update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Moments.from_source(path, 2, shift=shift, checkpoint=kept)
    for row in (0, 12_345, 26_999):  # of 27 000 that were read
        other = X.copy()
        other[row, 1] += 1.0
        np.save(path, other)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(rc.DataError, match=r"x.npy is not what was read before.*belongs to another source"):
            Moments.from_source(path, 2, shift=shift, checkpoint=kept)
    np.save(path, X)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Moments.from_source(path, 2, shift=shift, checkpoint=kept) == Moments.of(X, 2, shift)


def test_an_iterator_that_is_taken_up_again_is_compared_too(X, tmp_path):
    path, other = tmp_path / "c.npz", X.copy()
    other[9000, 0] = 7.0  # the first row is the same
    with pytest.raises(KeyboardInterrupt):
        Moments.from_source(iter(Stops(cut(X), 5, free=0).blocks(None)), 2, checkpoint=path)
    with pytest.raises(rc.DataError, match="belongs to another source"):
        Moments.from_source(iter(cut(other)), 2, checkpoint=path)
    found = Moments.from_source(iter(cut(X)), 2, checkpoint=path)
    assert found == Moments.of(X, 2, found.shift)


def test_one_pass_at_a_time_has_a_checkpoint(X, tmp_path):
    path = tmp_path / "c.npz"
    tried = []

    class Meanwhile(BlockSource):
        """Another pass is tried while this one reads."""

        def blocks(self, columns):
            for block in super().blocks(columns):
                yield block
                if path.exists() and not tried:
                    tried.append(path.read_bytes())
                    with pytest.raises(rc.DataError, match="another pass is using the checkpoint"):
                        Moments.from_source(cut(X), 2, checkpoint=path)
                    assert path.read_bytes() == tried[0]

    assert Moments.from_source(Meanwhile(cut(X)), 2, checkpoint=path, checkpoint_every=0) == Moments.of(X, 2)
    assert tried
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "c.npz.lock").touch()  # of a process that was killed: its lock went with it
    assert Moments.from_source(cut(X), 2, checkpoint=path) == Moments.of(X, 2)
    assert list(tmp_path.iterdir()) == []


def changed(path, change):
    """Apply `change` to the arrays of a file and write it anew, as an attacker would."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    arrays = {name[:-4]: np.load(io.BytesIO(data)) for name, data in members.items() if name.endswith(".npy")}
    change(arrays)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", members["header.json"])
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, array)
            archive.writestr(f"{name}.npy", buffer.getvalue())


def put(name, where, value):
    def change(arrays):
        arrays[name][where] = value

    return change


FORGED = {
    "a block that is not there": put("fragments", (0, 0), 99),
    "a negative leaf": put("fragments", (0, 1), -1),
    "more rows than there are": put("fragments", (0, 3), 2**62),
    "rows that are not finite": put("rows", (0, 0), np.nan),
    "rows seen backwards": put("seen", (0, 1), -1),
    "a range from above": put("low", 0, np.inf),
    "hashes in no order": put("prints", (0, 0), 2**60),
    "a number of rows that is none": put("sums", (0, 0), 0.5),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_forged_checkpoints_are_refused(X, tmp_path, change):
    path = tmp_path / "c.npz"
    with pytest.raises(KeyboardInterrupt):
        Moments.from_source(Stops(cut(X, 9000), 5), 2, checkpoint=path)
    changed(path, change)
    with pytest.raises(rc.StateFileError, match="delete it to start again"):
        Moments.from_source(cut(X, 9000), 2, checkpoint=path)


def test_a_checkpoint_is_no_model_and_a_state_no_checkpoint(X, tmp_path):
    path = tmp_path / "c.npz"
    with pytest.raises(KeyboardInterrupt):
        Moments.from_source(Stops(cut(X), 5), 2, checkpoint=path)
    with pytest.raises(rc.StateFileError, match="holds a CheckpointContent, no state, component or model"):
        rc.load(path)
    Moments.of(X, 2).save(path, force=True)
    with pytest.raises(rc.StateFileError, match=r"holds a Moments, not a checkpoint.*delete it to start again"):
        Moments.from_source(cut(X), 2, checkpoint=path)
