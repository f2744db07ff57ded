"""ComponentGLM: families, protection, errors, words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr
from sklearn.metrics import d2_tweedie_score

import richcomponents as rc
from richcomponents import baselines
from richcomponents.datasets import make_contrastive

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")
FAMILIES = ("poisson", "negative binomial", "logistic", "probit", "multinomial")


@pytest.fixture(scope="module")
def data():
    return make_contrastive(4000, d=4, S2="skewed", A="good", random_state=5)


@pytest.fixture(scope="module")
def rca(data):
    return rc.ContrastiveRCA(views=4)


def outcome(family, S, seed=0):
    """y, and the coefficients (m, d) behind it."""
    rng = np.random.default_rng(seed)
    beta = np.array([[1.0, -0.5, 0.3, 0.0], [-0.4, 0.2, 0.9, 0.5]])[: 1 + (family == "multinomial")]
    eta = S @ beta.T
    if family == "poisson":
        return rng.poisson(np.exp(eta[:, 0])), beta
    if family == "negative binomial":
        return rng.poisson(np.exp(eta[:, 0]) * rng.gamma(2.0, 0.5, size=len(S))), beta
    if family == "multinomial":
        chance = np.exp(np.column_stack([np.zeros(len(S)), eta]))
        chance /= chance.sum(axis=1, keepdims=True)
        numbers = (rng.uniform(size=(len(S), 1)) > chance.cumsum(axis=1)).sum(axis=1)
        return np.array(["control", "flu", "cold"])[numbers], beta
    chance = ndtr(eta[:, 0]) if family == "probit" else 1 / (1 + np.exp(-eta[:, 0]))
    return (rng.uniform(size=len(S)) < chance).astype(int), beta


def error(model, beta):
    return float(np.mean((np.atleast_2d(model.coef_) - beta) ** 2))


@pytest.mark.parametrize("family", FAMILIES)
def test_closer_than_the_simple_methods(family, data, rca):
    y, beta = outcome(family, data.S1)
    if family == "multinomial":
        beta = beta[[1, 0]]  # levels_: control, then cold and flu in order
    model = rc.ComponentGLM(family, rca=rca).fit(data.X, y)
    simple = [method(model, data.X, y) for method in (baselines.covariates, baselines.naive)]
    assert error(model, beta) < 0.5 * min(error(one, beta) for one in simple)
    clean = baselines.true(model, data.S1, y)
    assert error(clean, beta) < 0.01
    found = model.coefficients_
    np.testing.assert_array_equal(found.value, np.ravel(model.coef_))
    assert np.all((found.standard_error > 0) & (found.standard_error < 0.2))
    text = model.summary()
    assert "trusted" in text
    assert model.title().split(" ")[0].lower() in text.lower()
    assert model.predict(data.X).shape == (4000,)
    assert model.score(data.X, y) > 0.05


def test_logistic_is_one_of_them(data, rca):
    y, _ = outcome("logistic", data.S1)
    ours, theirs = (
        rc.ComponentGLM("logistic", rca=rca).fit(data.X, y),
        rc.ComponentLogisticRegression(rca=rca).fit(data.X, y),
    )
    assert isinstance(theirs, rc.ComponentGLM)
    np.testing.assert_array_equal(ours.coef_, theirs.coef_)
    np.testing.assert_array_equal(ours.coefficients_.standard_error, theirs.coefficients_.standard_error)
    np.testing.assert_array_equal(ours.predict_proba(data.X), theirs.predict_proba(data.X))


def test_without_support_it_is_residualising(data):
    """A Gaussian shared part with dependent errors says nothing of T."""
    rng = np.random.default_rng(1)
    s1, s2 = rng.normal(size=(2, 1500, 3))
    mixed = np.array([[1.0, 0.6, 0.3], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]])
    X = np.hstack([s1 @ mixed + s2, s2 + 0.5 * rng.normal(size=(1500, 3)) @ mixed.T])
    y = rng.poisson(np.exp(0.4 * s1[:, 0]))
    model = rc.ComponentGLM("poisson", rca=rc.ContrastiveRCA(views=3, errors="free")).fit(X, y)
    assert model.trust_ == 0
    np.testing.assert_array_equal(model.coef_, model.residualised_)
    assert model.coefficients_.identified is not None


def test_counts_are_predicted_without_bias(data, rca):
    """exp(eta + q / 2): means of predictions are those of the counts, and the intercept is that at S1."""
    y, _ = outcome("poisson", data.S1)
    model = rc.ComponentGLM("poisson", rca=rca).fit(data.X, y)
    assert model.predict(data.X).mean() == pytest.approx(y.mean(), rel=0.05)
    assert model.intercept_ == pytest.approx(0.0, abs=0.1)
    assert not hasattr(model, "predict_proba")


@pytest.mark.filterwarnings("ignore::richcomponents.SpecificationWarning")
@pytest.mark.parametrize("component", ["S1", "S3"])
def test_predictions_use_the_shared_part_where_y_goes_with_it(data, component):
    """As those of a regression do: what stands before S2 in y is seen in both views."""
    own = data.S1 if component == "S1" else data.V - data.S2 @ data.A.T
    y = np.random.default_rng(1).poisson(np.exp(0.5 * own[:, 0] + 0.5 * data.S2[:, 1]))
    model = rc.ComponentGLM("poisson", rca=rc.ContrastiveRCA(views=4), component=component).fit(data.X, y)
    assert model.on_v_.goes_with
    alone = model.predict_clean(model.rca_.predict_component(data.X, component))
    assert model.score(data.X, y) > d2_tweedie_score(y, alone, power=1) + 0.02
    assert model.predict(data.X).mean() == pytest.approx(y.mean(), rel=0.05)


def test_the_dispersion_is_that_given_S1(data, rca):
    y, _ = outcome("negative binomial", data.S1)
    model = rc.ComponentGLM("negative binomial", rca=rca).fit(data.X, y)
    assert model.dispersion_ == pytest.approx(0.5, abs=0.12)
    assert model.dispersion_ < model.family_.dispersion
    assert "dispersion" in model.title()


def test_classes_their_reference_and_their_order(data, rca):
    y, _ = outcome("multinomial", data.S1)
    model = rc.ComponentGLM("multinomial", rca=rca).fit(data.X, y)
    assert model.levels_ == ("control", "cold", "flu")
    assert model.classes_.tolist() == ["cold", "control", "flu"]
    chance = model.predict_proba(data.X)
    np.testing.assert_allclose(chance.sum(axis=1), 1)
    assert (model.classes_[chance.argmax(axis=1)] == model.predict(data.X)).all()
    other = rc.ComponentGLM("multinomial", rca=rca, reference="flu").fit(data.X, y)
    assert other.levels_ == ("flu", "cold", "control")
    np.testing.assert_allclose(other.coef_[1], -model.coef_[1], atol=0.05)
    assert model.unfitted().reference == "control"
    assert model.estimate().names[:5] == ("cold: x0", "cold: x1", "cold: x2", "cold: x3", "flu: x0")
    assert "against control" in model.title()
    assert model.plot() is not None
    two = rc.ComponentGLM("probit", rca=rca, reference="a").fit(data.X, np.where(y == "flu", "a", "b"))
    assert two.positive_ == "b"


def test_covariates_groups_frames_and_files(tmp_path, data, rca):
    y, _ = outcome("poisson", data.S1)
    rng = np.random.default_rng(3)
    age = rng.normal(size=4000)
    more = rng.poisson(np.exp(data.S1 @ np.array([1.0, -0.5, 0.3, 0.0]) + 0.5 * age))
    frame = pd.DataFrame(data.X, columns=[f"t{i}" for i in range(4)] + [f"c{i}" for i in range(4)])
    plain = rc.ComponentGLM("poisson", rca=rca).fit(frame, y)
    assert plain.coefficients_.names == tuple(f"t{i}" for i in range(4))
    grouped = rc.ComponentGLM("poisson", rca=rca).fit(frame, y, groups=np.repeat(np.arange(1000), 4))
    assert np.isfinite(grouped.coef_).all()
    views = {"U": [f"t{i}" for i in range(4)], "V": [f"c{i}" for i in range(4)]}
    known = rc.ContrastiveRCA(views=views, covariates=["age"])
    with_age = rc.ComponentGLM("poisson", rca=known).fit(frame.assign(age=age), more)
    np.testing.assert_allclose(with_age.coef_, [1.0, -0.5, 0.3, 0.0], atol=0.15)
    path = tmp_path / "table.parquet"
    frame.assign(visits=y).to_parquet(path)
    of_file = rc.ComponentGLM("poisson", rca=rc.ContrastiveRCA(views=views)).fit(path, "visits")
    np.testing.assert_allclose(of_file.coef_, plain.coef_, rtol=1e-8)
    saved = tmp_path / "model.rca"
    of_file.save(saved)
    np.testing.assert_array_equal(rc.load(saved).predict(frame), of_file.predict(frame))


def test_what_is_refused(data, rca):
    def glm(family, y, **options):
        return rc.ComponentGLM(family, rca=rca, **options).fit(data.X, y)

    y = np.arange(4000) % 3
    with pytest.raises(ValueError, match="family must be one of"):
        glm("gamma", y)
    with pytest.raises(rc.DataError, match="none negative"):
        glm("poisson", y - 0.5)
    with pytest.raises(rc.DataError, match="text"):
        glm("poisson", np.array(["a", "b", "c"])[y])
    with pytest.raises(rc.DataError, match="zero in every row"):
        glm("poisson", 0 * y)
    with pytest.raises(rc.DataError, match="multinomial"):
        glm("probit", y)
    with pytest.raises(ValueError, match="reference= names a class"):
        glm("poisson", y, reference=1)
    with pytest.raises(rc.DataError, match="reference='9' is not a class"):
        glm("multinomial", y, reference=9)
    with pytest.raises(rc.DataError, match="need the rows"):
        rc.ComponentGLM("poisson", rca=rca).fit(rc.Moments.of(data.X, 4), 0)
    with pytest.raises(ValueError, match="alpha"):
        glm("poisson", y, alpha=-1)


def test_units_do_not_decide_how_far_the_correction_goes():
    data = make_contrastive(300, d=4, S2="skewed", A="good", random_state=2)
    y, _ = outcome("poisson", data.S1)
    units = np.array([1.0, 1e6, 1e-6, 1.0, 1.0, 1e-6, 1e6, 1.0])
    plain, scaled = (
        rc.ComponentGLM("poisson", rca=rc.ContrastiveRCA(views=4)).fit(X, y) for X in (data.X, data.X * units)
    )
    assert np.linalg.norm(plain.coef_ - plain.residualised_) > 0.02
    np.testing.assert_allclose(scaled.coef_ * units[:4], plain.coef_, rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_intervals_of_counts_allow_for_orders_beyond_four():
    """Of a skewed component (exponential columns) they missed the truth by up to five standard errors."""
    beta, away = np.array([0.6, -0.4]), []
    for seed in (1, 2, 3):
        sets = [("a",), ("b",), ("a", "b")]
        data = rc.datasets.make_views(3000, {"a": 2, "b": 2}, sets=sets, kinds="exponential", random_state=100 + seed)
        y = np.random.default_rng(seed).poisson(np.exp(0.1 + data.components["a",] @ beta))
        model = rc.ComponentGLM("poisson", rca=rc.ContrastiveRCA(views=2)).fit(data.X, y)
        away.append((model.coef_ - beta) / model.coefficients_.standard_error)
    assert np.max(np.abs(away)) < 2.5
