"""A solved contrastive model: A, the covariances of S1, S2, S3, predictors of their values, recipes of their cumulants.

Three ways lead here: the estimator of this library (with A unknown or known), and the paper's formulas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components import Component, CumulantSource, Terms
from richcomponents.components.covariance import Factored, Spread, check_entries, triangular
from richcomponents.components.frame import Frame
from richcomponents.contrastive.canonical import Canonical
from richcomponents.contrastive.fit import SharedPart, in_users_units
from richcomponents.contrastive.identify import Identified
from richcomponents.contrastive.terms import own_terms, shared_terms
from richcomponents.cumulants import Cumulants
from richcomponents.moments import Moments
from richcomponents.paper.contrastive import cross_terms, mixing_matrix, truncated_pinv
from richcomponents.storage import storable

__all__ = ["Solution", "WideView", "solve_efficient", "solve_paper", "whole_recipes"]


INVERSE_RIDGE = 20.0
"""In units of 1/n, the noise of a squared canonical correlation."""


@storable
@dataclass(frozen=True)
class Solution:
    """In the user's units, for centred views u (n, d_u), v (n, d_v). Covariances of wide views are kept as factors.

    known_A : (d_v, d_u), given or by the paper's formula; else A = into_v @ from_u, (d_v, r) and (r, d_u);
    cov_u, cov_v, cov_s1, cov_s2, cov_s3 : covariances of U, V, S1, S2, S3; cross : (L, M), Cov(U, V) = L M';
    root_s2 : (d_u, k), Cov(S2) = root_s2 root_s2'; lift : (d_u, r), how the shared coordinates enter EVERY column of U;
    reduced : whether U was searched for them in its principal components only;
    variance_s2 : (d_u, d_u), expected squared error of BLUP(S2), what is not known about T included;
    read, write : BLUP(S2) = [u v] @ read @ write, with read (d_u + d_v, k) and write (k, d_u);
    recipes : {"S1" | "S2" | "S3": terms of its cumulants in the coordinates of `source`}.
    """

    known_A: Array | None
    into_v: Array
    from_u: Array
    cov_u: Spread
    cov_v: Spread
    cov_s1: Spread
    cov_s2: Spread
    cov_s3: Spread
    cross: tuple[Array, Array]
    root_s2: Array
    lift: Array
    reduced: bool
    variance_s2: Spread
    read: Array
    write: Array
    source: CumulantSource | None
    recipes: dict[str, Terms]
    rank: int

    @property
    def A(self) -> Array:
        """(d_v, d_u); formed when it is asked for."""
        if self.known_A is not None:
            return self.known_A
        check_entries("the matrix A", (len(self.into_v), self.from_u.shape[1]))
        return np.asarray(self.into_v @ self.from_u)

    def through_A(self, s: Array) -> Array:
        """s (n, d_u) -> s A' (n, d_v)."""
        return np.asarray(s @ self.known_A.T if self.known_A is not None else (s @ self.from_u.T) @ self.into_v.T)

    def covariance(self, component: str) -> Spread:
        """Of "S1", "S2" or "S3"."""
        return {"S1": self.cov_s1, "S2": self.cov_s2, "S3": self.cov_s3}[component]

    def predict_s2(self, u: Array, v: Array) -> Array:
        """The best linear unbiased predictor of S2 for each row, centred, (n, d_u)."""
        return np.asarray((u @ self.read[: u.shape[1]] + v @ self.read[u.shape[1] :]) @ self.write)

    def components(
        self, means: dict[str, Array], names_u: tuple[str, ...], names_v: tuple[str, ...]
    ) -> dict[str, Component]:
        names = {"S1": names_u, "S2": names_u, "S3": names_v}
        return {
            which: Component(
                which, names[which], means[which], self.covariance(which), self.source, self.recipes[which]
            )
            for which in ("S1", "S2", "S3")
        }


@dataclass(frozen=True)
class WideView:
    """What a view has beyond the principal components that were searched, from its rows.

    lift : (d, r), Cov(view, the other view's shared canonical variates) / D: how the shared part enters every column, since
    the other view sees nothing of what is this view's own; spread : its covariance.
    """

    lift: Array
    spread: Factored

    @classmethod
    def of(cls, view: Array, other: Array, correlations: Array) -> WideView:
        """view (n, d), centred; other (n, r): shared canonical variates of the other view; correlations D (r,)."""
        together = view.T @ other / len(view)  # Cov(other) = I: these are regression coefficients
        left = triangular(view - other @ together.T)
        return cls(together / correlations, Factored.of(left).plus(together.T, np.eye(len(correlations))))


