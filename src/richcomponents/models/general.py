"""RCA: any number of views, components that live in any subsets of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.components.wide import SearchSpace
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.table import Views
from richcomponents.errors import DataError
from richcomponents.models.fitted import Fitted
from richcomponents.models.rca import ComponentAnalysis, check_interval
from richcomponents.moments.data import AffineMap, Data
from richcomponents.notebook import Summary, Table, Tabular
from richcomponents.pair.solution import PairSolution, solve_pair
from richcomponents.pair.views import canonical
from richcomponents.plots import GREY, new_figure
from richcomponents.sets.discover import SetTest
from richcomponents.sets.problem import SetProblem, by_subset, is_contrastive, named_transformations
from richcomponents.sets.solution import SetSolution, component_name
from richcomponents.text import counted, in_line, listed, page

_ALL_SURE = {
    "strong": " All parts are well told apart.",
    "weak": " Some parts are told apart badly.",
    "contradicted": " But covariances between views contradict these sets and ranks.",
    "not identified": " Not all of it can be told from these data.",
    "nothing shared": " Nothing shared was found.",
    "not checked": " Nothing says how sure that is.",
}


_OPEN: dict[str, Any] = {"alpha": 0.45, "hatch": "////", "edgecolor": GREY, "linewidth": 0}  # how much is not told
_ABSENT: dict[str, Any] = {"color": GREY, "alpha": 0.3, "linewidth": 0}  # pale on light and on dark paper


@dataclass(frozen=True, repr=False)
class SetVariances(Tabular):
    """Variances of columns by component: names {view: its columns}; parts {(view, subset): (columns of the view,)}."""

    names: Mapping[str, tuple[str, ...]]
    parts: Mapping[tuple[str, Subset], Array]

    def rows(self) -> Table:
        """One dict per column: view, column, variance, and the share of it that each component carries (nan where it does not
        live)."""
        sets, out = list(dict.fromkeys(q for _, q in self.parts)), Table()
        for view, names in self.names.items():
            own = {q: part for (where, q), part in self.parts.items() if where == view}
            total = np.sum(list(own.values()), axis=0)
            for i, name in enumerate(names):
                shares = {component_name(q): float(own[q][i] / total[i]) if q in own else float("nan") for q in sets}
                out.append({"view": view, "column": name, "variance": float(total[i]), **shares})
        return out


@dataclass(eq=False, repr=False)
class RCA(ComponentAnalysis):
    """Hidden components shared by any subsets of several views.

    U_i = sum over the subsets Q that contain view i of A(i, Q) S_Q, with independent components S_Q of any distribution
    and unknown A (Ge and Zou, Section 3.2). Estimates all A and the cumulants of every component.

    A table, a file and weights of one give the same numbers. States, iterators and :meth:`partial_fit` have no rows to read
    again: other than for two views they do without the last step, which weighs the cumulants by their full covariance. Their
    transformations differ from those of :meth:`fit` by 2 to 8 percent in the median (10 000 to 100 000 samples of three views),
    less than their own error, which is up to 40 percent larger; of a component that the data hardly show, by half and more.

    Parameters
    ----------
    views : int or dict
        Which columns belong to which view: {name: columns}, or the first k columns and the rest (as in
        :class:`ContrastiveRCA`). Needed for one table; :meth:`fit_views` takes several.
    sets : list of subsets of view names, optional
        Where components live, e.g. ``[("a",), ("b",), ("a", "b")]``; all non-empty subsets by default.
    method : {"efficient", "paper"}
        "efficient": whitened views, cross-block products, joint refinement of everything; for two views with all three
        subsets it is :class:`ContrastiveRCA`. "paper": FindLinear and ComputeCumulant, the reference; its covariances need
        not be positive.
    discover : bool
        Start from `sets` and keep the components that the data show; see `evidence_`. Components of a single view are
        not tested and always there, also those that `sets` left out.
    alpha : float
        Chance that any absent component is kept by `discover` (multiplicity over subsets and orders is accounted for).
    gauge : {subset: view}, optional
        A component is written in the columns of one of its views, where its transformation is the identity: by default the
        first, or the one with the fewest columns where the first has too many. Name another one here.
    rank : {subset: int}, optional
        Dimensions of components, where they are known; else as many as the data show (`ranks_`).
    order : int
        Highest order of the cumulants that are used and kept: 3 to 6. Above 4 they are for the components, and for the joint
        refinement (and method="paper") where sets cannot be told apart without: all subsets of four views take order 5.
        `discover` goes to the order that it takes.
    mean : {subset: array}, optional
        Known means of some components, in the columns of their gauge views. Only sums are identified: without, shared ones
        have mean zero and each view's own component takes the rest.
    A : {(view, subset): array}, optional
        Known transformations, such as ``{("b", ("a", "b")): array}``: how a component enters a view, one row per column of the
        view and one column per column of the component's gauge view. They are taken as they are, and the rest is estimated.
    covariates, n_blocks, random_state, missing : as in :class:`ContrastiveRCA`

    Attributes
    ----------
    transforms_ : {(view, subset): array (columns of the view, columns of the gauge view)}
    components_ : {subset: Component}
    system_ : SetSystem
        With `explain()`, in words.
    ranks_ : {subset: int}
        How many directions each component of several views has.
    evidence_ : {subset: SetTest}
        What `discover` found, also for the subsets that were dropped.
    variance_shares_ : {(view, subset): float}
        The part of a view's variance that a component carries there.
    relative_errors_ : {(view, subset): float}
        Approximate standard error of A over its size (white columns), method="efficient"; absent for large problems and for
        two views. :meth:`confidence_interval` has the errors of every entry.
    component_verdicts_ : {subset: str}
        How well the data tell each component, its transformations and how much there is of it, and those of larger sets, which
        are subtracted: "strong", "weak", "not identified"; "contradicted", of all, where covariances between views contradict
        the sets, ranks or A that were given (a SpecificationWarning says which); "not checked" for large problems and for the
        paper's method. Of two views as in ContrastiveRCA, one for all.
    views_ : Views
        Which columns each view has, and their names.

    Examples
    --------
    >>> from richcomponents.datasets import make_views
    >>> data = make_views(5000, 3, 2, sets=[("a", "b", "c"), ("a",), ("b",), ("c",)])
    >>> model = RCA(views=data.views, sets=data.sets).fit(data.X)
    >>> A = model.transforms_["b", ("a", "b", "c")]
    >>> bool(np.linalg.norm(A - data.transforms["b", ("a", "b", "c")]) < 0.2 * np.linalg.norm(A))
    True
    """

    views: object = None
    sets: Iterable[object] | None = None
    method: str = "efficient"
    discover: bool = False
    alpha: float = 0.01
    gauge: Mapping[Subset, str] | None = None
    rank: Mapping[Subset, int] | None = None
    order: int = 4
    covariates: Any = None
    n_blocks: int = 20
    random_state: int | None = 0
    missing: str = "error"
    mean: Mapping[Subset, object] | None = None
    A: Mapping[tuple[str, Subset], object] | None = None

    # ---- fitting

    def _check_parameters(self) -> None:
        self._check_blocks()
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1, got {self.alpha!r}")
        if self.method == "paper" and (self.discover or self.rank):
            raise ValueError(
                "discover= and rank= belong to method='efficient'; a system that it found is given to method='paper' as "
                "sets=model.system_.members"
            )

    def _check_views(self, views: Views) -> None:
        if len(views) < 2:
            raise DataError("RCA compares views: name at least two")

    def _solve(self, data: Data, fit: Fitted) -> PairSolution | SetSolution:
        views, places = fit.design.views.names, fit.design.places()
        wanted = SetSystem.all(views) if self.sets is None else SetSystem.of(self.sets, views)
        ranks = by_subset(self.rank, "rank", wanted)
        if not self.discover and is_contrastive(wanted, self.method, self.gauge):
            return self._solve_pair(data, fit, ranks)
        most, plain = max(ranks.values(), default=1), self.method == "paper"  # which works on the columns as they are
        space = SearchSpace.whole(data, places) if plain else self._space(data, fit.design, most)
        options = {
            name: getattr(self, name) for name in ("gauge", "method", "order", "discover", "alpha", "random_state")
        }
        options |= {"sets": wanted, "ranks": self.rank, "independent": _independent_rows(space), "A": self.A}
        problem = SetProblem(space, places, fit.design.describe, **options)
        if problem.verdicts is not None:
            self.evidence_: Mapping[Subset, SetTest] = problem.verdicts
        if is_contrastive(problem.system, self.method, self.gauge):
            return self._solve_pair(data, fit, ranks)
        return problem.solve()

    def _solve_pair(self, data: Data, fit: Fitted, ranks: Mapping[Subset, int]) -> PairSolution:
        """Two views with all three subsets are contrastive RCA."""
        (u, v), A = fit.design.views.names, None
        for view, q, value in named_transformations(self.A, SetSystem.all((u, v))):
            if (view, q) != (v, (u, v)):
                raise DataError(
                    f"the known transformation of {component_name(q)} in view {view!r} is the identity: the component is "
                    f"written in the columns of this view. Leave it out, or give that of view {v!r}"
                )
            A = value
        keys, rank = ((u,), (u, v), (v,)), ranks.get((u, v), "auto")
        return solve_pair(self._space(data, fit.design, rank), keys, rank, A, self.order, self.random_state)

    def _means(self, views: Sequence[str], solution: PairSolution | SetSolution) -> Mapping[Subset, object]:
        return by_subset(self.mean, "mean", SetSystem.of(solution.keys, views))

    def _adopt(self, fitted: Fitted) -> None:
        super()._adopt(fitted)
        solution = fitted.solution
        if fitted.mean:
            dict(fitted.components)  # means that cannot be are refused now
        self.system_ = SetSystem.of(solution.keys, self.views_.names)
        self.transforms_ = solution.transforms()
        self.ranks_ = {q: solution.ranks[q] for q in solution.keys if len(q) > 1}
        self.variance_shares_ = solution.variance_shares()
        if solution.relative_errors is not None:
            self.relative_errors_ = solution.relative_errors

    def sides(self, component: Any, views: Sequence[str]) -> tuple[str, list[str], list[str]]:
        wanted = (views[0],) if component is None else (component,) if isinstance(component, str) else tuple(component)
        inside = [view for view in views if view in wanted]
        if not inside or len(inside) < len(wanted):
            raise DataError(f"component must be a subset of the views {', '.join(map(repr, views))}, got {component!r}")
        gauge = {tuple(sorted(subset)): view for subset, view in (self.gauge or {}).items()}
        own = gauge.get(tuple(sorted(inside)), inside[0])
        return own, [view for view in inside if view != own], [view for view in views if view not in inside]

    # ---- how sure

    @property
    def component_verdicts_(self) -> dict[Subset, str]:
        """How well the data tell each component, in a few words."""
        return dict(self.solution_.component_verdicts)

    def confidence_interval(
        self,
        what: str = "covariance",
        component: object = None,
        view: str | None = None,
        level: float = 0.95,
        *,
        progress: bool = False,
    ) -> Estimate:
        """Errors and limits for the "covariance" of a component, or for "A" of a view and a component: by the block jackknife,
        or, for two views with all three subsets, as in :class:`ContrastiveRCA`. Where the data do not tell a component
        (`component_verdicts_`): its covariance's identified set, widened for noise, and no bounds for A. Of views that were
        reduced, because they have too many columns for their samples, there are no errors: see :meth:`jackknife`."""
        subset = self.fitted_.key(component)
        check_interval(what, level)
        own, names = self.components_[subset].feature_names, None

        def chosen(model: RCA) -> Array:
            return model.components_[subset].covariance if view is None else model.transforms_[view, subset]

        if what == "covariance":
            view = None
        elif view is None or (view, subset) not in self.transforms_:
            raise ValueError(f"view= must be one of {subset}, got {view!r}")
        else:
            names = self.fitted_.view_names[view]
        known = self.solution_.limits(subset, view)
        return self._limits(known, chosen, level, progress, names=names or own, columns=own)

    def variance_table(self) -> SetVariances:
        """Of each column of each view: its variance, and the part of it that each component carries."""
        parts = self.solution_.own_variances()
        return SetVariances(
            self.fitted_.view_names, {key: parts[key] for q in self.system_.order for key in parts if key[1] == q}
        )

    # ---- reports

    def component_table(self) -> Table:
        """One row per component: the share of each view's variance that it carries (nan where it does not live), the largest
        relative error of its transformations, its verdict, and what discovery said."""
        errors, evidence, nan = getattr(self, "relative_errors_", {}), getattr(self, "evidence_", {}), float("nan")
        rows = Table()
        for q in self.system_.order:
            row: dict[str, object] = {"component": self.components_[q].name}
            row |= {view: float(self.variance_shares_.get((view, q), nan)) for view in self.views_}
            row |= {"relative error": float(max((errors[view, q] for view in q if (view, q) in errors), default=nan))}
            row |= {"verdict": self.component_verdicts_[q]}
            rows.append(row | ({"p (absent)": float(evidence[q].p_value)} if q in evidence else {}))
        return rows

    def headline(self, verdict: str | None = None) -> str:
        """What was found, in a sentence or two; verdict : of a model of one of the components, by default the own."""
        order, views = self.system_.order, self.views_.names
        widest = max(order, key=len)
        shares = listed([f"{self.variance_shares_[view, widest]:.0%} of {view}" for view in views if view in widest])
        found = (
            f"{counted(order, 'component')} in {counted(views, 'view')}; {component_name(widest)} explains {shares}."
        )
        return f"{found}{_ALL_SURE.get(verdict or self.verdict_, '')}"

    def next_steps(self) -> list[str]:
        """What would help, in numbers of samples."""
        return list(self.solution_.next_steps())

    def summary(self) -> Summary:
        """A page of text: which component lives where, how much variance it carries in each view, and why we think so; in a
        notebook what is read first, the rest folded."""
        two_views = self.solution_.diagnose()
        inner = None if two_views is None else two_views.summary()
        steps = self.next_steps() if inner is None else inner.says
        says = [self.headline(), *steps, *self.fitted_.notes()]
        return Summary(_summary(self, inner), verdict=self.verdict_, says=says, tables=[self.component_table()])

    def plot(self, figure: Any = None) -> Any:
        """An UpSet-like figure of the variance per subset; returns the matplotlib Figure."""
        import matplotlib.pyplot as plt

        views, order, shares = self.views_.names, self.system_.order, self.variance_shares_
        if figure is None:
            figure = new_figure(1.8 + 0.9 * len(order), 3.0 + 0.45 * len(views))
        bars, dots = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 0.4 + 0.45 * len(views)]})
        colours = {view: plt.get_cmap("tab10")(i % 10) for i, view in enumerate(views)}
        at, told = np.arange(len(order)), [q for q in order if not self.solution_.leaves_open(q)]
        for x, q in zip(at, order, strict=True):
            wide = 0.84 / len(views)  # one width for all bars: areas compare too
            for i, view in enumerate(q):
                height, middle = 100 * shares[view, q], x + (i - (len(q) - 1) / 2) * wide
                bars.bar(middle, height, 0.9 * wide, color=colours[view], **({} if q in told else _OPEN))
                bars.text(middle, max(height, 0.0), f"{height:.0f}", ha="center", va="bottom", fontsize=8)
            rows = [views.index(view) for view in q]
            dots.plot([x, x], [min(rows), max(rows)], color=GREY, lw=2, zorder=2)
            for i, view in enumerate(views):
                dots.scatter(x, i, s=90, zorder=3, **({"color": colours[view]} if view in q else _ABSENT))
        bars.set_ylabel("variance of the view (%)")
        bars.set_title("What each component carries of each view", fontsize="medium", loc="left")
        bars.spines[["top", "right"]].set_visible(False)
        bars.tick_params(axis="x", length=0)
        dots.set_yticks(range(len(views)), [in_line(view) for view in views])
        dots.set_ylim(len(views) - 0.5, -0.5)
        dots.set_xticks([])
        dots.set_xlim(-0.6, len(order) - 0.4)
        dots.set_xlabel("components, by the views they live in")
        dots.tick_params(axis="y", length=0)
        dots.spines[:].set_visible(False)
        return figure


def _independent_rows(space: SearchSpace) -> float | None:
    """How many independent rows the samples are worth, as for two views: each view beside all others, and the fewest of
    these; None where rows do not depend on each other."""
    data, second = space.data, space.data.moments(2)
    ends = np.cumsum([0, *(len(frame.to) for frame in space.frames.values())])
    C, worth = second.covariance(unbiased=False), []
    for start, stop in pairwise(ends):
        own = np.arange(start, stop)
        rest = np.setdiff1d(np.arange(len(C)), own)
        pair = canonical(C[np.ix_(own, own)], C[np.ix_(own, rest)], C[np.ix_(rest, rest)], second.n - space.data.lost)
        if not pair.rank_u or not pair.rank_v:
            continue  # nothing in it varies, which is refused later, by name
        into = np.zeros((len(C), pair.rank_u + pair.rank_v))
        into[own, : pair.rank_u], into[rest, pair.rank_u :] = pair.x_from_u.T, pair.y_from_v.T
        dependence = data.dependence(AffineMap(second.mean, into), pair.correlations, pair.rank_u)
        if dependence is None:
            return None
        worth.append(pair.with_dependence(dependence).n)
    return min(worth, default=None)


# ---- what a fitted RCA tells a reader

_BAR = 8  # characters of a bar of 100%
_MEANINGS = {
    "strong": "strong",
    "weak": "weak: intervals are identified sets",
    "not identified": "not identified: nearly Gaussian, small, absent, or mixed with another; intervals are identified sets",
    "contradicted": "contradicted: the model fails",
    "not checked": "not checked: the problem is large, or these are the paper's formulas, which do not say how sure they are",
}


def _summary(model: RCA, inner: str | None = None) -> str:
    """The picture, the evidence, the explanation of the set system; inner : the contrastive page, for two views."""
    shares, views, order = model.variance_shares_, model.views_.names, model.system_.order
    heads = [in_line(view) for view in views]
    width = max(len(in_line(component_name(q))) for q in order)
    cell = max(_BAR + 6, *(len(head) + 2 for head in heads))

    def by_component(texts: Mapping[Subset, str], indent: str = "  ") -> list[str]:
        return [f"{indent}{in_line(component_name(q)):<{width}}  {text}".rstrip() for q, text in texts.items() if text]

    def share(view: str, q: Subset) -> str:
        part = float(shares[view, q]) if view in q else -1.0
        return "." if view not in q else f"{part:4.0%} " + "█" * max(1, round(_BAR * min(max(part, 0.0), 1.0)))

    lines = [
        f"RCA of {len(views)} views, {len(model.components_)} components (method {model.method!r})",
        *model.fitted_.design.covariates_listed(),
        "Share of each view's variance, by component:",
        "",
        " " * width + "  " + "".join(f"{head:<{cell}}" for head in heads).rstrip(),
        *by_component({q: "".join(f"{share(view, q):<{cell}}" for view in views) for q in order}, ""),
        "",
    ]
    if inner is None:
        words = model.solution_.misfit_words()
        told = by_component({q: _MEANINGS[model.component_verdicts_[q]] for q in order})
        told = ["How well the data tell each component:", *told]
        lines += [*([f"{words[0].upper()}{words[1:]}."] if words else told), ""]
    if errors := getattr(model, "relative_errors_", None):
        found = {
            q: "  ".join(f"{in_line(view)} {errors[view, q]:.0%}" for view in q if (view, q) in errors) for q in order
        }
        lines += ["Relative standard errors of the transformations (approximate):", *by_component(found), ""]
    if verdicts := getattr(model, "evidence_", None):
        tests = by_component({q: str(test) for q, test in verdicts.items()})
        lines += ["Evidence (sign-flip test over blocks; p values of absence):", *tests, ""]
    return page([*lines, inner if inner is not None else model.system_.explain()])
