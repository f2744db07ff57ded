"""Code in the documents: fenced blocks, and commands to type. Needs nothing but Python."""

from __future__ import annotations

import re
import shlex
from pathlib import Path


def fenced(document: Path) -> list[tuple[str, str]]:
    """(language, code) of every fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```", document.read_text(encoding="utf-8"), flags=re.S | re.M)


def prose(document: Path) -> str:
    """The text without fenced blocks."""
    return re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.S | re.M)


def shell_lines(document: Path) -> list[list[str]]:
    """Commands to type: indented lines that begin with rca, make, pip or python, as words; what follows # is a comment."""
    lines = re.findall(r"^    ((?:rca|make|pip|python) .*)$", prose(document), flags=re.M)
    return [shlex.split(line, comments=True) for line in lines]
