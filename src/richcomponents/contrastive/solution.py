"""The estimator of the contrastive model: what two views say about S1, S2 and S3, in the user's units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.algebra.parallel import one_blas_thread
from richcomponents.components.covariance import Factored, Spread, added, triangular
from richcomponents.components.linear_map import LinearMap
from richcomponents.components.reduce import SearchSpace
from richcomponents.components.terms import CumulantSource
from richcomponents.contrastive.bounds import bounds_with_noise, ends_below
from richcomponents.contrastive.canonical import Canonical, canonical_coordinates
from richcomponents.contrastive.diagnostics import ADVICE, SUSPICIOUS, contradicted
from richcomponents.contrastive.directions import trust_in_directions
from richcomponents.contrastive.evidence import grams, implicit_grams, joint_whitening
from richcomponents.contrastive.intervals import (
    Target,
    confidence,
    evaluate,
    functional_error,
    plain_grams,
    replicate,
)
from richcomponents.contrastive.known_mixing import check_known_mixing
from richcomponents.contrastive.outcomes import PairOutcomes
from richcomponents.contrastive.pair import BlockCovariances
from richcomponents.contrastive.parts import PairOptions
from richcomponents.contrastive.posterior import identify, identify_known, lower_end
from richcomponents.contrastive.rank import largest_rank, resolve_rank
from richcomponents.contrastive.specification import overidentification_test
from richcomponents.contrastive.two_views import Key
from richcomponents.cumulants.estimate import Estimate
from richcomponents.errors import (
    SampleSizeWarning,
    SpecificationWarning,
    WeakIdentificationWarning,
    warn_user,
)
from richcomponents.moments import Layout, Moments
from richcomponents.moments.data import AffineMap, Data, StateData
from richcomponents.storage import storable

__all__ = ["PairOptions", "PairSolution", "solve_pair"]

MIN_ROWS = 40  # below, block cumulants of order three and four say nothing
MIN_BLOCKS = 10  # of samples, for statistics that compare blocks
MOST_PAIRED = 50_000  # rows above which the form of the evidence that compares rows in pairs is never the cheaper one
LARGEST_STATE = MEMORY_LIMIT // 2


@storable
@dataclass(frozen=True)
class PairSolution(PairOutcomes):
    """How sure the estimator is of its parts, and its refits without a block."""

    def covariance_for_directions(self, key: Key, k: int) -> tuple[Spread, float]:
        """Cov(S1) at as much of T as its k leading directions support, and that share of T; of others as they are."""
        own, known = self.covariance(key), self.posterior
        if key != self.keys[0] or self.known_A is not None:
            return own, 1.0
        if self.rank == 0 or known.gate == 0:
            return own, 0.0
        turned = self.lift_u * known.h
        residualised = added(own, turned, known.gate * known.t)
        trust = trust_in_directions(known, self.block_evidence(), residualised, k)
        return added(residualised, turned, -trust * known.t), trust

    def functional_error(
        self, key: Key, change: Callable[[Array, Array], Array], mean_fixed: bool
    ) -> tuple[Array, int] | None:
        """Standard errors (p,) of a smooth function of Cov(S1) and of the mean of S1, and the number of blocks.

        change : changes (n, d, d) of Cov(S1) and (n, d) of the mean -> changes (n, p) of the function, to first order;
        mean_fixed : the mean of S1 is known. None where the blocks do not tell.
        """
        if key != self.keys[0] or not self.evident or self.truncated:
            return None
        blocks = BlockCovariances.of(self.state)
        x = blocks.first[:, : self.canonical.rank_u]
        means = (blocks.count @ x - blocks.count[:, None] * x) / (blocks.count.sum() - blocks.count)[:, None]
        moved = (means - blocks.count @ x / blocks.count.sum()) @ self.canonical.u_from_x.T
        rep = replicate(self.block_evidence())
        return functional_error(rep, change, moved * (0.0 if mean_fixed else 1.0)), len(moved)

    def canonical_weights(self, key: Key, untrusted: float) -> tuple[Array, Array] | None:
        """x_from_u (k, d_u), and weights (k, k) of the entries of Cov(S1) in canonical coordinates.

        Outside the shared block they are known from second moments alone, weight 1; inside, as well as T is: between
        `untrusted` and 1.
        """
        if key != self.keys[0]:
            return None
        weights = np.ones((self.canonical.rank_u,) * 2)
        trust = 1.0 if self.known_A is not None else self.posterior.gate
        weights[: self.rank, : self.rank] = untrusted + (1 - untrusted) * trust
        return self.canonical.x_from_u, weights

    def told(self) -> dict[str, Any]:
        known, test = self.posterior, None
        if self.rank and known.order_weights.any():
            test = overidentification_test(self.block_evidence(), plain_grams(known, self.grams))
        return {
            "strength": known.strength,
            "gain": known.gain,
            "gate": known.gate,
            "tau": known.tau,
            "order_weights": known.order_weights,
            "overidentification": test,
            "searched_u": self.canonical.rank_u if isinstance(self.cov_u, Factored) else None,
            "searched_v": self.canonical.rank_v if isinstance(self.cov_v, Factored) else None,
        }

    def interval(self, what: Target) -> Estimate | None:
        """Of A, of the covariance of a component or of Var(S1), without refitting; None where only refitting tells.

        Without evidence, or where more shared directions cannot be excluded: the identified set widened for noise.
        """
        if self.known_A is not None:
            return None
        point, more = self._point(what), self.largest_rank > self.rank
        if what == "mixing" and (more or self.rank == 0):
            return Estimate.unbounded(point)
        if more or (self.rank and self.posterior.gate == 0):
            limits = self._identified_interval(what, point, more)
            if more and self.posterior.gate > 0 and not self.truncated and what in ("cov_s1", "var_s1"):
                return replace(limits, covering=self._one_step(what, point))
            return limits
        if self.rank and not self.truncated and what in ("mixing", "cov_s1", "var_s1"):
            return self._one_step(what, point)
        return None

    def _point(self, what: Target) -> Array:
        if what == "mixing":
            return self.A
        if what == "var_s1":
            return np.array(self.covariance(self.keys[0]).diagonal())
        return np.asarray(self.covariance(self.keys[int(what[-1]) - 1]))

    def _identified_interval(self, what: Target, point: Array, more: bool) -> Estimate:
        """The ends of the identified set and their sampling noise; more : further directions than the rank may be shared."""
        unknown = np.full_like(point, np.nan)
        if self.truncated:  # the part outside the leading directions has no block statistics: its noise is left out
            if what == "mixing":
                return Estimate.unbounded(point)
            ends = self.identified_set()
            low, high = ends.variances() if what == "var_s1" else ends.ends()
            if what == "cov_s2":
                low, high = np.asarray(self.cov_u) - high, np.asarray(self.cov_u) - low
            elif what == "cov_s3":
                low, high = ends_below(np.asarray(self.cov_v))
            return Estimate(point, unknown, 1, identified=(low, high))
        blocks, beyond = BlockCovariances.of(self.state), self._beyond(what)
        set_, error = bounds_with_noise(self.canonical, self.rank, blocks, what, more)
        return Estimate(
            point,
            unknown,
            len(blocks.count) - 1,
            identified=(set_.lower + beyond, set_.upper + beyond),
            identified_error=(error.lower, error.upper),
        )

    def _beyond(self, what: Target) -> Any:
        """What Cov(S1) or Cov(S3) has outside the principal components a wide view was reduced to; its own noise is left
        out."""
        if what not in ("cov_s1", "var_s1", "cov_s3"):
            return 0.0
        found = self.canonical
        own, total = (found.v_from_y, self.cov_v) if what == "cov_s3" else (found.u_from_x, self.cov_u)
        if own.shape[1] == len(own):
            return 0.0
        if what == "var_s1":
            return total.diagonal() - np.sum(own**2, axis=1)
        return np.asarray(total) - own @ own.T

    def _one_step(self, what: Target, point: Array) -> Estimate:
        """One Newton step per left-out block. Where the gate is half open Cov(S1) is the gated point, and the limits reach
        from there over those of the estimate without the gate."""
        replicates = replicate(self.block_evidence())
        centre = point
        if what != "mixing":
            centre = evaluate(replicates.basis, what, self.posterior.t) + self._beyond(what)
        return replace(confidence(replicates, what, centre), value=point, centre=centre)

    def without(self, block: int) -> PairSolution:
        """Refitted without one block, from the state alone; what was decided (rank, orders, dependence) stays."""
        state, found, k = self.state.without([block]), self.canonical, self.rank
        k_u, k_v = (k, k) if self.truncated else (found.rank_u, found.rank_v)
        u = LinearMap(found.x_from_u[:k_u], found.u_from_x[:, :k_u])
        v = LinearMap(found.y_from_v[:k_v], found.v_from_y[:, :k_v])
        moved = np.concatenate([u.back @ state.mean[:k_u], v.back @ state.mean[k_u:]])
        return _solve(
            SearchSpace(
                StateData(state, self.lost), dict(zip(self.views, (u, v), strict=True)), mean=self.mean + moved
            ),
            self.keys,
            replace(self.options, rank=k),
            decided=self,
        )


@dataclass(frozen=True)
class _EveryColumn:
    """Covariance of a view in the user's columns, and the loadings of the shared part in all of them, (d, r)."""

    spread: Spread
    lift: Array

    @classmethod
    def of_rows(cls, view: Array, other: Array, correlations: Array) -> _EveryColumn:
        """A wide view (n, d), centred; other (n, r): shared canonical variates of the other view; correlations D (r,).

        lift = Cov(view, other) / D: the other view sees nothing of what is this view's own.
        """
        together = view.T @ other / len(view)  # Cov(other) = I: these are regression coefficients
        left = triangular(view - other @ together.T)
        return cls(Factored.of(left).plus(together.T, np.eye(len(correlations))), together / correlations)


