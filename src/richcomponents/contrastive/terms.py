"""How the cumulants of S1, S2 and S3 are read off two views, once A is known or estimated.

With E = U - A^+ V (S2 removed from U) the identities are, for ANY matrices B3 ... Bt,

    k_t(S1) = k_t(E, U, U - B3 V, ..., U - Bt V):

the first slot has no S2, the second no S3, and the others may be chosen for their small variance.
B = 0 is the paper's equation (3) in cross form, B = the regression of U on V the control variate, which lowers the
error of the tensor by a quarter to a half. The same holds for S3 with the views exchanged. For S2,
every cross-cumulant with at least one U and one A^+ V is k_t(S2) (paper, equation (4)).

Maps are (p, d): column j holds the weights of the observed coordinates z in coordinate j.
"""

from __future__ import annotations

from richcomponents.algebra import Array
from richcomponents.components.terms import Term, Terms

__all__ = ["own_terms", "shared_terms"]


def own_terms(view: Array, shared: Array, regression: Array) -> Terms:
    """Of S1 (or S3 with the views exchanged).

    view : z -> U; shared : z -> A^+ V; regression : z -> E[U | V], linear. All (p, d).
    """
    head = (view - shared, view)
    return Terms(tuple((Term(1.0, head, fill),) for fill in (view - regression, view, head[0])), whole=view)


def shared_terms(one: Array, two: Array, best: Array) -> Terms:
    """Of S2: one : z -> U, two : z -> A^+ V, best : z -> the combination of both with the least noise."""
    return Terms(tuple((Term(1.0, (one, two), fill),) for fill in (best, one, two)))
