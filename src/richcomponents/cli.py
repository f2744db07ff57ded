"""The command `rca`: parsing and printing only. What a command does is imported when it runs, so that help is instant.

Results go to standard output, progress and notes to standard error. Exit codes: 0 done, 1 data or request that cannot be
used (one sentence, no traceback unless --debug), 2 wrong usage of an option.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from inspect import Parameter, signature
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from richcomponents.commands import FitRequest, FitResult


app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

_TABLE = "table.csv --views tests='T_*' --views controls='C_*'"
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {  # the first is what most people want; in the help, and on the page
    "": (
        ("See what it is for, on embedded data:", "rca demo"),
        ("A table to try things on:", "rca simulate --out table.csv"),
        (
            "What is the tests' own, and how sure is that?",
            "rca fit table.csv --views 'U=U_*' --views 'V=V_*' --target y",
        ),
    ),
    "fit": (
        (
            "Which tests go with the disease, once what they share with the controls is removed? A page for colleagues:",
            f"rca fit {_TABLE} --target disease --report page.html",
        ),
        (
            "One file per view, rows matched by a column; the cleaned table:",
            "rca fit tests.csv controls.csv --id sample --cleaned cleaned.parquet",
        ),
        (
            "Two assays of the same cells; keep the model:",
            "rca fit cells.h5mu --views rna --views protein --save model.npz",
        ),
        (
            "Three views, and which of them share anything:",
            "rca fit table.csv --views a='T_*' --views b='C_*' --views c='I_*' --discover",
        ),
    ),
    "effects": (
        (
            "Does the disease change the tests? Known covariates removed, a page and a table of every effect:",
            f"rca effects {_TABLE} --exposure disease --covariates age,sex --report page.html --out effects.csv",
        ),
        (
            "Against which class; repeated measurements of a subject:",
            f"rca effects {_TABLE} --exposure disease --reference control --groups subject",
        ),
        ("One object for a program:", f"rca effects {_TABLE} --exposure disease --json"),
    ),
    "diagnose": (
        ("Can these data tell at all? Before an outcome is looked at:", f"rca diagnose {_TABLE}"),
        (
            "Does the outcome go with the controls, which the model does not allow for?",
            f"rca diagnose {_TABLE} --target disease",
        ),
    ),
    "explain": (("What did that model find?", "rca explain model.npz"),),
    "transform": (
        ("The cleaned table:", "rca transform model.npz table.csv --out cleaned.parquet"),
        ("The shared part instead:", "rca transform model.npz table.csv --component S2 --out shared.csv"),
    ),
    "predict": (("The outcome of new rows:", "rca predict model.npz table.csv --out predicted.csv"),),
    "simulate": (
        ("A table and the truth behind it:", "rca simulate --out table.csv --truth truth.json"),
        ("Three hidden labs, a binary outcome:", "rca simulate --out labs.csv --s2 'labs(3)' --s1 logistic -n 700"),
    ),
    "demo": (("With fewer draws, in seconds:", "rca demo --draws 5 --out demo.html"),),
}


def _examples(command: str) -> str:
    """The end of a help text. A single line end would be taken for a space."""
    return "\n\n".join(["Examples:", *(f"{about}\n\n  {line}" for about, line in EXAMPLES[command])])


_SHOWN, _CLEAREST = 50, 10  # rows of a table, and of one of effects


def _option(panel: str, metavar: str | None, help: str, *names: str, **more: Any) -> Any:
    """An option, in one of the boxes of the help; names : where they are not those of the parameter."""
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=panel, **more)


_columns, _fit, _written = (partial(_option, box) for box in ("Which columns", "How it is fitted", "What is written"))
_given = (
    "tests=a,b,c controls='C_*' (names or patterns; give the option twice), or a number k: the first k columns "
    "and the rest"
)

Data = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA",
        help="One table, or several (one view each): .csv, .tsv, .tab, .txt (also .gz), .npy, .npz, .parquet (also a folder), "
        ".h5ad, .h5mu, .zarr.",
    ),
]
_all_views = (
    f"U first, then V: {_given}. Not needed for several files, or a file with several matrices. Three or more views: "
    "hidden components of any subsets of them."
)
_two_views = f"Tests first, then controls: {_given}. Not needed for two files, or a file with two matrices."
_component = "What the model is of: S1 (default), S2, S3; of more views a subset, a+b (default: the first view)."
_target = "The outcome's column; it may depend on one component only, U's own part by default."
_positive = (
    "Of a target with two classes, the one whose odds are modelled. By default the one whose name says so (case, yes, "
    "disease, treated, ...), else the second in order."
)
_covariates = "Known covariates (age, sex), separated by commas, removed from all views."
_wanted = "Of an exposure with two classes, the one whose effect is wanted."
_reference = (
    "The class that others are compared with. By default the one whose name says so (control, no, healthy, ...), else the "
    "first in order."
)
_rank = (
    "Shared directions of two views: auto, full, or a number. Of more views those of some components, a+b=1,a+b+c=2."
)
_order = "Highest order of the cumulants, 3 to 6. All subsets of four views take 5, of five views 6."
_missing = "Rows with missing values: drop leaves them out, available uses what is there, error refuses them."
_header = "Whether the first line of a text table that holds only numbers names the columns, or is a row."
Header = Annotated[bool | None, _columns(None, _header, "--header/--no-header", show_default=False)]
Text = str | None
Texts = list[str] | None
File = Path | None
# fmt: off
OPTIONS: dict[str, tuple[Any, Any]] = {  # of several commands: Annotated[type, help], and the default
    "views": (Annotated[Texts, _columns("NAME=COLUMNS", _all_views, "--views")], None),
    "two_views": (Annotated[Texts, _columns("NAME=COLUMNS", _two_views, "--views")], None),
    "sets": (Annotated[Texts, _columns("SETS", "Which subsets have a component: a,b,c,a+b,a+b+c. By default all.")], None),
    "discover": (Annotated[bool, _fit(None, "Keep only the components that the data show.", "--discover")], False),
    "target": (Annotated[Text, _columns("COLUMN", _target)], None),
    "positive": (Annotated[Text, _columns("CLASS", _positive)], None),
    "wanted": (Annotated[Text, _columns("CLASS", _wanted, "--positive")], None),
    "reference": (Annotated[Text, _columns("CLASS", _reference)], None),
    "component": (Annotated[Text, _fit("NAME", _component)], None),
    "method": (Annotated[str, _fit("NAME", "efficient, or paper: as Ge and Zou, with no protection.")], "efficient"),
    "covariates": (Annotated[Texts, _columns("COLUMNS", _covariates)], None),
    "groups": (Annotated[Text, _columns("COLUMN", "Which rows belong together (repeated measurements).")], None),
    "key": (Annotated[Text, _columns("COLUMN", "Sample labels; several files are matched by them.", "--id")], None),
    "rank": (Annotated[str, _fit("RANK", _rank)], "auto"),
    "order": (Annotated[int, _fit("K", _order, min=3, max=6)], 4),
    "components": (Annotated[int | None, _fit("K", "How many, for pca and mixture.", min=1)], None),
    "missing": (Annotated[str, _fit("HOW", _missing)], "drop"),
    "header": (Header, None),
    "seed": (Annotated[int, _fit("K", "Seed of the posterior draws.")], 0),
    "report": (Annotated[File, _written("FILE", "Write an HTML report here.")], None),
    "save": (Annotated[File, _written("FILE", "Save the fitted model here.")], None),
    "as_json": (Annotated[bool, _written(None, "Print one JSON object and nothing else.", "--json")], False),
}
# fmt: on


def _takes(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with these OPTIONS, in this order, before options of its own; those that it does not name are its **given."""

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        whole = signature(command, eval_str=True)
        own = {one.name: one for one in whole.parameters.values() if one.kind != Parameter.VAR_KEYWORD}
        told = {
            name: Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in OPTIONS.items()
            if name in names
        }
        first = {name: one for name, one in own.items() if one.kind != Parameter.KEYWORD_ONLY}
        command.__signature__ = whole.replace(parameters=list((first | told | own | told).values()))  # type: ignore[attr-defined]
        command.__annotations__ = {name: one.annotation for name, one in (own | told).items()}
        return command

    return with_options


