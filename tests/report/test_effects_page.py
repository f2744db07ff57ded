"""Effects of exposures: the findings agree with the model, and the page shows, sorts, searches and hands out its table."""

from __future__ import annotations

import base64
import csv
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape

import richcomponents as rc
from richcomponents.effects.answer import ADVICE, MEANINGS
from richcomponents.inference.verdicts import Verdict
from richcomponents.report import Findings, Provenance, render, write_report
from richcomponents.report.page import Doubtful, html_table
from tests.report.test_browser import CHROMIUM, NAMES, opened, over_the_edge, with_script
from tests.report.test_report import Elements

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed: the page was not opened")
CONTROLS = [f"c{i}" for i in range(6)]


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_confounded(600, d_u=4, d_v=6, binary_exposure=True, effects=0.4, random_state=3)


@pytest.fixture(scope="module")
def model(data):
    frame = pd.DataFrame(data.X, columns=[*NAMES, *CONTROLS])
    y = pd.Series(np.where(data.y == 1, "<case>", "control"), name='state & "more"')
    views = {"tests": NAMES, "controls": CONTROLS}
    return rc.ExposureEffects(rca=rc.ContrastiveRCA(views=views)).fit(frame, y)


@pytest.fixture(scope="module")
def found(data, model):
    made = Provenance("rca effects <x>.csv", {"<x>.csv": "abc"}, 0, "today")
    return Findings.of(model, truth=data.effects, notes=["n < 3"], provenance=made)


@pytest.fixture(scope="module")
def page(found):
    return render(found, "<b>Title</b>")


@pytest.fixture(scope="module")
def wide():
    data = rc.datasets.make_confounded(400, d_u=28, d_v=6, null_fraction=0.8, effects=0.5, random_state=2)
    frame = pd.DataFrame(data.X, columns=[*(f'gene "{i}", x' for i in range(28)), *CONTROLS])
    return rc.ExposureEffects(rca=rc.ContrastiveRCA(views=28)).fit(frame, data.y)


def test_every_verdict_has_its_words():
    assert set(ADVICE) == set(MEANINGS) == set(Verdict)
    assert all(text.endswith(".") for text in (*ADVICE.values(), *MEANINGS.values()))


def test_findings_are_the_models_numbers(data, model, found):
    (answer,) = found.effects
    np.testing.assert_array_equal(answer.effects.value, model.coef_)
    np.testing.assert_array_equal(answer.effects.others["adjusted"], model.adjusted_)
    np.testing.assert_array_equal(answer.effects.others["truth"], data.effects)
    np.testing.assert_array_equal(answer.hidden.value, model.control_effects_.value)
    assert answer.effects.names == tuple(NAMES)
    assert found.verdict == model.verdict_
    assert found.lead().startswith(MEANINGS[model.verdict_])
    back = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert [row["name"] for row in back["exposures"][0]["effects"]] == NAMES
    assert back["exposures"][0]["rank_effects"].keys() == {str(r) for r in model.rank_effects_}
    assert back["headline"] == found.headline()


def test_other_names_reach_every_table(data):
    model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=4)).fit(data.X, data.y)
    names = [f"name {i}" for i in range(10)]
    (answer,) = Findings.of(model, names=names).effects
    assert answer.effects.names == tuple(names[:4])
    assert [row["control"] for row in answer.controls] == names[4:]


def test_the_page_is_whole_and_escaped(page):
    elements = Elements(page)
    assert elements.open == []
    assert sum(tag == "script" for tag, _ in elements.tags) == 1
    assert not any(tag in ("img", "iframe", "object", "embed", "b") for tag, _ in elements.tags)
    assert not any(name.startswith("on") for _, attributes in elements.tags for name in attributes)
    assert "nan" not in re.sub(r"data-value=.nan.", "", page)
    ids = [attributes["id"] for _, attributes in elements.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    parts = [
        "Verdict", "What changes with state &amp; &#34;more&#34;=&lt;case&gt;", "Are the controls valid?",
        "What if the controls were noisier?", "And if more, or less, were hidden?", "What the views share", "Checks",
        "How to reproduce", "rca effects &lt;x&gt;.csv", "abc", "n &lt; 3", "save as CSV",
    ]  # fmt: skip
    text = re.sub(r"<nav.*?</nav>", "", page, flags=re.DOTALL)
    places = [text.index(part) for part in parts]
    assert places[:8] == sorted(places[:8])


def test_from_python_the_recipe_is_python(model, tmp_path, data):
    text = write_report(tmp_path / "page.html", model).read_text(encoding="utf-8")
    assert "model = rc.ExposureEffects(rca=rc.ContrastiveRCA(" in text
    again: dict[str, object] = {}
    for views in (4, {"tests": range(4), "controls": range(4, data.X.shape[1])}):  # names in no order of the alphabet
        plain = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=views)).fit(data.X, data.y)
        exec(plain.recipe().replace("report.html", str(tmp_path / "b.html")), {"X": data.X, "y": data.y}, again)
        np.testing.assert_array_equal(again["model"].coef_, plain.coef_)
    many = rc.ContrastiveRCA(views={"u": [f"{i:050}" for i in range(100)], "v": CONTROLS})
    assert rc.ExposureEffects(rca=many).recipe() == ""


