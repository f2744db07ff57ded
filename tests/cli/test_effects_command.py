"""rca effects: the numbers of the library, one table, one page, sentences instead of tracebacks."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import richcomponents as rc
from richcomponents.cli import main

TESTS = ["T_0", "T_1", "a, b", "<b>bold</b>"]
CONTROLS = [f"C_{i}" for i in range(6)]
VIEWS = ["--views", "tests=T_*,a? b,<b>*", "--views", "controls=C_*"]


@pytest.fixture(scope="module")
def frame():
    data = rc.datasets.make_confounded(500, d_u=4, d_v=6, effects=0.4, binary_exposure=True, random_state=3)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(data.X, columns=TESTS + CONTROLS)
    return frame.assign(
        disease=np.where(data.y == 1, "case", "control"),
        arm=np.where(data.y == 1, np.where(np.arange(500) % 2, "low", "high"), "placebo"),
        dose=data.y + rng.normal(size=500),
        ill=data.y.astype(int),
        age=rng.normal(50, 10, 500).round(),
        subject=[f"s{i // 2}" for i in range(500)],
        one=1.0,
        same="same",
        rare=["x"] * 2 + ["y"] * 498,
        who=[f"p{i}" for i in range(500)],
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory, frame):
    path = tmp_path_factory.mktemp("effects") / "t.csv"
    frame.to_csv(path, index=False)
    return path


def run(capsys, *arguments):
    """Exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as ended:
        main(["effects", *(str(argument) for argument in arguments)])
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err


def fitted(frame, y, **options):
    rca = rc.ContrastiveRCA(views={"tests": TESTS, "controls": CONTROLS}, covariates=options.pop("covariates", None))
    return rc.ExposureEffects(rca=rca, **options).fit(frame[[*TESTS, *CONTROLS, "age"]], y)


def test_all_outputs_agree_with_the_library(capsys, tmp_path, frame, table):
    page, out, saved = tmp_path / "page.html", tmp_path / "effects.csv", tmp_path / "model.npz"
    options = [
        "--exposure",
        "disease",
        "--covariates",
        "age",
        "--report",
        page,
        "--out",
        out,
        "--save",
        saved,
        "--json",
    ]
    code, text, err = run(capsys, table, *VIEWS, *options)
    assert code == 0
    told = json.loads(text)  # nothing else on standard output
    model = fitted(frame, frame["disease"], covariates=["age"])
    wanted = model.effects_.to_frame()
    assert [row["name"] for row in told["exposures"][0]["effects"]] == TESTS
    np.testing.assert_allclose(
        [row["estimate"] for row in told["exposures"][0]["effects"]], wanted["estimate"], rtol=1e-9
    )
    written = pd.read_csv(out)
    assert list(written) == ["name", "exposure", *(title for title in wanted if title != "name")]
    assert list(written["name"]) == TESTS  # commas and markup are data
    assert set(written["exposure"]) == {"disease=case"}
    for title in wanted.columns[1:]:
        np.testing.assert_allclose(written[title], wanted[title], rtol=1e-9)
    np.testing.assert_allclose(rc.load(saved).coef_, model.coef_, rtol=1e-9)
    html = page.read_text(encoding="utf-8")
    assert "<b>bold</b>" not in html
    assert "&lt;b&gt;bold&lt;/b&gt;" in html
    assert told["covariates"] == ["age"]
    assert told["notes"] == list(model.notes_)
    assert all(f"is in {path}" in err for path in (page, out, saved))


def test_the_verdict_is_the_first_word(capsys, frame, table):
    code, out, err = run(capsys, table, *VIEWS, "--exposure", "disease")
    assert code == 0
    model = fitted(frame, frame["disease"])
    assert out.lower().startswith(model.verdict_)
    lines = out.splitlines()
    assert all(title in out for title in ("estimate", "adjusted", "naive", "95% interval", " p ", " q"))
    assert max(map(len, (line for line in lines if line.startswith("  ")))) <= 110
    assert "held out and treated as a test" in out
    assert "note: disease: case" in err
    assert "--report page.html" in out


