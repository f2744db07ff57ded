"""Results out: files of any number of rows, dask collections that are computed later, AnnData and MuData."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import richcomponents as rc
from richcomponents.datasets import make_contrastive
from richcomponents.models.results import prediction_columns, rows_of_fit, write_answers

NAMES = ["a", "b", "c,d", 'e"f', "v1", "v2", "v3", "v4"]
VIEWS = {"U": NAMES[:4], "V": NAMES[4:]}


@pytest.fixture(scope="module")
def data():
    return make_contrastive(5000, 4, S2="skewed", A="good", random_state=0)


@pytest.fixture(scope="module")
def frame(data):
    return pd.DataFrame(data.X, columns=NAMES).assign(note="text")


@pytest.fixture(scope="module")
def model(data, frame):
    return rc.ContrastiveRCA(views=VIEWS).fit(frame[NAMES])


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize("component", [None, "S2", "S3"])
def test_a_file_holds_what_memory_holds(model, frame, tmp_path, ending, component):
    """All digits, names with commas and quotes, and only the columns of the fit are read."""
    frame.to_parquet(tmp_path / "in.parquet", row_group_size=777)
    out = model.transform(tmp_path / "in.parquet", component, out=tmp_path / f"out.{ending}")
    read = pd.read_parquet(out) if ending == "parquet" else pd.read_csv(out, sep={"csv": ",", "tsv": "\t"}[ending])
    expected = model.predict_component(frame[NAMES], component)
    assert list(read.columns) == list(model.components_[component or "S1"].feature_names)
    np.testing.assert_allclose(read.to_numpy(), expected, rtol=1e-13, atol=1e-13)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_bits_do_not_depend_on_how_rows_come(model, frame, tmp_path):
    paths = []
    for rows in (500, 5000):
        frame.to_parquet(tmp_path / "in.parquet", row_group_size=rows)
        paths.append(model.transform(tmp_path / "in.parquet", out=tmp_path / f"{rows}.parquet"))
    blocks = model.transform(iter(np.array_split(frame[NAMES].to_numpy(), 13)), out=tmp_path / "stream.parquet")
    one, two, three = (pd.read_parquet(path) for path in [*paths, blocks])
    assert one.equals(two)
    assert one.equals(three)


def test_rows_with_gaps_have_empty_cells(model, frame, tmp_path):
    gaps = frame.copy()
    gaps.loc[[3, 4000], "v2"] = np.nan
    learner = rc.ComponentPCA(rca=model)
    with pytest.raises(rc.DataError, match="predicts no outcome"):
        prediction_columns(learner)
    gaps.to_parquet(tmp_path / "in.parquet")
    out = pd.read_parquet(model.transform(tmp_path / "in.parquet", out=tmp_path / "out.parquet"))
    assert np.flatnonzero(out.isna().all(axis=1)).tolist() == [3, 4000]
    assert int(out.isna().to_numpy().sum()) == 8


def test_what_is_read_is_never_overwritten(model, frame, tmp_path):
    frame.to_csv(tmp_path / "in.csv", index=False)
    with pytest.raises(rc.DataError, match="overwrite the input"):
        model.transform(tmp_path / "in.csv", out=tmp_path / "in.csv")
    with pytest.raises(rc.DataError, match=r"ends in .csv, .tsv, .parquet"):
        model.transform(tmp_path / "in.csv", out=tmp_path / "out.xlsx")
    frame[["a", "v1"]].to_csv(tmp_path / "few.csv", index=False)
    with pytest.raises(rc.DataError, match=r"few.csv has no column 'b' \(a column of the fit\)"):
        model.transform(tmp_path / "few.csv", out=tmp_path / "out.csv")
    with pytest.raises(ValueError, match="X has 3 features, but ContrastiveRCA is expecting 8"):
        model.transform(np.zeros((4, 3)), out=tmp_path / "out.csv")


def test_predictions_of_learners_go_to_files(data, frame, tmp_path):
    rca = rc.ContrastiveRCA(views=VIEWS)
    y = np.where(data.S1[:, 0] + np.random.default_rng(0).normal(size=5000) > 0, "ill", "well")
    learner = rc.ComponentLogisticRegression(rca=rca).fit(frame[NAMES], y)
    write_answers(tmp_path / "out.parquet", rows_of_fit(learner, frame[NAMES]), prediction_columns(learner), {"id": y})
    read = pq.read_table(tmp_path / "out.parquet").to_pandas()
    assert list(read.columns) == ["id", "prediction", "P(ill)", "P(well)"]
    assert read["prediction"].tolist() == learner.predict(frame[NAMES]).tolist()
    np.testing.assert_allclose(read[["P(ill)", "P(well)"]], learner.predict_proba(frame[NAMES]), rtol=1e-13)


def test_dask_collections_are_transformed_when_they_are_computed(model, frame):
    dd, da = pytest.importorskip("dask.dataframe"), pytest.importorskip("dask.array")
    expected = model.predict_component(frame[NAMES])
    lazy = model.transform(dd.from_pandas(frame, npartitions=3))
    assert not isinstance(lazy, pd.DataFrame)
    found = lazy.compute()
    assert list(found.columns) == NAMES[:4]
    assert found.index.equals(frame.index)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    plain = rc.ContrastiveRCA(views=4).fit(frame[NAMES].to_numpy())
    array = plain.transform(da.from_array(frame[NAMES].to_numpy(), chunks=(999, 3)), "S3")
    assert array.shape == (5000, 4)
    np.testing.assert_allclose(array.compute(), model.predict_component(frame[NAMES], "S3"), rtol=1e-12, atol=1e-13)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_results_go_into_annotated_data_and_its_file(model, frame, tmp_path):
    anndata = pytest.importorskip("anndata")
    values = frame[NAMES].assign(other=1.0)
    cells = anndata.AnnData(values.set_index(values.index.astype(str)))
    fitted = rc.ContrastiveRCA(views=VIEWS).fit(cells)
    fitted.annotate(cells, components=["S1", "S3"])
    cells.write_h5ad(tmp_path / "t.h5ad")
    read = anndata.read_h5ad(tmp_path / "t.h5ad")
    np.testing.assert_allclose(read.obsm["rca_S1"], fitted.predict_component(cells), rtol=1e-12)
    assert list(read.obsm["rca_S3"].columns) == VIEWS["V"]
    own = read.varm["rca"]["own"]
    np.testing.assert_allclose(own[VIEWS["U"]], fitted.components_["S1"].variance, rtol=1e-12)
    np.testing.assert_allclose(read.varm["rca"].loc[VIEWS["U"]].sum(axis=1), frame[NAMES[:4]].var(ddof=0), rtol=1e-9)
    assert np.isnan(own["other"])
    assert read.uns["rca"]["rank"] == fitted.rank_
    assert list(read.uns["rca"]["views"]["V"]) == VIEWS["V"]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_results_go_into_the_modality_where_they_are(frame, tmp_path):
    anndata, mudata = pytest.importorskip("anndata"), pytest.importorskip("mudata")
    labelled = frame[NAMES].set_index(frame.index.astype(str))
    both = mudata.MuData({view: anndata.AnnData(labelled[names]) for view, names in VIEWS.items()})
    fitted = rc.RCA(views=VIEWS, sets=[("U",), ("V",), ("U", "V")]).fit_views(both)
    fitted.annotate(both, key="rich", components=[("U",), ("U", "V")])
    both.write(tmp_path / "t.h5mu")
    read = mudata.read(tmp_path / "t.h5mu")
    np.testing.assert_allclose(
        read.mod["U"].obsm["rich_U"], fitted.predict_component(labelled, ("U",)), rtol=1e-9, atol=1e-12
    )
    assert read.mod["U"].obsm["rich_U+V"].shape == (5000, 4)
    assert (read.mod["V"].varm["rich"]["shared"] > 0).all()
    assert read.uns["rich"]["model"] == "RCA"


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:'V' lacks", "error:X does not have valid")
def test_samples_that_one_modality_lacks_are_predicted_from_the_other(frame):
    anndata, mudata = pytest.importorskip("anndata"), pytest.importorskip("mudata")
    labelled = frame[NAMES].set_index(frame.index.astype(str))[:1000]
    tables = {"U": labelled[VIEWS["U"]], "V": labelled[VIEWS["V"]][::-2]}
    both = mudata.MuData({view: anndata.AnnData(table) for view, table in tables.items()})
    fitted = rc.ContrastiveRCA(missing="available").fit_views(both, align="outer")
    fitted.annotate(both)
    found, gaps = both.mod["U"].obsm["rca_S1"], labelled.copy()
    gaps.loc[~gaps.index.isin(tables["V"].index), VIEWS["V"]] = np.nan
    assert np.isfinite(found.to_numpy()).all()
    np.testing.assert_allclose(found, fitted.predict_component(gaps), rtol=1e-9, atol=1e-12)
    complete = rc.ContrastiveRCA(missing="drop").fit_views(both, align="inner")
    complete.annotate(both, key="complete")
    assert np.isfinite(both.mod["U"].obsm["complete_S1"].to_numpy()).all(axis=1).sum() == 500


def test_a_table_of_variances_is_a_frame(model):
    table = model.variance_table()
    assert table.to_frame()["own (S1)"].tolist() == table.own.tolist()
