"""In: numbers and arrays. Out: pure mathematics, no data: set partitions, tensors, symmetric packing, functions of symmetric
matrices, moments and cumulants of each other."""

from richcomponents.algebra.arrays import Array, IntArray, Truth
from richcomponents.algebra.packing import (
    column_numbers,
    contract,
    pack,
    packed_indices,
    packed_rank,
    packed_size,
    unpack,
)
from richcomponents.algebra.partitions import (
    cumulants_to_moments,
    kstatistic_coefficient,
    moments_to_cumulants,
    partitions_without_singletons,
    plugin_coefficient,
)
from richcomponents.algebra.tensors import multilinear, symmetrise, unfold

__all__ = [
    "Array", "IntArray", "Truth", "column_numbers", "contract", "cumulants_to_moments", "kstatistic_coefficient",
    "moments_to_cumulants", "multilinear", "pack", "packed_indices", "packed_rank", "packed_size",
    "partitions_without_singletons", "plugin_coefficient", "symmetrise", "unfold", "unpack",
]  # fmt: skip
