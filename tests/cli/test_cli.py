"""The command line: the same numbers as the library, one JSON object, sentences instead of tracebacks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.cli import main
from richcomponents.demo import EXAMPLE

VIEWS = ["--views", "U=U_*", "--views", "V=V_*"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(1200, d=3, S2="skewed", random_state=5)


def write_csv(path, data, names, rows=None):
    table = np.column_stack([data.X, data.y])
    np.savetxt(path, table[:rows], fmt="%.17g", delimiter=",", header=",".join(names), comments="")
    return str(path)


@pytest.fixture(scope="module")
def table(folder, data):
    return write_csv(folder / "t.csv", data, [*(f"U_{i}" for i in range(3)), *(f"V_{i}" for i in range(3)), "y"])


def run(capsys, *arguments):
    """Exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err


def test_help_loads_no_scientific_library():
    code = (
        "import sys, richcomponents.cli\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'matplotlib', 'pandas', 'numba'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "sys.argv = ['rca', '--help']\n"
        "try: richcomponents.cli.main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in ("fit", "effects", "diagnose", "simulate", "demo"))


def test_fit_agrees_with_the_library(capsys, table, data):
    code, out, _ = run(capsys, "fit", table, *VIEWS, "--target", "y", "--json")
    assert code == 0
    found = json.loads(out)  # nothing else on standard output
    model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=3)).fit(data.X, data.y)
    np.testing.assert_allclose([row["RCA"] for row in found["coefficients"]], model.coef_, rtol=1e-12)
    np.testing.assert_allclose(found["A"], model.rca_.A_, rtol=1e-12)
    assert found["views"] == {"U": ["U_0", "U_1", "U_2"], "V": ["V_0", "V_1", "V_2"]}
    assert found["provenance"]["files"][table]


def test_fit_prints_tables_and_writes_the_report(capsys, table, folder):
    page = folder / "page.html"
    code, out, err = run(capsys, "fit", table, *VIEWS, "--target", "y", "--report", page)
    assert code == 0
    assert "Identification is strong" in out
    assert "naive" in out
    assert f"The report is in {page}" in err
    assert "U_2" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("model", ["none", "pca", "mixture", "ising"])
def test_models_without_an_outcome(capsys, folder, table, model):
    if model == "ising":
        code, _, err = run(capsys, "fit", table, *VIEWS, "--model", model, "--json")
        assert code == 1
        assert "does not consist of spins" in err
        table = folder / "spins.csv"
        assert run(capsys, "simulate", "--out", table, "--s1", "ising", "--s2", "skewed", "-d", 4, "-n", 2000)[0] == 0
    code, out, _ = run(capsys, "fit", table, *VIEWS, "--model", model, "--json")
    assert code == 0
    assert (json.loads(out)["model"] is None) == (model == "none")


def test_binary_target_is_logistic(capsys, folder, data):
    path = folder / "binary.csv"
    lines = ["U_0,U_1,U_2,V_0,V_1,V_2,state"]
    lines += [
        ",".join([*(f"{x:.17g}" for x in row), "sick" if y > 0 else "well"])
        for row, y in zip(data.X, data.y, strict=True)
    ]
    path.write_text("\n".join(lines))
    code, out, _ = run(capsys, "fit", path, *VIEWS, "--target", "state", "--json")
    assert code == 0
    model = rc.ComponentLogisticRegression(rca=rc.ContrastiveRCA(views=3))
    model.fit(data.X, np.where(data.y > 0, "sick", "well"))
    coefficients = [row["RCA"] for row in json.loads(out)["coefficients"]]
    np.testing.assert_allclose(coefficients, model.coef_[0], rtol=1e-9)
    code, _, err = run(capsys, "fit", path, *VIEWS, "--target", "state", "--model", "regression")
    assert code == 1
    assert "use --model logistic" in err