def test_only_the_clearest_of_many_are_printed(capsys, tmp_path):
    data = rc.datasets.make_confounded(300, d_u=12, d_v=4, random_state=1)
    np.savetxt(tmp_path / "w.csv", np.column_stack([data.X, data.y]), delimiter=",", comments="",
               header=",".join([*(f"g{i}" for i in range(12)), *(f"c{i}" for i in range(4)), "dose"]))  # fmt: skip
    code, out, _ = run(
        capsys, tmp_path / "w.csv", "--views", "tests=g*", "--views", "controls=c*", "--exposure", "dose"
    )
    assert code == 0
    assert "the clearest first (10 of 12" in out
    assert sum(line.startswith("  g") for line in out.splitlines()) == 10


@pytest.mark.parametrize(
    ("options", "exposures"),
    [
        (["disease", "--positive", "control"], ["disease=control"]),
        (["disease", "--positive", "CASE", "--reference", "control"], ["disease=case"]),
        (["ill"], ["ill"]),
        (["ill", "--positive", "0"], ["ill=0"]),
        (["arm"], ["arm=high", "arm=low"]),
        (["arm", "--reference", "low"], ["arm=high", "arm=placebo"]),
        (["dose"], ["dose"]),
    ],
)
def test_which_class_is_compared(capsys, table, frame, options, exposures):
    code, out, _ = run(capsys, table, *VIEWS, "--exposure", *options, "--json")
    assert code == 0
    told = {one["exposure"]: one for one in json.loads(out)["exposures"]}
    assert list(told) == exposures
    if exposures == ["disease=control"]:
        mine = [row["estimate"] for row in told["disease=control"]["effects"]]
        np.testing.assert_allclose(mine, -fitted(frame, frame["disease"]).coef_, rtol=1e-6)


def test_other_doors_give_the_same_numbers(capsys, tmp_path, frame, table):
    frame.to_parquet(tmp_path / "t.parquet")
    frame[[*TESTS, "disease"]].assign(id=range(500)).to_csv(tmp_path / "tests.csv", index=False)
    shuffled = frame[CONTROLS].assign(id=range(500)).sample(frac=1, random_state=0)
    shuffled.to_csv(tmp_path / "controls.csv", index=False)
    doors = [
        [table, *VIEWS],
        [tmp_path / "t.parquet", *VIEWS],
        [tmp_path / "tests.csv", tmp_path / "controls.csv", "--id", "id"],
    ]
    found = [json.loads(run(capsys, *door, "--exposure", "disease", "--json")[1]) for door in doors]
    numbers = [[row["estimate"] for row in one["exposures"][0]["effects"]] for one in found]
    np.testing.assert_allclose(numbers[1:], [numbers[0]] * 2, rtol=1e-8)


def test_groups_and_tabs(capsys, tmp_path, table):
    out = tmp_path / "e.tsv"
    code, *_ = run(capsys, table, *VIEWS, "--exposure", "disease", "--groups", "subject", "--out", out)
    assert code == 0
    with out.open(newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    assert [row[0] for row in rows] == ["name", *TESTS]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--exposure", "diseas"], "t.csv has no column 'diseas' (the exposure); did you mean 'disease'"),
        (["--exposure", "one"], "the exposure 'one' is 1 in every row: there is nothing to compare"),
        (["--exposure", "same"], "the exposure 'same' is 'same' in every row"),
        (["--exposure", "rare"], "is 'x' in 2 rows only"),
        (["--exposure", "who"], "is it an identifier?"),
        (["--exposure", "C_1", "--views", "u=T_0,T_1", "--views", "v=C_1,C_2"], "'C_1' is in a view and also the exposure"),
        (["--exposure", "disease", "--covariates", "disease"], "'disease' is the exposure and also a covariate"),
        (["--exposure", "disease", "--positive", "sick"], "--positive sick is not a class of 'disease'"),
        (["--exposure", "disease", "--reference", "sick"], "'sick' is not a class of 'disease'"),
        (["--exposure", "disease", "--positive", "case", "--reference", "case"], "is compared with 'control'"),
        (["--exposure", "arm", "--positive", "low"], "--positive names one of two classes"),
        (["--exposure", "dose", "--positive", "1"], "--positive names a class, and the exposure 'dose' holds numbers"),
        (["--exposure", "disease", "--out", "e.xlsx"], "a table's name ends in .csv, .tsv, .parquet"),
        (["--exposure", "disease", "--rank", "many"], "--rank must be"),
        (["--exposure", "disease", "--views", "a=T_0", "--views", "b=T_1", "--views", "c=C_*"], "effects take two views"),
    ],
)  # fmt: skip
def test_refusals_are_sentences(capsys, table, options, message):
    views = [] if "--views" in options else VIEWS
    code, out, err = run(capsys, table, *views, *options)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_outputs_are_compared_first(capsys, table, tmp_path):
    code, _, err = run(capsys, table, *VIEWS, "--exposure", "disease", "--out", table)
    assert code == 1
    assert "would overwrite the input" in err
    same = tmp_path / "a.csv"
    code, _, err = run(capsys, table, *VIEWS, "--exposure", "disease", "--out", same, "--report", same)
    assert code == 1
    assert "two outputs are one file" in err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_any_terminal_shows_any_name(monkeypatch, tmp_path, frame, options):
    """What its encoding does not have stands as an escape."""
    frame.rename(columns={"T_0": "T_\u540d"}).to_csv(tmp_path / "t.csv", index=False)
    shown = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", shown)
    with pytest.raises(SystemExit) as ended:
        main(["effects", str(tmp_path / "t.csv"), *VIEWS, "--exposure", "disease", *options])
    shown.flush()
    assert not ended.value.code
    text = shown.buffer.getvalue().decode("ascii" if options else "cp1252")
    assert r"T_\u540d" in text
    if options:
        assert json.loads(text)["exposures"][0]["effects"][0]["name"] == "T_\u540d"