def test_several_exposures_have_a_part_each(data, tmp_path):
    arms = np.where(data.y == 1, np.where(np.arange(600) % 2, "low", "high"), "placebo")
    model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=4)).fit(data.X, arms)
    text = write_report(tmp_path / "page.html", model).read_text(encoding="utf-8")
    assert "What changes with y=high" in text
    assert "What changes with y=low" in text
    assert text.count("<h3>y=low</h3>") == text.count("<h3>y=high</h3>") == 2
    assert len(re.findall(r"<h2[^>]*>What if the controls were noisier", text)) == 1
    ids = [attributes["id"] for _, attributes in Elements(text).tags if "id" in attributes]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("kind", ["few controls", "nothing shared", "perfect confounding", "gaussian"])
@pytest.mark.filterwarnings("ignore::richcomponents.errors.SpecificationWarning")
def test_every_verdict_has_a_page(tmp_path, kind):
    rng = np.random.default_rng(0)
    data = rc.datasets.make_confounded(
        400, 4, 3 if kind == "few controls" else 6, confounder="gaussian", random_state=1
    )
    X, y = data.X, data.y
    if kind == "nothing shared":
        X, y = rng.normal(size=(400, 10)), rng.normal(size=400)
    if kind == "perfect confounding":
        y = (np.arange(400) % 2).astype(float)
        X = rng.normal(size=(400, 10)) + 2 * y[:, None]
    model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=4)).fit(X, y)
    found = Findings.of(model)
    text = write_report(tmp_path / "page.html", model).read_text(encoding="utf-8")
    assert Elements(text).open == []
    assert "nan" not in re.sub(r"data-value=.nan.", "", text)
    assert found.verdict in text
    if kind == "perfect confounding":
        assert found.verdict == "nothing shared"
        assert "what is hidden goes with the exposure completely" in found.headline()
    if kind == "few controls":
        assert "No control could be held out" in " ".join([found.headline(), *found.advice()])


def test_controls_that_contradict_each_other_are_told_once(tmp_path):
    data = rc.datasets.make_confounded(800, d_u=4, d_v=8, invalid={2: 1.5}, random_state=2)
    with pytest.warns(rc.SpecificationWarning):
        model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=4)).fit(data.X, data.y)
    found = Findings.of(model)
    (alarm,) = found.alarms()
    assert found.steps == ()  # more samples would not help
    assert not any("go with the exposure" in sentence for sentence in found.advice())
    assert f'<p class="alarm">{escape(alarm)}</p>' in render(found)


def test_nothing_is_said_twice(model, found):
    says = model.answers()[0].says()
    for i, one in enumerate(says):
        assert not any(one in other for j, other in enumerate(says) if i != j), one
    first = " ".join([found.headline(), *found.advice()])
    assert all(first.count(one) == 1 for one in says)


def test_a_wide_table_has_a_volcano(wide):
    page = render(Findings.of(wide))
    assert "Each dot is a column" in page
    assert "show all 28 rows" in page


def test_numbers_that_are_not_told_are_pale():
    page = html_table([{"name": "a", "x": 0.25, "y": Doubtful(-0.5)}], "numbers")
    assert '<td data-value="0.25">' in page
    assert '<td class="doubt" data-value="-0.5">' in page


def test_small_tables_have_no_button_for_more():
    rows = [{"name": "a", "value": 1.0}]
    assert "show all" not in html_table(rows, "x")
    assert "search" not in html_table(rows, "x").replace("searched", "")
    assert "save as CSV" in html_table(rows, "x")


@in_a_browser
def test_it_renders_without_a_complaint(page, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    dom, complaints = opened(path, tmp_path)
    assert complaints == []
    assert 'data-ready="true"' in dom
    assert "data-hacked" not in dom
    for width in (420, 1200):
        assert over_the_edge(path, tmp_path, width) == 0


@in_a_browser
def test_search_show_all_and_download(wide, tmp_path):
    path = write_report(tmp_path / "page.html", wide)
    script = """
    const box = document.querySelector(".searched"), all = document.documentElement.dataset, input = box.querySelector("input");
    const seen = () => [...box.querySelector("tbody").rows].filter((row) => row.offsetParent).length;
    all.first = seen();
    input.value = 'GENE "7"'; input.dispatchEvent(new Event("input")); all.found = seen();
    all.said = box.querySelector("[aria-live]").textContent;
    input.value = ""; input.dispatchEvent(new Event("input")); all.again = seen();
    box.querySelectorAll(".sort")[1].click(); all.sorted = seen();
    box.querySelector(".all").click(); all.every = seen();
    URL.createObjectURL = (blob) => { blob.text().then((text) => { all.csv = btoa(text); }); return "#"; };
    HTMLAnchorElement.prototype.click = function () { all.file = this.download; };
    box.querySelector(".save").click();
    """
    dom, complaints = opened(with_script(path, tmp_path, script), tmp_path)
    assert complaints == []
    told = dict(re.findall(r'data-(\w+)="([^"]*)"', dom[: dom.index("<head>")]))
    assert [told[key] for key in ("first", "found", "again", "sorted", "every")] == ["25", "1", "25", "25", "28"]
    assert told["said"] == "1 of 28 rows"
    assert told["file"] == "effects-y.csv"
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(told["csv"]).decode())))
    wanted = {row["name"]: row for row in wide.effects_.rows()}
    assert {row["name"] for row in rows} == set(wanted)  # quotes and commas come back
    for row in rows:
        assert float(row["estimate"]) == wanted[row["name"]]["estimate"]  # to the last digit
