"""A fit is all or nothing, and what was fitted stays as it was fitted."""

from __future__ import annotations

import pickle
import warnings
from copy import deepcopy
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torture.state import MODELS, answers, clean, spins, state, trial

import richcomponents as rc

CASES = [(name, door) for name, (_, ways, _) in MODELS.items() for door in ways]
PARAMETERS = [(name, parameter) for name, (_, _, parameters) in MODELS.items() for parameter in parameters]


@cache
def fitted_once(name, door):
    new, ways, _ = MODELS[name]
    X = (spins if name == "ComponentIsing" else clean)(np.random.default_rng(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ways[door](new(), X)
    return model, X, answers(model, X)  # what is computed when it is first asked for is there, too


def fitted(name, door="fit"):
    """A fitted model of one's own, how it was fitted, to what, and what it says."""
    model, X, said = deepcopy(fitted_once(name, door))
    return model, MODELS[name][1][door], X, said


@pytest.mark.parametrize(("name", "door"), CASES)
@pytest.mark.parametrize("how", ["bad rows", "no rows", "warnings are errors", "interrupted"])
def test_a_fit_that_fails_changes_nothing(monkeypatch, name, door, how):
    model, fit, X, said = fitted(name, door)
    before = state(model)
    other = X[::-1].copy() if name == "ComponentIsing" else X[::-1] * 2.0 + 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how == "bad rows":
            other[5, 1] = np.nan
        elif how == "no rows":
            other = other[:0]
        elif how == "warnings are errors":
            other = other[:30]
            other[:, 1] = 1.0
            if door == "partial_fit":  # with the rows seen before, only many that tell nothing are warned of
                rng, d = np.random.default_rng(0), X.shape[1]
                other = rng.normal(size=(30_000, d)) @ rng.normal(size=(d, d))
            warnings.simplefilter("error")
        else:  # late in the fit, when most of it has been done
            calls = []
            monkeypatch.setattr(
                np.linalg, "eigh", lambda *a, real=np.linalg.eigh, **k: calls.append(1) or real(*a, **k)
            )
            fit(clone(model), other)
            last = len(calls)

            def gives_out(*args, real=np.linalg.eigh, **options):
                if len(calls) == 2 * last - 1:
                    raise KeyboardInterrupt
                return real(*args, **options)

            monkeypatch.setattr(np.linalg, "eigh", gives_out)
            if not last:
                pytest.skip("no eigenvalues in this fit")
        with pytest.raises((ValueError, Warning, KeyboardInterrupt)):
            fit(model, other)
    monkeypatch.undo()
    assert state(model) == before
    assert answers(model, X) == said


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_set_params_is_for_the_next_fit(tmp_path, name, parameter):
    model, _, X, said = fitted(name)
    for value in MODELS[name][2][parameter]:
        model.set_params(**{parameter: value})
        assert answers(model, X) == said
        model.save(tmp_path / "model.npz")
        assert answers(rc.load(tmp_path / "model.npz"), X) == said
        assert answers(pickle.loads(pickle.dumps(model)), X) == said


def test_answers_of_a_contrastive_fit_use_its_parameters():
    data = rc.datasets.make_contrastive(1500, d=3, S2="skewed", random_state=0)
    model = rc.ContrastiveRCA(views=3, mean={"S2": np.array([1.0, 2.0, 3.0])}).fit(data.X)

    def asked():
        return [
            model.transform(data.X),
            model.calibrate(data.X, data.y).coef,
            model.confidence_interval("A").standard_error,
            model.confidence_interval("covariance", "S2").standard_error,  # refits without each block
            model.score(data.X),
            model.component_on_rows(data.X).cumulant(3),
            model.variance_table().own,
        ]

    before = asked()
    model.set_params(mean=None, A=np.eye(3), n_blocks=11, rank=1, order=3, views=5, method="paper", covariates=[0])
    for one, two in zip(before, asked(), strict=True):
        np.testing.assert_array_equal(one, two)
    general = rc.RCA(views=3).fit(data.X)
    errors = general.confidence_interval(component=("U",)).standard_error
    general.set_params(rank={("U", "V"): 1}, order=3, method="paper", views=1)
    np.testing.assert_array_equal(general.confidence_interval(component=("U",)).standard_error, errors)


@pytest.mark.parametrize("name", ["ContrastiveRCA", "ComponentRegression", "ComponentPCA"])
def test_an_answer_reads_one_fit_though_another_is_made_meanwhile(monkeypatch, name):
    """The refit comes in the middle of the answer, as another thread's might."""
    data = rc.datasets.make_contrastive(1500, d=3, S2="skewed", random_state=0)
    rca = rc.ContrastiveRCA(views=3, classes="none")
    model = rca if name == "ContrastiveRCA" else getattr(rc, name)(rca=rca)
    ask = model.predict if name == "ComponentRegression" else model.transform
    before = model.fit(data.X, data.y) and ask(data.X)
    opened = rc.ContrastiveRCA._open

    def refitted(self, X, **options):
        monkeypatch.undo()
        model.fit(data.X[:, ::-1] * 2.0, -data.y)
        return opened(self, X, **options)

    monkeypatch.setattr(rc.ContrastiveRCA, "_open", refitted)
    np.testing.assert_array_equal(ask(data.X), before)
    assert not np.allclose(ask(data.X), before)


def test_a_new_fit_starts_from_nothing():
    data = rc.datasets.make_contrastive(1500, d=3, S2="skewed", random_state=0)
    named = pd.DataFrame(data.X, columns=list("abcdef"))
    model = rc.ContrastiveRCA(views=3).partial_fit(named).fit(data.X)
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.partial_fit(data.X).A_, rc.ContrastiveRCA(views=3).partial_fit(data.X).A_)
    learner = rc.ComponentPCA(rca=rc.ContrastiveRCA(views=3)).fit(named)
    learner.fit_component(model.components_["S1"])
    assert not hasattr(learner, "n_features_in_")


def test_subclasses_and_scikit_learn_see_an_ordinary_estimator():
    class Named(rc.ContrastiveRCA):
        def fit(self, X, y=None, note="", **options):
            self.note_ = note
            super().fit(X, y, **options)
            if note == "too late":
                raise ValueError(note)
            return self

    data = rc.datasets.make_contrastive(1200, d=3, S2="skewed", random_state=0)
    model = Named(views=3)
    assert model.fit(data.X, note="first") is model
    said = answers(model, data.X)
    with pytest.raises(ValueError, match="too late"):
        model.fit(data.X + data.X**2, note="too late")
    assert (model.note_, answers(model, data.X)) == ("first", said)
    model.set_output(transform="pandas").fit(pd.DataFrame(data.X, columns=list("abcdef")))
    assert list(model.transform(pd.DataFrame(data.X, columns=list("abcdef"))).columns) == ["a", "b", "c"]
    pipe = make_pipeline(StandardScaler(), rc.ContrastiveRCA(views=3))
    search = GridSearchCV(pipe, {"contrastiverca__rank": [1, 2, "auto"]}, cv=3).fit(data.X)
    assert search.best_params_["contrastiverca__rank"] in (1, 2, "auto")


@pytest.mark.parametrize("seed", range(40))
def test_random_refits(seed):
    label, error, complaint = trial([7, seed])
    assert complaint is None, (label, error, complaint)
