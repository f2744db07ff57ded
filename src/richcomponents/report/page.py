"""The page around the sections: one HTML file with its style, script and pictures inside; nothing is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from richcomponents.algebra import Array
from richcomponents.report.findings import Findings, Provenance, gather
from richcomponents.report.sections import SECTIONS

__all__ = ["render", "write_report"]

# Whatever a column is called: no script but the page's own runs, and nothing is fetched.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def render(found: Findings, title: str = "Rich component analysis") -> str:
    """The whole page as HTML."""
    asset = files("richcomponents.report")
    style, script = (asset.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "sort.js"))
    body = "\n".join(filter(None, (section(found) for section in SECTIONS)))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<link rel="icon" href="data:,">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n"
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


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
    """Write the report of a fitted ContrastiveRCA or learner to one HTML file, and say where.

    X, y : the rows it was fitted to (needed for regressions). names : column names of X, where X has none. outcome : what
    y is called. truth : known coefficients, in simulations.
    """
    found = gather(model, X, y, names=names, outcome=outcome, truth=truth, provenance=provenance)
    target = Path(path)
    target.write_text(render(found, title), encoding="utf-8")
    return target
