"""What a fit found, gathered once: the HTML page, the JSON and the printed tables read the same numbers."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

import richcomponents.baselines as baselines
from richcomponents.algebra import Array
from richcomponents.contrastive.decomposition import VarianceTable
from richcomponents.contrastive.diagnostics import Diagnostics
from richcomponents.contrastive.specification import TestResult
from richcomponents.cumulants.estimate import odds_ratios
from richcomponents.models import (
    ComponentGaussianMixture,
    ComponentIsing,
    ComponentLogisticRegression,
    ComponentPCA,
    ComponentRegression,
    ContrastiveRCA,
)
from richcomponents.models.base import ComponentLearner
from richcomponents.models.classes import Contrast
from richcomponents.models.estimator import as_fitted

__all__ = ["Findings", "OutcomeTable", "Provenance", "gather"]


@dataclass(frozen=True)
class Provenance:
    """How to come to the same page again.

    command : as typed; files : {path: SHA-256}; seed : random_state; date : when it was made, as text.
    """

    command: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    date: str = ""

    @staticmethod
    def versions() -> dict[str, str]:
        """Versions of what computed the numbers."""
        import scipy
        import sklearn

        from richcomponents import __version__

        return {
            "richcomponents": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "scikit-learn": sklearn.__version__,
        }


@dataclass(frozen=True)
class OutcomeTable:
    """Coefficients of the outcome on the columns of U, by method; arrays are (d_u,).

    naive : on U as it is; residualised : V as covariates; estimate : on S1. low, high, p_value : nan with a penalty.
    truth : known in simulations only. unit : what a coefficient is the change of. contrast : the two classes of a logistic
    regression, whose table also holds odds ratios.
    """

    outcome: str
    unit: str
    names: tuple[str, ...]
    naive: Array
    residualised: Array
    estimate: Array
    standard_error: Array
    low: Array
    high: Array
    p_value: Array
    test: TestResult
    truth: Array | None = None
    contrast: Contrast | None = None

    @property
    def event(self) -> str:
        """What the coefficients speak for: the outcome, or its positive class."""
        return self.outcome if self.contrast is None else f"{self.outcome} = {self.contrast.positive}"

    def methods(self) -> dict[str, Array]:
        """Estimates by method, the truth last."""
        out = {"naive": self.naive, "residualised": self.residualised, "RCA": self.estimate}
        return out if self.truth is None else {**out, "truth": self.truth}

    def rows(self) -> list[dict[str, object]]:
        """One dict per column of U, ready for a data frame."""
        columns = {
            **self.methods(),
            "standard error": self.standard_error,
            "low": self.low,
            "high": self.high,
            "p": self.p_value,
        }
        if self.contrast is not None:
            columns |= odds_ratios(self.estimate, self.low, self.high)
        return [{"name": n, **{k: float(v[i]) for k, v in columns.items()}} for i, n in enumerate(self.names)]


@dataclass(frozen=True)
class Findings:
    """All that is said about one fit.

    views : {name: column names}, U first. A : (d_v, d_u), None where nobody could read it. outcome : None without a target.
    detail : title and rows of what another learner found (directions, means, couplings); picture : draws it on
    an Axes. notes : warnings raised on the way, as sentences.
    """

    n: int
    views: dict[str, tuple[str, ...]]
    covariates: tuple[str, ...]
    diagnostics: Diagnostics
    variance: VarianceTable
    A: Array | None
    outcome: OutcomeTable | None = None
    detail: tuple[str, list[dict[str, object]]] | None = None
    picture: Callable[[Any], Any] | None = None
    notes: tuple[str, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)

    @property
    def shared_share(self) -> float:
        """Mean over the columns of U of Var(S2) / Var(U): free of units."""
        return float(np.mean(self.variance.shared_share))

    def headline(self) -> str:
        """The verdict in one or two sentences."""
        first = next(iter(self.views))
        verdict = self.diagnostics.verdict
        share = f"{self.shared_share:.0%}"
        if verdict == "nothing shared":
            return f"No part shared with the controls was found: {first} is taken as it is."
        if verdict == "not identified":
            return (
                f"At least {share} of the variance of {first} is shared (average over its columns). How much more cannot be "
                "told from these data: the results equal those of adding the controls as covariates."
            )
        sure = {
            "strong": "Identification is strong.",
            "weak": "Identification is weak: the results lean on those of adding the controls as covariates.",
            "known mixing": "The mixing matrix A was given.",
            "paper": "The paper's formulas were used, which do not say how sure they are.",
        }
        return f"The shared part explains {share} of {first} (average over its columns). {sure.get(verdict, verdict)}"

    def question(self) -> str:
        """What was asked, in one sentence."""
        (u, columns_u), (v, columns_v) = self.views.items()
        asked = (
            f"What is specific to the {_count(columns_u, 'column')} of {_role(u, 'U')}, once what they share with the "
            f"{_count(columns_v, 'column')} of {_role(v, 'V')} is removed? {self.n} samples"
        )
        if self.covariates:
            asked += f"; removed from both first: {', '.join(self.covariates)}"
        if self.outcome is not None:
            against = "" if self.outcome.contrast is None else f", {self.outcome.contrast}"
            asked += f"; outcome: {self.outcome.outcome}{against}"
        return asked + "."

    def as_dict(self) -> dict[str, object]:
        """Plain numbers, lists and strings; what is not finite becomes None."""
        d = self.diagnostics
        contrast = None if self.outcome is None else self.outcome.contrast
        found: dict[str, object] = {
            "headline": self.headline(),
            "verdict": d.verdict,
            "advice": d.advice(),
            "notes": list(self.notes),
            "n": self.n,
            "views": self.views,
            "covariates": list(self.covariates),
            "rank": d.rank,
            "canonical_correlations": d.canonical_correlations,
            "shared_share": self.shared_share,
            "strength": d.strength,
            "gate": d.gate,
            "condition_A": d.condition_A,
            "leftover_p": d.leftover.p_value,
            "overidentification_p": None if d.overidentification is None else d.overidentification.p_value,
            "variance": self.variance.rows(),
            "A": self.A,
            "coefficients": None if self.outcome is None else self.outcome.rows(),
            "outcome": None if self.outcome is None else self.outcome.outcome,
            "positive": None if contrast is None else contrast.positive,
            "classes": None if contrast is None else contrast.rows(),
            "outcome_on_V_p": None if self.outcome is None else self.outcome.test.p_value,
            "model": None if self.detail is None else {"title": self.detail[0], "rows": self.detail[1]},
            "provenance": {
                "command": self.provenance.command,
                "files": dict(self.provenance.files),
                "seed": self.provenance.seed,
                "date": self.provenance.date,
                "versions": Provenance.versions(),
            },
        }
        plain = _plain(found)
        assert isinstance(plain, dict)
        return plain


def _count(items: Sequence[object], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def _role(view: str, letter: str) -> str:
    return view if view == letter else f"{view} ({letter})"


def _plain(value: object) -> object:
    """JSON's own types; nan and infinities become None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value if value is None else str(value)


