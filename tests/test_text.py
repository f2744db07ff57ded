"""Names that a terminal would obey are shown, not obeyed, wherever they are printed."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import richcomponents as rc
from richcomponents.cli import main

ESCAPE = "\x1b]0;owned\x07\x1b[2Ja"
NAMES = [
    ESCAPE,
    "b\rfine",
    "c\u202egnp.exe",
    "d\x9b31m\nverdict: strong",
    "e\u2066\u200b",
    "f\tg",
    "v\x08\x7f",
    "w\udcff",
]


def is_shown(text):
    return all(c == "\n" or c.isprintable() for c in text)


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(600, d=4, S2="skewed", random_state=3)


@pytest.fixture(scope="module")
def frame(data):
    return pd.DataFrame(data.X, columns=NAMES)


VIEWS = {"U\x1b[1m": NAMES[:4], "V\r": NAMES[4:]}
LEARNERS = {
    "rca": None,
    "pca": rc.ComponentPCA(),
    "regression": rc.ComponentRegression(),
    "ridge": rc.ComponentRegression(0.1),
    "logistic": rc.ComponentLogisticRegression(),
    "mixture": rc.ComponentGaussianMixture(1, n_init=1),
    "ising": rc.ComponentIsing(fields=True),
}


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_summaries(data, frame, learner):
    rca = rc.ContrastiveRCA(views=VIEWS)
    y = np.where(data.y > 0, "high\x1b[0m", "low\r") if hasattr(learner, "predict_proba") else data.y
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = rca.fit(frame) if learner is None else learner.set_params(rca=rca).fit(frame, y)
    text = model.summary()
    assert is_shown(text)
    assert is_shown(repr(model))
    assert all(is_shown(str(one.message)) for one in caught)
    if learner is not None:
        assert "b\\rfine" in text  # told apart, and told what it is
    names = NAMES[:4] if learner is None else list(model.component_.feature_names)
    assert names == NAMES[:4]  # kept as they are


def test_summaries_of_several_views(data, frame):
    views = {"a\x1b[2J": NAMES[:2], "b\n": NAMES[2:4], "c\u202e": NAMES[4:]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = rc.RCA(views=views, sets=[list(views), *([view] for view in views)]).fit(frame).summary()
    assert is_shown(text)
    assert "a\\x1b[2J" in text


def test_long_names_do_not_widen_every_row(data, frame):
    long = frame.rename(columns={NAMES[0]: "x" * 100_000 + "end"})
    views = {"U": list(long.columns[:4]), "V": list(long.columns[4:])}
    text = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=views)).fit(long, data.y).summary()
    assert max(map(len, text.split("\n"))) < 300
    assert "…" in text
    assert "xend" in text


def test_warnings(frame):
    flat = frame.assign(**{NAMES[1]: 1.0})
    with pytest.warns(rc.ConstantColumnWarning) as caught:
        rc.ContrastiveRCA(views=VIEWS).fit(flat)
    assert all(is_shown(str(one.message)) for one in caught)


@pytest.mark.parametrize("name", NAMES)
def test_errors(frame, name, tmp_path):
    broken = frame.assign(**{name: np.nan})
    with pytest.raises(rc.DataError) as told:
        rc.ContrastiveRCA(views=VIEWS).fit(broken)
    assert is_shown(str(told.value))
    with pytest.raises(rc.DataError) as told:
        rc.ContrastiveRCA(views={name: NAMES[:4], "V": ["nothing"]}).fit(frame)
    assert is_shown(str(told.value))
    strange = tmp_path / f"{name.replace('/', '')}.npz"
    strange.write_bytes(b"nothing")
    with pytest.raises(rc.StateFileError) as bad:
        rc.load(strange)
    assert is_shown(str(bad.value))


def run(capsys, *arguments):
    try:
        main(list(map(str, arguments)))
        code = 0
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def table(tmp_path, data):
    """Columns of a CSV file whose names are quoted, and no line breaks in them."""
    names = [f"U{name}".replace("\n", " ") for name in NAMES[:4]] + [f"V{i}\x1b[5m" for i in range(4)] + ["y\x1b[7m"]
    path = tmp_path / "t\x1b[31m.csv"
    lines = [",".join(f'"{name}"' for name in names)]
    lines += [",".join(map(repr, row)) for row in np.column_stack([data.X, data.y]).tolist()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    return path


def test_the_command_line(capsys, table, tmp_path):
    views = ["--views", "a\x1b[2J=U*", "--views", "b\r=V*", "--target", "y\x1b[7m"]
    page = tmp_path / "page.html"
    for command in (
        ["fit", table, *views, "--report", page, "--save", tmp_path / "m\x1b.npz"],
        ["diagnose", table, *views],
    ):
        code, out, err = run(capsys, *command)
        assert code == 0, err
        assert is_shown(out)
        assert is_shown(err)
    assert is_shown(page.read_text(encoding="utf-8").replace("\u00a0", " "))
    code, out, err = run(capsys, "fit", table, *views, "--json")
    assert code == 0, err
    assert is_shown(out)
    assert list(json.loads(out)["views"]) == ["a\x1b[2J", "b\r"]  # JSON's own escapes: nothing is lost
    code, out, err = run(capsys, "fit", table, "--views", "U=nothing\x1b[2J")
    assert (code, out) == (1, "")
    assert is_shown(err)


def test_the_report_shows_them(tmp_path, data, frame):
    model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=VIEWS)).fit(frame, data.y)
    page = rc.write_report(tmp_path / "page.html", model, frame, data.y, outcome="y\x1b", title="t\u202e").read_bytes()
    text = page.decode("utf-8")
    assert is_shown(text)
    assert "b\\rfine" in text
    assert "<title>t\\u202e</title>" in text