def test_names_that_a_spreadsheet_would_obey(capsys, tmp_path, frame):
    path, out = tmp_path / "t.csv", tmp_path / "e.csv"
    frame.rename(columns={"disease": "=HYPERLINK(1)"}).to_csv(path, index=False)
    for options, name in (([], "=HYPERLINK(1)=case"), (["--safe-csv"], "'=HYPERLINK(1)=case")):
        assert run(capsys, path, *VIEWS, "--exposure", "=HYPERLINK(1)", "--out", out, *options)[0] == 0
        with out.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert {row["exposure"] for row in rows} == {name}
        assert all(np.isfinite(float(row["estimate"])) for row in rows)  # numbers below zero begin with a minus, too


def test_debug_and_usage(capsys, table):
    assert run(capsys, table, *VIEWS)[0] == 2
    with pytest.raises(rc.DataError, match="diseas"):
        main(["effects", str(table), *VIEWS, "--exposure", "diseas", "--debug"])


def test_a_failed_check_of_the_controls_is_told_once(capsys, tmp_path):
    data = rc.datasets.make_confounded(800, d_u=4, d_v=8, invalid={2: 1.5}, random_state=2)
    names = [*(f"T_{i}" for i in range(4)), *(f"C_{i}" for i in range(8)), "dose"]
    path = tmp_path / "t.csv"
    pd.DataFrame(np.column_stack([data.X, data.y]), columns=names).to_csv(path, index=False)
    code, out, err = run(capsys, path, "--views", "tests=T_*", "--views", "controls=C_*", "--exposure", "dose")
    assert code == 0
    assert out.count("Warning: The controls go with the exposure in a way they do not share with the tests") == 1
    assert "C_2" in out
    assert "note" not in err


def test_it_runs_without_pandas(tmp_path, table):
    code = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'pandas': raise ModuleNotFoundError(name, name='pandas')\n"
        "sys.meta_path.insert(0, Without())\n"
        "from richcomponents.cli import main\n"
        f"main(['effects', {str(table)!r}, '--views', 'tests=T_*', '--views', 'controls=C_*', '--exposure', 'disease'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "T_1" in done.stdout


@pytest.mark.parametrize(
    "options", [["--exposure", "disease"], ["--exposure", "arm"], ["--exposure", "ill", "--positive", "1"]]
)
def test_a_saved_model_transforms_tables_that_hold_the_exposure_as_it_was_written(
    capsys, tmp_path, table, frame, options
):
    saved, out = tmp_path / "model.npz", tmp_path / "clean.csv"
    code, _, _ = run(capsys, table, *VIEWS, *options, "--covariates", "age", "--save", saved)
    assert code == 0
    with pytest.raises(SystemExit) as ended:
        main(["transform", str(saved), str(table), "--id", "who", "--out", str(out)])
    assert not ended.value.code, capsys.readouterr().err
    found = pd.read_csv(out)
    assert list(found) == ["who", *TESTS]
    model = rc.load(saved)
    np.testing.assert_allclose(found[TESTS], model.rca_.transform(frame), rtol=1e-8)
    strange = frame.assign(**{options[1]: "elsewhere"})
    with pytest.raises(rc.DataError, match="is 'elsewhere' in row 0, and the fit knew"):
        model.rca_.transform(strange)