_safe = (
    "In .csv and .tsv that are written, texts that begin with = + - or @ get a ' before it, so that no spreadsheet takes them "
    "for formulas; goes anywhere."
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from richcomponents import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback(epilog=_examples(""))
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; goes anywhere.")] = False,
    safe_csv: Annotated[bool, typer.Option("--safe-csv", help=_safe)] = False,
) -> None:
    """Rich Component Analysis: models of one hidden component of several views."""


_models = (
    "pca, regression, logistic, probit, multinomial, poisson, negative-binomial, mixture, ising, or none. auto: by the "
    "target, none without one."
)
_cleaned = "Write U's own part of every row here, the shared part removed: .csv, .tsv or .parquet (see rca transform)."
_coefficients = "Write the table of all coefficients here: .csv, .tsv or .parquet."
_OF_ALL = ("covariates", "groups", "key", "rank", "missing", "header", "seed", "as_json")
_OF_FIT = (*_OF_ALL, "views", "sets", "discover", "target", "positive", "order")


@app.command(epilog=_examples("fit"))
@_takes(*_OF_FIT, "component", "method", "components", "report", "save")
def fit(
    data: Data,
    *,
    model: Annotated[str, _fit("NAME", _models)] = "auto",
    coefficients: Annotated[File, _written("FILE", _coefficients)] = None,
    cleaned: Annotated[File, _written("FILE", _cleaned)] = None,
    as_json: bool,
    report: File,
    save: File,
    **given: Any,
) -> None:
    """Learn what is specific to U once the part shared with V is removed; of three or more views, what any of them share."""
    from richcomponents.commands import run_fit, write_component, write_rows

    _check_outputs(data, [coefficients, cleaned], report, save)
    if coefficients is not None and given["target"] is None and model in ("auto", "none"):
        raise ValueError("--coefficients are those of a model: name one with --model, or an outcome with --target")
    request = _request(data, model=model, **given)
    result = run_fit(request, progress=True)
    _write(result, save, report, f"Rich component analysis of {_names(data)}")
    if coefficients is not None:
        write_rows(coefficients, result.findings.tables()[0][1])
        _say(f"The coefficients are in {coefficients}.")
    if cleaned is not None:
        _say(write_component(result.model, data, cleaned, None, request.key, request.header))
    _print_found(result, as_json)


