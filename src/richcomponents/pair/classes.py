"""Hidden classes: labs, batches, machines. A shared part that takes a few values only.

For these no T is the right tool: even with T known, the classes are removed with all the noise of V. Decoded from both views
they are removed as known covariates are, with hardly any. In the r leading canonical coordinates (x, y) of U and V

    p(x, y) = sum_k pi_k f_y(y - n_k) f_x(x - C y - m_k),      f = sum_j rho_j N(nu_j, tau_j Phi):

classes common to both views, own shapes of each view (J components of one covariance up to their scales: skew, tails, own
clusters), and a linear link C inside the classes (whatever else is shared). Fitted by ECM (Meng and Rubin 1993): every step
maximises over one group of parameters with the others fixed, so that the penalised likelihood never falls.

Three things are asked before classes are believed, because a mixture fits anything:

* VALLEYS. A shared part that is unimodal, plus noise, is unimodal along every line (for strongly unimodal noise; Ibragimov
  1956), however well a few classes approximate it: a uniform factor looks like three of them to any likelihood. Between
  the centres of every two classes, along the direction that tells them apart, the middle third must hold fewer rows than
  either outer third. Under unimodality it holds at least as many as the smaller one: c rows in the middle against s have the
  binomial tail exp(-(c + s) KL(c / (c + s), 1/2)): that many nats of evidence.
* EVIDENCE. BIC against one class with a linear link in either direction and own shapes of up to three components.
* SHARED. Clusters that one view has for itself are its own: given the classes, x and y must be less correlated.

How sure rows are of their class, `certainty`, is the mean over rows of the largest probability.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from richcomponents.algebra import Array
from richcomponents.algebra.spectral import power, whitening
from richcomponents.moments import Moments, partial_out
from richcomponents.moments.data import Inflated, Partial
from richcomponents.storage import storable

MOST_DIRECTIONS = 6  # in which classes are looked for
MOST_SHARED = 8  # shared directions: more of them are no few classes
BEYOND = 3  # classes more than directions
VALLEY = 5.0  # nats, between every two classes
EVIDENCE = 10.0  # nats, over any one class
CERTAINTY = 0.85
EXPLAINED = 0.2  # of what x and y tell of each other

_SCALES = 0.1, 10.0  # of the components of an own shape
_PRIOR = 2.0  # rows that a covariance is known to before the data


@storable
@dataclass(frozen=True)
class Shape:
    """The own density of a view about the centre of a class: sum_j share_j N(offset_j, scale_j spread).

    share, scale (J,); offset (J, r), zero where J = 1; spread (r, r), with `prior` (r, r) worth _PRIOR rows of it.
    """

    share: Array
    offset: Array
    scale: Array
    spread: Array
    prior: Array

    def log_density(self, points: Array, centres: Array) -> Array:
        """Of points (r, n) for each centre (K, r) and component: (K, J, n)."""
        r, n = points.shape
        root = np.linalg.cholesky(self.spread)
        whiten = np.linalg.inv(root)
        z, at = whiten @ points, whiten @ (centres[:, None] + self.offset).reshape(-1, r).T  # (r, n), (r, K J)
        square = np.sum(z * z, axis=0) - 2 * at.T @ z + np.sum(at * at, axis=0)[:, None]
        level = np.log(self.share) - np.log(np.diag(root)).sum() - 0.5 * r * np.log(2 * np.pi * self.scale)
        return np.asarray(level[:, None] - 0.5 * square.reshape(len(centres), -1, n) / self.scale[:, None])

    def log_prior(self) -> float:
        """Of shares (one row for each component) and of the spread (inverse Wishart)."""
        pull = float(np.linalg.slogdet(self.spread)[1] + np.sum(np.linalg.inv(self.spread) * self.prior))
        return float(np.log(self.share).sum()) - 0.5 * _PRIOR * pull

    def updated(self, points: Array, centres: Array, given: Array) -> Shape:
        """Offsets, then scales, then the spread, each at its maximum; given (K, J, n) : responsibilities."""
        (r, n), (K, J) = points.shape, given.shape[:2]
        count = given.sum(axis=2)  # (K, J)
        first = (given.reshape(K * J, n) @ points.T).reshape(K, J, r)
        rows, offset, scale = np.maximum(count.sum(axis=0), 1e-9), self.offset, self.scale
        if J > 1:
            offset = (first - count[..., None] * centres[:, None]).sum(axis=0) / rows[:, None]
        at = centres[:, None] + offset
        square = np.stack([(points * own) @ points.T for own in given.sum(axis=0)])
        cross = np.einsum("kjp,kjq->jpq", first, at)
        square += np.einsum("kj,kjp,kjq->jpq", count, at, at) - cross - np.swapaxes(cross, 1, 2)
        if J > 1:
            scale = np.clip(np.einsum("pq,jpq->j", np.linalg.inv(self.spread), square) / (r * rows), *_SCALES)
        total = rows.sum()
        spread = (np.einsum("jpq,j->pq", square, 1 / scale) + _PRIOR * self.prior) / (total + _PRIOR)
        return replace(self, share=(rows + 1) / (total + J), offset=offset, scale=scale, spread=spread)


@storable
@dataclass(frozen=True)
class ClassModel:
    """share (K,), pi; link (r, s), C; at_x (K, r), m, and at_y (K, s), n; of_x, of_y : own shapes.

    Rows come last in what is computed for every row, class and component: sums over a few classes are then sums of long arrays.
    """

    share: Array
    link: Array
    at_x: Array
    at_y: Array
    of_x: Shape
    of_y: Shape

    def __len__(self) -> int:
        return len(self.share)

    def _joint(self, x: Array, y: Array) -> tuple[Array, list[Array], list[Array]]:
        """log pi_k f_x f_y (K, n), and its components by view, (K, J, n) each, with their sums (K, n)."""
        parts = [self.of_x.log_density(x - self.link @ y, self.at_x), self.of_y.log_density(y, self.at_y)]
        sums = [_log_sum(one, 1) for one in parts]
        return np.log(self.share)[:, None] + sums[0] + sums[1], parts, sums

    def probabilities(self, x: Array, y: Array) -> Array:
        """Of the classes, for each row, (n, K); x, y : (n, r)."""
        joint = self._joint(x.T, y.T)[0]
        return np.ascontiguousarray(np.exp(joint - _log_sum(joint, 0)).T)

    @property
    def parameters(self) -> int:
        (r, s), K, J = self.link.shape, len(self), len(self.of_x.share)
        shapes = r * (r + 1) // 2 + s * (s + 1) // 2 + (J - 1) * (r + s + 4)
        return int(K - 1 + K * (r + s) + r * s + shapes)

    def log_prior(self) -> float:
        return float(np.log(self.share).sum()) + self.of_x.log_prior() + self.of_y.log_prior()

    def step(self, x: Array, y: Array, weight: Array) -> tuple[ClassModel, float]:
        """One ECM step, and the log-likelihood before it. x, y (r, n); weight (n,) : how often rows count."""
        joint, parts, sums = self._joint(x, y)
        total = _log_sum(joint, 0)
        given = np.exp(joint - total) * weight
        given_x, given_y = (given[:, None] * np.exp(a - b[:, None]) for a, b in zip(parts, sums, strict=True))
        # m and C together: weighted least squares of x - nu_j on y and the classes, weights over tau_j
        by, offset = given_x / self.of_x.scale[:, None], self.of_x.offset
        counted = by.sum(axis=1)
        rows, own = np.maximum(counted.sum(axis=1), 1e-9), counted.sum(axis=0)
        mean_x, mean_y = (counted @ x.T - by.sum(axis=2) @ offset) / rows[:, None], counted @ y.T / rows[:, None]
        square = (y * own) @ y.T - (mean_y.T * rows) @ mean_y
        cross = (x * own - offset.T @ by.sum(axis=0)) @ y.T - (mean_x.T * rows) @ mean_y
        link = np.linalg.solve(square + 1e-9 * (np.trace(square) + weight.sum()) * np.eye(len(square)), cross.T).T
        at_x = mean_x - mean_y @ link.T
        by = given_y / self.of_y.scale[:, None]
        rows = np.maximum(by.sum(axis=(1, 2)), 1e-9)
        at_y = (by.sum(axis=1) @ y.T - by.sum(axis=2) @ self.of_y.offset) / rows[:, None]
        of_x, of_y = self.of_x.updated(x - link @ y, at_x, given_x), self.of_y.updated(y, at_y, given_y)
        share = (given.sum(axis=1) + 1) / (weight.sum() + len(self))
        return ClassModel(share, link, at_x, at_y, of_x, of_y), float(weight @ total)

    def by_size(self) -> ClassModel:
        """The same with the largest class first."""
        order = np.argsort(-self.share, kind="stable")
        return replace(self, share=self.share[order], at_x=self.at_x[order], at_y=self.at_y[order])


def _log_sum(values: Array, axis: int) -> Array:
    """log sum exp over an axis."""
    top = values.max(axis=axis)
    return np.asarray(top + np.log(np.exp(values - np.expand_dims(top, axis)).sum(axis=axis)))


def start(x: Array, y: Array, weight: Array, given: Array, J: int, rng: np.random.Generator) -> ClassModel:
    """A model from a first guess (n, K) of the classes; its own shapes have J components at random places."""
    given = given * weight[:, None]
    n, rows = weight.sum(), given.sum(axis=0) + 1e-9
    mean_x, mean_y = given.T @ x / rows[:, None], given.T @ y / rows[:, None]
    square = (y * weight[:, None]).T @ y - (mean_y.T * rows) @ mean_y
    cross = (x * weight[:, None]).T @ y - (mean_x.T * rows) @ mean_y
    link = np.linalg.solve(square + 1e-3 * n * np.eye(len(square)), cross.T).T
    at_x = mean_x - mean_y @ link.T

    def shape(points: Array, at: Array) -> Shape:
        within = ((points * weight[:, None]).T @ points - (at.T * rows) @ at) / n
        within += (0.02 * np.trace(within) / len(within) + 1e-6) * np.eye(len(within))
        offset, scale = np.zeros((J, len(within))), np.ones(J)
        if J > 1:
            offset = 0.4 * rng.normal(size=offset.shape) * np.sqrt(np.diag(within))
            scale = np.geomspace(0.5, 2.0, J)
        return Shape(np.full(J, 1 / J), offset, scale, within, 0.1 * within)

    return ClassModel(rows / rows.sum(), link, at_x, mean_y, shape(x - y @ link.T, at_x), shape(y, mean_y))


def climb(model: ClassModel, x: Array, y: Array, weight: Array, steps: int, least: float) -> tuple[ClassModel, float]:
    """Steps until the log-likelihood gains less than `least` nats; the model and its log-likelihood."""
    before, of_x, of_y = -np.inf, np.ascontiguousarray(x.T), np.ascontiguousarray(y.T)
    for _ in range(steps):
        following, value = model.step(of_x, of_y, weight)
        if abs(value - before) < least:
            break
        model, before = following, value
    return model, value


def _guess(points: Array, weight: Array, K: int, rng: np.random.Generator) -> Array:
    """Classes (n, K) by k-means from spread out points (Arthur and Vassilvitskii 2007)."""
    centres = points[rng.choice(len(points), p=weight / weight.sum())][None]

    def far() -> Array:
        return np.asarray(np.sum(points**2, axis=1)[:, None] - 2 * points @ centres.T + np.sum(centres**2, axis=1))

    while len(centres) < K:
        chance = weight * np.maximum(far().min(axis=1), 1e-12)
        centres = np.vstack([centres, points[rng.choice(len(points), p=chance / chance.sum())]])
    for _ in range(10):
        nearest = np.eye(K)[np.argmin(far(), axis=1)]
        rows = (nearest * weight[:, None]).sum(axis=0)[:, None]
        centres = np.where(rows > 0, (nearest * weight[:, None]).T @ points / np.maximum(rows, 1e-9), centres)
    return _undecided(nearest)


# ---- what speaks for classes


def valleys(x: Array, y: Array, weight: Array, nearest: Array) -> Array:
    """Evidence (nats) for a valley between every two classes, (K, K), infinite on the diagonal; nearest (n, K), of zeros and
    ones : the class of each row."""
    z, counted = np.hstack([x, y]), nearest * weight[:, None]
    rows = np.maximum(counted.sum(axis=0), 1e-9)
    mean = counted.T @ z / rows[:, None]
    within = (z * weight[:, None]).T @ z - (mean.T * rows) @ mean
    apart = np.linalg.pinv(within, hermitian=True)
    nats = np.full((len(mean), len(mean)), np.inf)
    of = [np.flatnonzero(one) for one in nearest.T]
    for k in range(len(mean)):
        for j in range(k):
            along, both = apart @ (mean[k] - mean[j]), np.concatenate([of[k], of[j]])
            place = (z[both] - mean[j]) @ along / max(float((mean[k] - mean[j]) @ along), 1e-300)
            low, middle, high = (weight[both[(place > i / 3) & (place <= (i + 1) / 3)]].sum() for i in range(3))
            nats[k, j] = nats[j, k] = _binomial_nats(float(middle), float(min(low, high)))
    return nats


def merged(x: Array, y: Array, weight: Array, given: Array) -> Array:
    """Classes (n, K), zeros and ones, of which those without a valley between them were made one, the least separate first."""
    nearest = np.eye(given.shape[1])[np.argmax(given, axis=1)]
    nearest = nearest[:, nearest.any(axis=0)]
    while nearest.shape[1] > 1:
        nats = valleys(x, y, weight, nearest)
        k, j = sorted(np.unravel_index(np.argmin(nats), nats.shape))
        if nats[k, j] > VALLEY:
            break
        nearest[:, k] += nearest[:, j]
        nearest = np.delete(nearest, j, axis=1)
    return np.asarray(nearest)


def _binomial_nats(few: float, many: float) -> float:
    """-log of Chernoff's bound on so few of few + many where half of them, or more, are expected."""
    n = few + many
    if few >= many:
        return 0.0
    p = few / n
    return float(n * (np.log(2) + (p * np.log(p) if p > 0 else 0.0) + (1 - p) * np.log(1 - p)))


