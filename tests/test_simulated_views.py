"""make_views: the truth it returns is the truth of its rows."""

from __future__ import annotations

import numpy as np
import pytest

import richcomponents as rc


def test_rows_are_the_sum_of_the_transformed_components():
    data = rc.datasets.make_views(50, {"a": 2, "b": 3, "c": 4})
    for view in data.views:
        rebuilt = sum(data.components[q] @ data.transforms[view, q].T for q in data.sets if view in q)
        np.testing.assert_allclose(data.view(view), rebuilt, atol=1e-12)
    assert len(data.sets) == 7
    for q in data.sets:
        np.testing.assert_array_equal(data.transforms[q[0], q], np.eye(data.covariances[q].shape[0]))


@pytest.mark.parametrize("kind", ["exponential", "uniform", "discrete", "gaussian"])
def test_population_cumulants_are_those_of_large_samples(kind):
    data = rc.datasets.make_views(400_000, 1, 2, kinds=kind)
    (q,) = data.sets
    np.testing.assert_allclose(data.cumulant(q, 2), data.covariances[q], atol=1e-12)
    for order, error in ((2, 0.03), (3, 0.1), (4, 0.8)):
        np.testing.assert_allclose(rc.cumulant(data.components[q], order), data.cumulant(q, order), atol=error)


def test_absent_components_and_unknown_kinds():
    data = rc.datasets.make_views(20, 2, scales={("a", "b"): 0.0})
    assert not data.components["a", "b"].any()
    assert not data.cumulant(("a", "b"), 3).any()
    with pytest.raises(ValueError, match="kinds are"):
        rc.datasets.make_views(20, 2, kinds="cauchy")


def test_subsets_may_be_written_in_any_order():
    ordered = {"sets": [("rna",), ("prot",), ("rna", "prot")], "scales": {("rna", "prot"): 2.0, ("rna",): 0.5}}
    turned = {"sets": ["rna", ["prot"], ("prot", "rna")], "scales": {("prot", "rna"): 2.0, "rna": 0.5}}
    kinds = {("rna",): "uniform", ("prot",): "discrete", ("prot", "rna"): "gaussian"}
    one, two = (rc.datasets.make_views(20, ("rna", "prot"), 2, kinds=kinds, **given) for given in (ordered, turned))
    np.testing.assert_array_equal(one.X, two.X)
    assert one.kinds == two.kinds == {("rna",): "uniform", ("prot",): "discrete", ("rna", "prot"): "gaussian"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sets": [("a", "b"), ("b", "a")]}, "appears twice"),
        ({"sets": [("a", "x"), "b"]}, "names view 'x'"),
        ({"sets": ["ab"]}, "names view 'ab'"),
        ({"sets": ["a", "b", ()]}, "is empty"),
        ({"scales": {("a", "x"): 1.0}}, r"scales= names \('a', 'x'\), which is not one of the sets"),
        ({"scales": {("a", "b"): 1.0, ("b", "a"): 2.0}}, "twice; every set once"),
        ({"kinds": {"ab": "uniform"}}, "kinds= names 'ab', which is not"),
        (
            {"kinds": {"a": "uniform", "b": "uniform"}},
            r"does not say the distribution of the component of \('a', 'b'\)",
        ),
    ],
)
def test_sets_are_checked(given, message):
    with pytest.raises(rc.DataError, match=message):
        rc.datasets.make_views(20, 2, 1, **given)


@pytest.mark.parametrize("kind", ["labs", "exponential"])
def test_components_of_low_rank(kind):
    shared = ("a", "b")
    data = rc.datasets.make_views(
        200_000, 2, 4, kinds={shared: kind, "a": "gaussian", "b": "gaussian"}, ranks={shared: 2}
    )
    assert np.linalg.matrix_rank(data.components[shared]) == np.linalg.matrix_rank(data.covariances[shared]) == 2
    for order in (2, 3, 4):
        np.testing.assert_allclose(
            rc.cumulant(data.components[shared], order),
            data.cumulant(shared, order),
            atol=0.05 if kind == "labs" else 1.0,
        )
    with pytest.raises(rc.DataError, match="between 1 and 4"):
        rc.datasets.make_views(10, 2, 4, ranks={shared: 5})
