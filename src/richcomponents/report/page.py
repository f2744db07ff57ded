"""One HTML file from templates/page.html, with contents, style, script and pictures inside; nothing is loaded."""

from __future__ import annotations

import math
import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from richcomponents.algebra import Array
from richcomponents.effects.answer import ExposureAnswer
from richcomponents.notebook import TONES, Table, templates
from richcomponents.outputs import check_outputs, write_text
from richcomponents.plots import MOST
from richcomponents.report import pictures
from richcomponents.report.findings import Findings, Mixing, Provenance
from richcomponents.text import plain

SHOWN = 25
"""Rows of a table that are seen at first."""

_FIRST_READ = (
    "name", "estimate", "low", "high", "p", "q", "adjusted", "naive", "truth", "standard error", "identified low",
    "identified high",
)  # fmt: skip


class Doubtful(float):
    """A number whose sign is open: pale in a table."""

    pale = True


def arranged(rows: Sequence[Mapping[str, Any]], order: str | bool = False) -> list[dict[str, Any]]:
    """Without columns in which nothing is known; of many rows those largest in size in the column `order` (True: the first with
    numbers) first. A table is of one exposure, which stands above it."""
    first: Mapping[str, Any] = rows[0] if rows else {}
    known = [key for key in first if key != "exposure" and any(row[key] == row[key] and row[key] != "" for row in rows)]
    kept = [{key: row[key] for key in known} for row in rows]
    by = next((key for key in known if isinstance(first[key], float)), "") if order is True else order
    if by not in known or len(rows) <= SHOWN:
        return kept
    return sorted(kept, key=lambda row: -abs(row[by]) if math.isfinite(row[by]) else 1.0)


def clearest(answer: ExposureAnswer) -> list[dict[str, Any]]:
    """Effects, the clearest first, in the order of columns in which they are read."""
    rows, order = answer.rows(), answer.order()
    return [{key: rows[i][key] for key in _FIRST_READ if key in rows[i]} for i in map(int, order)]


def html_table(rows: Sequence[Mapping[str, Any]], name: str, order: str | bool = False) -> str:
    """A table of all rows, that a click on a title sorts, with a button that saves it as a CSV file; long ones have a search
    box and show the first rows until more are asked for (on paper: all).

    name : of the file, without its end. The script makes box and buttons work; without it the table shows every row.
    """
    file = "".join(c if c.isalnum() else "-" for c in name)
    return str(templates().get_template("table.html").module.table(arranged(rows, order), name, file, SHOWN))  # type: ignore[attr-defined]


def entries(part: Mixing) -> Table:
    """A by rows; numbers of which the sign is open are doubtful."""
    A: Any = part.matrix
    sure = np.ones(A.shape, dtype=np.bool_) if part.known is None else part.known
    out = Table()
    for row, values, known in zip(part.rows, A, sure, strict=True):
        numbers = (float(a) if told else Doubtful(a) for a, told in zip(values, known, strict=True))
        out.append({part.view: row, **dict(zip(part.columns, numbers, strict=True))})
    return out


def render(found: Findings, title: str = "Rich component analysis") -> str:
    """The whole page as HTML."""
    env = templates()
    assert env.loader is not None
    style, script = (Markup(env.loader.get_source(env, name)[0]) for name in ("style.css", "script.js"))
    hashes = (f"'sha256-{b64encode(sha256(block.encode()).digest()).decode()}'" for block in (style, script))
    # whatever a column is called, only these very blocks apply, no handler runs and nothing is fetched
    rules = (
        "default-src 'none'; style-src {}; style-src-attr 'unsafe-inline'; script-src {}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    return plain(env.get_template("page.html").render(
        found=found, title=title, style=style, script=script, policy=Markup(rules.format(*hashes)), tones=TONES, most=MOST,
        shown=SHOWN, versions=Provenance.versions(), contents=[], figures=[], pictures=pictures, entries=entries,
        clearest=clearest, table=lambda *given: Markup(html_table(*given)),
    ))  # fmt: skip


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
