"""The table in docs/data.md, cell by cell: every method takes every table, or refuses it in the words that stand there."""

from __future__ import annotations

import re
import warnings
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from scipy import sparse

import richcomponents as rc
from richcomponents import baselines

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
U, V = ["gene a", "gene b", "gene c"], ["probe a", "probe b", "probe c"]
VIEWS = {"tests": U, "controls": V}
NUMBERS = {"tests": [0, 1, 2], "controls": [3, 4, 5]}


def contract() -> tuple[dict[tuple[str, str], str], dict[str, str]]:
    """{(method, door): "=" or a letter} and {letter: what the refusal says}."""
    page = PAGE.read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    head = next(i for i, cells in enumerate(lines) if cells[0] == "method")
    cells = {
        (row[0], door): cell for row in lines[head + 2 :] for door, cell in zip(lines[head][1:], row[1:], strict=True)
    }
    return cells, dict(re.findall(r'^- (\w): "(.*)"$', page, re.MULTILINE))


CELLS, REFUSALS = contract()


@cache
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, an outcome and two classes."""
    data = rc.datasets.make_contrastive(400, d=3, S2="skewed", random_state=5)
    return data.X, data.y, (data.y > np.median(data.y)).astype(np.int64)


@cache
def spins() -> np.ndarray:
    """U is a chain of three spins and something shared with V."""
    rng = np.random.default_rng(5)
    steps = np.where(rng.random((600, 3)) < [0.5, 0.7, 0.7], 1.0, -1.0)
    shared = rng.exponential(size=(600, 3)) - 1
    return np.hstack([np.cumprod(steps, axis=1) + shared, shared + 0.3 * rng.normal(size=(600, 3))])


# ---- the doors: name -> (X, views, y as it is named there) of a table with columns y and label beside the views


def frames(X, y, label):
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    columns = dict(zip([*U, *V], X.T, strict=True)) | {"y": y, "label": label}
    ids = [f"s{i}" for i in range(len(X))]
    pandas = pd.DataFrame({"sample": ids, **columns}, index=ids)[["sample", "y", *V, "label", *U]]
    yield "frame", pandas.convert_dtypes(), VIEWS, "y", "label"
    yield "frame", pl.DataFrame({"sample": ids, **columns}), VIEWS, "y", "label"
    yield "frame", pa.table({"sample": ids, **columns}), VIEWS, "y", "label"
    yield "frame", pa.record_batch({"sample": ids, **columns}), VIEWS, "y", "label"


def annotated(X, y, label):
    import anndata
    import mudata
    import pandas as pd

    def one(values, names):
        obs = pd.DataFrame({"y": y, "label": label, "who": "someone"}, index=[f"s{i}" for i in range(len(X))])
        return anndata.AnnData(values.copy(), obs=obs, var=pd.DataFrame(index=names))

    adata = one(X, [*U, *V])
    yield "AnnData", adata, VIEWS, "y", "label"
    yield "AnnData", one(sparse.csr_matrix(X), [*U, *V]), VIEWS, "obs:y", "label"
    split = one(np.zeros((len(X), 3)), U)
    split.layers["seen"] = sparse.csr_matrix(X[:, :3])
    split.obsm["protein"] = X[:, 3:]
    yield "AnnData", split, {"tests": "layer:seen", "controls": "obsm:protein"}, "y", "label"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mdata = mudata.MuData({"tests": one(X[:, :3], U), "controls": one(X[:, 3:], V)})
        mdata.obs = adata.obs.copy()
    yield "MuData", mdata, None, "y", "label"
    yield "MuData", mdata, {"u": "tests", "v": "controls"}, "y", "label"
    yield "h5ad", adata, VIEWS, "y", "label"
    yield "h5mu", mdata, {"u": "tests", "v": "controls"}, "y", "label"


def files(X, y, label, folder):
    import pandas as pd
    from pyarrow import Table
    from pyarrow.parquet import write_table

    _, frame, *_ = next(frames(X, y, label))
    frame.to_csv(folder / "a.csv", index=False)
    yield "file", str(folder / "a.csv"), VIEWS, "y", "label"
    write_table(Table.from_pandas(frame, preserve_index=False), folder / "a.parquet")
    yield "file", folder / "a.parquet", VIEWS, "y", "label"
    for i, part in enumerate((frame[:150], frame[150:])):
        part.to_parquet(folder / f"part-{i}.parquet", index=False)
    yield "file", str(folder / "part-*.parquet"), VIEWS, "y", "label"
    np.save(folder / "a.npy", np.column_stack([X, y, label]))
    yield "file", folder / "a.npy", NUMBERS, 6, 7
    np.savez(folder / "a.npz", tests=X[:, :3], controls=X[:, 3:], y=y, label=label)
    yield "file", folder / "a.npz", {"u": "tests", "v": "controls"}, "y", "label"
    pd.DataFrame(X[:, :3], columns=U).to_csv(folder / "u.csv", index=False)
    pd.DataFrame(X[:, 3:], columns=V).assign(y=y, label=label).to_csv(folder / "v.csv", index=False)
    yield "file", {"u": folder / "u.csv", "v": folder / "v.csv"}, {"tests": U, "controls": V}, "y", "label"
    for kind, table, views, *named in annotated(X, y, label):
        if kind.startswith("h5"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                table.write(folder / f"a.{kind}")
            yield "file", folder / f"a.{kind}", views, *named
    import zarr

    zarr.save_array(str(folder / "a.zarr"), np.column_stack([X, y, label]))
    yield "file", folder / "a.zarr", NUMBERS, 6, 7


def elsewhere(X, y, label):
    import dask.array as da
    import dask.dataframe as dd

    _, frame, *_ = next(frames(X, y, label))
    frame = frame.astype(dict.fromkeys([*U, *V, "y"], "float64"))
    Z = np.column_stack([X, y, label])
    yield "dask", da.from_array(Z, chunks=(90, 8)), NUMBERS, 6, 7
    yield "dask", dd.from_pandas(frame, npartitions=3, sort=False), VIEWS, "y", "label"
    numeric = frame.drop(columns="sample")
    yield "stream", lambda: (numeric[a : a + 130] for a in range(0, len(X), 130)), VIEWS, "y", "label"
    yield "stream", lambda: (frame[a : a + 130] for a in range(0, len(X), 130)), VIEWS, "y", "label"
    yield "stream", lambda: iter([Z[:77], Z[77:]]), NUMBERS, 6, 7
    yield "state", rc.Moments.of(numeric, 4), VIEWS, "y", "label"
    yield "state", rc.Moments.of(Z, 4), NUMBERS, 6, 7


def doors(X, y, label, folder):
    yield "array", X, NUMBERS, y, label
    yield "array", np.column_stack([X, y, label]).tolist(), NUMBERS, 6, 7
    yield "tables", [X[:, :3], X[:, 3:]], None, y, label
    yield "tables", {"tests": X[:, :3], "controls": X[:, 3:]}, None, y, label
    yield "sparse", sparse.csc_array(np.column_stack([X, y, label])), NUMBERS, 6, 7
    yield "sparse", sparse.coo_matrix(X), NUMBERS, y, label
    yield from frames(X, y, label)
    yield from (one for one in annotated(X, y, label) if not one[0].startswith("h5"))
    yield from files(X, y, label, folder)
    yield from elsewhere(X, y, label)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """{door: [(X, views, y, label)]} of the rows, and of spins."""
    out = {}
    numbers = np.arange(600)
    for what, (X, y, label) in {"rows": rows(), "spins": (spins(), numbers % 7.0, numbers % 2)}.items():
        for door, *rest in doors(X, y, label, tmp_path_factory.mktemp(what)):
            out.setdefault((what, door), []).append(rest)
    return out


# ---- the methods: a function of a table T -> numbers; models of the plain array, which new tables are given to


class T:
    """A table, its views as it names them, its outcome and its classes."""

    def __init__(self, X, views, y, label):
        self._X, self.views, self.y, self.label = X, views, y, label

    @property
    def X(self):
        return self._X() if callable(self._X) else self._X

    @property
    def rca(self):
        return rc.ContrastiveRCA(views=self.views)

    @property
    def general(self):
        return rc.RCA(views=self.views)


def plain_table(what="rows"):
    X, y, label = rows()
    return T(X if what == "rows" else spins(), NUMBERS, y, label)


@cache
def model(kind, what):
    """Fitted to the plain array ("views"), to it with outcome and classes ("all"), or to a data frame ("named"): then other
    tables are read by their names."""
    X, y, label = rows()
    whole = T(np.column_stack([X, y, label]), NUMBERS, 6, 7)
    return fitted(kind, {"views": plain_table(), "all": whole, "named": T(*next(frames(X, y, label))[1:])}[what])


def fitted(kind, t):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "rca": lambda: t.rca.fit(t.X),
            "general": lambda: t.general.fit(t.X),
            "pca": lambda: rc.ComponentPCA(2, rca=t.rca).fit(t.X),
            "regression": lambda: rc.ComponentRegression(rca=t.rca).fit(t.X, t.y),
            "logistic": lambda: rc.ComponentLogisticRegression(rca=t.rca).fit(t.X, t.label),
            "mixture": lambda: rc.ComponentGaussianMixture(2, rca=t.rca).fit(t.X),
        }[kind]()


def of(kind, t):
    """A fitted model for a table: by name where it has the names of the views, else by position; groups of columns are named
    in the fit."""
    if t.views is not None and isinstance(t.views.get("tests", t.views.get("u")), str):
        return fitted(kind, t)
    return model(kind, "named" if t.views == VIEWS else "all" if isinstance(t.y, int) else "views")


def page(t):
    """Pictures are drawn, not put on paper: what matplotlib makes of them, tests/report sees."""
    import tempfile

    fit = rc.ComponentRegression(rca=t.rca).fit(t.X, t.y)
    paper = patch("matplotlib.figure.Figure.savefig", lambda figure, out, **options: out.write("<svg></svg>"))
    with paper, tempfile.TemporaryDirectory() as folder:
        rc.write_report(Path(folder) / "report.html", fit, t.X, t.y)
        written = (Path(folder) / "report.html").read_text(encoding="utf-8")
    assert "Coefficients" in written
    return rc.report.Findings.of(fit, t.X, t.y).outcome.estimate.others["naive"]


def first_part(fit):
    return fit.components_[tuple(fit.views_)[:1]]


def learned(fit):
    return np.concatenate([fit.coef_, fit.coefficients_.standard_error, [fit.intercept_]])


METHODS = {
    "ContrastiveRCA.fit": lambda t: t.rca.fit(t.X).A_,
    "ContrastiveRCA.transform": lambda t: of("rca", t).transform(t.X),
    "ContrastiveRCA.predict_component": lambda t: of("rca", t).predict_component(t.X, "S2"),
    "ContrastiveRCA.residual": lambda t: of("rca", t).residual(t.X),
    "ContrastiveRCA.score": lambda t: of("rca", t).score(t.X),
    "ContrastiveRCA.calibrate": lambda t: of("rca", t).calibrate(t.X, t.y).coef,
    "ContrastiveRCA.outcome_test": lambda t: of("rca", t).outcome_test(t.X, t.y).p_value,
    "ContrastiveRCA.component_on_rows": lambda t: of("rca", t).component_on_rows(t.X).cumulant(3),
    "RCA.fit": lambda t: first_part(t.general.fit(t.X)).covariance,
    "RCA.transform": lambda t: of("general", t).transform(t.X),
    "RCA.score": lambda t: of("general", t).score(t.X),
    "RCA.calibrate": lambda t: of("general", t).calibrate(t.X, t.y).coef,
    "RCA.outcome_test": lambda t: of("general", t).outcome_test(t.X, t.y).p_value,
    "ComponentPCA.fit": lambda t: rc.ComponentPCA(2, rca=t.rca).fit(t.X).components_,
    "ComponentPCA.transform": lambda t: of("pca", t).transform(t.X),
    "ComponentRegression.fit": lambda t: learned(rc.ComponentRegression(rca=t.rca).fit(t.X, t.y)),
    "ComponentRegression(shared=True).fit": lambda t: learned(
        rc.ComponentRegression(rca=t.rca, shared=True).fit(t.X, t.y)
    ),
    "ComponentRegression.predict": lambda t: of("regression", t).predict(t.X),
    "ComponentRegression.outcome_test": lambda t: of("regression", t).outcome_test(t.X, t.y).p_value,
    "ComponentLogisticRegression.fit": lambda t: rc.ComponentLogisticRegression(rca=t.rca).fit(t.X, t.label).coef_,
    'ComponentLogisticRegression(approximation="chebyshev").fit': lambda t: (
        rc.ComponentLogisticRegression(rca=t.rca, approximation="chebyshev").fit(t.X, t.label).coef_
    ),
    "ComponentLogisticRegression.predict_proba": lambda t: of("logistic", t).predict_proba(t.X),
    "ComponentLogisticRegression.outcome_test": lambda t: of("logistic", t).outcome_test(t.X, t.label).p_value,
    "ComponentGaussianMixture.fit": lambda t: rc.ComponentGaussianMixture(2, rca=t.rca).fit(t.X).means_,
    "ComponentGaussianMixture.predict_proba": lambda t: of("mixture", t).predict_proba(t.X),
    "ComponentIsing.fit": lambda t: rc.ComponentIsing(rca=t.rca).fit(t.X).couplings_,
    "ExposureEffects.fit": lambda t: rc.ExposureEffects(rca=t.rca).fit(t.X, t.y).coef_,
    "baselines.naive": lambda t: baselines.naive(rc.ComponentRegression(rca=t.rca), t.X, t.y).coef_,
    "baselines.covariates": lambda t: baselines.covariates(rc.ComponentRegression(rca=t.rca), t.X, t.y).coef_,
    "baselines.ancova": lambda t: baselines.ancova(t.X, t.y, t.rca).value,
    "baselines.ruv4": lambda t: baselines.ruv4(t.X, t.y, t.rca).value,
    "write_report": page,
}


@cache
def expected(method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return METHODS[method](plain_table("spins" if "Ising" in method else "rows"))


def test_the_page_speaks_of_every_method():
    assert {method for method, _ in CELLS} == set(METHODS)
    assert set(CELLS.values()) <= {"=", *REFUSALS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("method", "door"), CELLS, ids=lambda part: part)
def test_every_method_takes_every_table(tables, method, door):
    rtol = 1e-7 if "Mixture" in method and door in ("stream", "state") else 1e-10  # its search ends by its values
    for rest in tables["spins" if "Ising" in method else "rows", door]:
        table, cell = T(*rest), CELLS[method, door]
        if cell != "=":
            with pytest.raises(rc.DataError, match=re.escape(REFUSALS[cell])):
                METHODS[method](table)
            continue
        np.testing.assert_allclose(METHODS[method](table), expected(method), rtol=rtol, atol=rtol)
