"""Every door reads the same tables as the same numbers, and refuses the same ones."""

from __future__ import annotations

import warnings

import numpy as np
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
