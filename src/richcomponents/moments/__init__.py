"""In: rows of a table, in blocks of any size. Out: Moments, their joint power sums about one shift, by statistical block.

The same bits for any chunks, threads and workers: sums of leaves (kernel, the only hot loop) in a forest of fixed siblings.
"""

from richcomponents.data.rows import Rows, open_source
from richcomponents.moments.accumulator import Accumulator, Statistic
from richcomponents.moments.data import Partial, partial_out
from richcomponents.moments.kernel import Layout, block_numbers
from richcomponents.moments.state import Moments

__all__ = [
    "Accumulator",
    "Layout",
    "Moments",
    "Partial",
    "Rows",
    "Statistic",
    "block_numbers",
    "open_source",
    "partial_out",
]
