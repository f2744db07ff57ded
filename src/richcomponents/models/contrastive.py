"""ContrastiveRCA: two views, U = S1 + S2 and V = A S2 + S3."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import MEMORY_LIMIT
from richcomponents.components.component import Component, CumulantSource
from richcomponents.components.covariance import Factored, Spread, added
from richcomponents.components.data import Data, StateData
from richcomponents.components.dependence import Dependence, RowUnits
from richcomponents.components.frame import Frame
from richcomponents.components.row_source import RowSource
from richcomponents.contrastive.bounds import IdentifiedSet, bounds_with_noise, ends_below
from richcomponents.contrastive.canonical import Canonical
from richcomponents.contrastive.coefficients import (
    Coefficients,
    Reading,
    Residualised,
    coefficients,
    inverse_factor,
    residualise,
    residualise_all_columns,
)
from richcomponents.contrastive.decomposition import VarianceTable
from richcomponents.contrastive.diagnostics import ADVICE, SUSPICIOUS, Diagnostics, contradicted, diagnose
from richcomponents.contrastive.directions import trust_in_directions
from richcomponents.contrastive.fit import (
    SharedPart,
    find_shared,
    in_users_units,
    measured_canonical,
)
from richcomponents.contrastive.intervals import Target, confidence, evaluate, replicate
from richcomponents.contrastive.known_mixing import check_known_mixing
from richcomponents.contrastive.pair import BlockCovariances
from richcomponents.contrastive.rank import largest_rank
from richcomponents.contrastive.score import higher_order_score, second_order_score
from richcomponents.contrastive.solution import WideView, solve_efficient, solve_paper, whole_recipes
from richcomponents.contrastive.specification import TestResult, outcome_test
from richcomponents.contrastive.uncertainty import interval_evidence, plain_grams
from richcomponents.cumulants.estimate import Estimate
from richcomponents.cumulants.jackknife import from_replicates
from richcomponents.data.views import as_matrix, check_finite, check_outcome
from richcomponents.errors import (
    DataError,
    SampleSizeWarning,
    SpecificationWarning,
    WeakIdentificationWarning,
    warn_user,
)
from richcomponents.models.doors import MIN_BLOCKS, ContrastiveDoors, is_source
from richcomponents.models.progress import with_bar
from richcomponents.moments import Layout, Moments, block_numbers
from richcomponents.plots import correlation_plot, heat_map, overview_plot, own_variance_plot, variance_plot

__all__ = ["ContrastiveRCA"]

_MIN_ROWS = 40  # below, block cumulants of order three and four say nothing
_FEW_PER_COLUMN = 5  # samples per coefficient below which least squares is determined, but poor
_STATE_LIMIT = MEMORY_LIMIT // 2


class ContrastiveRCA(TransformerMixin, ContrastiveDoors):  # type: ignore[misc]
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
    method : {"efficient", "paper", "polarised"}
        "efficient": canonical coordinates, cross-block Gram matrices, shrinkage chosen from the data; never far from
        residualising when the data say nothing. "paper": the formulas of Ge and Zou, the reference; its covariances need
        not be positive. "polarised": the same with the cumulants of their appendix.
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
    covariates : list of columns, optional
        Known covariates (age, sex, ...) among the columns of X, partialled out of both views and of y.
    n_blocks : int
        Statistical blocks for unbiased Gram matrices, cross-validation and the jackknife (at least 10).
    random_state : int or None
        Seed of the posterior draws.

    Attributes
    ----------
    A_ : array (d_v, d_u)
        On the range of the shared part; zero on its complement. Where the data say little, A_ leans on the prior and the
        covariances on residualising: then Cov(S2) A' is not Cov(U, V).
    components_ : dict of Component
        "S1", "S2" (in U's columns) and "S3" (in V's columns).
    rank_ : int
    diagnostics_ : Diagnostics
    views_ : Views

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

    def __init__(
        self,
        views: object = None,
        method: str = "efficient",
        A: object = None,
        rank: object = "auto",
        order: int = 4,
        mean: Mapping[str, object] | None = None,
        covariates: Sequence[object] | None = None,
        n_blocks: int = 20,
        random_state: int | None = 0,
    ) -> None:
        self.views = views
        self.method = method
        self.A = A
        self.rank = rank
        self.order = order
        self.mean = mean
        self.covariates = covariates
        self.n_blocks = n_blocks
        self.random_state = random_state

    # ---- fitting

    def _residuals(self, values: Array) -> Array:
        """Rows of (U, V), covariates partialled out."""
        columns = np.concatenate([self._u, self._v, self._covariate_columns])
        table = np.ascontiguousarray(values[:, columns])
        return table if self._partial is None else self._partial.residuals(table)

    def _solve(
        self,
        data: Data,
        second: Moments,
        n_u: int,
        u: Frame,
        v: Frame,
        *,
        rows: Array | None = None,
        outside: tuple[Outside, Outside] | None = None,
        second_order_only: bool | None = None,
        dependence: Dependence | None = None,
    ) -> Self:
        """From moments to A_ and components_.

        rows : centred rows of (U, V), where a view was reduced; outside : what the views have outside the frames, when rows do
        not tell. second_order_only : decided here when None; replicates follow the full fit.
        """
        d_u, d_v = len(u.outer), len(v.outer)
        A = self._known_mixing(d_u, d_v)
        if self.method != "efficient":
            rank = self._paper_rank(d_u, d_v)
            self._shared: SharedPart | None = None
            self._canonical: Canonical | None = None
            self._state = second
            self._second_order_only = False
            self._found: Canonical = measured_canonical(second, n_u, data, data.lost)[0]
            polarised = self.method == "polarised"
            self._solution = solve_paper(second, d_u, order=self.order, rank=rank, A=A, polarised=polarised)
        else:
            k_u, k_v = len(u.inner), len(v.inner)
            wide = not _fits(k_u + k_v, self.n_blocks)
            undecided = second_order_only is None
            self._second_order_only = bool(second_order_only)

            def few(found: Canonical) -> bool:
                if undecided:
                    self._second_order_only = A is None and self._too_small(second, found.n)
                return self._second_order_only

            inner_A = None if A is None else v.inner @ A @ u.outer
            self._shared = find_shared(
                data,
                second,
                n_u,
                rank=self.rank,
                order=min(self.order, 4),
                A=inner_A,
                wide=wide,
                second_order_only=few,
                dependence=dependence,
                random_state=self.random_state,
            )
            self._state, self._found = self._shared.state, self._shared.canonical
            source = None if self._shared.leading else CumulantSource(self._state)
            own_u, own_v = _every_column(self._shared, second, n_u, u, v, rows, outside)
            spreads, lifts = (own_u.spread, own_v.spread), (own_u.lift, own_v.lift)
            self._solution, self._canonical = solve_efficient(self._shared, u, v, *spreads, source, A, lifts)
        # replicates keep what the full fit decided; of reduced views A is not the whole story
        self._mixing_test: TestResult | None = None
        if A is not None and second_order_only is None and (d_u, d_v) == (len(u.inner), len(v.inner)):
            self._mixing_test = check_known_mixing(second, n_u, self.rank, v.inner @ A @ u.outer)
        self.rank_ = self._solution.rank
        self._second, self._n_u = second, n_u
        self._known_diagnostics: Diagnostics | None = None
        self._name_components()
        self._warn()
        return self

    @property
    def A_(self) -> Array:
        """(d_v, d_u); of very wide views it is formed each time it is asked for."""
        check_is_fitted(self)
        return self._solution.A

    def _too_small(self, second: Moments, n: float) -> bool:
        """Whether there are too few independent rows, n, or blocks of them, for cumulants of higher order; says so."""
        blocks = int(np.sum(second.block_sizes > 0))
        if n >= _MIN_ROWS and blocks >= MIN_BLOCKS:
            return False
        kind = "samples" if n == second.n else "independent samples"
        short = f"{n:.0f} {kind} are" if n < _MIN_ROWS else f"{blocks} blocks of samples (or groups) are"
        unsure = (
            ""
            if n >= _MIN_ROWS or self.rank != "auto"
            else ". The number of shared directions is hardly tested: give rank="
        )
        warn_user(
            f"{short} too few for cumulants of order three and four (at least {_MIN_ROWS} samples in {MIN_BLOCKS} blocks are "
            f"needed): only second moments are used, and coefficients are those of residualising{unsure}",
            SampleSizeWarning,
        )
        return True

    def _paper_rank(self, d_u: int, d_v: int) -> int | None:
        if self.rank in ("auto", "full"):
            return None
        if (
            isinstance(self.rank, bool)
            or not isinstance(self.rank, (int, np.integer))
            or not 1 <= self.rank <= min(d_u, d_v)
        ):
            raise ValueError(f"rank must be 'auto', 'full' or an integer from 1 to {min(d_u, d_v)}, got {self.rank!r}")
        return int(self.rank)

    def _known_mixing(self, d_u: int, d_v: int) -> Array | None:
        if self.A is None:
            return None
        A = as_matrix(self.A).copy()
        if A.shape != (d_v, d_u):
            raise DataError(
                f"A must have one row per column of V and one column per column of U: shape ({d_v}, {d_u}), got {A.shape}"
            )
        if not np.isfinite(A).all():
            raise DataError("the known A holds missing or infinite values")
        rank = int(np.linalg.matrix_rank(A))
        wanted = self.rank if isinstance(self.rank, (int, np.integer)) else d_u
        if rank < wanted:
            raise DataError(
                f"the known A has no left inverse: its rank is {rank}, so only {rank} of {wanted} shared directions can be "
                "seen in V. Add columns to V, drop dependent columns of U, or give rank= if the shared part has lower rank"
            )
        return A

    def _name_components(self) -> None:
        names = np.array(self.views_.feature_names, dtype=object)
        self.components_: dict[str, Component] = self._solution.components(
            self._means(), tuple(map(str, names[self._u])), tuple(map(str, names[self._v]))
        )

    def _means(self) -> dict[str, Array]:
        """Means of the components: the shared part has mean zero unless one mean is given."""
        d_u = len(self._u)
        mean_u, mean_v = self._centre[:d_u], self._centre[d_u:]
        s2 = np.zeros(d_u)
        if self.mean is not None:
            which, given = next(iter(self.mean.items()))
            value = np.array(given, dtype=np.float64)
            expected = mean_v.shape if which == "S3" else mean_u.shape
            if value.shape != expected:
                raise DataError(f"the known mean of {which} must have shape {expected}, got {value.shape}")
            if not np.isfinite(value).all():
                raise DataError(f"the known mean of {which} holds missing or infinite values")
            if which == "S1":
                s2 = mean_u - value
            elif which == "S2":
                s2 = value
            else:
                s2 = np.linalg.pinv(self.A_) @ (mean_v - value)
        return {"S1": mean_u - s2, "S2": s2, "S3": mean_v - self._solution.through_A(s2)}

    # ---- values of the components

    def transform(self, X: object, component: str = "S1", return_std: bool = False) -> Any:
        """Best linear unbiased prediction of a component for each sample, seen or not.

        The cleaned matrix: S1 under U's own column names; BLUP(S1) + BLUP(S2) = U exactly. As predictors in a linear model
        BLUPs give the right coefficients, but their covariance is too small: no principal components, mixtures
        or outcomes from them (use the component's own covariance and cumulants).

        return_std : also the standard error of prediction, (n, d).
        """
        if component == "S3" and getattr(self, "_sklearn_output_config", {}).get("transform", "default") != "default":
            raise ValueError("set_output names the columns of U; for S3 use blup(X, 'S3')")
        return self.blup(X, component, return_std=return_std)

    def blup(self, X: object, component: str = "S1", *, return_std: bool = False) -> Any:
        """As :meth:`transform`, always as plain arrays."""
        check_is_fitted(self)
        if component not in ("S1", "S2", "S3"):
            raise ValueError(f"component must be 'S1', 'S2' or 'S3', got {component!r}")
        u, v = self._centred(X)
        s2 = self._solution.predict_s2(u, v)
        own = v - self._solution.through_A(s2) if component == "S3" else s2 if component == "S2" else u - s2
        values = own + self._means()[component]
        if not return_std:
            return values
        error = self._solution.variance_s2
        variance = error.diagonal()
        if component == "S3":
            variance = np.sum(self.A_ * (error @ self.A_.T).T, axis=1)
        std = np.sqrt(np.maximum(variance, 0.0))
        return values, np.tile(std, (len(values), 1))

    def _centred(self, X: object) -> tuple[Array, Array]:
        if is_source(X):
            raise DataError(
                "only fit reads files and streams: pass a table in memory here, one block of rows at a time"
            )
        values = self._values(X, reset=False)
        check_finite(values, self.views_)
        bad = ~np.isfinite(values[:, self._covariate_columns]).all(axis=0)
        if bad.any():
            name = self.views_.feature_names[self._covariate_columns[int(np.argmax(bad))]]
            raise DataError(
                f"the covariate {name!r} holds missing or infinite values: drop those rows or impute them first"
            )
        rows = self._residuals(values) - self._centre
        return rows[:, : len(self._u)], rows[:, len(self._u) :]

    def component_on_rows(self, X: object, component: str = "S1", groups: object = None) -> Component:
        """The component with its higher cumulants read off the rows of X whenever they are asked for.

        For tables too wide for a state of order four (then components_ knows mean and covariance only): a projected cumulant
        costs O(n p) and nothing of size p^3 is formed. Also the way to mini-batches. The rows stay in memory, n x p numbers.

        groups : (n,) labels; rows of a group stay in one block.
        """
        check_is_fitted(self)
        if component not in self.components_:
            raise ValueError(f"component must be one of {', '.join(map(repr, self.components_))}, got {component!r}")
        z, recipes = np.hstack(self._centred(X)), self._solution.recipes
        if self._shared is not None and self._canonical is not None:
            found, d_u = self._canonical, len(self._u)
            z = np.hstack([z[:, :d_u] @ found.x_from_u.T, z[:, d_u:] @ found.y_from_v.T])
            recipes = whole_recipes(found, self._shared.identified)
        source = RowSource(z, block_numbers(len(z), self.n_blocks, groups))
        return replace(self.components_[component], source=source, recipes=recipes[component], _known={})

    def get_feature_names_out(self, input_features: object = None) -> Any:
        """U's column names."""
        check_is_fitted(self)
        if hasattr(self, "feature_names_in_"):
            return np.asarray(self.feature_names_in_, dtype=object)[self._u]
        return np.array([f"x{i}" for i in self._u], dtype=object)

    # ---- learning from the fit

    def coefficients(self, X: object, y: object, sample_weight: object = None) -> Coefficients:
        """Least-squares coefficients of y on S1, from samples of (U, V, y).

        sample_weight : (n,) how often each row counts; by default as in :meth:`fit`, when X has as many rows as it had.

        y depends on S1 only, so Cov(V, y) = 0 and the residual of U on V may stand in for U: same expectation, far less
        variance. The result is never far from residualising (V as covariates) when the data say little about A.

        All columns of U count, also where shared directions were looked for in principal components only. With fewer than five
        samples per column this warns, and with no more samples than coefficients it refuses: then use
        ComponentRegression(alpha="cv").
        """
        check_is_fitted(self)
        self._check_determined()
        return self._regress(X, y, sample_weight)[0]

    def _regress(self, X: object, y: object, sample_weight: object = None) -> tuple[Coefficients, Residualised]:
        """The coefficients and the least squares that they come from. Where that is not determined (fewer samples than columns
        of U), the regression on the principal components that were searched: a guide for penalised fits, no result."""
        u, v = self._centred(X)
        weight = self._row_units(len(v), sample_weight=sample_weight, weights_only=True).weights(len(v))
        target, n = self._centred_target(X, y, len(v), weight), self._free_rows(weight.sum())
        counted, r, found = weight * target, self.rank_, self._canonical
        with_u, with_v, variance = u.T @ counted / n, v.T @ counted / n, float(counted @ target) / n
        if self._shared is None or found is None:
            beta = np.linalg.pinv(np.asarray(self._solution.cov_s1), hermitian=True) @ with_u
            return Coefficients(beta, beta, 1.0, np.eye(0)), Residualised(beta, np.nan)
        inverse, lift = self._inverse_of_residual(), self._solution.lift
        if inverse is None:
            fit = residualise(found, r, with_u, with_v, variance)
        else:
            D, with_y = found.correlations[:r], found.y_from_v[:r] @ with_v
            fit = residualise_all_columns(inverse, lift, D, with_u, with_y, variance, self._degrees())
        return coefficients(self._in_users_units(), fit, self._reading(inverse)), fit

    def _wanted(self) -> int:
        """Coefficients of least squares on U and the shared part of V."""
        return int(np.sum(self._solution.cov_u.diagonal() > 0)) + self.rank_

    def _determined(self) -> bool:
        """Whether there are more independent rows than coefficients, those of the covariates included."""
        rows = self._second.n if self._units_known is None else min(self._second.n, self._units_known)
        if rows <= self._wanted() + len(self._covariate_columns):
            return False
        whole = self._solution.cov_u
        if not isinstance(whole, Factored) or self._units is None or self._units.groups is None:
            return True
        return bool(inverse_factor(whole.rows).shape[1] >= self._wanted() - self.rank_)  # copies determine nothing more

    def _degrees(self) -> float:
        """Independent rows less coefficients: what is left to estimate the noise of least squares on all columns."""
        assert self._canonical is not None
        return self._canonical.n - self._wanted() - 1

    def _counted(self) -> str:
        n, units = self._second.n, self._units_known
        return f"{n} samples" if units is None or units >= n else f"{units} independent samples"

    def _check_determined(self) -> None:
        """Refuse least squares with no more samples than coefficients; warn where a wide view has few."""
        if self._canonical is None:
            return
        n, wanted, known = self._canonical.n, self._wanted(), len(self._covariate_columns)
        if not self._determined():
            raise DataError(
                f"{self._counted()} do not determine the {wanted + known} coefficients of least squares on all columns "
                f"of view {next(iter(self.views_))!r} ({len(self._u)}), the {self.rank_} shared directions and {known} "
                'covariates: use a penalty chosen by cross-validation, ComponentRegression(alpha="cv"), or fewer columns'
            )
        if self._solution.reduced and n < _FEW_PER_COLUMN * wanted:
            warn_user(
                f"{n:.0f} samples for {wanted} coefficients, fewer than {_FEW_PER_COLUMN} each: least squares on all columns "
                'is determined, but its errors are large. A penalty (alpha="cv") may serve better',
                SampleSizeWarning,
            )

    def _inverse_of_residual(self) -> Array | None:
        """G (d_u, k) with G G' = Cov(R)^-1 over all columns of a wide U, R its residual on the shared part of V.

        None where the canonical coordinates are all of U, or where there are too few samples.
        """
        whole = self._solution.cov_u
        return inverse_factor(whole.rows) if isinstance(whole, Factored) and self._determined() else None

    def _reading(self, inverse: Array | None) -> Reading:
        """How the shared coordinates are read off U, for coefficients."""
        assert self._canonical is not None
        lift = self._solution.lift
        return (
            Reading.canonical(self._canonical, self.rank_, lift)
            if inverse is None
            else Reading.of_all_columns(inverse, lift)
        )

    def residual(self, X: object) -> Array:
        """R (n, d_u), centred: what is left of every column of U after regression on the shared part of V."""
        check_is_fitted(self)
        u, v = self._centred(X)
        if self._canonical is None:  # the paper's method knows no shared directions
            return np.asarray(u - v @ np.linalg.lstsq(v, u, rcond=None)[0])
        r, found = self.rank_, self._canonical
        return np.asarray(u - (v @ found.y_from_v[:r].T * found.correlations[:r]) @ self._solution.lift.T)

    def shrunken(self, X: object, fit: Coefficients) -> Array:
        """Predictions of S1, centred, with as much correction as the outcome's own trust allows: (n, d_u).

        Least squares of the outcome on these columns gives fit.beta; penalised fits should use them too (rescaling
        penalised coefficients afterwards blows up their error). With method="paper" they are the predictions as they are, and
        fit.beta comes from Cov(S1) instead.
        """
        check_is_fitted(self)
        if self._shared is None or self._canonical is None:
            u, v = self._centred(X)
            return u - self._solution.predict_s2(u, v)
        return self._reading(self._inverse_of_residual()).without_shared(self.residual(X), fit.t_effective)

    def _centred_target(self, X: object, y: object, rows: int, weight: Array | None = None) -> Array:
        """y about its mean, known covariates removed (rows,); weight : how often each row counts, once by default."""
        target = check_outcome(y, rows)
        column: Array = target - np.average(target, weights=weight)
        if self._partial is not None:
            known = self._values(X, reset=False)[:, self._covariate_columns]
            known = known - np.average(known, axis=0, weights=weight)
            root = np.ones(rows) if weight is None else np.sqrt(weight)
            left = column - known @ np.linalg.lstsq(known * root[:, None], column * root, rcond=None)[0]
            if np.abs(left).max() <= 1e-9 * np.abs(column).max():
                names = ", ".join(self.views_.feature_names[c] for c in self._covariate_columns[:5])
                raise DataError(
                    f"y is an exact function of the covariates ({names}): they leave nothing to explain. Is y one of them?"
                )
            column = left
        return column

    def _free_rows(self, n: float) -> float:
        """n rows less those that covariates took."""
        return max(n - self._lost, 1.0)

    def outcome_test(self, X: object, y: object, groups: object = None, sample_weight: object = None) -> TestResult:
        """F-test of y on V: if y depends on S1 only, it is independent of V. The best specification test there is.

        groups, sample_weight : as in :meth:`fit`; by default those of the fit, when X has as many rows as it had.
        """
        check_is_fitted(self)
        _, v = self._centred(X)
        if v.shape[1] > len(v):
            v = v @ np.linalg.qr(v.T)[0]  # the same variates in as many columns as rows
        rows = self._row_units(len(v), groups, sample_weight)
        return outcome_test(v, self._centred_target(X, y, len(v), rows.weight), rows, self._lost)

    def _row_units(
        self, n: int, groups: object = None, sample_weight: object = None, *, weights_only: bool = False
    ) -> RowUnits:
        """Groups and weights of n rows: those given, else those of the fit for as many rows; others are not guessed."""
        if groups is not None or sample_weight is not None:
            return RowUnits.of(n, groups, sample_weight)
        depend = self._found.dependence is not None if self._units is None else self._units.depend
        if not (self._weighted if weights_only else depend):
            return RowUnits()
        if self._units is None or len(self._units) != n:
            raise DataError(
                "the fit knew groups or weights of its rows, but not those of this table: pass groups= or sample_weight= "
                "(sample_weight=np.ones(len(X)) if its rows are independent)"
            )
        return self._units

    def score(self, X: object, y: object = None) -> float:
        """Held-out fit: Gaussian log-likelihood per sample of the views under the fitted second moments, plus the energy of
        the held-out cross-cumulants inside the fitted row space, in nats per sample."""
        check_is_fitted(self)
        u, v = self._centred(X)
        total = second_order_score(self._solution, u, v)
        if self._shared is not None and self._canonical is not None:
            total += higher_order_score(self._shared, self._canonical, u, v, self.n_blocks)
        return total

    # ---- how sure

    @property
    def diagnostics_(self) -> Diagnostics:
        """How sure the fit is, and why; the tests are computed when first asked for."""
        check_is_fitted(self)
        if self._known_diagnostics is None:
            evidence = None
            if self._shared is not None and self.rank_ and self._shared.identified.order_weights.any():
                evidence = self._interval_evidence()
            identified = None if self._shared is None else self._shared.identified
            self._known_diagnostics = diagnose(
                self._solution,
                self._found,
                identified,
                self._identified_set(),
                evidence,
                self._second.n,
                self._largest_rank(),
                self._mixing_test,
            )
        return self._known_diagnostics

    def _interval_evidence(self) -> tuple[Any, Array]:
        assert self._shared is not None
        assert self._canonical is not None
        return interval_evidence(self._shared, self._canonical), plain_grams(self._shared)

    def _largest_rank(self) -> int:
        """The largest rank that is not excluded: by the test, or because the rank was given."""
        if self._shared is None or self.A is not None or self.rank != "auto":
            return self.rank_
        return largest_rank(self._found, self.rank_)

    def _identified_set(self) -> IdentifiedSet:
        """Ends of Cov(S1), entry by entry, over all admissible T, given the rank, and over all ranks not excluded."""
        whole = self._solution.cov_u
        if self._canonical is None or self._shared is None:
            return IdentifiedSet(np.zeros((len(whole), 0)), np.full(whole.shape, np.nan))
        r = self.rank_
        d = self._canonical.correlations[:r]
        lift = self._canonical.u_from_x[:, :r]
        return IdentifiedSet(lift * np.sqrt(1 - d**2), added(whole, lift, -np.diag(d**2)), self._largest_rank() > r)

    def _covariance_for_directions(self, k: int) -> tuple[Spread, float]:
        """Cov(S1) at as much of T as its k leading directions support, and that share of T."""
        own, shared = self._solution.cov_s1, self._shared
        if shared is None or self._canonical is None or self.A is not None:
            return own, 1.0
        known = self._in_users_units()
        if self.rank_ == 0 or known.gate == 0:
            return own, 0.0
        turned = self._solution.lift * known.h
        residualised = added(own, turned, known.gate * known.t)
        trust = trust_in_directions(known, self._interval_evidence()[0], residualised, k)
        return added(residualised, turned, -trust * known.t), trust

    def _in_users_units(self) -> Any:
        assert self._shared is not None
        assert self._canonical is not None
        return replace(self._shared.identified, canonical=self._canonical)

    @property
    def n_samples_(self) -> int:
        """Rows of the fit."""
        return self.diagnostics_.n

    @property
    def covariates_(self) -> IntArray:
        """Column numbers of the known covariates."""
        return self._covariate_columns

    def _warn(self) -> None:
        verdict = "paper" if self._shared is None else self._shared.identified.verdict
        if verdict in ("weak", "not identified") and not self._second_order_only:  # fewer rows were warned of already
            warn_user(ADVICE[verdict], WeakIdentificationWarning)
        if self._mixing_test is not None and self._mixing_test.p_value < SUSPICIOUS:
            warn_user(contradicted(self._mixing_test), SpecificationWarning)

    def confidence_interval(
        self, what: str = "covariance", component: str = "S1", level: float = 0.95, *, progress: bool = False
    ) -> Estimate:
        """Standard errors and confidence limits for "A" or for the "covariance" of a component.

        For A and Cov(S1) of the efficient method: one Newton step per left-out block, plus what the shrinkage may have
        moved. Without evidence ("not identified"), or where the test cannot exclude more shared directions than were found
        (``diagnostics_.largest_rank``): the identified set widened for noise, and no standard error. A is then without bounds
        in the second case, and where nothing is shared: nothing is known about it. All of these
        leave out the noise of the variance outside the principal components that wide views are reduced to. For
        everything else: the block jackknife of :meth:`jackknife`, which refits.
        """
        check_is_fitted(self)
        if what not in ("A", "covariance"):
            raise ValueError(f"what must be 'A' or 'covariance', got {what!r}")
        if component not in ("S1", "S2", "S3"):
            raise ValueError(f"component must be 'S1', 'S2' or 'S3', got {component!r}")
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level!r}")
        u, v = (self.components_[name].feature_names for name in ("S1", "S3"))
        if what == "A":
            return replace(self._interval("mixing", self.A_, lambda m: m.A_, level, progress), names=v, columns=u)
        point, names = np.asarray(self._solution.covariance(component)), self.components_[component].feature_names
        found = self._interval(f"cov_{component.lower()}", point, _covariance_of(component), level, progress)
        return replace(found, names=names, columns=names)

    def _interval(
        self, target: str, point: Array, chosen: Callable[[ContrastiveRCA], Array], level: float, progress: bool
    ) -> Estimate:
        """chosen : the same from a refitted model."""
        shared = self._shared
        if shared is not None and self.A is None:
            more = self._largest_rank() > self.rank_
            if target == "mixing" and (more or self.rank_ == 0):
                return Estimate.unbounded(point, level=level)
            if more or (self.rank_ and shared.identified.gate == 0):
                found = self._identified_interval(shared, target, point, level, more)
                if not more or shared.identified.gate == 0 or shared.leading or target not in ("cov_s1", "var_s1"):
                    return found
                seen = self._fast_interval(shared, cast(Target, target), point, level)
                return replace(found, covering=seen)
            if self.rank_ and not shared.leading and target in ("mixing", "cov_s1", "var_s1"):
                return self._fast_interval(shared, cast(Target, target), point, level)
        return replace(self.jackknife(chosen, progress=progress), value=point, level=level)

    def _identified_interval(self, shared: SharedPart, target: str, point: Array, level: float, more: bool) -> Estimate:
        """Without evidence: the ends of the identified set, widened for sampling noise (Imbens and Manski 2004).

        more : further directions than the rank may be shared.
        """
        assert self._canonical is not None
        if shared.leading:  # the part outside the leading directions has no block statistics: its noise is left out
            if target == "mixing":
                return Estimate.unbounded(point, level=level)
            ends = self._identified_set()
            low, high = ends.variances() if target == "var_s1" else ends.ends()
            if target == "cov_s2":
                low, high = np.asarray(self._solution.cov_u) - high, np.asarray(self._solution.cov_u) - low
            elif target == "cov_s3":
                low, high = ends_below(np.asarray(self._solution.cov_v))
            return Estimate(point, np.full_like(point, np.nan), 1, level=level, identified=(low, high))
        blocks = BlockCovariances.of(self._state)
        found, error = bounds_with_noise(self._canonical, self.rank_, blocks, target, more)
        return Estimate(
            point,
            np.full_like(point, np.nan),
            len(blocks.count) - 1,
            level=level,
            identified=(found.lower + self._outside(target), found.upper + self._outside(target)),
            identified_error=(error.lower, error.upper),
        )

    def _outside(self, target: str) -> Any:
        """What Cov(S1) or Cov(S3) has outside the principal components a wide view was reduced to; its own noise is left
        out."""
        if target not in ("cov_s1", "var_s1", "cov_s3") or self._canonical is None:
            return 0.0
        own, total = (
            (self._canonical.v_from_y, self._solution.cov_v)
            if target == "cov_s3"
            else (self._canonical.u_from_x, self._solution.cov_u)
        )
        if own.shape[1] == len(own):
            return 0.0
        if target == "var_s1":
            return total.diagonal() - np.sum(own**2, axis=1)
        return np.asarray(total) - own @ own.T

    def _fast_interval(self, shared: SharedPart, target: Target, point: Array, level: float) -> Estimate:
        """One Newton step per left-out block. Where the gate is half open Cov(S1) is the gated point, and the limits reach
        from there over those of the estimate without the gate."""
        replicates = replicate(self._interval_evidence()[0])
        centre = point
        if target != "mixing":
            centre = evaluate(replicates.basis, target, shared.identified.t) + self._outside(target)
        found = confidence(replicates, target, centre, level)
        return replace(found, value=point, centre=centre)

    def jackknife(self, function: Callable[[ContrastiveRCA], Array], *, progress: bool = False) -> Estimate:
        """Standard errors of any function of the fitted model: leave out one block at a time and refit, A included.

        function : takes a fitted ContrastiveRCA, returns an array. progress : show a bar.
        """
        check_is_fitted(self)
        used = np.flatnonzero(self._state.block_sizes).tolist()
        if len(used) < 2:
            raise DataError("the jackknife needs at least two blocks of samples")
        replicates = [function(self._without(block)) for block in with_bar(used, progress, "jackknife")]
        return from_replicates(function(self), replicates)

    def _without(self, block: int) -> ContrastiveRCA:
        """The model refitted without one block, from the state alone."""
        other = copy(self)
        other.rank = self.rank_ if self.method == "efficient" else self.rank
        state = self._state.without([block])
        data = StateData(state, self._lost)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self._shared is None or self._canonical is None:
                other._centre = state.mean
                d_u = len(self._u)
                return other._solve(data, state, d_u, Frame.identity(d_u), Frame.identity(len(self._v)))
            found, known, k = self._canonical, self._canonical.dependence, self._shared.rank
            k_u, k_v = (k, k) if self._shared.leading else (found.rank_u, found.rank_v)
            u = Frame(found.x_from_u[:k_u], found.u_from_x[:, :k_u])
            v = Frame(found.y_from_v[:k_v], found.v_from_y[:, :k_v])
            moved = np.concatenate([u.outer @ state.mean[:k_u], v.outer @ state.mean[k_u:]])
            other._centre = self._centre + moved
            d = found.correlations[:k]
            outside = (
                _outside_of(self._solution.cov_u, u, self._solution.lift, d),
                _outside_of(self._solution.cov_v, v, self._solution.into_v / d, d),
            )
            return other._solve(
                data,
                state,
                k_u,
                u,
                v,
                outside=outside,
                second_order_only=self._second_order_only,
                dependence=known,
            )

    def variance_table(self, level: float = 0.95, *, progress: bool = False) -> VarianceTable:
        """The variance of each column of U: its own, shared with V, and how sure that is."""
        check_is_fitted(self)
        total, own, shared = (
            np.array(C.diagonal()) for C in (self._solution.cov_u, self._solution.cov_s1, self._solution.cov_s2)
        )
        limits = self._interval("var_s1", own, lambda m: m.components_["S1"].variance, level, progress)
        ends = [limits.low, limits.high, *self._identified_set().variances()]
        ends = [np.where(end < 1e-12 * total, 0.0, end) for end in ends]  # rounding, and no variance is negative
        return VarianceTable(self.components_["S1"].feature_names, total, own, shared, *ends)

    def plot(self, what: str = "overview", *, ax: Any = None) -> Any:
        """Draw the fit (matplotlib).

        what : "correlations" (canonical, and the rank), "variance" (own and shared, per column of U), "intervals" (Var(S1) by
        several methods, with confidence interval and identified set), "A" (a heat map), or "overview", all four on a new
        figure. ax : where to draw one of them; by default on a new figure.

        Returns the Axes; for "overview" the Figure.
        """
        check_is_fitted(self)
        names_u, names_v = (self.components_[name].feature_names for name in ("S1", "S3"))

        def intervals(ax: Any) -> Any:
            title = "How much of each column is its own"
            return own_variance_plot(self.variance_table(), title=title, label="Var(S1)", ax=ax)

        own, shared = (self._solution.covariance(name).diagonal() for name in ("S1", "S2"))
        panels: dict[str, Callable[[Any], Any]] = {
            "correlations": lambda ax: correlation_plot(self.diagnostics_.canonical_correlations, self.rank_, ax=ax),
            "variance": lambda ax: variance_plot(names_u, own, shared, ax=ax),
            "intervals": intervals,
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

    def summary(self) -> str:
        """A page of text: what was found, how sure it is, what to do."""
        check_is_fitted(self)
        first, *rest = self.diagnostics_.summary().split("\n")
        if hasattr(self, "feature_names_in_"):
            rest = [f"  {letter} is {self.views_.listed(i)}" for i, letter in enumerate("UV")] + rest
        return "\n".join([first, *rest])


def _fits(columns: int, n_blocks: int) -> bool:
    try:
        Layout(columns, 4, n_blocks=n_blocks).check_memory(_STATE_LIMIT)
    except MemoryError:
        return False
    return True


def _covariance_of(component: str) -> Callable[[ContrastiveRCA], Array]:
    return lambda model: model.components_[component].covariance


@dataclass(frozen=True)
class Outside:
    """What a view has outside the columns of a state: spread, its covariance there (d, d); together (d, r), the covariance
    there with the other view's shared variates, of wide views only."""

    spread: Spread
    together: Array | None


def _outside_of(whole: Spread, frame: Frame, lift: Array, correlations: Array) -> Outside:
    if not isinstance(whole, Factored):
        return Outside(whole - frame.outer @ frame.outer.T, None)
    r = len(correlations)
    return Outside(whole.plus(frame.outer.T, -np.eye(frame.outer.shape[1])), (lift - frame.outer[:, :r]) * correlations)


@dataclass(frozen=True)
class EveryColumn:
    """Covariance of a view in the user's columns, and the loadings of the shared part in all of them, (d, r); None where the
    canonical maps give them."""

    spread: Spread
    lift: Array | None


def _every_column(
    shared: SharedPart,
    second: Moments,
    n_u: int,
    u: Frame,
    v: Frame,
    rows: Array | None,
    outside: tuple[Outside, Outside] | None,
) -> tuple[EveryColumn, EveryColumn]:
    """Both views: from rows where they are wide, else from the state's columns and what is known to be outside."""
    found, r = in_users_units(shared.canonical, u, v), shared.rank
    d = np.maximum(found.correlations[:r], 1e-9)
    C = second.covariance(unbiased=False)
    inner = shared.canonical
    if rows is not None:
        d_u = len(u.outer)
        views = rows[:, :d_u], rows[:, d_u:]
        variates = views[0] @ found.x_from_u[:r].T, views[1] @ found.y_from_v[:r].T
    out = []
    sides = ((u, C[:n_u, :n_u], inner.y_from_v, found.u_from_x), (v, C[n_u:, n_u:], inner.x_from_u, found.v_from_y))
    for side, (frame, covariance, other, back) in enumerate(sides):
        if rows is not None and len(frame.inner) < len(frame.outer):
            wide = WideView.of(views[side], variates[1 - side], d)
            out.append(EveryColumn(wide.spread, wide.lift))
            continue
        beyond = None if outside is None else outside[side]
        if beyond is not None and isinstance(beyond.spread, Factored) and beyond.together is not None:
            lift = back[:, :r] + beyond.together @ other[:r, :r].T / d
            out.append(EveryColumn(beyond.spread.plus(frame.outer.T, covariance), lift))
        else:
            inside = frame.outer @ covariance @ frame.outer.T
            out.append(EveryColumn(inside if beyond is None else inside + beyond.spread, None))
    return out[0], out[1]
