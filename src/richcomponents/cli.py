"""The command `rca`: parsing and printing only. What a command does is imported when it runs, so that help is instant.

Results go to standard output, progress and notes to standard error. Exit codes: 0 done, 1 data or request that cannot be
used (one sentence, no traceback unless --debug), 2 wrong usage of an option.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from richcomponents.commands import FitResult


app = typer.Typer(
    help="Rich Component Analysis.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)

_SHOWN = 50

Data = Annotated[
    list[Path],
    typer.Argument(
        help="One table, or several (one view each): .csv, .tsv, .tab, .txt (also .gz), .npy, .npz, .parquet (also a folder), "
        ".h5ad, .h5mu, .zarr."
    ),
]
ViewOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--views",
        help="U first, then V: tests=a,b,c controls='C_*' (names or patterns; give the option twice), or a number k: the "
        "first k columns and the rest. Not needed for several files, or a file with several matrices. Three or more views: "
        "hidden components of any subsets of them.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(help="Which subsets of the views have a component: a,b,c,a+b,a+b+c. By default all."),
]
Discover = Annotated[bool, typer.Option("--discover", help="Keep only the components that the data show.")]
Component = Annotated[
    str | None,
    typer.Option(
        help="What the model is of: S1 (default), S2, S3; of more views a subset, a+b (default: the first view)."
    ),
]
Target = Annotated[
    str | None, typer.Option(help="The outcome's column; it may depend on one component only, U's own part by default.")
]
Positive = Annotated[
    str | None,
    typer.Option(
        help="Of a target with two classes, the one whose odds are modelled. By default the one whose name says so (case, "
        "yes, disease, treated, ...), else the second in order."
    ),
]
Covariates = Annotated[
    list[str] | None, typer.Option(help="Known covariates (age, sex), separated by commas, removed from all views.")
]
Groups = Annotated[
    str | None, typer.Option(help="Column that says which rows belong together (repeated measurements).")
]
Key = Annotated[str | None, typer.Option("--id", help="Column with sample labels; several files are matched by it.")]
Rank = Annotated[str, typer.Option(help="Shared directions of two views: auto, full, or a number.")]
DropMissing = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line of a text table that holds only numbers names the columns, or is a row.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the posterior draws.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from richcomponents import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; goes anywhere.")] = False,
) -> None:
    """Rich Component Analysis: models of one hidden component of several views."""


@app.command()
def fit(
    data: Data,
    views: ViewOptions = None,
    sets: Sets = None,
    discover: Discover = False,
    target: Target = None,
    positive: Positive = None,
    model: Annotated[
        str,
        typer.Option(help="pca, regression, logistic, mixture, ising, or none. auto: by the target, none without one."),
    ] = "auto",
    component: Component = None,
    covariates: Covariates = None,
    groups: Groups = None,
    key: Key = None,
    rank: Rank = "auto",
    components: Annotated[int | None, typer.Option(help="How many, for pca and mixture.", min=1)] = None,
    drop_missing: DropMissing = False,
    header: Header = None,
    seed: Seed = 0,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    save: Annotated[Path | None, typer.Option(help="Save the fitted model here.")] = None,
    as_json: Json = False,
) -> None:
    """Learn what is specific to U once the part shared with V is removed; of three or more views, what any of them share.

    rca fit cohort.csv --views tests='T_*' --views controls='C_*' --target disease --report cohort.html
    """
    from richcomponents.outputs import check_outputs, write_text

    check_outputs([report, save], data)
    result = _fitted(
        data, views, sets=sets, discover=discover, target=target, positive=positive, model=model, component=component,
        covariates=covariates, groups=groups, key=key, rank=rank, components=components, drop_missing=drop_missing,
        header=header, seed=seed,
    )  # fmt: skip
    if save is not None:
        result.model.save(save)
        _say(f"The model is in {save}.")
    if report is not None:
        from richcomponents.report import render

        title = f"Rich component analysis of {' and '.join(path.name for path in data)}"
        with _busy("writing the report"):
            page = render(result.findings, title)
        write_text(report, page)
        _say(f"The report is in {report}.")
    if as_json:
        _print_json(result)
    else:
        _print_fit(result)


@app.command()
def diagnose(
    data: Data,
    views: ViewOptions = None,
    sets: Sets = None,
    discover: Discover = False,
    target: Target = None,
    positive: Positive = None,
    covariates: Covariates = None,
    groups: Groups = None,
    key: Key = None,
    rank: Rank = "auto",
    drop_missing: DropMissing = False,
    header: Header = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Say whether the data can tell U's own part from the shared part, before anything is learned."""
    result = _fitted(
        data, views, sets=sets, discover=discover, target=target, positive=positive, covariates=covariates, groups=groups,
        key=key, rank=rank, drop_missing=drop_missing, header=header, seed=seed,
    )  # fmt: skip
    if as_json:
        _print_json(result)
        return
    _tell_notes(result)
    found = result.findings
    _print(f"{found.headline()}\n\n{found.summary}")
    if found.outcome is not None:
        from richcomponents.report.findings import p_value

        told = found.outcome
        _print(f"  {f'{told.name} and {told.outside}':<24} {p_value(told.test.p_value)}")


