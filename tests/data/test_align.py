"""Samples of several tables line up by label, whatever the tables are."""

import warnings

import anndata
import numpy as np
import pandas as pd
import polars as pl
import pytest

import richcomponents as rc
from richcomponents.data.align import align_labels
from richcomponents.data.rows import join_views


@pytest.fixture(scope="module")
def tables():
    data = rc.datasets.make_contrastive(600, d=3, S2="skewed", random_state=0)
    names = [f"s{i}" for i in range(600)]
    U = pd.DataFrame(data.U, names, [f"T_{i}" for i in range(3)])
    V = pd.DataFrame(data.V, names, [f"C_{i}" for i in range(3)])
    return U, V


def fitted(views, **options):
    return rc.ContrastiveRCA().fit_views(views, **options).A_


def test_reordered_samples_are_reordered(tables):
    U, V = tables
    expected = fitted([U.to_numpy(), V.to_numpy()])
    turned = V.sample(frac=1, random_state=1)
    np.testing.assert_array_equal(fitted([U, turned]), expected)
    bare = [pl.DataFrame(one.reset_index(names="sample")) for one in (U, turned)]
    np.testing.assert_array_equal(fitted(bare, id="sample"), expected)
    np.testing.assert_array_equal(fitted([anndata.AnnData(U), anndata.AnnData(turned)]), expected)


def test_samples_in_common_are_taken_and_the_others_named(tables):
    U, V = tables
    rest = V.drop(index=["s3", "s5"]).sample(frac=1, random_state=1)
    extra = pd.concat([rest, V.iloc[:1].set_axis(["other"])])
    kept = U.drop(index=["s3", "s5"])
    expected = fitted([kept, V.loc[kept.index]])
    with pytest.warns(UserWarning, match="left out") as told:
        np.testing.assert_array_equal(fitted([U, extra], align="inner"), expected)
    assert [str(one.message) for one in told][:2] == [
        "2 samples of 'U' are not in every table and were left out (s3, s5); 598 are kept.",
        "1 sample of 'V' is not in every table and was left out (other); 598 are kept.",
    ]
    with pytest.raises(rc.DataError, match=r'2 only in \'U\', 1 only in \'V\', e.g. \'s3\'.*align="inner"'):
        fitted([U, extra])


def test_groups_and_weights_follow_the_first_table(tables):
    U, V = tables
    groups, weight = np.arange(600) // 3, 1 + np.arange(600) % 2
    rest, keep = V.iloc[100:].iloc[::-1], np.arange(600) >= 100
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both = fitted([U, rest], align="inner", groups=groups, sample_weight=weight)
        expected = fitted([U[keep], V[keep]], groups=groups[keep], sample_weight=weight[keep])
        np.testing.assert_array_equal(both, expected)
        with pytest.raises(rc.DataError, match=r"groups must have one entry per row of view 'U' \(600\), got 500"):
            fitted([U, rest], align="inner", groups=groups[keep])


def test_all_samples_with_gaps(tables):
    U, V = tables
    table = join_views({"U": U.iloc[:3], "V": V.iloc[[4, 2, 1]]}, align="outer")
    assert table.index == ("s0", "s1", "s2", "s4")
    np.testing.assert_array_equal(np.isnan(table.values[:, 0]), [False, False, False, True])
    np.testing.assert_array_equal(np.isnan(table.values[:, 3]), [True, False, False, False])
    np.testing.assert_array_equal(table.values[1:3, 3:], V.iloc[[1, 2]])


def test_files_line_up_as_frames_do(tables, tmp_path):
    U, V = tables
    paths = {"U": tmp_path / "u.csv", "V": tmp_path / "v.parquet"}
    rest = V.iloc[50:].sample(frac=1, random_state=0)
    U.to_csv(paths["U"], index_label="sample")
    rest.reset_index(names="sample").to_parquet(paths["V"])
    with pytest.warns(UserWarning, match=r"50 samples of 'U' are not in every table.*s0, s1.*\(50 in all\)"):
        both = fitted(paths, id="sample", align="inner")
    np.testing.assert_array_equal(both, fitted([U.iloc[50:], V.iloc[50:]]))
    with pytest.raises(rc.DataError, match="different samples"):
        fitted(paths, id="sample")
    with pytest.raises(rc.DataError, match="different numbers of rows"):
        fitted(paths)
    outer = rc.open_source(paths, id="sample", align="outer")
    np.testing.assert_array_equal(np.isnan(outer.array()).any(axis=1), np.arange(600) < 50)
    assert outer.read(["sample"])["sample"].tolist() == U.index.tolist()


def test_without_labels_equal_length_or_error(tables):
    U, V = (one.to_numpy() for one in tables)
    with pytest.raises(rc.DataError, match="'U' has 600, 'V' has 599"):
        fitted([U, V[1:]])
    with pytest.raises(rc.DataError, match=r"align='inner' matches samples by label, and view 'U' has none.*id="):
        fitted([U, V], align="inner")
    with pytest.raises(rc.DataError, match="view 'U' has no sample labels 'sample': an array has no named columns"):
        fitted([U, V], id="sample")
    with pytest.raises(ValueError, match="align must be one of 'same', 'inner', 'outer', got 'left'"):
        fitted([U, V], align="left")