def explained(x: Array, y: Array, weight: Array, given: Array) -> float:
    """Share of what x and y tell of each other (-1/2 sum log(1 - D^2)) that is gone once the classes are partialled out."""

    def told(a: Array, b: Array) -> float:
        of_a, of_b = ((one * weight[:, None]).T @ one / weight.sum() for one in (a, b))
        cross = whitening(of_a)[0] @ ((a * weight[:, None]).T @ b / weight.sum()) @ whitening(of_b)[0].T
        d = np.linalg.svd(cross, compute_uv=False)
        return float(-0.5 * np.log1p(-(np.minimum(d, 1 - 1e-9) ** 2)).sum())

    root = np.sqrt(weight)[:, None]
    Q = np.linalg.qr(np.hstack([np.ones((len(given), 1)), given[:, 1:]]) * root)[0]
    left = [one - (Q @ (Q.T @ (one * root))) / np.maximum(root, 1e-300) for one in (x, y)]
    before = told(x - weight @ x / weight.sum(), y - weight @ y / weight.sum())
    return 1 - told(*left) / max(before, 1e-300)


@dataclass(frozen=True)
class Fitted:
    """A model, its probabilities (n, K), and what speaks for it: BIC, the least valley, both in nats; certainty; what it
    explains."""

    model: ClassModel
    given: Array
    bic: float
    valley: float
    certainty: float
    explained: float

    @property
    def separate(self) -> bool:
        return self.valley > VALLEY and self.certainty > CERTAINTY and self.explained > EXPLAINED