_effects = "Write the table of all effects here: .csv, .tsv or .parquet."


@app.command(epilog=_examples("effects"))
@_takes(*_OF_ALL, "two_views", "wanted", "reference", "report", "save")
def effects(
    data: Data,
    exposure: Annotated[str, _columns("COLUMN", "The exposure's column: disease, drug, dose; numbers, or classes.")],
    *,
    out: Annotated[File, _written("FILE", _effects)] = None,
    as_json: bool,
    report: File,
    save: File,
    **given: Any,
) -> None:
    """Does an exposure change the tests, when something hidden goes with it and disturbs them too?

    Controls are columns that the exposure does not change, but what is hidden disturbs.
    """
    from richcomponents.commands import run_effects, write_rows

    _check_outputs(data, [out], report, save)
    given |= {"views": given.pop("two_views"), "positive": given.pop("wanted")}
    with _busy("estimating effects, holding out one control after the other"):
        result = run_effects(_request(data, exposure=exposure, **given))
    _write(result, save, report, f"Effects of {exposure} in {_names(data)}")
    if out is not None:
        write_rows(out, result.model.effect_table())
        _say(f"The table of effects is in {out}.")
    _print_found(result, as_json)
    if report is None and not as_json:
        _print(
            "Next: --report page.html draws effects, controls and sensitivity; --out effects.csv writes every column."
        )


