"""Exact populations for set systems: finite discrete components, every combination equally likely."""

from __future__ import annotations

import numpy as np

from richcomponents.components.sets import SetSystem
from richcomponents.cumulants import Cumulants
from richcomponents.moments import Moments


def well_conditioned(rng, rows, columns):
    left = np.linalg.qr(rng.normal(size=(rows, rows)))[0][:, :columns]
    right = np.linalg.qr(rng.normal(size=(columns, columns)))[0]
    return (left * rng.uniform(0.7, 1.3, columns)) @ right.T


class Population:
    """The joint support is built row by row (not by adding cumulants, which would hide round-off)."""

    def __init__(self, system: SetSystem, widths: dict[str, int], seed: int = 0, order: int = 5, absent=()):
        rng = np.random.default_rng(seed)
        ends = np.cumsum([0, *widths.values()])
        self.columns = {view: np.arange(ends[i], ends[i + 1]) for i, view in enumerate(widths)}
        self.system, self.gauge = system, {q: min(q, key=lambda v: (widths[v], system.views.index(v))) for q in system}
        self.A, self.points = {}, {}
        rows = np.zeros((1, ends[-1]))
        for q in system:
            home = widths[self.gauge[q]]
            size = (max(home + 1, 3), home)  # two equally likely points would be symmetric: no odd cumulants
            points = rng.normal(size=size) + 0.5 * rng.exponential(size=size)
            self.points[q] = points * (q not in absent)
            wide = np.zeros((len(points), ends[-1]))
            for view in q:
                self.A[view, q] = np.eye(home) if view == self.gauge[q] else well_conditioned(rng, widths[view], home)
                wide[:, self.columns[view]] = self.points[q] @ self.A[view, q].T
            if q not in absent:
                rows = (rows[:, None, :] + wide[None]).reshape(-1, ends[-1])
        self.rows = rows
        self.order = order
        self.cumulants = Cumulants(Moments.of(rows, order, n_blocks=1), unbiased=False)

    def exact(self, q, order):
        return Cumulants(Moments.of(self.points[q], max(order, 2), n_blocks=1), unbiased=False).tensor(
            *[np.arange(self.points[q].shape[1])] * order
        )


def relative(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)
