"""What blocks of samples say: the number of components by cross-validation, standard errors by leaving out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from richcomponents.components import Component, CumulantSource
from richcomponents.learning.mixture.matching import MomentMatching, fit_mixture, refine
from richcomponents.learning.mixture.target import Mixture, Target, match_centres, positive_part

__all__ = ["choose_components", "matched", "replicates"]


def choose_components(
    component: Component,
    rng: np.random.Generator,
    *,
    candidates: Sequence[int] | None = None,
    equal_weights: bool = False,
    n_init: int = 5,
    n_folds: int = 5,
) -> tuple[int, dict[int, float]]:
    """k by cross-validation over blocks of samples, and the criterion of each candidate.

    A mixture with k components is fitted to the cumulants of all folds but one (all maps held fixed), and
    its distance F (:class:`MomentMatching`) to the cumulants of that fold is taken. k is the smallest whose mean distance
    is within one standard error, of the difference over folds, of the best. Folds of fewer than ten samples say nothing
    about cumulants of order three: k = 1. Where there are no blocks (exact cumulants): the smallest k with F below one
    thousandth of that of one component, else the best.
    """
    sizes = list(range(1, len(component.mean) + 1)) if candidates is None else list(candidates)
    whole = Target.of(component)
    source = component.source
    if len(sizes) == 1 or whole.n < 10 * n_folds:
        return sizes[0], {sizes[0]: float("nan")}
    if source is None or len(source.blocks) < 2 * n_folds:
        fits = {k: fit_mixture(whole, k, rng, equal_weights=equal_weights, n_init=n_init).objective for k in sizes}
        enough = [k for k in sizes if fits[k] <= 1e-3 * fits[sizes[0]]]
        return (enough[0] if enough else min(sizes, key=lambda k: fits[k])), fits
    blocks = source.blocks
    distance = np.zeros((n_folds, len(sizes)))
    for fold in range(n_folds):
        held = blocks[fold::n_folds]
        train = _restricted(component, source, held, whole)
        test = _restricted(component, source, [b for b in blocks if b not in held], whole)
        for i, k in enumerate(sizes):
            mixture = fit_mixture(train, k, rng, equal_weights=equal_weights, n_init=n_init)
            objective = MomentMatching(replace(test, n=float("inf")), k)
            distance[fold, i] = objective(objective.pack(mixture))[0]
    mean = distance.mean(axis=0)
    best = int(mean.argmin())
    excess = distance - distance[:, [best]]
    error = excess.std(axis=0, ddof=1) / np.sqrt(n_folds)
    chosen = int(np.flatnonzero(excess.mean(axis=0) <= error)[0])
    return sizes[chosen], {k: float(mean[i]) for i, k in enumerate(sizes)}


def _restricted(component: Component, source: CumulantSource, gone: Sequence[int], whole: Target) -> Target:
    """The target without some blocks: same maps, same weights of the alternatives, in the units of the whole.

    The covariance moves as :meth:`Component.measured_on` says.
    """
    part = CumulantSource(source.moments.without(gone), unbiased=source.unbiased)
    less = component.measured_on(part, 3 if whole.fourth is None else 4)
    return Target(
        positive_part(less.covariance),
        less.cumulant(3),
        None if whole.fourth is None else less.cumulant(4),
        whole.scale,
        float(part.n),
    )


def matched(found: Mixture, like: Mixture) -> Mixture:
    """The components of `found` in the order that comes nearest to those of `like`."""
    order, _ = match_centres(found.means, like.means)
    return replace(found, means=found.means[order], weights=found.weights[order])


def replicates(component: Component, mixture: Mixture, *, equal_weights: bool = False) -> list[Mixture]:
    """The mixture without each block of samples, labels matched: moment matching from the full fit; empty without blocks.

    The maps from the views to the component are those of the full sample.
    """
    source = component.source
    if source is None or len(source.blocks) < 2:
        return []
    whole = Target.of(component)
    return [
        matched(refine(_restricted(component, source, [block], whole), mixture, equal_weights=equal_weights), mixture)
        for block in source.blocks
    ]
