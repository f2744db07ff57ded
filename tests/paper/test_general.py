"""FindLinear and ComputeCumulant are exact for exact cumulants."""

from __future__ import annotations

import numpy as np
import pytest

from richcomponents.components.sets import SetSystem
from richcomponents.errors import DataError
from richcomponents.paper import compute_cumulant, find_linear
from tests.sets.population import Population, relative


def views(population):
    """Every combination of the supports, by view."""
    return {view: population.rows[:, columns] for view, columns in population.columns.items()}


def fit(population, **options):
    return find_linear(views(population), population.system, gauge=population.gauge, unbiased=False, **options)


def random_system(seed, L=2):
    """A random L-distinguishable system of four views."""
    rng = np.random.default_rng(seed)
    everything = SetSystem.all("abcd").members
    while True:
        larger = [q for q in everything if len(q) > 1]
        chosen = [larger[i] for i in rng.choice(len(larger), 3, replace=False)]
        system = SetSystem.of([*chosen, *"abcd"], "abcd")
        if system.L == L and any(len(q) > 2 for q in chosen):
            return system


def words(sets):
    return SetSystem.of(map(tuple, sets.split()), "abcd")


SYSTEMS = {
    "all of three": SetSystem.all("abc"),
    "chain": words("a b c d ab abc abcd"),
    "path": words("a b c d ab bc cd"),
    "star": words("a b c d ab ac ad"),
    "random": random_system(3),
}


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("name", SYSTEMS)
def test_transformations_and_cumulants_to_order_five(name, d):
    system = SYSTEMS[name]
    population = Population(system, dict.fromkeys(system.views, d), seed=d)
    linear = fit(population)
    assert not linear.absent
    for key, A in population.A.items():
        assert relative(linear.transforms[key], A) < 1e-8
    for order in range(system.L, 6):
        for q in system:
            found = compute_cumulant(views(population), linear, q, order, unbiased=False)
            assert relative(found, population.exact(q, order)) < 1e-8


def test_views_of_different_widths_with_the_smallest_as_gauge():
    system = SYSTEMS["path"]
    population = Population(system, {"a": 2, "b": 3, "c": 1, "d": 2}, seed=1, order=4)
    linear = fit(population, order=4)
    for key, A in population.A.items():
        assert relative(linear.transforms[key], A) < 1e-8
    first = {q: q[0] for q in system}
    with pytest.raises(DataError, match=r"gauge=\{\('b', 'c'\): 'c'\}"):
        find_linear(views(population), system, order=4, gauge=first, unbiased=False)


def test_an_absent_component_is_found_and_the_others_stay_exact():
    system = SetSystem.all("abc")
    population = Population(system, dict.fromkeys("abc", 2), absent=[("a", "b", "c"), ("a", "c")])
    linear = fit(population, order=4)
    assert set(linear.absent) == {("a", "b", "c"), ("a", "c")}
    for (view, q), A in linear.transforms.items():
        assert relative(A, population.A[view, q]) < 1e-8


def test_too_low_orders_are_refused_in_words():
    population = Population(SetSystem.all("abc"), dict.fromkeys("abc", 1), order=4)
    with pytest.raises(DataError, match="3-distinguishable"):
        fit(population, order=3)
    linear = fit(population, order=4)
    with pytest.raises(DataError, match="takes 3 slots"):
        compute_cumulant(views(population), linear, ("a", "b", "c"), 2, unbiased=False)


def test_members_of_a_set_go_by_their_names_in_any_order():
    rng = np.random.default_rng(0)
    S = rng.exponential(size=(500, 2))
    tables = {"a": S + rng.normal(size=S.shape), "b": S + rng.normal(size=S.shape)}
    linear = find_linear(tables, [("a",), ("b",), ("a", "b")])
    one, other = (compute_cumulant(tables, linear, names, 3) for names in (("a", "b"), ("b", "a")))
    np.testing.assert_array_equal(one, other)
    with pytest.raises(DataError, match=r"no component of \['a', 'c'\]: there are \[\['a', 'b'\]"):
        compute_cumulant(tables, linear, ("a", "c"), 3)
