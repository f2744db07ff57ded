"""The page around the sections: one HTML file with its style, script and pictures inside; nothing is loaded."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

from richcomponents.algebra import Array
from richcomponents.outputs import check_outputs, write_text
from richcomponents.report.findings import Findings, Provenance
from richcomponents.report.sections import SECTIONS
from richcomponents.text import escape

__all__ = ["policy", "render", "write_report"]


def policy(style: str, script: str | None = None) -> str:
    """A meta element: whatever a column is called, only these very blocks apply, no handler runs and nothing is fetched."""
    scripts = "" if script is None else f" script-src {_hash(script)};"
    rules = f"default-src 'none'; style-src {_hash(style)};{scripts} img-src data:; base-uri 'none'; form-action 'none'"
    return f'<meta http-equiv="Content-Security-Policy" content="{rules}">'


def _hash(block: str) -> str:
    return f"'sha256-{b64encode(sha256(block.encode()).digest()).decode()}'"


def render(found: Findings, title: str = "Rich component analysis") -> str:
    """The whole page as HTML."""
    asset = files("richcomponents.report")
    style, script = (asset.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "sort.js"))
    body, rules = _gathered("\n".join(filter(None, (section(found) for section in SECTIONS))))
    style, script = f"\n{style}{rules}", f"\n{script}"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'{policy(style, script)}\n<link rel="icon" href="data:,">\n'
        f"<style>{style}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _gathered(body: str) -> tuple[str, str]:
    """The body with classes for style attributes, and the rules of those classes, one each: the policy allows one block.

    Only pictures have such attributes. Text of strangers is escaped, so that a tag ends at the first ">".
    """
    names: dict[str, str] = {}

    def named(tag: re.Match[str]) -> str:
        return re.sub(
            r' style="([^"]*)"', lambda found: f' class="{names.setdefault(found[1], f"s{len(names)}")}"', tag[0]
        )

    body = re.sub(r"<[a-zA-Z][^<>]*>", named, body)
    return body, "".join(f".{name} {{ {unescape(rule)} }}\n" for rule, name in names.items())


def write_report(
    path: str | os.PathLike[str],
    model: Any,
    X: object = None,
    y: object = None,
    *,
    title: str = "Rich component analysis",
    names: Sequence[str] | None = None,
    outcome: str = "y",
    truth: Array | None = None,
    provenance: Provenance | None = None,
) -> Path:
    """Write the report of a fitted ContrastiveRCA, RCA or learner to one HTML file, and say where.

    X, y : the rows it was fitted to (needed for regressions). names : column names of X, where X has none. outcome : what
    y is called. truth : known coefficients, in simulations.
    """
    target = Path(path)
    check_outputs([target], [X] if isinstance(X, (str, os.PathLike)) else [])
    found = Findings.of(model, X, y, names=names, outcome=outcome, truth=truth, provenance=provenance)
    write_text(target, render(found, title))
    return target
