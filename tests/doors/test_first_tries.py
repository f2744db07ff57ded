"""What is tried first: names written in the shortest way, tables with gaps and dates, outcomes of the wrong kind."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import richcomponents as rc
from richcomponents.commands import FitRequest, run_effects

VIEWS = {"tests": "U*", "controls": "V*"}


@pytest.fixture(scope="module")
def frame():
    data, rng = rc.datasets.make_contrastive(400, d=3, S2="skewed", random_state=0), np.random.default_rng(0)
    table = pd.DataFrame(data.X, columns=[f"{view}{i}" for view in "UV" for i in range(3)])
    return table.assign(y=data.y, **{name: rng.normal(size=400) for name in ("age", "a", "g", "e")})


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def rca(**changes):
    return rc.ContrastiveRCA(**{"views": VIEWS} | changes)


# ---- covariates


def test_a_text_is_one_covariate_or_one_pattern(frame):
    one = rca(covariates="age").fit(frame)
    np.testing.assert_array_equal(one.A_, rca(covariates=["age"]).fit(frame).A_)
    assert "Covariate: age." in one.summary()
    both = rca(covariates="a*").fit(frame)
    assert both.fitted_.design.known.tolist() == [frame.columns.get_loc("age"), frame.columns.get_loc("a")]
    assert "Covariates: age, a." in both.summary()
    several = rc.RCA(views={"a": ["U0", "U1"], "b": ["U2", "V0"], "c": ["V1", "V2"]}, covariates="age").fit(frame)
    assert "Covariate: age." in several.summary()


def test_covariates_that_are_named_twice_are_refused(frame):
    for twice in (["age", "age"], ["age", "a*"], ["sex", "sex"]):
        with pytest.raises(rc.DataError, match=rf"covariate '{twice[0]}' is named twice: name it once"):
            rca(covariates=twice).fit(frame.assign(sex=["f", "m"] * 200))


@pytest.mark.parametrize("missing", ["drop", "available"])
def test_rows_without_a_covariate_that_is_text_are_left_out(frame, missing):
    sex = pd.Series(["f", "m"] * 200, dtype=object).where(frame.index != 3)
    given, rest = frame.assign(sex=sex), frame.assign(sex=sex).drop(index=3)
    for learner in (rc.ComponentRegression, rc.ExposureEffects, rc.ComponentLogisticRegression):
        y = frame["y"] > 0 if learner is rc.ComponentLogisticRegression else frame["y"]
        model = learner(rca=rca(covariates=["sex"], missing=missing))
        expected = learner(rca=rca(covariates=["sex"])).fit(rest, y.drop(index=3)).coef_
        with pytest.warns(rc.MissingValueWarning, match="1 of 400 rows"):
            np.testing.assert_allclose(model.fit(given, y).coef_, expected, rtol=1e-10)
    with pytest.raises(rc.DataError, match="'sex' has no label in row 0"):
        rca(covariates=["sex"], missing=missing).fit(given.assign(sex=pd.Series([None] * 400, dtype=object)))


# ---- classes


def test_ordered_categories_keep_their_order(frame, tmp_path):
    anndata = pytest.importorskip("anndata")
    codes = np.random.default_rng(3).integers(0, 3, 400)
    dose = pd.Series(
        pd.Categorical.from_codes(codes + 1, ["none yet", "low", "mid", "high"], ordered=True), name="dose"
    )
    doses = frame.assign(dose=dose)
    effects = rc.ExposureEffects(rca=rca()).fit(frame, dose)
    assert effects.exposures_ == ("dose=mid", "dose=high")
    assert "low comes first in order" in effects.summary()
    cells = anndata.AnnData(frame.iloc[:, :6].set_axis(frame.index.astype(str)))
    cells.obs["dose"] = dose.to_numpy()
    cells.obs["dose"] = cells.obs["dose"].astype(dose.dtype)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    for table in (doses, cells, tmp_path / "cells.h5ad"):
        assert rc.ExposureEffects(rca=rca(), exposure="dose").fit(table).exposures_ == effects.exposures_
        assert "mid (" in (note := rca(covariates=["dose"]).fit(table).fitted_.design.covariate_notes()[0])
        assert "against low (" in note
    assert rc.ExposureEffects(rca=rca(), reference="mid").fit(frame, dose).exposures_ == ("dose=low", "dose=high")
    for X, y in ((frame, dose), (frame, dose.array), (doses, "dose")):
        assert rc.ComponentGLM("multinomial", rca=rca()).fit(X, y).levels_ == ("low", "mid", "high")


def test_an_exposure_with_the_name_of_a_column_is_refused_by_name(frame):
    exposed = pd.Series(np.random.default_rng(1).normal(size=400), name="V0")
    for views in (VIEWS, {"tests": ["U0", "U1", "U2"], "controls": ["V0", "V1", "V2"]}):
        with pytest.raises(
            rc.DataError, match=r"exposure is called 'V0', as column 'V0' of view 'controls' is: rename"
        ):
            rc.ExposureEffects(rca=rca(views=views)).fit(frame, exposed)
    model = rc.ExposureEffects(rca=rca())
    expected = model.fit(frame, exposed.rename("dose")).coef_
    np.testing.assert_array_equal(model.fit(frame, exposed.rename("Vx")).coef_, expected)  # which "V*" does not take


# ---- messages


def test_outcomes_of_the_wrong_kind_are_told_what_they_are(frame):
    regression, classes = rc.ComponentRegression(rca=rca()), rc.ComponentLogisticRegression(rca=rca())
    labels = np.where(frame["y"] > 0, "a", "b")
    for text in (
        labels,
        labels.astype(object),
        labels.tolist(),
        pd.Series(labels),
        pd.Series(labels, dtype="category"),
    ):
        with pytest.raises(
            rc.DataError, match=r"outcome y holds text \('[ab]'\).*classes \(ComponentLogisticRegression"
        ):
            regression.fit(frame, text)
    for model, y in ((regression, frame["y"]), (classes, (frame["y"] > 0).astype(float))):
        with pytest.raises(
            rc.DataError, match=r'y holds 2 missing.*the first in row 3: drop those rows, or say missing="drop"'
        ):
            model.fit(frame, y.where(~frame.index.isin([3, 5])))
    with pytest.raises(rc.DataError, match=r"Unknown label type: continuous.*outcome of ComponentRegression"):
        classes.fit(frame, frame["y"])


def test_columns_of_the_wrong_kind_are_told_what_they_are(frame):
    day = pd.Series(pd.date_range("2020-01-01", periods=400), name="day")
    objects = frame["U0"].astype(object).where(frame.index != 3, None)
    for table in (frame.assign(U0=objects), rc.open_source(frame.assign(U0=objects))):
        with pytest.raises(
            rc.DataError, match=r"column 'U0' of view 'tests'.*numbers as objects.*pd\.to_numeric.*astype"
        ):
            rca(missing="drop").fit(table)
    with pytest.raises(rc.DataError, match=r"column 'U0' of view 'tests' is not numeric \(Datetime.*dates or times"):
        rca().fit(frame.assign(U0=day))
    with pytest.raises(rc.DataError, match="covariate 'day' has 400 different labels in 400 rows: they are dates"):
        rca(covariates="day").fit(frame.assign(day=day))
    with pytest.raises(
        rc.DataError, match="covariate 'a' has 399 different labels in 400 rows: they are numbers, kept as"
    ):
        rca(covariates="a", missing="drop").fit(frame.assign(a=objects))
    for y in (day, day.to_numpy()):
        with pytest.raises(rc.DataError, match=r"exposure '\w+' has 400 different labels in 400 rows: they are dates"):
            rc.ExposureEffects(rca=rca()).fit(frame, y)


def test_discovery_is_not_advised_where_it_was_made(frame):
    several = rc.RCA(views={"t": ["U0", "U1"], "c": ["V0", "V1"], "i": ["U2", "V2"]})
    for discover in (False, True):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = several.set_params(discover=discover).fit(frame)
        said = " ".join([str(one.message) for one in told if "the data say little" in str(one.message)])
        assert ("discover=True" in said + " ".join(found.next_steps())) is (not discover)


def test_effects_of_several_exposures_are_one_long_table(frame):
    model = rc.ExposureEffects(rca=rca()).fit(frame, frame[["a", "g"]])
    table = model.effect_table().to_frame()
    assert table["exposure"].tolist() == ["a"] * 3 + ["g"] * 3
    np.testing.assert_array_equal(table["estimate"], np.concatenate([one.value for one in model.effects_.values()]))
    assert list(rc.ExposureEffects(rca=rca()).fit(frame, frame["a"]).effect_table().to_frame()["exposure"]) == ["a"] * 3


# ---- exposures: gaps, orders, roles


def test_rows_without_an_exposure_are_left_out_however_it_is_named(frame):
    dask = pytest.importorskip("dask.dataframe")
    polars = pytest.importorskip("polars")
    dose = pd.Series(np.where(frame["e"] > 0, "high", "low"), dtype=object).where(~frame.index.isin([3, 7]))
    given = frame.assign(dose=dose, a=frame["a"].where(frame.index != 5))
    fits = lambda named, **changes: rc.ExposureEffects(rca=rca(**changes), exposure=named)  # noqa: E731
    one, both = (fits(named).fit(given.dropna(subset=[*named])).coef_ for named in (["dose"], ["dose", "a"]))
    for missing in ("drop", "available"):
        for table in (given, polars.from_pandas(given), dask.from_pandas(given, npartitions=3)):
            with pytest.warns(rc.MissingValueWarning, match="2 of 400 rows have no exposure and were left out"):
                np.testing.assert_allclose(fits("dose", missing=missing).fit(table).coef_, one, rtol=1e-9)
    for model, y in ((fits(["dose", "a"], missing="drop"), None), (fits(None, missing="drop"), ["dose", "a"])):
        with pytest.warns(rc.MissingValueWarning, match="3 of 400 rows have no exposure"):
            np.testing.assert_allclose(model.fit(given, y).coef_, both, rtol=1e-9)
    weight, subject = np.arange(400) % 3 + 1, np.arange(400) // 2
    whole = given["dose"].notna().to_numpy()
    expected = fits("dose").fit(given[whole], groups=subject[whole], sample_weight=weight[whole]).coef_
    found = fits("dose", missing="drop").fit(given, groups=subject, sample_weight=weight).coef_
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    for named in ("dose", "a"):
        with pytest.raises(rc.DataError, match=rf'the exposure {named!r}.*in row [35]: drop such rows.*missing="drop"'):
            fits(named).fit(given)


def test_a_report_of_rows_without_an_exposure(frame, tmp_path):
    given = frame.assign(dose=pd.Series(np.where(frame["e"] > 0, "high", "low")).where(frame.index != 3))
    model = rc.ExposureEffects(rca=rca(missing="drop"), exposure="dose").fit(given)
    assert rc.write_report(tmp_path / "page.html", model, given).exists()


def test_exposures_come_in_the_order_they_were_asked_for(frame):
    given = frame.assign(dose=np.where(frame["e"] > 0, "high", "low"))
    for named in (["dose", "a"], ["a", "dose"]):
        model = rc.ExposureEffects(rca=rca(), exposure=named).fit(given)
        assert [one.partition("=")[0] for one in model.exposures_] == named


def test_exposures_that_cannot_be_meant_are_refused(frame):
    given = frame.assign(dose=np.where(frame["e"] > 0, "high", "low"), batch=np.arange(400) % 3 + 1)
    for named, covariates, message in (
        ("dose", ["dose"], r"covariate 'dose' becomes a column 'dose=.*name it once"),
        ("a", ["a"], "column 'a' is an exposure and also a covariate: name it once"),
        ("dosis", None, r"the table has no column 'dosis' \(the exposure\); did you mean 'dose'"),
    ):
        with pytest.raises(rc.DataError, match=message):
            rc.ExposureEffects(rca=rca(covariates=covariates), exposure=named).fit(given)
    model = rc.ExposureEffects(rca=rca(), exposure="batch", reference=2)
    with pytest.raises(
        rc.DataError, match=r"reference=2 is a class, and the exposure 'batch' holds numbers.*astype\(str"
    ):
        model.fit(given)
    assert model.fit(given.assign(batch=given["batch"].astype(str))).exposures_ == ("batch=1", "batch=3")
    zero = rc.ExposureEffects(rca=rca(), exposure="e", reference=0).fit(given.assign(e=(given["e"] > 0) * 1))
    assert zero.exposures_ == ("e",)


def test_declared_orders_are_kept_in_every_table(frame, tmp_path):
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    dask = pytest.importorskip("dask.dataframe")
    labels = ["none yet", "low", "mid", "high"]
    codes = np.random.default_rng(3).integers(1, 4, 400)
    doses = frame.assign(dose=pd.Categorical.from_codes(codes, labels, ordered=True))
    ours = polars.from_pandas(frame).with_columns(
        polars.Series("dose", doses["dose"].astype(str)).cast(polars.Enum(labels))
    )
    doses.to_parquet(tmp_path / "pandas.parquet", row_group_size=150)
    ours.write_parquet(tmp_path / "polars.parquet")
    (tmp_path / "parts").mkdir()
    for i in (0, 1):
        doses.iloc[200 * i : 200 * (i + 1)].to_parquet(tmp_path / "parts" / f"{i}.parquet")
    tables = {
        "pandas": doses,
        "polars": ours,
        "pyarrow": pyarrow.Table.from_pandas(doses),
        "dask": dask.from_pandas(doses, npartitions=3),
        "dask of a file": dask.read_parquet(tmp_path / "pandas.parquet"),
        "parquet": tmp_path / "pandas.parquet",
        "parquet of polars": tmp_path / "polars.parquet",
        "several": tmp_path / "parts",
        "rows": rc.open_source(ours).kept(np.arange(400) > 0),
    }
    for name, table in tables.items():
        assert rc.ExposureEffects(rca=rca(), exposure="dose").fit(table).exposures_ == ("dose=mid", "dose=high"), name
        assert "against low (" in rca(covariates=["dose"]).fit(table).fitted_.design.covariate_notes()[0], name
    for y in (ours["dose"], doses["dose"], tables["pyarrow"]["dose"]):
        assert rc.ExposureEffects(rca=rca()).fit(frame, y).exposures_[0].endswith("mid")
    assert rc.ComponentGLM("multinomial", rca=rca()).fit(ours, "dose").levels_ == ("low", "mid", "high")
    doses.assign(dose=doses["dose"].where(frame.index != 3)).to_parquet(tmp_path / "pandas.parquet")
    views, path = ("tests=U*", "controls=V*"), tmp_path / "pandas.parquet"
    by_command = run_effects(FitRequest(data=(path,), views=views, exposure="dose"))
    assert by_command.model.exposures_ == ("dose=mid", "dose=high")
    known = run_effects(FitRequest(data=(path,), views=views, exposure="e", covariates=("dose",)))
    assert "against low (" in " ".join(known.model.notes_)
    # parts that declare other orders declare none
    other = doses["dose"].cat.reorder_categories(labels[::-1])
    doses.assign(dose=other).iloc[200:].to_parquet(tmp_path / "parts" / "1.parquet")
    model = rc.ExposureEffects(rca=rca(), exposure="dose").fit(tmp_path / "parts")
    assert model.exposures_ == ("dose=low", "dose=mid")


def test_no_order_of_columns_moves_effects():
    """Controls are hidden together by what they are, not by where they stand."""
    data, rng = (
        rc.datasets.make_confounded(400, d_u=4, d_v=9, binary_exposure=True, random_state=1),
        np.random.default_rng(0),
    )
    model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=4))
    first = model.fit(data.X, data.y)
    value, error, hidden = first.coef_, first.effects_.standard_error, first.control_effects_.value
    u, v = rng.permutation(4), rng.permutation(9)
    scale = np.concatenate([np.ones(4), 10.0 ** rng.integers(-2, 3, 9)])
    moved = model.fit((data.X * scale)[:, np.concatenate([u, 4 + v])], data.y)
    np.testing.assert_allclose(moved.coef_, value[u], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(moved.effects_.standard_error, error[u], rtol=1e-8)
    np.testing.assert_allclose(moved.control_effects_.value, (hidden * scale[4:])[v], rtol=1e-8, atol=1e-10)


# ---- tables that are not what they should be


def test_bare_arrays_are_told_which_columns_are_meant(frame):
    """The fit's table has eleven columns, of which six are used: rows without names are taken by position, or refused."""
    for model, apply in (
        (rc.ComponentRegression(rca=rca()).fit(frame, "y"), "predict"),
        (rca().fit(frame), "transform"),
    ):
        bare = frame.iloc[:, :6].to_numpy()
        answer = getattr(model, apply)
        told = r"X has 6 features, but ContrastiveRCA is expecting 11 features as input.*the 6 columns that are used.*U0, U1"
        with pytest.raises(rc.DataError, match=told):
            answer(bare)
        expected = answer(frame)
        np.testing.assert_allclose(answer(frame.to_numpy()), expected, rtol=1e-12)  # by position
        np.testing.assert_allclose(answer(pd.DataFrame(bare, columns=frame.columns[:6])), expected, rtol=1e-12)
    with pytest.raises(rc.DataError, match=r"X has 5 features.*expecting 6 features as input: as many as the table of"):
        rca(views=3).fit(bare).transform(bare[:, :5])