def test_labels_that_tell_nothing_are_refused():
    with pytest.raises(rc.DataError, match="data row 2 of 'b' has no sample label"):
        align_labels({"a": ["x", "y"], "b": ["x", None]}, "inner")
    with pytest.raises(rc.DataError, match="'a' has two rows labelled 'x'"):
        align_labels({"a": ["x", "x"], "b": ["x"]}, "outer")
    with pytest.raises(rc.DataError, match="share no sample label"):
        align_labels({"a": ["x"], "b": ["y"]}, "inner")


def test_every_learner_takes_tables_that_were_lined_up(tables):
    U, V = tables
    y = pd.Series(np.random.default_rng(0).normal(size=600) + U["T_0"], U.index, name="bmi")
    rest = V.iloc[50:].sample(frac=1, random_state=0)
    both = pd.concat([U, V], axis=1).iloc[50:]
    named = rc.ContrastiveRCA(views={"U": list(U), "V": list(V)})
    learners = (rc.ComponentRegression, rc.ExposureEffects)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = rc.open_source({"U": U, "V": rest}, align="inner")
        for learner in learners:
            expected = learner(rca=named).fit(both, y.iloc[50:]).coef_
            for given in (y.sample(frac=1, random_state=3), y.iloc[50:][::-1], y.to_numpy(), y.to_numpy()[50:]):
                found = learner(rca=rc.ContrastiveRCA()).fit(rows, given).coef_
                np.testing.assert_allclose(found, expected, rtol=1e-10)
            labelled = {name: one.reset_index(names="sample") for name, one in (("U", U), ("V", rest))}
            matched = rc.open_source(labelled, align="inner", id="sample")
            found = learner(rca=rc.ContrastiveRCA()).fit(matched, y).coef_
            np.testing.assert_allclose(found, expected, rtol=1e-10)
        with pytest.raises(rc.DataError, match=r"y must have one entry per row of view 'U' \(600\), got 580"):
            rc.ComponentRegression(rca=rc.ContrastiveRCA()).fit(rows, y.to_numpy()[20:])
    with pytest.raises(rc.DataError, match=r"50 only in 'U'.*open_source\(tables, align=...\), which every fit takes"):
        rc.ComponentRegression(rca=rc.ContrastiveRCA()).fit({"U": U, "V": rest}, y)


def test_a_labelled_outcome_follows_the_labels_of_any_table(tables):
    U, V = tables
    y = pd.Series(U["T_0"] + np.arange(600) % 7, U.index)
    both = pd.concat([U, V], axis=1)
    named = rc.ContrastiveRCA(views={"U": list(U), "V": list(V)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = rc.ComponentRegression(rca=named).fit(both, y.to_numpy()).coef_
        for X in (both, {"U": U, "V": V[::-1]}, [U, V[::-1]], anndata.AnnData(both)):
            shuffled = y.sample(frac=1, random_state=1)
            np.testing.assert_allclose(rc.ComponentRegression(rca=named).fit(X, shuffled).coef_, expected, rtol=1e-10)
        strange = y.set_axis([f"z{label}" for label in y.index])
        for X in (both, {"U": U, "V": V}, anndata.AnnData(both)):
            with pytest.raises(rc.DataError, match="labels of y are not those of the table's rows"):
                rc.ComponentRegression(rca=named).fit(X, strange)


def test_numbers_as_labels_that_contradict_each_other_are_refused(tables):
    X = pd.concat(tables, axis=1).reset_index(drop=True)
    y = pd.Series(np.random.default_rng(0).normal(size=600)) + X["T_0"]
    model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views={"U": "T_*", "V": "C_*"}))
    keep = X["T_1"] > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model.fit(X[keep], y[keep]).coef_
        for rows in (X[keep], rc.open_source(X[keep])):
            for right in (y[keep].sample(frac=1, random_state=0), y[keep].to_numpy()):
                np.testing.assert_array_equal(model.fit(rows, right).coef_, expected)
        refused = r"labels of y are not those of the table's rows \(\d+ are not in it, such as \d+\).*\.to_numpy\(\)"
        for rows, wrong in (
            (X[keep], y.iloc[: keep.sum()]),
            (X.iloc[1:], y.iloc[:-1]),
            (X.iloc[:-1], y.iloc[1:]),
            (rc.open_source(X.iloc[1:]), y.iloc[:-1]),
        ):
            with pytest.raises(rc.DataError, match=refused):
                model.fit(rows, wrong)
        for what in ("groups", "sample_weight"):
            with pytest.raises(rc.DataError, match=f"labels of {what} are not those of the table's rows"):
                model.rca.fit(X.iloc[1:], **{what: pd.Series(range(1, 600))})
