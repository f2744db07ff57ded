import builtins

import numpy as np
import pytest
from scipy import stats

from richcomponents.cumulants import Estimate
from richcomponents.cumulants.estimate import imbens_manski
from richcomponents.notebook import as_frame
from richcomponents.storage import read, write

NAN = np.full(2, np.nan)


def vector(**options):
    return Estimate(np.array([1.0, -2.0]), np.array([0.5, 0.1]), 19, ("a", "b"), **options)


def test_limits_are_students():
    t = stats.t.ppf(0.975, 19)
    np.testing.assert_allclose(vector().low, [1 - 0.5 * t, -2 - 0.1 * t])
    low, high = vector().interval(0.5)
    assert np.all((low > vector().low) & (high < vector().high))
    np.testing.assert_allclose(vector().p_value, 2 * stats.t.sf([2, 20], 19))
    with pytest.raises(ValueError, match="between 0 and 1"):
        vector().interval(1.0)


def test_limits_and_p_values_agree():
    """Zero lies on the limit of level 1 - p, also where limits are around another centre than the value."""
    for centre in (None, np.array([0.4, -3.0])):
        found = Estimate(np.array([1.0, -2.0]), np.array([0.5, 0.8]), 19, centre=centre)
        for i, p in enumerate(found.p_value):
            low, high = found.interval(1 - p)
            assert min(abs(low[i]), abs(high[i])) < 1e-6
    between = vector(centre=np.array([-0.1, 2.0]))
    np.testing.assert_array_equal(between.p_value, 1.0)
    assert np.all((between.low <= between.value) & (between.value <= between.high))


def test_q_values_are_p_values_adjusted_for_their_number():
    found = Estimate(np.array([3.0, 1.0, 0.2, np.nan]), np.ones(4), 1000)
    p, q = found.p_value, found.q_value
    np.testing.assert_allclose(q[:3], [3 * p[0], 1.5 * p[1], p[2]])
    assert np.isnan(q[3])


def test_an_identified_set_is_widened():
    ends = np.array([0.0, 5.0]), np.array([10.0, 5.0])
    found = Estimate(np.array([2.0, 5.0]), NAN, 10_000, identified=ends, identified_error=(np.ones(2), np.ones(2)))
    np.testing.assert_allclose(
        found.low, [0 - 1.645, 5 - 1.96], atol=2e-3
    )  # one-sided, and two-sided where it is a point
    np.testing.assert_allclose(found.high, [10 + 1.645, 5 + 1.96], atol=2e-3)
    np.testing.assert_allclose(
        found.p_value, [1.0, 2 * stats.t.sf(5, 10_000)]
    )  # the set holds zero; a point has the usual one
    wider = Estimate(np.array([2.0, 5.0]), np.array([20.0, 0.1]), 10_000)
    both = Estimate(found.value, NAN, 10_000, identified=ends, covering=wider)
    np.testing.assert_array_equal(both.low, np.minimum(ends[0], wider.low))
    np.testing.assert_array_equal(both.high, np.maximum(ends[1], wider.high))


def test_quantiles_of_an_identified_set():
    width, t = np.array([0.0, 0.3, 1.0, 4.0]), stats.t(19)
    q = imbens_manski(width, 19, 0.9)
    np.testing.assert_allclose(t.cdf(q + width) - t.cdf(-q), 0.9, atol=1e-5)


def test_nothing_is_known_of_the_unbounded():
    found = Estimate.unbounded(np.eye(2))
    assert np.isneginf(found.low).all()
    assert np.isposinf(found.high).all()
    assert np.isnan(found.standard_error).all()
    assert "-inf" in str(found)


def test_tables_of_a_matrix_name_rows_and_columns():
    found = Estimate(np.arange(6.0).reshape(2, 3), np.ones((2, 3)), 5, ("a", "b"), ("x", "y", "z"))
    rows = found.rows()
    assert [(row["name"], row["column"], row["estimate"]) for row in rows][3] == ("b", "x", 3.0)
    assert len(str(found).splitlines()) == 7
    large = Estimate(np.zeros((40, 40)), np.ones((40, 40)), 5)
    assert "1500 more entries" in str(large)
    assert "1500 more entries" in large._repr_html_()
    assert len(large.rows()) == 1600


def test_small_p_values_are_not_zero():
    text = str(Estimate(np.array([50.0, 0.0]), np.ones(2), 10_000, ("a", "b")))
    assert "< 1e-16" in text
    assert "0.0000  [" not in text


def test_names_are_shown_and_not_obeyed():
    found = Estimate(np.ones(1), np.ones(1), 5, ("<b>\x1b[31m",), positive="<i>")
    assert "\x1b" not in str(found)
    page = found._repr_html_()
    assert "<b>" not in page
    assert "<i>" not in page
    assert "&lt;b&gt;" in page


@pytest.mark.parametrize(("missing", "module"), [((), "pandas"), (("pandas", "polars"), "pyarrow")])
def test_frames_of_what_is_installed(monkeypatch, missing, module):
    pytest.importorskip(module)
    found = builtins.__import__

    def absent(name, around=None, *rest, **options):
        if name in missing and around and around["__name__"] == as_frame.__module__:
            raise ImportError(name)
        return found(name, around, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", absent)
    frame = vector(others={"residualised": np.zeros(2)}, positive="case").to_frame()
    assert type(frame).__module__.startswith(module)
    names = list(frame.columns) if module == "pandas" else frame.column_names
    assert names == [
        "name", "estimate", "residualised", "standard error", "z", "p", "low", "high", "odds ratio", "odds low", "odds high"
    ]  # fmt: skip
    assert len(frame) == 2


def test_odds_that_could_be_anything_are_not_printed():
    found = Estimate(np.array([3.0, 3.0]), np.array([30.0, 0.5]), 19, names=("wide", "known"), positive="case")
    first, second = str(found).splitlines()[1:]
    assert "not determined" in first
    assert "20.09 [7.0" in second
    assert found.rows()[0]["odds high"] > 1e20  # a program gets all numbers


def test_it_can_be_saved(tmp_path):
    ends = np.zeros(2), np.ones(2)
    found = vector(identified=ends, identified_error=ends, covering=vector(), others={"naive": np.ones(2)})
    write(found, tmp_path / "estimate.npz")
    again = read(tmp_path / "estimate.npz", Estimate, 2**20, "not an Estimate")
    np.testing.assert_array_equal(again.low, found.low)
    assert str(again) == str(found)