# ---- from a fitted model


_NO_REPORT = "a report is made of a ContrastiveRCA or a learner of its components, got {}"


def gather(
    model: Any,
    X: object = None,
    y: object = None,
    *,
    names: Sequence[str] | None = None,
    outcome: str = "y",
    truth: Array | None = None,
    notes: Sequence[str] = (),
    provenance: Provenance | None = None,
    progress: bool = False,
) -> Findings:
    """The findings of a fitted ContrastiveRCA or learner.

    X, y : the rows it was fitted to, for the naive coefficients of a regression. names : column names of X, where X has
    none. outcome : name of y. truth : known coefficients (d_u,), in simulations. progress : show a bar (stderr).
    """
    if not isinstance(model, (ContrastiveRCA, ComponentLearner)):
        raise TypeError(_NO_REPORT.format(type(model).__name__))
    check_is_fitted(model)
    model = as_fitted(model)
    rca = model if isinstance(model, ContrastiveRCA) else model.rca_
    if rca is None:
        raise ValueError("a report needs the views: fit the learner with fit(X), not fit_component(component)")
    if not isinstance(rca, ContrastiveRCA):
        raise TypeError(_NO_REPORT.format(f"{type(model).__name__} of {type(rca).__name__}"))
    own = rca.views_.feature_names if names is None else tuple(map(str, names))
    views = {view: tuple(own[i] for i in rca.views_[view]) for view in rca.views_}
    names_u = next(iter(views.values()))
    table = rca.variance_table(progress=progress)
    variance = VarianceTable(names_u, *(getattr(table, f) for f in _ARRAYS))
    found = None
    if isinstance(model, (ComponentRegression, ComponentLogisticRegression)):
        if X is None or y is None:
            raise ValueError("the findings of a regression need the rows it was fitted to: give X and y")
        found = _outcome_table(model, rca, X, y, names_u, outcome, truth)
        notes = [*notes, *(found.contrast.notes() if found.contrast else ())]
    return Findings(
        n=rca.diagnostics_.n,
        views=views,
        covariates=tuple(own[i] for i in rca._covariate_columns),
        diagnostics=rca.diagnostics_,
        variance=variance,
        A=rca.A_ if len(rca._u) * len(rca._v) <= _MOST_ENTRIES else None,
        outcome=found,
        detail=_detail(model, views),
        picture=_picture(model, views),
        notes=tuple(notes),
        provenance=Provenance(seed=rca.random_state) if provenance is None else provenance,
    )


