"""The five models of a component beside the simple methods: medians of the squared error over draws.

    python -m reproduction.learners run   [--out DIR] [--quick] [--panel a ...]   # rows; a killed run continues
    python -m reproduction.learners show  [--out DIR]                             # the table and the figures that must hold

Columns: true samples of S1, RCA with A known, RCA with A unknown (the default), V as covariates, the first canonical variate
projected out, U as if it were S1. The designs are those of the paper's panels a-e, with seeds of their own (learners.toml).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from reproduction.measure import measure_panels
from reproduction.settings import Settings, load_settings
from rows import read_rows

HERE = Path(__file__).parent
Medians = dict[tuple[str, str, float, str], float]


def medians(path: Path) -> tuple[Medians, dict[tuple[str, str, float], int]]:
    """(panel, kind of A, n, method) -> median error, and the number of draws behind it."""
    grouped: dict[tuple[str, str, float, str], list[float]] = {}
    for row in read_rows(path):
        grouped.setdefault((row["panel"], row["case"], row["x"], row["method"]), []).append(row["value"])
    draws = {key[:3]: len(values) for key, values in grouped.items()}
    return {key: median(values) for key, values in grouped.items()}, draws


def show(settings: Settings, path: Path) -> None:
    errors, draws = medians(path)
    methods = list(settings.methods)
    print(f"{'model':<12}{'A':<6}{'N':>6}{'draws':>6}  " + "".join(f"{settings.methods[m]:>14}" for m in methods))
    for name, case, n in sorted(draws):
        cells = "".join(f"{errors[name, case, n, m]:14.5f}" for m in methods)
        print(f"{settings.panels[name].title:<12}{case:<6}{n:6.0f}{draws[name, case, n]:6d}  {cells}")
    print("\nRCA over                      naive        CCA   covariates   (well-conditioned A)")
    for name, panel in settings.panels.items():
        for n in (1000.0, 10_000.0):
            if (name, "good", n) in draws:
                ratios = [
                    errors[name, "good", n, "rca"] / errors[name, "good", n, m] for m in ("naive", "cca", "covariates")
                ]
                met = max(ratios[:2]) < 1 if n == 1000 else ratios[0] <= 0.5
                print(
                    f"  {panel.title:<12}N = {n:<8.0f}"
                    + "".join(f"{r:12.3f}" for r in ratios)
                    + ("" if met else "   MISSED")
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["run", "show"])
    parser.add_argument("--out", type=Path, default=HERE.parent / "benchmarks" / "results" / "learners")
    parser.add_argument("--quick", action="store_true", help="four draws instead of twenty")
    parser.add_argument("--panel", action="append", help="a: PCA, b: regression, c: mixture, d: logistic, e: Ising")
    parser.add_argument("--processes", type=int)
    options = parser.parse_args()
    file = HERE / "learners.toml"
    if options.action == "run":
        measure_panels(
            options.out,
            options.panel or (),
            full=not options.quick,
            settings_file=file,
            processes=options.processes,
        )
    show(load_settings(file), options.out / "rows.csv")


if __name__ == "__main__":
    main()
