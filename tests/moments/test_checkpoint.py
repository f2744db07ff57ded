"""A pass that was interrupted goes on to the same bits; a checkpoint of anything else is refused."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.moments import Accumulator, Moments, Rows, partial_out
from richcomponents.moments.sources import BlockSource


class Stops(BlockSource):
    """Blocks of rows whose reading is interrupted before block number `at`, after so many readings that are not (the means)."""

    def __init__(self, blocks, at, error=KeyboardInterrupt, free=1):
        super().__init__(blocks)
        self.at, self.error, self.free = at, error, free

    def blocks(self, start, columns):
        self.free -= 1
        for i, block in enumerate(super().blocks(start, columns)):
            if i == self.at and self.free < 0:
                raise self.error
            yield block


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
    for stop in (1, 7, 3):  # of the blocks that are left
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
    source, read = BlockSource(cut(X)), []
    whole = source.blocks
    monkeypatch.setattr(source, "blocks", lambda start, columns: read.append(start) or whole(start, columns))
    assert Moments.from_source(source, 3, checkpoint=path) == Moments.of(X, 3)
    assert read == [4 * 3333]  # nothing that was read is read again


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
        with pytest.raises(rc.DataError, match="belongs to another source, other columns or other options"):
            Moments.from_source(source, 3, checkpoint=path, **options)
    with pytest.raises(rc.DataError, match="another shift"):
        Moments.from_source(cut(X), 3, checkpoint=path, shift=np.zeros(3))
    with pytest.raises(rc.DataError, match="another source"):
        Moments.from_source(cut(X), 4, checkpoint=path)
    assert path.read_bytes() == before
    assert Moments.from_source(cut(X), 3, checkpoint=path, threads=1) == Moments.of(X, 3)


def test_a_changed_file_is_refused(X, tmp_path, monkeypatch):
    monkeypatch.setattr("richcomponents.moments.sources.base._MOST_ROWS", 9000)
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
    rows = Rows.of(source)
    real = rows.source.blocks

    def blocks(start, columns):
        for at, block in enumerate(np.array_split(np.concatenate(list(real(start, columns))), 4)):
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
        def blocks(self, start, columns):
            yield from super().blocks(start, columns)
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