def test_two_files_are_two_views(capsys, folder, data, table):
    order = np.random.default_rng(0).permutation(len(data.X))
    for name, part, rows in (("tests", data.U, np.arange(len(order))), ("controls", data.V, order)):
        head = ",".join(["id", *(f"{name}{i}" for i in range(3))])
        np.savetxt(
            folder / f"{name}.csv",
            np.column_stack([rows, part[rows]]),
            fmt="%.17g",
            delimiter=",",
            header=head,
            comments="",
        )
    code, out, _ = run(capsys, "fit", folder / "tests.csv", folder / "controls.csv", "--id", "id", "--json")
    assert code == 0
    joined = json.loads(out)
    assert list(joined["views"]) == ["tests", "controls"]
    _, out, _ = run(capsys, "fit", table, *VIEWS, "--json")
    np.testing.assert_allclose(joined["A"], json.loads(out)["A"], rtol=1e-9)


def test_diagnose(capsys, table):
    code, out, _ = run(capsys, "diagnose", table, *VIEWS, "--target", "y")
    assert code == 0
    assert "verdict                  strong" in out
    assert "y and V" in out
    code, out, _ = run(capsys, "diagnose", table, *VIEWS, "--json")
    assert json.loads(out)["rank"] == 3


@pytest.mark.parametrize("ending", ["csv", "tsv", "npz", "parquet"])
@pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")
def test_simulate_then_fit(capsys, tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path, truth = tmp_path / f"sim.{ending}", tmp_path / "truth.json"
    code, out, _ = run(capsys, "simulate", "--out", path, "--truth", truth, "-n", 300, "-d", 2, "--seed", 4)
    assert code == 0
    follow = out.splitlines()[-1].replace("'", "").split()[1:]
    code, out, _ = run(capsys, *follow, "--json")
    assert code == 0
    data = rc.datasets.make_contrastive(300, d=2, S2="skewed", random_state=4)
    model = rc.ContrastiveRCA(views=2).fit(data.X)
    np.testing.assert_allclose(json.loads(out)["A"], model.A_, rtol=1e-12)
    np.testing.assert_array_equal(json.loads(truth.read_text())["A"], data.A)


def test_save(capsys, table, folder):
    if not hasattr(rc.ComponentRegression, "save"):
        pytest.skip("estimators have no save()")
    path = folder / "model.rca"
    code, _, err = run(capsys, "fit", table, *VIEWS, "--target", "y", "--save", path)
    assert code == 0
    assert f"The model is in {path}" in err
    assert path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.csv"], "there is no file nowhere.csv"),
        (["TABLE"], "say which columns of t.csv"),
        (["TABLE", *VIEWS, "--target", "z"], "t.csv has no column 'z' (the target)"),
        (["TABLE", *VIEWS, "--model", "regression"], "name its column with --target"),
        (["TABLE", *VIEWS, "--model", "pca", "--target", "y"], "leave out --target"),
        (["TABLE", *VIEWS, "--model", "forest"], "--model must be one of"),
        (["TABLE", *VIEWS, "--rank", "many"], "--rank must be auto, full or a whole number"),
        (["TABLE", *VIEWS, "--rank", "9"], "rank"),
        (["TABLE", *VIEWS, "--components", "2"], "--components goes with"),
        (["TABLE", *VIEWS, "--target", "y", "--model", "logistic"], "the target 'y' has 1200 different values"),
        (
            ["TABLE", *VIEWS, "--report", "/no/such/place/a.html"],
            "there is no folder /no/such/place to write a.html to",
        ),
    ],
)
def test_errors_are_sentences(capsys, table, arguments, message):
    code, out, err = run(capsys, "fit", *(table if argument == "TABLE" else argument for argument in arguments))
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


def test_a_model_that_is_not_there(capsys):
    assert run(capsys, "explain", "nowhere.npz") == (1, "", "error: nowhere.npz: No such file or directory\n")


