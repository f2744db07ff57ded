"""Spherical Gaussian mixtures from cumulants alone."""

from richcomponents.learning.mixture.blocks import choose_components, matched, replicates
from richcomponents.learning.mixture.matching import MomentMatching, fit_mixture, refine
from richcomponents.learning.mixture.target import Mixture, Target, log_posterior, match_centres, mixture_cumulants
from richcomponents.learning.mixture.tensor import (
    alternating_minimisation,
    lifted_tensor,
    noise_variance,
    orthogonal_decomposition,
    tensor_start,
)

__all__ = [
    "Mixture",
    "MomentMatching",
    "Target",
    "alternating_minimisation",
    "choose_components",
    "fit_mixture",
    "lifted_tensor",
    "log_posterior",
    "match_centres",
    "matched",
    "mixture_cumulants",
    "noise_variance",
    "orthogonal_decomposition",
    "refine",
    "replicates",
    "tensor_start",
]
