"""The package hands out its public names when they are first asked for."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import richcomponents as rc

ROOT = Path(__file__).parent.parent


def test_public_names_are_there():
    for name in rc.__all__:
        assert getattr(rc, name) is not None
    assert set(rc.__all__) <= set(dir(rc))
    assert rc.cumulants.block_grams  # subpackages too


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


@pytest.fixture(scope="module")
def reference():
    """docs/reference.py, which says what is on the site."""
    sys.path.insert(0, str(ROOT / "docs"))
    import reference

    yield reference
    sys.path.pop(0)


def test_the_reference_has_every_public_name(reference):
    listed = {public.path for names in reference.grouped().values() for public in names}
    modules = {name for name in rc.__all__ if inspect.ismodule(getattr(rc, name))}
    assert {f"richcomponents.{name}" for name in rc.__all__ if name not in modules} <= listed
    for module in modules:
        assert {f"richcomponents.{module}.{name}" for name in getattr(rc, module).__all__} <= listed


def test_every_public_name_has_lines_that_run(reference):
    assert [
        public.path for public in reference.public_names() if ">>>" not in (inspect.getdoc(public.what) or "")
    ] == []


def test_every_public_method_says_what_it_does(reference):
    silent = [
        f"{public.path}.{name}"
        for public in reference.public_names()
        if inspect.isclass(public.what)
        for name in reference.own_members(public.what)
        if not inspect.getdoc(inspect.getattr_static(public.what, name))
    ]
    assert silent == []


# ---- ready to publish


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("CITATION.cff", r"^version: ([\d.]+)$"),
        ("CHANGELOG.md", r"\A# Changelog\n.*?^## ([\d.]+) \(\d{4}-\d{2}-\d{2}\)$"),
        ("conda/recipe.yaml", r'^  version: "([\d.]+)"$'),
        ("docs/cite.md", r"version ([\d.]+\d)\."),
    ],
)
def test_one_version_everywhere(name, form):
    assert re.search(form, text(name), flags=re.M | re.S)[1] == rc.__version__


def test_the_conda_recipe_asks_for_what_the_package_asks_for():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    run = text("conda/recipe.yaml").split("  run:\n")[1].split("\ntests:")[0]
    recipe = {line.strip("- ").replace("matplotlib-base", "matplotlib").replace(" ", "") for line in run.splitlines()}
    assert recipe - {""} == {*project["dependencies"], f"python{project['requires-python']}"}


def test_links_of_the_long_description_are_absolute():
    hook = tomllib.loads(text("pyproject.toml"))["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    shown = text("README.md")
    for change in hook["substitutions"]:
        shown = re.sub(change["pattern"], change["replacement"], shown)
    links = re.findall(r"\]\(([^)]+)\)", shown)
    assert len(links) > 10
    assert all(link.startswith("https://") for link in links)
