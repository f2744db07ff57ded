"""The torture tells clear refusals from accidents."""

from __future__ import annotations

import importlib

import pytest
from torture import harness

import richcomponents as rc


def test_only_our_own_errors_are_clear(tmp_path, monkeypatch):
    place = tmp_path / "richcomponents" / ".venv"  # a clone of the repository, with the libraries inside it
    place.mkdir(parents=True)
    (place / "stranger_in_a_clone.py").write_text("def fail():\n    raise ValueError('from a library')\n")
    monkeypatch.syspath_prepend(str(place))
    stranger = importlib.import_module("stranger_in_a_clone")
    with pytest.raises(ValueError, match="from a library") as theirs:
        stranger.fail()
    assert not harness.is_clear(theirs.value)
    with pytest.raises(ValueError, match="n_columns") as ours:
        rc.Moments.empty(0)
    assert harness.is_clear(ours.value)
