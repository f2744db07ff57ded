"""In: Moments. Out: unbiased cumulants (tensors, cross blocks, projections, Gram forms), and Estimates: numbers with their
block-jackknife errors."""

from richcomponents.cumulants.blocks import linearised_block_cumulants
from richcomponents.cumulants.estimate import Estimate
from richcomponents.cumulants.gram import block_grams
from richcomponents.cumulants.jackknife import block_jackknife
from richcomponents.cumulants.kstatistics import Cumulants, cross_cumulant, cumulant
from richcomponents.cumulants.projected import projected_cumulant

__all__ = [
    "Cumulants",
    "Estimate",
    "block_grams",
    "block_jackknife",
    "cross_cumulant",
    "cumulant",
    "linearised_block_cumulants",
    "projected_cumulant",
]
