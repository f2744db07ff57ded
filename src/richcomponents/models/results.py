"""Results out: answers for any number of rows, to a file or a dask collection, and into AnnData and MuData.

An answer is row-wise: a block of rows in, columns out. Rows are read as everywhere, in blocks, and answered in pieces of 2048,
so that no chunking changes a bit; only what is written together is held. A row with a missing value has no answer: its cells
are empty, and how many there are is returned.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np

from richcomponents.algebra.arrays import LEAF, one_blas_thread
from richcomponents.data.cells import Column
from richcomponents.data.rows import Rows, join_views
from richcomponents.data.sources.base import aligned
from richcomponents.errors import DataError
from richcomponents.models.estimator import used_rows
from richcomponents.outputs import check_outputs, table_writing
from richcomponents.progress import metered

Answer = Callable[[Any], Mapping[str, Any]]
"""A block of the columns that the fit used -> {name: column}."""


def rows_of_fit(model: Any, X: object) -> Rows:
    """The rows of a table, of which only the columns that the fit used are read, found by their names where both have some;
    gaps are predicted unless missing="error"."""
    rca = getattr(model, "rca_", model)
    rows: Rows = used_rows(rca, X)
    return rows if rca.fitted_.missing == "error" else rows.mapped(rca.fitted_.filled)


def write_answers(
    path: str | os.PathLike[str],
    rows: Rows,
    answer: Answer,
    labels: Mapping[str, Column] | None = None,
    progress: str | None = None,
) -> int:
    """Answers for all rows as a table (.csv, .tsv, .parquet), the labels of the rows first (by default those of the samples);
    how many rows have none."""
    if labels is None:
        labels = {} if rows.samples is None else {"sample": np.array(rows.samples, dtype=object)}
    check_outputs([path], rows.files)
    done = missing = 0
    with table_writing(path) as append, metered(progress, rows.n_rows, unit="rows") as advance:
        for block in aligned(rows.chunks(), LEAF):
            known: Any = np.isfinite(block).all(axis=1)
            with one_blas_thread():
                found = answer(np.where(known[:, None], block, 0.0))
            here = {name: column[done : done + len(block)] for name, column in labels.items()}
            append(here | {name: _without(column, known) for name, column in found.items()})
            done, missing = done + len(block), missing + int(np.sum(~known))
            advance(len(block))
    if not done:
        raise DataError(f"{rows.source.title} holds no rows")
    return missing


def _without(column: Any, known: Any) -> Any:
    if known.all():
        return column
    values = np.array(column, dtype=np.float64 if np.asarray(column).dtype.kind in "biuf" else object)
    values[~known] = np.nan if values.dtype.kind == "f" else None
    return values


def component_columns(model: Any, component: object = None) -> Answer:
    """The prediction of a component, under the names of its columns."""
    fitted = model.fitted_
    names = list(map(str, fitted.columns_of(component)))
    return lambda block: dict(zip(names, fitted.predict(block, component).T, strict=True))


def prediction_columns(model: Any) -> Answer:
    """What a learner predicts, and the probabilities of its classes (or of the components of a mixture) where it has some."""
    if not hasattr(model, "predict"):
        raise DataError(
            f"{type(model).__name__} predicts no outcome and no class: its component is what `transform` (rca transform) gives"
        )

    learner = copy(model)
    learner.rca_ = copy(model.rca_)
    learner.rca_.fitted_ = model.rca_.fitted_.on_used_columns()

    def answer(block: Any) -> dict[str, Any]:
        predicted = {"prediction": learner.predict(Rows(block))}
        if not hasattr(model, "predict_proba"):
            return predicted
        chances = learner.predict_proba(Rows(block))
        classes = getattr(model, "classes_", range(chances.shape[1]))
        return predicted | {f"P({label})": chances[:, i] for i, label in enumerate(classes)}

    return answer


def lazily(model: Any, X: Any, component: object = None) -> Any:
    """The same of a dask array or data frame, computed when it is asked for, piece by piece and where the pieces are."""
    names = list(map(str, model.fitted_.columns_of(component)))
    if not hasattr(X, "columns"):
        X = X.rechunk({1: -1})
        return X.map_blocks(model.predict_component, component, dtype=np.float64, chunks=(X.chunks[0], (len(names),)))
    import pandas

    def answer(part: Any) -> Any:
        values = model.predict_component(part, component) if len(part) else np.empty((0, len(names)))
        return pandas.DataFrame(values, columns=names, index=part.index)

    known = model.fitted_.design.needed
    needed = X if known is None else X[list(known)]
    return needed.map_partitions(answer, meta=pandas.DataFrame(columns=names, dtype=np.float64))


# ---- AnnData and MuData


def annotate(model: Any, data: Any, key: str = "rca", components: Any = None) -> None:
    """Write what was found into an AnnData or MuData: see :meth:`ComponentAnalysis.annotate`."""
    parts = {None: data} if not hasattr(data, "mod") else dict(data.mod)
    wanted = [model.fitted_.key(one) for one in ([None] if components is None else components)]
    everyone = model.missing == "available"  # samples that one modality lacks are predicted from the others
    how: dict[str, Any] = {"align": "outer" if everyone else "inner", "finite": model.missing == "error"}
    table = data if None in parts else join_views(data, **how)
    samples = list(data.obs_names) if None in parts else list(table.index or data.obs_names)
    rows = data if None in parts else _frame(table.values, samples, table.views.feature_names)
    home = {name: str(view) for view, names in model.fitted_.view_names.items() for name in names}
    for name in wanted:
        found, title = model.components_[name], title_of(name)
        owner = data if None in parts else data.mod[home[str(found.feature_names[0])]]
        values = _frame(model.predict_component(rows, name), samples, found.feature_names)
        owner.obsm[f"{key}_{title}"] = values.reindex(list(owner.obs_names))
    shares = _variances(model)
    for name, part in parts.items():
        front = "" if name is None else f"{name}:"
        labels = [label if label in shares else f"{front}{label}" for label in map(str, part.var_names)]
        part.varm[key] = _frame(
            [shares.get(label, (np.nan, np.nan)) for label in labels], part.var_names, ("own", "shared")
        )
    views = {view: np.array(names) for view, names in model.fitted_.view_names.items()}
    known = {"model": type(model).__name__, "verdict": model.verdict_, "n": model.n_samples_, "views": views}
    data.uns[key] = known | {"summary": str(model.summary())}  # in types that files of AnnData hold
    if hasattr(model, "rank_"):
        correlations = model.diagnostics_.canonical_correlations
        data.uns[key] |= {"rank": int(model.rank_), "canonical_correlations": correlations}


def _frame(values: Any, index: Any, columns: Any) -> Any:
    import pandas

    return pandas.DataFrame(values, index=list(map(str, index)), columns=list(map(str, columns)))


def title_of(component: Any) -> str:
    return component if isinstance(component, str) else "+".join(map(str, component))


def _variances(model: Any) -> dict[str, tuple[float, float]]:
    """{column: (its own variance, the variance that it shares)}, of all columns of the views; hidden classes are shared."""
    carried = model.solution_.own_variances()
    lives, part = Counter(key for _, key in carried), model.fitted_.class_part
    table: dict[str, tuple[float, float]] = {}
    for at, (view, names) in enumerate(model.fitted_.view_names.items()):
        own, shared = np.zeros((2, len(names)))
        for (where, key), values in carried.items():
            if where == view and lives[key] > 1:
                shared = shared + values
            elif where == view:
                own = own + values
        if part is not None:
            B = (part.of_u, part.of_v)[at]
            shared = shared + np.sum(B @ part.spread * B, axis=1)
        table |= zip(names, zip(own.tolist(), np.maximum(shared, 0.0).tolist(), strict=True), strict=True)
    return table
