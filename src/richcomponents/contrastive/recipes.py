"""How the cumulants of S1, S2 and S3 are read off two views, once A is known or estimated.

With E = U - A^+ V (S2 removed from U) the identities are, for ANY matrices B3 ... Bt,

    k_t(S1) = k_t(E, U, U - B3 V, ..., U - Bt V):

the first slot has no S2, the second no S3, and the others may be chosen for their small variance.
B = 0 is the paper's equation (3) in cross form, B = the regression of U on V the control variate, which lowers the
error of the tensor by a quarter to a half. The same holds for S3 with the views exchanged. For S2,
every cross-cumulant with at least one U and one A^+ V is k_t(S2) (paper, equation (4)).

Slots are (p, d): column j holds the weights of the observed coordinates z in coordinate j of the slot.
"""

from __future__ import annotations

from dataclasses import dataclass

from richcomponents.algebra import Array
from richcomponents.components.component import Recipe, Term
from richcomponents.storage import storable

__all__ = ["OwnRecipes", "PaperRecipes", "SharedRecipes"]


@storable
@dataclass(frozen=True)
class OwnRecipes:
    """S1 (or S3 with the views exchanged).

    view : z -> U; shared : z -> A^+ V; regression : z -> E[U | V], linear. All (p, d).
    """

    view: Array
    shared: Array
    regression: Array

    def __call__(self, order: int) -> list[Recipe]:
        first, second = self.view - self.shared, self.view
        others = (self.view - self.regression, self.view, self.view - self.shared)
        return [(Term(1.0, (first, second, *[other] * (order - 2))),) for other in others]


@storable
@dataclass(frozen=True)
class SharedRecipes:
    """S2: one : z -> U, two : z -> A^+ V, best : z -> the combination of both with the least noise."""

    one: Array
    two: Array
    best: Array

    def __call__(self, order: int) -> list[Recipe]:
        others = (self.best, self.one, self.two)
        return [(Term(1.0, (self.one, self.two, *[other] * (order - 2))),) for other in others]


@storable
@dataclass(frozen=True)
class PaperRecipes:
    """The paper's equations: cross (3)-(5), or polarised (its appendix), which need no cross-cumulants.

        k_t(S2) = [k_t(U + A^+V) - k_t(U) - k_t(A^+V)] / (2^t - 2),      k_t(S1) = k_t(U) - k_t(S2).

    view : z -> U (for S3: V); shared : z -> A^+ V (for S3: A U); own : True for S1 and S3, False for S2.
    """

    view: Array
    shared: Array
    own: bool
    polarised: bool = False

    def __call__(self, order: int) -> list[Recipe]:
        if self.polarised:
            share = 1 / (2.0**order - 2)
            of_s2: Recipe = (
                Term(share, (self.view + self.shared,) * order),
                Term(-share, (self.view,) * order),
                Term(-share, (self.shared,) * order),
            )
        else:
            of_s2 = (Term(1.0, (*[self.view] * (order - 1), self.shared)),)
        if not self.own:
            return [of_s2]
        return [(Term(1.0, (self.view,) * order), *(Term(-t.coefficient, t.slots) for t in of_s2))]