def find_classes(
    x: Array,
    y: Array,
    correlations: Array,
    weight: Array,
    wanted: object,
    seed: int | None,
    *,
    steps: tuple[int, int] = (20, 400),
    starts: int = 2,
) -> tuple[Fitted, float] | None:
    """Classes in canonical coordinates x, y (n, r), and their evidence over one class; None where there are none.

    correlations : (r,), Cov(x, y); weight : (n,), how often rows count, adding up to the number of independent rows; wanted :
    "auto", or the number of classes, which is then not questioned; steps : of a first climb and of a long one;
    starts : from each guess.
    """
    first, long = steps
    rng, n, r = np.random.default_rng(seed), float(weight.sum()), x.shape[1]
    d = np.clip(correlations, 1e-3, 1 - 1e-6)
    places = (x + y) * np.sqrt(d / (2 * (1 + d))), np.hstack([(x - d * y) / np.sqrt(1 - d**2), y])

    def fitted(begin: ClassModel, steps: int, least: float) -> Fitted:
        model, value = climb(begin, x, y, weight, steps, least)
        given = model.probabilities(x, y)
        nearest = np.eye(len(model))[np.argmax(given, axis=1)]
        bic, valley = value - 0.5 * model.parameters * np.log(n), float(valleys(x, y, weight, nearest).min())
        return Fitted(model, given, bic, valley, float(weight @ given.max(axis=1)) / n, explained(x, y, weight, given))

    def quick(guess: Array, J: int = 1) -> Fitted:
        return fitted(start(x, y, weight, guess, J, rng), first, 0.1)

    def many(K: int, place: Array) -> Array:
        begin = start(x, y, weight, _guess(place, weight, K, rng), 1, rng)
        return merged(x, y, weight, climb(begin, x, y, weight, first, 0.1)[0].probabilities(x, y))

    if wanted == "auto":
        parts = [many(r + k, place) for k in range(1, BEYOND + 1) for place in places]
        few = {part.tobytes(): part for part in parts if part.shape[1] > 1}
        guesses = list(few.values())
    else:
        guesses = [_guess(place, weight, int(str(wanted)), rng) for place in places for _ in range(starts)]
    found = sorted(map(quick, map(_undecided, guesses)), key=lambda one: -one.bic)
    found = [one for one in found if one.separate or wanted != "auto"][:2]
    skewed = [quick(_undecided(one.given), 2) for one in found for _ in range(starts)]
    found = [fitted(one.model, long, 1e-2) for one in (*found, *skewed)]
    found = [one for one in found if one.separate or wanted != "auto"]
    if not found:
        return None
    best = fitted(max(found, key=lambda one: one.bic).model, long, 1e-7)
    alone, one_class = -np.inf, np.ones((len(x), 1))
    for J in (1, 2, 3):  # components of own shapes
        for a, b in ((x, y), (y, x)):  # a linear link in either direction
            model, value = climb(start(a, b, weight, one_class, J, rng), a, b, weight, long, 0.1)
            alone = max(alone, value - 0.5 * model.parameters * np.log(n))
    gain = best.bic - alone
    if wanted == "auto" and gain < EVIDENCE:
        return None
    return replace(best, model=best.model.by_size()), gain


