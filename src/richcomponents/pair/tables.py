"""What two views say about the variance of each column, as it is shown: identified sets and a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components.wide import Spread
from richcomponents.inference.limits import range_of_products, range_of_quadratics
from richcomponents.notebook import Table, Tabular
from richcomponents.storage import storable


@storable
@dataclass(frozen=True)
class IdentifiedSet:
    """All admissible Cov(S1) = top - rows T rows', 0 <= T <= I, entry by entry: rows (d, r), top (d, d)."""

    rows: Array
    top: Spread

    def ends(self) -> tuple[Array, Array]:
        """Lower and upper end of every entry, (d, d) each."""
        low, high = range_of_products(self.rows, self.rows)
        return np.asarray(self.top) - high, np.asarray(self.top) - low

    def variances(self) -> tuple[Array, Array]:
        """Lower and upper end of the variances, (d,) each."""
        top = np.array(self.top.diagonal())
        low, high = range_of_quadratics(self.rows)
        return top - high, top - low


@dataclass(frozen=True, repr=False)
class VarianceTable(Tabular):
    """Var(U) = Var(S1) + Var(S2), column by column; every array is (d_u,).

    total : Var(U), what ignoring V takes for Var(S1); own, shared : Var(S1) and Var(S2) as estimated;
    residualised : variance of the residual of U on the shared part of V, never below Var(S1);
    low, high : confidence limits of Var(S1) (of the identified set, when the higher orders say nothing);
    identified_low, identified_high : what second moments alone allow, for any distribution (nan for the paper's method).
    """

    names: tuple[str, ...]
    total: Array
    own: Array
    shared: Array
    low: Array
    high: Array
    identified_low: Array
    identified_high: Array

    @property
    def residualised(self) -> Array:
        """Removing what V predicts removes the least of S2 that is possible: the upper end of the identified set."""
        return self.identified_high

    @property
    def shared_share(self) -> Array:
        """Var(S2) / Var(U) (d_u,), between 0 and 1; 0 for a constant column."""
        positive = self.total > 0
        share = np.divide(self.shared, self.total, out=np.zeros_like(self.total), where=positive)
        return np.asarray(np.clip(share, 0.0, 1.0))

    def rows(self) -> Table:
        """One dict per column of U, ready for a data frame."""
        columns = {
            "variance": self.total,
            "own (S1)": self.own,
            "low": self.low,
            "high": self.high,
            "shared (S2)": self.shared,
            "shared share": self.shared_share,
            "identified low": self.identified_low,
            "identified high": self.identified_high,
        }
        return Table({"name": n, **{k: float(v[i]) for k, v in columns.items()}} for i, n in enumerate(self.names))