def test_debug_shows_the_error(table):
    with pytest.raises(rc.DataError, match="there is no file"):
        main(["fit", "nowhere.csv", "--debug"])


def test_wrong_options_exit_with_two(capsys):
    assert run(capsys, "fit", "a.csv", "--nonsense")[0] == 2
    assert run(capsys, "simulate")[0] == 2


def test_missing_values(capsys, folder, table):
    lines = Path(table).read_text().splitlines()
    lines[3] = "," + lines[3].partition(",")[2]
    path = folder / "holes.csv"
    path.write_text("\n".join(lines))
    code, _, err = run(capsys, "fit", path, *VIEWS, "--missing", "error")
    assert code == 1
    assert "column 'U_0' of view 'U' holds a missing value" in err
    assert "--missing drop" in err
    code, _, err = run(capsys, "fit", path, *VIEWS)
    assert code == 0
    assert (
        "note: 1 of 1200 rows have missing or infinite values and were left out; 1199 are kept. Most of them lack"
        in err
    )
    code, out, _ = run(capsys, "fit", path, *VIEWS, "--missing", "available", "--target", "y", "--json")
    assert code == 0
    assert json.loads(out)["n"] == 1200
    code, _, err = run(capsys, "fit", path, *VIEWS, "--missing", "perhaps")
    assert code == 1
    assert "--missing must be error, drop, available, got 'perhaps'" in err


def test_version(capsys):
    assert run(capsys, "--version")[1].strip() == rc.__version__
    module = subprocess.run([sys.executable, "-m", "richcomponents", "--version"], capture_output=True, text=True)
    assert module.stdout.strip() == rc.__version__


@pytest.mark.filterwarnings("ignore::richcomponents.errors.WeakIdentificationWarning")
def test_demo(capsys, tmp_path):
    page, picture = tmp_path / "demo.html", tmp_path / "demo.png"
    code, out, _ = run(capsys, "demo", "--out", page, "--draws", "2")
    assert code == 0
    assert all(word in out for word in ("naive", "ANCOVA", "RUV-2", "RCA", "truth", str(page), str(picture)))
    assert "In 2 draws" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    data = rc.datasets.load_confounded_labs(EXAMPLE, n_labs=2)
    model = rc.ExposureEffects(rca=rc.ContrastiveRCA(views=10)).fit(data.X, data.y)
    assert model.verdict_ == "strong"
    assert "Verdict on this table: strong." in out
    error = np.mean((model.coef_ - data.effects) ** 2)
    assert f"{error:.4f}" in next(line for line in out.splitlines() if "mean squared error" in line)
    assert data.names[0] in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("design", "known"),
    [("mixture", ("centres", "weights")), ("ising", ("edges", "couplings")), ("regression", ("beta",))],
)
def test_all_that_is_hidden_is_written(capsys, tmp_path, design, known):
    truth = tmp_path / "truth.json"
    options = ("--truth", truth, "-n", 20, "-d", 4, "--s1", design, "--s2", "spins")
    assert run(capsys, "simulate", "--out", tmp_path / "data.csv", *options)[0] == 0
    hidden = json.loads(truth.read_text())
    for name in ("beta", "centres", "weights", "edges", "couplings"):
        assert (hidden[name] is not None) == (name in known)


def test_help_names_every_design(capsys):
    out = run(capsys, "simulate", "--help")[1]
    assert all(word in out for word in ("ising", "spins"))


def test_errors_come_with_their_notes(capsys, tmp_path, monkeypatch):
    problem = ValueError("too wide")
    problem.add_note("in draw 7")

    def fails(*given: object, **options: object) -> None:
        raise problem

    monkeypatch.setattr("richcomponents.demo.run_demo", fails)
    code, _, error = run(capsys, "demo", "--out", tmp_path / "demo.html")
    assert code == 1
    assert error == "error: too wide\nin draw 7\n"


