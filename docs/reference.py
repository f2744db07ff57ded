"""The API reference: one page for every public name, found where the package says what is public.

A new public name appears by itself, in the group of the room (the part of the package) that it lives in; a room that has no
group yet is an error, and so is a name that is not on the built site (`check_site.py`).
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import richcomponents
from richcomponents.cumulants.estimate import Estimate

GROUPS = {  # title: (what it says, the rooms whose names it holds)
    "Models": ("What is whose: fitted to tables, files, streams, states.", ["models", "effects"]),
    "Models of your own": ("Any likelihood, from the moments of a component.", ["learning"]),
    "Results": ("What the models answer.", ["components", "results"]),
    "Tables, files, pages": ("What goes in, what comes out.", ["data", "storage", "report"]),
    "The paper, literally": ("Its equations and algorithms on tables U and V.", ["paper"]),
    "Cumulants and moments": ("Unbiased, in one pass, mergeable.", ["moments", "cumulants", "algebra"]),
    "The simple methods": ("For comparison: the same inputs, the same output.", ["baselines"]),
    "Data with known truth": ("To try things on.", ["datasets"]),
    "Errors and warnings": ("To catch, or to filter, by name.", ["errors"]),
}
_EXTRA = {"richcomponents.cumulants.estimate.Estimate": Estimate}  # public, though nobody makes one by hand


@dataclass(frozen=True)
class Public:
    """A public name: where it is found, and what it is."""

    path: str
    what: Any

    @property
    def name(self) -> str:
        return self.path.removeprefix("richcomponents.").removeprefix("cumulants.estimate.")

    @property
    def room(self) -> str:
        return "results" if self.path in _EXTRA else str(self.what.__module__).split(".")[1]

    @property
    def first_line(self) -> str:
        """The first sentence of its docstring, however it is broken."""
        opening = " ".join((inspect.getdoc(self.what) or "").partition("\n\n")[0].split())
        return re.split(r"(?<=\.) (?=[A-Z])", opening, maxsplit=1)[0]


def public_names() -> list[Public]:
    """Of the package, and of the modules among its public names."""
    found = []
    for name in richcomponents.__all__:
        what = getattr(richcomponents, name)
        if isinstance(what, ModuleType):
            found += [Public(f"richcomponents.{name}.{inner}", getattr(what, inner)) for inner in what.__all__]
        else:
            found.append(Public(f"richcomponents.{name}", what))
    return [*found, *(Public(path, what) for path, what in _EXTRA.items())]


def grouped() -> dict[str, list[Public]]:
    room_of = {room: title for title, (_, rooms) in GROUPS.items() for room in rooms}
    groups: dict[str, list[Public]] = {title: [] for title in GROUPS}
    for public in public_names():
        if public.room not in room_of:
            raise LookupError(f"{public.path} lives in {public.room!r}, which no group of docs/reference.py has")
        groups[room_of[public.room]].append(public)
    return {title: sorted(names, key=_after_what) for title, names in groups.items()}


def _after_what(public: Public) -> bool:
    """What is whose comes first (RCA and its kin), then what is learned from a component."""
    return public.room == "models" and public.name.startswith("Component")


def own_members(kind: type) -> dict[str, str]:
    """{name: how it is documented} of public methods and properties that this package defines, in the order they are written:
    without those that scikit-learn gives to every estimator."""
    found = {}
    for base in (base for base in kind.__mro__ if base.__module__.startswith("richcomponents")):
        for name, member in vars(base).items():
            if not name.startswith("_") and _is_code(member):
                is_property = isinstance(member, (property, cached_property))
                found.setdefault(name, "autoproperty" if is_property else "automethod")
    return dict(sorted(found.items(), key=lambda member: "fit" not in member[0]))  # first what everything begins with


def _is_code(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, (property, cached_property, classmethod, staticmethod))


def page(public: Public) -> str:
    """The page of one name, in reStructuredText."""
    module, _, name = public.path.rpartition(".")
    head = f"{public.name}\n{'=' * len(public.name)}\n\n.. currentmodule:: {module}\n\n"
    if inspect.isclass(public.what) and not issubclass(public.what, BaseException):
        members = "".join(f"\n   .. {how}:: {member}\n" for member, how in own_members(public.what).items())
        return f"{head}.. autoclass:: {name}\n{members}"
    return f"{head}.. {'autoexception' if inspect.isclass(public.what) else 'autofunction'}:: {name}\n"


def index() -> str:
    """The first page: every name with its first line."""
    lines = ["API reference", "=============", "", "Every public name; ``import richcomponents as rc``.", ""]
    for title, names in grouped().items():
        lines += [title, "-" * len(title), "", GROUPS[title][0], "", ".. list-table::", "   :widths: 35 65", ""]
        for public in names:
            line = escaped(_ROLE.sub(r"``\1``", public.first_line))
            lines += [f"   * - :doc:`{public.name} <{public.path}>`", f"     - {line}"]
        lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {public.path}" for public in names), ""]
    lines += ["The command line", "----------------", "", ":doc:`rca <rca>`: every command, every option.", ""]
    return "\n".join([*lines, ".. toctree::", "   :hidden:", "", "   rca", ""])


def write_pages(folder: Path) -> None:
    """Pages that have not changed are left alone, so that a second build is quick."""
    folder.mkdir(exist_ok=True)
    wanted = {f"{public.path}.rst": page(public) for public in public_names()} | {"index.rst": index()}
    for old in folder.glob("*.rst"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        target = folder / name
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")


_ROLE = re.compile(r":\w+:`~?(.*?)`")
_MARKUP = re.compile(r"(``.*?``|\*\*.*?\*\*|:[\w:]+:`.*?`|`.*?`_{0,2})")
_REFERENCE = re.compile(r"(?<=\w)_(?![\w_])")  # A_, coef_: names, not links
_MARK = re.compile(r"(?<!\\)[|*]")


def escaped(text: str) -> str:
    """Names that end in an underscore, |theta| and products are text, not markup; what is marked up stays."""
    parts = _MARKUP.split(text)
    for at in range(0, len(parts), 2):
        parts[at] = _MARK.sub(r"\\\g<0>", re.sub(r"(?<!\\)" + _REFERENCE.pattern, r"\\_", parts[at]))
    return "".join(parts)


_LABEL = re.compile(r":ref:`([^`<]*?)\s*<[^`>]*>`")  # :ref:`words <label>`
_KEPT = re.compile(r"\s*(>>>|\.\.\.|\.\. |:\w[\w ]*:)|^$")


def escape_names(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """After numpydoc: what is plain text in a docstring is plain text on the page, and so are labels of scikit-learn's site."""
    if str(getattr(obj, "__module__", "")).startswith("sklearn"):
        lines[:] = [_LABEL.sub(r"\1", line) for line in lines]
    code = False
    for at, line in enumerate(lines):
        code = bool(line.strip()) and (code or line.lstrip().startswith(">>>"))
        if not code and not _KEPT.match(line):
            lines[at] = escaped(line)
