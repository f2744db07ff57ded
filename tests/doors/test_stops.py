"""Where newcomers stopped: what is said, once, by the names they gave."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import richcomponents as rc
from richcomponents.report import Findings

VIEWS = {"tests": "T_*", "controls": "C_*"}


@pytest.fixture(scope="module")
def frame():
    """Three tests, three controls, two classes, and an outcome that depends on a control."""
    data = rc.datasets.make_contrastive(600, d=3, S2="skewed", random_state=0)
    columns = [f"{letter}_{i}" for letter in "TC" for i in range(3)]
    classes = np.where(data.y > np.median(data.y), "ill", "well")
    return pd.DataFrame(data.X, columns=columns).assign(bmi=data.y + 3 * data.V[:, 0], disease=classes)


def told(work):
    """What is warned of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        work()
    return [(one.category, str(one.message)) for one in found]


def rca(**options):
    return rc.ContrastiveRCA(views=VIEWS, **options)


@pytest.mark.parametrize("learner", [rc.ComponentRegression, rc.ComponentLogisticRegression, rc.ExposureEffects])
@pytest.mark.parametrize("column", ["T_1", "C_0"])
def test_a_column_of_a_view_is_no_outcome(learner, column, frame):
    numbers = frame.drop(columns=["bmi", "disease"]).assign(**{column: (frame[column] > 0).astype(int)})
    with pytest.raises(rc.DataError, match=f"column '{column}' of view .* is also what is asked about: take it out"):
        learner(rca=rca()).fit(numbers, column)
    state = rc.Moments.of(numbers, 4)
    with pytest.raises(rc.DataError, match="is also what is asked about"):
        rc.ComponentRegression(rca=rca()).fit(state, column)


def test_notes_know_the_name_of_the_outcome(frame):
    table = frame.drop(columns=["bmi", "disease"])
    for X, y in ((frame, "bmi"), (table, frame["bmi"])):
        model = rc.ComponentRegression(rca=rca())
        warned = told(lambda model=model, X=X, y=y: model.fit(X, y))
        assert any("The outcome contradicts the model: bmi goes with V" in text for _, text in warned)
        assert "The outcome contradicts the model: bmi goes with V" in model.summary()
    assert " y " not in "".join(model.notes())


def test_a_failure_stands_once_on_the_page(frame):
    model = rc.ComponentRegression(rca=rca())
    warned = told(lambda: model.fit(frame, "bmi"))
    found = Findings.of(model, X=frame, y="bmi", outcome="bmi", notes=[text for _, text in warned])
    said = [*found.alarms(), *found.notes]
    assert sum("bmi goes with V" in text for text in said) == 1
    assert sum("Check that V holds controls only" in text for text in said) == 1


def test_classes_are_counted_after_rows_were_left_out(frame):
    gaps = frame.drop(columns="bmi").copy()
    left_out = np.flatnonzero(frame["disease"] == "ill")[:100]
    gaps.loc[left_out, "T_0"] = np.nan
    model = rc.ComponentLogisticRegression(rca=rca(missing="drop"))
    told(lambda: model.fit(gaps, "disease"))
    assert "ill (200 rows) against well (300 rows)" in model.summary()
    assert dict(zip(model.classes_.tolist(), model.class_counts_.tolist(), strict=True)) == {"ill": 200, "well": 300}


def test_a_constant_control_is_told_once_and_divides_nothing():
    data = rc.datasets.make_confounded(800, random_state=1)
    d = data.X.shape[1] // 2
    columns = [f"{letter}_{i}" for letter in "TC" for i in range(d)]
    frame = pd.DataFrame(data.X, columns=columns).assign(dose=data.y, C_9=1.0)
    model = rc.ExposureEffects(rca=rca(), exposure="dose")
    found = told(lambda: model.fit(frame))
    assert not [text for category, text in found if issubclass(category, RuntimeWarning)]
    constants = [text for category, text in found if category is rc.ConstantColumnWarning]
    assert len(constants) == 1
    assert "column 'C_9' of view 'controls'" in constants[0]


def test_blocks_tell_a_fact_once(frame):
    numbers = frame.drop(columns="disease").assign(C_9=1.0)
    model = rc.ComponentRegression(rca=rca())

    def add():
        for start in range(0, 600, 200):
            model.partial_fit(numbers[start : start + 200], "bmi")

    facts = [(category, text.split("(p")[0]) for category, text in told(add)]
    assert len(facts) == len(set(facts))
    assert sum(category is rc.ConstantColumnWarning for category, _ in facts) == 1
    assert sum(category is rc.SpecificationWarning for category, _ in facts) == 1
    again = told(lambda: rc.ComponentRegression(rca=rca()).partial_fit(numbers, "bmi"))
    assert {category for category, _ in again} >= {rc.ConstantColumnWarning, rc.SpecificationWarning}


def test_constants_are_told_once_by_name_with_groups_covariates_and_gaps(frame):
    table = frame.assign(C_9=1.0, sex=np.where(np.arange(600) % 2, "F", "M"), subject=np.arange(600) // 2)
    gaps = table.assign(T_0=table["T_0"].mask(np.arange(600) % 11 == 0))
    fits = (
        lambda: rc.ComponentRegression(rca=rca(covariates=["sex"])).fit(table, "bmi", groups="subject"),
        lambda: rc.ComponentRegression(rca=rca(missing="available")).fit(gaps, "bmi"),
        lambda: rc.ExposureEffects(rca=rca(covariates=["sex"]), exposure="disease").fit(table, groups="subject"),
    )
    for fit in fits:
        constants = [text for category, text in told(fit) if category is rc.ConstantColumnWarning]
        assert len(constants) == 1
        assert "column 'C_9' of view 'controls'" in constants[0]


def test_a_text_is_no_outcome_of_a_regression(frame):
    with pytest.raises(
        rc.DataError, match="the outcome 'disease' holds text, and numbers are needed: encode it, or take it"
    ):
        rc.ComponentRegression(rca=rca()).fit(frame, "disease")


def test_classes_that_are_all_that_is_shared_are_said_to_be():
    data = rc.datasets.make_contrastive(400, d=4, S2="labs(3)", random_state=5)
    model = rc.ContrastiveRCA(views=4).fit(data.X)
    assert model.verdict_ == "strong"
    assert model.diagnostics_.rank == 0
    assert "Once the hidden classes are removed, the views share nothing that can be seen." in model.summary()
    assert "A and Cov(S1) are estimated" not in model.summary()