def _every_column(
    space: SearchSpace, second: Moments, inner: Canonical, found: Canonical, r: int, whole: PairSolution | None
) -> list[_EveryColumn]:
    """Both views: from rows where they are wide; else from the columns that were searched, and from what the `whole` solution,
    of which this is a replicate, has outside them."""
    d = np.maximum(found.correlations[:r], 1e-9)
    n_u = inner.x_from_u.shape[1]
    C = second.covariance(unbiased=False)
    maps = (found.x_from_u, found.u_from_x, inner.y_from_v), (found.y_from_v, found.v_from_y, inner.x_from_u)
    inside, ends = (C[:n_u, :n_u], C[n_u:, n_u:]), np.cumsum([0, found.u_from_x.shape[0], found.v_from_y.shape[0]])
    rows = None if space.rows is None else [space.rows[:, ends[i] : ends[i + 1]] for i in (0, 1)]
    out = []
    for i, frame in enumerate(space.frames.values()):
        _, back, other = maps[i]
        if rows is not None and len(frame.to) < len(frame.back):
            out.append(_EveryColumn.of_rows(rows[i], rows[1 - i] @ maps[1 - i][0][:r].T, d))
            continue
        lift, covariance = back[:, :r], inside[i]
        if whole is None:
            out.append(_EveryColumn(frame.back @ covariance @ frame.back.T, lift))
            continue
        total, loading = (whole.cov_u, whole.lift_u) if i == 0 else (whole.cov_v, whole.lift_v)
        if isinstance(total, Factored):
            before = whole.posterior.correlations
            beyond = (
                loading - frame.back[:, : len(before)]
            ) * before  # covariance there with the other view's variates
            spread: Spread = total.plus(frame.back.T, -np.eye(frame.back.shape[1])).plus(frame.back.T, covariance)
            out.append(_EveryColumn(spread, lift + beyond @ other[:r, :r].T / d))
        else:
            rest = total - frame.back @ frame.back.T
            out.append(_EveryColumn(frame.back @ covariance @ frame.back.T + rest, lift))
    return out


