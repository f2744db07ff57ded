"""The rows behind a report: what is said about columns, and where samples lie before and after cleaning."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import richcomponents as rc
from richcomponents.plots import heat_map, interval_plot, sample_plot, variance_plot
from richcomponents.report import Findings, write_report


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_confounded(600, d_u=6, d_v=8, binary_exposure=True, effects=0.4, random_state=3)


def test_constant_repeated_and_missing_columns_are_told(tmp_path):
    found = rc.datasets.make_contrastive(400, d=4, S2="skewed", random_state=3)
    frame = pd.DataFrame(found.X, columns=[*"abcd", *"vwxy"])
    frame["flat"], frame["twin"] = 1.0, frame["a"]
    frame.loc[:39, "b"] = np.nan
    views = {"tests": [*"abcd", "flat"], "controls": [*"vwxy"]}
    with pytest.warns(rc.MissingValueWarning), pytest.warns(rc.ConstantColumnWarning):
        model = rc.ContrastiveRCA(views=views, missing="drop").fit(frame)
    rows = {row["column"]: row for row in Findings.of(model, frame).samples.columns}
    assert rows["flat"]["remark"] == "constant"
    assert rows["b"]["missing"] == pytest.approx(0.1)
    assert rows["a"]["mean"] == pytest.approx(frame["a"].mean())
    assert rows["a"]["remark"] == rows["c"]["remark"] == ""
    text = write_report(tmp_path / "page.html", model, frame).read_text(encoding="utf-8")
    assert "b misses 10.0% of its values. Look at flat (tests): constant." in " ".join(text.split())


def test_a_repeated_column_is_named():
    from richcomponents.report.findings import Samples

    x = np.random.default_rng(0).normal(size=(50, 2))
    seen = Samples({"u": x, "v": x[:, 1:]}, {"u": ("a", "b"), "v": ("c",)}, {}, None, None, 50)
    assert [row["remark"] for row in seen.columns] == ["", "", "same as b"]


def test_cleaning_takes_labs_out_of_the_picture(data):
    """Three labs lie apart as measured; without the shared part they lie on each other."""
    lab = data.S2 if hasattr(data, "S2") else None
    model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=6)).fit(data.X, data.y)
    seen = Findings.of(model, data.X, data.y).samples
    assert list(seen.known) == list(model.exposures_)
    at = seen.drawn
    assert 0 < len(at) <= 300
    spread = [np.var(part[at], axis=0).sum() for part in (seen.before, seen.after)]
    assert spread[1] < 0.6 * spread[0]
    if lab is not None:
        kept = [abs(np.corrcoef(part[:, 0], np.asarray(lab)[:, 0])[0, 1]) for part in (seen.before, seen.after)]
        assert kept[1] < 0.5 * kept[0]


def test_without_rows_there_is_no_section(data, tmp_path):
    model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=6)).fit(data.X, data.y)
    assert Findings.of(model).samples is None
    text = write_report(tmp_path / "page.html", model).read_text(encoding="utf-8")
    assert "The data</h2>" not in text


def test_rows_that_are_gone_are_not_asked_for():
    found = rc.datasets.make_contrastive(600, d=3, S2="skewed", random_state=0).X
    model = rc.ContrastiveRCA(views=3).fit(found)
    assert Findings.of(model, iter([found])).samples is None


# ---- how it is drawn


def test_markers_of_methods_stand_beside_each_other():
    same = np.ones(2)
    ax = interval_plot(["a", "b"], {"naive": same, "residualised": same, "truth": same, "RCA": same})
    heights = [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == "None"]
    assert len(set(heights)) == 4
    assert heights[-1] == 0  # the estimate is on its line
    assert max(map(abs, heights)) < 0.5


def test_the_open_part_of_a_split_is_neither_colour():
    own, shared = np.array([3.0, 1.0]), np.array([1.0, 1.0])
    ax = variance_plot(["a", "b"], own, shared, np.array([2.0, 0.0]), np.array([4.0, 1.5]))
    widths = np.array([bar.get_width() for bar in ax.patches]).reshape(3, 2)
    np.testing.assert_allclose(widths, [[0.5, 0.0], [0.5, 0.75], [0.0, 0.25]])
    assert ax.patches[2].get_hatch()
    assert "estimate" in ax.get_legend_handles_labels()[1]
    untold = variance_plot(["a", "b"], own, shared, np.zeros(2), own + shared, estimated=False)
    assert "estimate" not in untold.get_legend_handles_labels()[1]


def test_entries_that_are_not_told_are_grey():
    known = np.array([[True, False], [True, True]])
    ax = heat_map(np.eye(2), ["a", "b"], ["c", "d"], known=known)
    _, grey = ax.collections
    assert grey.get_hatch()
    assert grey.get_array().mask.ravel().tolist() == known.ravel().tolist()
    assert len(heat_map(np.eye(2), ["a", "b"], ["c", "d"], known=np.ones((2, 2), bool)).collections) == 1


@pytest.mark.parametrize("width", [3.9, 7.6])
@pytest.mark.parametrize("colour", ["classes", "numbers", None])
def test_samples_are_drawn_on_one_scale(width, colour):
    from matplotlib.figure import Figure

    figure, points = Figure(figsize=(width, 4)), np.random.default_rng(0).normal(size=(40, 2))
    values = {"classes": np.array(["$a$", "b"] * 20), "numbers": points[:, 0], None: None}[colour]
    sample_plot(figure, points, points / 2, values, "$x$")
    first, second = figure.axes[:2]
    assert first.get_xlim() == second.get_xlim()
    figure.canvas.draw()
