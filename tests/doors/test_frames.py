"""Frames as they are: columns by name, texts as levels, everything else ignored."""

from __future__ import annotations

import warnings
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest

import richcomponents as rc
from richcomponents.cli import main

U, V = [f"T, {i}" for i in range(3)], [f'C "{i}"' for i in range(3)]
VIEWS = {"tests": U, "controls": 'C "*"'}
KNOWN = ["age", "sex", "site"]


@pytest.fixture(scope="module")
def frame():
    data = rc.datasets.make_contrastive(500, d=3, S2="skewed", random_state=4)
    rng = np.random.default_rng(4)
    sex, site = rng.choice(["male", "female"], 500), rng.choice(["B", "control", "A"], 500)
    table = pd.DataFrame(data.X + 2 * (sex == "male")[:, None] + (site == "A")[:, None], columns=[*U, *V])
    table.insert(0, "sample", [f"s{i:03}" for i in range(500)])
    return table.assign(
        age=pd.array(rng.integers(20, 80, 500), dtype="Int64"),
        sex=sex,
        site=pd.Categorical(site),
        y=data.y,
        note="text",
    )


@pytest.fixture(scope="module")
def by_hand(frame):
    """The same with levels written out as columns of zeros and ones."""
    plain = frame[[*U, *V]].assign(age=frame["age"].astype(float))
    for column, level in (("sex", "male"), ("site", "A"), ("site", "B")):
        plain[f"{column}={level}"] = (frame[column] == level).astype(float)
    return plain


def model(**changes):
    return rc.ContrastiveRCA(**{"views": VIEWS, "covariates": KNOWN} | changes)


def tables(frame, folder):
    import anndata
    import dask.dataframe as dd
    import polars as pl
    import pyarrow as pa

    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet", index=False)
    texts = frame.assign(site=frame["site"].astype(str))
    obs = texts[["age", "sex", "site", "y"]].set_axis([f"s{i}" for i in range(len(frame))])
    cells = anndata.AnnData(frame[[*U, *V]].to_numpy(), obs=obs, var=pd.DataFrame(index=[*U, *V]))
    cells.write_h5ad(folder / "t.h5ad")
    yield "polars", pl.from_pandas(frame)
    yield "pyarrow", pa.Table.from_pandas(frame)
    yield "dask", dd.from_pandas(texts, npartitions=3, sort=False)
    yield "AnnData", cells
    for kind in ("csv", "parquet", "h5ad"):
        yield kind, folder / f"t.{kind}"


@pytest.mark.filterwarnings("ignore")
def test_texts_are_levels_whatever_holds_them(frame, by_hand, tmp_path):
    expected = model(covariates=list(by_hand.columns[6:])).fit(by_hand)
    learned = rc.ComponentRegression(rca=model(covariates=list(by_hand.columns[6:]))).fit(by_hand, frame["y"])
    for kind, table in [("pandas", frame), *tables(frame, tmp_path)]:
        found = model().fit(table)
        np.testing.assert_allclose(found.A_, expected.A_, rtol=1e-10, err_msg=kind)
        np.testing.assert_allclose(found.transform(table), expected.transform(by_hand), rtol=1e-9, atol=1e-10)
        assert "site: A (" in found.summary()
        assert "against control (" in found.summary()
        fit = rc.ComponentRegression(rca=model()).fit(table, "y")
        np.testing.assert_allclose(fit.coef_, learned.coef_, rtol=1e-9, err_msg=kind)
        np.testing.assert_allclose(
            fit.coefficients_.standard_error, learned.coefficients_.standard_error, rtol=1e-8, err_msg=kind
        )


def test_new_rows_are_read_by_the_names_of_what_is_needed(frame, tmp_path):
    fitted = rc.ComponentRegression(rca=model()).fit(frame, "y")
    expected = fitted.predict(frame)
    needed = frame[[*reversed([*U, *V]), *KNOWN]]
    np.testing.assert_array_equal(fitted.predict(needed), expected)
    needed.to_csv(tmp_path / "new.csv", index=False)
    np.testing.assert_allclose(fitted.predict(tmp_path / "new.csv"), expected, rtol=1e-12)
    with pytest.raises(rc.DataError, match=r"no column 'T, 1'.*others are ignored"):
        fitted.predict(needed.drop(columns=U[1]))
    with pytest.raises(
        rc.DataError, match=r"the covariate 'sex' is 'unknown' in row 3, and the fit knew 'female', 'male' only"
    ):
        fitted.predict(needed.assign(sex=["male"] * 3 + ["unknown"] * (len(frame) - 3)))
    rc.load(saved(fitted, tmp_path)).predict(needed)
    np.testing.assert_array_equal(rc.load(saved(fitted, tmp_path)).predict(needed), expected)


