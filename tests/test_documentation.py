"""What the documents say is true: every line of Python and every `rca` command in them runs, every name in them exists.

Fenced blocks of Python run as they stand, document by document, in a folder of small files (`folder`) that have the names the
documents give to a reader's own. A block that is not to be run is fenced as `text`. Code inside the text is checked by the
first rule of `check_inline` that knows its form, and a span that no rule knows is a fault. What is scaled down, parsed only
or not run is named in SMALLER, PARSED_ONLY and NOT_RUN.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
import shlex
import shutil
import sys
import tomllib
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import reproduction.__main__ as reproduction
import sklearn.preprocessing
import typer

import richcomponents
import richcomponents as rc
import richcomponents.report
from richcomponents.cli import EXAMPLES, app, main
from tests.documents import fenced, prose, shell_lines

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)
D = 10  # columns of a view of a table in memory; the documents say views=10
TESTS, CONTROLS = ["T_1", "T_2", "T_3"], ["C_1", "C_2", "C_3"]  # those of a file

SMALLER = {  # as written it takes seconds more and says nothing more
    "make_views(100_000, ": "make_views(20_000, ",
    "make_views(20_000, {": "make_views(5_000, {",
    "grid_edges(5, 5)": "grid_edges(3, 3)",
}
PARSED_ONLY = {  # commands whose options are read, no more
    "demo": "tests/cli runs it",
}
NOT_RUN = {
    'Client("tcp://scheduler:8786")': "needs a cluster; tests/moments/test_dask.py starts one",
    "distributed.Client": "the same",
    "lint-imports": "a command of `make check`",
    "kill -9": "a signal, not a command to type; `make torture` sends it",
}
WORDS = {
    "sample",
    "disease",
    "NA",
    "index.html",
    "rows.csv",
    "page.html",
    "FutureWarning",
    "rca",
    ".venv",
}  # a reader's columns and cells; files that are made
ENDINGS = set(".csv .tsv .tab .txt .gz .npy .npz .parquet .zarr .h5ad .h5mu".split())  # noqa: SIM905
MODEL_NAMES = {"pca", "mixture", "ising", "logistic", "regression"}

# ---- the documents


def scaled(code):
    return re.sub("|".join(map(re.escape, SMALLER)), lambda match: SMALLER[match[0]], code)


def inline(document):
    """Code inside the text, on one line; ~ in a role only says that the last name is shown, and <...> where it leads."""
    text = re.sub(r"^    .*$", "", prose(document), flags=re.M)
    text = re.sub(r" <api/[\w.]+>(?=`)", "", text)
    return [re.sub(r"\s+", " ", span) for span in dict.fromkeys(re.findall(r"`~?([^`]+)`", text))]


every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)

# ---- a reader's own files and tables


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(1000, d=D, S1="logistic", S2="skewed", A="good", random_state=0)


@pytest.fixture(scope="module")
def files(tmp_path_factory, data):
    """One small file for every name of a reader's file in the documents."""
    import anndata
    import mudata
    import zarr

    folder = tmp_path_factory.mktemp("reader")
    rng = np.random.default_rng(0)
    pd.DataFrame(data.X).add_prefix("x").to_csv(folder / "numbers.csv", index=False)
    U, V = data.U[:, :3], data.V[:, :3]
    frame = pd.DataFrame(np.hstack([U, V]), columns=TESTS + CONTROLS)
    frame.assign(outcome=U[:, 0] + rng.normal(size=len(frame))).to_parquet(folder / "cells.parquet", index=False)
    for part in (1, 2):
        frame[part - 1 :: 2].to_parquet(folder / f"part-{part}.parquet", index=False)
    known = {
        "disease": np.where(np.asarray(data.y) == 1, "case", "control"),
        "age": rng.normal(50, 10, len(frame)).round(),
        "sex": rng.integers(0, 2, len(frame)),
        "subject": [f"s{i // 2}" for i in range(len(frame))],
        **dict(zip("abc", U.T, strict=True)),
        **{f"I_{i}": data.X[:, i] + rng.exponential(size=len(frame)) for i in (1, 2, 3)},
    }
    frame.assign(**known).to_csv(folder / "table.csv", index=False)
    label = [f"p{i}" for i in range(len(frame))]
    for name, columns in (("tests.csv", TESTS), ("controls.csv", CONTROLS)):
        frame[columns].assign(sample=label).to_csv(folder / name, index=False)
    zarr.open_group(str(folder / "cells.zarr"), mode="w").create_array("X", data=data.X)
    cells = anndata.AnnData(U.copy(), var=pd.DataFrame(index=TESTS), layers={"counts": U.copy()})
    proteins = anndata.AnnData(V.copy(), var=pd.DataFrame(index=CONTROLS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries about their own future
        cells.write_h5ad(folder / "cells.h5ad")
        mudata.MuData({"rna": cells, "protein": proteins}).write(folder / "cells.h5mu")
    for site, rows in (("a", slice(0, 500)), ("b", slice(500, None))):
        rc.Moments.of(data.X[rows], order=4).folded().save(folder / f"{site}.npz")
    return folder


@pytest.fixture
def folder(files, tmp_path, monkeypatch):
    """A copy of the reader's files, which is where the test runs."""
    here = tmp_path / "here"
    shutil.copytree(files, here)
    monkeypatch.chdir(here)
    return here


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setitem(mpl.rcParams, "backend", "agg")
    yield
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is not None:
        plt.close("all")


def rca(*words):
    """Run a command as typed; its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return ended.value.code or 0


# ---- blocks and commands


@every_document
def test_blocks_of_python_run(document, folder, data, capsys):
    blocks = fenced(document)
    assert {language for language, _ in blocks} <= {"python", "text"}
    namespace = {"table": data.X}
    for language, code in blocks:
        if language == "python":
            exec(compile(scaled(code), document.name, "exec"), namespace)


def test_there_are_blocks_and_commands():
    assert sum(language == "python" for document in DOCUMENTS for language, _ in fenced(document)) >= 6
    assert sum(words[0] == "rca" for document in DOCUMENTS for words in shell_lines(document)) >= 8


@every_document
def test_commands_run(document, folder, capsys):
    for command, *arguments in shell_lines(document):
        if command == "make":
            assert arguments[0] in make_targets()
        elif command == "pip":
            assert arguments[0] == "install"
        elif command == "python":
            assert arguments[:2] == ["-m", "reproduction"]
            reproduction.command_line().parse_args(arguments[2:])  # it takes minutes; tests/reproduction run it
        else:
            check_command(arguments, capsys)


def check_command(arguments, capsys):
    if arguments[0] in PARSED_ONLY:
        parsed(arguments)
    else:
        assert rca(*arguments) == 0, (arguments, capsys.readouterr().err)


@pytest.mark.parametrize("command", [name for name in EXAMPLES if name])
def test_examples_of_the_help_run(command, folder, capsys):
    """What `rca COMMAND --help` and the page of the command give as examples."""
    if command in ("transform", "predict", "explain"):
        fit = "fit table.csv --views tests=T_* --views controls=C_* --target disease --save model.npz"
        rca(*shlex.split(fit))
    for _, line in EXAMPLES[command]:
        check_command(shlex.split(line)[1:], capsys)


def test_examples_of_the_first_help_run_in_their_order(folder, capsys):
    for _, line in EXAMPLES[""]:
        check_command(shlex.split(line)[1:], capsys)


def test_every_command_has_examples():
    assert {*typer.main.get_command(app).commands} == {name for name in EXAMPLES if name}


def make_targets():
    return set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))


def parsed(arguments):
    """The words of a command as its options, without running it; an option that does not exist is an error."""
    command = typer.main.get_command(app).commands[arguments[0]]
    return command.make_context(arguments[0], list(arguments[1:])).params


def options_of_commands():
    commands = typer.main.get_command(app)
    own = [option for command in (commands, *commands.commands.values()) for option in command.params]
    return {text for option in own for text in (*option.opts, *option.secondary_opts)} | {"--help"}


# ---- links


@every_document
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)\)", prose(document)):
        made = target.startswith("pictures/") and target.removeprefix("pictures/").removesuffix(".svg") in drawn()
        assert made or target.startswith("https://") or (document.parent / target).exists(), target


def drawn():
    """The pictures that are drawn when the site is built."""
    return set(re.findall(r'"([\w-]+)": \w+', (ROOT / "docs" / "pictures.py").read_text().split("PICTURES = ")[1]))


# ---- code inside the text


@pytest.fixture(scope="module")
def names(data):
    """What the names in the documents' text stand for: the public ones, and a reader's data and fitted models."""
    X, y = data.X, np.asarray(data.y)
    model = rc.ContrastiveRCA(views=D).fit(X)
    several = rc.datasets.make_views(4000, 3, 2, sets=[("a",), ("b",), ("c",), ("a", "b", "c")])
    return {name: getattr(rc, name) for name in rc.__all__} | {
        "rc": rc,
        "richcomponents": richcomponents,
        "X": X,
        "data": data,
        "y": y,
        "U": data.U,
        "V": data.V,
        "u": range(D),
        "v": range(D, 2 * D),
        "theta": np.ones(2 * D),
        "order": 4,
        "block": X,
        "subject": np.arange(len(X)) // 2,
        "state": rc.Moments.of(X),
        "a": rc.Moments.of(X[:500]),
        "b": rc.Moments.of(X[500:]),
        "state_a": rc.Moments.of(X[:500]),
        "state_b": rc.Moments.of(X[500:]),
        "rca": rc.ContrastiveRCA(views=D),
        "model": model,
        "learner": rc.ComponentPCA(rca=rc.ContrastiveRCA(views=D)).fit(X),
        "component": model.components_["S1"],
        "cross": np.cov(data.U.T, y)[:-1, -1],
        "general": rc.RCA(views=several.views, sets=several.sets).fit(several.X),
        "effects": rc.ExposureEffects(rca=rc.ContrastiveRCA(views=D)).fit(X, y),
        "classifier": rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=D)).fit(X, y),
        "regression": rc.ComponentRegression(rca=rc.ContrastiveRCA(views=D), shared=True).fit(X, y),
    }


STANDS_FOR = [  # where a name means something else, or a span is part of a longer one: (what it holds, names)
    ("rc.grid_edges(", lambda n: {"X": spins(), "rca": rc.ContrastiveRCA(views=9)}),
    ('array="X"', lambda n: {"path": "cells.zarr"}),
    ("header=True", lambda n: {"path": "table.csv"}),
    ('layer="counts"', lambda n: {"path": "cells.h5ad"}),
    ("model.system_", lambda n: {"model": n["general"]}),
    ('.components_["S1"], cross', lambda n: {"learner": rc.ComponentRegression()}),
    ("log_likelihood", lambda n: {"log_likelihood": lambda t, s, y=0.0: -((y - s @ t) ** 2), "start": np.zeros(D)}),
    ("fit_.", lambda n: {"fit_": rc.fit_likelihood(n["component"], lambda t, s: s[:, 0] - np.logaddexp(0, s @ t))}),
    ("baselines", lambda n: {"learner": rc.ComponentLogisticRegression(rca=n["rca"])}),
]


def spins():
    return rc.datasets.make_contrastive(1000, d=9, S1="ising", S2="spins", A="good", random_state=0).X


def begun_with(span):
    """The whole of an expression of which the text gives the end."""
    if span.startswith(".fit(") and "parquet" in span:
        return f'rc.ContrastiveRCA(views={{"tests": {TESTS}, "controls": {CONTROLS}}}){span}'
    if span.startswith("."):
        return f"rc.ContrastiveRCA(views={D}){span}"
    if span.startswith("diagnostics_."):
        return f"model.{span}"
    if span.startswith("set_output("):
        return f"sklearn.preprocessing.StandardScaler().{span}"
    return f"model.{span}" if re.match(r"[a-z]\w*\(", span) else span


def known_names(names):
    """Public names, their methods and fitted attributes, and the parameters of all of these."""
    public = [getattr(rc, name) for name in rc.__all__]
    classes = [what for what in public if inspect.isclass(what)]
    methods = [member for what in classes for _, member in inspect.getmembers(what, callable)]
    found = {*rc.__all__, *dir(rc.baselines)}
    for what in classes:
        found |= set(dir(what))
    for key in ("model", "learner", "general", "classifier", "regression", "effects"):
        found |= set(vars(names[key]))
    for what in (*public, *methods):
        with contextlib.suppress(TypeError, ValueError):
            found |= set(inspect.signature(what).parameters)
    return found


def check_inline(span, names, known):
    """One piece of code in the text: run where it can run, else every name in it exists."""
    words = shlex.split(span) if span.startswith(("rca ", "make ", "pip ", "python ", "--")) else [span]
    if span in NOT_RUN or span in WORDS or span in ENDINGS or span in MODEL_NAMES:
        return
    if words[0] == "make":
        assert words[1] in make_targets()
    elif words[0] == "rca" and (len(words) == 2 or words[1] in PARSED_ONLY):
        assert words[1] in {*typer.main.get_command(app).commands} | options_of_commands()
        assert {word for word in words if word.startswith("--")} <= options_of_commands()
    elif words[0] == "rca":
        assert rca(*words[1:]) == 0
    elif words[0].startswith("--"):
        check_options(words)
    elif words[0] == "pip":
        assert set(re.search(r"\[(.*)\]", span)[1].split(",")) <= extras()
    elif words[0] == "python":
        place = words[1] if words[1] != "-m" else words[2].replace(".", "/")
        assert (ROOT / place).exists() or (ROOT / f"{place}.py").exists()
    elif "/" in span:
        assert list(ROOT.glob(span)) or span == "figures/"
    elif re.fullmatch(r"\.?\w+(\(\))?", span):
        assert span.strip(".()") in known | extras(), span
    elif match := re.match(r"(\w+)=(?!=)", span):
        assert match[1] in known, span
        ast.parse(f"f({span}0)" if span.endswith("=") else f"f({span})")
    elif re.fullmatch(r'"\w+"', span):  # the value of a parameter named just before
        assert span.strip('"') in inspect.getsource(sys.modules["richcomponents.models.logistic"])
    else:
        whole = begun_with(scaled(span)).replace("rca=...", "rca=rca")
        meant = {**names, "sklearn": sklearn}
        for part, other in STANDS_FOR:
            meant |= other(meant) if part in span else {}
        eval(compile(whole, "<inline>", "eval"), meant)


def check_options(words):
    """Options of the command line by themselves: on a small table, unless a value is left open."""
    options = [word for word in words if word.startswith("--")]
    assert set(options) <= options_of_commands()
    if words[-1] == "FILE" or (
        len(words) == 1 and words[0] not in ("--json", "--missing drop", "--debug", "--safe-csv")
    ):
        return
    table, views = "table.csv", ["--views", "tests=T_*", "--views", "controls=C_*"]
    if "--views" in words:
        table, views = {"10": "numbers.csv", "protein": "cells.h5mu"}.get(words[-1], "table.csv"), []
    command = "effects" if {"--exposure", "--reference", "--out"} & {*options} else "fit"
    target = ["--target", "disease"] if "--positive" in words else []
    if command == "effects":
        target = ["--exposure", "disease"] if "--exposure" not in words else []
    assert rca(command, table, *views, *target, *words) == 0


def extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return set(project["project"]["optional-dependencies"])


@pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")
@pytest.mark.filterwarnings("ignore::richcomponents.errors.SampleSizeWarning")
@every_document
def test_code_in_the_text_is_right(document, folder, names, capsys):
    known = known_names(names)
    faults = {}
    for span in inline(document):
        try:
            check_inline(span, names, known)
        except Exception as error:
            faults[span] = f"{type(error).__name__}: {error}"
    assert not faults, "\n".join(faults)


def test_standard_errors_are_where_the_readme_says(data):
    least, ridge = (
        rc.ComponentRegression(alpha=alpha, rca=rc.ContrastiveRCA(views=D)).fit(data.X, data.S1[:, 0])
        for alpha in (0.0, 0.1)
    )
    assert np.all(least.coefficients_.standard_error > 0)
    assert ridge.coefficients_ is None
