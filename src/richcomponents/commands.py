"""What the commands do, callable from Python: files in, fitted model and findings out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.data.align import names_of_files
from richcomponents.data.cells import first_text
from richcomponents.data.design import Selection, select
from richcomponents.data.rows import Rows, open_source
from richcomponents.data.sources.base import digest
from richcomponents.data.table import listed, names_in
from richcomponents.datasets import Contrastive, make_contrastive
from richcomponents.effects.model import ExposureEffects
from richcomponents.errors import DataError, SpecificationWarning, WeakIdentificationWarning
from richcomponents.learning.glm import FAMILIES
from richcomponents.models import (
    RCA,
    ComponentGaussianMixture,
    ComponentGLM,
    ComponentIsing,
    ComponentLogisticRegression,
    ComponentPCA,
    ComponentRegression,
    ContrastiveRCA,
)
from richcomponents.models.estimator import WAYS
from richcomponents.models.results import (
    Answer,
    component_columns,
    prediction_columns,
    rows_of_fit,
    title_of,
    write_answers,
)
from richcomponents.outputs import check_outputs, table_writing, write_text, writing
from richcomponents.report import Findings, Provenance

_GLMS = {name.replace(" ", "-"): name for name in FAMILIES if name != "logistic"}
MODELS = ("auto", "none", "pca", "regression", "logistic", *_GLMS, "mixture", "ising")
_NEEDS_TARGET = ("regression", "logistic", *_GLMS)


@dataclass(frozen=True)
class FitRequest:
    """A fit, or effects (`exposure`, `reference`), as the command line asks for them; see `rca fit --help` for the fields."""

    data: Sequence[Path]
    views: Sequence[str] = ()
    positive: str | None = None
    covariates: Sequence[str] = ()
    groups: str | None = None
    key: str | None = None
    rank: str = "auto"
    order: int = 4
    missing: str = "drop"
    header: bool | None = None
    seed: int = 0
    command: str = ""
    sets: Sequence[str] = ()
    discover: bool = False
    target: str | None = None
    model: str = "auto"
    method: str = "efficient"
    component: str | None = None
    components: int | None = None
    exposure: str = ""
    reference: str | None = None


@dataclass(frozen=True)
class FitResult:
    """The fitted model (a ContrastiveRCA, an RCA or a learner), and what was found."""

    model: Any
    findings: Findings


def run_fit(request: FitRequest, *, progress: bool = False) -> FitResult:
    """Read, select, fit and say what was found. Warnings of the library become the findings' notes."""
    chosen, made = _read(request, request.target, "the target")
    model = _model(request, chosen, _rca(request, chosen.views))
    if isinstance(model, ComponentLogisticRegression) and chosen.y is not None and chosen.y.dtype.kind == "f":
        at = chosen.X.column_names.index(request.target)  # two numbers are two classes
        chosen = replace(chosen, X=chosen.X.set_column(at, request.target, _as_labels(chosen.X[request.target])))
    return _found(model, chosen, request.target, request.target or "y", made, progress)


def run_effects(request: FitRequest) -> FitResult:
    """The same for effects of an exposure; what identification and the controls say is in the verdict, and is no note."""
    chosen, made = _read(request, request.exposure, "the exposure")
    if len(chosen.views) != 2:
        raise DataError(f"effects take two views, tests and controls: --views names {len(chosen.views)}")
    y, reference = _exposure(request, chosen)
    model = ExposureEffects(_rca(request, chosen.views), reference=reference)
    return _found(model, chosen, y, request.exposure, made, False)


def _read(request: FitRequest, target: str | None, role: str) -> tuple[Selection, Provenance]:
    if request.missing not in WAYS:
        raise DataError(f"--missing must be {', '.join(WAYS)}, got {request.missing!r}")
    rows = _open(request.data, request.key, request.header, outer=request.missing == "available")
    asked: dict[str, Any] = {"covariates": request.covariates, "groups": request.groups, "key": request.key}
    chosen = select(rows, request.views, target=target, missing=request.missing, role=role, **asked)
    files, date = {str(path): digest(path) for path in rows.files}, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return chosen, Provenance(command=request.command, files=files, seed=request.seed, date=date)


def _found(model: Any, chosen: Selection, y: Any, outcome: str, made: Provenance, progress: bool) -> FitResult:
    """What a fit warns of is a note, unless the verdict, alarms or advice say it."""
    with warnings.catch_warnings(record=True) as caught:  # the findings fit other methods, which warn again
        warnings.simplefilter("always")
        if isinstance(model, ExposureEffects):
            warnings.simplefilter("ignore", WeakIdentificationWarning)
            warnings.simplefilter("ignore", SpecificationWarning)
        model.fit(chosen.X, y, groups=chosen.groups)
        findings = Findings.of(model, chosen.X, y, outcome=outcome, provenance=made, progress=progress)
    told = [str(w.message) for w in caught if w.category.__module__.startswith("richcomponents")]
    gaps = filter(None, [getattr(model, "rca_", model).fitted_.gap_note])
    return FitResult(model, findings.noting([*chosen.notes, *gaps, *told, *findings.notes]))


