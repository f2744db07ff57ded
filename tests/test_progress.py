"""How far work is: a line that is written over where somebody looks, a line now and then in a log; and one warning per fact."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

import richcomponents as rc
from richcomponents.errors import SampleSizeWarning, warn_user
from richcomponents.progress import each, metered


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_a_screen_shows_one_line_that_is_gone_at_the_end(monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with metered("second order", 1000, unit="rows") as advance:
        advance(1000)
    told = screen.getvalue()
    assert "second order" in told
    assert "\n" not in told
    assert told.split("\r")[-2].strip() == ""


def test_short_work_says_nothing_in_a_log(capsys):
    assert list(each([1, 2], True, "items")) == [1, 2]
    with metered(None, 5) as advance:
        advance(5)
    assert capsys.readouterr().err == ""


# ---- one warning per fact


@pytest.fixture
def weak(rng):
    X = rng.normal(size=(300, 6))
    X[:, :3] += X[:, 3:]
    return X


def told(work):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return caught


def test_a_grid_search_tells_a_fact_once_and_at_the_users_line(weak):
    search = GridSearchCV(rc.ContrastiveRCA(views=3), {"rank": [1, 2]}, cv=3)
    for run in (lambda: search.fit(weak), lambda: cross_val_score(rc.ContrastiveRCA(views=3), weak)):
        caught = told(run)  # of up to seven fits: that T is told weakly, or not at all, once each
        assert {w.category for w in caught} == {rc.WeakIdentificationWarning}
        assert {w.filename for w in caught} == {__file__}
        assert len({str(w.message) for w in caught}) == len(caught) <= 2


def test_the_next_call_tells_it_again(weak):
    model = rc.ContrastiveRCA(views=3)
    assert len(told(lambda: [model.fit(weak), model.fit(weak)])) == 2


def test_what_nobody_saw_was_not_told(weak):
    """A fit that is tried with warnings off does not silence the one that counts."""

    class Twice(rc.ContrastiveRCA):
        def fit(self, X):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                super().fit(X)
            return super().fit(X)

    Twice.__module__ = "richcomponents.twice"
    assert len(told(lambda: Twice(views=3).fit(weak))) == 1


def test_numbers_make_no_other_fact_and_names_do():
    messages = ["12 samples are too few (p = 1e-05)", "9 samples are too few (p = 0.3)", "column 'x1'", "column 'x2'"]
    namespace = {"__name__": "richcomponents.inside", "warn": warn_user, "kind": SampleSizeWarning}
    exec("def call(messages):\n    for message in messages:\n        warn(message, kind)", namespace)
    assert [str(w.message) for w in told(lambda: namespace["call"](messages))] == [messages[i] for i in (0, 2, 3)]


def test_a_fit_from_a_file_says_how_far_it_is(tmp_path, rng, monkeypatch, capsys):
    monkeypatch.setattr("richcomponents.progress._LOG_SECONDS", 0.0)
    np.save(tmp_path / "t.npy", rng.exponential(size=(5000, 4)))
    rc.ContrastiveRCA(views=2).fit(tmp_path / "t.npy", progress=True)
    lines = capsys.readouterr().err
    assert "second order: 100%" in lines
    assert "canonical coordinates: 100%" in lines
    assert "5000/5000" in lines
