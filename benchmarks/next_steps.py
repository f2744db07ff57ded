"""Whether "collect about n = ... samples" holds: weak fits, fits of fresh draws with as many samples as they ask for.

    python benchmarks/next_steps.py run [--draws 30] [--seed 560000]
    python benchmarks/next_steps.py show

A row is one draw: its verdict; where that is weak, what it asks for, and the verdict of a fresh draw of that size.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from richcomponents import ContrastiveRCA
from richcomponents.datasets import make_contrastive
from richcomponents.pair.diagnostics import samples_for_strong
from rows import Job, Row
from sections import RESULTS, Measured, Options, drawn, main
from sections import medians as medians_of

KINDS = {"skewed": (100, 200, 400), "uniform": (400, 800, 1600), "labs(3)": (100, 200, 400), "paper": (800, 1600)}
FRESH = 7_000_000  # added to a seed


def jobs(section: str, options: Options) -> Iterable[Job]:
    return drawn(({"kind": kind, "n": n} for kind, sizes in KINDS.items() for n in sizes), options.draws, options.seed)


def _fit(kind: str, n: int, seed: int) -> ContrastiveRCA:
    data = make_contrastive(n, d=5, S2=kind, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ContrastiveRCA(views=5, classes="none", errors="free").fit(data.X)


def measure(job: Job) -> Row:
    kind, n, seed = str(job["kind"]), int(job["n"]), int(job["seed"])
    found = _fit(kind, n, seed).diagnostics_
    row: Row = {"verdict": found.verdict, "strength": found.strength, "asked": 0, "then": ""}
    if found.verdict == "weak":
        asked = samples_for_strong(n, found.strength)
        again = _fit(kind, round(asked), seed + FRESH)
        row |= {"asked": round(asked), "then": again.verdict_}
    return row


def show(rows: Measured, options: Options) -> None:
    for kind, sizes in KINDS.items():
        for n in sizes:
            weak = [row for row in rows("samples") if (row["kind"], row["n"], row["verdict"]) == (kind, n, "weak")]
            if not weak:
                continue
            times = medians_of([{"times": row["asked"] / n} for row in weak], ["times"])["times"]
            strong = sum(row["then"] == "strong" for row in weak)
            print(
                f"{kind:>10} n = {n:5d}: {len(weak):3d} weak fits; asked for {times:.2f} n (median); then strong {strong}"
            )


if __name__ == "__main__":
    main(__doc__, ["samples"], jobs, measure, show, draws=30, seed=560_000, out=RESULTS / "next_steps")
