"""Set systems: which hidden component lives in which views.

A component S_Q is seen in the views Q and nowhere else. A cross-cumulant k(U_w1, ..., U_wt) with support
W = {w1..wt} receives a contribution from S_Q exactly when W is contained in Q. So S_Q can be isolated, once the
components of larger sets are known, by any support T inside Q that lies in no other member except supersets
of Q: a DISTINGUISHING set (paper, Definition 3.1; the empty set, which the definition admits, is of no use).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations

from richcomponents.algebra.arrays import IntArray, Truth
from richcomponents.errors import DataError
from richcomponents.storage import storable
from richcomponents.text import in_line, page

_MOST_CHECKS = 20_000_000  # of a set against a member
_MOST_VIEWS = 10  # of which all sets are taken
Subset = tuple[str, ...]  # view names, in the order of the views


@storable
@dataclass(frozen=True)
class SetSystem:
    """Distinct non-empty subsets of the views, each the home of one component.

    views : names, in order; members : subsets, each in view order. Made by :meth:`of` and :meth:`all`.

    Examples
    --------
    >>> system = SetSystem.of([("a",), ("a", "b"), ("b",)], ("a", "b"))
    >>> system.L, system.distinguishing(("a", "b"))
    (2, ('a', 'b'))
    >>> system.order
    (('a', 'b'), ('a',), ('b',))
    """

    views: tuple[str, ...]
    members: tuple[Subset, ...]

    @classmethod
    def of(cls, sets: Iterable[object], views: Sequence[str]) -> SetSystem:
        """Checked: members non-empty, distinct, of known views. A string stands for a single view."""
        names = tuple(views)
        if len(set(names)) < len(names):
            raise DataError(f"view names must differ, got {names}")
        found: list[Subset] = []
        for given in sets:
            wanted = (given,) if isinstance(given, str) else tuple(map(str, given))  # type: ignore[call-overload]
            if not wanted:
                raise DataError("a set of views is empty: a component lives in at least one view")
            unknown = [view for view in wanted if view not in names]
            if unknown:
                raise DataError(f"set {given!r} names view {unknown[0]!r}; the views are {', '.join(map(repr, names))}")
            subset = tuple(view for view in names if view in wanted)
            if len(subset) < len(wanted):
                raise DataError(f"set {given!r} names a view twice: every view once")
            if subset in found:
                raise DataError(
                    f"set {subset} appears twice: two components that live in the same views cannot be told apart "
                    "from each other by any cumulant; their sum is one component, so name the set once"
                )
            found.append(subset)
        if not found:
            raise DataError("there are no sets: name at least one")
        for view in names:
            if not any(view in subset for subset in found):
                raise DataError(f"view {view!r} is in no set: add ({view!r},), or leave the view out")
        return cls(names, tuple(found))

    @classmethod
    def all(cls, views: Sequence[str]) -> SetSystem:
        """All 2^k - 1 non-empty subsets of the views.

        >>> len(SetSystem.all("abc"))
        7
        """
        names = tuple(views)
        if len(names) > _MOST_VIEWS:
            raise DataError(
                f"{len(names)} views have 2^{len(names)} - 1 sets, too many to tell apart: name those that can be there (sets=)"
            )
        return cls.of(chain.from_iterable(combinations(names, size) for size in range(len(names), 0, -1)), names)

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Subset]:
        return iter(self.members)

    def __contains__(self, subset: object) -> bool:
        return subset in self.members

    @cached_property
    def order(self) -> tuple[Subset, ...]:
        """The order of processing: larger sets first, so that no set is contained in one that comes later."""
        return tuple(sorted(self.members, key=lambda q: (-len(q), [self.views.index(v) for v in q])))

    @cached_property
    def L(self) -> int:
        """The system is L-distinguishable for this L and no smaller one."""
        return max(len(self.distinguishing(q)) for q in self.members)

    def supersets(self, subset: Subset) -> tuple[Subset, ...]:
        """Members that contain `subset` strictly, in the order of processing."""
        return tuple(r for r in self.order if set(subset) < set(r))

    def distinguishes(self, support: Iterable[str], subset: Subset) -> bool:
        """Whether cross-cumulants with this support see S_subset, and else only components of its supersets."""
        inside, whole = set(support), set(subset)
        return bool(inside) and inside <= whole and all(whole <= set(q) for q in self.members if inside <= set(q))

    def distinguishing(self, subset: Subset) -> Subset:
        """A smallest distinguishing set; the first one in view order among the smallest."""
        return self._distinguishing[subset]

    @cached_property
    def _distinguishing(self) -> dict[Subset, Subset]:
        """Of every member; a search that grows exponentially with the views that must be seen together."""
        left = _MOST_CHECKS - len(self) * sum(map(len, self.members))
        found: dict[Subset, Subset] = {}
        for q in self.members:
            for support in chain.from_iterable(combinations(q, size) for size in range(1, len(q) + 1)):
                left -= len(self)
                if left < 0:
                    raise DataError(
                        f"the {len(self)} sets of {len(self.views)} views are too many to tell apart, or differ only in many "
                        "views at once: drop sets that cannot be there"
                    )
                if self.distinguishes(support, q):
                    found[q] = support
                    break
        return found

    def bits(self, views: Iterable[str]) -> int:
        """Some views as one number: bit i for view i."""
        return sum(1 << self.views.index(view) for view in views)

    def distinguished(self, subset: Subset, supports: IntArray) -> Truth:
        """`distinguishes` of many supports, each as :meth:`bits`."""
        home = self.bits(subset)
        out: Truth = (supports != 0) & (supports & ~home == 0)
        for other in map(self.bits, self.members):
            if home & ~other:
                out &= supports & ~other != 0
        return out

    def without(self, subset: Subset) -> SetSystem:
        """The system with one member dropped; distinguishing sets may become smaller."""
        return SetSystem(self.views, tuple(q for q in self.members if q != subset))

    def require_order(self, order: int) -> None:
        """Raise, in words, when cumulants up to `order` do not suffice for the transformations."""
        if order > self.L:
            return
        worst = next(q for q in self.order if len(self.distinguishing(q)) == self.L)
        mimics = [q for q in self.order if q != worst and not set(worst) <= set(q)]
        smaller = [q for q in mimics if set(q) < set(worst)][:3]
        higher = f", or use order={self.L + 1}" if self.L < 6 else ""
        raise DataError(
            f"the set system is {self.L}-distinguishable, so its transformations need cumulants of order {self.L + 1}, and "
            f"order={order} was asked for. The reason is {_name(worst)}: any {self.L - 1} of its views also occur together "
            f"in {', '.join(map(_name, smaller or mimics[:3]))}, which such cross-cumulants cannot tell from it. "
            f"Drop sets that cannot be there (sets=){higher}"
        )

    def explain(self) -> str:
        """In words: how each component is told from the others, and what order of cumulants that takes."""
        lines = [
            f"{len(self)} components in {len(self.views)} views, {self.L}-distinguishable: transformations from cumulants "
            f"of order {self.L + 1}, cumulants of the components from order {self.L}."
        ]
        for q in self.order:
            support, above = self.distinguishing(q), self.supersets(q)
            line = f"  {_name(q)}: seen by cross-cumulants of {' and '.join(map(in_line, support))}"
            lines.append(line + (f", once {', '.join(map(_name, above))} is subtracted" if above else ""))
        return page(lines)


def _name(subset: Subset) -> str:
    return "{" + ", ".join(map(in_line, subset)) + "}"
