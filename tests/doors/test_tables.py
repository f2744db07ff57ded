"""Every door reads the same tables as the same numbers, and refuses the same ones."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from torture.doors import (
    ALLOWED,
    OUTCOMES,
    READ,
    REFUSED,
    clean,
    doors,
    file_doors,
    outcome_doors,
    outcome_of,
    said,
    same,
)

import richcomponents as rc

GOOD = clean(np.random.default_rng(5))
X = clean(np.random.default_rng(6))


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return doors(GOOD) | file_doors(tmp_path_factory.mktemp("doors"))


@pytest.fixture(scope="module")
def answers(places):
    found = {name: said(door, X) for name, door in places.items()}
    assert not [name for name, answer in found.items() if isinstance(answer, str)]
    return found


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_table_is_refused_by_every_door(places, name):
    bad = {
        door: found
        for door, function in places.items()
        if (door, name) not in ALLOWED and not same(found := said(function, REFUSED[name](X, 7, 2)), "refused")
    }
    assert {door: found for door, found in bad.items() if not same(found, "not there")} == {}


@pytest.mark.parametrize("name", READ)
def test_the_same_numbers_are_read_alike(places, answers, name):
    found = {door: said(function, READ[name](X)) for door, function in places.items()}
    assert [d for d, f in found.items() if not same(f, answers[d]) and not same(f, "not there")] == []


@pytest.mark.parametrize("name", OUTCOMES)
def test_what_is_no_outcome_is_refused_by_every_door(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        places = outcome_doors(GOOD)
    y = outcome_of(REFUSED[name](X, 7, 2), 2)
    assert {door: found for door, function in places.items() if not same(found := said(function, y), "refused")} == {}


@pytest.fixture
def on_disk(tmp_path):
    """A file of two views, with the column k that says which rows belong together."""
    data = rc.datasets.make_contrastive(300, d=3, random_state=0)
    frame = pd.DataFrame(data.X, columns=["u0", "u1", "u2", "v0", "v1", "v2"]).assign(k=np.arange(300) // 3)
    frame.to_csv(tmp_path / "y.csv", index=False)
    return frame, tmp_path / "y.csv"


NAMED = {"U": ["u0", "u1", "u2"], "V": ["v0", "v1", "v2"]}


@pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
def test_groups_may_be_the_name_of_a_column(on_disk):
    frame, path = on_disk
    expected = rc.ContrastiveRCA(views=NAMED).fit(frame, groups=frame["k"]).independent_rows_
    for X in (path, frame, rc.open_source(path)):
        assert rc.ContrastiveRCA(views=NAMED).fit(X, groups="k").independent_rows_ == pytest.approx(expected)
    assert rc.Moments.from_source(path, groups="k").dependent == rc.Moments.of(frame, groups=frame["k"]).dependent
    with pytest.raises(rc.DataError, match="column 'k' of view 'V' holds the groups"):
        rc.ContrastiveRCA(views={"U": ["u0", "u1", "u2"], "V": ["v0", "v1", "k"]}).fit(path, groups="k")
    with pytest.raises(rc.DataError, match="'j'"):
        rc.ContrastiveRCA(views=NAMED).fit(path, groups="j")
    with pytest.raises(rc.DataError, match="pass the labels of all rows"):
        rc.ContrastiveRCA(views=3).fit(frame.to_numpy()[:, :6], groups="k")
    with pytest.raises(rc.DataError, match="rows that are read once"):
        rc.ContrastiveRCA(views=3).fit(iter([frame.to_numpy()[:, :6]]), groups="k")


def test_missing_values_of_a_file_are_named_with_view_row_and_file(on_disk):
    frame, path = on_disk
    frame.loc[[7, 9], "u1"] = np.nan
    frame.to_csv(path, index=False)
    said = r"column 'u1' of view 'U' holds 2 missing or infinite values \(the first in data row 8 of y.csv\): drop"
    with pytest.raises(rc.DataError, match=said):
        rc.ContrastiveRCA(views=NAMED).fit(path)
    with pytest.raises(rc.DataError, match=r"covariate 'u1' holds 2 .*data row 8 of y\.csv"):
        rc.ContrastiveRCA(views={"U": ["u0"], "V": NAMED["V"]}, covariates=["u1"]).fit(path)


def test_a_plan_of_a_table_is_no_table(on_disk):
    polars = pytest.importorskip("polars")
    lazy = polars.DataFrame({name: on_disk[0][name].to_numpy() for name in on_disk[0]}).lazy()
    for door in (rc.ContrastiveRCA(views=NAMED).fit, rc.Moments.of, rc.open_source):
        with pytest.raises(rc.DataError, match=r"a LazyFrame is a plan.*\.collect\(\)"):
            door(lazy)
