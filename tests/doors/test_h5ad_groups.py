"""Layers, obsm and obs by the same names, in an AnnData and in its file."""

from __future__ import annotations

import warnings

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import richcomponents as rc
from richcomponents.cli import main

N = 600


@pytest.fixture(scope="module")
def adata():
    """U as a layer (dense, sparse), V in obsm (a frame, an array, sparse); X is noise; a column of obs is called as a gene."""
    data = rc.datasets.make_contrastive(N, d=3, S2="skewed", random_state=0)
    samples = [f"s{i}" for i in range(N)]
    obs = pd.DataFrame(
        {"g0": data.y, "batch": np.where(np.arange(N) % 3, "a", "b"), "age": np.arange(N) % 50.0}, samples
    )
    made = anndata.AnnData(np.random.default_rng(0).normal(size=(N, 3)), obs, pd.DataFrame(index=["g0", "g1", "g2"]))
    made.layers["log"], made.layers["counts"] = data.U, sparse.csc_matrix(data.U)
    made.obsm["frame"] = pd.DataFrame(data.V, samples, ["g0", "p1", "p2"])
    made.obsm["array"], made.obsm["sparse"] = data.V, sparse.csr_matrix(data.V)
    return made


@pytest.fixture(scope="module")
def path(adata, tmp_path_factory):
    place = tmp_path_factory.mktemp("h5ad") / "cells.h5ad"
    adata.write_h5ad(place)
    return place


def quiet(work):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


@pytest.mark.parametrize("tests", ["layer:log", "layer:counts", "X"])
@pytest.mark.parametrize("controls", ["obsm:frame", "obsm:array", "obsm:sparse"])
def test_a_file_is_read_as_the_table_in_memory(adata, path, tests, controls):
    rca = rc.ContrastiveRCA(views={"tests": tests, "controls": controls}, covariates=["batch"])
    one, two = (quiet(lambda X=X: rc.ComponentRegression(rca=rca).fit(X, "obs:g0")) for X in (adata, path))
    np.testing.assert_allclose(two.coef_, one.coef_, rtol=1e-12)
    assert two.component_.feature_names == one.component_.feature_names
    np.testing.assert_allclose(two.rca_.transform(path), one.rca_.transform(adata), rtol=1e-10)
    np.testing.assert_allclose(one.rca_.transform(path), two.rca_.transform(adata), rtol=1e-10)


def test_rows_are_read_in_step(adata, path, monkeypatch):
    whole = rc.open_source(path).including(["layer:counts", "obsm:frame"]).array()
    np.testing.assert_array_equal(whole[:, 3:6], adata.layers["counts"].toarray())
    np.testing.assert_array_equal(whole[:, 6:], adata.obsm["frame"])
    monkeypatch.setattr("richcomponents.data.sources.arrays.block_rows", lambda width: 7 * width)
    rows = rc.open_source(path).including(["layer:counts", "obsm:frame"])
    np.testing.assert_array_equal(rows.array(), whole)
    assert rows.read(["frame:g0", "obs:g0"])["frame:g0"].tolist() == whole[:, 6].tolist()
    np.testing.assert_array_equal(rows.select(["p2", "g1", "counts:g0"]).array(), whole[:, [8, 1, 3]])


def test_the_command_line_takes_the_same_names(path, tmp_path, capsys):
    views = ["--views", "tests=layer:log", "--views", "controls=obsm:array"]
    saved, out = str(tmp_path / "model.npz"), str(tmp_path / "clean.csv")
    for command in (
        ["effects", str(path), *views, "--exposure", "batch", "--covariates", "age", "--save", saved],
        ["transform", saved, str(path), "--out", out],
    ):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert not ended.value.code
    capsys.readouterr()
    found = pd.read_csv(out)
    assert list(found) == ["sample", "log:g0", "log:g1", "log:g2"]
    rca = rc.ContrastiveRCA(views={"tests": "layer:log", "controls": "obsm:array"}, covariates=["age"])
    model = quiet(lambda: rc.ExposureEffects(rca=rca, exposure="batch").fit(path))
    np.testing.assert_allclose(found.iloc[:, 1:], model.rca_.transform(path), rtol=1e-8)


def test_unknown_groups_are_refused_by_name(path):
    with pytest.raises(rc.DataError, match="layer:raw"):
        rc.ContrastiveRCA(views={"tests": "layer:raw", "controls": "obsm:array"}).fit(path)


def test_what_leads_out_of_the_file_is_no_group(path, tmp_path):
    forged = tmp_path / "forged.h5ad"
    forged.write_bytes(path.read_bytes())
    with h5py.File(forged, "a") as file:
        file["obsm"]["elsewhere"] = h5py.ExternalLink(str(path), "/X")
        file["layers"]["elsewhere"] = h5py.SoftLink("/X")
    rows = rc.open_source(forged)
    assert {"layer:log", "obsm:array"} <= set(rows.source.groups)
    assert not [name for name in rows.source.groups if "elsewhere" in name]
    rc.ContrastiveRCA(views={"tests": "layer:log", "controls": "obsm:array"}).fit(forged)


def test_masks_and_slices_count_the_variables_only(adata, path):
    """Not the exposure, covariates or layers that stand behind them."""
    mask = np.array([True, False, False])
    named = {"tests": ["g0"], "controls": ["g1", "g2"]}
    other = {"tests": mask, "controls": "obsm:array"}

    def effects(views, X):
        rca = rc.ContrastiveRCA(views=views, covariates=["age", "batch"])
        return quiet(lambda: rc.ExposureEffects(rca=rca, exposure="obs:g0").fit(X)).coef_

    for X in (adata, path):
        for views in ({"tests": mask, "controls": ~mask}, {"tests": slice(0, 1), "controls": [-2, -1]}):
            np.testing.assert_allclose(effects(views, X), effects(named, X), rtol=1e-10)
        np.testing.assert_allclose(effects(other, X), effects(other | {"tests": ["g0"]}, X), rtol=1e-10)
    with pytest.raises(rc.DataError, match="a mask needs 3 entries"):
        effects({"tests": np.append(mask, False), "controls": "obsm:array"}, adata)
