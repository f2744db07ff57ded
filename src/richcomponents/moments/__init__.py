"""Joint moment sums of a table: the state, the kernel (the only hot loop) and the doors for rows."""

from richcomponents.data.rows import Rows, open_source
from richcomponents.moments.accumulator import Accumulator
from richcomponents.moments.layout import Layout, block_numbers
from richcomponents.moments.partial import Partial, partial_out
from richcomponents.moments.reduce import Statistic
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
