"""ContrastiveRCA: two views, U = S1 + S2 and V = A S2 + S3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components.component import VarianceTable
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.table import Views, check_finite
from richcomponents.errors import DataError
from richcomponents.models.estimator import used_rows
from richcomponents.models.fitted import Fitted
from richcomponents.models.rca import ComponentAnalysis, check_interval, searched, stretch
from richcomponents.moments.data import AffineMap, Data, RowData
from richcomponents.notebook import Summary
from richcomponents.pair.classes import MOST_DIRECTIONS, HiddenClasses, find_classes, thinning
from richcomponents.pair.diagnostics import Diagnostics
from richcomponents.pair.solution import MIN_ROWS, PairSolution, solve_pair
from richcomponents.pair.views import canonical_coordinates, resolve_rank
from richcomponents.paper.solution import PaperSolution
from richcomponents.plots import correlation_plot, heat_map, overview_plot, own_variance_plot, variance_plot

_KEYS = ("S1", "S2", "S3")
_ERRORS = ("auto", "free", "independent")
_SURE = {
    "strong": "Identification is strong.",
    "weak": "Identification is weak: the results lean on those of adjusting for the controls.",
    "not checked": "Nothing says how sure that is.",
}


def _of_both_views(errors: object) -> tuple[str, str]:
    """The `errors=` argument: of U and of V."""
    both = (errors, errors) if isinstance(errors, str) else errors
    if not isinstance(both, Sequence) or len(both) != 2 or any(one not in _ERRORS for one in both):
        raise ValueError(
            f"errors must be one of {', '.join(map(repr, _ERRORS))}, or two of them, of U and of V; got {errors!r}"
        )
    return str(both[0]), str(both[1])


@dataclass(eq=False, repr=False)
class ContrastiveRCA(ComponentAnalysis):
    """What is specific to U once the part shared with V is removed.

    Two views of the same samples, U = S1 + S2 and V = A S2 + S3, with independent parts of any distribution.
    Estimates A and the cumulants of S1, S2 and S3, and says how sure it is.

    Parameters
    ----------
    views : int or dict
        Which columns are U and which are V: the first k columns and the rest, or ``{"tests": [...], "controls": [...]}``
        (names, numbers or slices; the first view is U). Needed for one table; :meth:`fit_views` takes two. A number takes
        all columns that are no covariates: of a table with names, columns that look like an outcome, sample labels or an
        index are refused, and :meth:`summary` lists what was taken.
    method : {"efficient", "paper"}
        "efficient": canonical coordinates, cross-block Gram matrices, shrinkage chosen from the data; never far from
        residualising when the data say nothing. "paper": the formulas of Ge and Zou, the reference; its covariances need
        not be positive.
    A : array of shape (d_v, d_u), optional
        The mixing matrix, when it is known. A_ is then this matrix; covariances still use the data and stay admissible. It is
        tested: Cov(U, V) = Cov(S2) A' for some admissible Cov(S2) (`diagnostics_.known_mixing`; a SpecificationWarning when
        the data contradict it, a DataError when it explains nothing).
    rank : "auto", "full" or int
        Dimension of the shared part. "auto": sequential Bartlett-Lawley test.
    order : int
        Highest order of the cumulants that are kept (3..6). With 3, fourth cumulants do not enter the estimate of A.
    mean : dict, optional
        One known mean, e.g. ``{"S1": np.zeros(d_u)}``. By default the shared part has mean zero: only differences
        of means are identified.
    covariates : list of columns, one name or one pattern ("age*"), optional
        Known covariates (age, sex, ...) among the columns of X, partialled out of both views and of y.
    n_blocks : int
        Statistical blocks for unbiased Gram matrices, cross-validation and the jackknife (at least 10).
    random_state : int or None
        Seed of the posterior draws.
    missing : {"error", "drop", "available"}
        Values that are missing or infinite: refuse them; leave out their rows, which a MissingValueWarning counts; or use what
        is there (a view that some rows lack, single values), right where values are missing completely at random. Learners and
        effects do as their rca does; with "drop" and "available", gaps of rows to be predicted are filled with the best linear
        prediction from what is there.
    errors : {"auto", "free", "independent"}, or two of them, of U and of V
        Whether the own parts of a view's columns are uncorrelated (measurement errors of separate assays): second moments
        then tell S1 from S2 for any distribution, Gaussian included. "auto": used as far as a test of it on the same data
        allows, and beside the cumulants; what cannot be tested (few columns for the shared directions) is not used. "free":
        not used. "independent": used whatever the test says (``diagnostics_.errors`` has it). Views of together more than about
        ninety columns, and views with too many columns for their samples, are taken as "free".
    classes : "auto", "none" or int
        Hidden classes of rows (labs, batches) that both views show. "auto": looked for, and removed from both views and from y
        as known covariates are, where there is a valley between every two of them and they explain the views better than any
        one class. They may be biology (cell types): "none" leaves them in the shared part. An int: so many, unquestioned.
        Not looked for without rows (states, streams), with gaps (missing="available"), A= or method="paper".

    Attributes
    ----------
    A_ : array (d_v, d_u)
        On the range of the shared part; beyond it zero, or, while more shared directions cannot be excluded, what stands above
        noise of the regression of V on U. Where the data say little, A_ leans on that regression and the covariances on
        residualising: then Cov(S2) A' is not Cov(U, V).
    components_ : dict of Component
        "S1", "S2" (in U's columns) and "S3" (in V's columns).
    rank_ : int
        Shared directions, those of hidden classes included.
    classes_ : HiddenClasses or None
        How many classes (len), their `shares`, how sure rows are of theirs (`certainty`), evidence in nats.
    diagnostics_ : Diagnostics
    views_ : Views
        Which columns each view has, and their names.

    Examples
    --------
    >>> from richcomponents.datasets import make_contrastive
    >>> data = make_contrastive(3000, d=4, S2="skewed", random_state=3)
    >>> model = ContrastiveRCA(views=4).fit(data.X)
    >>> model.diagnostics_.verdict, model.A_.shape
    ('strong', (4, 4))
    >>> cleaned = model.transform(data.X)  # best linear prediction of S1, sample by sample
    >>> bool(np.corrcoef(cleaned[:, 0], data.S1[:, 0])[0, 1] > np.corrcoef(data.U[:, 0], data.S1[:, 0])[0, 1])
    True
    """

    views: object = None
    method: str = "efficient"
    A: object = None
    rank: object = "auto"
    order: int = 4
    mean: Mapping[str, object] | None = None
    covariates: Any = None
    n_blocks: int = 20
    random_state: int | None = 0
    missing: str = "error"
    errors: object = "auto"
    classes: object = "auto"

    # ---- fitting

    def _check_parameters(self) -> None:
        self._check_blocks()
        _of_both_views(self.errors)
        number = isinstance(self.classes, (int, np.integer)) and not isinstance(self.classes, bool)
        if self.classes not in ("auto", "none") and not (number and int(str(self.classes)) >= 2):
            raise ValueError(f"classes must be 'auto', 'none' or their number, at least 2; got {self.classes!r}")
        one = self.mean is None or (isinstance(self.mean, Mapping) and [*self.mean] in [[key] for key in _KEYS])
        if not one:
            raise ValueError(
                "mean must be None or a dict with one of 'S1', 'S2', 'S3': one known mean fixes the others"
            )

    def _check_views(self, views: Views) -> None:
        if len(views) != 2:
            raise DataError(
                f"contrastive RCA takes two views, got {len(views)} ({', '.join(views)}): name the two to compare, or use "
                "RCA for more"
            )

    def _hidden_classes(self, data: RowData, fit: Fitted) -> HiddenClasses | None:
        if self.classes == "none" or self.method == "paper" or self.A is not None or "S3" in (self.mean or {}):
            return None
        space = searched(data, fit.design, self.rank)
        second = space.data.moments(2)
        u, v = space.frames.values()
        found = canonical_coordinates(space.data, second, len(u.to))[0]
        shared = resolve_rank(self.rank, found)
        if not shared or found.n < MIN_ROWS or (shared > MOST_DIRECTIONS and self.classes == "auto"):
            return None
        r = min(shared, MOST_DIRECTIONS)
        lead = AffineMap(second.mean, found.leading(r).T)
        sample = space.data.counted_sample(lead, thinning)
        if sample is None:
            return None
        z, counts = sample
        counts = counts * (min(found.n, len(z)) / counts.sum())  # to the number of independent rows among these
        best = find_classes(z, found.correlations[:r], counts, self.classes, self.random_state)
        if best is None:
            return None
        whole = found.composed(u, v).leading(r).T
        centre = second.mean if space.mean is None else space.mean
        factor = 1.0 if fit.partial is None else stretch(fit.partial, data.lost)
        return HiddenClasses(best[0], centre, whole, fit.partial, factor, *best[1:])

    def _solve(self, data: Data, fit: Fitted) -> PairSolution | PaperSolution:
        rank = self.rank
        if fit.class_part is not None and isinstance(rank, (int, np.integer)):
            rank = max(0, int(rank) - fit.class_part.rank)
        given = rank, self.A, self.order
        if self.method == "paper":
            return PaperSolution.of(data, fit.design.places(), _KEYS, given)
        errors = _of_both_views(self.errors)
        return solve_pair(self._space(data, fit.design, rank), _KEYS, *given, self.random_state, errors)

    def _means(self, views: Sequence[str], solution: PairSolution | PaperSolution) -> dict[str, Array] | None:
        if self.mean is None:
            return None
        given = {key: np.array(value) for key, value in self.mean.items()}
        solution.means(given)  # refuse what cannot be now
        return given

    def _adopt(self, fitted: Fitted) -> None:
        super()._adopt(fitted)
        self._diagnosed: Diagnostics | None = None

    @property
    def rank_(self) -> int:
        """Shared directions, those of hidden classes included."""
        part = self.fitted_.class_part
        return int(self.solution_.rank) + (0 if part is None else part.rank)

    @property
    def A_(self) -> Array:
        """(d_v, d_u); of very wide views it is formed each time it is asked for."""
        solution, part = self.solution_, self.fitted_.class_part
        if part is None:
            return np.asarray(solution.A)
        return part.mixing(solution.root_s2, solution.through_A(solution.root_s2.T).T)

    def sides(self, component: Any, views: Sequence[str]) -> tuple[str, list[str], list[str]]:
        u, v = views
        if component not in (None, *_KEYS):
            raise ValueError(f"component must be one of {', '.join(map(repr, _KEYS))}, got {component!r}")
        return {"S2": (u, [v], []), "S3": (v, [], [u])}.get(component, (u, [], [v]))

    # ---- how sure

    @property
    def diagnostics_(self) -> Diagnostics:
        """How sure the fit is, and why; the tests are computed when first asked for."""
        if self._diagnosed is None:
            self._diagnosed = replace(
                self.solution_.diagnose(),
                classes=self.classes_,
                class_note="" if self.classes == "none" else self.fitted_.class_note,
                verdict=self.verdict_,
            )
        return self._diagnosed

    @property
    def verdict_(self) -> str:
        """How sure the fit is, in one or two words."""
        verdict = super().verdict_
        return "strong" if self.classes_ is not None and verdict == "nothing shared" else verdict

    def class_probabilities(self, X: object) -> Array:
        """Of the hidden classes, (n, K), for each sample, seen or not; a column of ones where there are none."""
        fitted = self.fitted_
        rows = fitted.filled(used_rows(self, X).array())
        check_finite(rows, fitted.design.side_by_side())
        return np.ones((len(rows), 1)) if fitted.classes is None else fitted.classes.probabilities(rows)

    @property
    def classes_(self) -> HiddenClasses | None:
        """Hidden classes that were found and removed, or None."""
        return self.fitted_.classes

    def confidence_interval(
        self, what: str = "covariance", component: str = "S1", level: float = 0.95, *, progress: bool = False
    ) -> Estimate:
        """Standard errors and confidence limits for "A" or for the "covariance" of a component.

        For A and Cov(S1) of the efficient method: one Newton step per left-out block, plus what the shrinkage may have
        moved. Without evidence ("not identified"), or where the test cannot exclude more shared directions than were found
        (``diagnostics_.largest_rank``): the identified set widened for noise, and no standard error. A is then without bounds
        in the second case, and where nothing is shared: nothing is known about it. Of wide views, which are reduced to
        principal components, there is the identified set only, without the noise of the variance outside of these. For
        everything else: the block jackknife of :meth:`jackknife`, which refits, and gives no errors of wide views.
        """
        check_interval(what, level)
        key = self.fitted_.key(component)
        own = self.components_[key].feature_names
        classes = self.fitted_.class_part is not None  # a part of A and of S2
        if what == "A":
            u, v = self.fitted_.view_names.values()
            known = None if classes else self.solution_.interval("mixing")
            return self._limits(known, lambda m: m.A_, level, progress, names=v, columns=u)
        known = None if classes and key == "S2" else self.solution_.limits(key)
        return self._limits(known, lambda m: m.components_[key].covariance, level, progress, names=own, columns=own)

    def variance_table(self, level: float = 0.95, *, progress: bool = False) -> VarianceTable:
        """The variance of each column of U: its own, shared with V, and how sure that is."""
        own, shared = (self.components_[name].variance for name in ("S1", "S2"))
        total = self._total_variance()
        known = self.solution_.interval("var_s1")
        limits = self._limits(known, lambda m: m.components_["S1"].variance, level, progress)
        ends = [limits.low, limits.high, *self.solution_.identified_set().variances()]
        ends = [np.where(end < 1e-12 * total, 0.0, end) for end in ends]  # rounding, and no variance is negative
        return VarianceTable(self.components_["S1"].feature_names, total, own, shared, *ends)

    def _total_variance(self) -> Array:
        """Var(U) (d_u,), hidden classes included."""
        total: Array = np.array(self.solution_.cov_u.diagonal())
        part = self.fitted_.class_part
        return total if part is None else total + np.sum(part.of_u @ part.spread * part.of_u, axis=1)

    def plot(self, what: str = "overview", *, ax: Any = None) -> Any:
        """Draw the fit (matplotlib).

        what : "correlations" (canonical, and the rank), "variance" (own and shared, per column of U), "intervals" (Var(S1) by
        several methods, with confidence interval and identified set), "A" (a heat map), or "overview", all four on a new
        figure. ax : where to draw one of them; by default on a new figure.

        Returns the Axes; for "overview" the Figure.
        """
        names_u, names_v = self.fitted_.view_names.values()
        title = "How much of each column is its own"
        own, shared = (self.components_[name].variance for name in ("S1", "S2"))
        panels: dict[str, Callable[[Any], Any]] = {
            "correlations": lambda ax: correlation_plot(
                self.diagnostics_.canonical_correlations, self.diagnostics_.rank, ax=ax
            ),
            "variance": lambda ax: variance_plot(names_u, own, shared, ax=ax),
            "intervals": lambda ax: own_variance_plot(self.variance_table(), title=title, label="Var(S1)", ax=ax),
            "A": lambda ax: heat_map(
                self.A_, names_v, names_u, title="A: how the shared part enters V", label="entry of A", ax=ax
            ),
        }
        if what == "overview":
            if ax is not None:
                raise ValueError(
                    f"the overview needs a figure of its own: leave out ax, or choose one of {list(panels)}"
                )
            return overview_plot(list(panels.values()))
        if what not in panels:
            raise ValueError(f"what must be 'overview' or one of {', '.join(map(repr, panels))}, got {what!r}")
        return panels[what](ax)

    def headline(self, verdict: str | None = None) -> str:
        """What was found, in a sentence or two; verdict : of a model of one of the components, by default the own."""
        total = self._total_variance()
        shared = np.divide(self.components_["S2"].variance, total, out=np.zeros_like(total), where=total > 0)
        share, view = float(np.mean(np.clip(shared, 0.0, 1.0))), self.views_.names[0]
        verdict = verdict or self.verdict_
        if verdict == "nothing shared":
            return f"No part shared with the controls was found: {view} is taken as it is."
        least = f"At least {share:.0%} of the variance of {view} is shared (average over its columns)."
        explains = f"The shared part explains {share:.0%} of {view} (average over its columns)."
        if verdict == "not identified":
            return (
                f"{least} How much more cannot be told from these data: the results equal those of adjusting for the "
                "controls."
            )
        if verdict == "contradicted":
            seen = explains if self.verdict_ in ("strong", "weak") else least  # else it is residualised
            return f"{seen} A test contradicts the model: do not rely on more than adjusting for the controls."
        return f"{explains} {_SURE[verdict]}"

    def next_steps(self) -> list[str]:
        """What would help, in numbers of samples and of controls."""
        return self.diagnostics_.next_steps()

    def summary(self) -> Summary:
        """A page of text: what was found, how sure it is, what to do; in a notebook what is read first, the rest folded."""
        told, notes = self.diagnostics_.summary(), self.fitted_.notes()
        first, *rest = told.split("\n")
        if hasattr(self, "feature_names_in_"):
            told_of = [
                *(f"{letter} is {self.views_.listed(i)}" for i, letter in enumerate("UV")),
                *self.fitted_.design.covariates_listed(),
            ]
            rest = [*(f"  {line}" for line in told_of), *rest]
        text = "\n".join([first, *(f"  {note}" for note in notes), *rest])
        return Summary(text, verdict=self.verdict_, says=[self.headline(), *told.says, *notes])
