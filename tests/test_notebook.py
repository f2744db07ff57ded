"""What was found prints well in a terminal, and in a notebook: verdict first, plain words, numbers behind a fold."""

from __future__ import annotations

import pickle
import re
import warnings
from copy import copy

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import sklearn

import richcomponents as rc
from richcomponents.cumulants.estimate import Estimate
from richcomponents.notebook import Summary, Table
from richcomponents.plots import new_figure
from tests.report.test_report import Elements

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(1500, d=4, S2="skewed", random_state=3)


@pytest.fixture(scope="module")
def frame(data):
    return pd.DataFrame(data.X, columns=[HOSTILE, "b", "c", "d", "v1", "v2", "v3", "v4"])


@pytest.fixture(scope="module")
def fitted(data, frame):
    """One of every kind."""
    rca = rc.ContrastiveRCA(views=4)
    three = rc.datasets.make_views(3000, 3, 2, sets=[("a",), ("b",), ("c",), ("a", "b", "c")], random_state=3)
    hidden = rc.datasets.make_confounded(400, d_u=4, d_v=6, binary_exposure=True, effects=0.4, random_state=3)
    spins = rc.datasets.make_contrastive(2000, d=4, S1="ising", S2="skewed").X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "rca": rca.fit(frame),
            "many": rc.RCA(views=three.views, sets=three.sets).fit(three.X),
            "regression": rc.ComponentRegression(rca=rca).fit(frame, data.y),
            "logistic": rc.ComponentLogisticRegression(rca=rca).fit(frame, np.where(data.y > 0, "sick", "well")),
            "pca": rc.ComponentPCA(2, rca=rca).fit(frame),
            "mixture": rc.ComponentGaussianMixture(2, rca=rca, n_init=1).fit(frame),
            "ising": rc.ComponentIsing(rca=rc.ContrastiveRCA(views=4)).fit(spins),
            "effects": rc.ExposureEffects(rca=rc.ContrastiveRCA(views=4)).fit(hidden.X, hidden.y),
        }


KINDS = ["rca", "many", "regression", "logistic", "pca", "mixture", "ising", "effects"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fitted_model_says_its_verdict_first(fitted, kind):
    model = fitted[kind]
    page = model._repr_mimebundle_()["text/html"]
    shown = model.summary()._repr_html_()
    assert page.startswith(shown)
    assert model._repr_html_().startswith(shown)
    seen, *_ = page.partition("<details>")
    verdict = getattr(model, "verdict_", None) or model.rca_.verdict_
    assert seen.index(f"{verdict.capitalize()}.</b>") < seen.index("</p>")
    assert "tau" not in seen
    assert "nats" not in seen
    assert "gate" not in seen
    assert "Parameters" in page
    assert HOSTILE not in page
    assert Elements(model.summary()._repr_html_()).open == []


def test_the_numbers_are_behind_the_fold(fitted):
    page = fitted["regression"]._repr_html_()
    folded = page.partition("<details>")[2]
    assert "share of the correction" in folded
    assert "standard errors from residualising" in folded


def test_a_model_that_is_not_fitted_keeps_its_diagram(fitted):
    model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4))
    assert "sk-top-container" in model._repr_html_()
    assert "sk-top-container" in model._repr_mimebundle_()["text/html"]
    assert "All numbers behind it" not in model._repr_html_()
    with sklearn.config_context(display="text"):
        assert "text/html" not in fitted["rca"]._repr_mimebundle_()


def test_a_loaded_model_shows_itself(fitted, tmp_path):
    fitted["regression"].save(tmp_path / "model.npz")
    assert rc.load(tmp_path / "model.npz").summary()._repr_html_() == fitted["regression"].summary()._repr_html_()


@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_is_a_text(fitted, kind):
    found = fitted[kind].summary()
    assert isinstance(found, str)
    assert repr(found) == str(found) == "\n".join(found.split("\n"))
    assert type(str(found)) is str
    assert found.verdict
    again = pickle.loads(pickle.dumps(found))
    assert again == copy(found) == found
    assert again._repr_html_() == found._repr_html_()


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_are_plain(fitted, kind):
    found = fitted[kind].summary()
    assert found.says
    assert not re.search(r"\b(tau|gate|nats|logit)\b", " ".join(found.says))


