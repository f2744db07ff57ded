"""The findings agree with the model, and the page holds them, escaped and by itself."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import richcomponents as rc
from richcomponents.report import Findings, Provenance, render, write_report
from richcomponents.report.page import html_table
from richcomponents.text import number

HOSTILE = ["<script>alert(1)</script>", 'a & "b"', "$x_1$", "</style><img src=x onerror=alert(1)>"]


class Elements(HTMLParser):
    """Tags with their attributes, ids, and whether tags close."""

    VOID = ("meta", "link", "br", "img", "input")

    def __init__(self, page):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(1500, d=4, S2="skewed", random_state=3)


@pytest.fixture(scope="module")
def frame(data):
    return pd.DataFrame(data.X, columns=[*HOSTILE, "c1", "c2", "c3", "c4"])


@pytest.fixture(scope="module")
def regression(data, frame):
    views = {"<tests>": HOSTILE, "controls": ["c1", "c2", "c3", "c4"]}
    return rc.ComponentRegression(rca=rc.ContrastiveRCA(views=views)).fit(frame, data.y)


@pytest.fixture(scope="module")
def findings(data, frame, regression):
    made = Provenance("rca fit <x>.csv", {"<x>.csv": "abc"}, 0, "today")
    return Findings.of(regression, frame, data.y, outcome="<y>", truth=data.beta, notes=["n < 3"], provenance=made)


@pytest.fixture(scope="module")
def page(findings):
    return render(findings, "<b>Title</b>")


def test_findings_are_the_models_numbers(data, frame, regression, findings):
    table = findings.outcome.estimate
    np.testing.assert_array_equal(table.value, regression.coef_)
    np.testing.assert_array_equal(table.others["residualised"], regression.residualised_)
    naive = rc.baselines.naive(regression, frame, data.y).coef_
    np.testing.assert_allclose(table.others["naive"], naive, rtol=1e-10)
    np.testing.assert_array_equal(table.low, regression.coefficients_.low)
    assert table.names == tuple(HOSTILE)
    expected = np.mean(np.diag(regression.rca_.components_["S2"].covariance) / findings.variance.total)
    assert findings.shared_share == pytest.approx(expected, rel=1e-12)


def test_json_is_plain(findings):
    text = json.dumps(findings.as_dict(), allow_nan=False)
    back = json.loads(text)
    assert back["verdict"] == findings.diagnostics.verdict
    assert back["coefficients"][0]["name"] == HOSTILE[0]
    assert np.shape(back["A"]) == (4, 4)


def test_page_is_well_formed_and_escaped(page):
    elements = Elements(page)
    assert elements.open == []
    assert page.endswith("</html>\n")
    assert sum(tag == "script" for tag, _ in elements.tags) == 1
    assert not any(tag in ("img", "iframe", "object", "embed", "b") for tag, _ in elements.tags)
    assert not any(name.startswith("on") for _, attributes in elements.tags for name in attributes)
    for name in HOSTILE[:2]:
        assert name not in page


def test_page_refers_to_nothing_outside(page):
    for tag, attributes in Elements(page).tags:
        for name in ("src", "href", "xlink:href", "action", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"url\((?!#)|@import|https?://", page)


def test_ids_are_unique_and_references_resolve(page):
    tags = Elements(page).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    used = re.findall(r'(?:url\(#|href="#)([^)"]+)', page)
    assert used
    assert set(used) <= set(ids)


def test_pictures_have_text_and_follow_the_page(page):
    pictures = [attributes for tag, attributes in Elements(page).tags if tag == "svg"]
    assert len(pictures) == 8
    assert all(picture["role"] == "img" and picture["aria-label"] for picture in pictures)
    assert "currentColor" in page
    assert "#0a0b0c" not in page


def test_verdict_comes_first_and_nothing_is_missing(page, findings):
    parts = [
        "Verdict", "What goes with", "What the views share", "How much of each column", "How the shared part enters",
        "Checks", "How to reproduce", "rca fit &lt;x&gt;.csv", "abc", "n &lt; 3",
    ]  # fmt: skip
    assert all(part in page for part in parts)
    assert page.index("Verdict") < page.index("What goes with") < page.index("Checks")
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_same_findings_same_bytes(findings, page):
    assert render(findings, "<b>Title</b>") == page


@pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")
@pytest.mark.parametrize("kind", ["gaussian", "nothing", "paper", "pca", "mixture", "ising", "logistic", "covariates"])
def test_every_kind_of_fit_has_a_page(tmp_path, data, kind):
    X, y, rca = data.X, None, rc.ContrastiveRCA(views=4)
    model = rca
    if kind == "gaussian":
        X = rc.datasets.make_contrastive(300, d=4, S2="gaussian").X
    if kind == "nothing":
        X = np.random.default_rng(0).normal(size=(300, 8))
    if kind == "paper":
        model = rc.ContrastiveRCA(views=4, method="paper")
    if kind == "pca":
        model = rc.ComponentPCA(2, rca=rca)
    if kind == "mixture":
        model = rc.ComponentGaussianMixture(2, rca=rca, n_init=1)
    if kind == "ising":
        model = rc.ComponentIsing(rca=rca)
        X = rc.datasets.make_contrastive(2000, d=4, S1="ising", S2="skewed").X
    if kind == "logistic":
        model, y = rc.ComponentLogisticRegression(rca=rca), np.where(data.y > 0, "sick", "well")
    if kind == "covariates":
        model, y = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4, covariates=[8])), data.y
        X = np.column_stack([X, np.arange(len(X)) % 7])
    path = write_report(tmp_path / "page.html", model.fit(X, y), X, y)
    text = path.read_text(encoding="utf-8")
    assert Elements(text).open == []
    assert "nan" not in re.sub(r"data-value=.nan.", "", text)


def test_wide_tables_are_cut(data):
    rows = [{"name": f"c{i}", "value": float(i)} for i in range(1000)]
    text = html_table(rows, "x", "value")
    assert text.count("<tr>") == 1001  # the script shows the first of them, paper all
    assert 'data-shown="25"' in text
    assert text.index("c999") < text.index("c998") < text.index("c1<")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.12345, "-0.1235"),
        (1.0, "1.000"),
        (123456.7, "123500"),
        (1e-9, "1.0e-09"),
        (7, "7"),
        (999999.9, "1000000"),
    ],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_a_component_alone_has_no_report(data):
    model = rc.ContrastiveRCA(views=4).fit(data.X)
    learner = rc.ComponentPCA().fit_component(model.components_["S1"])
    with pytest.raises(ValueError, match="a report needs the views"):
        Findings.of(learner)
    with pytest.raises(TypeError, match="a fitted RCA or a learner of its components, got ndarray"):
        Findings.of(data.X)
    with pytest.raises(NotFittedError):
        Findings.of(rc.RCA())
    regression = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)).fit(data.X, data.y)
    with pytest.raises(ValueError, match="give X and y"):
        Findings.of(regression)


@pytest.fixture(scope="module")
def three():
    sets = [("a",), ("b",), ("c",), ("a", "b", "c")]
    return rc.datasets.make_views(5000, 3, 2, sets=sets, random_state=3)


@pytest.mark.parametrize("kind", ["none", "discover", "pca", "regression"])
def test_views_of_any_number_have_a_page(tmp_path, three, kind):
    rca = rc.RCA(views=three.views, sets=None if kind == "discover" else three.sets, discover=kind == "discover")
    names = [f"<{view}> {i}" for view in three.views for i in range(2)]
    y, model = None, rca
    if kind == "pca":
        model = rc.ComponentPCA(rca=rca, component=("a", "b", "c"))
    if kind == "regression":
        y = three.X[:, 0] - rca.fit(three.X).predict_component(three.X, ("a", "b", "c"))[:, 0]
        model = rc.ComponentRegression(rca=rca, component=("a",))
    path = write_report(tmp_path / "page.html", model.fit(three.X, y), three.X, y, names=names)
    text = path.read_text(encoding="utf-8")
    assert Elements(text).open == []
    assert "nan" not in re.sub(r"data-value=.nan.", "", text)
    found = Findings.of(model, three.X, y, names=names)
    back = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert [row["component"] for row in back["components"]] == ["S{a, b, c}", "S{a}", "S{b}", "S{c}"]
    assert {m["view"] for m in back["mixing"]} == {"b", "c"}
    parts = [
        "Which parts are there",
        "How S{a, b, c} enters b",
        "What tells these parts apart",
        "component",
        "&lt;b&gt; 1",
    ]
    assert all(part in text for part in parts), [part for part in parts if part not in text]
    assert ("What goes with y" in text) == (kind == "regression")
    assert ("Principal directions" in text) == (kind == "pca")


def test_an_outcome_that_no_model_explains_is_refused(tmp_path, data, three):
    """It was dropped without a word."""
    for model, X in ((rc.ContrastiveRCA(views=4), data.X), (rc.RCA(views=three.views, sets=three.sets), three.X)):
        name = type(model).__name__
        with pytest.raises(ValueError, match=rf"{name} says nothing about an outcome.*ComponentRegression\(rca={name}"):
            write_report(tmp_path / "page.html", model.fit(X), X, X[:, 0])
        assert not (tmp_path / "page.html").exists()
    pca = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=4)).fit(data.X)
    with pytest.raises(ValueError, match="ComponentPCA says nothing about an outcome"):
        Findings.of(pca, data.X, data.y)


def test_the_verdict_is_the_models(data, three):
    strong = rc.RCA(views=three.views, sets=three.sets).fit(three.X)
    assert strong.verdict_ == Findings.of(strong).verdict == "strong"
    paper = rc.RCA(views=three.views, sets=three.sets, method="paper").fit(three.X)
    assert paper.verdict_ == Findings.of(paper).verdict == "not checked"
    two = rc.RCA(views=4).fit(data.X)
    assert two.verdict_ == Findings.of(two).verdict == rc.ContrastiveRCA(views=4).fit(data.X).verdict_
    with pytest.warns(rc.WeakIdentificationWarning):
        weak = rc.RCA(views=three.views, sets=three.sets).fit(np.random.default_rng(0).normal(size=(500, 6)))
    assert weak.verdict_ == Findings.of(weak).verdict == "not identified"


def test_a_failed_test_takes_the_green_away(data):
    rca = rc.ContrastiveRCA(views=4)
    with pytest.warns(rc.SpecificationWarning):
        model = rc.ComponentRegression(rca=rca).fit(data.X, data.y + data.V[:, 0])
    found = Findings.of(model, data.X, data.y + data.V[:, 0], outcome="health")
    assert found.verdict == "contradicted"
    assert "Warning: health goes with V (p < 1e-16)" in found.headline()
    text = render(found)
    assert 'class="verdict poor"' in text
    assert ">contradicted<" in text
    assert '<p class="alarm">health goes with V' in text
    assert found.steps == ()
    assert not any("well identified" in one and not one.startswith("Without health:") for one in found.advice())
    assert "the line is the estimate" in text  # the views by themselves are told apart
    fine = render(Findings.of(rc.ContrastiveRCA(views=4).fit(data.X)))
    assert 'class="verdict good"' in fine


def test_an_outcome_that_contradicts_does_not_change_what_is_shared(data):
    """Cov(S1) is still estimated: its share is no lower limit."""
    with pytest.warns(rc.SpecificationWarning):
        model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)).fit(data.X, data.y + data.V[:, 0])
    found = Findings.of(model, data.X, data.y + data.V[:, 0])
    assert found.said().startswith(f"The shared part explains {found.shared_share:.0%} of")
    with pytest.warns(rc.WeakIdentificationWarning):
        open_ = rc.ContrastiveRCA(views=4).fit(rc.datasets.make_contrastive(300, d=4, S2="gaussian", random_state=0).X)
    assert Findings.of(open_).said().startswith("At least")


def test_what_was_not_tested_is_not_called_fine():
    X = rc.datasets.make_contrastive(1000, d=4, S2="gaussian", random_state=0).X
    found = Findings.of(rc.ContrastiveRCA(views=4).fit(X))
    (row,) = [row for row in found.checks() if row["value"] == "not tested"]
    assert row["finding"] == ""
    assert re.search(r"not tested</td><td class=.text mark.></td>", render(found))


def test_an_outcome_that_goes_with_the_controls_is_not_said_not_to(data):
    """Where nothing is shared, and where the user said so."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 8))
    alone = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4, rank=0)).fit(X, X[:, 5] + X[:, 0])
    both = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4), shared=True).fit(data.X, data.y + data.S2[:, 0])
    for model, y, wanted in (
        (alone, X[:, 5] + X[:, 0], "nothing is corrected"),
        (both, data.y + data.S2[:, 0], "as it may"),
    ):
        table = data.X if model is both else X
        row = Findings.of(model, table, y).checks()[-1]
        assert row["check"] == "y and V"
        assert row["meaning"].startswith("y goes with V (p < 1e-16)")
        assert wanted in row["meaning"]


@pytest.mark.parametrize(("S2", "check"), [("labs(3)", "hidden classes"), ("skewed", "share of the correction")])
def test_what_the_summary_says_is_among_the_checks(S2, check):
    """Classes and share stood in the summary only, next to correlations of what the classes leave."""
    model = rc.ContrastiveRCA(views=4).fit(rc.datasets.make_contrastive(700, d=4, S2=S2, random_state=0).X)
    said = {row["check"]: row["value"] for row in Findings.of(model).checks()}
    assert check in said
    assert all(f"{name:24} {value}" in model.summary() for name, value in said.items())