def solve_pair(space: SearchSpace, keys: tuple[Key, Key, Key], options: PairOptions) -> PairSolution:
    """The estimator. keys : what S1, S2 and S3 are called."""
    solution = _solve(space, keys, options)
    if solution.verdict in ("weak", "not identified") and not solution.second_order_only:  # that was warned of already
        warn_user(ADVICE[solution.verdict], WeakIdentificationWarning)
    if solution.mixing_test is not None and solution.mixing_test.p_value < SUSPICIOUS:
        warn_user(contradicted(solution.mixing_test), SpecificationWarning)
    return solution


def _solve(
    space: SearchSpace, keys: tuple[Key, Key, Key], options: PairOptions, decided: PairSolution | None = None
) -> PairSolution:
    """One walk for rows and for saved states: second order -> canonical coordinates and rank -> the state of the canonical
    coordinates z = (x, y) -> block cumulants -> T.

    decided : the solution of which this is a replicate.
    """
    data, (u, v), (first, second_view) = space.data, space.frames.values(), space.frames
    second = data.moments(2)
    A = options.checked_A(len(u.back), len(v.back))
    inner_A = None if A is None else v.to @ A @ u.back
    inner, everything = canonical_coordinates(
        data, second, len(u.to), None if decided is None else decided.canonical.dependence
    )
    r = resolve_rank(options.rank, inner)
    D, n_blocks = inner.correlations[:r], int(np.sum(second.block_sizes > 0))
    truncated = not _fits(len(u.to) + len(v.to), data.n_blocks)
    lead = AffineMap(second.mean, inner.leading(r).T)
    if truncated and r == 0:
        lead = AffineMap(second.mean, everything.matrix[:, :1])  # a state needs a column; nothing is read from it
    state = data.moments(4, lead if truncated else everything)
    seen = np.zeros((2, n_blocks, n_blocks, 2 * r, 2 * r))
    second_order_only = False
    if A is None:
        second_order_only = _too_small(second, inner.n, options.rank) if decided is None else decided.second_order_only
    if inner_A is not None:
        posterior = identify_known(inner, r, inner_A, options.random_state)
    elif second_order_only and r:
        posterior = lower_end(D, n_blocks, "not identified")
    else:
        if r:
            seen = _evidence(data, state, second.n, lead, inner, r, truncated, min(options.order, 4))
        with one_blas_thread():
            posterior = identify(D, inner.n, seen, options.random_state)
    found = inner.composed(u, v)
    every_u, every_v = _every_column(space, second, inner, found, r, decided)
    test = None  # replicates keep what the full fit decided; of reduced views A is not the whole story
    if inner_A is not None and decided is None and space.rows is None:
        test = check_known_mixing(second, len(u.to), options.rank, inner_A)
    high = None
    if options.order > 4 and not truncated and decided is None:
        high = data.moments(options.order, everything)
    return PairSolution(
        keys=keys,
        views=(first, second_view),
        mean=np.array(second.mean) if space.mean is None else space.mean,
        n=second.n,
        canonical=found,
        state=state,
        cov_u=every_u.spread,
        cov_v=every_v.spread,
        source=None if truncated else CumulantSource(state, high=high),
        options=options,
        posterior=posterior,
        truncated=truncated,
        grams=seen,
        lift_u=every_u.lift,
        lift_v=every_v.lift,
        known_A=A,
        mixing_test=test,
        second_order_only=second_order_only,
        most_rank=r if A is not None or options.rank != "auto" else largest_rank(inner, r),
        lost=data.lost,
        units=space.units,
        grouped=space.grouped,
    )


