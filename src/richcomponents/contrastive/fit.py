"""From moments of two views to what is known about A and T.

One walk for rows and for saved states: second order -> canonical coordinates and rank -> the state of
the canonical coordinates z = (x, y) -> block cumulants -> T. Rows are mapped and read a second time; a state is
transformed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from richcomponents.algebra import Array
from richcomponents.algebra.parallel import one_blas_thread
from richcomponents.components.data import AffineMap, Data
from richcomponents.components.dependence import Dependence
from richcomponents.components.frame import Frame
from richcomponents.contrastive.canonical import Canonical, canonical
from richcomponents.contrastive.evidence import grams, implicit_grams, joint_whitening
from richcomponents.contrastive.identify import Identified, identify, lower_end
from richcomponents.contrastive.known import identify_known
from richcomponents.contrastive.rank import choose_rank
from richcomponents.errors import DataError
from richcomponents.moments import Moments
from richcomponents.storage import storable

__all__ = ["SharedPart", "canonical_of", "find_shared", "measured_canonical", "resolve_rank"]

_MOST_PAIRED = 50_000  # rows above which the form that compares rows in pairs is never the cheaper one


@storable
@dataclass(frozen=True)
class SharedPart:
    """What the second and higher orders say, in the user's units.

    canonical : coordinates of the two views; identified : T and how sure it is; state : moments of z = (x, y), all of
    canonical.rank_u + canonical.rank_v coordinates or, for wide tables, the leading ones (then `leading` is True);
    grams : (2, B, B, 2r, 2r), the evidence.
    """

    canonical: Canonical
    identified: Identified
    state: Moments
    leading: bool
    grams: Array

    @property
    def rank(self) -> int:
        return self.identified.rank


def resolve_rank(rank: object, found: Canonical) -> int:
    """The `rank=` argument: "auto" (sequential test), "full", or a number."""
    full = len(found.correlations)
    if rank == "auto":
        return choose_rank(found)
    if rank == "full":
        return full
    if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)):
        raise ValueError(f"rank must be 'auto', 'full' or an integer, got {rank!r}")
    if not 0 <= rank <= full:
        raise DataError(
            f"rank={rank} is impossible: the views have {found.rank_u} and {found.rank_v} independent columns, so they "
            f"share at most {full} directions. If the shared part has more, it cannot be recovered from these views: "
            "add columns to the smaller one"
        )
    return int(rank)


def canonical_of(second: Moments, n_u: int, lost: float = 0.0) -> Canonical:
    """Canonical coordinates of a state whose first n_u columns are U and the others V; lost : rows spent on covariates."""
    C = second.covariance(unbiased=False)
    return canonical(C[:n_u, :n_u], C[:n_u, n_u:], C[n_u:, n_u:], second.n - lost)


def measured_canonical(second: Moments, n_u: int, data: Data | None, lost: float = 0.0) -> tuple[Canonical, AffineMap]:
    """Canonical coordinates that know how many independent rows they rest on, and the map to all of them."""
    found = canonical_of(second, n_u, lost)
    for which, independent in (("first", found.rank_u), ("second", found.rank_v)):
        if not independent:
            raise DataError(f"no column of the {which} view varies: there is nothing to compare")
    everything = AffineMap(second.mean, linalg.block_diag(found.x_from_u.T, found.y_from_v.T))
    dependence = None if data is None else data.dependence(everything, found.correlations, found.rank_u)
    return (found if dependence is None else found.with_dependence(dependence)), everything


def find_shared(
    data: Data,
    second: Moments,
    n_u: int,
    *,
    rank: object = "auto",
    order: int = 4,
    A: Array | None = None,
    wide: bool = False,
    second_order_only: Callable[[Canonical], bool] = lambda found: False,
    dependence: Dependence | None = None,
    random_state: int | None = 0,
) -> SharedPart:
    """The estimator, from second moments and a way to get moments of linear maps of the columns.

    Parameters
    ----------
    data : Data
        Of the columns (U, V).
    second : Moments
        Its moments, of any order >= 2.
    n_u : int
        How many columns are U.
    rank, A, random_state
        As in ContrastiveRCA; A in the coordinates of `data`.
    order : 3 or 4
        Highest order of the evidence.
    wide : bool
        Take only the leading coordinates.
    second_order_only : callable
        Whether there are too few independent rows for more: T = 0.
    dependence : Dependence, optional
        How the rows depend on each other, where it was measured before.
    """
    found, everything = measured_canonical(second, n_u, data if dependence is None else None, data.lost)
    if dependence is not None:
        found = found.with_dependence(dependence)
    r = resolve_rank(rank, found)
    lead = AffineMap(second.mean, found.leading(r).T)
    if wide and r == 0:
        lead = AffineMap(second.mean, everything.matrix[:, :1])  # a state needs a column; nothing is read from it
    state = data.moments(4, lead if wide else everything)
    n_blocks = int(np.sum(second.block_sizes > 0))
    nothing = np.zeros((2, n_blocks, n_blocks, 2 * r, 2 * r))
    if A is not None:
        return SharedPart(found, identify_known(found, r, A, random_state), state, wide, nothing)
    if second_order_only(found) and r:
        return SharedPart(found, lower_end(found, r, n_blocks, "not identified"), state, wide, nothing)
    D = found.correlations[:r]
    z = None
    if r and (wide or second.n < r**3 / 10) and 4 * data.n_blocks <= second.n <= _MOST_PAIRED:
        z = data.sample(lead)  # rows compared in pairs are the cheaper form of the evidence
    if r == 0:
        evidence = nothing
    elif z is not None:
        evidence = implicit_grams(z, joint_whitening(D), n_blocks=data.n_blocks)
        evidence[1] *= order >= 4
    else:
        columns = np.arange(2 * r) if wide else np.concatenate([np.arange(r), found.rank_u + np.arange(r)])
        evidence = grams(state.select(columns), D, order=order)
    with one_blas_thread():
        identified = identify(found, r, evidence, random_state)
    return SharedPart(found, identified, state, wide, evidence)


def in_users_units(found: Canonical, u: Frame, v: Frame) -> Canonical:
    """Canonical maps of reduced or transformed columns, composed with the way to the user's columns."""
    return replace(
        found,
        x_from_u=found.x_from_u @ u.inner,
        u_from_x=u.outer @ found.u_from_x,
        y_from_v=found.y_from_v @ v.inner,
        v_from_y=v.outer @ found.v_from_y,
    )
