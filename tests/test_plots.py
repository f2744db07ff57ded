"""Plots show the numbers they are given, whatever the columns are called."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

import richcomponents as rc
from richcomponents.cumulants import Estimate
from richcomponents.plots import MOST, correlation_plot, heat_map, interval_plot, largest, variance_plot, volcano_plot


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(1500, d=4, S2="skewed", random_state=3)


@pytest.fixture(scope="module")
def model(data):
    return rc.ContrastiveRCA(views=4).fit(data.X)


def test_largest_keeps_the_order_and_survives_nan():
    assert largest(np.array([np.nan, -3.0, 1.0, 2.0]), 2).tolist() == [1, 3]


def test_correlations_are_the_heights_of_the_bars():
    ax = correlation_plot(np.array([0.9, 0.4, 0.1]), 1)
    assert [bar.get_height() for bar in ax.patches] == [0.9, 0.4, 0.1]
    assert ax.patches[0].get_facecolor() != ax.patches[1].get_facecolor() == ax.patches[2].get_facecolor()


def test_own_and_shared_fill_each_row():
    own, shared = np.array([3.0, 1.0]), np.array([1.0, 1.0])
    widths = [bar.get_width() for bar in variance_plot(["a", "b"], own, shared).patches]
    np.testing.assert_allclose(widths, [0.75, 0.5, 0.25, 0.5])


def test_intervals_show_the_largest_of_many():
    values = np.arange(100.0)
    ax = interval_plot([f"c{i}" for i in range(100)], {"RCA": values}, values - 1, values + 1, title="all")
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"c{i}" for i in range(100 - MOST, 100)]
    assert ax.get_title(loc="left") == f"all, {MOST} largest of 100"


def test_unknown_limits_draw_no_line():
    unknown = np.full(2, np.nan)
    ax = interval_plot(["a", "b"], {"RCA": np.ones(2)}, unknown, unknown)
    assert "95% interval" not in ax.get_legend_handles_labels()[1]


def test_names_are_no_formulas():
    names = ["$x_1$", "$broken", "a" * 80]
    figure = heat_map(np.eye(3), names, names).figure
    figure.canvas.draw()  # would raise on "$broken" read as a formula
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][:2] == names[:2]


@pytest.mark.parametrize("what", ["correlations", "variance", "intervals", "A"])
def test_one_picture_of_the_model(model, what):
    _, ax = plt.subplots()
    assert model.plot(what, ax=ax) is ax


def test_overview_has_four_panels(model):
    assert sum(bool(ax.get_title(loc="left")) for ax in model.plot().axes) == 4
    with pytest.raises(ValueError, match="figure of its own"):
        model.plot(ax=plt.subplots()[1])
    with pytest.raises(ValueError, match="what must be 'overview' or one of 'correlations'"):
        model.plot("B")


@pytest.mark.parametrize("letters", [10, 50])
def test_labels_have_room_on_a_narrow_figure(letters):
    figure = plt.figure(figsize=(5.2, 3), layout="constrained")
    label = " ".join(["word"] * (letters // 5))
    ax = interval_plot(["a" * 40, "b"], {"RCA": np.ones(2)}, label=label, ax=figure.add_subplot())
    figure.draw_without_rendering()
    box = ax.xaxis.label.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert ax.get_xlabel().split() == label.split()


def test_names_of_a_volcano_stay_inside():
    rng = np.random.default_rng(0)
    value = np.concatenate([[-3.0, 3.0], 0.1 * rng.normal(size=40)])
    effects = Estimate(value, np.full(42, 0.1), 500, names=tuple(f"a rather long name {i}" for i in range(42)))
    ax = volcano_plot(effects)
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) >= 2
    assert all(ax.bbox.x0 <= box.x0 and box.x1 <= ax.bbox.x1 for box in boxes)


def test_variance_table_adds_up(model):
    table = model.variance_table()
    np.testing.assert_allclose(table.own + table.shared, table.total, rtol=1e-12)
    assert np.all(table.identified_low <= table.own)
    assert np.all(table.own <= table.residualised * (1 + 1e-12))
    assert np.all((table.low <= table.own) & (table.own <= table.high))
    assert table.rows()[0]["name"] == "x0"


def test_learners_plot(data):
    rca = rc.ContrastiveRCA(views=4)
    names = ["p", "q", "r", "s"]
    label = data.y > 0
    fitted = [
        rc.ComponentPCA(1, rca=rca).fit(data.X),
        rc.ComponentPCA(3, rca=rca).fit(data.X),
        rc.ComponentRegression(rca=rca).fit(data.X, data.y),
        rc.ComponentLogisticRegression(rca=rca).fit(data.X, label),
        rc.ComponentGaussianMixture(2, rca=rca, n_init=1).fit(data.X),
        rc.ComponentIsing(rca=rca).fit(data.X * 3**0.5),  # S1 has variance one, as spins have
    ]
    for learner in fitted:
        ax = learner.plot(names=names)
        assert [text.get_text() for text in ax.get_yticklabels()] == names
