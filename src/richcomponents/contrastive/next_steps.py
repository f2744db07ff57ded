"""What to do next, in numbers: how many samples, how many controls.

SAMPLES. Evidence for the split is the energy of cross-cumulants above that of residualising, a square: held-out `gain` grows
in proportion to n. `strength`, in standard errors under random signs of the blocks, grows as n where there is little of it
(the noise stays) and as the square root of n where there is more (then noise is that of the evidence itself). The verdict is
"strong" from STRONG_EVIDENCE and STRONG_GAIN on; n times the larger of (STRONG_EVIDENCE / strength)^2 and STRONG_GAIN / gain is
what it takes. Where evidence does not stand above its noise, the least n is that of the most that the noise allows: two
standard errors more, and in proportion to n. Measured (benchmarks/next_steps.py, 20 draws of 11 designs): of 64 weak fits,
fresh draws with as many samples as these asked for were strong in 41.

CONTROLS. In a shared direction V measures S2 with reliability rho = D^2 / S, S = Var(S2) in canonical units; residualising
leaves the share 1 - rho of the shared part in U. f times as many controls, each as good as these, have f times the odds
rho / (1 - rho) (Spearman and Brown). S <= 1 is all that second moments say, so rho >= D^2, and `controls_needed` takes that
end: the share that is left is at most the one it starts from.

SEEN. Bartlett's statistic of one correlation c, -(n - 1 - (d_u + d_v + 1)/2) log(1 - c^2), against its critical value: the
smallest c that the test of any shared direction finds.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2

from richcomponents.algebra import Array
from richcomponents.contrastive.posterior import STRONG_EVIDENCE, STRONG_GAIN

_NOISE = 2.0  # standard errors by which evidence may be larger than it looks
_LEVEL = 0.01  # of the test of the rank


def samples_for_strong(n: float, strength: float, gain: float) -> float:
    """How many samples like these would give the verdict "strong"; inf where evidence is not above zero.

    >>> samples_for_strong(1000, 2.25, 10), samples_for_strong(1000, 9.0, 40.0)
    (4000.0, 1000.0)
    """
    if strength <= 0 or gain <= 0:
        return math.inf
    return n * max((STRONG_EVIDENCE / strength) ** 2, STRONG_GAIN / gain, 1.0)


def fewest_for_strong(n: float, strength: float) -> float:
    """The same at best: if the evidence is as large as its noise allows."""
    return n * max(STRONG_EVIDENCE / (max(strength, 0.0) + _NOISE), 1.0)


def controls_needed(correlations: Array, d_v: int, share: float = 0.5) -> float:
    """How many more controls, each as good as the d_v at hand, leave `share` of what residualising leaves of the shared part;
    correlations : canonical ones of the shared directions (r,).

    >>> round(controls_needed(np.array([0.5**0.5]), 10), 6)  # reliability 1/2 to 3/4: three times the odds
    20.0
    """
    squares = np.clip(np.asarray(correlations, dtype=np.float64) ** 2, 1e-6, 1 - 1e-6)
    odds = squares / (1 - squares)
    wanted = share * float(np.sum(1 - squares))
    times = brentq(lambda log_f: float(np.sum(1 / (1 + math.exp(log_f) * odds))) - wanted, 0.0, 30.0)
    return (math.exp(times) - 1) * d_v


def smallest_seen(n: float, d_u: int, d_v: int) -> float:
    """The smallest canonical correlation that the test of "nothing is shared" finds with n independent samples; 1 where none.

    >>> round(smallest_seen(1000, 1, 1), 3)
    0.081
    """
    factor = n - 1 - (d_u + d_v + 1) / 2
    if factor <= 0:
        return 1.0
    return math.sqrt(-math.expm1(-float(chi2.isf(_LEVEL, d_u * d_v)) / factor))


def samples_to_see(correlation: float, d_u: int, d_v: int) -> float:
    """How many independent samples show a shared direction of this canonical correlation."""
    return 1 + (d_u + d_v + 1) / 2 - float(chi2.isf(_LEVEL, d_u * d_v)) / math.log1p(-(correlation**2))


def rounded(n: float) -> str:
    """Two digits, rounded up.

    >>> rounded(1234.5), rounded(17), rounded(99.5)
    ('1300', '17', '100')
    """
    unit = 10 ** max(math.floor(math.log10(max(n, 1))) - 1, 0)
    return str(math.ceil(n / unit - 1e-9) * unit)
