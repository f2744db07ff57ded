"""Effects of exposures under hidden confounding: laws first, then doors, then what is refused."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import richcomponents as rc
from richcomponents.effects.moments import Coordinates, second_moments
from richcomponents.models.rca import fit_rca
from richcomponents.moments import block_numbers
from richcomponents.moments.data import equivalent_rows

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")


def rca(d_u: int = 6, d_v: int = 6, **options: object) -> rc.ContrastiveRCA:
    return rc.ContrastiveRCA(views={"u": list(range(d_u)), "v": list(range(d_u, d_u + d_v))}, **options)


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_confounded(1200, random_state=2)


@pytest.fixture(scope="module")
def model(data):
    return rc.ExposureEffects(rca=rca()).fit(data.X, data.y)


# ---- numbers


def test_slopes_are_least_squares_with_any_rows_left_out(rng):
    n = 200
    known, e = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
    V = rng.normal(size=(n, 3)) + 1e3
    U = rng.normal(size=(n, 4)) + e @ rng.normal(size=(2, 4)) + V[:, :1]
    blocks = block_numbers(n, 10)
    both, table = np.hstack([U, V]), np.hstack([U, V, known, e])
    views = tuple(Coordinates.of_columns(np.cov(table.T)) for table in (U, V))
    few, weight, of_few = equivalent_rows(rc.Moments.of(table, 2, n_blocks=10))
    of_rows = second_moments(table, views, 2, np.ones(n), blocks, 0.0)
    of_state = second_moments(few, views, 2, weight, of_few, 0.0)

    def direct(rows):
        design = np.column_stack([np.ones(len(U)), known, e])[rows]
        coef = np.linalg.lstsq(design, both[rows], rcond=None)[0]
        left = both[rows] - design @ coef
        return coef[3:].T, left.T @ left / len(left)

    scale = both.std(axis=0, ddof=1)
    for whole, without, counts in (of_rows, of_state):
        np.testing.assert_allclose(counts, np.bincount(blocks))
        each = [replace(without, **{name: part[b] for name, part in vars(without).items()}) for b in range(10)]
        kept = [np.ones(n, bool), *(blocks != b for b in range(10))]
        for found, rows in zip([whole, *each], kept, strict=True):
            coef, cov = direct(rows)
            np.testing.assert_allclose(found.slopes, coef, rtol=1e-7, atol=1e-8)
            np.testing.assert_allclose(found.with_v * scale[4:], cov[:, 4:], rtol=1e-7, atol=1e-7)
            np.testing.assert_allclose(found.cov * np.outer(scale, scale), cov, rtol=1e-7, atol=1e-7)
            np.testing.assert_allclose(found.variance, np.diag(cov), rtol=1e-7)


def test_no_correction_is_the_analysis_of_covariance_and_held_out_controls_are_regressed_on_the_others(data, model):
    base = rc.baselines.ancova(data.X, data.y, rca())
    np.testing.assert_allclose(model.adjusted_, base.value, rtol=1e-9)
    np.testing.assert_allclose(model.naive_, rc.baselines.unadjusted(data.X, data.y, rca()).value, rtol=1e-9)
    seen = model.control_effects_
    for j in range(6):
        design = np.column_stack([np.ones(1200), data.y, np.delete(data.V, j, axis=1)])
        coef = np.linalg.lstsq(design, data.V[:, j], rcond=None)[0][1]
        np.testing.assert_allclose(seen.others["adjusted"][j], coef, rtol=1e-7, atol=1e-10)


def test_units_do_not_matter(data, model):
    scale = np.array([1e-3, 1.0, 1e3, 1.0, 5.0, 1.0, 1e4, 1.0, 1e-4, 1.0, 1.0, 2.0])
    other = rc.ExposureEffects(rca=rca()).fit(data.X * scale, data.y * 50)
    np.testing.assert_allclose(other.coef_, model.coef_ * scale[:6] / 50, rtol=1e-5)
    np.testing.assert_allclose(other.effects_.p_value, model.effects_.p_value, rtol=1e-3)
    np.testing.assert_allclose(other.rho_, model.rho_, rtol=1e-5)


def test_it_beats_the_analysis_of_covariance_where_controls_are_noisy():
    better = 0
    for seed in range(6):
        drawn = rc.datasets.make_confounded(1500, confounder="skewed", random_state=100 + seed)
        found = rc.ExposureEffects(rca=rca()).fit(drawn.X, drawn.y)
        error = [float(np.mean((effects - drawn.effects) ** 2)) for effects in (found.coef_, found.adjusted_)]
        better += error[0] < error[1]
    assert better >= 5


def test_errors_are_of_the_size_of_the_mistakes():
    z = []
    for seed in range(8):
        drawn = rc.datasets.make_confounded(1500, confounder="skewed", random_state=200 + seed)
        found = rc.ExposureEffects(rca=rca()).fit(drawn.X, drawn.y).effects_
        z.append((found.value - drawn.effects) / found.standard_error)
    assert 0.6 < np.sqrt(np.mean(np.square(z))) < 1.5


# ---- doors


@pytest.fixture(scope="module")
def frame(data):
    names = [f"U_{i}" for i in range(6)] + [f"V_{i}" for i in range(6)]
    table = pd.DataFrame(data.X, columns=names)
    return table.assign(y=data.y, group=np.where(data.y > np.median(data.y), "case", "control"))


def named(**options):
    views = {"u": [f"U_{i}" for i in range(6)], "v": [f"V_{i}" for i in range(6)]}
    return rc.ContrastiveRCA(views=views, **options)


def test_every_door_gives_the_same_effects(data, model, frame, tmp_path):
    whole = np.column_stack([data.X, data.y])
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", whole)
    numbers = frame.drop(columns="group")
    fits = {
        "frame": rc.ExposureEffects(rca=named(), exposure="y").fit(numbers),
        "series": rc.ExposureEffects(rca=named()).fit(numbers.drop(columns="y"), numbers["y"]),
        "csv": rc.ExposureEffects(rca=named(), exposure="y").fit(tmp_path / "t.csv"),
        "parquet": rc.ExposureEffects(rca=named(), exposure="y").fit(tmp_path / "t.parquet"),
        "csv and y": rc.ExposureEffects(rca=named()).fit(tmp_path / "t.csv", data.y),
        "npy": rc.ExposureEffects(rca=rca(), exposure=12).fit(tmp_path / "t.npy"),
        "int views": rc.ExposureEffects(rca=rc.ContrastiveRCA(views=6)).fit(data.X, data.y),
        "iterator": rc.ExposureEffects(rca=rca(), exposure=12).fit(iter(np.array_split(whole, 3))),
        "state": rc.ExposureEffects(rca=rca(), exposure=12).fit_moments(rc.Moments.of(whole, 4)),
        "weights": rc.ExposureEffects(rca=rca()).fit(data.X, data.y, sample_weight=np.ones(1200)),
    }
    for name, found in fits.items():
        np.testing.assert_allclose(found.coef_, model.coef_, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(
            found.effects_.standard_error, model.effects_.standard_error, rtol=1e-5, err_msg=name
        )
    assert fits["csv"].effects_.names[0] == "U_0"


def test_two_sites_that_share_sums_only(data, model):
    whole = np.column_stack([data.X, data.y])
    one = rc.Moments.of(whole[:500], 4, shift=whole.mean(axis=0))
    two = rc.Moments.of(whole[500:], 4, shift=whole.mean(axis=0), start=500)
    found = rc.ExposureEffects(rca=rca(), exposure=12).fit(one + two)
    np.testing.assert_allclose(found.coef_, model.coef_, rtol=1e-6)


def test_known_covariates_leave_everything_from_rows_and_from_a_state(data):
    rng = np.random.default_rng(0)
    age = rng.normal(size=(1200, 2))
    moved = np.hstack([data.X + age @ rng.normal(size=(2, 12)), age, (data.y + age[:, 0])[:, None]])
    rows = rc.ExposureEffects(rca=rca(covariates=[12, 13]), exposure=14).fit(moved)
    state = rc.ExposureEffects(rca=rca(covariates=[12, 13]), exposure=14).fit(rc.Moments.of(moved, 4))
    np.testing.assert_allclose(state.coef_, rows.coef_, rtol=1e-5)
    design = np.column_stack([np.ones(1200), moved[:, 14], age, moved[:, 6:12]])
    np.testing.assert_allclose(rows.adjusted_, np.linalg.lstsq(design, moved[:, :6], rcond=None)[0][1], rtol=1e-8)


def test_classes_are_compared_with_the_one_whose_name_says_so(data, frame, tmp_path):
    found = rc.ExposureEffects(rca=named(), exposure="group").fit(frame.drop(columns="y"))
    numbers = rc.ExposureEffects(rca=rca()).fit(data.X, (frame["group"] == "case").astype(float))
    np.testing.assert_allclose(found.coef_, numbers.coef_, rtol=1e-9)
    assert found.exposures_ == ("group=case",)
    assert "case (600 rows) against control (600 rows)" in found.notes_[0]
    other = rc.ExposureEffects(rca=named(), exposure="group", reference="case").fit(frame.drop(columns="y"))
    np.testing.assert_allclose(other.coef_, -found.coef_, rtol=1e-6)
    frame.to_csv(tmp_path / "t.csv", index=False)
    file = rc.ExposureEffects(rca=named(), exposure="group").fit(tmp_path / "t.csv")
    np.testing.assert_allclose(file.coef_, found.coef_, rtol=1e-9)


def test_several_exposures_are_regressed_together(data):
    rng = np.random.default_rng(1)
    both = np.column_stack([data.y, data.y + rng.normal(size=1200)])
    found = rc.ExposureEffects(rca=rca()).fit(data.X, pd.DataFrame(both, columns=["dose", "other"]))
    design = np.column_stack([np.ones(1200), both, data.V])
    np.testing.assert_allclose(found.adjusted_, np.linalg.lstsq(design, data.U, rcond=None)[0][1:3], rtol=1e-8)
    assert set(found.effects_) == {"dose", "other"}
    assert found.coef_.shape == (2, 6)
    three = rc.ExposureEffects(rca=rca()).fit(data.X, np.array(["a", "b", "control"])[np.arange(1200) % 3])
    assert three.exposures_ == ("y=a", "y=b")


def test_groups_make_errors_larger(data):
    X, y = np.repeat(data.X[:400], 3, axis=0), np.repeat(data.y[:400], 3)
    X = X + 1e-6 * np.random.default_rng(0).normal(size=X.shape)  # exact copies would be seen without groups
    plain = rc.ExposureEffects(rca=rca()).fit(X, y)
    grouped = rc.ExposureEffects(rca=rca()).fit(X, y, groups=np.repeat(np.arange(400), 3))
    ratio = np.median(grouped.effects_.standard_error / plain.effects_.standard_error)
    assert ratio > 1.3


def test_wide_views_need_nothing_of_their_size_squared():
    drawn = rc.datasets.make_confounded(150, 3000, 8, confounder="labs", n_labs=2, random_state=3)
    found = rc.ExposureEffects(rca=rca(3000, 8)).fit(drawn.X, drawn.y)
    base = rc.baselines.ancova(drawn.X, drawn.y, rca(3000, 8))
    np.testing.assert_allclose(found.adjusted_, base.value, rtol=1e-6, atol=1e-9)
    error = [float(np.mean((effects - drawn.effects) ** 2)) for effects in (found.coef_, found.adjusted_, found.naive_)]
    assert error[0] < 1.1 * error[1] < error[2]
    assert found.effects_.q_value.shape == (3000,)


# ---- how sure


def test_what_the_estimate_tells(data, model):
    found = model.effects_
    wanted = {
        "estimate",
        "naive",
        "adjusted",
        "standard error",
        "p",
        "q",
        "low",
        "high",
        "identified low",
        "identified high",
    }
    assert wanted <= set(found.to_frame().columns)
    assert list(model.rank_effects_) == [1, 2, 3]
    assert model.verdict_ == "strong"
    assert "adjusting for the controls" in model.summary()
    assert found.take(np.array([2, 0])).names == ("x2", "x0")


def test_invalid_controls_are_found(data):
    V = data.V.copy()
    V[:, 3] += 0.8 * V[:, 3].std() * (data.y - data.y.mean()) / data.y.std()
    X = np.hstack([data.U, V])
    with pytest.warns(rc.SpecificationWarning, match="Without x9 the others agree, and only without it"):
        found = rc.ExposureEffects(rca=rca()).fit(X, data.y)
    assert next(test for test in found.tests_ if test.name == "controls agree").p_value < 1e-6
    assert found.verdict_ == "contradicted"


@pytest.mark.parametrize(("confounder", "seed"), [("gaussian", 0), ("labs", 2), ("gaussian", 3)])
def test_one_invalid_control_is_named_and_nothing_is_strong(confounder, seed):
    """In the first two the hidden effect with the smallest p is that of another control; the last was "strong"."""
    drawn = rc.datasets.make_confounded(1000, confounder=confounder, invalid={2: 0.5}, random_state=seed)
    with pytest.warns(rc.SpecificationWarning, match="Without x8 the others agree|control x8 appears to be affected"):
        found = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=6)).fit(drawn.X, drawn.y)
    assert found.verdict_ == "contradicted"
    (answer,) = found.answers()
    assert answer.suspects() == ["x8"]
    doubted = np.array([0.03 if row["control"] == "x8" else 1e-4 for row in answer.controls])
    assert replace(answer, without=doubted).suspects() == ["x8"]  # at 3% the others do not contradict each other


def test_which_control_it_is_cannot_be_told_where_nothing_is_left_to_test():
    drawn = rc.datasets.make_confounded(3000, 6, 4, n_labs=4, invalid={1: 0.8}, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=6, rank=3)).fit(drawn.X, drawn.y)
    assert [row["p of the others"] for row in found.controls_] == [1.0] * 4


def test_perfect_confounding_and_unrelated_controls_are_said():
    rng = np.random.default_rng(3)
    lab = rng.integers(0, 2, 800)
    X = rng.normal(size=(800, 12)) + np.outer(lab, rng.normal(size=12) * 1.5)
    with pytest.warns(rc.SpecificationWarning, match="controls go with the exposure in a way they do not share"):
        found = rc.ExposureEffects(rca=rca()).fit(X, lab)
    assert found.verdict_ == "nothing shared"
    assert np.all(np.abs(found.coef_ - found.adjusted_) <= np.abs(found.naive_ - found.adjusted_))
    size = np.sqrt(np.mean(found.control_effects_.value**2))  # what no correction removed from the controls
    assert found.effects_.standard_error.min() > size / 2
    nothing = rc.ExposureEffects(rca=rca()).fit(rng.normal(size=(500, 12)), rng.normal(size=500))
    assert nothing.verdict_ == "nothing shared"
    np.testing.assert_allclose(nothing.coef_, nothing.naive_, atol=0.05)
    assert nothing.control_effects_.p_value.min() > 0.01
    assert len(nothing.controls_) == 6


def test_two_controls_cannot_be_held_out(data):
    found = rc.ExposureEffects(rca=rca(6, 2)).fit(data.X[:, :8], data.y)
    assert found.control_effects_ is None
    assert found.verdict_ not in ("strong", "weak")
    assert "no control could be held out" in str(found.summary()).lower()
    with pytest.raises(ValueError, match="no control was held out"):
        found.plot("controls")


def bad_exposures(data):
    rng = np.random.default_rng(0)
    few = np.where(np.arange(1200) < 2, "rare", "usual")
    return [
        (rca(), np.ones(1200), "'y' is constant|constant"),
        (rca(), data.X[:, 0], "column 'x0' of view 'u' is an exact function"),
        (rca(), data.X[:, 7], "column 'x7' of view 'v' is an exact function"),
        (rca(), np.where(np.arange(1200) == 5, np.nan, data.y), "missing or infinite in row 5"),
        (rca(), few, "'rare' in 2 rows only"),
        (rca(), np.array([f"p{i}" for i in range(1200)]), "is it an identifier"),
        (rca(), np.array(["a"] * 1200), "'a' in every row"),
        (rca(), rng.normal(size=(1200, 1300)), "n_samples = 1200 is too few for 1300 exposures"),
        (rca(), data.y[:100], "100 entries, the table has 1200"),
        (rca(), np.column_stack([data.y, 2 * data.y]), "exact function of the covariates or of other exposures"),
        (rca(rank=9), data.y, "rank=9 is impossible"),
        (rca(A=np.eye(6)), data.y, "leave out A="),
        (rca(method="paper"), data.y, "efficient"),
        (None, data.y, "rca= says"),
        (rca(), None, "give the exposure as y"),
    ]


def test_what_cannot_be_compared_is_refused_in_words(data):
    for given, y, message in bad_exposures(data):
        with pytest.raises(rc.DataError, match=message):
            rc.ExposureEffects(rca=given).fit(data.X, y)
    with pytest.raises(rc.DataError, match="'dose' is not a column"):
        rc.ExposureEffects(rca=rca(), exposure="dose").fit(data.X)
    with pytest.raises(rc.DataError, match="not both"):
        rc.ExposureEffects(rca=rca(), exposure=3).fit(data.X, data.y)
    with pytest.raises(rc.DataError, match="not a class"):
        rc.ExposureEffects(rca=rca(), reference="none").fit(data.X, np.array(["a", "b"])[np.arange(1200) % 2])


def test_it_is_an_estimator_that_is_saved_and_drawn(data, model, tmp_path):
    assert set(clone(model).get_params(deep=False)) == {
        "rca",
        "exposure",
        "reference",
        "component",
        "instruments",
        "share",
    }
    model.save(tmp_path / "m.npz")
    again = rc.load(tmp_path / "m.npz")
    assert again.summary() == model.summary()
    np.testing.assert_array_equal(again.coef_, model.coef_)
    for what in ("forest", "volcano", "controls", "sensitivity"):
        assert model.plot(what) is not None
    with pytest.raises(ValueError, match="what must be"):
        model.plot("pie")
    with pytest.raises(ValueError, match="exposure must be one of 'y'"):
        model.plot(exposure="z")


@pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")
def test_controls_without_a_coordinate_beyond_the_rank_leave_numbers():
    """What they have in common beside the shared part cannot be told; where it moves nothing, that does not matter."""
    data = rc.datasets.make_contrastive(8000, d=6, S2="skewed", random_state=7)
    model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=6)).fit(data.X, data.y)
    assert model.rca_.rank_ == 6
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.effects_.standard_error).all()


@pytest.mark.filterwarnings("ignore::richcomponents.errors.ConstantColumnWarning")
@pytest.mark.parametrize("S2", ["labs", "gaussian"])
def test_a_constant_test_has_no_effect_and_no_p_value(data, S2):
    """It came first among q values, with z of minus infinity."""
    X = data.X.copy()
    X[:, 1] = 2.0
    if S2 == "gaussian":
        X[:, :12] += np.random.default_rng(0).normal(size=(len(X), 1)) * np.linspace(1, 2, 12) * (np.arange(12) != 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = rc.ExposureEffects(rca=rca()).fit(X, data.y)
        table = model.effects_.to_frame().set_index(model.effects_.to_frame().columns[0])
        assert model.controls_
    row = table.iloc[1]
    assert row["estimate"] == 0
    assert row[["standard error", "p", "q"]].isna().all()
    assert table["q"].drop(table.index[1]).notna().all()


@pytest.mark.parametrize("strength", [0.1, 1.0])
def test_the_test_of_the_held_out_controls_is_what_their_table_says(strength):
    data = rc.datasets.make_confounded(1500, strength=strength, confounder="heavy", random_state=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=data.views)).fit(data.X, data.y)
    (test,) = [one for one in found.tests_ if one.name == "held-out controls"]
    p = found.control_effects_.p_value
    np.testing.assert_allclose(test.p_value, min(1.0, len(p) * p.min()), rtol=1e-9)


# ---- copies


@pytest.mark.parametrize("control", ["copy", "other units", "sum"])
def test_a_control_that_is_made_of_tests_is_refused_by_name(data, control):
    made = {"copy": data.X[:, 0], "other units": 2 * data.X[:, 0] - 7, "sum": data.X[:, 0] + data.X[:, 1]}[control]
    X, named = np.column_stack([data.X, made]), "column 'x12'"
    for table in (X, rc.Moments.of(X, 4)):
        with pytest.warns(rc.SpecificationWarning, match=named):
            fit_rca(rca(6, 7), table)
    with pytest.warns(rc.SpecificationWarning), pytest.raises(rc.DataError, match=named):
        rc.ExposureEffects(rca=rca(6, 7)).fit(X, data.y)


def test_views_that_are_the_same_columns_are_refused_by_name(data):
    X = np.column_stack([data.X[:, :6], data.X[:, :6]])
    with pytest.warns(rc.SpecificationWarning), pytest.raises(rc.DataError, match=r"'x0' .* 'x6'.*; and 1 more"):
        rc.ExposureEffects(rca=rca()).fit(X, data.y)


def test_a_control_twice_changes_nothing(data, model):
    twice = rc.ExposureEffects(rca=rca(6, 7)).fit(np.column_stack([data.X, data.X[:, 7]]), data.y)
    np.testing.assert_allclose(twice.coef_, model.coef_, atol=1e-6)
    assert twice.verdict_ == model.verdict_


def test_a_copy_of_a_column_has_no_error_of_its_own():
    """Errors of copies go together, which contradicts nothing."""
    X = rc.datasets.make_confounded(1000, random_state=1).X
    plain = rca().fit(X)
    controls, tests = rca(6, 7).fit(np.column_stack([X, 5 - X[:, 7]])), rca(7, 6).fit(np.column_stack([2 * X[:, 0], X]))
    assert plain.verdict_ == controls.verdict_ == tests.verdict_ == "strong"
    own = plain.components_["S1"].covariance
    np.testing.assert_allclose(controls.components_["S1"].covariance, own, rtol=1e-9)
    np.testing.assert_allclose(tests.components_["S1"].covariance[1:, 1:], own, rtol=1e-9)


@pytest.mark.parametrize("column", [0, 8])
def test_a_column_that_differs_in_one_row_only_leaves_numbers(data, column):
    """Without the block of that row it is constant: a test, or a control."""
    X = np.array(data.X)
    X[:, column] = np.arange(len(X)) == 5
    found = rc.ExposureEffects(rca=rca()).fit(X, data.y).effects_
    assert np.isfinite([found.value, found.standard_error, found.p_value, found.low, found.high]).all()
    assert found.p_value[0] > 0.05 or column


# ---- rows


def test_copies_of_rows_are_one_sample():
    rng = np.random.default_rng(0)
    X, y, number = rng.normal(size=(80, 12)), rng.normal(size=80), np.repeat(np.arange(80), 5)
    with pytest.warns(rc.SampleSizeWarning, match=r"320 of 400 rows are exact copies .* 80 independent.*groups="):
        plain = rc.ExposureEffects(rca=rca()).fit(X[number], y[number])
    grouped = rc.ExposureEffects(rca=rca()).fit(X[number], y[number], groups=number)
    assert plain.verdict_ == grouped.verdict_
    np.testing.assert_allclose(plain.coef_, grouped.coef_, rtol=1e-9)
    np.testing.assert_allclose(plain.effects_.standard_error, grouped.effects_.standard_error, rtol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error", rc.SampleSizeWarning)  # few values repeat by chance
        rca().fit(rng.integers(2, size=(400, 12)).astype(float))
        rca().fit(X[number], groups=number)


def test_rows_that_do_not_count_fill_no_block(data, model):
    weight = np.tile([0, 3], 600)
    half = rc.ExposureEffects(rca=rca()).fit(data.X, data.y, sample_weight=weight)
    alone = rc.ExposureEffects(rca=rca()).fit(data.X[1::2], data.y[1::2])
    np.testing.assert_allclose(half.coef_, alone.coef_, atol=0.05)


def test_classes_are_those_of_the_rows_that_are_left(data):
    table = pd.DataFrame(data.X.copy(), columns=[f"c{i}" for i in range(12)])
    table["state"] = np.where(data.y > np.median(data.y), "Impaired", "Normal")
    ill = np.flatnonzero(table["state"] == "Impaired")
    views = {"tests": [f"c{i}" for i in range(6)], "controls": [f"c{i}" for i in range(6, 12)]}
    model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=views, missing="drop"), exposure="state")
    for left, y in ((2, None), (30, None), (30, "apart")):
        gaps = table.copy()
        gaps.iloc[ill[left:], 0] = np.nan
        of = clone(model).set_params(exposure="state" if y is None else None)
        X, y = (gaps, None) if y is None else (gaps.drop(columns="state"), gaps["state"])
        if left == 2:
            with pytest.raises(rc.DataError, match="in 2 rows only"), pytest.warns(rc.MissingValueWarning):
                of.fit(X, y)
            continue
        with pytest.warns(rc.MissingValueWarning):
            of.fit(X, y)
        assert "Impaired (30 rows) against Normal (600 rows)" in of.notes_[0]
    with pytest.warns(rc.MissingValueWarning):
        fit = rc.ContrastiveRCA(views=views, missing="drop", covariates=["state"]).fit(gaps)
    assert "Impaired (30 rows) against Normal (600 rows)" in str(fit.summary())


def test_labels_that_are_on_one_side_only_are_said(data):
    X, y = pd.DataFrame(data.X, index=[f"s{i}" for i in range(1200)]), pd.Series(data.y)
    with pytest.warns(UserWarning, match="no sample labels in y: rows are taken to be in the order of the table"):
        rc.ExposureEffects(rca=rca()).fit(X, y)
