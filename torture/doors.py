"""The same table at every door: refused by all with a clear error, or read by all as the same numbers.

`DOORS` are the ways into the library, `TABLES` what a table may be made into. The table-driven test of the doors uses them as
they are; the torture draws sizes, places and values at random.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from scipy import sparse

import richcomponents as rc
from richcomponents.commands import FitRequest, run_fit
from torture.harness import fault, is_clear, limit_memory, right

TIMEOUT = 120.0
CAP = 3 * 2**30
NAMES = ["a", "b", "c", "d"]
BEYOND = 2**53 + 1


def clean(rng: np.random.Generator, n: int = 60) -> Any:
    """Two views of two columns, whole numbers, so that every container can hold them exactly."""
    shared = rng.poisson(3.0, size=(n, 2))
    return np.hstack([rng.poisson(2.0, size=(n, 2)) + shared, shared + rng.poisson(1.0, size=(n, 2))]).astype(float)


# ---- doors: a table in, numbers out


def _streamed(X: Any) -> Any:
    accumulator = rc.Accumulator(3)
    accumulator.update(X)
    return accumulator.moments().covariance()


def _rca() -> Any:
    return rc.ContrastiveRCA(views=2, n_blocks=10)


def doors(good: Any) -> dict[str, Callable[[Any], Any]]:
    """name -> function of a table; good : a table like it, for models that are fitted already and for other views."""
    y = good[:, 0] - good[:, 2] + np.arange(len(good)) % 3
    label = (y > np.median(y)).astype(int)
    fitted, general = _rca().fit(good), rc.RCA(views=2, n_blocks=10).fit(good)
    learner = rc.ComponentRegression(rca=_rca()).fit(good, y)
    return {
        "cumulant": lambda X: rc.cumulant(X, 3),
        "cross_cumulant": lambda X: rc.cross_cumulant(X, good, X),
        "projected_cumulant": lambda X: rc.projected_cumulant(X, np.ones(4), 3),
        "Moments.of": lambda X: rc.Moments.of(X, 3).covariance(),
        "Moments.from_source": lambda X: rc.Moments.from_source(iter([X]), 3).covariance(),
        "Accumulator.update": _streamed,
        "Component.of_samples": lambda X: rc.Component.of_samples(X).covariance,
        "as_table": lambda X: rc.as_table(X, {"U": [0, 1], "V": [2, 3]}).values,
        "ContrastiveRCA.fit": lambda X: _rca().fit(X).A_,
        "ContrastiveRCA.fit(iterator)": lambda X: _rca().fit(iter([X])).A_,
        "ContrastiveRCA.fit_views": lambda X: _rca().fit_views([X, good]).A_,
        "ContrastiveRCA.partial_fit": lambda X: _rca().partial_fit(X).A_,
        "ContrastiveRCA.transform": lambda X: fitted.transform(X),
        "ContrastiveRCA.calibrate": lambda X: fitted.calibrate(X, y).coef,
        "ContrastiveRCA.outcome_test": lambda X: fitted.outcome_test(X, y).p_value,
        "ContrastiveRCA.score": lambda X: fitted.score(X),
        "RCA.fit": lambda X: rc.RCA(views=2, n_blocks=10).fit(X).components_["U",].covariance,
        "RCA.fit_views": lambda X: rc.RCA(n_blocks=10).fit_views([X, good]).components_["U",].covariance,
        "RCA.transform": lambda X: general.transform(X),
        "RCA.outcome_test": lambda X: general.outcome_test(X, y).p_value,
        "ComponentPCA.fit": lambda X: rc.ComponentPCA(rca=_rca()).fit(X).components_,
        "ComponentRegression.fit": lambda X: rc.ComponentRegression(rca=_rca()).fit(X, y).coef_,
        "ComponentRegression.predict": lambda X: learner.predict(X),
        "ComponentLogisticRegression.fit": lambda X: rc.ComponentLogisticRegression(rca=_rca()).fit(X, label).coef_,
        "ComponentGaussianMixture.fit": lambda X: rc.ComponentGaussianMixture(1, rca=_rca(), n_init=1).fit(X).means_,
        "ComponentIsing.fit": lambda X: rc.ComponentIsing(rca=_rca()).fit(X).coef_,
        "baselines.naive": lambda X: rc.baselines.naive(rc.ComponentPCA(rca=_rca()), X).components_,
    }


def outcome_doors(good: Any) -> dict[str, Callable[[Any], Any]]:
    """name -> function of an outcome."""
    fitted, general = _rca().fit(good), rc.RCA(views=2, n_blocks=10).fit(good)
    return {
        "ContrastiveRCA.calibrate": lambda y: fitted.calibrate(good, y).coef,
        "ContrastiveRCA.outcome_test": lambda y: fitted.outcome_test(good, y).p_value,
        "RCA.outcome_test": lambda y: general.outcome_test(good, y).p_value,
        "ComponentRegression.fit": lambda y: rc.ComponentRegression(rca=_rca()).fit(good, y).coef_,
    }


def file_doors(folder: Path) -> dict[str, Callable[[Any], Any]]:
    """name -> function that writes a table and reads it; raises NotImplementedError for what such a file cannot hold."""

    def npy(X: Any) -> Path:
        if not isinstance(X, np.ndarray) or isinstance(X, np.ma.MaskedArray) or X.dtype == object:
            raise NotImplementedError
        np.save(folder / "t.npy", X)
        return folder / "t.npy"

    def frame(X: Any) -> pd.DataFrame:
        if (
            isinstance(X, np.ndarray)
            and X.ndim == 2
            and X.dtype.kind in "biufM"
            and not isinstance(X, np.ma.MaskedArray)
        ):
            return pd.DataFrame(X, columns=NAMES[: X.shape[1]])
        if isinstance(X, pd.DataFrame) and X.columns.is_unique:
            return X
        raise NotImplementedError

    def parquet(X: Any) -> Path:
        frame(X).to_parquet(folder / "t.parquet", index=False)
        return folder / "t.parquet"

    def csv(X: Any) -> Path:
        table = frame(X)
        if any(np.dtype(kind).kind in "bO" for kind in _kinds(table)):
            raise NotImplementedError  # in text a truth value is a word
        table.to_csv(folder / "t.csv", index=False)
        return folder / "t.csv"

    def command(write: Callable[[Any], Path]) -> Callable[[Any], Any]:
        def fit(X: Any) -> Any:
            path = write(X)
            views = ("2",) if path.suffix == ".npy" else ("U=a,b", "V=c,d")
            return run_fit(FitRequest(data=[path], views=views, missing="error")).model.A_

        return fit

    return {
        f"{how} of {write.__name__}": read
        for write in (npy, parquet, csv)
        for how, read in {
            "Moments.from_source": lambda X, write=write: rc.Moments.from_source(write(X), 3).covariance(),
            "ContrastiveRCA.fit": lambda X, write=write: _rca().fit(write(X)).A_,
            "rca fit": command(write),
        }.items()
    }


def _kinds(table: pd.DataFrame) -> list[Any]:
    return [kind if isinstance(kind, np.dtype) else np.dtype(object) for kind in table.dtypes]


# ---- tables: what a clean one may be made into


def _with(X: Any, value: Any, row: int, column: int, dtype: Any = None) -> Any:
    out = X.astype(X.dtype if dtype is None else dtype)
    out[row, column] = value
    return out


def _annotated(X: Any) -> Any:
    import anndata

    return anndata.AnnData(
        np.array(X), var=pd.DataFrame(index=NAMES), obs=pd.DataFrame(index=[f"s{i}" for i in range(len(X))])
    )


def _frame(X: Any, **columns: Any) -> pd.DataFrame:
    return pd.DataFrame(X, columns=NAMES).assign(**columns)


def _ragged(X: Any, row: int) -> Any:
    rows = X.tolist()
    rows[row] = rows[row][:-1]
    return rows


# name -> function of (clean table, row, column): none of these is a table of real numbers
REFUSED: dict[str, Callable[[Any, int, int], Any]] = {
    "masked": lambda X, i, j: np.ma.array(X, mask=_with(np.zeros(X.shape, bool), True, i, j)),
    "masked rows in a list": lambda X, i, j: [
        np.ma.array(r, mask=(np.arange(4) == j) & (k == i)) for k, r in enumerate(X)
    ],
    "NaN": lambda X, i, j: _with(X, np.nan, i, j),
    "infinite": lambda X, i, j: _with(X, -np.inf, i, j),
    "NaN in a frame": lambda X, i, j: _frame(_with(X, np.nan, i, j)),
    "missing whole number": lambda X, i, j: _frame(X).astype("Int64").mask(_with(np.zeros(X.shape, bool), True, i, j)),
    "whole beyond 2**53": lambda X, i, j: _with(X, BEYOND, i, j, np.int64),
    "unsigned beyond 2**53": lambda X, i, j: _with(X, 2**64 - 1, i, j, np.uint64),
    "negative beyond 2**53": lambda X, i, j: _with(X, -BEYOND, i, j, np.int64),
    "beyond 2**53 in a frame": lambda X, i, j: _frame(X, **{NAMES[j]: _with(X, BEYOND, i, j, np.int64)[:, j]}),
    "beyond 2**53 in polars": lambda X, i, j: pl.DataFrame(
        _frame(X, **{NAMES[j]: _with(X, BEYOND, i, j, np.int64)[:, j]})
    ),
    "beyond 2**53 in a list": lambda X, i, j: _with(X, BEYOND, i, j, object).tolist(),
    "beyond 2**53 as objects": lambda X, i, j: _with(X, BEYOND, i, j, object),
    "complex": lambda X, i, j: _with(X, 1j, i, j, complex),
    "text of numbers": lambda X, i, j: X.astype(str),
    "bytes": lambda X, i, j: X.astype("S8"),
    "text among objects": lambda X, i, j: _with(X, "1.5", i, j, object),
    "object": lambda X, i, j: _with(X, {"a": 1}, i, j, object),
    "None among objects": lambda X, i, j: _with(X, None, i, j, object),
    "text in a frame": lambda X, i, j: _frame(X, **{NAMES[j]: "x"}),
    "dates": lambda X, i, j: X.astype("datetime64[s]"),
    "durations": lambda X, i, j: X.astype("timedelta64[s]"),
    "dates in a frame": lambda X, i, j: _frame(X, **{NAMES[j]: pd.Timestamp("2020-01-01")}),
    "categories": lambda X, i, j: _frame(X, **{NAMES[j]: pd.Categorical(X[:, j].astype(str))}),
    "repeated names": lambda X, i, j: _frame(X).set_axis(["a", "b", "c", "a"], axis=1),
    "no rows": lambda X, i, j: X[:0],
    "no columns": lambda X, i, j: X[:, :0],
    "three dimensions": lambda X, i, j: X[:, :, None],
    "four dimensions": lambda X, i, j: X[None, :, :, None],
    "a number": lambda X, i, j: float(X[i, j]),
    "ragged": lambda X, i, j: _ragged(X, i),
    "None": lambda X, i, j: None,
    "a dict": lambda X, i, j: {name: X[:, k] for k, name in enumerate(NAMES)},
    "records": lambda X, i, j: np.rec.fromarrays(X.T, names=NAMES),
    "one dimension": lambda X, i, j: X[:, j],
}
# the same numbers in another form: every door gives what it gives for the array
READ: dict[str, Callable[[Any], Any]] = {
    "whole numbers": lambda X: X.astype(np.int16),
    "unsigned": lambda X: X.astype(np.uint64),
    "single precision": lambda X: X.astype(np.float32),
    "column order": np.asfortranarray,
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "lists": lambda X: X.tolist(),
    "objects": lambda X: X.astype(object),
    "fractions": lambda X: np.vectorize(Fraction, otypes=[object])(X.astype(int)),
    "nothing masked": lambda X: np.ma.array(X, mask=False),
    "pandas": _frame,
    "AnnData": lambda X: _annotated(X),
    "pandas, whole numbers": lambda X: _frame(X).astype("Int64"),
    "polars": lambda X: pl.DataFrame(_frame(X)),
    "sparse by rows": sparse.csr_matrix,
    "sparse by columns": sparse.csc_array,
    "sparse by entries": sparse.coo_matrix,
}
# forms that a door may read although they are no table
ALLOWED = {
    *((door, "one dimension") for door in ("cumulant", "cross_cumulant")),  # one column
}
OUTCOMES = [
    *("masked", "NaN", "infinite", "whole beyond 2**53", "beyond 2**53 as objects", "complex", "text of numbers"),
    *("text among objects", "object", "None among objects", "dates", "no rows"),
]


def outcome_of(table: Any, column: int) -> Any:
    """One column of an array that was made from a table: the same flaw in an outcome."""
    return table[:, column]


def said(door: Callable[[Any], Any], X: Any) -> str | Any:
    """What became of a table at a door: a numpy array of the answer, or "refused", or a sentence about the accident."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(door(X), dtype=float)
        except NotImplementedError:
            return "not there"
        except Exception as error:
            return "refused" if is_clear(error) else f"{type(error).__name__}: {str(error)[:200]}"


