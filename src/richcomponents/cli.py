"""The command `rca`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["main"]

app = typer.Typer(help="Rich Component Analysis.", no_args_is_help=True, add_completion=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        from richcomponents import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True, callback=_show_version),
) -> None:
    """Rich Component Analysis: models of one hidden component of several views."""


@app.command()
def demo() -> None:
    """The main job on embedded data: real measurements, hidden labs, and what each method makes of them."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table as Printed

    from richcomponents.demo import run_demo

    console = Console()
    console.print(
        "[bold]Which measurements of cell nuclei go with malignancy, when the samples went to three labs?[/bold]\n"
        "Each lab has its own bias, and nobody wrote down which sample went where. Real measurements (Wisconsin breast\n"
        "cancer, from scikit-learn), simulated labs; control measurements share nothing with the tests but the labs."
    )
    result = run_demo()
    console.print(f"\n{result.n} samples, {len(result.markers)} test markers (U), {result.n_controls} controls (V)\n")
    console.print(result.summary, highlight=False)
    printed = Printed("coefficient", *result.coefficients, title="\nOne draw of the labs", title_justify="left")
    for i, marker in enumerate(result.markers):
        printed.add_row(marker, *(f"{beta[i]:+.3f}" for beta in result.coefficients.values()))
    console.print(printed)
    count = len(next(iter(result.errors.values())))
    errors = Printed(
        "method", "median squared error", "worst draw", title=f"\n{count} draws of the labs", title_justify="left"
    )
    for method, values in result.errors.items():
        errors.add_row(method, f"{np.median(values):.5f}", f"{values.max():.5f}")
    console.print(errors)
    console.print(
        "naive: ignore the labs. covariates: add the controls to the regression. RCA: remove the shared part."
    )


@app.command()
def paper(
    out: Annotated[Path, typer.Option(help="Directory for rows, figures and the page; a killed run continues in it.")],
    panel: Annotated[list[str], typer.Option(help="a..k, biomarkers or all; may be repeated.")] = ["all"],  # noqa: B006
    full: Annotated[bool, typer.Option("--full/--quick", help="All repeats, or a few (minutes).")] = False,
    data: Annotated[Path | None, typer.Option(help="Biomarkers: CSV of markers, rows are people (.gz too).")] = None,
    pheno: Annotated[Path | None, typer.Option(help="Biomarkers: CSV that says who is ill.")] = None,
    settings: Annotated[Path | None, typer.Option(help="A changed copy of the packaged settings.toml.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="By default one per core.")] = None,
) -> None:
    """The paper's experiments: every panel of its Figure 1 and the biomarkers, and its claims next to what is measured."""
    from richcomponents.errors import DataError
    from richcomponents.experiments.paper import run_paper

    try:
        page = run_paper(out, panel, full=full, data=data, pheno=pheno, settings_file=settings, processes=processes)
    except DataError as problem:
        typer.echo(f"rca paper: {problem}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"the page is {page}")


def main() -> None:
    """Entry point."""
    app()