@pytest.mark.filterwarnings("ignore::richcomponents.errors.SpecificationWarning")
def test_no_p_value_is_nought(data):
    model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)).fit(data.X, data.U[:, 0])
    tiny = Estimate(np.ones(2), np.full(2, 1e-9), 1000, names=("a", "b"))
    for text in (str(tiny), repr(tiny), tiny._repr_html_().replace("&lt;", "<"), repr(tiny.rows())):
        assert "< 1e-16" in text
    for text in (model.summary(), model.summary()._repr_html_(), str(model.outcome_test(data.X, data.V[:, 0]))):
        assert not re.search(r"p = 0\.0+(?!\d)", text)
    assert "p < 1e-16" in str(model.outcome_test(data.X, data.V[:, 0]))


def test_tables_are_lists_frames_and_html(fitted):
    for table in (
        fitted["effects"].controls_, fitted["many"].component_table(), fitted["rca"].variance_table(),
        fitted["many"].variance_table(), fitted["regression"].coefficients_,
    ):  # fmt: skip
        frame = table.to_frame()
        rows = table if isinstance(table, list) else table.rows()
        assert isinstance(rows, list)
        assert len(frame) == len(rows) > 0
        assert Elements(table._repr_html_()).open == []
        assert len(str(table).split("\n")) == len(rows) + 1
        assert "array(" not in repr(table)
        assert repr(table) == str(table) or isinstance(table, Estimate)
        assert " object at " not in repr(table)
    assert len(Table().to_frame()) == 0
    assert str(Table()) == "(no rows)"


def test_long_and_wide_tables_are_folded():
    long = Table({"name": f"c{i}", "value": float(i)} for i in range(2000))
    seen, _, fold = long._repr_html_().partition("<details>")
    assert seen.count("<tr>") == 21
    assert fold.count("<tr>") == 501
    assert "to_frame() has all" in fold
    wide = Table([{f"c{i}": float(i) for i in range(40)}])
    seen, _, fold = wide._repr_html_().partition("<details>")
    assert (seen.count("<th"), fold.count("<th>")) == (10, 40)  # and <thead>
    assert "1 rows, 40 columns" in fold
    estimate = Estimate(np.ones(20_000), np.ones(20_000), 19)
    assert len(repr(estimate).split("\n")) == 102


def test_columns_of_nothing_are_left_out():
    nan = float("nan")
    assert Table([{"name": "a", "x": nan, "y": nan}, {"name": "b", "x": 1.0, "y": nan}]).cells() == [
        ["name", "x"],
        ["a", ""],
        ["b", "1.000"],
    ]


def test_texts_of_strangers_are_escaped():
    page = Summary(
        HOSTILE, verdict=HOSTILE, says=[HOSTILE], tables=[Table([{HOSTILE: HOSTILE}]), HOSTILE]
    )._repr_html_()
    assert HOSTILE.casefold() not in page.casefold()


@pytest.mark.parametrize("inline", [True, False])
def test_a_figure_is_drawn_once(monkeypatch, inline):
    """IPython asks `_ipython_display_` first; pyplot's inline backend draws what pyplot still holds when the cell ends."""
    monkeypatch.setattr(plt, "get_backend", lambda: "module://matplotlib_inline.backend_inline" if inline else "agg")
    figure = new_figure(3, 2)
    assert figure.number in plt.get_fignums()  # not returned: drawn at the end of the cell
    with pytest.raises(NotImplementedError):  # shown as any figure is, now
        figure._ipython_display_()
    assert (figure.number in plt.get_fignums()) != inline
    assert pickle.loads(pickle.dumps(figure)).get_size_inches().tolist() == [3, 2]
    plt.close("all")


def test_new_figures_belong_to_pyplot(fitted):
    before = set(plt.get_fignums())
    assert isinstance(fitted["rca"].plot(), mpl.figure.Figure)
    assert len(set(plt.get_fignums()) - before) == 1
    plt.close("all")
