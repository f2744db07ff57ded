"""What every solution of U = S1 + S2, V = A S2 + S3 answers, once A, the covariances and a predictor of S2 are known."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import power, symmetric
from richcomponents.components.component import Component, CumulantSource, Terms
from richcomponents.components.wide import Factored, Spread, gaussian_score
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.table import as_matrix
from richcomponents.errors import DataError
from richcomponents.inference.draws import IdentifiedSet
from richcomponents.inference.verdicts import Test, verdict
from richcomponents.moments import Moments
from richcomponents.pair.diagnostics import Diagnostics
from richcomponents.pair.views import Canonical, leftover_test, remaining_p_value

Key = Any
"""What a component is called: "S1", "S2", "S3", or a subset of the names of the views."""

Target = Literal["mixing", "cov_s1", "var_s1", "cov_s2", "cov_s3"]
"""What an interval is asked for."""


@dataclass(frozen=True)
class TwoViews:
    """In the user's units. Covariances of wide views are kept as factors.

    keys, views : what S1, S2 and S3, and the two views are called; mean : (d_u + d_v,), of the columns of U and V side by side;
    n : rows; canonical : canonical coordinates of the views; state : moments by block that the solution rests on;
    cov_u, cov_v : covariances of the views; high : the state of order five or six, where there is one; mixing_test : of an A
    that was given; rank : shared directions; largest_rank : that cannot be excluded; lost : rows' worth of freedom that
    covariates took.
    """

    keys: tuple[Key, Key, Key]
    views: tuple[str, str]
    mean: Array
    n: int
    canonical: Canonical
    state: Moments
    cov_u: Spread
    cov_v: Spread
    high: Moments | None
    mixing_test: Test | None
    rank: int
    largest_rank: int
    lost: float

    exchanged_ = False
    """Whether the first view is the user's second."""
    infers_T = False
    """Whether every answer is a function of second moments and T, which was inferred: what effects and rows with gaps need."""
    relative_errors = None
    """Intervals have the errors of every entry."""

    # ---- what a solution knows

    @abstractmethod
    def tests(self) -> list[Test]:
        """All that the verdict rests on."""

    @cached_property
    def verdict(self) -> str:
        """The worst finding of the tests."""
        return verdict(self.tests()).value

    @property
    @abstractmethod
    def A(self) -> Array:
        """(d_v, d_u); formed when it is asked for."""

    def through_A(self, s: Array) -> Array:
        """s (n, d_u) -> s A' (n, d_v)."""
        return np.asarray(s @ self.A.T)

    @abstractmethod
    def covariance(self, key: Key) -> Spread:
        """Of a component, in the columns of U (of V for S3)."""

    @abstractmethod
    def predict_s2(self, rows: Array) -> Array:
        """The best linear unbiased predictor of S2 for centred rows (n, d_u + d_v) of both views, centred, (n, d_u)."""

    @property
    @abstractmethod
    def error_s2(self) -> Spread:
        """Expected squared error of that prediction, (d_u, d_u)."""

    @property
    @abstractmethod
    def cross(self) -> tuple[Array, Array]:
        """(L, M) with Cov(U, V) = L M'."""

    @abstractmethod
    def terms(self, key: Key) -> Terms:
        """How its cumulants are read off the columns of `source`."""

    @property
    def root_s2(self) -> Array:
        """(d_u, k) with Cov(S2) = root_s2 root_s2'."""
        return power(np.asarray(self.covariance(self.keys[1])), 0.5, 0.0)

    @abstractmethod
    def identified_set(self) -> IdentifiedSet:
        """Ends of Cov(S1), entry by entry."""

    # ---- what follows

    @cached_property
    def source(self) -> CumulantSource | None:
        """Of higher cumulants; None where only covariances are kept."""
        return CumulantSource(self.state, high=self.high) if self.state.layout.order > 3 else None

    @property
    def component_verdicts(self) -> dict[Key, str]:
        """One for all three: what tells one part tells the others."""
        return dict.fromkeys(self.keys, self.verdict)

    def leaves_open(self, key: Key) -> bool:
        """Whether the data tell no more of a component than its identified set."""
        return self.verdict in ("not identified", "contradicted")

    @property
    def ranks(self) -> dict[Key, int]:
        """Of the part that both views share."""
        return {self.keys[1]: self.rank}

    @abstractmethod
    def interval(self, what: Target) -> Estimate | None:
        """With errors and identified set; None where refitting tells."""

    def limits(self, key: Key, view: str | None = None) -> Estimate | None:
        """Of the covariance of a component, or of its A in a view; None where refitting tells."""
        if view is None:
            targets: tuple[Target, ...] = ("cov_s1", "cov_s2", "cov_s3")
            return self.interval(targets[self.keys.index(key)])
        return self.interval("mixing") if (view, key) == (self.views[1], self.keys[1]) else None

    def warn(self) -> None:
        """Say what is not sure."""

    def next_steps(self) -> list[str]:
        """What would help."""
        return self.diagnose().next_steps()

    @abstractmethod
    def without(self, block: int) -> TwoViews:
        """Refitted without one block."""

    @property
    def d_u(self) -> int:
        return len(self.cov_u)

    @property
    def columns(self) -> tuple[slice, slice]:
        """Where U and V stand in a table of both."""
        width, v = len(self.mean), len(self.cov_v)
        return (slice(v, width), slice(0, v)) if self.exchanged_ else (slice(0, width - v), slice(width - v, width))

    def split(self, rows: Array) -> tuple[Array, Array]:
        """Columns of U and of V."""
        u, v = self.columns
        return rows[..., u], rows[..., v]

    @property
    def blocks(self) -> list[int]:
        """Statistical blocks that hold rows."""
        return [int(b) for b in np.flatnonzero(self.state.block_sizes)]

    @property
    def reduced_views(self) -> tuple[str, ...]:
        """Views that were searched for shared directions in their principal components only."""
        whole = (self.cov_u, self.cov_v)
        return tuple(view for view, C in zip(self.views, whole, strict=True) if isinstance(C, Factored))

    @property
    def independent_rows(self) -> float:
        return self.canonical.n

    def means(self, given: Mapping[Key, object] | None = None) -> dict[Key, Array]:
        """Of the components. Only sums are identified: the shared part has mean zero, unless one mean is given."""
        own_u, shared, own_v = self.keys
        mean_u, mean_v = self.split(self.mean)
        s2 = np.zeros(self.d_u)
        for key, stated in (given or {}).items():
            value = np.array(stated, dtype=np.float64)
            expected = mean_v.shape if key == own_v else mean_u.shape
            if value.shape != expected:
                raise DataError(f"the known mean of {key} must have shape {expected}, got {value.shape}")
            if not np.isfinite(value).all():
                raise DataError(f"the known mean of {key} holds missing or infinite values")
            if key == own_v:
                value = np.linalg.pinv(self.A) @ (mean_v - value)
            s2 = mean_u - value if key == own_u else value
        return {own_u: mean_u - s2, shared: s2, own_v: mean_v - self.through_A(s2) if given else mean_v.copy()}

    def component(
        self, key: Key, names: Sequence[str], title: str, given: Mapping[Key, object] | None = None
    ) -> Component:
        """names : of the columns of both views; title : of the component; given : means that are known."""
        own = names[self.d_u :] if key == self.keys[2] else names[: self.d_u]
        return Component(title, tuple(own), self.means(given)[key], self.covariance(key), self.source, self.terms(key))

    def predict(self, key: Key, rows: Array) -> tuple[Array, Spread]:
        """BLUP of a centred component for centred rows, (n, d), and its error covariance (d, d)."""
        (u, v), s2, error = self.split(rows), self.predict_s2(rows), self.error_s2
        if key != self.keys[2]:
            return s2 if key == self.keys[1] else u - s2, error
        if isinstance(error, Factored):  # lift' core lift, and A is applied to the few rows of lift
            return v - self.through_A(s2), Factored(np.zeros((0, v.shape[1])), self.through_A(error.lift), error.core)
        return v - self.through_A(s2), self.through_A(self.through_A(error).T)

    def solved_for(self, key: Key) -> TwoViews:
        """The solution in which a component is S1, or S2."""
        return self

    def outside(self, key: Key) -> IntArray:
        """Columns of the views in which the component does not live."""
        (own_u, _, own_v), (u, v) = self.keys, self.columns
        place = {own_u: v, own_v: u}.get(key, slice(0, 0))
        return np.arange(place.start, place.stop)

    def score(self, rows: Array, n_blocks: int) -> float:
        """Mean Gaussian log-density of centred rows, with a cross-covariance of the fitted rank."""
        return gaussian_score(self.joint(), rows)

    def joint(self) -> Spread:
        """Cov((U, V)), as factors where one of the views is wide."""
        cov_u, cov_v, (left, right) = self.cov_u, self.cov_v, self.cross
        if not self.reduced_views:
            cross = left @ right.T
            return symmetric(np.block([[cov_u, cross], [cross.T, cov_v]]))
        u, v = (
            C if isinstance(C, Factored) else Factored(np.zeros((0, len(C))), np.eye(len(C)), C) for C in (cov_u, cov_v)
        )
        k = left.shape[1]
        both = Factored(*(linalg.block_diag(a, b) for a, b in ((u.rows, v.rows), (u.lift, v.lift), (u.core, v.core))))
        return both.plus(linalg.block_diag(left.T, right.T), np.kron(np.array([[0.0, 1.0], [1.0, 0.0]]), np.eye(k)))

    def diagnose(self, **more: Any) -> Diagnostics:
        """What the fit says about itself; more : fields that only some solutions know."""
        rank, found = self.rank, self.canonical
        seen = np.linalg.svd(self.through_A(self.root_s2.T), compute_uv=False)[:rank]
        tried = range(min(rank + 1, len(found.correlations)))
        return Diagnostics(
            n=self.n,
            independent_rows=found.n,
            largest_rank=self.largest_rank,
            d_u=self.d_u,
            d_v=len(self.cov_v),
            canonical_correlations=found.correlations,
            rank=rank,
            rank_p_values=np.array([remaining_p_value(found, k) for k in tried]),
            verdict=self.verdict,
            tests=tuple(self.tests()),
            identified=self.identified_set(),
            condition_A=float(seen[0] / max(seen[-1], 1e-300)) if len(seen) else 1.0,
            leftover=leftover_test(found, rank),
            known_mixing=self.mixing_test,
            **more,
        )

    def transforms(self) -> dict[tuple[str, Key], Array]:
        """{(view, component): how the component enters the view}."""
        (own_u, shared, own_v), (u, v) = self.keys, self.views
        eye_u, eye_v = np.eye(self.d_u), np.eye(len(self.cov_v))
        return {(u, own_u): eye_u, (u, shared): eye_u, (v, shared): self.A, (v, own_v): eye_v}

    def own_variances(self) -> dict[tuple[str, Key], Array]:
        """{(view, component): variance of each column of the view that the component carries}."""
        (own_u, shared, own_v), (u, v) = self.keys, self.views
        in_u, both, in_v = (np.array(self.covariance(key).diagonal()) for key in self.keys)
        seen = np.array(self.cov_v.diagonal()) - in_v
        return {(u, own_u): in_u, (u, shared): both, (v, shared): seen, (v, own_v): in_v}

    def variance_shares(self) -> dict[tuple[str, Key], float]:
        """{(view, component): the part of the view's variance that the component carries}."""
        sizes = {place: float(each.sum()) for place, each in self.own_variances().items()}
        total = {view: sum(size for place, size in sizes.items() if place[0] == view) for view in self.views}
        return {place: size / total[place[0]] for place, size in sizes.items()}


def checked_A(given: Any, rank: object, d_u: int, d_v: int) -> Array | None:
    """The known mixing matrix (d_v, d_u)."""
    if given is None:
        return None
    A = as_matrix(given).copy()
    if A.shape != (d_v, d_u):
        raise DataError(
            f"A must have one row per column of V and one column per column of U: shape ({d_v}, {d_u}), got {A.shape}"
        )
    if not np.isfinite(A).all():
        raise DataError("the known A holds missing or infinite values")
    seen, wanted = int(np.linalg.matrix_rank(A)), rank if isinstance(rank, (int, np.integer)) else d_u
    if seen < wanted:
        raise DataError(
            f"the known A has no left inverse: its rank is {seen}, so only {seen} of {wanted} shared directions can be "
            "seen in V. Add columns to V, drop dependent columns of U, or give rank= if the shared part has lower rank"
        )
    return A
