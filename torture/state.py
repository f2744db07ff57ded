"""A refit that fails, however and wherever it fails, leaves the model as it was: its state, its file, its answers.

A fitted model is fitted again: to a bad table (see `doors`), with parameters that do not go with the data, with warnings that
are errors, or while the linear algebra under it gives out after a random number of calls. If that fails, nothing may have
changed, to the bit; if it succeeds, the model must be what a new one would be. Between fits, set_params changes no answer.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any
from unittest import mock

import numpy as np
from sklearn.base import clone

import richcomponents as rc
from torture.doors import REFUSED, clean
from torture.files import fingerprint
from torture.harness import fault, judged, limit_memory, refused, right

TIMEOUT = 120.0
CAP = 3 * 2**30


def _contrastive(**options: Any) -> Any:
    return rc.ContrastiveRCA(**{"views": 2, "n_blocks": 10, **options})


# name -> (a new model, {door: how to fit it to a table}, {parameter: values that are refused, or change what is fitted})
MODELS: dict[str, tuple[Callable[[], Any], dict[str, Callable[[Any, Any], Any]], dict[str, list[Any]]]] = {
    "ContrastiveRCA": (
        _contrastive,
        {
            "fit": lambda model, X: model.fit(X),
            "fit(iterator)": lambda model, X: model.fit(iter([X])),
            "fit_views": lambda model, X: model.fit_views([X[:, :2], X[:, 2:]]),
            "fit_moments": lambda model, X: model.fit_moments(rc.Moments.of(X, 4)),
            "partial_fit": lambda model, X: model.partial_fit(X),
        },
        {"order": [3, 7], "n_blocks": [3, 15], "method": ["paper", "none"], "A": [np.eye(3), np.eye(2)], "rank": [1, 9],
         "views": [{"a": [0], "b": [1, 3]}, 9, None], "mean": [{"S2": [1.0, 2.0]}, {"S2": [1.0]}], "covariates": [[3], [9]]},
    ),
    "RCA": (
        lambda: rc.RCA(views={"a": [0], "b": [1], "c": [2, 3]}, sets=[("a", "b", "c"), ("a",), ("b",), ("c",)], n_blocks=10),
        {"fit": lambda model, X: model.fit(X), "fit_moments": lambda model, X: model.fit_moments(rc.Moments.of(X, 4))},
        {"order": [3, 7], "method": ["paper", "none"], "views": [2, None], "alpha": [2.0], "discover": [True]},
    ),
    "ComponentPCA": (
        lambda: rc.ComponentPCA(rca=_contrastive()),
        {"fit": lambda model, X: model.fit(X),
         "fit_component": lambda model, X: model.fit_component(rc.Component.of_samples(X))},
        {"n_components": [2, 7], "component": ["S3", "S9"], "rca": [None, _contrastive(views=1)]},
    ),
    "ComponentRegression": (
        lambda: rc.ComponentRegression(rca=_contrastive()),
        {"fit": lambda model, X: model.fit(X, X[:, 0] - X[:, 2]),
         "fit_component": lambda model, X: model.fit_component(rc.Component.of_samples(X), np.ones(X.shape[1]))},
        {"alpha": [1.0, -1.0], "l1_ratio": [0.5, 2.0], "component": ["S3"], "shared": [True, "no"],
         "rca": [None, _contrastive(views=3)]},
    ),
    "ComponentLogisticRegression": (
        lambda: rc.ComponentLogisticRegression(rca=_contrastive()),
        {"fit": lambda model, X: model.fit(X, X[:, 0] > X[:, 2] + 1),
         "fit_component": lambda model, X: model.fit_component(rc.Component.of_samples(X), np.full(X.shape[1], 0.1))},
        {"alpha": [1.0, -1.0], "approximation": ["chebyshev", "none"], "fit_intercept": [False], "method": ["paper"]},
    ),
    "ComponentGaussianMixture": (
        lambda: rc.ComponentGaussianMixture(1, rca=_contrastive(), n_init=1),
        {"fit": lambda model, X: model.fit(X),
         "fit_component": lambda model, X: model.fit_component(rc.Component.of_samples(X))},
        {"n_components": [2, 9], "component": ["S3", "S9"], "method": ["paper", "none"], "equal_weights": [True]},
    ),
    "ComponentIsing": (
        lambda: rc.ComponentIsing(rca=_contrastive(views=3)),
        {"fit": lambda model, X: model.fit(X),
         "fit_component": lambda model, X: model.fit_component(rc.Component.of_samples(X))},
        {"fields": [True, 3], "alpha": [1.0, -1.0], "method": ["paper", "none"], "edges": [[(0, 1)], [(0, 9)]],
         "component": ["S3"]},
    ),
}  # fmt: skip


def spins(rng: np.random.Generator) -> Any:
    """A table whose own part may be spins, so that every learner has something to learn."""
    shared = rng.exponential(size=(120, 3)) - 1
    own = rng.choice([-1.0, 1.0], size=(120, 3))
    return np.hstack([own + shared, shared @ rng.normal(size=(3, 1)) + 0.1 * rng.normal(size=(120, 1))])


def answers(model: Any, X: Any) -> list[Any]:
    """What the model says about itself and about rows, to the bit."""
    found: list[Any] = []
    for ask in ("summary", "transform", "predict", "confidence_interval"):
        method = getattr(model, ask, None)
        if method is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                said = method(X) if ask in ("transform", "predict") else method()
            except (ValueError, NotImplementedError) as error:  # a learner of a component has no rows to predict from
                said = str(error)
        found.append(_bits(said))
    return found


def _bits(said: Any) -> Any:
    if isinstance(said, np.ndarray):
        return said.shape, said.tobytes()
    if is_dataclass(said):
        return [_bits(getattr(said, field.name)) for field in fields(said)]
    return repr(said)


def state(model: Any) -> tuple[str, bytes]:
    """The state as a saved file holds it, and as pickle does."""
    return fingerprint(model), pickle.dumps(model)


def _gives_out(calls: int, error: type[BaseException]) -> Any:
    """numpy's eigendecomposition fails after so many calls, wherever the fit is then."""
    real, left = np.linalg.eigh, [calls]

    def eigh(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise error("the linear algebra has given out")
        return real(*args, **options)

    return mock.patch.object(np.linalg, "eigh", eigh)


def refit(model: Any, fit: Callable[[Any, Any], Any], rng: np.random.Generator, X: Any, parameters: Any) -> str | None:
    """Fit again in some hostile way; returns the name of the error, or None when it went well."""
    way = int(rng.integers(5))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if way == 0:
                bad = REFUSED[str(rng.choice(list(REFUSED)))]
                fit(model, bad(X, int(rng.integers(len(X))), int(rng.integers(4))))
            elif way == 1:
                few = np.array(X[: int(rng.integers(1, 60))])
                few[:, int(rng.integers(4))] = 1.0
                warnings.simplefilter("error")
                fit(model, few)
            elif way == 2:
                with _gives_out(
                    int(rng.integers(12)), (MemoryError, KeyboardInterrupt, np.linalg.LinAlgError)[rng.integers(3)]
                ):
                    fit(model, X)
            else:
                name = str(rng.choice(list(parameters)))
                model.set_params(**{name: parameters[name][int(rng.integers(len(parameters[name])))]})
                fit(model, X)
    except (Exception, KeyboardInterrupt) as error:
        return type(error).__name__
    return None


def trial(seed: Any) -> tuple[str, str | None, str | None]:
    """(what was done, the error of the refit or None, a complaint or None)."""
    rng = np.random.default_rng(seed)
    name = str(rng.choice(list(MODELS)))
    new, ways, parameters = MODELS[name]
    make = spins if name == "ComponentIsing" else clean
    X, other = make(rng), make(rng)
    first, second = (str(door) for door in rng.choice(list(ways), 2))
    model = new()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ways[first](model, X)
    given, said, before = model.get_params(deep=False), answers(model, X), state(model)
    label = f"{name}.{first}, then {second}"
    error = refit(model, ways[second], rng, other, parameters)
    if error is not None:
        if answers(model, X) != said:
            return label, error, "answers differ after a refit that failed"
        model.set_params(**given)
        return label, error, None if state(model) == before else "the state differs after a refit that failed"
    if second == "partial_fit" and first == "partial_fit":
        return label, None, None  # it went on
    if any(model.get_params(deep=False)[p] is not v for p, v in given.items()):
        fresh = clone(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ways[second](fresh, other)
        if fingerprint(fresh) != fingerprint(model):
            return label, None, "a refit is not the fit of a new model"
    said, which = answers(model, X), str(rng.choice(list(parameters)))
    model.set_params(**{which: parameters[which][-1]})
    return label, None, None if answers(model, X) == said else f"set_params({which}=...) changed an answer"


def prepare(seed: int = 0) -> Callable[[int], dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _contrastive().fit(clean(np.random.default_rng(0)))  # compiled before the cap
    limit_memory(CAP)

    def run(case: int) -> dict[str, Any]:
        try:
            label, error, complaint = trial([seed, case])
        except Exception as error:
            return judged(error)
        if complaint is not None:
            return fault(f"{label}: {complaint} ({error})")
        return right(notes=["fitted again"]) if error is None else refused(error)

    return run
