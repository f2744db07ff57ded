"""Hidden classes: labs, batches, machines. A shared part that takes a few values only.

For these no T is the right tool: even with T known, the classes are removed with all the noise of V. Decoded from both views
they are removed as known covariates are, with hardly any. In the r leading canonical coordinates z = (x, y) of U and V

    p(z) = sum_k pi_k N(z; c_k, Phi):

classes common to both views, and inside them one covariance: the own parts of both views, and a linear link between them
(whatever else is shared). Own parts that are skewed or clustered take several of these normals, which are then made one class,
because four things are asked before classes are believed. A mixture fits anything:

* VALLEYS. A shared part that is unimodal, plus noise, is unimodal along every line (for strongly unimodal noise; Ibragimov
  1956), however well a few classes approximate it: a uniform factor looks like three of them to any likelihood. Between
  the centres of every two classes, along the direction that tells them apart, the middle third must hold fewer rows than
  either outer third. Under unimodality it holds at least as many as the smaller one: c rows in the middle against s have the
  binomial tail exp(-(c + s) KL(c / (c + s), 1/2)): that many nats of evidence.
* EVIDENCE. BIC against one class: x = C y + own or y = C x + own, with clusters, tails or skew (up to three normals) in what is
  own. Clusters of what is linked would be in both views: those are classes.
* SHARED. Clusters that one view has for itself are its own: inside the classes x and y must tell less of each other,
  log(|Cov x| |Cov y| / |Cov z|) / 2 nats a row, than they do without them.
* CERTAINTY. Rows are sure of their class: the mean over rows of the largest probability.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp, rel_entr

from richcomponents.algebra import Array, IntArray
from richcomponents.algebra.arrays import power
from richcomponents.moments import Moments, partial_out
from richcomponents.moments.data import Partial
from richcomponents.storage import storable

MOST_DIRECTIONS = 8  # shared: more of them are no few classes
NATS = 5.0  # for a valley between every two classes, and twice as many over any one class
CERTAINTY = 0.85
EXPLAINED = 0.2  # of what x and y tell of each other


@storable
@dataclass(frozen=True)
class Mixture:
    """sum_k share_k N(centre_k, spread): share (K,), centre (K, m), spread (m, m)."""

    share: Array
    centre: Array
    spread: Array

    def __len__(self) -> int:
        return len(self.share)

    @classmethod
    def of(cls, z: Array, weight: Array, given: Array) -> Mixture:
        """The most likely one, if rows z (n, m) are of the classes with the probabilities given (K, n) and count weight (n,)
        times; one row more in each class, and a spread above zero."""
        given = given * weight
        rows = given.sum(axis=1)
        centre = given @ z / np.maximum(rows, 1e-9)[:, None]
        within = (z.T * given.sum(axis=0)) @ z - (centre.T * rows) @ centre
        return cls((rows + 1) / (rows + 1).sum(), centre, within / rows.sum() + 1e-6 * np.eye(z.shape[1]))

    def log_joint(self, z: Array) -> Array:
        """log share_k N(z; centre_k, spread) of rows z (n, m): (K, n)."""
        root = np.linalg.cholesky(self.spread)
        points, at = (solve_triangular(root, one.T, lower=True) for one in (z, self.centre))
        square = np.sum(points**2, axis=0) - 2 * at.T @ points + np.sum(at**2, axis=0)[:, None]
        level = np.log(self.share) - np.log(np.diag(root)).sum() - 0.5 * z.shape[1] * np.log(2 * np.pi)
        return np.asarray(level[:, None] - 0.5 * square)

    def probabilities(self, z: Array) -> Array:
        """Of the classes, for each row, (n, K)."""
        joint = self.log_joint(z)
        return np.ascontiguousarray(np.exp(joint - logsumexp(joint, axis=0)).T)


def climb(z: Array, weight: Array, label: IntArray, steps: int = 400, least: float = 1e-7) -> tuple[Mixture, float]:
    """EM from first labels (n,) until the log-likelihood gains less than `least` nats: the mixture and its BIC, in nats."""
    K, m = int(label.max()) + 1, z.shape[1]
    given, before = 0.95 * np.eye(K)[label].T + 0.05 / K, -np.inf
    for _ in range(steps):
        mixture = Mixture.of(z, weight, given)
        joint = mixture.log_joint(z)
        total = logsumexp(joint, axis=0)
        value = float(weight @ total)
        if value - before < least:
            break
        given, before = np.exp(joint - total), value
    return mixture, value - 0.5 * (K - 1 + K * m + m * (m + 1) / 2) * np.log(weight.sum())


def k_means(points: Array, weight: Array, K: int, seed: int | None, starts: int = 4) -> IntArray:
    """Labels (n,) from 0 on, none of them empty, of at most K clusters."""
    from sklearn.cluster import KMeans

    K = min(K, len(np.unique(points, axis=0)))
    label = KMeans(K, n_init=starts, random_state=seed).fit(points, sample_weight=weight).labels_
    return np.unique(label, return_inverse=True)[1].ravel()


# ---- what speaks for classes


def valleys(z: Array, weight: Array, label: IntArray) -> Array:
    """Evidence (nats) for a valley between every two classes, (K, K), infinite on the diagonal; label (n,) : of each row."""
    fitted = Mixture.of(z, weight, np.eye(int(label.max()) + 1)[label].T)
    mean, nats = fitted.centre, np.full((len(fitted), len(fitted)), np.inf)
    for k in range(len(mean)):
        for j in range(k):
            along, both = np.linalg.solve(fitted.spread, mean[k] - mean[j]), (label == k) | (label == j)
            place = (z[both] - mean[j]) @ along / max(float((mean[k] - mean[j]) @ along), 1e-300)
            low, middle, high = np.histogram(place, [0, 1 / 3, 2 / 3, 1], weights=weight[both])[0]
            few, many = float(middle), float(min(low, high))
            half = (few + many) / 2
            nats[k, j] = nats[j, k] = rel_entr(few, half) + rel_entr(many, half) if few < many else 0.0
    return nats


def merged(z: Array, weight: Array, label: IntArray) -> IntArray:
    """Labels of classes of which those without a valley between them were made one, the least separate first."""
    while label.any():
        label = np.unique(label, return_inverse=True)[1].ravel()
        nats = valleys(z, weight, label)
        k, j = np.unravel_index(np.argmin(nats), nats.shape)
        if nats[k, j] > NATS:
            break
        label = np.where(label == max(k, j), min(k, j), label)
    return label


def shared_nats(covariance: Array) -> float:
    """Nats a row that both halves of the columns tell of each other, if they are normal."""
    r = len(covariance) // 2
    x, y, both = (np.linalg.slogdet(one)[1] for one in (covariance[:r, :r], covariance[r:, r:], covariance))
    return float(x + y - both) / 2


def one_class(z: Array, weight: Array, seed: int | None) -> float:
    """The best BIC of one class, linked linearly in either direction, with up to three normals in what one view has alone."""

    def linked(x: Array, y: Array) -> float:
        root, link = np.sqrt(weight)[:, None], 0.5 * x.shape[1] * y.shape[1] * np.log(weight.sum())
        own = x - y @ np.linalg.lstsq(y * root, x * root, rcond=None)[0]
        best = max(climb(own, weight, k_means(own, weight, J, seed), least=0.1)[1] for J in (1, 2, 3))
        return float(climb(y, weight, np.zeros(len(y), dtype=int))[1] + best - link)

    x, y = np.hsplit(z, 2)
    return max(linked(x, y), linked(y, x))


def find_classes(
    z: Array, correlations: Array, weight: Array, wanted: object, seed: int | None
) -> tuple[Mixture, float, float, float] | None:
    """Classes in canonical coordinates z = (x, y) (n, 2r), the largest first, and what speaks for them: how sure rows are, nats
    over one class, and for the least valley; None where there are none.

    correlations : (r,), Cov(x, y); weight : (n,), how often rows count, adding up to the number of independent rows; wanted :
    "auto", or the number of classes, which is then not questioned.
    """
    r, auto = len(correlations), wanted == "auto"
    x, y = np.hsplit(z, 2)
    shared = (x + y) * np.sqrt(correlations / (1 + correlations))  # the more, the more it is seen above its noise

    def start(K: int) -> IntArray:
        many = climb(z, weight, k_means(shared, weight, K, seed), 20, 0.1)[0]
        return merged(z, weight, many.log_joint(z).argmax(axis=0))

    if auto:
        starts = [label for label in map(start, range(r + 1, r + 4)) if label.any()]
    else:
        starts = [k_means(place, weight, int(str(wanted)), seed) for place in (shared, z)]
    if not starts:
        return None
    model, bic = max((climb(z, weight, label) for label in starts), key=lambda one: one[1])
    given = model.probabilities(z)
    certainty, evidence = float(weight @ given.max(axis=1) / weight.sum()), bic - one_class(z, weight, seed)
    valley = float(valleys(z, weight, given.argmax(axis=1)).min())
    left = shared_nats(model.spread) / shared_nats(Mixture.of(z, weight, np.ones((1, len(z)))).spread)
    if auto and (valley < NATS or evidence < 2 * NATS or certainty < CERTAINTY or left > 1 - EXPLAINED):
        return None
    order = np.argsort(-model.share, kind="stable")
    return Mixture(model.share[order], model.centre[order], model.spread), certainty, evidence, valley


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

    model: Mixture
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
        views = rows if self.partial is None else self.partial.residuals(rows, self.stretch)
        return self.model.probabilities((views - self.centre) @ self.lead)

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