def saved(fitted, folder):
    fitted.save(folder / "model.npz")
    return folder / "model.npz"


def test_labels_that_are_identifiers_or_missing_are_refused(frame):
    with pytest.raises(rc.DataError, match=r"'sample' has 500 different labels in 500 rows: is it an identifier"):
        model(covariates=["sample"]).fit(frame)
    with pytest.raises(rc.DataError, match=r"'note' is 'text' in every row"):
        model(covariates=["note"]).fit(frame)
    gap = frame.assign(sex=frame["sex"].where(frame.index != 7))
    with pytest.raises(rc.DataError, match=r"'sex' has no label in row 7"):
        model().fit(gap)
    with pytest.raises(rc.DataError, match=r"column 'sample' of view|column 'sample' is not numeric"):
        model(views={"tests": ["sample", *U], "controls": V}).fit(frame)
    with pytest.raises(rc.DataError, match="no column of numbers"):
        model().partial_fit(frame)


def test_truth_values_and_nullable_numbers_are_numbers(frame):
    plain = frame[[*U, *V]].assign(smokes=(frame["age"] > 50).astype(float))
    known = model(covariates=["smokes"])
    expected = known.fit(plain).A_
    for kind in ("bool", "boolean", "Int64", "Float32"):
        np.testing.assert_array_equal(known.fit(plain.astype({"smokes": kind})).A_, expected)
    assert known.fit(plain.convert_dtypes()).fitted_.design.covariate_notes() == ()


def test_samples_keep_their_labels(frame):
    anndata = pytest.importorskip("anndata")
    named = frame.set_index("sample")
    fitted = rc.ContrastiveRCA(views=VIEWS).set_output(transform="pandas").fit(named)
    assert fitted.transform(named).index.equals(named.index)
    assert list(fitted.transform(named).columns) == U
    cells = anndata.AnnData(named[[*U, *V]])
    assert list(fitted.transform(cells).index) == list(cells.obs_names)
    pair = {"tests": named[U], "controls": named[V].iloc[::-1]}
    assert list(rc.ContrastiveRCA().set_output(transform="pandas").fit(pair).transform(pair).index) == list(named.index)


# ---- the command line


def run(capsys, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(SystemExit):
            main(list(arguments))
    return capsys.readouterr().out


def test_names_with_commas_quotes_and_line_ends_on_the_command_line(frame, tmp_path, capsys):
    path = str(tmp_path / "t.csv")
    frame.rename(columns={"site": "site\nof care", "y": "dose, mg"}).to_csv(path, index=False)
    views = ["--views", 'tests="T, 0","T, 1", "T, 2"', "--views", '"the ""controls"""="C ""0""","C ""1""","C ""2"""']
    known = ["--covariates", 'age, "site\nof care"', "--covariates", "sex"]
    said = run(capsys, "fit", path, *views, *known, "--target", '"dose, mg"')
    assert "tests (3 columns): T, 0, T, 1, T, 2" in said
    assert 'the "controls" (3 columns): C "0"' in said
    assert "sex: male (" in said
    assert "against control (" in said
    effects = run(capsys, "effects", path, *views, *known, "--exposure", "dose, mg")
    assert "dose, mg" in effects


def test_unclosed_quotes_say_how_names_are_written(frame, tmp_path, capsys):
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(SystemExit):
        main(["fit", str(path), "--views", 'tests="T, 0', "--views", "controls=C*"])
    assert "put a name that holds commas or quotes in quotes" in capsys.readouterr().err


def test_groups_line_up_by_label_with_every_model():
    """A model of a component alone takes labels as its RCA does, also in another order."""
    data = rc.datasets.make_contrastive(600, d=3, S2="skewed", random_state=0)
    frame = pd.DataFrame(data.X, index=[f"s{i}" for i in range(600)], columns=list("abcdef"))
    groups = pd.Series(np.arange(600) // 4, index=frame.index)
    shuffled = groups.sample(frac=1.0, random_state=0)
    rca = rc.ContrastiveRCA(views={"u": list("abc"), "v": list("def")})
    expected = rc.ComponentPCA(rca=rca).fit(frame, groups=groups).rca_
    found = rc.ComponentPCA(rca=rca).fit(frame, groups=shuffled).rca_
    np.testing.assert_array_equal(found.A_, expected.A_)
    np.testing.assert_array_equal(found.fitted_.units.groups, groups)
