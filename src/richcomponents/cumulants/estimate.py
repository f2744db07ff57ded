"""An estimate and how sure it is: the one form in which every number with an error is handed to a reader.

A point with a standard error has the limits ``value -+ t se``. A quantity that the data leave open has none, but an identified
set, whose two ends are estimates themselves; its limits cover the true entry (not the whole set) with the level asked for:
``[lower - q se_lower, upper + q se_upper]``, q the one-sided quantile where the set is wide against the errors, the two-sided
one where it is a point (Imbens and Manski 2004).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, Self

import numpy as np
from scipy import stats

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import jackknife_variance
from richcomponents.notebook import Table, Tabular, html_table
from richcomponents.storage import storable
from richcomponents.text import cell, lined_up, number, page

_MOST = 100  # entries of a matrix that are printed
READABLE = 7.0  # log-odds beyond which nobody reads an odds ratio


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Tabular):
    """A vector or matrix of estimates with standard errors and confidence limits, entry by entry.

    value, standard_error : (d,) or (d, k); the error is nan where there is none. degrees : of Student's t (blocks - 1), also
    entry by entry.
    names : of the entries (d,); columns : of a matrix (k,). level : of `low` and `high`.
    identified : lower and upper end of the identified set, where the data allow no more than that; identified_error : standard
    errors of the two ends. Limits are then those of the set, unless set_limits is False: the set is told beside them.
    centre : where the limits lie around, if that is not the value (which they reach nevertheless).
    covering : another estimate of the same entries whose limits are to be covered as well.
    others : what other methods make of the same entries, for comparison.
    positive : the class whose log-odds the values change, and exp(value) the odds; empty where they are something else.
    replicates : (B, ...) the values without each block, if they were computed.

    Examples
    --------
    >>> found = Estimate(np.array([1.0, 0.1]), np.array([0.2, 0.2]), 19, names=("age", "dose"))
    >>> found.p_value.round(4).tolist(), found.interval(0.9)[0].round(2).tolist()
    ([0.0001, 0.6228], [0.65, -0.25])
    """

    value: Array
    standard_error: Array
    degrees: float | Array
    names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    level: float = 0.95
    identified: tuple[Array, Array] | None = None
    identified_error: tuple[Array, Array] | None = None
    centre: Array | None = None
    covering: Estimate | None = None
    others: Mapping[str, Array] = field(default_factory=dict)
    positive: str = ""
    replicates: Array | None = None
    set_limits: bool = True

    @classmethod
    def unbounded(cls, value: Array, **options: Any) -> Estimate:
        """A value about which the data say nothing."""
        ends = np.full_like(value, -np.inf), np.full_like(value, np.inf)
        return cls(value, np.full_like(value, np.nan), 1, identified=ends, **options)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper confidence limits; nan where there is neither an error nor an identified set."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level!r}")
        if self.identified is None or not self.set_limits:
            middle = self.value if self.centre is None else self.centre
            half = stats.t.ppf(0.5 + level / 2, self.degrees) * self.standard_error
            low, high = middle - half, middle + half
        else:
            low, high = self._around_the_set(*self.identified, level)
        if self.covering is not None:
            beside = self.covering.interval(level)
            low, high = np.minimum(low, beside[0]), np.maximum(high, beside[1])
        return np.minimum(low, self.value), np.maximum(high, self.value)

    def _around_the_set(self, lower: Array, upper: Array, level: float) -> tuple[Array, Array]:
        if self.identified_error is None:
            return lower, upper
        errors = self.identified_error
        width = (upper - lower) / np.maximum(np.maximum(*errors), 1e-300)
        q = imbens_manski(width, int(np.min(self.degrees)), level)
        return lower - q * errors[0], upper + q * errors[1]

    @cached_property
    def _limits(self) -> tuple[Array, Array]:
        return self.interval(self.level)

    @property
    def low(self) -> Array:
        """Lower limits, at `level`."""
        return self._limits[0]

    @property
    def high(self) -> Array:
        """Upper limits, at `level`."""
        return self._limits[1]

    @property
    def z(self) -> Array:
        """How many standard errors wide limits reach zero."""
        middle = self.value
        if self.centre is not None:
            middle = np.where(self.value * self.centre > 0, self.centre, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(middle / self.standard_error)

    @property
    def p_value(self) -> Array:
        """Two-sided, of the entry being zero. Of an identified set: below 1 - level where its limits leave zero out."""
        if self.identified is not None and self.identified_error is not None and self.set_limits:
            return self._p_of_set(*self.identified, *self.identified_error)
        return np.asarray(2 * stats.t.sf(np.abs(self.z), self.degrees))

    def _p_of_set(self, lower: Array, upper: Array, lower_error: Array, upper_error: Array) -> Array:
        """1 - level for the level at which the limits (Imbens and Manski) reach zero; 1 for a set that holds it, nan where its
        ends have no errors."""
        width = (upper - lower) / np.maximum(np.maximum(lower_error, upper_error), 1e-300)
        with np.errstate(divide="ignore", invalid="ignore"):
            outside = np.maximum(np.where(lower > 0, lower / lower_error, -upper / upper_error), 0.0)
        p = stats.t.sf(outside, self.degrees) + stats.t.sf(outside + width, self.degrees)
        told = np.where((lower > 0) | (upper < 0), p, 1.0)
        return np.asarray(np.where(np.isnan(lower_error) | np.isnan(upper_error), np.nan, told))

    @property
    def q_value(self) -> Array:
        """p values adjusted for their number (Benjamini, Hochberg): the share of false ones among all as small as this."""
        p = self.p_value
        out, known = np.full_like(p, np.nan), np.isfinite(p)
        if known.any():
            out[known] = stats.false_discovery_control(p[known])
        return out

    @property
    def odds_ratios(self) -> dict[str, Array]:
        """What one unit multiplies the odds of the positive class by, and its limits; empty without one."""
        if not self.positive:
            return {}
        with np.errstate(over="ignore"):
            values = map(np.exp, (self.value, self.low, self.high))
            return dict(zip(("odds ratio", "odds low", "odds high"), values, strict=True))

    def take(self, rows: IntArray) -> Self:
        """These entries of a vector."""

        def chosen(part: Any) -> Any:
            if isinstance(part, tuple) and all(isinstance(x, str) for x in part):
                return tuple(part[i] for i in rows) if part else part
            if isinstance(part, tuple):
                return tuple(x[rows] for x in part)
            if isinstance(part, Mapping):
                return {name: x[rows] for name, x in part.items()}
            return part[rows] if isinstance(part, np.ndarray) and part.shape == self.value.shape else part

        return replace(self, **{one.name: chosen(getattr(self, one.name)) for one in fields(self)})

    # ---- as a table

    def _labels(self) -> list[tuple[str, ...]]:
        """The names of each entry, in the order of value.ravel()."""
        shape = self.value.shape
        if self.names and len(shape) == 1 + bool(self.columns):
            return list(product(*filter(None, (self.names, self.columns))))
        return [(", ".join(map(str, at)),) for at in np.ndindex(shape)]

    def _table(self) -> dict[str, Array]:
        columns = {
            "estimate": self.value,
            **self.others,
            "standard error": self.standard_error,
            "z": self.z,
            "p": self.p_value,
            "low": self.low,
            "high": self.high,
            **dict(zip(("identified low", "identified high"), self.identified or (), strict=False)),
            **self.odds_ratios,
        }
        return {title: np.ravel(x) for title, x in columns.items()}

    def rows(self) -> Table:
        """One dict per entry: its name (and column), the estimate, what is known of its error, its limits."""
        table = self._table()
        return Table(
            dict(zip(("name", "column"), label, strict=False)) | {k: float(x[i]) for k, x in table.items()}
            for i, label in enumerate(self._labels())
        )

    def _cells(self) -> list[list[str]]:
        """A head and one row per entry, as text: what is read first."""
        table, labels = self._table(), self._labels()
        titles = {"standard error": "std.err"} | dict.fromkeys(("low", "high", *self.odds_ratios), "")
        shown = {t: _texts(x, t) for t, x in table.items() if titles.get(t, t) and not np.isnan(x).all()}
        if not np.isnan(table["low"]).all():
            shown[f"[{self.level:.0%} interval]"] = _bracketed(table["low"], table["high"])
        if self.positive:
            ratio, low, high = (np.ravel(x) for x in self.odds_ratios.values())
            known = (low > np.exp(-READABLE)) | (high < np.exp(READABLE)) | np.isnan(low)
            limits = zip(ratio, _bracketed(low, high), known, strict=True)
            told = [f"{number(r)} {ends}" if known else "not determined" for r, ends, known in limits]
            shown[f"odds ratio of {self.positive}"] = told
        head = [*[""] * len(labels[0] if labels else ("",)), *(titles.get(t, t) for t in shown)]
        rows = [[*label, *(cells[i] for cells in shown.values())] for i, label in enumerate(labels)]
        return [head, *(rows[:_MOST] if self.value.ndim > 1 else rows)]

    def _left_out(self, shown: int) -> str:
        more = self.value.size - shown
        return f"... and {more} more entries: to_frame() has all" if more > 0 else ""

    def _printed(self, head: list[str], *rows: list[str]) -> str:
        lines = lined_up([head, *rows], head.count(""))
        return page([*lines, *filter(None, [self._left_out(len(rows))])])

    def __str__(self) -> str:
        return self._printed(*self._cells())

    def __repr__(self) -> str:
        return self._printed(*self._cells()[: _MOST + 1])

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        more = self._left_out(len(rows))
        return html_table(head, rows, head.count("")) + (f"<p>{more}</p>" if more else "")


def _texts(values: Array, title: str) -> list[str]:
    return [f"{x:.2f}" if title == "z" and not np.isnan(x) else cell(title, float(x)) for x in values]


def _bracketed(low: Array, high: Array) -> list[str]:
    return ["" if np.isnan(a) else f"[{number(a)}, {number(b)}]" for a, b in zip(low, high, strict=True)]


def imbens_manski(width: Array, degrees: int, level: float) -> Array:
    """q with F(q + width) - F(-q) = level, F the t distribution; width : of the set, in its larger standard error.

    Solved for the width, F^-1(level + F(-q)) - q, and interpolated over width / (1 + width), since a thousand columns have a
    million entries (error below 1e-6).

    >>> imbens_manski(np.array([0.0, np.inf]), 1_000_000, 0.95).round(2).tolist()
    [1.96, 1.64]
    """
    widths, q = _imbens_manski_table(degrees, level)
    return np.asarray(np.interp(1 - 1 / (1 + width), 1 - 1 / (1 + widths), q))


@lru_cache(maxsize=8)
def _imbens_manski_table(degrees: int, level: float) -> tuple[Array, Array]:
    """Widths, from zero to infinity, and q, from the two-sided quantile to the one-sided one."""
    t = stats.t(degrees)
    one, two = t.ppf(level), t.ppf((1 + level) / 2)
    q = one + (two - one) * np.linspace(1, 0, 4001) ** 2
    return np.append(np.maximum(t.ppf(level + t.cdf(-q[:-1])) - q[:-1], 0.0), np.inf), q


def jackknife_error(replicates: Array) -> Array:
    """The square root of the jackknife variance."""
    return np.asarray(np.sqrt(jackknife_variance(replicates)))


def from_replicates(value: object, replicates: Sequence[object], **options: Any) -> Estimate:
    """An estimate with the block-jackknife error of its replicates, one without each block; options : of the Estimate."""
    stacked = np.stack([np.asarray(replicate, dtype=np.float64) for replicate in replicates])
    point = np.asarray(value, dtype=np.float64)
    return Estimate(point, jackknife_error(stacked), len(stacked) - 1, replicates=stacked, **options)