@app.command(epilog=_examples("diagnose"))
@_takes(*_OF_FIT)
def diagnose(data: Data, *, as_json: bool, **given: Any) -> None:
    """Say whether the data can tell U's own part from the shared part, before anything is learned."""
    from richcomponents.commands import run_fit

    _print_found(run_fit(_request(data, **given), progress=True), as_json, tables=False)


Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A model that was saved: rca fit ... --save model.npz, or model.save(path)."),
]
Rows = Annotated[
    list[Path],
    typer.Argument(
        metavar="TABLE", help="The table, of any size and in any of the formats of rca fit; read in blocks."
    ),
]
Out = Annotated[Path, _written("FILE", "Where to: .parquet, .csv or .tsv.")]
_labels = "Column with sample labels, kept in the output; several files are matched by it."
Labels = Annotated[str | None, _columns("COLUMN", _labels, "--id")]


@app.command(epilog=_examples("explain"))
def explain(model: Model) -> None:
    """Say again what a saved model found: its components, how sure they are, what tells them apart, what was learned."""
    from richcomponents.commands import explained
    from richcomponents.storage import load

    _print(explained(load(model)))


_which = "S1 (default): U without what it shares with V; S2, S3; of more views a subset, a+b."


@app.command(epilog=_examples("transform"))
def transform(
    model: Model,
    table: Rows,
    out: Out,
    component: Annotated[str | None, _written("NAME", _which)] = None,
    key: Labels = None,
    header: Header = None,
) -> None:
    """Write a component of every row of a table: by default the first view, cleaned of what it shares with the others."""
    from richcomponents.commands import write_component
    from richcomponents.storage import load

    _check_outputs([model, *table], [out])
    _say(write_component(load(model), table, out, component, key, header))


@app.command(epilog=_examples("predict"))
def predict(model: Model, table: Rows, out: Out, key: Labels = None, header: Header = None) -> None:
    """Write what a model predicts for every row of a table: the outcome, or the class and its probabilities."""
    from richcomponents.commands import write_predictions
    from richcomponents.storage import load

    _check_outputs([model, *table], [out])
    _say(write_predictions(load(model), table, out, key, header))


@app.command(epilog=_examples("simulate"))
def simulate(
    out: Annotated[Path, typer.Option(help="Where to: .csv, .tsv, .npz or .parquet.", metavar="FILE")],
    n: Annotated[int, typer.Option("-n", help="Samples.", min=2)] = 3000,
    d: Annotated[int, typer.Option("-d", help="Columns of U, and of V.", min=1)] = 10,
    s1: Annotated[str, typer.Option(help="regression, logistic, pca, mixture or ising.")] = "regression",
    s2: Annotated[
        str, typer.Option(help="paper, uniform, skewed, gaussian, mixture, heavy, spins or labs(k).")
    ] = "skewed",
    mixing: Annotated[str, typer.Option(help="A: unif (entries in [-1, 1]) or good (well conditioned).")] = "unif",
    strength: Annotated[float | None, typer.Option(help="sd(S2) / sd(S1).")] = None,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    truth: Annotated[
        Path | None, typer.Option(help="Write A and the parameters of S1 to this JSON file.", metavar="FILE")
    ] = None,
) -> None:
    """Write two views with a shared part, and the truth."""
    from richcomponents.commands import simulate as write

    data = write(out, truth, n_samples=n, d=d, S1=s1, S2=s2, A=mixing, strength=strength, random_state=seed)
    views = "" if out.suffix == ".npz" else " --views 'U=U_*' --views 'V=V_*'"
    outcome = "" if data.y is None else " --target y"
    _print(f"{n} samples of U ({d} columns) and V ({d}) are in {out}. Next:\n  rca fit {out}{views}{outcome}")


