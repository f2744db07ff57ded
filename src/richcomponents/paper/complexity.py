"""Appendix B: how many samples the paper's formulas ask for, from the condition of the problem.

The lemmas bound errors by products of powers of a few quantities and leave constant factors open: O(.) and Omega(.). All
figures here take every such constant to be one. They are orders of magnitude, and pessimistic: use them to compare problems
(which one is worse conditioned, and where), not to plan a study. They are powers of large numbers: all are computed as
logarithms, inf where a problem is singular (sigma or sigma_A zero) or beyond floating point, and never less than one sample.

Read as follows: the bound of Bulinskii on a cumulant is (t R)^t, and the second term of the error of k_t(S1) eps_t / sigma_A.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, log10

import numpy as np

from richcomponents.algebra import Array, unfold
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.cumulants import cross_cumulant
from richcomponents.paper.general import Linear, compute_cumulant


@dataclass(frozen=True)
class SampleComplexity:
    """The quantities of Appendix B and the samples they ask for.

    sigma : smallest singular value of the unfolded cumulants that are inverted: sigma_4, of k4(V, U, U, U), for two views;
    sigma_kappa, of k_(L+1)(S_Q) over all members, for a set system.
    sigma_A, norm_A : smallest singular value (zero of a matrix with fewer rows than columns, which has no left inverse) and
    spectral norm over all transformations; norm_A is at least one, as the lemmas assume.
    radius : R, a bound on |S| for every component.
    order : t, of the cumulants that are wanted; accuracy : eta, their error in Frobenius norm.
    L, members, chain : the set system is L-distinguishable, has p members, and its longest chain of subsets q members.
    of_mixing : error of the transformations, per unit of error (Frobenius) of the cumulants they come from.
    of_cumulants : the same for cumulants of order t; inf beyond floating point.
    log10_samples : decimal logarithm of the number of samples for this accuracy, inf for accuracy 0.

    >>> two_view_complexity(np.eye(9)[:, :1], np.eye(9)[:, :1], np.eye(1), radius=10.0).chain
    2
    """

    sigma: float
    sigma_A: float
    norm_A: float
    radius: float
    order: int
    accuracy: float
    L: int
    members: int
    chain: int
    of_mixing: float
    of_cumulants: float
    log10_samples: float

    @property
    def samples(self) -> float:
        """N; inf beyond floating point."""
        return _ten_to(self.log10_samples)


def cumulant_bound(order: int, radius: float) -> float:
    """(t R)^t, which bounds the Frobenius norm of any cross-cumulant of order t of variables of norm at most R.

    >>> cumulant_bound(2, 3.0), cumulant_bound(6, 1e60)
    (36.0, inf)
    """
    _check(order, radius)
    return _ten_to(order * _log(order * radius))


def two_view_complexity(
    U: Array,
    V: Array,
    A: Array,
    *,
    radius: float,
    order: int = 4,
    accuracy: float = 0.1,
    unbiased: bool = True,
) -> SampleComplexity:
    """Of equations (2) and (3), Appendix B.1: exponents as in the lemma, its constants taken as one.

        |A^ - A| <= eps |A|^2 R^4 / sigma_4^2,                       eps <= R^4 |A|^2 / sqrt(N),
        |k_t^ - k_t| <= eps |A|^3 R^4 (t R)^t / (sigma_4^2 sigma_A^2) + eps_t / sigma_A,    eps_t <= (t R)^t |A| / sqrt(N),
        N = (t R)^(2t) |A|^10 R^16 / (sigma_4^4 sigma_A^4 eta^2).

    U, V : samples, (n, d_u) and (n, d_v); A : (d_v, d_u). of_cumulants counts eps_t = eps.

    >>> S2 = np.random.default_rng(0).exponential(size=(1000, 1))
    >>> two_view_complexity(S2, S2, np.eye(1), radius=10.0).samples > 1e20
    True
    """
    _check(order, radius, accuracy)
    (sigma, _), (sigma_A, norm) = _scales([unfold(cross_cumulant(V, U, U, U, unbiased=unbiased))]), _scales([A])
    a, R, s, s_A, eta = map(_log, (norm, radius, sigma, sigma_A, accuracy))
    bound, mixing = order * _log(order * radius), 2 * a + 4 * R - 2 * s
    of_cumulants = _ten_to(mixing + a + bound - 2 * s_A) + _ten_to(-s_A)
    samples = max(2 * (bound + 5 * a + 8 * R - 2 * s - 2 * s_A - eta), 0.0)
    about = sigma, sigma_A, norm, radius, order, accuracy
    return SampleComplexity(*about, 2, 3, 2, _ten_to(mixing), of_cumulants, samples)


def set_complexity(
    views: Mapping[str, Array],
    linear: Linear,
    *,
    radius: float,
    order: int | None = None,
    accuracy: float = 0.1,
    unbiased: bool = True,
) -> SampleComplexity:
    """Of FindLinear and ComputeCumulant, Appendix B.2; order : t >= L, L + 1 by default.

    of_mixing follows the proof's induction over the depth of a chain, whose exponents it gives: with eps = 1,

        eps_A(1) = |A|^(L+1) (L R)^(L+1) / (sigma_A^(2L) sigma_kappa^2),    eps_k(q) = L eps_A(q) |A|^L (L R)^(L+1) / sigma_A^2,
        eps_A(q + 1) = eps_k(q) p |A|^(2L+2) (L R)^(L+1) / (sigma_A^(2L) sigma_kappa^2).

    For cumulants of order t the lemma gives the exponent itself as O(q L + q t) only; it is taken as q (L + t), of the base
    p L R |A| / (sigma_A sigma_kappa), for the error per unit of eps. With eps of the order of N^(-1/2), as for two views,
    N = base^(2 q (L + t)) / eta^2: the lemma's O(.) in the exponent hides the two. The last two figures are the least certain.

    Examples
    --------
    >>> S = np.random.default_rng(0).exponential(size=(1000, 1))
    >>> from richcomponents.paper import find_linear
    >>> linear = find_linear({"a": S, "b": S}, [("a", "b")])
    >>> set_complexity({"a": S, "b": S}, linear, radius=10.0).chain
    1
    """
    system = linear.system
    L, members, q = system.L, len(system), longest_chain(system)
    t = L + 1 if order is None else order
    _check(t, radius, accuracy)
    sources = [unfold(compute_cumulant(views, linear, member, L + 1, unbiased=unbiased)) for member in system]
    (sigma, _), (sigma_A, norm) = _scales(sources), _scales(linear.transforms.values())
    a, LR, s, s_A, p = map(_log, (norm, L * radius, sigma, sigma_A, members))
    inverted = (L + 1) * LR - 2 * L * s_A - 2 * s
    mixing = (L + 1) * a + inverted  # eps_A(1)
    for _ in range(q - 1):
        mixing += _log(L) + L * a + (L + 1) * LR - 2 * s_A + p + (2 * L + 2) * a + inverted
    exponent = q * (L + t) * (p + LR + a - s_A - s)
    about = sigma, sigma_A, norm, radius, t, accuracy
    samples = max(2 * (exponent - _log(accuracy)), 0.0)
    return SampleComplexity(*about, L, members, q, _ten_to(mixing), _ten_to(exponent), samples)


def longest_chain(system: SetSystem) -> int:
    """q, the members of the longest chain Q_1 in Q_2 in ... (strictly)."""
    depth: dict[Subset, int] = {}
    for member in system.order:  # larger sets come first
        depth[member] = 1 + max((depth[above] for above in system.supersets(member)), default=0)
    return max(depth.values())


def _check(order: int, radius: float, accuracy: float = 0.0) -> None:
    """Refuse what no problem has."""
    if order < 1:
        raise ValueError(f"order= must be at least 1, got {order!r}")
    if not 0 < radius < inf:
        raise ValueError(f"radius= must be positive and finite, a bound on the norm of every component, got {radius!r}")
    if not accuracy >= 0:
        raise ValueError(f"accuracy= must not be negative, got {accuracy!r}")


def _log(x: float) -> float:
    """Decimal logarithm; -inf of zero."""
    return log10(x) if x > 0 else -inf


def _ten_to(exponent: float) -> float:
    """inf beyond floating point."""
    return 10.0**exponent if exponent < 308 else inf


def _scales(matrices: Iterable[Array]) -> tuple[float, float]:
    """Of them all: the smallest singular value on all columns, zero where there are more of them than rows, and the spectral
    norm, at least one."""
    every = [(np.linalg.svd(one, compute_uv=False), one.shape) for one in matrices]
    return min(float(s[-1]) if m >= d else 0.0 for s, (m, d) in every), max(1.0, *(float(s[0]) for s, _ in every))