def same(one: Any, two: Any) -> bool:
    if isinstance(one, str) or isinstance(two, str):
        return isinstance(one, str) and isinstance(two, str) and one == two
    return one.shape == two.shape and bool((one == two).all())


def prepare(seed: int = 0) -> Callable[[int], dict[str, Any]]:
    places: dict[str, Callable[[Any], Any]] = {}
    folder = tempfile.TemporaryDirectory()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        good = clean(np.random.default_rng([seed, 10**6]))
        places |= doors(good) | file_doors(Path(folder.name))
    limit_memory(CAP)

    def run(case: int, _alive: Any = folder) -> dict[str, Any]:
        rng = np.random.default_rng([seed, case])
        X = clean(rng)
        every = [*REFUSED, *READ]
        name = every[case % len(every)]
        chosen = [str(door) for door in rng.permutation(list(places))[:8]]
        if name in REFUSED:
            row, column = int(rng.integers(len(X))), int(rng.integers(4))
            found = {door: said(places[door], REFUSED[name](X, row, column)) for door in chosen}
            wrong = {d: f for d, f in found.items() if not same(f, "refused") and (d, name) not in ALLOWED}
            wrong = {d: f for d, f in wrong.items() if not same(f, "not there")}
            if wrong:
                door, what = next(iter(wrong.items()))
                return fault(f"{name} at {door}: {what if isinstance(what, str) else 'read as a table'}")
            return {"ended": "refused", "error": "refused by every door", "notes": ["doors tried"] * len(chosen)}
        for door in chosen:
            given = said(places[door], READ[name](X))
            if not same(given, "not there") and not same(given, said(places[door], X)):
                return fault(f"{name} at {door}: {given if isinstance(given, str) else 'other numbers than the array'}")
        return right(notes=["doors tried"] * len(chosen))

    return run
