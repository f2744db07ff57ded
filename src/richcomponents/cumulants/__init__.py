"""In: Moments. Out: unbiased cumulants (tensors, cross blocks, projections, Gram forms), and Estimates: numbers with their
block-jackknife errors."""

from richcomponents.cumulants.estimate import Estimate
from richcomponents.cumulants.kstatistics import (
    Cumulants,
    block_grams,
    cross_cumulant,
    cumulant,
    linearised_block_cumulants,
    projected_cumulant,
)

__all__ = [
    "Cumulants",
    "Estimate",
    "block_grams",
    "cross_cumulant",
    "cumulant",
    "linearised_block_cumulants",
    "projected_cumulant",
]