def _undecided(given: Array) -> Array:
    """Probabilities that leave a little to every class."""
    return np.asarray(0.95 * given + 0.05 / given.shape[1])


# ---- classes of rows


@storable
@dataclass(frozen=True)
class HiddenClasses:
    """Classes that a fit found, and how rows of its table are assigned to them.

    model : in canonical coordinates; centre (p,), lead (p, 2r) : the way there from the columns of both views; partial,
    stretch : how known covariates were removed before, partial None where there are none. certainty : mean over rows of the
    largest probability; evidence : nats over one class; valley : nats for a valley between the least separate two.
    shares (K,) : of the rows, the largest first.
    """

    model: ClassModel
    centre: Array
    lead: Array
    partial: Partial | None
    stretch: float
    certainty: float
    evidence: float
    valley: float

    def __len__(self) -> int:
        return len(self.model)

    @property
    def shares(self) -> Array:
        return self.model.share

    def probabilities(self, rows: Array) -> Array:
        """Of the classes (n, K), of rows of the columns of both views, then the covariates."""
        views = rows if self.partial is None else Inflated(self.partial, self.stretch)(rows)
        z = (views - self.centre) @ self.lead
        r = z.shape[1] // 2
        return self.model.probabilities(z[:, :r], z[:, r:])

    def __call__(self, rows: Array) -> Array:
        """Rows with the probabilities of all classes but the first behind them: covariates that nobody measured."""
        return np.hstack([rows, self.probabilities(rows)[:, 1:]])

    def words(self) -> str:
        """How many, how large, how sure."""
        shares = ", ".join(f"{share:.0%}" for share in self.shares[:8]) + (" ..." if len(self) > 8 else "")
        return (
            f"{len(self)} ({shares} of the rows), certainty {self.certainty:.1%}, evidence {self.evidence:.0f} nats "
            f"(valleys between them {self.valley:.0f})"
        )


