"""The doors of ContrastiveRCA: tables, separate views, saved states and streams all end in the same solver."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import validate_data

from richcomponents.algebra import Array, IntArray
from richcomponents.components.component import CumulantSource
from richcomponents.components.contrastive.evidence import implicit_grams, joint_whitening
from richcomponents.components.contrastive.fit import Frame, SharedPart
from richcomponents.components.contrastive.reduce import needs_reduction, reduce_view
from richcomponents.components.contrastive.solution import Solution
from richcomponents.errors import DataError
from richcomponents.moments import Accumulator, Moments, partial_out
from richcomponents.moments.partial import Partial
from richcomponents.views import Views, check_finite, column_names, join_views, refuse_dask, resolve_views

__all__ = ["MIN_BLOCKS", "ContrastiveDoors"]

MIN_BLOCKS = 10  # of samples, for statistics that compare blocks


class ContrastiveDoors:
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
    _solution: Solution

    def fit(self, X: object, y: object = None, groups: object = None) -> Self:
        """Fit to one table whose columns are both views (and the covariates).

        y : ignored, as scikit-learn expects. groups : (n,) labels; rows of a group stay in one block.
        """
        self._forget()
        refuse_dask(X)
        names = column_names(X)
        values = validate_data(self, X, dtype=np.float64, order="C", ensure_min_samples=2, ensure_all_finite=False)
        return self._fit_table(values, names, groups)

    def fit_views(self, views: object, y: object = None, groups: object = None) -> Self:
        """Fit to separate tables: a list [U, V], a dict of two, or a MuData-like object; samples must line up."""
        self._forget()
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
        return self._fit_table(table.values, table.views.feature_names, groups, table.views)

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a state (of a stream, of several sites): no rows are needed.

        The state's columns are the table's; `views=` is None, an int, or a dict of column numbers. Canonical coordinates
        are applied to the block tensors, so the result agrees with :meth:`fit` on the same rows and blocks.
        """
        self._forget()
        self.n_features_in_ = moments.layout.n_columns
        return self._fit_state(moments, None)

    def partial_fit(self, X: object, y: object = None) -> Self:
        """Add a block of rows to those seen so far, and refit from their moments.

        For many small blocks an :class:`Accumulator` and one :meth:`fit_moments` at the end are cheaper. A call that
        fails leaves the rows seen so far as they were.
        """
        refuse_dask(X)
        stream = getattr(self, "_stream", None)
        if stream is None:
            self._forget()
        names = column_names(X)
        values = validate_data(self, X, dtype=np.float64, order="C", reset=stream is None, ensure_all_finite=False)
        check_finite(values, resolve_views(self.views, values.shape[1], names))
        stream = Accumulator(4, n_blocks=self.n_blocks, names=names) if stream is None else stream.copy()
        stream.update(values)
        self._fit_state(stream.moments(), names)
        self._stream = stream
        return self

    def _forget(self) -> None:
        """A new fit starts from nothing."""
        for name in ("_stream", "feature_names_in_"):
            if hasattr(self, name):
                delattr(self, name)

    def _fit_state(self, moments: Moments, names: Sequence[str] | None) -> Self:
        self._check_parameters()
        lay = moments.layout
        if self.covariates:
            raise DataError(
                "covariates are partialled out row by row: use fit(X), or partial them out before the state is made"
            )
        if self.order > 4:
            raise DataError("cumulants of order five and six need the rows again: use fit(X), or order=4")
        if lay.order != 4 or lay.n_targets:
            raise DataError(
                f"a state of order 4 without targets is needed, this one has order {lay.order} and {lay.n_targets} targets: "
                "make it with Moments.of(X, order=4)"
            )
        self.views_ = self._two_views(resolve_views(self.views, lay.n_columns, names))
        self._partial: Partial | None = None
        self._covariate_columns = np.zeros(0, dtype=np.int64)
        state = moments.select(np.concatenate([self._u, self._v]))
        self._centre = np.array(state.mean)
        d_u, d_v = len(self._u), len(self._v)
        self._solve(state, d_u, Frame.identity(d_u), Frame.identity(d_v), state.transformed)
        return self

    def _check_parameters(self) -> None:
        if self.method not in ("efficient", "paper", "polarised"):
            raise ValueError(f"method must be 'efficient', 'paper' or 'polarised', got {self.method!r}")
        if isinstance(self.order, bool) or not isinstance(self.order, (int, np.integer)) or not 3 <= self.order <= 6:
            raise ValueError(f"order must be an integer from 3 to 6, got {self.order!r}")
        if not isinstance(self.n_blocks, (int, np.integer)) or self.n_blocks < MIN_BLOCKS:
            raise ValueError(f"n_blocks must be an integer, at least {MIN_BLOCKS}, got {self.n_blocks!r}")
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

    def _fit_table(
        self, values: Array, names: Sequence[str] | None, groups: object, views: Views | None = None
    ) -> Self:
        self._check_parameters()
        n, width = values.shape
        if width < 2:
            raise DataError(f"two views need at least two columns; X has n_features = {width}")
        self._covariate_columns = self._resolve_covariates(width, names)
        rest = np.setdiff1d(np.arange(width), self._covariate_columns)
        if views is None and (self.views is None or isinstance(self.views, (int, np.integer))):
            inner = resolve_views(self.views, len(rest))
            columns = {name: rest[inner[name]] for name in inner}
            views = resolve_views(columns, width, names)
        elif views is None:
            views = resolve_views(self.views, width, names)
        self.views_ = self._two_views(views)
        overlap = np.intersect1d(np.concatenate([self._u, self._v]), self._covariate_columns)
        if len(overlap):
            raise DataError(f"{self.views_.describe(int(overlap[0]))} is also a covariate: name it once")
        check_finite(values, self.views_)
        used = np.concatenate([self._u, self._v])
        self._partial = None
        if len(self._covariate_columns):
            low = Moments.of(values[:, used], 2, targets=values[:, self._covariate_columns], n_blocks=1)
            self._partial = partial_out(low, range(len(self._covariate_columns)))
        rows = self._residuals(values)
        self._centre = rows.mean(axis=0)
        rows = rows - self._centre
        d_u, d_v = len(self._u), len(self._v)
        u, v = Frame.identity(d_u), Frame.identity(d_v)
        if self.method == "efficient":
            asked = int(self.rank) if isinstance(self.rank, (int, np.integer)) else 1
            u = reduce_view(rows[:, :d_u], asked) if needs_reduction(n, d_u) else u
            v = reduce_view(rows[:, d_u:], asked) if needs_reduction(n, d_v) else v
        reduction = len(u.inner) < d_u or len(v.inner) < d_v
        reduced = np.hstack([rows[:, :d_u] @ u.inner.T, rows[:, d_u:] @ v.inner.T]) if reduction else rows
        options: dict[str, Any] = {"n_blocks": self.n_blocks, "groups": groups}

        def coordinates(matrix: Array) -> Moments:
            return _quiet_moments(reduced @ matrix, 4, options)

        def implicit(lead: Array, correlations: Array) -> Array:
            return implicit_grams(reduced @ lead, joint_whitening(correlations), n_blocks=self.n_blocks)

        second = _quiet_moments(reduced, 2 if self.method == "efficient" else 4, options)
        by_rows = groups is None and n >= 4 * self.n_blocks
        self._solve(
            second,
            len(u.inner),
            u,
            v,
            coordinates,
            rows=rows if reduction else None,
            implicit=implicit if by_rows else None,
        )
        if self.order > 4:
            self._add_high_orders(reduced)
        return self

    def _resolve_covariates(self, width: int, names: Sequence[str] | None) -> IntArray:
        if self.covariates is None or len(self.covariates) == 0:
            return np.zeros(0, dtype=np.int64)
        return resolve_views({"covariates": list(self.covariates)}, width, names)["covariates"]

    def _add_high_orders(self, reduced: Array) -> None:
        """Cumulants of order five and six: a state of their own, in the same coordinates, not kept by block."""
        low = self._solution.source
        if low is None:
            return
        z = reduced
        if self._shared is not None:
            found, k = self._shared.canonical, self._shared.canonical.x_from_u.shape[1]
            z = np.hstack([reduced[:, :k] @ found.x_from_u.T, reduced[:, k:] @ found.y_from_v.T])
        high = _quiet_moments(z, self.order, {"n_blocks": 1})
        self._solution = replace(self._solution, source=CumulantSource(low.moments, high=high))
        self._name_components()


def _quiet_moments(rows: Array, order: int, options: dict[str, Any]) -> Moments:
    """Moments of columns the user never sees: their warnings would name nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Moments.of(rows, order, **options)
