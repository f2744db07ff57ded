"""The paper (Ge and Zou, Rich Component Analysis), literally: comes in tables U and V, go out its own estimates. One file per
section, no protection and no shrinkage; what every other room is tested against on exact cumulants, and what method="paper" of
the estimators calls. The page "The paper, line by line" of the documentation says which function is which equation."""

from richcomponents.algebra import multilinear, unfold
from richcomponents.components.sets import SetSystem
from richcomponents.paper.complexity import SampleComplexity, cumulant_bound, set_complexity, two_view_complexity
from richcomponents.paper.contrastive import (
    Extraction,
    component_cumulants,
    extract,
    mixing_matrix,
    polarised_cumulants,
    true_samples,
)
from richcomponents.paper.general import compute_cumulant, find_linear
from richcomponents.paper.gradient import chebyshev_gradient, contrastive_logistic, gradient_error_bound
from richcomponents.paper.ising import contrastive_ising, taylor_gradient
from richcomponents.paper.moments import contrastive_mixture, contrastive_pca, contrastive_regression

__all__ = [
    "Extraction",
    "SampleComplexity",
    "SetSystem",
    "chebyshev_gradient",
    "component_cumulants",
    "compute_cumulant",
    "contrastive_ising",
    "contrastive_logistic",
    "contrastive_mixture",
    "contrastive_pca",
    "contrastive_regression",
    "cumulant_bound",
    "extract",
    "find_linear",
    "gradient_error_bound",
    "mixing_matrix",
    "multilinear",
    "polarised_cumulants",
    "set_complexity",
    "taylor_gradient",
    "true_samples",
    "two_view_complexity",
    "unfold",
]