def test_a_target_is_no_covariate(capsys, table):
    code, _, err = run(capsys, "fit", table, *VIEWS, "--target", "y", "--covariates", "y")
    assert code == 1
    assert "'y' is the target and also a covariate" in err


@pytest.mark.parametrize("command", ["fit", "diagnose"])
@pytest.mark.filterwarnings("error")
def test_a_warning_is_told_once_as_a_note(capsys, tmp_path, data, command):
    rare = (np.arange(len(data.X)) < 6).astype(float)
    np.savetxt(
        tmp_path / "t.csv", np.column_stack([data.X, rare]), delimiter=",", header="a,b,c,d,e,f,case", comments=""
    )
    code, out, err = run(capsys, command, tmp_path / "t.csv", "--views", "3", "--target", "case")
    assert code == 0, err
    assert err.count("rows are of the class") == 1
    assert all(line.startswith("note: ") for line in err.splitlines())
    code, out, err = run(capsys, command, tmp_path / "t.csv", "--views", "3", "--target", "case", "--json")
    assert (code, err) == (0, "")
    assert sum("rows are of the class" in note for note in json.loads(out)["notes"]) == 1


@pytest.fixture(scope="module")
def three(folder):
    sets = [("a",), ("b",), ("c",), ("a", "b", "c")]
    data = rc.datasets.make_views(4000, 3, 2, sets=sets, random_state=3)
    names = [f"{view}_{i}" for view in data.views for i in range(2)]
    path = folder / "three.csv"
    np.savetxt(path, data.X, fmt="%.17g", delimiter=",", header=",".join(names), comments="")
    return path, data


def test_three_views_are_any_subsets(capsys, folder, three):
    path, data = three
    views = [option for view in "abc" for option in ("--views", f"{view}={view}_*")]
    page = folder / "three.html"
    sets = ["--sets", "a,b,c", "--sets", "a+b+c"]
    code, out, _ = run(capsys, "fit", path, *views, *sets, "--report", page)
    assert code == 0
    assert "S{a, b, c} explains" in out
    assert "a_1" in page.read_text(encoding="utf-8")
    code, out, _ = run(capsys, "fit", path, *views, *sets, "--json")
    found = json.loads(out)
    model = rc.RCA(views=data.views, sets=data.sets).fit(data.X)
    mixing = {(row["view"], row["component"]): row["A"] for row in found["mixing"]}
    np.testing.assert_allclose(mixing["b", "S{a, b, c}"], model.transforms_["b", ("a", "b", "c")], rtol=1e-9)
    code, out, _ = run(capsys, "fit", path, *views, "--discover", "--model", "pca", "--component", "a+b+c", "--json")
    found = json.loads(out)
    assert found["model"]["title"].startswith("Principal directions of S{a, b, c}")
    assert found["components"][0]["component"] == "S{a, b, c}"
    code, out, _ = run(capsys, "diagnose", path, *views, *sets)
    assert code == 0
    assert "RCA of 3 views" in out
    code, _, err = run(capsys, "fit", path, *views, "--rank", "2")
    assert code == 1
    assert "such as a+b=1,a+b+c=2; got '2'" in err


def test_a_model_of_three_views_is_kept_applied_and_explained(capsys, folder, three):
    path, data = three
    views = [option for view in "abc" for option in ("--views", f"{view}={view}_*")]
    saved, out_file = folder / "three.npz", folder / "common.csv"
    options = ["--sets", "a,b,c,a+b+c", "--rank", "a+b+c=1", "--order", "3", "--save", saved]
    assert run(capsys, "fit", path, *views, *options)[0] == 0
    model = rc.RCA(views=data.views, sets=data.sets, rank={("a", "b", "c"): 1}, order=3).fit(data.X)
    assert run(capsys, "transform", saved, path, "--component", "a+b+c", "--out", out_file)[0] == 0
    found = np.loadtxt(out_file, delimiter=",", skiprows=1)
    np.testing.assert_allclose(found, model.transform(data.X, ("a", "b", "c")), rtol=1e-8, atol=1e-8)
    code, out, _ = run(capsys, "explain", saved)
    assert code == 0
    assert out.strip() == model.summary().strip()
    state = folder / "state.npz"
    rc.Moments.of(data.X).save(state)
    code, _, err = run(capsys, "explain", state)
    assert code == 1
    assert "a Moments is no model: save one with rca fit" in err


