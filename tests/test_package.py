"""The package hands out its public names when they are first asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import richcomponents as rc


def test_public_names_are_there():
    for name in rc.__all__:
        assert getattr(rc, name) is not None
    assert set(rc.__all__) <= set(dir(rc))
    assert rc.cumulants.block_jackknife  # subpackages too


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        rc.nonsense  # noqa: B018
    with pytest.raises(ImportError):
        from richcomponents import nonsense  # noqa: F401


@pytest.mark.parametrize(
    "statement",
    ["import richcomponents; richcomponents.datasets.make_contrastive", "from richcomponents import *; RCA"],
)
def test_ways_to_import(statement):
    subprocess.run([sys.executable, "-c", statement], check=True)


def test_pictures_need_no_matplotlib_until_drawn():
    code = "import sys, richcomponents; richcomponents.ContrastiveRCA; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
