"""Two classes by name: coefficients speak for the positive one, predictions keep the order of scikit-learn."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import get_scorer

import richcomponents as rc
from richcomponents import ComponentLogisticRegression, baselines
from richcomponents.cli import main
from richcomponents.datasets import make_contrastive
from richcomponents.report import Findings, render

D = 3


def logistic(**options):
    return ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=D), **options)


@pytest.fixture(scope="module")
def data():
    return make_contrastive(1500, d=D, S1="logistic", S2="skewed", A="good", random_state=4)


@pytest.fixture(scope="module")
def ill(data):
    return np.asarray(data.y) == 1


@pytest.fixture(scope="module")
def coded(data, ill):
    """What y of 0 and 1 gives."""
    return logistic().fit(data.X, ill.astype(int))


# ---- which class is positive

PAIRS = [  # positive, negative
    ("case", "control"), ("Case", "CONTROL"), ("yes", "no"), ("Y", "N"), ("true", "false"), (True, False), (1, 0), (1, -1),
    ("1", "0"), ("disease", "healthy"), ("disease", "no disease"), ("tumor", "normal"), ("tumour", "normal"),
    ("malignant", "benign"), ("treated", "untreated"), ("treated", "control"), ("positive", "negative"), ("ER+", "ER-"),
    ("affected", "unaffected"), ("patient", "healthy"), ("RA", "control"), ("COVID-19", "healthy"), ("ill", "well"),
    ("RA_case", "RA_control"), ("HIV positive", "HIV negative"), ("abnormal", "normal"), ("case", "0"), ("1", "control"),
    ("relapse", "no relapse"), ("responder", "non-responder"), ("aspirin", "placebo"),
]  # fmt: skip


@pytest.mark.parametrize(("positive", "negative"), PAIRS, ids=lambda label: str(label))
def test_the_class_whose_name_says_so_is_positive(data, ill, coded, positive, negative):
    y = np.where(ill, positive, negative)
    fitted = logistic().fit_clean(data.S1, y)
    assert fitted.positive_ == positive
    clean = logistic().fit_clean(data.S1, ill.astype(int))
    np.testing.assert_allclose(fitted.coef_, clean.coef_, rtol=1e-8)
    np.testing.assert_allclose(fitted.intercept_, clean.intercept_, atol=1e-8)


@pytest.mark.parametrize(
    ("first", "second"),
    [("9", "10"), (9, 10), (1, 2), ("1", "2"), ("9.5", "10.5"), ("-2", "-1"), ("1e3", "2e3"), ("grade 9", "grade 10"),
     ("female", "male"), ("a", "B"), ("visit 09", "visit 010")],
)  # fmt: skip
def test_otherwise_the_second_in_natural_order_and_that_is_said(data, ill, first, second):
    fitted = logistic().fit_clean(data.S1, np.where(ill, second, first))
    assert fitted.positive_ == second
    assert f"{second} is taken as the positive class because it comes after {first} in order" in fitted.summary()


@pytest.mark.parametrize("labels", [("case", "control"), (1, 0), (True, False), (1, -1)])
def test_a_choice_that_needs_no_word_has_none(data, ill, labels):
    assert "in order" not in logistic().fit_clean(data.S1, np.where(ill, *labels)).summary()


# ---- signs


@pytest.mark.parametrize("labels", [("case", "control"), ("10", "9"), ("yes", "no"), (0, 1)], ids=str)
def test_coefficients_are_of_the_positive_class_and_predictions_of_sorted_classes(data, ill, coded, labels):
    case, control = labels
    y = np.where(ill, case, control)
    fitted = logistic(positive=case).fit(data.X, y)
    np.testing.assert_allclose(fitted.coef_, coded.coef_, rtol=1e-6)
    np.testing.assert_allclose(fitted.residualised_, coded.residualised_, rtol=1e-6)
    np.testing.assert_allclose(fitted.coefficients_.standard_error, coded.coefficients_.standard_error, rtol=1e-6)
    assert fitted.coefficients_.positive == str(case)
    np.testing.assert_array_equal(fitted.classes_, np.unique(y))
    assert dict(zip(fitted.classes_, fitted.class_counts_, strict=True)) == {case: ill.sum(), control: (~ill).sum()}
    at = fitted.classes_.tolist().index(case)
    np.testing.assert_allclose(fitted.predict_proba(data.X)[:, at], coded.predict_proba(data.X)[:, 1], atol=1e-8)
    np.testing.assert_allclose(
        fitted.predict_proba_clean(data.S1)[:, at], coded.predict_proba_clean(data.S1)[:, 1], atol=1e-8
    )
    second = fitted.classes_[1]
    np.testing.assert_array_equal(fitted.decision_function(data.X) > 0, fitted.predict(data.X) == second)
    np.testing.assert_array_equal(fitted.predict(data.X) == case, coded.predict(data.X) == 1)
    np.testing.assert_array_equal(fitted.predict_clean(data.S1) == case, coded.predict_clean(data.S1) == 1)
    for scorer in map(get_scorer, ("roc_auc", "accuracy", "neg_log_loss")):  # they rely on the order of classes_
        assert scorer(fitted, data.X, y) == pytest.approx(scorer(coded, data.X, ill.astype(int)), abs=1e-8)


OTHER_WAYS = [{}, {"approximation": "chebyshev"}, {"method": "paper"}]


@pytest.mark.parametrize("options", OTHER_WAYS, ids=str)
def test_naming_the_other_class_turns_every_sign_and_no_probability(data, ill, options):
    y = np.where(ill, "case", "control")
    one, other = (logistic(positive=label, **options).fit(data.X, y) for label in ("case", "control"))
    np.testing.assert_allclose(one.coef_, -other.coef_, rtol=1e-6)
    np.testing.assert_allclose(one.intercept_, -other.intercept_, atol=1e-7)
    np.testing.assert_allclose(one.coefficients_.low, -other.coefficients_.high, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(one.predict_proba(data.X), other.predict_proba(data.X), atol=1e-7)


def test_the_simple_methods_have_the_same_sign(data, ill, coded):
    learner, y = logistic(), np.where(ill, "case", "control")
    for method in (baselines.naive, baselines.covariates, baselines.cca, baselines.kernel_cca):
        expected = method(logistic(), data.X, ill.astype(int)).coef_
        np.testing.assert_allclose(method(learner, data.X, y).coef_, expected, rtol=1e-8)
    turned = baselines.true(logistic(positive="control"), data.S1, y)
    np.testing.assert_allclose(turned.coef_, -baselines.true(learner, data.S1, y).coef_, rtol=1e-6)


def test_an_extracted_component(data, ill):
    component = rc.ContrastiveRCA(views=D).fit(data.X).components_["S1"]
    cross = (data.U - data.U.mean(axis=0)).T @ (ill - ill.mean()) / len(ill)
    one = ComponentLogisticRegression().fit_component(component, cross, ill.mean())
    turned = ComponentLogisticRegression(positive=0).fit_component(component, cross, ill.mean())
    np.testing.assert_allclose(one.coef_, -turned.coef_, rtol=1e-6)
    np.testing.assert_array_equal(one.predict_clean(data.S1), turned.predict_clean(data.S1))
    assert one.class_counts_ is None
    assert "log-odds of 1 against 0" in one.summary()
    assert "log-odds of 0 against 1" in turned.summary()


@pytest.mark.parametrize("wanted", [1, 1.0, "1", True, np.int64(1)])
def test_positive_may_be_written_as_number_or_text(data, ill, wanted):
    for y in (ill.astype(int), np.where(ill, "1", "0"), ill):
        assert str(logistic(positive=wanted).fit_clean(data.S1, y).positive_) in ("1", "True")


def test_a_wrong_class_is_refused_with_those_found(data, ill):
    y = np.where(ill, "case", "control")
    with pytest.raises(rc.DataError, match="positive='sick' is not a class of y, which holds 'case' and 'control'"):
        logistic(positive="sick").fit(data.X, y)
    with pytest.raises(rc.DataError, match="3 classes"):
        logistic(positive="case").fit(data.X, np.where(np.arange(len(y)) < 5, "unknown", y))
    both = np.where(ill, "Case", "case")  # two classes by case only
    assert logistic(positive="case").fit_clean(data.S1, both).positive_ == "case"
    with pytest.raises(rc.DataError, match="'Case' and 'case'"):
        logistic(positive="CASE").fit_clean(data.S1, both)


# ---- what is said


@pytest.fixture(scope="module")
def fitted(data, ill):
    return logistic().fit(data.X, np.where(ill, "case", "control"))


def test_summary_table_and_plot_name_the_class(data, ill, fitted):
    text = fitted.summary()
    assert f"log-odds of case ({ill.sum()} rows) against control ({(~ill).sum()} rows)" in text
    assert "odds ratio of case" in text
    table = fitted.coefficients_
    rows = pd.DataFrame(table.rows())
    np.testing.assert_array_equal(rows["odds ratio"], np.exp(table.value))
    np.testing.assert_array_equal(rows["odds low"], np.exp(table.low))
    np.testing.assert_array_equal(rows["odds high"], np.exp(table.high))
    assert fitted.plot().get_xlabel().replace("\n", " ") == "change of the log-odds of case per unit"


def test_a_saved_model_still_knows(tmp_path, data, fitted):
    fitted.save(tmp_path / "model.npz")
    again = rc.load(tmp_path / "model.npz")
    assert again.summary() == fitted.summary()
    assert again.positive_ == "case"
    np.testing.assert_array_equal(again.predict_proba(data.X), fitted.predict_proba(data.X))


def test_set_params_after_fit_changes_nothing(data, ill):
    y = np.where(ill, "case", "control")
    model = logistic().fit(data.X, y)
    before, found = model.predict_proba(data.X), Findings.of(model, data.X, y).outcome
    model.set_params(positive="control")
    np.testing.assert_array_equal(model.predict_proba(data.X), before)
    assert "log-odds of case" in model.summary()
    np.testing.assert_array_equal(
        Findings.of(model, data.X, y).outcome.estimate.others["naive"], found.estimate.others["naive"]
    )


def test_the_report_names_the_class_on_headings_and_axes(data, ill, fitted):
    y = np.where(ill, "case", "control")
    found = Findings.of(fitted, data.X, y, outcome="disease")
    naive = baselines.naive(logistic(), data.X, ill.astype(int)).coef_[0]
    np.testing.assert_allclose(found.outcome.estimate.others["naive"], naive, rtol=1e-8)
    page = render(found, "t")
    assert ">What goes with disease = case</h2>" in page
    assert ">change of the log-odds of disease =" in page  # an axis: in lines as long as a figure has room for
    assert f"case ({ill.sum()} rows) against control ({(~ill).sum()} rows)" in page
    assert "odds ratio" in page
    hostile = logistic().fit(data.X, np.where(ill, "<b>case</b>", "control"))
    assert "<b>case" not in render(Findings.of(hostile, data.X, np.where(ill, "<b>case</b>", "control")), "t")


# ---- the command line

VIEWS = ["--views", "U=U_*", "--views", "V=V_*"]


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err


@pytest.fixture(scope="module")
def table(tmp_path_factory, data, ill):
    names = [f"{view}_{i}" for view in "UV" for i in range(D)]
    frame = pd.DataFrame(data.X, columns=names)
    frame["disease"] = np.where(ill, "case", "control")
    frame["grade"] = np.where(ill, "10", "9")
    frame["dose"] = np.where(ill, "10.5", "9.5")
    frame["sex"] = np.where(ill, "female", "male")
    path = tmp_path_factory.mktemp("labels") / "cohort.csv"
    frame.to_csv(path, index=False)
    return path


def test_the_command_line_names_the_class(capsys, table, tmp_path, fitted, ill):
    code, out, _ = run(capsys, "fit", table, *VIEWS, "--target", "disease", "--report", tmp_path / "p.html")
    assert code == 0
    assert f"case ({ill.sum()} rows) against control ({(~ill).sum()} rows)" in " ".join(out.split())
    assert "log-odds of disease = case" in " ".join(out.split())
    assert "odds ratio" in out
    assert "What goes with disease = case" in (tmp_path / "p.html").read_text(encoding="utf-8")
    code, out, _ = run(capsys, "fit", table, *VIEWS, "--target", "disease", "--json")
    found = json.loads(out)
    np.testing.assert_allclose([row["RCA"] for row in found["coefficients"]], fitted.coef_[0], rtol=1e-6)
    np.testing.assert_allclose(
        [row["odds ratio"] for row in found["coefficients"]], np.exp([row["RCA"] for row in found["coefficients"]])
    )
    assert found["positive"] == "case"
    assert found["classes"] == {"case": ill.sum(), "control": (~ill).sum()}


def test_positive_on_the_command_line(capsys, table, fitted):
    code, out, _ = run(capsys, "fit", table, *VIEWS, "--target", "disease", "--positive", "control", "--json")
    assert code == 0
    np.testing.assert_allclose([row["RCA"] for row in json.loads(out)["coefficients"]], -fitted.coef_[0], rtol=1e-6)
    code, _, err = run(capsys, "fit", table, *VIEWS, "--target", "disease", "--positive", "sick")
    assert code == 1
    assert "'case' and 'control'" in err
    code, _, err = run(capsys, "fit", table, *VIEWS, "--target", "U_0", "--positive", "case")
    assert code == 1
    code, _, err = run(capsys, "fit", table, *VIEWS, "--positive", "case")
    assert code == 1
    assert "--positive" in err


@pytest.mark.parametrize(("target", "positive"), [("grade", "10"), ("dose", "10.5")])
def test_labels_read_from_a_file_are_ordered_as_numbers(capsys, table, fitted, target, positive):
    code, out, _ = run(capsys, "fit", table, *VIEWS, "--target", target, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["positive"] == positive
    np.testing.assert_allclose([row["RCA"] for row in found["coefficients"]], fitted.coef_[0], rtol=1e-6)
    assert any("in order" in note for note in found["notes"])


def test_a_choice_by_order_is_noted(capsys, table):
    code, _, err = run(capsys, "fit", table, *VIEWS, "--target", "sex")
    assert code == 0
    assert "note: male is taken as the positive class because it comes after female in order" in err