@app.command()
def simulate(
    out: Annotated[Path, typer.Option(help="Where to: .csv, .tsv, .npz or .parquet.")],
    n: Annotated[int, typer.Option("-n", help="Samples.", min=2)] = 3000,
    d: Annotated[int, typer.Option("-d", help="Columns of U, and of V.", min=1)] = 10,
    s1: Annotated[str, typer.Option(help="regression, logistic, pca, mixture or ising.")] = "regression",
    s2: Annotated[
        str, typer.Option(help="paper, uniform, skewed, gaussian, mixture, heavy, spins or labs(k).")
    ] = "skewed",
    mixing: Annotated[str, typer.Option(help="A: unif (entries in [-1, 1]) or good (well conditioned).")] = "unif",
    strength: Annotated[float | None, typer.Option(help="sd(S2) / sd(S1).")] = None,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    truth: Annotated[Path | None, typer.Option(help="Write A and the parameters of S1 to this JSON file.")] = None,
) -> None:
    """Write two views with a shared part, and the truth."""
    from richcomponents.commands import simulate as write

    data = write(out, truth, n_samples=n, d=d, S1=s1, S2=s2, A=mixing, strength=strength, random_state=seed)
    views = "" if out.suffix == ".npz" else " --views 'U=U_*' --views 'V=V_*'"
    outcome = "" if data.y is None else " --target y"
    _print(f"{n} samples of U ({d} columns) and V ({d}) are in {out}. Next:\n  rca fit {out}{views}{outcome}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("richcomponents-demo.html"),
) -> None:
    """The main job on embedded data: real measurements, hidden labs, and what each method makes of them."""
    import numpy as np

    from richcomponents.demo import run_demo
    from richcomponents.outputs import check_outputs

    check_outputs([out])  # before a word is said
    _print(
        "Which measurements of cell nuclei go with malignancy, when the samples went to three labs?\n"
        "Each lab has its own bias, and nobody wrote down which sample went where. Real measurements (Wisconsin breast\n"
        "cancer, from scikit-learn), simulated labs; control measurements share nothing with the tests but the labs.\n"
    )
    with _busy("fitting twenty draws of the labs"):
        result = run_demo(out)
    markers, controls = result.findings.views.values()
    _print(f"{result.findings.n} samples, {len(markers)} test markers (U), {len(controls)} controls (V)\n")
    _print(f"{result.findings.headline()}\n\n{result.summary}\n")
    _print_table(
        "Coefficients, one draw of the labs",
        ["coefficient", *result.coefficients],
        [[m, *(f"{beta[i]:+.3f}" for beta in result.coefficients.values())] for i, m in enumerate(markers)],
    )
    count = len(next(iter(result.errors.values())))
    _print_table(
        f"Squared error of the coefficients, {count} draws of the labs",
        ["method", "median", "worst draw"],
        [[method, f"{np.median(values):.5f}", f"{values.max():.5f}"] for method, values in result.errors.items()],
    )
    _print(
        "naive: ignore the labs. covariates: add the controls to the regression. RCA: remove the shared part.\n"
        f"\nThe report is in {out.resolve()}: open it in a browser."
    )


