"""The doors of ContrastiveRCA: tables, separate views, saved states and streams all end in the same solver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray
from richcomponents.components.component import CumulantSource
from richcomponents.components.data import AffineMap, RowData, StateData
from richcomponents.components.dependence import RowUnits, UnitSums
from richcomponents.components.frame import Frame
from richcomponents.contrastive.canonical import whitening
from richcomponents.contrastive.fit import SharedPart
from richcomponents.contrastive.reduce import enough_rows, needs_reduction, reduce_view
from richcomponents.contrastive.solution import Solution
from richcomponents.data.sources import is_path
from richcomponents.data.sources.base import Source
from richcomponents.data.sources.lazy import is_dask
from richcomponents.data.table import check_finite, check_range, column_names, join_views
from richcomponents.data.views import Views, resolve_views
from richcomponents.errors import ConstantColumnWarning, DataError, warn_user
from richcomponents.models.estimator import Estimator, refuse_second_table
from richcomponents.moments import Accumulator, Moments, Rows, open_source, partial_out
from richcomponents.moments.partial import Inflated, Partial
from richcomponents.moments.reduce import reduce_rows

__all__ = ["MIN_BLOCKS", "MOST_BLOCKS", "ContrastiveDoors", "is_source"]

MIN_BLOCKS = 10  # of samples, for statistics that compare blocks
_FIRST = 1000  # rows that tell an index from data
MOST_BLOCKS = 200  # pairs of blocks are compared: time and memory grow with the square
_MOST_READ = 50_000  # rows of few groups that are looked at in memory


class ContrastiveDoors(Estimator):
    """How samples come in. The parameters and the solver are those of :class:`ContrastiveRCA`."""

    views: Any
    method: str
    rank: Any
    order: int
    mean: Any
    covariates: Any
    n_blocks: int
    views_: Views
    _solve: Callable[..., Any]
    _residuals: Callable[[Array], Array]
    _name_components: Callable[[], None]
    _shared: SharedPart | None
    _units: RowUnits | None
    _lost: float
    _weighted: bool
    _units_known: int | None
    _solution: Solution

    def fit(
        self,
        X: object,
        y: object = None,
        groups: object = None,
        sample_weight: object = None,
        *,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Fit to one table whose columns are both views (and the covariates).

        Parameters
        ----------
        X : array or data frame of shape (n, d), or a source of rows
            Also a table that need not fit in memory: a path or several (.parquet, .npy, .zarr, .h5ad, .csv, .tsv), what
            :func:`open_source` returns, an iterator of blocks of rows, or a dask array or data frame (reduced on the active
            cluster; only sums travel). Files and dask collections are read twice, in bounded memory, and give the same bits
            as the table in memory; an iterator is read once (as :meth:`fit_moments`).
        y : ignored, as scikit-learn expects.
        groups : (n,) labels; rows of a group stay in one block, and tests count groups as far as their rows repeat each other.
        sample_weight : (n,) how often each row is counted, whole numbers: the fit to the rows repeated, all copies of a row
            in one block (as with groups): one independent row, however often it is counted.
        progress : show bars.
        checkpoint : where passes over a source are kept; the same call goes on after an interruption.
        """
        refuse_second_table(y)
        reading: dict[str, Any] = {"groups": groups, "progress": progress, "checkpoint": checkpoint}
        if is_source(X):
            rows = open_source(X)
            self.n_features_in_ = rows.width
            if rows.names is not None:
                self.feature_names_in_ = np.array(rows.names, dtype=object)
            names = rows.names
            rows = rows if sample_weight is None else rows.weighted_by(sample_weight)
            if rows.rereadable:
                return self._fit_rows(rows, names, reading)
            self._check_state_fit(rows.width, names)  # before the rows are gone
            return self._fit_state(Moments.of(rows, 4, n_blocks=self.n_blocks, **reading), names)
        values, names = self._values(X, reset=True, at_least=2), column_names(X)
        rows = Rows(values, names=names)
        rows = rows if sample_weight is None else rows.weighted_by(sample_weight)
        return self._fit_rows(rows, names, reading, values=values)

    def fit_views(self, views: object, y: object = None, groups: object = None) -> Self:
        """Fit to separate tables: a list [U, V], a dict of two, or a MuData-like object; samples must line up."""
        table = join_views(views)
        if len(table.views) != 2:
            raise DataError(
                f"contrastive RCA takes two views, got {len(table.views)} ({', '.join(table.views)}): pass the two to compare"
            )
        if self.covariates:
            raise DataError("covariates are columns of the table: join the tables and use fit(X) with views=")
        self.n_features_in_ = table.values.shape[1]
        if table.named:
            self.feature_names_in_ = np.array(table.views.feature_names, dtype=object)
        return self._fit_rows(
            Rows(table.values, names=table.views.feature_names),
            table.views.feature_names,
            {"groups": groups},
            table.views,
            table.values,
        )

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a state (of a stream, of several sites): no rows are needed.

        The state's columns are the table's; `views=` is an int, or a dict of column numbers. Canonical coordinates
        are applied to the block tensors, so the result agrees with :meth:`fit` on the same rows and blocks.
        """
        self.n_features_in_ = moments.layout.n_columns
        return self._fit_state(moments, None)

    def partial_fit(self, X: object, y: object = None) -> Self:
        """Add a block of rows to those seen so far, and refit from their moments.

        For many small blocks an :class:`Accumulator` and one :meth:`fit_moments` at the end are cheaper. A call that
        fails leaves the rows seen so far as they were.
        """
        refuse_second_table(y)
        stream = getattr(self, "_stream", None)
        values, names = self._values(X, reset=stream is None), column_names(X)
        check_finite(values, resolve_views(self.views, values.shape[1], names, values))
        stream = Accumulator(4, n_blocks=self.n_blocks, names=names) if stream is None else stream.copy()
        stream.update(values)
        self._fit_state(stream.moments(), names)
        self._stream = stream
        return self

    def _fit_state(self, moments: Moments, names: Sequence[str] | None) -> Self:
        lay = moments.layout
        self.views_ = self._check_state_fit(lay.n_columns, names)
        if lay.order != 4:
            raise DataError(
                f"a state of order 4 is needed, this one has order {lay.order}: make it with Moments.of(X, order=4)"
            )
        self._partial: Partial | None = None
        self._lost, self._units, self._weighted = 0.0, None, moments.dependent
        self._units_known = None
        self._covariate_columns = np.zeros(0, dtype=np.int64)
        state = moments.select(np.concatenate([self._u, self._v]))
        self._centre = np.array(state.mean)
        self._warn_of_constants(state.variances)
        d_u, d_v = len(self._u), len(self._v)

        self._solve(StateData(state), state, d_u, Frame.identity(d_u), Frame.identity(d_v))
        return self

    def _check_state_fit(self, width: int, names: Sequence[str] | None) -> Views:
        """The views; refuses what cannot be fitted to a state of so many columns."""
        self._check_parameters()
        if self.covariates:
            raise DataError(
                "covariates are partialled out row by row: use fit(X), or partial them out before the state is made"
            )
        if self.order > 4:
            raise DataError("cumulants of order five and six need the rows again: use fit(X), or order=4")
        return self._two_views(resolve_views(self.views, width, names))

    def _check_parameters(self) -> None:
        if self.method not in ("efficient", "paper", "polarised"):
            raise ValueError(f"method must be 'efficient', 'paper' or 'polarised', got {self.method!r}")
        if isinstance(self.order, bool) or not isinstance(self.order, (int, np.integer)) or not 3 <= self.order <= 6:
            raise ValueError(f"order must be an integer from 3 to 6, got {self.order!r}")
        if not isinstance(self.n_blocks, (int, np.integer)) or not MIN_BLOCKS <= self.n_blocks <= MOST_BLOCKS:
            raise ValueError(
                f"n_blocks must be an integer, at least {MIN_BLOCKS} and at most {MOST_BLOCKS}, got {self.n_blocks!r}"
            )
        if self.mean is not None and (
            not isinstance(self.mean, Mapping) or len(self.mean) != 1 or next(iter(self.mean)) not in ("S1", "S2", "S3")
        ):
            raise ValueError(
                "mean must be None or a dict with one of 'S1', 'S2', 'S3': one known mean fixes the others"
            )

    def _two_views(self, resolved: Views) -> Views:
        if len(resolved) != 2:
            raise DataError(
                f"contrastive RCA takes two views, `views=` names {len(resolved)} ({', '.join(resolved)}): name two"
            )
        self._u, self._v = resolved[0], resolved[1]
        return resolved

    def _fit_rows(
        self,
        rows: Rows,
        names: Sequence[str] | None,
        reading: dict[str, Any],
        views: Views | None = None,
        values: Array | None = None,
    ) -> Self:
        """Fit to rows that can be read again; the same steps, and the same bits, in memory (`values`) and out of it."""
        self._check_parameters()
        self._resolve(rows.width, names, views, rows)
        if values is not None:  # the view and the row are named; files are checked while they are read
            check_finite(values, self.views_)
        d_u, d_v, known = len(self._u), len(self._v), self._covariate_columns
        table = rows.select(np.concatenate([self._u, self._v, known]))
        groups = reading.get("groups")
        self._units, self._weighted = None, rows.weighted
        if values is not None:  # rows that are seen again, with an outcome, depend on each other as they did here
            weight = rows.select([0]).array()[:, -1] if rows.weighted else None
            self._units = RowUnits.of(len(values), groups, weight)
        self._partial, self._lost = None, 0.0
        if len(known):
            self._partial = partial_out(Moments.of(table, 2, n_blocks=1), range(d_u + d_v, table.width))
            n, self._lost = self._partial.moments.n, _lost_rows(self._partial, table, groups)
            if n - self._lost < 2:
                raise DataError(
                    f"{self._partial.rank} covariates leave nothing of {n} rows (of fewer, where groups or weights make them "
                    "depend on each other): use fewer covariates or more rows"
                )
            kept = [self.views_.feature_names[c] for c in (*self._u, *self._v)]
            table = table.mapped(Inflated(self._partial, (n / (n - self._lost)) ** 0.5), names=kept)
        reduced: dict[str, Frame] = {}
        centred: Array | None = None
        enough, most = enough_rows(max(d_u, d_v)), None if groups is None else len(set(np.asarray(groups).tolist()))
        self._units_known = None
        few = not table.more_than(enough)
        if not few and most is not None and most <= enough:  # many rows of few groups
            few = not table.more_than(_MOST_READ)
        if self.method == "efficient" and few:
            inside = table.array()
            weight = inside[:, -1] if table.weighted else np.ones(len(inside))
            inside, weight = inside[weight > 0, : d_u + d_v], weight[weight > 0]
            self._centre = np.average(inside, axis=0, weights=weight)
            centred = inside - self._centre
            if table.weighted:  # rows whose plain second moments are the weighted ones
                centred *= np.sqrt(weight / weight.mean())[:, None]
            # copies are one row; other rows of a group are something between copies and samples: it counts as three at most
            units = len({row.tobytes() for row in inside})
            self._units_known = units = units if most is None else min(units, 3 * most)
            check_range(centred, self.views_)  # wide views are reduced before their moments are taken
            for name, view in (("u", centred[:, :d_u]), ("v", centred[:, d_u:])):
                if needs_reduction(units, view.shape[1]):
                    wanted = int(self.rank) if isinstance(self.rank, (int, np.integer)) else 1
                    reduced[name] = reduce_view(view, units, wanted)
        u, v = (reduced[name] if name in reduced else Frame.identity(d) for name, d in (("u", d_u), ("v", d_v)))
        reduction = len(u.inner) < d_u or len(v.inner) < d_v
        if reduction:
            table = table.mapped(AffineMap(self._centre, linalg.block_diag(u.inner.T, v.inner.T)))
        data = RowData(table, self.n_blocks, lost=self._lost, **reading)
        second = data.moments(2 if self.method == "efficient" else 4)
        if not reduction:
            self._centre = np.array(second.mean)
        self._warn_of_constants(second.variances if centred is None or not reduction else centred.var(axis=0))
        self._solve(data, second, len(u.inner), u, v, rows=centred if reduction else None)
        if self.order > 4:
            self._add_high_orders(data, second)
        return self

    def _warn_of_constants(self, variances: Array) -> None:
        """variances : of the columns of (U, V)."""
        constant = np.concatenate([self._u, self._v])[variances <= 0]
        if len(constant):
            named = ", ".join(self.views_.describe(int(column)) for column in constant[:5])
            more = f" and {len(constant) - 5} more" if len(constant) > 5 else ""
            warn_user(
                f"constant: {named}{more}. Such columns say nothing about any component: drop them",
                ConstantColumnWarning,
            )

    def _resolve(
        self, width: int, names: Sequence[str] | None, views: Views | None = None, rows: Rows | None = None
    ) -> None:
        """Which columns are U, V and covariates; rows : where a number needs to be told data from an index."""
        if width < 2:
            raise DataError(f"two views need at least two columns; X has n_features = {width}")
        self._covariate_columns = self._resolve_covariates(width, names)
        rest = np.setdiff1d(np.arange(width), self._covariate_columns)
        if views is None and isinstance(self.views, (int, np.integer)):
            named = None if names is None else [names[c] for c in rest]
            first = None if names is None or rows is None else rows.head(_FIRST)[:, rest]
            inner = resolve_views(self.views, len(rest), named, first)
            columns = {name: rest[inner[name]] for name in inner}
            views = resolve_views(columns, width, names)
        elif views is None:
            views = resolve_views(self.views, width, names)
        self.views_ = self._two_views(views)
        overlap = np.intersect1d(np.concatenate([self._u, self._v]), self._covariate_columns)
        if len(overlap):
            raise DataError(f"{self.views_.describe(int(overlap[0]))} is also a covariate: name it once")

    def _resolve_covariates(self, width: int, names: Sequence[str] | None) -> IntArray:
        if self.covariates is None or len(self.covariates) == 0:
            return np.zeros(0, dtype=np.int64)
        return resolve_views({"covariates": list(self.covariates)}, width, names)["covariates"]

    def _add_high_orders(self, data: RowData, second: Moments) -> None:
        """Cumulants of order five and six: a state of their own, in the same coordinates, not kept by block."""
        low = self._solution.source
        if low is None:
            return
        matrix = np.eye(second.layout.n_columns)
        if self._shared is not None:
            found = self._shared.canonical
            matrix = linalg.block_diag(found.x_from_u.T, found.y_from_v.T)
        high = data.moments(self.order, AffineMap(second.mean, matrix))
        self._solution = replace(self._solution, source=CumulantSource(low.moments, high=high))
        self._name_components()


def _lost_rows(partial: Partial, table: Rows, groups: object) -> float:
    """How many rows' worth of freedom the covariates took: one each, times the design effect of their products with the
    residuals where rows depend on each other (a covariate that is constant in a group took a whole group's)."""
    if groups is None and not table.weighted:
        return float(partial.rank)
    white = [whitening(C)[0] for C in (partial.covariate_covariance(), partial.covariance())]
    p, q = (len(w) for w in white)
    if not p or not q:
        return float(p)

    def products(rows: Array) -> Array:
        known = (rows[:, partial.covariates] - partial.mean[partial.covariates]) @ white[0].T
        left = (partial.residuals(rows) - partial.mean[partial.kept]) @ white[1].T
        return np.hstack([known, left])

    sums = UnitSums(np.zeros(min(p, q)), p, q, table.weighted)
    return p * float(reduce_rows(table.mapped(products), sums, groups=groups).effect[0])


def is_source(X: object) -> bool:
    """Whether rows come from a file, a stream or a source, not from a table in memory."""
    return isinstance(X, (Rows, Source, Iterator)) or is_path(X) or is_dask(X)