def _exposure(request: FitRequest, chosen: Selection) -> tuple[Any, str | None]:
    """The exposure as a table of one named column, and the class that others are compared with."""
    import pyarrow

    name, positive, reference, y = request.exposure, request.positive, request.reference, chosen.y
    assert y is not None
    column = chosen.X[name]
    if positive is None and reference is None:
        return pyarrow.table({name: column}), None
    if y.dtype.kind in "biuf":
        if len(np.unique(y)) != 2:
            option = "--positive" if positive is not None else "--reference"
            raise DataError(f"{option} names a class, and the exposure {name!r} holds numbers: leave it out")
        column = _as_labels(column)
    if positive is not None:
        classes = sorted(map(str, set(column.drop_null().to_pylist())))
        others = [label for label in classes if label.casefold() != positive.casefold()]
        if len(classes) != 2:
            raise DataError(
                f"--positive names one of two classes, and the exposure {name!r} holds {len(classes)} ({listed(classes)}): "
                "each is compared with the one that --reference names"
            )
        if len(others) != 1:
            raise DataError(f"--positive {positive} is not a class of {name!r}, which holds {listed(classes)}")
        if reference is not None and reference.casefold() != others[0].casefold():
            raise DataError(
                f"--positive {positive} is compared with {others[0]!r}: leave out --reference, or name that class"
            )
        reference = others[0]
    return pyarrow.table({name: column}), reference


def _as_labels(column: Any) -> Any:
    """Numbers as texts, gaps as they are."""
    import pyarrow

    values = column.to_pylist()
    return pyarrow.array([None if value is None or value != value else f"{value:.15g}" for value in values])


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """A table of results (effects, coefficients, parameters), everything that is known of each, in full precision."""
    with table_writing(path) as append:
        append({title: [row[title] for row in rows] for title in rows[0]})


def explained(model: Any) -> str:
    """What a fitted model says of itself, in words."""
    if not hasattr(model, "summary"):
        raise DataError(f"a {type(model).__name__} is no model: save one with rca fit ... --save, or model.save(path)")
    return str(model.summary())


def write_component(
    model: Any, data: Sequence[Path], out: Path, component: str | None, key: str | None, header: bool | None
) -> str:
    """The prediction of a component for every row of a table, as a table; what is to be said of it."""
    rca = getattr(model, "rca_", model)
    if not hasattr(rca, "predict_component"):
        raise DataError(f"a {type(model).__name__} has no components: fit one of a table first, and save it (--save)")
    if component is not None and not all(isinstance(name, str) for name in rca.components_):
        component = tuple(component.split("+"))  # type: ignore[assignment]
    if component is not None and component not in rca.components_:
        known = ", ".join(map(title_of, rca.components_))
        raise DataError(f"the model has no such component: its components are {known}")
    chosen = rca.fitted_.key(component)
    return _answered(rca, component_columns(rca, chosen), data, out, key, header, f"Component {title_of(chosen)}")


def write_predictions(model: Any, data: Sequence[Path], out: Path, key: str | None, header: bool | None) -> str:
    """What a learner predicts for every row of a table, as a table; what is to be said of it."""
    return _answered(model, prediction_columns(model), data, out, key, header, "Predictions")


def _answered(
    model: Any, answer: Answer, data: Sequence[Path], out: Path, key: str | None, header: bool | None, label: str
) -> str:
    opened = _open(data, key, header)
    rows = rows_of_fit(model, opened)
    labels: dict[str, Any] = {}
    if key is not None:
        labels = opened.read([key], [key])
    elif (samples := getattr(opened.source, "samples", None)) is not None:
        labels = {"sample": np.array(samples, dtype=object)}
    clash = next((name for name in labels if name in map(str, getattr(model, "feature_names_in_", ()))), None)
    if clash is not None:
        raise DataError(f"the labels and a column of the model are both called {clash!r}: rename one")
    missing = write_answers(out, rows, answer, labels, label)
    gaps = [f"{missing} rows have missing values: their cells are empty."] if missing else []
    return "\n".join(
        [*(f"note: {note}" for note in (*opened.source.notes, *gaps)), f"{label} of every row: see {out}."]
    )


def _open(data: Sequence[Path], key: str | None, header: bool | None, *, outer: bool = False) -> Rows:
    """outer : of several files matched by a key, also the samples that only some of them have."""
    files: Any = data[0] if len(data) == 1 else names_of_files(data)
    return open_source(files, id=key, header=header, align="outer" if outer and key and len(data) > 1 else None)


def _is_general(request: FitRequest, views: Mapping[str, object]) -> bool:
    return len(views) > 2 or bool(request.sets) or request.discover


def _rca(request: FitRequest, views: dict[str, Any]) -> Any:
    """Contrastive for two views; any subsets of views for more, or where subsets are named or looked for."""
    both: dict[str, Any] = {"views": views, "covariates": request.covariates or None, "missing": request.missing}
    both |= {"method": request.method, "order": request.order, "random_state": request.seed}
    rank = request.rank
    if _is_general(request, views):
        sets = [tuple(name.split("+")) for name in request.sets] or None
        return RCA(sets=sets, discover=request.discover, rank=_ranks(rank), **both)
    if rank not in ("auto", "full") and not rank.isdecimal():
        raise DataError(f"--rank must be auto, full or a whole number, got {rank!r}")
    return ContrastiveRCA(rank=int(rank) if rank.isdecimal() else rank, **both)