@app.command()
def paper(
    out: Annotated[
        Path, typer.Option(help="Directory for rows, figures and the page; a killed run continues in it.")
    ] = Path("paper"),
    panel: Annotated[list[str], typer.Option(help="a..k, biomarkers or all; may be repeated.")] = ["all"],  # noqa: B006
    full: Annotated[bool, typer.Option("--full/--quick", help="All repeats, or a few (minutes).")] = False,
    data: Annotated[Path | None, typer.Option(help="Biomarkers: CSV of markers, rows are people (.gz too).")] = None,
    pheno: Annotated[Path | None, typer.Option(help="Biomarkers: CSV that says who is ill.")] = None,
    settings: Annotated[Path | None, typer.Option(help="A changed copy of the packaged settings.toml.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="By default one per core.")] = None,
) -> None:
    """The paper's experiments: every panel of its Figure 1 and the biomarkers, and its claims next to what is measured."""
    from richcomponents.experiments.paper import run_paper

    page = run_paper(out, panel, full=full, data=data, pheno=pheno, settings_file=settings, processes=processes)
    _print(f"the page is {page}")


# ---- printing


def _fitted(
    data: list[Path], views: list[str] | None, *, sets: list[str] | None, covariates: list[str] | None, **options: Any
) -> FitResult:
    from richcomponents.commands import FitRequest, run_fit

    request = FitRequest(
        data=data,
        views=views or (),
        sets=_parts(sets),
        covariates=_parts(covariates),
        command=_command(),
        **options,
    )
    return run_fit(request, progress=sys.stderr.isatty())


def _parts(given: list[str] | None) -> list[str]:
    """What was given once with commas, or several times, or both."""
    return [name.strip() for part in given or () for name in part.split(",")]


def _command() -> str:
    import shlex

    return shlex.join(["rca", *sys.argv[1:]])


def _busy(what: str) -> AbstractContextManager[object]:
    """A spinner on standard error, only where somebody looks at it."""
    from contextlib import nullcontext

    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(what)


def _print(text: str, *, err: bool = False) -> None:
    """Names come out of files: what a terminal would obey is shown instead."""
    from richcomponents.text import plain

    typer.echo(plain(text), err=err)


def _say(sentence: str) -> None:
    _print(sentence, err=True)


def _tell_notes(result: FitResult) -> None:
    for note in result.findings.notes:
        _say(f"note: {note}")


def _print_json(result: FitResult) -> None:
    import json

    text = json.dumps(result.findings.as_dict(), allow_nan=False, ensure_ascii=False)
    typer.echo(
        "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    )  # JSON's own escapes: the same names


def _print_fit(result: FitResult) -> None:
    _tell_notes(result)
    found = result.findings
    _print(f"{found.headline()}\n")
    if found.outcome is not None:
        if found.outcome.contrast is not None:
            _print(f"{found.outcome.name}: {found.outcome.contrast}\n")
        _print_rows(f"Coefficients ({found.outcome.unit}), by method", found.outcome.rows())
    if found.learned is not None:
        _print_rows(found.learned.title, found.learned.rows)
    _print(found.summary)


def _print_rows(title: str, rows: list[dict[str, object]]) -> None:
    from richcomponents.cumulants.estimate import p_text

    shown = rows[:_SHOWN]
    known = [key for key in (rows[0] if rows else ()) if any(row[key] == row[key] for row in rows)]  # nan is not itself

    def cell(key: str, value: object) -> str:
        if not isinstance(value, float):
            return str(value)
        return p_text(value) if key == "p" else f"{value:.4g}"

    if shown:
        _print_table(title, known, [[cell(key, row[key]) for key in known] for row in shown])
    if len(shown) < len(rows):
        _print(f"  ... and {len(rows) - len(shown)} more rows: see --report or --json\n")


def _print_table(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Columns lined up with spaces: readable on a terminal, in a file and in a mail."""
    from richcomponents.text import in_line, lined_up

    head, *rows = ([in_line(cell) for cell in row] for row in [head, *rows])
    rule = ["-" * max(map(len, column)) for column in zip(head, *rows, strict=True)]
    _print("\n".join([title, *(f"  {line}" for line in lined_up([head, rule, *rows]))]) + "\n")


# ---- errors


def _fail(error: Exception) -> NoReturn:
    from richcomponents.errors import CapacityError, DataError, StateFileError

    expected = isinstance(error, (DataError, StateFileError, CapacityError, ValueError, OSError))
    text = str(error) if expected else f"unexpected {type(error).__name__}: {error} (--debug shows where)"
    _say("\n".join([f"error: {text}", *getattr(error, "__notes__", ())]))
    sys.exit(1)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    try:
        app([argument for argument in given if argument != "--debug"], prog_name="rca")
    except BrokenPipeError:
        sys.exit(1)  # the reader of our output has gone
    except Exception as error:
        if debug:
            raise
        _fail(error)
