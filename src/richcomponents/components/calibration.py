"""What a learner of an outcome gets from a fitted RCA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.components.covariance import Spread
from richcomponents.cumulants.jackknife import jackknife_error

__all__ = ["Calibrated", "error_at_fixed_features"]


@dataclass(frozen=True)
class Calibrated:
    """Coefficients of an outcome on a component, with as much correction as the data support for THIS outcome.

    coef : (d,); residualised : (d,), those of the simple method, None where there is none; trust : in [0, 1], how much of the
    correction was believed; features : (n, d), centred predictions of the component, on which least squares gives coef and
    penalised fits should be made (rescaling penalised coefficients afterwards blows up their error); outcome : (n,), centred,
    known covariates removed; covariance : (d, d), of the component, at the same correction; free : rows less those that
    covariates took; wanted : coefficients of least squares, with those of the covariates, and determined : whether
    there are more independent rows; reduced : whether the view was wide; by : what the solver remembers, None where nothing was
    weighed.
    """

    coef: Array
    residualised: Array | None
    trust: float
    features: Array
    outcome: Array
    covariance: Spread
    free: float
    determined: bool = True
    reduced: bool = False
    wanted: int = 0
    by: Any = None


def error_at_fixed_features(features: Array, y: Array, keep: Array) -> Array:
    """Jackknife errors (d,) of least squares of y (n,) on features (n, d); keep : (B, n), the rows without each block."""
    replicates = []
    for rows in keep:
        s, t = features[rows] - features[rows].mean(axis=0), y[rows] - y[rows].mean()
        replicates.append(np.linalg.lstsq(s, t, rcond=None)[0])
    return jackknife_error(np.stack(replicates))