def test_the_exchange_of_views_exchanges_what_learners_say(frame):
    """A model of S3 is that of S1 of the exchanged views."""
    swapped = {"controls": "V*", "tests": "U*"}
    for learner in (rc.ComponentRegression, rc.ComponentPCA):
        y = ["y"] if learner is rc.ComponentRegression else []
        one = learner(rca=rca(), component="S3").fit(frame, *y)
        two = learner(rca=rca(views=swapped)).fit(frame, *y)
        name = "coef_" if y else "components_"
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-8, atol=1e-10)


def test_text_tables_of_other_habits_are_told_the_remedy(frame, tmp_path):
    path, table = tmp_path / "t.csv", frame.iloc[:, :6]
    plain = table.to_csv(index=False)
    for text, message in (
        (
            table.to_csv(index=False, sep=";", decimal=","),
            r"column 'U0' holds '.*' in line 2, and it looks like .*decimal comma",
        ),
        ("sep=,\n" + plain, r"t.csv, line 1: it tells Excel.*remove that line"),
        (plain.replace(",", "|"), r"n_features = 1, 'U0\|U1.*separated by commas, semicolons or tabs"),
        (
            "# made by me\n" + "".join(line.split(",")[0] + "\n" for line in plain.splitlines()),
            "n_features = 1, '# made by me'",
        ),
    ):
        path.write_text(text)
        with pytest.raises(rc.DataError, match=message):
            rca().fit(path)


