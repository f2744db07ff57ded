"""Whether the intervals of ComponentRegression cover the truth.

    python benchmarks/learner_regression.py [--draws 200] [--seed 650000]

N = 10 000, d = 10, A unknown with entries Unif[-1, 1]; 95% intervals of the coefficients. Accuracy is in learners.py.
"""

from __future__ import annotations

import argparse

import numpy as np

import richcomponents as rc
from rows import Job, Row, measured


def measure(job: Job) -> list[Row]:
    """Share of the coefficients of one draw inside their intervals."""
    data = rc.datasets.make_contrastive(10_000, random_state=job["seed"])
    table = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=10)).fit(data.X, data.y).coefficients_
    assert table is not None
    assert data.beta is not None
    return [{**job, "covered": float(np.mean((table.low <= data.beta) & (data.beta <= table.high)))}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=650_000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    jobs = [{"seed": options.seed + s} for s in range(options.draws)]
    shares = [row["covered"] for _, rows in measured(jobs, measure, options.processes) for row in rows]
    print(f"95% intervals of the coefficients, N = 10 000: {np.mean(shares):.3f} covered ({len(shares)} draws)")


if __name__ == "__main__":
    main()