_MOST_ENTRIES = 10_000_000  # of A in a report
_LIMITS = ("standard error", "low", "high", "p")
_ARRAYS = ("total", "own", "shared", "low", "high", "identified_low", "identified_high")


def _outcome_table(
    model: Any, rca: ContrastiveRCA, X: object, y: object, names: tuple[str, ...], outcome: str, truth: Array | None
) -> OutcomeTable:
    logistic = isinstance(model, ComponentLogisticRegression)
    target = y
    unit = f"change of {outcome} per unit"
    contrast = model.contrast if logistic else None
    if contrast is not None:
        target = (np.asarray(y) == model.positive_).astype(np.float64)
        unit = f"change of the log-odds of {outcome} = {contrast.positive} per unit"
    table, unknown = model.coefficients_, np.full(len(names), np.nan)
    fitted = {"positive": model.positive_} if logistic else {"alpha": model.alpha_}
    learner = clone(model).set_params(**fitted)
    naive = baselines.naive(learner, X, y)
    return OutcomeTable(
        outcome=outcome,
        unit=unit,
        names=names,
        naive=np.ravel(naive.coef_),
        residualised=model.residualised_,
        estimate=np.ravel(model.coef_),
        standard_error=unknown if table is None else table.standard_error,
        low=unknown if table is None else table.low,
        high=unknown if table is None else table.high,
        p_value=unknown if table is None else table.p_value,
        test=rca.outcome_test(X, target),
        truth=truth,
        contrast=contrast,
    )


def _coordinates(model: Any, views: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Column names of the component that was learned: S3 lives in V's columns."""
    view_u, view_v = views.values()
    return view_v if model.component == "S3" else view_u


def _picture(model: Any, views: dict[str, tuple[str, ...]]) -> Callable[[Any], Any] | None:
    if not isinstance(model, (ComponentPCA, ComponentGaussianMixture, ComponentIsing)):
        return None
    names = _coordinates(model, views)
    return lambda ax: model.plot(names=names, ax=ax)


def _detail(model: Any, views: dict[str, tuple[str, ...]]) -> tuple[str, list[dict[str, object]]] | None:
    """Title and rows of what a learner without an outcome found."""
    if isinstance(model, ContrastiveRCA):
        return None
    names = _coordinates(model, views)
    if isinstance(model, ComponentPCA):
        rows: list[dict[str, object]] = [
            {"name": n, **{f"direction {k + 1}": float(v[i]) for k, v in enumerate(model.components_)}}
            for i, n in enumerate(names)
        ]
        shares = ", ".join(f"{share:.0%}" for share in model.explained_variance_ratio_[:10])
        return f"Principal directions of {model.component} (share of its variance: {shares})", rows
    if isinstance(model, ComponentGaussianMixture):
        titles = [f"mean {k + 1} (weight {w:.2f})" for k, w in enumerate(model.weights_)]
        rows = [
            {"name": n, **{title: float(mean[i]) for title, mean in zip(titles, model.means_, strict=True)}}
            for i, n in enumerate(names)
        ]
        spread = math.sqrt(model.sigma2_)
        return f"Mixture of {model.n_components_} spherical Gaussians, standard deviation {spread:.3g}", rows
    if isinstance(model, ComponentIsing):
        rows = [
            {"node": names[i], "neighbour": names[j], "coupling": float(c)}
            for (i, j), c in zip(model.edges_.tolist(), model.coef_, strict=True)
        ]
        if model.method_ == "joint" and model.rca_.diagnostics_.gate > 0:  # one step per block; otherwise twenty refits
            limits = model.confidence_interval().rows()[: len(rows)]
            rows = [row | {key: limit[key] for key in _LIMITS} for row, limit in zip(rows, limits, strict=True)]
        return f"Couplings of the Ising model of {model.component} (method {model.method_})", rows
    return None
