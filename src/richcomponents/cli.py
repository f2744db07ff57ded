"""The command `rca`: parsing and printing only."""

from __future__ import annotations

import typer

__all__ = ["main"]

app = typer.Typer(help="Rich Component Analysis.", no_args_is_help=True, add_completion=False)


@app.callback()
def version_or_command(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    """Rich Component Analysis: models of one hidden component of several views."""
    if version:
        from richcomponents import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.command()
def demo() -> None:
    """Cumulants of an embedded example: which orders carry information that two views share."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table as Printed

    from richcomponents.cumulants import Cumulants, block_jackknife
    from richcomponents.datasets import load_biomarkers
    from richcomponents.moments import Moments

    console = Console()
    table, malignant = load_biomarkers()
    views = table.views
    console.print(
        f"[bold]Nuclei of {len(malignant)} tissue samples[/bold] (Wisconsin breast cancer, from scikit-learn): "
        + " and ".join(f"{len(views[name])} columns {name!r}" for name in views)
    )
    state = Moments.of(table.values, order=4)
    U, V = views["mean"], views["variation"]

    printed = Printed("cross-cumulant", "entries", "norm", "standard error", "norm / error")
    for label, slots in (
        ("k2(V, U)", (V, U)),
        ("k3(V, U, U)", (V, U, U)),
        ("k4(V, U, U, U)", (V, U, U, U)),
        ("k4(V, V, U, U)", (V, V, U, U)),
    ):
        result = block_jackknife(lambda m, s=slots: Cumulants(m).tensor(*s).ravel(), state)  # type: ignore[misc]
        norm = float(np.linalg.norm(result.estimate))
        noise = float(np.linalg.norm(result.standard_error))
        printed.add_row(label, f"{result.estimate.size:,}", f"{norm:.2f}", f"{noise:.2f}", f"{norm / noise:.1f}")
    console.print(printed)
    console.print(
        "Cross-cumulants see only what the views share. Where the norm stands above its error (left-out-block\n"
        "jackknife over 20 blocks), that order carries information about the shared part beyond correlation."
    )


def main() -> None:
    """Entry point."""
    app()