def _evidence(
    data: Data, state: Moments, n: int, lead: AffineMap, inner: Canonical, r: int, truncated: bool, order: int
) -> Array:
    """Gram matrices (2, B, B, 2r, 2r) of the block cumulants, from rows compared in pairs where that is cheaper."""
    D, rows = inner.correlations[:r], None
    if (truncated or n < r**3 / 10) and 4 * data.n_blocks <= n <= MOST_PAIRED:
        rows = data.sample(lead)
    if rows is None:
        columns = np.arange(2 * r) if truncated else np.concatenate([np.arange(r), inner.rank_u + np.arange(r)])
        return grams(state.select(columns), D, order=order)
    seen = implicit_grams(rows, joint_whitening(D), n_blocks=data.n_blocks)
    seen[1] *= order >= 4
    return seen


def _fits(columns: int, n_blocks: int) -> bool:
    """Whether a state of order four of so many columns can be kept."""
    try:
        Layout(columns, 4, n_blocks=n_blocks).check_memory(LARGEST_STATE)
    except MemoryError:
        return False
    return True


def _too_small(second: Moments, n: float, rank: object) -> bool:
    """Whether there are too few independent rows, n, or blocks of them, for cumulants of higher order; says so."""
    blocks = int(np.sum(second.block_sizes > 0))
    if n >= MIN_ROWS and blocks >= MIN_BLOCKS:
        return False
    kind = "samples" if n == second.n else "independent samples"
    short = f"{n:.0f} {kind} are" if n < MIN_ROWS else f"{blocks} blocks of samples (or groups) are"
    unsure = "" if n >= MIN_ROWS or rank != "auto" else ". The number of shared directions is hardly tested: give rank="
    warn_user(
        f"{short} too few for cumulants of order three and four (at least {MIN_ROWS} samples in {MIN_BLOCKS} blocks are "
        f"needed): only second moments are used, and coefficients are those of residualising{unsure}",
        SampleSizeWarning,
    )
    return True
