"""Functions of a few variables -> polynomials, and their expectations -> a rule of few points.

Least squares under a standard Gaussian (Hermite series) is linear in the function's values at certain nodes t_i: the
coefficient of t^alpha is sum_i C_{alpha i} h(t_i). So, with moments m_alpha = E[t^alpha] and M_alpha = E[s t^alpha] of a hidden
part s,

    E[h(t)] ~ sum_i (C'm)_i h(t_i),        E[s h(t)] ~ sum_i (C'M)_i h(t_i):

the moments enter as weights of nodes, whatever h is. Polynomials of several variables t = W's are sums of powers of single
projections (v_j't)^n, so that all moments are projected ones (:meth:`Component.projected_moments`): nothing of size d^n is
formed.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb, factorial, prod

import numpy as np
from numpy.polynomial import hermite_e
from scipy.special import ndtri
from scipy.stats import qmc

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.components.component import check_order

MOST_TERMS = 1001
"""Coefficients of a polynomial: degree four in ten variables."""


def exponents(variables: int, degree: int) -> IntArray:
    """(q, k): of all monomials up to a total degree, lowest first.

    >>> exponents(2, 2).tolist()
    [[0, 0], [1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    """
    rows = []
    for total in range(degree + 1):
        for chosen in combinations_with_replacement(range(variables), total):
            rows.append([chosen.count(j) for j in range(variables)])
    return np.array(rows, dtype=np.int64).reshape(len(rows), variables)


def monomials(points: Array, powers: IntArray) -> Array:
    """(m, q): the products points (m, k) ** powers (q, k)."""
    return np.asarray(np.prod(points[:, None, :] ** powers[None], axis=2))


@lru_cache(maxsize=64)
def gaussian_points(variables: int, degree: int, seed: int = 0) -> tuple[Array, Array]:
    """Points (m, k) and weights (m,) of means under a standard Gaussian, enough of them for polynomials of a total degree: a
    product rule, exact for these and more, or, in many variables, scattered points of equal weight.

    seed : of others, which a fit at the first ones may be looked at with.
    """
    each = min(int((4 * MOST_TERMS if seed else 1.3 * MOST_TERMS) ** (1 / variables)), 40 + seed)
    if each < degree + 2:
        count = 2 ** int(np.ceil(np.log2(4 * comb(variables + degree, degree))))
        points = ndtri(qmc.Sobol(variables, rng=np.random.default_rng(seed)).random(count))
        return points, np.full(count, 1 / count)
    at, weights = hermite_e.hermegauss(each)
    grid = np.stack(np.meshgrid(*[at] * variables, indexing="ij"), axis=-1).reshape(-1, variables)
    product = np.prod(np.meshgrid(*[weights / weights.sum()] * variables, indexing="ij"), axis=0)
    return grid, product.ravel()


@lru_cache(maxsize=64)
def series(variables: int, degree: int, most: int) -> Array:
    """(q, m): values at the Gaussian points for a degree `most` -> coefficients of the monomials up to this degree of the
    polynomial that is nearest under the Gaussian; exact for polynomials."""
    points, weights = gaussian_points(variables, most)
    root, basis = np.sqrt(weights)[:, None], monomials(points, exponents(variables, degree))
    orthonormal, to_monomials = np.linalg.qr(root * basis)
    return np.asarray(np.linalg.solve(to_monomials, orthonormal.T * root.T))


def most_variables(degree: int) -> int:
    """How many variables a polynomial of this degree may have, and still be made in a moment."""
    most = 1
    while comb(most + 1 + degree, degree) <= MOST_TERMS:
        most += 1
    return most


def check_degree(degree: int) -> None:
    """Refuse a degree whose moments no component has."""
    if isinstance(degree, bool) or not isinstance(degree, (int, np.integer)) or degree < 0:
        raise ValueError(f"degree must be an integer, at least 0, got {degree!r}")
    check_order(int(degree) + 1)


@lru_cache(maxsize=64)
def _powers_of_lines(variables: int, degree: int) -> tuple[Array, tuple[Array, ...]]:
    """Directions v (J, k) and, for n = 0..degree, the matrices (monomials of degree n, J) that turn means of (v_j't)^n into
    means of monomials: (v't)^n = sum_alpha (n! / alpha!) v^alpha t^alpha, inverted."""
    rng = np.random.default_rng(0)
    count = comb(variables + degree - 1, degree) if degree > 1 else variables
    lines = np.vstack([np.eye(variables), rng.normal(size=(max(count - variables, 0), variables))])
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)
    powers = exponents(variables, degree)
    back = []
    for n in range(degree + 1):
        of_n = powers[powers.sum(axis=1) == n]
        times = np.array([factorial(n) / prod(map(factorial, row)) for row in of_n.tolist()])
        back.append(np.linalg.pinv(monomials(lines, of_n) * times, rcond=1e-13))
    return lines, tuple(back)


def moments_along(component: Component, maps: Array, degree: int) -> tuple[Array, Array]:
    """E[t^alpha] (q1,) up to degree + 1 and E[x t^alpha] (q, d) up to the degree, of the centred part x = s - mean, t = maps'x.

    maps : (d, k). Needs cumulants of order degree + 1.
    """
    lines, back = _powers_of_lines(maps.shape[1], degree + 1)
    centred = component.centred()
    moments = np.stack([centred.projected_moments(maps @ v, degree + 1) for v in lines])  # (J, degree + 1, d)
    vectors = np.concatenate([back[n] @ moments[:, n] for n in range(degree + 1)])
    along = np.einsum("jnd,jd->jn", moments, lines @ maps.T)  # E[(v't)^(n + 1)]
    scalars = np.concatenate([[1.0], *(back[n + 1] @ along[:, n] for n in range(degree + 1))])
    return scalars, vectors
