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

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb, factorial, prod
from typing import Any

import numpy as np
from numpy.polynomial import hermite_e
from scipy.special import ndtri
from scipy.stats import qmc

from richcomponents.algebra import Array, IntArray
from richcomponents.components import Component
from richcomponents.components.component import check_order

MOST_TERMS = 1001
"""Coefficients of a polynomial: degree four in ten variables."""

_GRID = 1000  # nodes of a product grid; four times as many are made of scattered ones
_SCATTERED = 4  # nodes per coefficient


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


@dataclass(frozen=True)
class Stencil:
    """Hermite series of functions of k variables t, for all functions at once.

    nodes (m, k) : where they are evaluated; powers (q, k) : the monomials, lowest degree first; analysis (q, m) : values at the
    nodes -> coefficients of the series; to_monomials (q, q) : these -> of monomials.
    """

    nodes: Array
    powers: IntArray
    analysis: Array
    to_monomials: Array

    def coefficients(self, degree: int) -> Array:
        """(q', m): values at the nodes -> coefficients of the monomials up to a lower degree."""
        kept = int(np.sum(self.powers.sum(axis=1) <= degree))
        return np.asarray(self.to_monomials[:kept, :kept] @ self.analysis[:kept])


def _line(degree: int, nodes: int) -> tuple[Array, Array, Array]:
    """One variable: nodes (m,), analysis (degree + 1, m), to_monomials (degree + 1, degree + 1)."""
    at, weights = hermite_e.hermegauss(nodes)
    norms = np.cumprod(np.r_[1.0, np.arange(1, degree + 1)])
    analysis = hermite_e.hermevander(at, degree).T * (weights / weights.sum()) / norms[:, None]
    back = np.stack([_padded(np.asarray(hermite_e.herme2poly(e)), degree) for e in np.eye(degree + 1)], axis=1)
    return at, analysis, back


def _padded(coefficients: Any, degree: int) -> Array:
    return np.pad(coefficients, (0, degree + 1 - len(coefficients)))


@lru_cache(maxsize=64)
def stencil(variables: int, degree: int) -> Stencil:
    """The approximation of functions of k variables by polynomials of a total degree; exact for those."""
    powers = exponents(variables, degree)
    each = max(degree + 2, min(max(40, degree + 2), int(_GRID ** (1 / max(variables, 1)))))
    if each**variables > 4 * _GRID:
        return _scattered(variables, degree, powers)
    nodes, analysis, back = _line(degree, each)
    grid = np.stack(np.meshgrid(*[nodes] * variables, indexing="ij"), axis=-1).reshape(-1, variables)
    whole = np.ones((len(powers), 1))
    for j in range(variables):
        whole = (whole[:, :, None] * analysis[powers[:, j]][:, None, :]).reshape(len(powers), -1)
    return Stencil(grid, powers, whole, _product(back, powers))


def most_variables(degree: int) -> int:
    """How many variables a polynomial of this degree may have, and still be made in a moment."""
    most = 1
    while comb(most + 1 + degree, degree) <= MOST_TERMS:
        most += 1
    return most


def _product(back: Array, powers: IntArray) -> Array:
    """(q, q): basis functions of several variables are products."""
    return np.asarray(np.prod([back[np.ix_(p, p)] for p in powers.T], axis=0) if powers.shape[1] else np.ones((1, 1)))


def _scattered(variables: int, degree: int, powers: IntArray) -> Stencil:
    """Many variables: least squares over Gaussian points of a Sobol sequence."""
    count = 2 ** int(np.ceil(np.log2(_SCATTERED * len(powers))))
    nodes = ndtri(qmc.Sobol(variables, rng=np.random.default_rng(0)).random(count))
    basis = np.prod([hermite_e.hermevander(nodes[:, j], degree)[:, powers[:, j]] for j in range(variables)], axis=0)
    scale = np.sqrt(np.mean(basis**2, axis=0))
    basis = basis / scale
    analysis = np.linalg.solve(basis.T @ basis, basis.T) / scale[:, None]
    _, _, back = _line(degree, degree + 2)
    return Stencil(nodes, powers, analysis, _product(back, powers))


@lru_cache(maxsize=16)
def gaussian_points(variables: int) -> tuple[Array, Array]:
    """Points (m, k) and weights (m,) for means under a standard Gaussian: a product rule, or scattered points of equal
    weight."""
    each = int((4 * _GRID) ** (1 / variables))
    if each < 5:
        points = ndtri(qmc.Sobol(variables, rng=np.random.default_rng(1)).random(1024))
        return points, np.full(len(points), 1 / len(points))
    at, weights = hermite_e.hermegauss(min(each, 60))
    grid = np.stack(np.meshgrid(*[at] * variables, indexing="ij"), axis=-1).reshape(-1, variables)
    product = np.prod(np.meshgrid(*[weights / weights.sum()] * variables, indexing="ij"), axis=0)
    return grid, product.ravel()


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
    found = np.stack(
        [centred.projected_moments(maps @ v, degree + 1) for v in lines]
    )  # (J, degree + 1, d): E[x (v't)^n]
    vectors = np.concatenate([back[n] @ found[:, n] for n in range(degree + 1)])
    along = np.einsum("jnd,jd->jn", found, lines @ maps.T)  # E[(v't)^(n + 1)]
    scalars = np.concatenate([[1.0], *(back[n + 1] @ along[:, n] for n in range(degree + 1))])
    return scalars, vectors
