"""The simple methods, with the same inputs and the same output as the learners: one call each.

`true`, `naive`, `covariates`, `instrumental`, `cca` and `kernel_cca` take an unfitted learner (ComponentPCA,
ComponentRegression, ...) of a component of two or more views, make samples that stand in for the component, and fit a clone of
the learner to them as if they were clean. They differ in these samples alone: with U the component's view and V those where it
does not live, both without known covariates,

    naive           U
    covariates      U - (U on V)
    instrumental    what other views where it lives predict of U, all of them without what V predicts
    cca             U without its first canonical directions with V
    kernel_cca      U - (U on its first kernel canonical variates with V)

`unadjusted`, `ancova`, `ruv2` and `ruv4` estimate the effects of an exposure y on every column of U, U = y alpha + S1 + S2,
where V = A S2 + S3 are columns that y does not change (negative controls) and S2 may go with y. All four are least squares
of U on (1, covariates, y, W), and differ in W alone: nothing, the controls, or factors that stand in for S2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.base import clone

from richcomponents.algebra import Array
from richcomponents.components import Component
from richcomponents.cumulants.estimate import Estimate
from richcomponents.data.design import is_column, labels_in
from richcomponents.data.table import as_matrix, check_outcome, column_names
from richcomponents.errors import DataError
from richcomponents.learning.coefficients import simple_map
from richcomponents.models.rca import read_views
from richcomponents.pair.views import canonical

__all__ = ["ancova", "cca", "covariates", "instrumental", "kernel_cca", "naive", "ruv2", "ruv4", "true", "unadjusted"]


def _read(rca: Any, X: object, y: object) -> tuple[dict[str, Array], Array, Any, Any]:
    """The views and known covariates of complete rows, the columns of the views, and y as values; y : also a column of X."""
    return read_views(rca, X, labels_in(X, y), [y]) if is_column(y) else read_views(rca, X, y)


# ---- samples that stand in for a component


def _elsewhere(outside: Array) -> Array:
    """The views where a component does not live, centred."""
    if not outside.shape[1]:
        raise DataError(
            "the component lives in all views: there is no other to remove from its view. Use naive, or instrumental"
        )
    return np.asarray(outside - outside.mean(axis=0))


def _fitted(learner: Any, X: object, y: object, stand_in: Callable[[Array, Array, Array], Array]) -> Any:
    """A clone of the learner, fitted to what stands in for its component, without known covariates: a function of the view in
    whose columns it is written (n, d), others where it lives, and those where it does not, side by side."""
    rca = learner.unfitted_rca()
    views, known, _, values = _read(rca, X, y)
    own, *others = rca.sides(learner.component, tuple(views))
    known = known - known.mean(axis=0)
    left = {view: _residual(columns, known) for view, columns in views.items()}
    partners, outside = (np.hstack([known[:, :0], *(left[view] for view in side)]) for side in others)
    return _fit_samples(learner, stand_in(left[own], partners, outside), values, known)


def _fit_samples(learner: Any, S: Array, y: object, known: Array) -> Any:
    """The same from samples (they need not look like the component: spins).

    known : covariates (n, k), centred, that the samples are free of already; the outcome is not.
    """
    model = clone(learner)
    if getattr(model, "shared", False):
        model.set_params(shared=False)  # a simple method has one part only
    if y is None:
        return model.fit_component(Component.of_samples(S, order=model.reads))
    if hasattr(model, "fit_clean"):
        return model.fit_clean(S, y, covariates=known) if known.shape[1] else model.fit_clean(S, y)
    target = _residual(as_matrix(y, column=True), known)[:, 0]
    cross = (S - S.mean(axis=0)).T @ (target - target.mean()) / len(target)
    names = tuple(f"x{i}" for i in range(S.shape[1]))
    component = Component(
        "samples", names, S.mean(axis=0), np.atleast_2d(np.cov(S.T, bias=True))
    )  # all a regression reads
    return model.fit_component(component, cross, mean=float(target.mean()), variance=float(target.var()))


def _residual(values: Array, on: Array) -> Array:
    """Values (n, d) without their regression on centred columns (n, k); means stay."""
    if on.shape[1] and len(on) <= on.shape[1] + 1:
        raise DataError(
            f"{len(on)} samples are too few for a regression on {on.shape[1]} columns (of the other view, or covariates): it "
            "leaves nothing. Use fewer columns"
        )
    mean = values.mean(axis=0)
    return mean + _without(values - mean, _basis(on)) if on.shape[1] else values


def true(learner: Any, S: object, y: object = None) -> Any:
    """The learner on samples S (n, d) of the component itself: the gold standard, in simulations only.

    >>> import richcomponents as rc
    >>> data = rc.datasets.make_contrastive(1000, d=4, S2="skewed", random_state=0)
    >>> learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4))
    >>> for method in (naive, covariates, cca, kernel_cca):
    ...     error = method(learner, data.X, data.y).coef_ - true(learner, data.S1, data.y).coef_
    ...     print(method.__name__, f"{np.mean(error**2):.2f}")
    naive 0.07
    covariates 0.02
    cca 0.07
    kernel_cca 0.10
    """
    if y is None and hasattr(learner, "fit_clean"):
        return clone(learner).fit_clean(as_matrix(S))
    return _fit_samples(learner, as_matrix(S), y, np.empty((len(as_matrix(S)), 0)))


def naive(learner: Any, X: object, y: object = None) -> Any:
    """The learner on the component's view as it is (U), as if it held nothing else.

    >>> import richcomponents as rc
    >>> data = rc.datasets.make_contrastive(1000, d=4, S2="skewed", random_state=0)
    >>> naive(rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)), data.X, data.y).coef_.shape
    (4,)
    """
    return _fitted(learner, X, y, lambda own, partners, outside: own)


def covariates(learner: Any, X: object, y: object = None) -> Any:
    """The learner on the residual of the component's view on the views where it does not live (of U on V); for a regression
    this is V as covariates.

    >>> import richcomponents as rc
    >>> data = rc.datasets.make_contrastive(1000, d=4, S2="skewed", random_state=0)
    >>> covariates(rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)), data.X, data.y).coef_.shape
    (4,)
    """
    return _fitted(learner, X, y, lambda own, partners, outside: _residual(own, _elsewhere(outside)))


def instrumental(learner: Any, X: object, y: object = None) -> Any:
    """The learner on what other views, where the component lives too, predict of its view (of U from V, for S2): for a
    regression these views are instruments. First all of them lose what the views where it does not live predict.

    >>> import richcomponents as rc
    >>> data = rc.datasets.make_contrastive(1000, d=4, S2="skewed", random_state=0)
    >>> learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4), component="S2")
    >>> instrumental(learner, data.X, data.S2[:, 0]).coef_.shape
    (4,)
    """

    def predicted(own: Array, partners: Array, outside: Array) -> Array:
        if not partners.shape[1]:
            raise DataError(
                f"component {learner.component!r} lives in one view only, and no other predicts it: use covariates, which "
                "removes what others predict of its view"
            )
        every, d = np.hstack([own, partners, outside]), own.shape[1]
        z = every - every.mean(axis=0)
        first, others, rest = np.split(np.arange(every.shape[1]), [d, d + partners.shape[1]])
        return np.asarray(own.mean(axis=0) + z @ simple_map(z.T @ z / len(z), first, others, rest, d, len(z)))

    return _fitted(learner, X, y, predicted)


def cca(learner: Any, X: object, y: object = None, *, n_variates: int = 1) -> Any:
    """The learner on U with its first canonical variates projected out (the paper's comparison).

    >>> import richcomponents as rc
    >>> data = rc.datasets.make_contrastive(1000, d=4, S2="skewed", random_state=0)
    >>> cca(rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)), data.X, data.y, n_variates=2).coef_.shape
    (4,)
    """

    def projected(own: Array, partners: Array, outside: Array) -> Array:
        u = own - own.mean(axis=0)
        q = np.linalg.qr(_canonical_directions(u, _elsewhere(outside), n_variates))[0]
        return np.asarray(own - u @ q @ q.T)

    return _fitted(learner, X, y, projected)


def kernel_cca(
    learner: Any, X: object, y: object = None, *, n_variates: int = 1, rank: int = 50, ridge: float = 1e-2
) -> Any:
    """The learner on U after regressing out its first kernel canonical variates (Gaussian kernels, low-rank).

    Gaussian kernels with the median distance as width, `rank` random Fourier features per view, regularised by `ridge`.

    >>> import richcomponents as rc
    >>> data = rc.datasets.make_contrastive(1000, d=4, S2="skewed", random_state=0)
    >>> kernel_cca(rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)), data.X, data.y).coef_.shape
    (4,)
    """

    def residual(own: Array, partners: Array, outside: Array) -> Array:
        rng = np.random.default_rng(0)
        fu, fv = (_fourier_features(view, rank, rng) for view in (own, _elsewhere(outside)))
        return _residual(own, fu @ _canonical_directions(fu, fv, n_variates, ridge))

    return _fitted(learner, X, y, residual)


def _canonical_directions(u: Array, v: Array, k: int, ridge: float = 0.0) -> Array:
    """(d_u, k), of centred columns u (n, d_u) and v (n, d_v)."""
    n, more_u, more_v = len(u), ridge * np.eye(u.shape[1]), ridge * np.eye(v.shape[1])
    return canonical(u.T @ u / n + more_u, u.T @ v / n, v.T @ v / n + more_v, n).x_from_u[:k].T


def _fourier_features(view: Array, rank: int, rng: np.random.Generator) -> Array:
    """cos(w'x + b), centred; w ~ N(0, I / median distance^2)."""
    z = (view - view.mean(axis=0)) / np.maximum(view.std(axis=0), np.finfo(float).tiny)
    some = z[rng.choice(len(z), min(len(z), 200), replace=False)]
    w, b = rng.normal(size=(z.shape[1], rank)) / max(np.median(pdist(some)), 1e-12), rng.uniform(0, 2 * np.pi, rank)
    features = np.sqrt(2 / rank) * np.cos(z @ w + b)
    return np.asarray(features - features.mean(axis=0))


# ---- effects of an exposure


def unadjusted(X: object, y: object, rca: Any) -> Estimate:
    """Effects of y on the columns of U, as if nothing were hidden: least squares of U on (1, covariates, y).

    Parameters
    ----------
    X : table (n, p); y : exposures (n,) or (n, q), numbers.
    rca : unfitted ContrastiveRCA
        Its `views=` and `covariates=` say which columns are U (the first view), V (the controls) and known covariates.

    Returns
    -------
    Estimate
        Of one exposure: value (d_u,), named by the columns of U. Of several, each adjusted for the others: value (q, d_u).
        Standard errors are those of least squares, which leave out any bias; `degrees` are those of the residuals.

    Examples
    --------
    >>> from richcomponents import ContrastiveRCA
    >>> from richcomponents.datasets import make_confounded
    >>> data = make_confounded(1000, random_state=3)
    >>> unadjusted(data.X, data.y, ContrastiveRCA(views=data.views)).value.shape
    (6,)
    """
    parts = _exposed(X, y, rca)
    return _effects(parts, parts.V[:, :0])


def ancova(X: object, y: object, rca: Any) -> Estimate:
    """Effects of y on the columns of U with the controls as covariates: least squares of U on (1, covariates, y, V).

    Where the controls are noisy a bias remains that no number of samples removes. Inputs and output: :func:`unadjusted`.

    >>> from richcomponents import ContrastiveRCA
    >>> from richcomponents.datasets import make_confounded
    >>> data = make_confounded(1000, random_state=3)
    >>> rca = ContrastiveRCA(views=data.views)
    >>> for method in (unadjusted, ancova, ruv2, ruv4):
    ...     error = method(data.X, data.y, rca).value - data.effects
    ...     print(method.__name__, f"{np.mean(error**2):.4f}")
    unadjusted 0.1789
    ancova 0.0017
    ruv2 0.0191
    ruv4 0.0016
    """
    parts = _exposed(X, y, rca)
    n, used = len(parts.y), parts.used + parts.y.shape[1] + parts.V.shape[1]
    if n <= used:
        raise DataError(
            f"{n} samples are too few for {used} coefficients (intercept, covariates, exposures and "
            f"{parts.V.shape[1]} controls): use fewer controls, or ruv2, which keeps their leading factors only"
        )
    return _effects(parts, parts.V)


def ruv2(X: object, y: object, rca: Any, k: int | None = None) -> Estimate:
    """Effects of y given the leading factors of the controls (RUV-2; Gagnon-Bartsch and Speed 2012).

    Least squares of U on (1, covariates, y, W), where W (n, k) are the first k left singular vectors of V without
    intercept and covariates. As published, columns are taken as they are: controls in different units should be standardised.

    k : number of factors. None: how many eigenvalues of the correlations of V (without intercept and covariates) exceed the
    95% quantile of the largest one of independent columns (Tracy and Widom; Johnstone 2001), at least 1.
    Other inputs and output: :func:`unadjusted`.

    >>> from richcomponents import ContrastiveRCA
    >>> from richcomponents.datasets import make_confounded
    >>> data = make_confounded(1000, random_state=3)
    >>> ruv2(data.X, data.y, ContrastiveRCA(views=data.views), k=2).value.shape
    (6,)
    """
    parts = _exposed(X, y, rca)
    return _effects(parts, _factors(parts, parts.V, parts.used, k))


def ruv4(X: object, y: object, rca: Any, k: int | None = None) -> Estimate:
    """Effects of y corrected by what the controls say about factors of all columns (RUV-4; Gagnon-Bartsch, Jacob, Speed 2013).

    With everything free of intercept and covariates, and b = (y'y)^-1 y'(U, V) the unadjusted effects::

        W0    = first k left singular vectors of (U, V) - y b         (n, k)
        alpha = W0'(U, V)                                             (k, d_u + d_v)
        gamma = b_V alpha_V'(alpha_V alpha_V')^-1,  since b_V = gamma alpha_V where y does not change V
        effects = b_U - gamma alpha_U

    which are least squares of U on (1, covariates, y, W), W = W0 + y gamma, and so are their standard errors. Columns are taken
    as they are, in their units. Factors of few columns, or next to strong ones of S1, are inexact, and leave a bias.

    k : number of factors, at most that of the controls. None: as :func:`ruv2`, of the residuals of all columns given y, but at
    most one for every three controls (rounded up), since gamma is a regression over the controls.
    Other inputs and output: :func:`unadjusted`.

    >>> from richcomponents import ContrastiveRCA
    >>> from richcomponents.datasets import make_confounded
    >>> data = make_confounded(1000, random_state=3)
    >>> ruv4(data.X, data.y, ContrastiveRCA(views=data.views), k=2).value.shape
    (6,)
    """
    parts = _exposed(X, y, rca)
    left, used = _without(np.hstack([parts.U, parts.V]), _basis(parts.y)), parts.used + parts.y.shape[1]
    W0 = _factors(parts, left, used, k, most=-(-parts.V.shape[1] // 3))
    gamma = np.linalg.lstsq((W0.T @ parts.V).T, _coefficients(parts.y, parts.V).T, rcond=None)[0].T
    return _effects(parts, W0 + parts.y @ gamma)


@dataclass(frozen=True)
class _Exposed:
    """U (n, d_u), V (n, d_v) and exposures y (n, q) without intercept and covariates, which took `used` degrees of freedom;
    names : of the columns of U; exposures : of y."""

    U: Array
    V: Array
    y: Array
    used: int
    names: tuple[str, ...]
    exposures: tuple[str, ...]


def _exposed(X: object, y: object, rca: Any) -> _Exposed:
    """Tests, controls and exposures, checked, as they are left by intercept and covariates."""
    views, known, columns, values = _read(rca, X, y)
    if len(views) != 2:
        raise DataError("effects of an exposure take two views, tests and controls: ContrastiveRCA(views=...)")
    if not np.isfinite(known).all():
        raise DataError("a covariate holds missing or infinite values: drop those rows or impute them first")
    n = len(known)
    exposures = np.column_stack([check_outcome(column, n) for column in as_matrix(values, column=True).T])
    named = (str(y),) if is_column(y) else column_names(y) or tuple(f"y{i}" for i in range(exposures.shape[1]))
    one = np.full((n, 1), n**-0.5)
    known = np.hstack([one, _basis(_without(known, one))])
    U, V, exposures = (_without(part, known) for part in (*views.values(), exposures))
    _check_apart(exposures, "the covariates")
    return _Exposed(U, V, exposures, known.shape[1], tuple(columns.feature_names[c] for c in columns[0]), named)


def _effects(parts: _Exposed, W: Array) -> Estimate:
    """Coefficients of y in least squares of U on (y, W), by way of what is left of U and y given W (Frisch, Waugh)."""
    W = _basis(W)
    y, U = _without(parts.y, W), _without(parts.U, W)
    n, q = y.shape
    degrees = n - parts.used - W.shape[1] - q
    if degrees < 1:
        raise DataError(
            f"{n} samples are too few: intercept, covariates, {q} exposure(s) and {W.shape[1]} factors leave nothing. Use fewer"
        )
    _check_apart(y, "the controls")
    value = _coefficients(y, U)
    noise = np.sqrt(np.sum((U - y @ value) ** 2, axis=0) / degrees)
    error = np.outer(np.linalg.norm(np.linalg.inv(np.linalg.qr(y, mode="r")), axis=1), noise)
    if q == 1:
        return Estimate(value[0], error[0], degrees, parts.names)
    return Estimate(value, error, degrees, parts.exposures, parts.names)


def _check_apart(y: Array, others: str) -> None:
    """Refuses exposures (n, q) of which less than q directions are left, given others."""
    if _basis(y).shape[1] < y.shape[1]:
        raise DataError(
            f"an exposure is a linear function of {others} or of the other exposures: its effect cannot be told from theirs. "
            "Leave one of them out"
        )


def _coefficients(y: Array, U: Array) -> Array:
    """Least squares (q, d) of U (n, d) on independent columns y (n, q), whatever their units."""
    left, right = np.linalg.qr(y)
    return np.linalg.solve(right, left.T @ U)


def _without(values: Array, basis: Array) -> Array:
    """Columns (n, d) minus their projection on an orthonormal basis (n, r); exactly zero where only rounding is left."""
    left = values - basis @ (basis.T @ values)
    left[:, np.linalg.norm(left, axis=0) <= 1e-13 * np.linalg.norm(values, axis=0)] = 0.0
    return np.asarray(left)


def _basis(columns: Array) -> Array:
    """Orthonormal basis (n, r) of what columns (n, k) span, whatever their units."""
    size = np.linalg.norm(columns, axis=0)
    left, spread, _ = np.linalg.svd(columns[:, size > 0] / size[size > 0], full_matrices=False)
    return np.asarray(left[:, spread > 1e-10 * spread.max(initial=0.0)])


def _factors(parts: _Exposed, values: Array, used: int, k: object, most: float = np.inf) -> Array:
    """The first k left singular vectors of values (n, p), fewer where they span less; nothing p x p. most : without a k."""
    n, d = parts.V.shape
    largest = min(d, n - parts.used - parts.y.shape[1] - 1)
    if k is not None and (not isinstance(k, Integral) or isinstance(k, bool) or not 1 <= int(k) <= largest):
        raise DataError(
            f"k must be a whole number of factors, and {d} controls of {n} samples allow 1 to {largest}, got {k!r}"
        )
    if not parts.V.any():
        raise DataError("no control varies once the covariates are taken out: there are no factors to find")
    first = int(min(most, _n_factors(values, used))) if k is None else int(k)
    left, spread, _ = np.linalg.svd(np.asarray(np.linalg.qr(values.T, mode="r")).T, full_matrices=False)
    return np.asarray(left[:, :first][:, spread[:first] > 1e-7 * spread[0]])


def _n_factors(values: Array, used: int) -> int:
    """How many eigenvalues of the correlations of values (n, p) are too large for independent columns; at least 1.

    The largest eigenvalue of Z'Z, Z (m, p) independent N(0, 1), is mu + sigma Tracy-Widom (Johnstone 2001, Theorem 1.1):
    mu = (sqrt(m - 1) + sqrt(p))^2, sigma = (sqrt(m - 1) + sqrt(p)) (1 / sqrt(m - 1) + 1 / sqrt(p))^(1/3); m = n - used.
    The 95% quantile of Tracy-Widom is .9793 for real numbers.
    """
    size = np.linalg.norm(values, axis=0)
    Z = values[:, size > 0] / size[size > 0]
    n, p = Z.shape
    m = n - used
    if m < 2 or p < 2:
        return 1
    a, b = np.sqrt(m - 1), np.sqrt(p)
    edge = (a + b) ** 2 + 0.9793 * (a + b) * (1 / a + 1 / b) ** (1 / 3)
    eigenvalues = m * np.linalg.eigvalsh(Z.T @ Z if p <= n else Z @ Z.T)
    return max(1, int(np.sum(eigenvalues > edge)))