def _ranks(rank: str) -> dict[Any, int] | None:
    """{subset: its rank} of what --rank says of components of many views: a+b=1,a+b+c=2."""
    out: dict[Any, int] = {}
    for part in names_in(rank) if rank != "auto" else ():
        name, found, number = part.rpartition("=")
        if not found or not number.isdecimal():
            raise DataError(
                "--rank of three or more views, or with --sets or --discover, says how many directions components have, such "
                f"as a+b=1,a+b+c=2; got {part!r}"
            )
        out[tuple(name.split("+"))] = int(number)
    return out or None


def _model(request: FitRequest, chosen: Selection, rca: Any) -> Any:
    """The unfitted model that was asked for."""
    kind = _kind(request, chosen.y)
    component: Any = request.component
    if _is_general(request, chosen.views):
        component = (next(iter(chosen.views)),) if component is None else tuple(component.split("+"))
    of: dict[str, Any] = {"rca": rca, "component": component or "S1"}
    paper: dict[str, Any] = {"method": "paper"} if request.method == "paper" else {}
    if kind == "pca":
        return ComponentPCA(request.components or 1, **of)
    if kind == "mixture":
        return ComponentGaussianMixture(request.components or "auto", random_state=request.seed, **of, **paper)
    if kind == "ising":
        return ComponentIsing(random_state=request.seed, **of, **paper)
    if kind == "regression":
        return ComponentRegression(**of)
    if kind == "logistic":
        return ComponentLogisticRegression(positive=request.positive, **of, **paper)
    if kind in _GLMS:
        return ComponentGLM(_GLMS[kind], **of)
    return rca


def _kind(request: FitRequest, y: Any) -> str:
    """Which model is meant; refuses what does not go together."""
    kind = request.model
    if kind not in MODELS:
        raise DataError(f"--model must be one of {', '.join(MODELS)}, got {kind!r}")
    if kind == "auto":
        two = y is not None and (y.dtype.kind not in "biuf" or len(np.unique(y)) == 2)
        kind = "none" if y is None else "logistic" if two else "regression"
    if kind in _NEEDS_TARGET and y is None:
        raise DataError(f"--model {kind} needs an outcome: name its column with --target")
    if kind not in _NEEDS_TARGET and y is not None:
        raise DataError(
            f"--model {kind} has no outcome: leave out --target, or use --model {', '.join(_NEEDS_TARGET[:-1])} or "
            f"{_NEEDS_TARGET[-1]}"
        )
    if request.components is not None and kind not in ("pca", "mixture"):
        raise DataError("--components goes with --model pca or mixture")
    if request.component is not None and kind == "none":
        raise DataError("--component says what a model is of: name one with --model, or a --target")
    if request.positive is not None and kind != "logistic":
        raise DataError(
            "--positive names one of two classes: it goes with --model logistic and a --target of two values"
        )
    if kind == "regression" and y.dtype.kind != "f":
        raise DataError(
            f"the target {request.target!r} holds text ({str(y[first_text(y) or 0])!r}): use --model logistic for two "
            "classes, or encode it as numbers"
        )
    if kind == "logistic" and (count := len(np.unique(y.astype(np.str_)))) != 2:
        advice = "use --model regression (or poisson, for counts)" if y.dtype.kind == "f" else "use --model multinomial"
        raise DataError(
            f"the target {request.target!r} has {count} different values, --model logistic needs two: {advice}"
        )
    return kind


# ---- data with known truth


_TRUTH = ("A", "beta", "direction", "cov_S1", "centres", "weights", "edges", "couplings")


def simulate(out: Path, truth: Path | None = None, **design: Any) -> Contrastive:
    """Write views with known truth: columns U_0.., V_0.. and y (matrices U, V and vector y in an .npz).

    truth : a JSON file for A and what is known of S1: covariance, beta, direction; centres and weights of a mixture; edges
    and couplings of an Ising model (null where there is none). design : as for `datasets.make_contrastive`.
    """
    kind = out.suffix.lower()
    if kind not in (".csv", ".tsv", ".npz", ".parquet"):
        raise DataError(f"cannot write {out.name}: its name must end in .csv, .tsv, .npz or .parquet")
    check_outputs([out, truth])
    data = make_contrastive(**design)
    outcome: dict[str, Any] = {} if data.y is None else {"y": data.y}
    columns = {f"{view}_{i}": x for view, X in (("U", data.U), ("V", data.V)) for i, x in enumerate(X.T)} | outcome
    if kind == ".npz":
        with writing(out) as file:
            np.savez_compressed(file, U=data.U, V=data.V, **outcome)
    else:
        with table_writing(out) as append:
            append(columns)
    if truth is not None:
        hidden = {name: getattr(data, name) for name in _TRUTH}
        plain = {name: None if value is None else value.tolist() for name, value in hidden.items()}
        write_text(truth, json.dumps(plain, indent=1))
    return data