def test_columns_that_hold_text_are_told_where(frame):
    text = frame["U0"].map("{:.3f}".format)
    for column, message in (
        (text, r"it holds numbers as text: use pd\.to_numeric"),
        (text.where(frame.index != 4, "<LOD"), r"'<LOD' in row 4: leave it out, or encode it"),
        (text.str.replace(".", ","), r"in row 0: it looks like a number with a decimal comma"),
        (pd.Series(pd.arrays.SparseArray(frame["U0"])), r"sparse column of pandas: use X\.sparse\.to_dense"),
    ):
        with pytest.raises(rc.DataError, match=rf"column 'U0' of view 'tests' is not numeric.*{message}"):
            rca().fit(frame.assign(U0=column))
    with pytest.raises(
        rc.DataError, match=r"views=3 takes all columns, and column 's' is not numeric.*name the columns"
    ):
        rca(views=3).fit(frame.assign(s="a"))
    with pytest.raises(rc.DataError, match=r"column name 'U0' appears twice, .*: rename the columns"):
        rca().fit(frame.rename(columns={"U1": "U0"}))
    with pytest.raises(
        rc.DataError, match=r"^covariates= names column 'agee', which is not in the table; did you mean 'age'"
    ):
        rca(covariates="agee").fit(frame)
    waited = pd.Series(pd.to_timedelta(np.arange(400), unit="D"))
    with pytest.raises(rc.DataError, match="'w' has 400 different labels in 400 rows: they are dates or times"):
        rca(covariates="w").fit(frame.assign(w=waited))


def test_groups_of_columns_are_offered_by_name(frame):
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(frame.iloc[:, :3].set_axis(frame.index.astype(str)))
    cells.layers["counts"], cells.obsm["protein"] = cells.X, frame.iloc[:, 3:6].to_numpy()
    for tests, message in (
        ("layer:count", r"'layer:count'.*did you mean 'layer:counts'"),
        ("raw", r"'raw'.*groups of columns are X, layer:counts, obsm:protein"),
    ):
        with pytest.raises(rc.DataError, match=message):
            rca(views={"tests": tests, "controls": "obsm:protein"}).fit(cells)


def test_opened_rows_say_what_they_hold(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert repr(rc.open_source(tmp_path / "t.csv")).startswith("<Rows of t.csv, 11 columns: U0, U1, ")
    assert repr(rc.open_source(frame.to_numpy())) == "<Rows of the table, 400 rows, 11 columns>"