def solve_efficient(
    shared: SharedPart,
    u: Frame,
    v: Frame,
    cov_u: Spread,
    cov_v: Spread,
    source: CumulantSource | None,
    A: Array | None = None,
    lifts: tuple[Array | None, Array | None] = (None, None),
) -> tuple[Solution, Canonical]:
    """From T in canonical coordinates to the user's units.

    On the r shared coordinates S = D^2 + h T h, A = D S^-1, A^+ = S D^-1 (this IS the generalised least-squares
    inverse: only the first r coordinates of y carry S2, with noise I - D S^-1 D), and

        BLUP(S1) = h (I - T) h^-1 (x - D y),    Var(S1 | x, y) = h T (I - T) h.

    Covariances and predictions use T times the gate (Identified.t_trusted), A and the cumulants T itself. If the
    truth is T* and T is used, the squared error of the prediction is h [T* (I - T*) + (T* - T)^2] h; its mean over the
    posterior draws of T* is reported.

    lifts : of views whose columns are more than those searched (see WideView); else the canonical maps say it. Predictions
    and A use them. Covariances of the parts use the canonical maps, for which they are positive and add up.
    """
    found, known, r = in_users_units(shared.canonical, u, v), shared.identified, shared.identified.rank
    d, h = found.correlations[:r], np.sqrt(1 - found.correlations[:r] ** 2)
    S = _shared_covariance(found, known)
    trusted = known.t_trusted
    lift_u, lift_v = found.u_from_x[:, :r], found.v_from_y[:, :r]
    every_u, every_v = (lift_u if lifts[0] is None else lifts[0]), (lift_v if lifts[1] is None else lifts[1])
    inner = np.linalg.solve(S, found.x_from_u[:r]) if r else found.x_from_u[:0]
    own = h[:, None] * (np.eye(r) - trusted) / h  # BLUP of S1 from x - D y
    d_u, d_v = lift_u.shape[0], lift_v.shape[0]
    read = np.zeros((d_u + d_v, 2 * r))
    read[:d_u, :r], read[d_u:, r:] = found.x_from_u[:r].T, found.y_from_v[:r].T
    write = np.vstack([(np.eye(r) - own).T, (own * d).T]) @ every_u.T
    covered = np.diag(d**2) + h[:, None] * trusted * h
    draws = known.t_draws
    error = np.tensordot(known.draw_weights, draws @ (np.eye(r) - draws) + (draws - trusted) @ (draws - trusted), 1)
    back = d[:, None] * np.linalg.inv(S) if r else np.zeros((0, 0))  # A in canonical coordinates
    solution = Solution(
        known_A=A,
        into_v=every_v * d,
        from_u=np.asarray(inner),
        cov_u=cov_u,
        cov_v=cov_v,
        cov_s1=_without(cov_u, lift_u, covered),
        cov_s2=_lifted(lift_u, covered, isinstance(cov_u, Factored)),
        cov_s3=_without(cov_v, lift_v, back @ covered @ back.T),
        cross=(lift_u * d, lift_v),
        root_s2=lift_u @ _root(covered),
        lift=every_u,
        reduced=isinstance(cov_u, Factored),
        variance_s2=_lifted(every_u, h[:, None] * error * h, isinstance(cov_u, Factored)),
        read=read,
        write=write,
        source=source,
        recipes=_canonical_recipes(found, r, S, shared.leading),
        rank=r,
    )
    return solution, found


def _lifted(lift: Array, core: Array, factored: bool) -> Spread:
    """lift core lift' (d, d), as factors for wide views."""
    core = _symmetric(core)
    if factored:
        return Factored(np.zeros((0, len(lift))), lift.T, core)
    return _symmetric(lift @ core @ lift.T)


def _without(total: Spread, lift: Array, core: Array) -> Spread:
    """total - lift core lift'."""
    core = _symmetric(core)
    if isinstance(total, Factored):
        return total.plus(lift.T, -core)
    return np.asarray(total - _symmetric(lift @ core @ lift.T))


