"""Dask collections: the bits of the table in memory, whatever the chunks, the workers and what happens to them."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import richcomponents as rc
from richcomponents.moments import Moments

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

N = 90_000  # a little more than two grains of 20 * 2048 rows


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(3).exponential(size=(N, 3)) + np.array([0, 5, 1])


@pytest.fixture(scope="module")
def reference(X):
    return Moments.of(X)


@pytest.mark.parametrize(
    "chunks", [(N, 3), (7777, 3), (40_960, 1), (1000, 2), ((1, 50_000, 39_999), 3), (65_536, 3)], ids=str
)
def test_any_chunks_give_the_bits_of_the_table(X, reference, chunks):
    found = Moments.from_source(da.from_array(X, chunks=chunks), order=4)
    assert found == reference


def test_data_frames_and_unknown_lengths(X, reference):
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    collection = dd.from_pandas(frame.assign(label="x"), npartitions=5)
    assert Moments.from_source(collection, 4, columns=["a", "b", "c"]) == reference
    swapped = Moments.from_source(collection, 3, columns=["c", "a"])
    assert swapped == Moments.of(X[:, [2, 0]], 3)
    array = da.from_array(X, chunks=(9000, 3))
    unknown = array[array[:, 0] > 1]
    assert Moments.from_source(unknown, 2) == Moments.of(X[X[:, 0] > 1], 2)


def test_starts_and_groups(X):
    array, shift = da.from_array(X[2048:], chunks=(20_000, 3)), np.ones(3)
    assert Moments.of(array, 2, shift, 2048) == Moments.of(X[2048:], 2, shift, 2048)
    assert Moments.of(array, 2, shift, 5) == Moments.of(X[2048:], 2, shift, 5)
    groups = np.arange(N) // 7
    assert Moments.of(da.from_array(X, chunks=(8000, 3)), 2, groups=groups) == Moments.of(X, 2, groups=groups)


def test_fits_are_equal_in_bits():
    data = rc.datasets.make_contrastive(5000, d=3, S2="skewed", random_state=4)
    age = np.random.default_rng(0).normal(size=(5000, 1))
    table = np.hstack([data.X, age])
    model = rc.ContrastiveRCA(views=3, covariates=[6])
    one = model.fit(table).A_
    np.testing.assert_array_equal(model.fit(da.from_array(table, chunks=(777, 2))).A_, one)


def test_what_cannot_be_done_is_said(X):
    array = da.from_array(X, chunks=(9000, 3))
    with pytest.raises(rc.DataError, match="column 1 holds a missing"):
        Moments.from_source(da.where(array > 12, np.nan, array))
    for wrong in (array[:, 0], dask.delayed(np.zeros)((3, 3))):
        with pytest.raises(rc.DataError, match="two dimensions"):
            Moments.from_source(wrong)
    with pytest.raises(rc.DataError, match=r"compute\(\)"):
        rc.cumulant(array)


def slow(block, place):
    """A map on the way that takes its time and leaves a trace, so that a worker can be killed in the middle."""
    (place / f"{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(0.2)
    return block


@contextmanager
def cluster_that_loses_a_worker(place):
    """Two processes, one of which is killed when some of the slow pieces are done and most are not; yields who was killed."""
    distributed = pytest.importorskip("distributed")
    killed = []

    def kill_one():
        while len(traces := list(place.iterdir())) < 3:
            time.sleep(0.02)
        killed.append(int(traces[0].name.partition("-")[0]))
        os.kill(killed[0], signal.SIGKILL)

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        killer = threading.Thread(target=kill_one, daemon=True)

        def begin():
            for trace in place.iterdir():
                trace.unlink()
            killer.start()

        yield begin
        killer.join(timeout=10)
    assert killed
    assert len({trace.name.partition("-")[0] for trace in place.iterdir()}) >= 2


@pytest.mark.cluster
def test_a_killed_worker_changes_no_bit(X, tmp_path):
    with cluster_that_loses_a_worker(tmp_path) as begin:
        array = da.from_array(X, chunks=(10_000, 3)).map_blocks(slow, tmp_path, dtype=float)
        begin()
        found = Moments.from_source(array, order=2, shift=np.ones(3))
    assert found == Moments.of(X, 2, np.ones(3))


@pytest.mark.cluster
def test_learners_and_results_of_two_processes_one_of_which_is_killed(tmp_path):
    data = rc.datasets.make_contrastive(8000, d=3, S2="skewed", random_state=4)
    table = np.column_stack([data.X, data.y])
    model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views={"U": [0, 1, 2], "V": [3, 4, 5]}))
    here = clone(model).fit(table, 6)
    with cluster_that_loses_a_worker(tmp_path) as begin:
        array = da.from_array(table, chunks=(1000, 7)).map_blocks(slow, tmp_path, dtype=float)
        begin()
        there = clone(model).fit(array, 6)
        cleaned = there.rca_.transform(array).compute()
    np.testing.assert_array_equal(there.rca_.A_, here.rca_.A_)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-10)
    np.testing.assert_allclose(cleaned, here.rca_.transform(table), rtol=1e-10, atol=1e-12)


def test_a_piece_larger_than_memory_is_refused():
    X = da.zeros((2**24, 40), chunks=(2**16, 40))
    with pytest.raises(rc.CapacityError, match="fewer blocks"):
        Moments.from_source(X, 2, shift=np.zeros(40), n_blocks=10_000)
