"""Two views with all three subsets: the contrastive model in the words of the general one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.components.sets import Subset
from richcomponents.data.views import Views
from richcomponents.general.solution import component_name
from richcomponents.models.contrastive import ContrastiveRCA

__all__ = ["Pair", "contrastive_names", "in_general_words"]


@dataclass(frozen=True)
class Pair:
    """transforms_, components_ and variance_shares_ of an RCA."""

    transforms: dict[tuple[str, Subset], Array]
    components: dict[Subset, Component]
    shares: dict[tuple[str, Subset], float]


def contrastive_names(views: Views) -> dict[Subset, str]:
    """{subset: "S1", "S2" or "S3"}."""
    first, second = views
    return {(first,): "S1", (first, second): "S2", (second,): "S3"}


def in_general_words(model: ContrastiveRCA, views: Views) -> Pair:
    """A fitted contrastive model as components of subsets of its two views."""
    first, second = views
    both = (first, second)
    d_u, d_v = len(views[first]), len(views[second])
    transforms = {
        (first, (first,)): np.eye(d_u),
        (first, both): np.eye(d_u),
        (second, both): model.A_,
        (second, (second,)): np.eye(d_v),
    }
    components = {}
    for q, name in contrastive_names(views).items():
        names = tuple(views.feature_names[column] for column in views[q[0]])
        components[q] = replace(model.components_[name], name=component_name(q), feature_names=names)
    own_u, own_v = (float(components[view,].spread.trace()) for view in both)
    shared = float(components[both].spread.trace())
    total_u, total_v = own_u + shared, float(model._solution.cov_v.trace())
    shares = {
        (first, (first,)): own_u / total_u,
        (first, both): shared / total_u,
        (second, both): 1 - own_v / total_v,
        (second, (second,)): own_v / total_v,
    }
    return Pair(transforms, components, shares)