@storable
@dataclass(frozen=True)
class ClassPart:
    """What the classes add to both views: B p, p the probabilities less their mean and what covariates tell of them.

    of_u (d_u, K - 1), of_v (d_v, K - 1) : B; spread (K - 1, K - 1) : Cov(p); on_known (K - 1, q) : of p on covariates.
    moments : of the columns, covariates and probabilities, by block, None of wide tables.
    """

    of_u: Array
    of_v: Array
    spread: Array
    on_known: Array
    moments: Moments | None

    @classmethod
    def of(cls, partial: Partial, d_u: int, classes: int, moments: Moments | None) -> ClassPart:
        """partial : of both views on covariates, then the probabilities of all `classes` but one."""
        k, known = classes - 1, partial.known
        q = len(known) - k
        on_known = known[q:, :q] @ np.linalg.pinv(known[:q, :q], rcond=1e-12, hermitian=True)
        spread = known[q:, q:] - on_known @ known[:q, q:]
        B = np.where(partial.explained[:, None], 0.0, partial.coefficients[:, q:])
        return cls(B[:d_u], B[d_u:], (spread + spread.T) / 2, on_known, moments)

    def without(self, block: int) -> ClassPart:
        """Without one block, the classes of rows as they are."""
        if self.moments is None:
            return self
        moments, (d_u, k) = self.moments.without([block]), self.of_u.shape
        known = range(d_u + len(self.of_v), moments.layout.n_columns)
        return ClassPart.of(partial_out(moments, known), d_u, k + 1, moments)

    @property
    def rank(self) -> int:
        """Directions in which the classes differ in U."""
        return int(min(self.of_u.shape))

    def in_u(self, known: Array, probabilities: Array) -> Array:
        """B p (n, d_u) of rows; known (n, q), probabilities (n, K - 1) : centred."""
        return np.asarray((probabilities - known @ self.on_known.T) @ self.of_u.T)

    def mixing(self, root: Array, through: Array) -> Array:
        """A (d_v, d_u) of the classes and of another shared part together, whose covariance is root root' (d_u, k) and which
        V sees as through (d_v, k): A maps the columns of one to those of the other, on their span."""
        half = power(self.spread, 0.5, 0.0)
        of_u, of_v = np.hstack([self.of_u @ half, root]), np.hstack([self.of_v @ half, through])
        return np.asarray(of_v @ np.linalg.pinv(of_u, rcond=1e-9))


def thinning(n: int, most: int = 2000) -> int:
    """Every how manieth of n rows classes are fitted to, at most so many; the others are only assigned. No small factors,
    because labs may come in turn."""
    step = -(-n // most)
    while step > 1 and any(step % p == 0 and step != p for p in (2, 3, 5, 7)):
        step += 1
    return step