def _root(matrix: Array) -> Array:
    """R (k, k) with R R' the positive part of a symmetric matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _symmetric(matrix: Array) -> Array:
    return np.asarray((matrix + matrix.T) / 2)


def _shared_covariance(found: Canonical, known: Identified) -> Array:
    """S = D^2 + h T h, Cov(S2) in the shared canonical coordinates, (r, r)."""
    d = found.correlations[: known.rank]
    h = np.sqrt(1 - d**2)
    return np.asarray(np.diag(d**2) + h[:, None] * known.t * h)


def whole_recipes(found: Canonical, known: Identified) -> dict[str, Terms]:
    """Recipes on all canonical coordinates z = (x, y), also where only a state of the leading ones could be kept."""
    return _canonical_recipes(found, known.rank, _shared_covariance(found, known), leading=False)


def _canonical_recipes(found: Canonical, r: int, S: Array, leading: bool) -> dict[str, Terms]:
    """Slots on z = (x, y): columns are the user's coordinates."""
    k_u, k_v = (r, r) if leading else (found.rank_u, found.rank_v)
    d = found.correlations[:r]
    # y -> S2 is S D^-1. Where D is of the size of its own noise, D^-1 would multiply the noise of every cumulant without bound:
    # a ridge of a few standard errors squared leaves a little of S2 there instead.
    back = S * (d / (d**2 + INVERSE_RIDGE / max(found.n, 1)))

    def slot(lift: Array, on_x: Array, on_y: Array) -> Array:
        """(k_u + k_v, d) for lift @ (on_x x_1..k + on_y y_1..k)."""
        out = np.zeros((k_u + k_v, len(lift)))
        out[: on_x.shape[1]] = (lift[:, : len(on_x)] @ on_x).T
        out[k_u : k_u + on_y.shape[1]] = (lift[:, : len(on_y)] @ on_y).T
        return out

    none = np.zeros((0, 0))
    u, v = found.u_from_x, found.v_from_y
    view_u, view_v = slot(u, np.eye(k_u), none), slot(v, none, np.eye(k_v))
    from_v = slot(u, none, back)
    forward = d[:, None] * np.linalg.inv(S) if r else none
    # x has noise I - S about S2, S D^-1 y has noise S D^-2 S - S: weigh them by precision
    noise_x = np.eye(r) - S + 1e-9 * np.eye(r)
    noise_y = back @ back.T - S + 1e-9 * np.eye(r)
    share = noise_y @ np.linalg.inv(noise_x + noise_y) if r else none
    view_shared = slot(u, np.eye(r), none)
    best = slot(u, share, (np.eye(r) - share) @ back)
    return {
        "S1": own_terms(view_u, from_v, slot(u, none, np.diag(d))),
        "S2": shared_terms(view_shared, from_v, best),
        "S3": own_terms(view_v, slot(v, forward, none), slot(v, np.diag(d), none)),
    }


def solve_paper(state: Moments, n_u: int, *, order: int, rank: int | None, A: Array | None) -> Solution:
    """The paper's formulas on the state of the columns (U, V); covariances are not projected."""
    p = state.layout.n_columns
    u, v = np.arange(n_u), np.arange(n_u, p)
    cumulants = Cumulants(state)
    mixing = mixing_matrix(cumulants, u, v, order=min(order, 4), rank=rank) if A is None else A
    inverse = truncated_pinv(mixing, rank)
    C = cumulants.tensor(np.arange(p), np.arange(p))
    cov_s2 = C[np.ix_(u, v)] @ inverse.T  # k2(U, A^+ V), equation (4) at t = 2
    cov_s2 = (cov_s2 + cov_s2.T) / 2
    # Cov(z, S2) = [Cov(S2); A Cov(S2)]
    with_s2 = np.vstack([cov_s2, mixing @ cov_s2])
    read = np.linalg.pinv(C, hermitian=True) @ with_s2
    return Solution(
        known_A=mixing,
        into_v=np.zeros((p - n_u, 0)),
        from_u=np.zeros((0, n_u)),
        cov_u=C[:n_u, :n_u],
        cov_v=C[n_u:, n_u:],
        cov_s1=C[:n_u, :n_u] - cov_s2,
        cov_s2=cov_s2,
        cov_s3=_symmetric(C[n_u:, n_u:] - C[n_u:, :n_u] @ mixing.T),  # k2(V) - k2(A U, V), equation (5) at t = 2
        cross=(C[:n_u, n_u:], np.eye(p - n_u)),
        root_s2=_root(cov_s2),
        lift=np.zeros((n_u, 0)),
        reduced=False,
        variance_s2=cov_s2 - with_s2.T @ read,
        read=read,
        write=np.eye(n_u),
        source=CumulantSource(state),
        recipes=cross_terms(np.eye(p)[:, :n_u], np.eye(p)[:, n_u:], mixing, inverse),
        rank=min(n_u, p - n_u) if rank is None else rank,
    )
