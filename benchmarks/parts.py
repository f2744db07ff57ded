"""Two figures that parts and learners are held to: intervals of the paper's regression, and three hidden labs in three views.

    python benchmarks/parts.py [--draws 60] [--seed 9810000]

paper : 95% intervals of ComponentRegression with rca=ContrastiveRCA(method="paper"), d = 3, N = 3 000, skewed S2, two kinds of
A, known and unknown: share of the coefficients inside (aim .92-.98), and how many fits state none.
labs  : RCA of three views of three columns with three hidden labs, 600 rows, ranks and sets chosen: fits that raise (aim none).
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import richcomponents as rc


def paper(draws: int, seed: int) -> None:
    for A in ("good", "unif"):
        for given in (True, False):
            inside, stated = [], 0
            for draw in range(draws):
                data = rc.datasets.make_contrastive(3000, 3, S2="skewed", A=A, random_state=seed + draw)
                rca = rc.ContrastiveRCA(views=3, method="paper", A=data.A if given else None)
                found = rc.ComponentRegression(rca=rca).fit(data.X, data.y).coefficients_
                if found is not None and data.beta is not None:
                    low, high = found.interval(0.95)
                    inside.append(np.mean((np.asarray(low) <= data.beta) & (data.beta <= np.asarray(high))))
                    stated += 1
            print(
                f"paper, A {A}, {'known' if given else 'unknown'}: {np.mean(inside):.3f} inside, {stated} of {draws} stated"
            )


def labs(draws: int, seed: int) -> None:
    errors = []
    for draw in range(draws):
        rng = np.random.default_rng(seed + draw)
        lab, n = rng.integers(3, size=600), 600
        views = {name: 1.5 * rng.normal(size=(3, 3))[lab] + rng.normal(size=(n, 3)) for name in "abc"}
        try:
            rc.RCA().fit_views(views)
        except Exception as error:
            errors.append(f"draw {draw}: {type(error).__name__}: {error}")
    print(f"labs: {len(errors)} errors in {draws} draws", *errors[:5], sep="\n  ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--seed", type=int, default=9810000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    paper(options.draws, options.seed)
    labs(max(200, options.draws), options.seed)


if __name__ == "__main__":
    main()
