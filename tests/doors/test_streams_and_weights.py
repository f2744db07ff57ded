"""Blocks of data frames, frequency weights, and containers of several tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import richcomponents as rc

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(1500, d=3, S2="skewed", random_state=1)


@pytest.fixture(scope="module")
def frame(data):
    return pd.DataFrame(data.X, columns=["a", "b", "c", "d", "e", "f"])


# ---- blocks with other columns


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda block: block[["b", "a", "c", "d", "e", "f"]], "has 'b' as column 0, the first block had 'a'"),
        (lambda block: block[["a", "b", "c", "d", "e"]], "has 5 columns, the first block had 6"),
        (lambda block: block.rename(columns={"f": "g"}), "has 'g' as column 5, the first block had 'f'"),
    ],
)
def test_blocks_of_frames_are_added_by_name_or_not_at_all(frame, kind, change, message):
    first, second = kind(frame.iloc[:500]), kind(change(frame.iloc[500:]))
    with pytest.raises(rc.DataError, match=message):
        rc.Moments.of(iter([first, second]), 3)
    with pytest.raises(rc.DataError, match=message):
        rc.Moments.of([first, second], 3)
    with pytest.raises(rc.DataError, match=message):
        rc.ContrastiveRCA(views=3).fit(iter([first, second]))
    accumulator = rc.Accumulator(3)
    accumulator.update(first)
    with pytest.raises(rc.DataError, match=message):
        accumulator.update(second)
    accumulator.update(kind(frame.iloc[500:]))  # nothing was lost
    whole = rc.Accumulator(3, accumulator.moments().shift)
    whole.update(frame.to_numpy())
    assert accumulator.moments() == whole.moments()


def test_a_refused_first_frame_is_forgotten(frame):
    accumulator = rc.Accumulator(2)
    with pytest.raises(rc.DataError, match="missing"):
        accumulator.update(frame[["b", "a"]] * np.nan)
    accumulator.update(frame[["a", "b"]])
    with pytest.raises(rc.DataError, match="the first block had 'a'"):
        accumulator.update(frame[["b", "a"]])


def test_streams_of_frames_know_their_columns(frame):
    views = {"tests": ["a", "b", "c"], "controls": ["f", "e", "d"]}
    blocks = [frame.iloc[:700], frame.iloc[700:]]
    streamed = rc.ContrastiveRCA(views=views).fit(iter(blocks))
    assert streamed.feature_names_in_.tolist() == list(frame.columns)
    by_number = rc.ContrastiveRCA(views={"tests": [0, 1, 2], "controls": [5, 4, 3]})
    np.testing.assert_array_equal(streamed.A_, by_number.fit(iter([b.to_numpy() for b in blocks])).A_)


# ---- weights


@pytest.mark.parametrize("covariates", [None, [5]])
def test_coefficients_count_rows_as_the_fit_did(data, rng, covariates):
    weight = rng.integers(0, 4, size=len(data.X))
    repeated, y = np.repeat(data.X, weight, axis=0), np.repeat(data.y, weight)
    model = rc.ContrastiveRCA(views=3, covariates=covariates).fit(data.X, sample_weight=weight)
    for asks in (model.calibrate, model.outcome_test):
        with pytest.raises(rc.DataError, match="the fit knew groups or weights of its rows"):
            asks(repeated, y)
        with pytest.raises(rc.DataError, match="one entry per row"):
            asks(data.X, data.y, sample_weight=weight[:-1])
        with pytest.raises(rc.DataError, match="whole numbers"):
            asks(data.X, data.y, sample_weight=weight + 0.5)
    weighted = model.calibrate(data.X, data.y)  # as they were counted in the fit
    np.testing.assert_array_equal(weighted.coef, model.calibrate(data.X, data.y, sample_weight=weight).coef)
    once = model.calibrate(repeated, y, sample_weight=np.ones(len(y)))
    np.testing.assert_allclose(weighted.residualised, once.residualised, rtol=1e-10)
    apart = np.abs(weighted.coef - once.coef)  # copies of a row are in other blocks, and blocks tell the share
    assert apart.max() < 0.02 * np.abs(weighted.coef).max()


def test_copies_of_a_row_say_nothing_new(data):
    model = rc.ContrastiveRCA(views=3).fit(data.X)
    every = model.outcome_test(data.X, data.y)
    thirty = model.outcome_test(data.X, data.y, sample_weight=np.full(len(data.y), 30))
    np.testing.assert_allclose(thirty.p_value, every.p_value, rtol=1e-9)


# ---- containers of several tables


def annotated(values, prefix):
    anndata = pytest.importorskip("anndata")
    rows = pd.DataFrame(index=[f"s{i}" for i in range(len(values))])
    return anndata.AnnData(values, obs=rows, var=pd.DataFrame(index=[f"{prefix}{i}" for i in range(values.shape[1])]))


def test_a_container_of_tables_is_one_table(data):
    mudata = pytest.importorskip("mudata")
    both = mudata.MuData({"rna": annotated(data.U, "r"), "protein": annotated(data.V, "p")})
    model = rc.ContrastiveRCA(views=3).fit(data.X)
    fitted = rc.ContrastiveRCA().fit_views(both)
    np.testing.assert_array_equal(fitted.A_, model.A_)
    table = rc.join_views(both).values
    np.testing.assert_array_equal(fitted.transform(table), model.transform(data.X))
    np.testing.assert_array_equal(rc.Moments.of(both, 2).mean, rc.Moments.of(data.X, 2).mean)


def test_an_anndata_is_the_table_that_its_file_is(data, tmp_path):
    whole = annotated(data.X, "c")
    views = {"u": [f"c{i}" for i in range(3)], "v": [f"c{i}" for i in range(3, 6)]}
    whole.write_h5ad(tmp_path / "t.h5ad")
    found = rc.ContrastiveRCA(views=views).fit(whole)
    np.testing.assert_array_equal(found.A_, rc.ContrastiveRCA(views=views).fit(tmp_path / "t.h5ad").A_)
    np.testing.assert_array_equal(found.transform(whole), found.transform(whole.to_df()))
    assert list(found.feature_names_in_) == list(whole.var_names)
    np.testing.assert_array_equal(rc.Moments.from_source(whole, 2).mean, rc.Moments.of(data.X, 2).mean)
    effects = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=views)).fit(whole, data.y)
    plain = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=3)).fit(data.X, data.y)
    np.testing.assert_allclose(effects.coef_, plain.coef_, rtol=1e-9)
