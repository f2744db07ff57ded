"""Two views with exact cumulants: every combination of the supports is equally likely, so the parts are exactly independent."""

from __future__ import annotations

from itertools import product

import numpy as np

import richcomponents as rc
from richcomponents.moments import Moments

S1 = np.array([[0.0, 1.0], [2.0, -1.0], [5.0, 0.5], [-1.0, 3.0]])
S2 = np.array([[1.0, 0.0], [-1.0, 2.0], [0.0, -3.0], [4.0, 1.0], [0.5, 0.5]])
S3 = np.array([[0.0, 0.0, 1.0], [1.0, -2.0, 0.0], [3.0, 1.0, -1.0]])
A = np.array([[1.0, 0.5], [-0.3, 2.0], [0.7, -1.1]])
U, V = np.eye(5)[:, :2], np.eye(5)[:, 2:]  # the maps from z = (u, v) to the views


def rows(s1=S1, s2=S2, s3=S3):
    """The joint support of (U, V), one row per combination."""
    return np.array([np.concatenate([a + b, A @ b + c]) for a, b, c in product(s1, s2, s3)])


def state(order, **parts):
    return Moments.of(rows(**parts), order, n_blocks=1)


def exact(points, order):
    return rc.cumulant(points, order, unbiased=False)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * max(1.0, np.abs(expected).max()))