def test_a_component_belongs_to_a_model(capsys, table):
    code, _, err = run(capsys, "fit", table, *VIEWS, "--component", "S3")
    assert code == 1
    assert "name one with --model" in err
    code, out, _ = run(capsys, "fit", table, *VIEWS, "--component", "S3", "--model", "pca", "--json")
    assert code == 0
    assert json.loads(out)["model"]["rows"][0]["name"] == "V_0"


def test_help_knows_what_is_read(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    told = " ".join(re.sub("[│ ]+", " ", capsys.readouterr().out).split())
    for part in (".npy", ".zarr", ".h5mu", "several (one view each)", "removed from all views", "three or more views"):
        assert part in told, part
    assert "both views" not in told


def test_results_come_out_as_tables(capsys, tmp_path):
    """Fit, then the component and the predictions of a larger table, with its labels; gaps are noted."""
    table, new = tmp_path / "sim.csv", tmp_path / "new.csv"
    run(capsys, "simulate", "--out", table, "-n", 600, "-d", 3)
    text = table.read_text().splitlines()
    labelled = [f"who,{text[0]},note", *(f"p{i},{line},x" for i, line in enumerate(text[1:], 1))]
    labelled[2] = "p2,," + labelled[2].split(",", 2)[2]  # its first test is missing
    new.write_text("\n".join(labelled))
    views = ["--views", "U=U_*", "--views", "V=V_*"]
    out = {name: tmp_path / f"{name}.csv" for name in ("coefficients", "cleaned", "component", "predicted")}
    run(capsys, "fit", table, *views, "--target", "y", "--coefficients", out["coefficients"], "--cleaned", out["cleaned"],
        "--save", tmp_path / "m.npz", "--missing", "error")  # fmt: skip
    code, _, err = run(capsys, "transform", tmp_path / "m.npz", new, "--out", out["component"], "--id", "who")
    assert code == 0
    assert "note: 1 rows have missing values: their cells are empty.\nComponent S1 of every row: see" in err
    run(capsys, "predict", tmp_path / "m.npz", new, "--out", out["predicted"], "--id", "who")
    rows = {name: [line.split(",") for line in path.read_text().splitlines()] for name, path in out.items()}
    assert [row[0] for row in rows["coefficients"]] == ["name", '"U_0"', '"U_1"', '"U_2"']
    assert rows["cleaned"][0] == ["U_0", "U_1", "U_2"]
    assert rows["component"][0] == ["who", "U_0", "U_1", "U_2"]
    assert rows["component"][2] == ['"p2"', "", "", ""]
    assert rows["component"][5][1:] == rows["cleaned"][5]
    assert rows["predicted"][0] == ["who", "prediction"]
    assert len(rows["predicted"]) == 601
    for arguments, message in (
        (["transform", tmp_path / "m.npz", new, "--component", "S9", "--out"], "its components are S1, S2, S3"),
        (["fit", table, *views, "--coefficients"], "--coefficients are those of a model"),
    ):
        code, _, err = run(capsys, *arguments, tmp_path / "x.csv")
        assert code == 1
        assert message in err
        assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize("target", [[], ["--target", "y"]])
def test_method_of_the_paper(capsys, table, target, tmp_path):
    page = tmp_path / "page.html"
    code, out, _ = run(capsys, "fit", table, *VIEWS, "--method", "paper", "--report", page, *target)
    assert code == 0
    assert "not checked" in out
    assert "nan" not in out
    assert page.exists()
