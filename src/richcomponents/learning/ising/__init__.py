"""Ising models from moments: P(s) = exp(sum_ij J_ij s_i s_j + sum_i b_i s_i) / Z, spins s in {-1, 1}^d on a graph."""

from richcomponents.learning.ising.fits import (
    MAX_COUPLING,
    NEWTON_EDGES,
    bounded_minimum,
    fit_joint,
    fit_pair_moments,
    joint_change,
    pair_change,
)
from richcomponents.learning.ising.model import (
    Elimination,
    Gibbs,
    SpinMoments,
    as_edges,
    coupling_matrix,
    grid_edges,
    moment_model,
    neighbours,
    unit_diagonal,
    whitened_moments,
    with_ghost,
)

__all__ = [
    "MAX_COUPLING",
    "NEWTON_EDGES",
    "Elimination",
    "Gibbs",
    "SpinMoments",
    "as_edges",
    "bounded_minimum",
    "coupling_matrix",
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
