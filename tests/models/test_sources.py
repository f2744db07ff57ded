"""A fit to a file is the fit to the table, bit for bit."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pandas as pd
import pytest

import richcomponents as rc
from richcomponents.moments import Rows, accumulator, open_source
from richcomponents.moments.data import RowData


@pytest.fixture(scope="module")
def frame():
    data = rc.datasets.make_contrastive(6000, d=3, S2="skewed", random_state=1)
    table = pd.DataFrame(data.X, columns=[*("u0", "u1", "u2"), *("v0", "v1", "v2")])
    table.insert(2, "age", np.random.default_rng(0).normal(size=6000))
    table["u0"] += table["age"]
    return table


VIEWS = {"tests": ["u0", "u1", "u2"], "controls": ["v0", "v1", "v2"]}


def same(one, two):
    np.testing.assert_array_equal(one.A_, two.A_)
    np.testing.assert_array_equal(one.solution_.mean, two.solution_.mean)
    assert one.solution_.state == two.solution_.state
    for name in one.components_:
        np.testing.assert_array_equal(one.components_[name].covariance, two.components_[name].covariance)
        np.testing.assert_array_equal(one.components_[name].mean, two.components_[name].mean)


@pytest.mark.parametrize(
    "settings", [{}, {"covariates": ["age"]}, {"method": "paper"}, {"order": 5}, {"rank": 1}], ids=str
)
def test_a_file_gives_the_bits_of_the_table(frame, tmp_path, settings):
    pytest.importorskip("pyarrow")
    frame.assign(label="x").to_parquet(tmp_path / "t.parquet", row_group_size=1000)
    in_memory = rc.ContrastiveRCA(views=VIEWS, **settings).fit(frame)
    from_file = rc.ContrastiveRCA(views=VIEWS, **settings).fit(tmp_path / "t.parquet")
    same(in_memory, from_file)
    assert from_file.feature_names_in_.tolist() == [*frame.columns, "label"]
    assert from_file.get_feature_names_out().tolist() == ["u0", "u1", "u2"]
    if settings.get("order") == 5:
        one, two = (m.components_["S1"].cumulant(5) for m in (in_memory, from_file))
        np.testing.assert_array_equal(one, two)


def test_groups_and_wide_tables_too(tmp_path, rng):
    X = rng.exponential(size=(150, 60))
    np.save(tmp_path / "wide.npy", X)
    same(rc.ContrastiveRCA(views=30).fit(X), rc.ContrastiveRCA(views=30).fit(tmp_path / "wide.npy"))
    data = rc.datasets.make_contrastive(3000, d=3, S2="skewed", random_state=2)
    np.save(tmp_path / "g.npy", data.X)
    groups = rng.integers(0, 100, size=3000)
    one, two = (rc.ContrastiveRCA(views=3).fit(X, groups=groups) for X in (data.X, str(tmp_path / "g.npy")))
    same(one, two)


def followed(patched, owner, name, change):
    """The method, and then the change."""
    real = getattr(owner, name)

    def both(self, *arguments):
        result = real(self, *arguments)
        change()
        return result

    patched.setattr(owner, name, both)


def rewritten(path, write, table):
    """Other content in place of a file, of the same size and time of change where the format allows."""
    before = path.stat()
    write(table, path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("t.npy", lambda table, path: np.save(path, table.to_numpy())),
        ("t.csv", lambda table, path: table.to_csv(path, index=False, float_format="%+.17e")),
        ("t.parquet", lambda table, path: table.to_parquet(path, compression=None)),
    ],
)
def test_a_file_that_changes_between_two_passes_is_noticed(frame, tmp_path, monkeypatch, name, write):
    table, path = frame.drop(columns="age"), tmp_path / name
    other = table.copy()
    other["v1"] *= -1.0
    one = table.copy()
    one.loc[5999, "v2"] = 0.125  # a single value, in the last row
    write(table, path)
    model = rc.ContrastiveRCA(views=3).fit(path)
    for changed in (other, one):
        for owner, step, reading in (
            (RowData, "moments", rc.ContrastiveRCA(views=3).fit),
            (accumulator, "column_means", rc.Moments.from_source),
        ):
            write(table, path)
            with monkeypatch.context() as patched:
                followed(patched, owner, step, partial(rewritten, path, write, changed))
                with pytest.raises(rc.DataError, match=f"{name} is not what was read before"):
                    reading(path)
    write(table, path)
    same(rc.ContrastiveRCA(views=3).fit(path), model)


def test_a_file_that_grows_or_shrinks_while_it_is_read_is_noticed(frame, tmp_path, monkeypatch):
    table, path = frame.drop(columns="age"), tmp_path / "t.npy"
    for rows in (5000, 5999):
        np.save(path, table)
        with monkeypatch.context() as patched:
            followed(patched, RowData, "moments", partial(np.save, path, table[:rows]))
            with pytest.raises(rc.DataError, match=r"t.npy (is not what was read before|is cut off)"):
                rc.ContrastiveRCA(views=3).fit(path)


def test_an_iterator_is_fitted_from_its_moments(frame):
    X = frame[[*VIEWS["tests"], *VIEWS["controls"]]].to_numpy()
    model = rc.ContrastiveRCA(views=3).fit(X[i : i + 1000] for i in range(0, 6000, 1000))
    reference = rc.ContrastiveRCA(views=3).fit(X)
    np.testing.assert_allclose(model.A_, reference.A_, rtol=1e-6, atol=1e-8)


def test_learners_without_outcomes_read_files_too(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False, float_format="%.17g")
    rca = rc.ContrastiveRCA(views=VIEWS)
    one, two = (rc.ComponentPCA(2, rca=rca).fit(X) for X in (frame, tmp_path / "t.csv"))
    np.testing.assert_array_equal(one.components_, two.components_)


def test_files_that_are_not_there_are_named(frame, tmp_path):
    model = rc.ContrastiveRCA(views=VIEWS).fit(frame)
    for asks in (model.transform, model.fit):
        with pytest.raises(rc.DataError, match=r"there is no file.*nowhere.parquet"):
            asks(tmp_path / "nowhere.parquet")


def test_a_pilot_far_from_the_mean_costs_a_pass_not_digits(monkeypatch):
    data = rc.datasets.make_contrastive(5000, d=2, S2="skewed", random_state=3)
    X = data.X.copy()
    X[:2] += 1e5  # the first rows, about whose mean the second moments are taken
    reader = RowData(Rows(X), 20)
    monkeypatch.setattr("richcomponents.moments.accumulator.LEAF", 2)
    far = reader.moments(2)
    np.testing.assert_allclose(far.shift, X.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(far.covariance(), np.cov(X.T), rtol=1e-10)


def test_rows_too_large_for_memory_are_refused(rng):
    rows = open_source([rng.normal(size=(100, 3)) for _ in range(5)])
    with pytest.raises(rc.CapacityError, match="fewer columns"):
        rows.array(limit=3000)
    assert rows.more_than(499)
    assert not rows.more_than(500)


def test_errors_name_the_users_columns(rng, tmp_path):
    X = rng.normal(size=(500, 6))
    X[7, 5] = 1e200
    views = {"U": [3, 1], "V": [0, 5]}
    for model in (rc.ContrastiveRCA(views=views, method="paper"), rc.ContrastiveRCA(views=views, covariates=[2])):
        with pytest.raises(rc.DataError, match=r"column ('x5'|5) varies by"):
            model.fit(X)
    np.save(tmp_path / "t.npy", X)
    with pytest.raises(rc.DataError, match="column 5 varies by"):
        rc.ContrastiveRCA(views=views, method="paper").fit(tmp_path / "t.npy")
    frame = pd.DataFrame(X, columns=list("abcdef"))
    views = {"U": ["d", "b"], "V": ["a", "f"]}
    with pytest.raises(rc.DataError, match="column 'f' varies by"):
        rc.ContrastiveRCA(views=views, method="paper").fit(frame, sample_weight=np.ones(500))
    X[7, 5] = np.nan
    with pytest.raises(rc.DataError, match="column 5 holds"):
        rc.Moments.from_source(X, 2, columns=[1, 5])


def test_an_iterator_is_not_read_before_what_cannot_be_is_refused(rng):
    read = []

    def blocks():
        for i in range(5):
            read.append(i)
            yield rng.normal(size=(100, 4))

    for wrong, message in (
        ({"covariates": [0], "views": {"a": [0], "b": [1]}}, "is also a covariate"),
        ({"order": 7}, "from 3 to 6"),
        ({"method": "no"}, "method must be"),
        ({"views": {"a": [0]}}, "takes two views"),
    ):
        read.clear()
        with pytest.raises(ValueError, match=message):
            rc.ContrastiveRCA(**wrong).fit(blocks())
        assert len(read) <= 1  # the first block tells the columns
