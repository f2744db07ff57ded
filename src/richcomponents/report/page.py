"""The page around the sections: one HTML file with its contents, style, script and pictures inside; nothing is loaded."""

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


def _policy(style: str, script: str) -> str:
    """A meta element: whatever a column is called, only these very blocks apply, no handler runs and nothing is fetched."""
    rules = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{rules}">'


def _hash(block: str) -> str:
    return f"'sha256-{b64encode(sha256(block.encode()).digest()).decode()}'"


def render(found: Findings, title: str = "Rich component analysis") -> str:
    """The whole page as HTML."""
    asset = files("richcomponents.report")
    style, script = (asset.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    first, *rest = filter(None, (section(found) for section in SECTIONS))
    body, rules = _gathered("\n".join([first, _with_contents("\n".join(rest))]))
    style, script = f"\n{style}{rules}", f"\n{script}"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'{_policy(style, script)}\n<link rel="icon" href="data:,">\n'
        f"<style>{style}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _with_contents(body: str) -> str:
    """The body with an anchor at each heading of second degree, and the list of these in front, with what works on the whole
    page."""
    titles: list[str] = []

    def anchored(heading: re.Match[str]) -> str:
        titles.append(heading[1])
        return f'<h2 id="part{len(titles)}">{heading[1]}</h2>'

    body = re.sub(r"<h2>(.*?)</h2>", anchored, body)
    entries = "".join(f'<li><a href="#part{i}">{title}</a></li>' for i, title in enumerate(titles, 1))
    return (
        f'<nav aria-label="Contents"><ul>{entries}</ul><p class="tools" hidden><label>search all tables '
        '<input type="search" id="everywhere" autocomplete="off" spellcheck="false"></label> '
        '<button type="button" id="theme">dark colours</button> '
        '<span class="soft" id="matches" aria-live="polite"></span></p></nav>'
        f"\n{body}"
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
    """Write the report of a fitted ContrastiveRCA, RCA, learner or ExposureEffects to one HTML file, and say where.

    X, y : the rows it was fitted to (needed for regressions). names : column names of X, where X has none. outcome : what
    y is called. truth : known coefficients, in simulations.

    Examples
    --------
    >>> import tempfile, richcomponents as rc
    >>> data = rc.datasets.make_contrastive(2000, d=3, S2="skewed", random_state=0)
    >>> model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=3)).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(f"{folder}/page.html", model, data.X, data.y).name
    'page.html'
    """
    target = Path(path)
    check_outputs([target], [X] if isinstance(X, (str, os.PathLike)) else [])
    found = Findings.of(model, X, y, names=names, outcome=outcome, truth=truth, provenance=provenance)
    write_text(target, render(found, title))
    return target
