"""Two sites exchange sums only, and get what the pooled rows give."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import richcomponents as rc
from richcomponents.moments import Moments


def test_two_sites_give_the_pooled_fit(tmp_path):
    data = rc.datasets.make_contrastive(9000, d=3, S2="skewed", random_state=5)
    sites = data.X[:4000], data.X[4000:] + 0.0
    for name, rows in zip(("one", "two"), sites, strict=True):
        Moments.of(rows, order=4).folded().save(tmp_path / f"{name}.npz")  # each about its own means
    one, two = (Moments.load(tmp_path / f"{name}.npz") for name in ("one", "two"))
    assert not np.array_equal(one.shift, two.shift)
    # rows are dealt to blocks from 0 at each site: 4000 is a multiple of 20, so the pooled blocks are the same
    pooled = rc.ContrastiveRCA(views=3).fit_moments(Moments.of(data.X, order=4))
    for total in (one + two, two + one):
        assert total.n == 9000
        model = rc.ContrastiveRCA(views=3).fit_moments(total)
        np.testing.assert_allclose(model.A_, pooled.A_, rtol=1e-9, atol=1e-10)
        for name, component in model.components_.items():
            expected = pooled.components_[name]
            np.testing.assert_allclose(component.covariance, expected.covariance, rtol=1e-9, atol=1e-10)
            np.testing.assert_allclose(component.mean, expected.mean, rtol=1e-9, atol=1e-10)


@pytest.fixture(scope="module")
def cohort():
    """Tests, controls, a known covariate, an exposure and two classes, of two hospitals."""
    data = rc.datasets.make_confounded(4000, random_state=3)
    rng = np.random.default_rng(3)
    first = (data.X[:, 0] - data.X[:, 0].mean()) / data.X[:, 0].std()
    columns = {f"t{i}": x for i, x in enumerate(data.X[:, :6].T)} | {f"c{i}": x for i, x in enumerate(data.X[:, 6:].T)}
    case = (rng.random(4000) < 1 / (1 + np.exp(-first))).astype(int)
    return pd.DataFrame(columns | {"age": rng.normal(size=4000), "dose": data.y, "case": case})


@pytest.fixture(scope="module")
def states(cohort, tmp_path_factory):
    """What the two send, added up, and the state of all rows."""
    folder = tmp_path_factory.mktemp("sites")
    for name, site in (("one", cohort[:1600]), ("two", cohort[1600:])):  # 1600 is a multiple of 20: the pooled blocks
        Moments.of(site, order=4).folded().save(folder / f"{name}.npz")
    one, two = (Moments.load(folder / f"{name}.npz") for name in ("one", "two"))
    assert one.names == tuple(cohort.columns)
    return one + two


def rca():
    return rc.ContrastiveRCA(views={"tests": "t*", "controls": "c[0-9]*"}, covariates=["age"], classes="none")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("learner", "y"),
    [
        (rc.ComponentRegression(rca=rca()), "dose"),
        (rc.ComponentRegression(alpha=0.1, l1_ratio=0.5, rca=rca()), "dose"),
        (rc.ComponentRegression(alpha="cv", rca=rca()), "dose"),
        (rc.ComponentRegression(shared=True, rca=rca()), "dose"),
        (rc.ComponentLogisticRegression(approximation="chebyshev", rca=rca()), "case"),
        (rc.ExposureEffects(rca=rca()), "dose"),
    ],
)
def test_two_sites_learn_what_the_pooled_rows_say(cohort, states, learner, y):
    pooled, sites = clone(learner).fit(cohort, y), clone(learner).fit(states, y)
    scale = np.abs(pooled.coef_).max()
    np.testing.assert_allclose(sites.coef_, pooled.coef_, rtol=1e-9, atol=1e-9 * scale)
    if y == "dose" and getattr(learner, "alpha", 0) == 0:
        estimates = (
            m.effects_ if isinstance(learner, rc.ExposureEffects) else m.coefficients_ for m in (sites, pooled)
        )
        one, two = (found.standard_error for found in estimates)
        np.testing.assert_allclose(one, two, rtol=1e-8)


@pytest.mark.filterwarnings("ignore")
def test_blocks_of_a_stream_learn_what_the_table_says(cohort, states):
    blocks = [cohort[i : i + 700] for i in range(0, 4000, 700)]
    learner = rc.ComponentRegression(rca=rca())
    for block in blocks:
        learner.partial_fit(block, "dose")
    expected = rc.ComponentRegression(rca=rca()).fit(cohort, "dose")
    np.testing.assert_allclose(learner.coef_, expected.coef_, rtol=1e-9)
    np.testing.assert_allclose(learner.predict(cohort[:5]), expected.predict(cohort[:5]), rtol=1e-9)
    pca = rc.ComponentPCA(2, rca=rca())
    for block in blocks:
        pca.partial_fit(block)
    np.testing.assert_allclose(pca.components_, rc.ComponentPCA(2, rca=rca()).fit(cohort).components_, atol=1e-9)


def test_what_sums_do_not_tell_is_said(cohort, states):
    with pytest.raises(rc.DataError, match=r"need the rows.*approximation='chebyshev'"):
        rc.ComponentLogisticRegression(rca=rca()).fit_moments(states, "case")
    with pytest.raises(rc.DataError, match="code the two classes as 0 and 1"):
        rc.ComponentLogisticRegression(rca=rca(), approximation="chebyshev").fit(states, "dose")
    with pytest.raises(rc.DataError, match=r"no column 'dosis' \(the outcome\)"):
        rc.ComponentRegression(rca=rca()).fit(states, "dosis")
    with pytest.raises(rc.DataError, match="holds the outcome as one of its columns"):
        rc.ComponentRegression(rca=rca()).fit(states, cohort["dose"])
    with pytest.raises(ValueError, match=r"states of different columns: 't0' is 'x'"):
        states + Moments.of(cohort.rename(columns={"t0": "x"}), 4)


@pytest.mark.parametrize("order", [3, 6])
def test_a_folded_state_reads_the_same(rng, order):
    state = Moments.of(rng.exponential(size=(43_000, 2)), order)
    folded = state.folded()
    np.testing.assert_array_equal(folded.blocks, state.blocks)
    assert folded.folded() == folded
    assert Moments.empty(2).folded().is_empty


def test_sums_over_a_handful_of_rows_are_refused(rng, tmp_path):
    path = tmp_path / "s.npz"
    few = Moments.of(rng.normal(size=(60, 2)), 2)  # three rows in a block
    with pytest.raises(rc.DataError, match=r"over 3 row\(s\) of 60.*fewer blocks.*force=True"):
        few.save(path)
    assert not path.exists()
    few.save(path, force=True)
    assert Moments.load(path) == few
    Moments.of(rng.normal(size=(60, 2)), 2, n_blocks=10).save(path)
    tail = Moments.of(rng.normal(size=(20 * 4096 + 30, 2)), 2)  # one or two rows in the last leaf of each block
    with pytest.raises(rc.DataError, match=r"save state\.folded\(\)"):
        tail.save(path)
    tail.folded().save(path)
    assert Moments.load(path).n == tail.n
