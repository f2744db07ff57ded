"""What an outcome has to do with V: tests, gamma, corrections that are not made, and V beside U."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.datasets import make_contrastive
from richcomponents.pair.evidence import CrossCumulants

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")

D = 5


def labs(n, seed=0, d=D, k=3):
    """S1, S2 (k labs), S3, and A."""
    rng = np.random.default_rng(seed)
    own, noise = rng.normal(size=(2, n, d))
    offsets = rng.normal(size=(k, d))
    shared = offsets[rng.integers(k, size=n)]
    return own, shared - shared.mean(axis=0), noise, rng.normal(size=(d, d)) / np.sqrt(d), rng


def table(n=3000, seed=0, gamma=0.0, delta=0.0):
    own, shared, noise, A, rng = labs(n, seed)
    beta = np.array([1.0, -1.0, 0.5, 0.0, 0.0])
    y = own @ beta + gamma * shared[:, 0] + delta * noise[:, 0] + rng.normal(size=n)
    return np.hstack([own + shared, shared @ A.T + noise]), y, beta


def fitted(X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D, classes="none"), **options).fit(X, y)


def error(model, beta):
    return float(np.sum((model.coef_ - beta) ** 2)), float(np.sum((model.residualised_ - beta) ** 2))


def test_an_outcome_that_goes_with_the_labs_is_corrected_for_them():
    ratios = []
    for seed in range(4):
        X, y, beta = table(seed=seed, gamma=2.0)
        model = fitted(X, y)
        assert model.on_v_.share > 0.99
        assert model.on_v_.belief == 1
        assert model.verdict_ == "strong"
        found, simple = error(model, beta)
        ratios.append(found / simple)
        stated, _ = error(fitted(X, y, shared=True), beta)
        assert found == pytest.approx(stated, rel=0.05)
        assert any("taken to depend on the shared part too" in note for note in model.notes())
    assert max(ratios) < 1
    assert np.median(ratios) < 0.5


def test_an_outcome_that_goes_with_what_v_has_of_its_own_is_not_corrected():
    X, y, _ = table(gamma=1.0, delta=1.0)
    with pytest.warns(
        rc.SpecificationWarning, match="The outcome contradicts the model: y goes with what V does not share with U"
    ):
        model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D, classes="none")).fit(X, y)
    assert model.on_v_.belief == 0
    assert model.verdict_ == "contradicted"
    assert model.rca_.verdict_ == "strong"
    np.testing.assert_array_equal(model.coef_, model.residualised_)
    assert "The outcome contradicts the model" in model.summary()


def test_where_the_shared_part_fills_v_nothing_witnesses_for_it():
    data = make_contrastive(5000, d=4, S2="skewed", A="good", random_state=3)
    y = data.y + data.S2[:, 0]
    with pytest.warns(rc.SpecificationWarning, match=r"the shared part fills V.*shared=True"):
        model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)).fit(data.X, y)
    assert model.on_v_.on_rest is None
    np.testing.assert_allclose(model.coef_, model.residualised_, atol=1e-9)
    stated = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4), shared=True).fit(data.X, y)
    assert stated.verdict_ == "strong"
    assert np.sum((stated.coef_ - data.beta) ** 2) < 0.3 * np.sum((model.coef_ - data.beta) ** 2)


def test_an_outcome_of_s1_alone_is_not_touched():
    X, y, _ = table(seed=5)
    model = fitted(X, y)
    assert model.on_v_.share == 0
    assert model.on_v_.belief == 1
    assert not model.on_v_.goes_with
    rca, outcome = model.rca_, model.rca_.outcome(X, y)
    found = rca.calibrate(replace(outcome, on_v=replace(rca.solution_.on_v(outcome), belief=0.0)))
    np.testing.assert_array_equal(found.coef, found.residualised)


def test_least_squares_on_the_features_gives_the_coefficients():
    X, y, _ = table(seed=1, gamma=1.5)
    rca = rc.ContrastiveRCA(views=D, classes="none").fit(X)
    found = rca.calibrate(X, y)
    assert found.on_v.goes_with
    again = np.linalg.lstsq(found.features, found.outcome, rcond=None)[0]
    np.testing.assert_allclose(again, found.coef, atol=1e-8)
    ridge = fitted(X, y, alpha=1e-7)
    np.testing.assert_allclose(ridge.coef_, found.coef, atol=1e-4)


def test_all_of_v_stands_beside_u_where_that_predicts_better():
    X, y, _ = table(seed=2, delta=2.0)
    model = fitted(X, y)
    assert model.on_v_.every
    assert model.on_v_.beside == D > model.rca_.rank_
    centred = X - X.mean(axis=0)
    expected = np.linalg.lstsq(centred, y - y.mean(), rcond=None)[0][:D]
    np.testing.assert_allclose(model.coef_, expected, atol=1e-10)
    assert "Residualised means adjusted for all of V." in model.notes()


def test_few_variates_stand_beside_u_where_the_others_say_nothing():
    own, shared, noise, A, rng = labs(150, seed=4)
    X = np.hstack([own + shared, shared @ A.T + noise])
    counted = [fitted(X, own[:, 0] + rng.normal(size=150)).on_v_.every for _ in range(8)]
    assert sum(counted) < 4


def test_errors_cover_an_outcome_that_goes_with_the_labs():
    hits = []
    for seed in range(12):
        X, y, beta = table(800, seed=100 + seed, gamma=2.0)
        found = fitted(X, y).coefficients_
        hits.append((found.low <= beta) & (beta <= found.high))
    assert np.mean(hits) > 0.88


def test_log_odds_of_an_outcome_that_goes_with_the_labs():
    own, shared, noise, A, rng = labs(6000, seed=6)
    beta = np.array([1.0, -1.0, 0.5, 0.0, 0.0])
    y = own @ beta + 2 * shared[:, 0] + rng.logistic(size=len(own)) > 0
    X = np.hstack([own + shared, shared @ A.T + noise])
    model = rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=D, classes="none")).fit(X, y)
    assert model.on_v_.goes_with
    found, simple = (np.sum((coef - beta) ** 2) for coef in (model.coef_[0], model.residualised_))
    assert found < simple
    assert np.all(np.isfinite(model.coefficients_.standard_error))


def test_a_shared_part_that_saturates_in_v_fails_the_model():
    rng = np.random.default_rng(0)
    n = 4000
    factors = rng.exponential(size=(n, 2)) - 1
    S2 = factors @ rng.normal(size=(2, D))
    X = np.hstack([rng.normal(size=(n, D)) + S2, rng.normal(size=(n, D)) + 2 * np.tanh(S2 @ rng.normal(size=(D, D)))])
    with pytest.warns(rc.SpecificationWarning, match="contradicts the model"):
        model = rc.ContrastiveRCA(views=D, classes="none").fit(X)
    assert model.verdict_ == "contradicted"
    assert CrossCumulants.name not in model.solution_.fit.posterior.scales  # they are not used
    assert "Cross-cumulants do not have the structure" in model.summary()
    assert model.fitted_.without(0).solution.verdict == "contradicted"


def test_it_is_saved_and_loaded(tmp_path):
    X, y, _ = table(500, gamma=2.0)
    model = fitted(X, y)
    model.save(tmp_path / "model.rca")
    again = rc.load(tmp_path / "model.rca")
    assert again.on_v_ == model.on_v_
    assert again.verdict_ == model.verdict_


def test_where_nothing_is_shared_nothing_fails():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 2 * D))
    with warnings.catch_warnings():
        warnings.simplefilter("error", rc.SpecificationWarning)
        model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D, classes="none")).fit(
            X, X[:, 0] + X[:, D] + rng.normal(size=600)
        )
    assert model.verdict_ == "nothing shared"
    assert model.on_v_.beside == D
    assert "all of V stands beside U" in model.summary()
    assert np.median(model.coefficients_.standard_error) < 0.05  # .041 in theory; with what V explains as noise, .058


@pytest.mark.parametrize("S2", ["skewed", "paper"])
def test_errors_cover_where_a_is_known(S2):
    hits = []
    for seed in range(12):
        data = make_contrastive(2000, d=5, S2=S2, random_state=900 + seed)
        found = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=5, A=data.A)).fit(data.X, data.y).coefficients_
        hits.append((found.low <= data.beta) & (data.beta <= found.high))
    assert np.mean(hits) > 0.88


def test_a_word_that_the_data_contradict_is_doubted():
    X, _, _ = table()
    with pytest.warns(rc.SpecificationWarning, match="shared=True says that"):
        model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D, classes="none"), shared=True).fit(X, X[:, D])
    assert "shared=True says that" in model.summary()


def test_predictions_do_not_leave_out_what_goes_with_the_shared_part():
    X, y, _ = table(seed=1, gamma=3.0)
    plain, stated = fitted(X, y), fitted(X, y, shared=True)
    assert plain.score(X, y) == pytest.approx(stated.score(X, y), abs=0.01)
    assert plain.predict(X).mean() == pytest.approx(y.mean(), abs=1e-8)


def test_a_report_of_both_parts_is_made(tmp_path):
    X, y, _ = table(500, gamma=3.0)
    rc.write_report(tmp_path / "page.html", fitted(X, y, shared=True), X, y)
    assert (tmp_path / "page.html").stat().st_size > 1000


def test_an_outcome_with_labels_lines_up_with_the_rows():
    pd = pytest.importorskip("pandas")
    X, y, _ = table(400, gamma=2.0)
    frame = pd.DataFrame(X, index=[f"s{i}" for i in range(400)]).rename(columns=str)
    series = pd.Series(y, index=frame.index)
    expected = fitted(frame, series).coef_
    np.testing.assert_array_equal(fitted(frame, series.sample(frac=1, random_state=0)).coef_, expected)
    np.testing.assert_array_equal(fitted(frame, pd.Series(y)).coef_, expected)  # a default index is no label
    with pytest.raises(
        rc.DataError, match=r"labels of y are not those of the table's rows \(400 are not in it, such as 'zs0'"
    ):
        fitted(frame, pd.Series(y, index="z" + frame.index))
