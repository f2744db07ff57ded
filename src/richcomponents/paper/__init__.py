"""The paper (Ge and Zou, Rich Component Analysis), literally: tables U and V come in, its own estimates go out, unprotected.

Equation (2): mixing_matrix. Equations (3), (4), (5): component_cumulants, extract. Equations (8) to (10): polarised_cumulants.
Algorithm 1, Algorithm 2: find_linear. Algorithm 3: compute_cumulant. Definition 3.1: SetSystem. Section 4.1: contrastive_pca,
contrastive_regression, contrastive_mixture. Section 4.2: chebyshev_gradient, contrastive_logistic. Lemma 4.1:
gradient_error_bound. Appendix A: unfold, multilinear. Appendix B: cumulant_bound, two_view_complexity, set_complexity.
Appendix D: taylor_gradient, contrastive_ising. Figure 1, and what is read otherwise than printed: docs/paper-map.md.
"""

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
from richcomponents.paper.general import Linear, compute_cumulant, find_linear
from richcomponents.paper.gradient import SGDResult, chebyshev_gradient, contrastive_logistic, gradient_error_bound
from richcomponents.paper.ising import contrastive_ising, taylor_gradient
from richcomponents.paper.moments import contrastive_mixture, contrastive_pca, contrastive_regression

__all__ = [
    "Extraction",
    "Linear",
    "SGDResult",
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
