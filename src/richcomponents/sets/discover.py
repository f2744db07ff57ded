"""Which components are there, and of which rank: sequential sign-flip tests, larger sets first.

A cross-cumulant sees exactly the components whose sets contain its support. When set Q is tested, larger sets are decided.
Entries whose support distinguishes Q (tested) see S_Q and its decided supersets only; others (fitted) see decided components
only. For r = 0, 1, ... (absent, one direction, ...) the decided components and r directions of S_Q are fitted to all of them,
until they explain the tested entries.

The noise comes from the blocks. Block b's value p_b of the tested entries is its own cumulants minus the fit, made free of the
fit's error to first order (`_Search._unexplained`): independent over blocks and, if r directions are all there is, of mean
zero. Then |sum_b s_b p_b|^2 has the same distribution under random signs, whatever the dependence among entries. Orders are
tested separately (a symmetric component shows at order four only, a Gaussian one at order two), and Bonferroni's inequality
joins orders and sets. Inside larger sets, whose transformations few rows determine badly, tests are bold: there a set must also
gain two and a half times what BIC asks for, in units of the noise that the fit leaves.

A component that is there is given all directions that second moments allow: one that it lacks would be taken for others', while
one too many costs little. Only where rank Cov(U_i, U_j), the sum over all components that both views share, is less than
columns, directions are tested one by one. All this in the directions that each view shares with the others
(:meth:`.WhiteViews.shared`), where there are few entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import MEMORY_LIMIT, Truth
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.errors import CapacityError, DataError
from richcomponents.moments.kernel import MAX_ORDER
from richcomponents.sets.evidence import SetEvidence, Structure, sequential
from richcomponents.sets.model import JointModel, Minimum, Parameters, levenberg_marquardt, order_scale, solve_tensors
from richcomponents.storage import storable
from richcomponents.text import p_text, p_value

_FLIPS, _MOST_FLIPS = 20_000, 1_000_000
_FURTHER = 0.05  # level of tests for more directions of a component that is there, or for one that may have been missed
_ASKED = 0.5, 2.5  # of BIC's penalty: what directions of a set must gain, and what those of a set inside larger ones


@storable
@dataclass(frozen=True)
class SetTest:
    """Evidence for one component.

    kept : whether it is in the discovered system; p_value : of the hypothesis that it is absent, Bonferroni-corrected for
    orders, not for the number of sets (NaN for single views, which are always kept); by_order : {order: its own p value};
    level : what p_value was compared with; rank : how many directions it has, 0 if it was dropped; by_rank : {r: p value of "it
    has r directions"}, for as many as were tried; gain : of the joint fit from its first direction, over what is asked for:
    half of BIC's penalty, inside larger sets two and a half (below one it is dropped there, whatever the p value).
    """

    kept: bool
    p_value: float
    by_order: Mapping[int, float]
    level: float
    rank: int
    by_rank: Mapping[int, float]
    gain: float

    def __str__(self) -> str:
        if np.isnan(self.p_value):
            return "kept (own part of a view)"
        tried = ", ".join(f"{p_text(p)} at order {t}" for t, p in self.by_order.items())
        told = f"{p_value(self.p_value)} against {self.level:.2g} ({tried})"
        significant = self.p_value <= self.level
        if self.kept:
            return f"kept, rank {self.rank}: {told}{'' if significant else '; explains what others left'}"
        small = f"; the fit gains {self.gain:.2g} of what it takes" if significant and self.gain < 1 else ""
        return f"dropped: {told}{small}"


def discover_sets(
    evidence: SetEvidence,
    system: SetSystem,
    alpha: float = 0.01,
    random_state: int | None = 0,
    given: Mapping[Subset, int] | None = None,
    pairs: Mapping[frozenset[str], float] | None = None,
    higher: Callable[[int], SetEvidence] | None = None,
) -> tuple[SetSystem, dict[Subset, SetTest]]:
    """The system that the data support, and the evidence for each member of the one it started from.

    The chance that any absent member is kept is at most alpha, given that nothing present was missed before. given : ranks that
    are known; pairs : see :func:`.pair_ranks`; higher(order) : the evidence to a higher order, where tests need it.
    """
    search, nan = _Search(evidence, system, alpha, random_state, pairs or {}, higher), float("nan")
    tests = {q: search.decide(q, 0, (given or {}).get(q)) for q in search.tested}
    if not given:
        search.reconsider({q for q, test in tests.items() if test.p_value <= _FURTHER})
    tests = {q: replace(test, kept=q in search.ranks, rank=search.ranks.get(q, 0)) for q, test in tests.items()}
    for view, columns in evidence.columns.items():  # never tested: their transformation is the identity
        tests[view,] = SetTest(True, nan, {}, 1.0, len(columns), {}, nan)
    members = [q for q in system.members if tests[q].kept]
    singles = [(view,) for view in system.views if (view,) not in members]
    return SetSystem.of([*members, *singles], system.views), tests


def choose_ranks(
    evidence: Callable[..., SetEvidence],
    system: SetSystem,
    pairs: Mapping[frozenset[str], float],
    given: Mapping[Subset, int],
    widths: Mapping[str, tuple[int, int]],
    random_state: int | None = 0,
) -> dict[Subset, int]:
    """How many directions the components of a system have, each at least one, and none more than views share.

    Only where covariances between views allow fewer than columns are some of them tested: tests see much less than the joint
    fit, which would lose real directions to them. evidence(order) : asked for where a rank is in doubt; widths : {view: shared
    directions, which are the columns of the evidence, and all of its columns}.
    """
    shared, columns = ({view: pair[i] for view, pair in widths.items()} for i in (0, 1))
    ranks, search = dict[Subset, int](), None
    for q in [q for q in system.order if len(q) > 1]:
        most = most_directions(system, q, shared, ranks, pairs)
        if q in given or most == most_directions(system, q, columns):
            ranks[q] = min(given.get(q, most), max(shared[view] for view in q))
            continue
        search = search or _Search(evidence(), system, 1.0, random_state, pairs, evidence)
        search.ranks = ranks
        try:
            search.decide(q, 1)
        except (CapacityError, DataError):  # too large to be tested, or told by no cumulant of these orders
            ranks[q] = most
    return ranks


def most_directions(
    system: SetSystem,
    q: Subset,
    width: Mapping[str, int],
    ranks: Mapping[Subset, int] | None = None,
    pairs: Mapping[frozenset[str], float] | None = None,
) -> int:
    """The largest rank that S_Q can have and that cumulants can tell.

    So many columns have views enough to tell it from others, and so much is left of the rank of their covariances when the
    supersets' `ranks` are subtracted. (One direction is always allowed: it may be in common with another component, which adds
    nothing to the sum. Where the supersets alone have more, some of it cancels, and the sum says nothing.)
    """
    above = sum(rank for r, rank in (ranks or {}).items() if set(q) < set(r))
    inside = {pair: rank for pair, rank in (pairs or {}).items() if pair <= set(q)}
    left = {pair: rank - above if rank >= above else np.inf for pair, rank in inside.items()}
    shown = {v: min(width[v], max((most for pair, most in left.items() if v in pair), default=np.inf)) for v in q}
    for r in range(max(width[view] for view in q), 1, -1):
        if system.distinguishes([view for view in q if shown[view] >= r], q):
            return r
    return 1


Entries = tuple[Mapping[int, IntArray], Truth]
"""{order: packed entries}, and which of all these see the component in hand (tested); others see decided ones only."""


class _Search:
    """Memory of the tests. current : the sets that are there or may be; ranks : of those that are, which are subtracted."""

    def __init__(
        self,
        evidence: SetEvidence,
        system: SetSystem,
        alpha: float,
        random_state: int | None,
        pairs: Mapping[frozenset[str], float],
        higher: Callable[[int], SetEvidence] | None = None,
    ) -> None:
        sets, orders, blocks = max(sum(len(q) > 1 for q in system), 1), len(evidence.orders), len(evidence.share)
        self.level = alpha / sets
        self.signs = _signs(blocks, orders / self.level, random_state)
        least = orders / (1 + len(self.signs))
        if least > self.level:
            remedies = ["a larger alpha", "fewer sets to test (sets=)"]
            if orders / self.level <= _MOST_FLIPS:
                needed = int(np.ceil(1 + np.log2(orders / self.level)))
                remedies.insert(0, f"more blocks (n_blocks=; groups= must give as many groups): at least {needed}")
            raise DataError(
                f"the test of discover=True cannot keep any component, however strong: with {blocks} blocks and cumulants of "
                f"{orders} orders its smallest p value is {least:.2g}, and alpha = {alpha:g} over {sets} sets asks for "
                f"{self.level:.2g}. Use {', or '.join(remedies)}"
            )
        self.evidence, self.current, self.pairs, self.higher = evidence, system, pairs, higher
        self.width = {view: len(columns) for view, columns in evidence.columns.items()}
        self.gauge = {q: max(q, key=self.width.__getitem__) for q in system}  # any view that shows all directions
        self.tested = [q for q in system.order if len(q) > 1]
        self.ranks: dict[Subset, int] = {}
        self.penalty = float(np.log(evidence.n))  # what a parameter must gain, in units of noise, by BIC

    def decide(self, q: Subset, least: int, given: int | None = None) -> SetTest:
        """Directions are added, from `least` on, until those that are there explain what is seen."""
        self._reach(q)
        most = most_directions(self.current, q, self.width, self.ranks, self.pairs)
        entries = self._entries_about(q)
        fewer = most < most_directions(self.current, q, self.width)  # than columns, second moments say
        within = any(set(q) < set(s) for s in self.ranks)
        r, first, by_rank, by_order = least, float("nan"), dict[int, float](), dict[int, float]()
        here = self._fit(entries, {**self.ranks, q: r})
        while r < most:
            more = self._fit(entries, {**self.ranks, q: r + 1})
            p_values = {t: sign_flip(values, self.signs) for t, values in self._unexplained(entries, here).items()}
            by_rank[r] = min([1.0, *(len(p_values) * p for p in p_values.values())])
            asked = self._noise(more) * self.penalty * _ASKED[within] * (more.free - here.free)
            gain, by_order = (here.value - more.value) / asked, by_order or p_values
            first = first if r else gain
            worth = gain >= 1 or not (r or within)
            if by_rank[r] > (max(self.level, _FURTHER) if r else self.level) or not worth:
                break
            r, here = r + 1, more
            if given is not None or not fewer:
                r = most if given is None else min(given, max(self.width[view] for view in q))
                break
        self.ranks.pop(q, None)
        if r:
            self.ranks[q] = r
        else:
            self.current = self.current.without(q)
        return SetTest(r > 0, by_rank.get(0, float("nan")), by_order, self.level, r, by_rank, first)

    def _entries_about(self, q: Subset) -> Entries:
        """Tested entries see S_Q and decided components only, the others only the latter."""
        at, tested, undecided = dict[int, IntArray](), [], [s for s in self.current if s not in self.ranks]
        for t in self.evidence.orders:
            supports = self.evidence.support[t]
            about = self.current.distinguished(q, supports)
            seen = self._inside(supports, self.ranks) & ~self._inside(supports, undecided)
            at[t] = np.flatnonzero(about | seen)
            tested.append(about[at[t]])
        return at, np.concatenate(tested)

    def _inside(self, supports: IntArray, sets: Iterable[Subset]) -> Truth:
        """Whether entries with these supports see a component of one of the sets."""
        inside = [supports & ~self.current.bits(s) == 0 for s in sets]
        return np.any(inside, axis=0) if inside else np.zeros(len(supports), dtype=bool)

    def _fit(self, entries: Entries, ranks: Mapping[Subset, int]) -> Minimum:
        """Components of these ranks, fitted to the entries."""
        evidence, ranks = self.evidence, {q: ranks[q] for q in self.current.order if ranks.get(q)}
        scale = order_scale(evidence, entries[0])
        model = JointModel(evidence.columns, ranks, np.eye(evidence.p), entries[0], scale, free_second=True)
        if model.size * len(model.scales) > MEMORY_LIMIT // 128:
            raise CapacityError(
                f"discover=True refits large problems too often ({evidence.p} columns): reduce each view to its leading "
                "principal components first, or name the sets (sets=)"
            )
        data = model.data({t: evidence.cumulants.packed(t) for t in evidence.orders})
        if not ranks:
            return Minimum(model, np.zeros(0), float(data @ data))
        transforms = sequential(evidence, Structure(self.current, self.gauge, ranks))
        loadings = {s: 0.5 * np.vstack([transforms[view, s] for view in s]) for s in ranks}
        x = solve_tensors(model, model.join(Parameters(loadings, {})), data)
        return levenberg_marquardt(model, x, data)

    def _noise(self, fit: Minimum) -> float:
        """Variance of what a fit leaves, per degree of freedom, from what differs between blocks: the unit of its value. It is
        several times smaller than that of the cumulants, most of which tensors of the fit take up; one where nothing is left.
        """
        if not 0 < fit.free < len(fit.model.scales):
            return 1.0
        used = np.linalg.svd(fit.model.linearise(fit.x)[1], full_matrices=False)[0][:, : fit.free]
        share = self.evidence.share
        blocks = fit.model.data(self.evidence.blocks)
        blocks = blocks - share @ blocks
        left = blocks - (blocks @ used) @ used.T
        return float(np.sum(share**2 @ left**2)) * len(share) / (len(share) - 1) / (len(used) - fit.free)

    def _unexplained(self, entries: Entries, fit: Minimum) -> dict[int, Array]:
        """{order: (B, entries)}: what a fit leaves of the tested entries, by block; of mean zero if it is all there is.

        With e the block values less the fit and J its derivatives, on fitted (F) and tested (T) entries, v'e has mean zero for
        all v = (-J_F H^-1 J_T' w, w), H = J_F'J_F, whatever small error the fit has: v'J = 0. These are the pseudo-values
        e_T - J_T H^-1 J_F' e_F; in coordinates in which the v are orthonormal they are multiplied by M^(-1/2),
        M = I + J_T H^-1 J_T'. Directions of parameters that F does not tell at all have H = 0 and drop out of T.
        """
        share, (at, tested) = self.evidence.share, entries
        value, slope = fit.model.linearise(fit.x)
        left = fit.model.data(self.evidence.blocks) - value
        values, vectors = np.linalg.eigh(slope[~tested].T @ slope[~tested])
        tiny = 1e-12 * np.max(values, initial=1.0)  # rounding where F tells nothing
        root = vectors / np.sqrt(np.maximum(values, 0.0) + tiny)  # H^(-1/2)
        moved = left[:, ~tested] @ (slope[~tested] @ root)
        out, orders = {}, np.repeat(list(at), [len(held) for held in at.values()])
        for t in at:
            part = np.flatnonzero(tested & (orders == t))
            basis, sizes, _ = np.linalg.svd(slope[part] @ root, full_matrices=False)  # M = I + basis sizes^2 basis'
            if len(part) > np.sum(sizes > 1e4):  # else nothing is left to be tested
                pseudo = left[:, part] - moved @ (slope[part] @ root).T
                free = pseudo - (pseudo @ basis * (1 - 1 / np.sqrt(1 + sizes**2))) @ basis.T
                out[t] = (share * len(share))[:, None] * free
        return out

    def reconsider(self, likely: set[Subset]) -> None:
        """What was missed shows elsewhere: a direction of {a, b, c} in the covariances of all three pairs, {a, b} in how much
        of Cov(U_a, U_b) goes to {a, b, c}, and then in what is taken for pairs of a and c, b and c. Where a direction more
        in one set, or a set more, explains as much as what others have of it, with fewer parameters, these lose it. likely :
        sets that a test at a lower level keeps; larger ones of them may take the place of one set inside."""

        def instead(to: Subset, rank: int, gone: Sequence[Subset]) -> dict[Subset, int]:
            return {q: r for q, r in self.ranks.items() if q not in gone} | {to: rank}

        larger = [q for q in self.tested if len(q) > 2]
        for to in [q for q in larger if q in likely and q not in self.ranks]:
            most = most_directions(self._with(to), to, self.width, {}, self.pairs)
            inside = [q for sets in self._subsets(to)[:1] for q in sets]
            self._taken(to, [instead(to, most, [q]) for q in inside])
        for to in larger:
            while self._moved(to, self._subsets(to)):
                pass
        for q in sorted(self.ranks, key=len):
            for other in [s for s in self.ranks if s != q and set(s) & set(q) and not set(q) < set(s)]:
                if self.ranks.get(q) == 1:
                    self._moved(other, [[q]])
        for to in self.tested:  # larger ones mimic smaller ones
            if to in self.ranks:
                continue
            alike = [q for q in self.ranks if len(q) == len(to) and set(q) & set(to)]
            most = most_directions(self._with(to), to, self.width, self.ranks, self.pairs)
            gone = [out for number in (1, 2) for out in combinations(alike, number)]
            self._taken(to, [instead(to, most, out) for out in gone], asked=1.0)

    def _subsets(self, larger: Subset) -> list[list[Subset]]:
        """Subsets that may owe a direction to a larger set: all that are there, or all but one, if they are in the covariances
        of all of its pairs, as it would be."""
        inside = [q for q in self.ranks if set(q) < set(larger)]
        if len(inside) < 2 or not all(any(set(pair) <= set(q) for q in inside) for pair in combinations(larger, 2)):
            return []
        return [inside] + [[q for q in inside if q != spared] for spared in inside if len(inside) > 2]

    def _moved(self, to: Subset, choices: list[list[Subset]]) -> bool:
        """Whether `to` has a direction more now, and one of the choices of sets one less each; if it had none, two of them are
        gone: a set is not kept for what it saves."""
        rank = self.ranks.get(to, 0) + 1
        if rank > most_directions(self._with(to), to, self.width):
            return False
        if rank == 1:
            choices = [sets for sets in choices if sum(self.ranks[q] == 1 for q in sets) > 1]
        return self._taken(to, [{q: r - (q in sets) for q, r in self.ranks.items()} | {to: rank} for sets in choices])

    def _with(self, q: Subset) -> SetSystem:
        return self.current if q in self.current else SetSystem(self.current.views, (*self.current.members, q))

    def _taken(self, to: Subset, choices: list[dict[Subset, int]], asked: float = _ASKED[1]) -> bool:
        """Whether one of the choices of ranks, with the set `to` or more of it, is better than what there is: it is taken.
        asked : of a parameter, in units of BIC's penalty."""
        system = self._with(to)
        if not choices or max(len(system.distinguishing(q)) for q in [*self.ranks, to]) >= self.evidence.order:
            return False
        seen = {t: bits for t, bits in self.evidence.support.items() if t > 1}
        at = {t: np.flatnonzero(self._inside(bits, self.tested) & (bits & (bits - 1) != 0)) for t, bits in seen.items()}
        entries = at, np.zeros(sum(map(len, at.values())), dtype=bool)
        fits, self.current = [self._fit(entries, self.ranks)], system
        fits += [self._fit(entries, ranks) for ranks in choices]
        noise = self._noise(fits[0])
        best = int(np.argmin([fit.value / noise + asked * self.penalty * fit.free for fit in fits]))
        if best:
            self.ranks = {q: r for q, r in choices[best - 1].items() if r}
        self.current = SetSystem(system.views, tuple(q for q in system if len(q) == 1 or q in self.ranks))
        return best > 0

    def _reach(self, q: Subset) -> None:
        """Evidence of the order that it takes to see S_Q, and to subtract those of larger sets that are there."""
        above = [s for s in self.ranks if set(q) < set(s)]
        needed = max([len(self.current.distinguishing(q)), *(1 + len(self.current.distinguishing(s)) for s in above)])
        if needed <= self.evidence.order:
            return
        if self.higher is None or needed > MAX_ORDER:
            raise DataError(
                f"whether {q} has a component of its own shows in cumulants of order {needed}"
                f"{', once those of ' + ', '.join(map(str, above)) + ' are subtracted' if above else ''}, and tests use orders "
                f"up to {MAX_ORDER if self.higher else self.evidence.order}: start from fewer sets (sets=), for example "
                "without those of three views"
            )
        self.evidence = self.higher(needed)


def _signs(blocks: int, resolution: float, random_state: int | None) -> Array:
    """(flips, blocks): all signs but the observed ones where they are few (an exact test; a vector and its negative give the
    same sum), else random ones. resolution : one over the p value that must be reachable; random signs are some times as many,
    so that a chance repetition of the observed ones does not hide a component."""
    wanted = min(max(_FLIPS, int(np.ceil(4 * resolution))), _MOST_FLIPS)
    if 2 ** (blocks - 1) - 1 <= wanted:
        numbers = np.arange(1, 2 ** (blocks - 1))
        return np.asarray(1.0 - 2.0 * (numbers[:, None] >> np.arange(blocks) & 1))
    rng = np.random.default_rng(random_state)
    return np.asarray(rng.integers(0, 2, (wanted, blocks)) * 2.0 - 1.0)


def sign_flip(values: Array, signs: Array) -> float:
    """p value of mean zero for independent symmetric-noise rows (B, entries): |sum_b s_b p_b|^2 over signs (flips, B)."""
    gram = values @ values.T
    observed = float(gram.sum())
    larger = 0
    for start in range(0, len(signs), _FLIPS):
        some = signs[start : start + _FLIPS]
        larger += int(np.sum(np.einsum("fb,fb->f", some @ gram, some) >= observed * (1 - 1e-12)))
    return (1 + larger) / (1 + len(signs))