@app.command(epilog=_examples("demo"))
def demo(
    out: Annotated[
        Path, typer.Option(help="Where the report goes; the picture goes next to it.", metavar="FILE")
    ] = Path("richcomponents-demo.html"),
    draws: Annotated[int, typer.Option(help="How often tests, controls and labs are drawn.", min=1)] = 20,
) -> None:
    """Effects of an exposure on embedded data: real measurements, hidden labs, and what each method makes of them."""
    from richcomponents.demo import run_demo
    from richcomponents.notebook import templates
    from richcomponents.outputs import check_outputs

    picture, says = out.with_suffix(".png"), templates().get_template("demo.txt").module
    check_outputs([out, picture])  # before a word is said
    _print(says.before())  # type: ignore[attr-defined]
    with _busy(f"estimating effects in {draws} draws of the labs"):
        result = run_demo(out, picture, draws)
    _print(says.after(result, draws, picture.resolve(), out.resolve()))  # type: ignore[attr-defined]


# ---- printing


def _request(data: list[Path], **given: Any) -> FitRequest:
    """What was asked for: names of columns in quotes or not, lists with commas or several times."""
    from richcomponents.commands import FitRequest
    from richcomponents.data.table import name_in, names_in

    for one in {"target", "exposure", "groups", "key"} & given.keys():
        given[one] = None if given[one] is None else name_in(given[one])
    for several in {"sets", "covariates"} & given.keys():
        given[several] = [name for part in given[several] or () for name in names_in(part)]
    command = shlex.join(["rca", *sys.argv[1:]])
    return FitRequest(data=data, **given | {"views": given["views"] or (), "command": command})


def _check_outputs(inputs: list[Path], tables: list[Path | None], *others: Path | None) -> None:
    """Refuse names that nothing can be written under, before anything is read."""
    from richcomponents.outputs import check_outputs, check_table_name

    check_outputs([*tables, *others], inputs)
    for table in tables:
        check_table_name(table)


def _names(data: list[Path]) -> str:
    return " and ".join(path.name for path in data)


def _write(result: FitResult, save: Path | None, report: Path | None, title: str) -> None:
    """The model and the report, where they are wanted."""
    from richcomponents.outputs import write_text

    if save is not None:
        result.model.save(save)
        _say(f"The model is in {save}.")
    if report is not None:
        from richcomponents.report import render

        with _busy("writing the report"):
            page = render(result.findings, title)
        write_text(report, page)
        _say(f"The report is in {report}.")


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


_say = partial(_print, err=True)


def _print_found(result: FitResult, as_json: bool, *, tables: bool = True) -> None:
    """Verdict, tables, advice, in the words of the page; or all of it as one JSON object."""
    import json

    found = result.findings
    if as_json:
        typer.echo(json.dumps(found.as_dict(), allow_nan=False).replace("\x7f", "\\u007f"))  # ASCII, for any terminal
        return
    for note in found.notes:
        _say(f"note: {note}")
    _print(f"{found.verdict.capitalize()}. {found.headline()}\n")
    for title, table in found.tables() if tables else ():
        head, *rows = str(table).splitlines()
        shown = _CLEAREST if found.effects else _SHOWN
        title += f" ({shown} of {len(rows)}: --report and --json have all)" if len(rows) > shown else ""
        _print("\n  ".join([title, head, *rows[:shown]]) + "\n")
    _print("\n".join(found.advice() if found.effects else [found.summary]))


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    from richcomponents.errors import CapacityError, DataError, StateFileError
    from richcomponents.outputs import harmless

    given = sys.argv[1:] if arguments is None else arguments
    harmless.set("--safe-csv" in given)
    if isinstance(sys.stdout, TextIOWrapper):  # names that its encoding does not have are shown as their escapes
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app([argument for argument in given if argument not in ("--debug", "--safe-csv")], prog_name="rca")
    except BrokenPipeError:
        sys.exit(1)  # the reader of our output has gone
    except Exception as error:
        if "--debug" in given:
            raise
        expected = isinstance(error, (DataError, StateFileError, CapacityError, ValueError, OSError))
        text = str(error) if expected else f"unexpected {type(error).__name__}: {error} (--debug shows where)"
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            text = f"{error.filename}: {error.strerror}"
        _say("\n".join([f"error: {text}", *getattr(error, "__notes__", ())]))
        sys.exit(1)
