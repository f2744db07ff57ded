"""One HTML file from templates/page.html, with contents, style, script and pictures inside; nothing is loaded.

Pictures are SVG that lives inside the page, follows its text colour and reads aloud. Each is drawn once, as wide as a phone can
show it; the page scales it to the room there is.
"""

from __future__ import annotations

import io
import math
import os
import re
import warnings
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
from markupsafe import Markup

from richcomponents import plots
from richcomponents.algebra import Array
from richcomponents.effects.answer import ExposureAnswer
from richcomponents.notebook import TONES, Table, templates
from richcomponents.outputs import check_outputs, write_text
from richcomponents.report.findings import Findings, Mixing, Provenance
from richcomponents.text import counted, listed, plain

SHOWN = 25
"""Rows of a table that are seen at first."""

_FIRST_READ = (
    "name", "estimate", "low", "high", "p", "q", "adjusted", "naive", "truth", "standard error", "identified low",
    "identified high",
)  # fmt: skip


# ---- tables


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
    cells = [
        [a if known else Doubtful(a) for a, known in zip(*row, strict=True)]
        for row in zip(A.tolist(), sure, strict=True)
    ]
    return Table(
        {part.view: row, **dict(zip(part.columns, values, strict=True))}
        for row, values in zip(part.rows, cells, strict=True)
    )


# ---- pictures

_WIDTH, _SCREEN = 5.2, 115  # inches; pixels an inch where there is room
_INK = "#0a0b0c"  # drawn in this colour, replaced by the page's own
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 10,
    **dict.fromkeys((f"axes.{part}color" for part in ("label", "edge", "title")), _INK),
    **dict.fromkeys(("text.color", "xtick.color", "ytick.color"), _INK),
    **dict.fromkeys((f"{part}.facecolor" for part in ("figure", "axes", "savefig")), "none"),
}


def svg(
    salt: str,
    text: str,
    height: float,
    draw: Callable[..., Any],
    *given: Any,
    width: float = _WIDTH,
    whole: bool = False,
    **style: Any,
) -> Markup:
    """A picture as an element: draw(*given, ax=, **style), or draw(figure, *given) of a whole figure.

    text : read aloud; height, width : in inches; salt : tells identifiers of several pictures on one page apart; the same salt
    gives the same bytes.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    out, salted = io.StringIO(), cast(Any, {**_STYLE, "svg.hashsalt": salt})
    with rc_context(salted), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter the drawing font lacks: the browser has it
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure, *given, **style) if whole else draw(*given, ax=figure.add_subplot(), **style)
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    opening = Markup('<svg viewBox="{}" width="{}" class="{}" role="img" aria-label="{}"><title>{}</title>').format(
        f"0 0 {round(72 * width)} {round(72 * height)}",
        round(_SCREEN * width),
        "wide" if width > 1.4 * _WIDTH else "",
        text,
        text,
    )
    drawn = re.sub(r"^.*?<svg[^>]*>\s*|<defs>\s*<style.*?</style>\s*</defs>", "", out.getvalue(), flags=re.DOTALL)
    # identifiers that matplotlib does not salt (figure_1, axes_1, ...) would repeat from picture to picture
    drawn = re.sub(r'(\bid="|url\(#|href="#)', lambda match: f"{match.group(1)}{salt}-", drawn)
    return opening + Markup(drawn.replace(_INK, "currentColor").strip())


def lines(names: Sequence[str]) -> float:
    """Height of a picture with a line per row, and a legend below."""
    return 1.6 + 0.3 * min(len(names), plots.MOST)


# ---- the page


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
        found=found, title=title, style=style, script=script, policy=Markup(rules.format(*hashes)), tones=TONES,
        shown=SHOWN, versions=Provenance.versions(), contents=[], figures=[], entries=entries, clearest=clearest, plots=plots,
        svg=svg, lines=lines, usual=_WIDTH, table=lambda *given: Markup(html_table(*given)), listed=listed, counted=counted,
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
