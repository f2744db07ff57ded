"""Ising models from moments: P(s) = exp(sum_ij J_ij s_i s_j + sum_i b_i s_i) / Z, spins s in {-1, 1}^d on a graph."""

from richcomponents.learning.ising.composite import (
    Neighbourhoods,
    composite_from_component,
    composite_likelihood,
    fit_composite,
)
from richcomponents.learning.ising.fits import (
    MAX_COUPLING,
    NEWTON_EDGES,
    fit_joint,
    fit_pair_moments,
    joint_change,
    pair_change,
)
from richcomponents.learning.ising.graph import as_edges, coupling_matrix, grid_edges, neighbours, with_ghost
from richcomponents.learning.ising.moments import SpinMoments, unit_diagonal, whitened_moments
from richcomponents.learning.ising.sums import Elimination, Gibbs, moment_model

__all__ = [
    "MAX_COUPLING",
    "NEWTON_EDGES",
    "Elimination",
    "Gibbs",
    "Neighbourhoods",
    "SpinMoments",
    "as_edges",
    "composite_from_component",
    "composite_likelihood",
    "coupling_matrix",
    "fit_composite",
    "fit_joint",
    "fit_pair_moments",
    "grid_edges",
    "joint_change",
    "moment_model",
    "neighbours",
    "pair_change",
    "unit_diagonal",
    "whitened_moments",
    "with_ghost",
]
