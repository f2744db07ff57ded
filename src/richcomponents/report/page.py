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
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from richcomponents.algebra import Array
from richcomponents.effects.answer import ExposureAnswer
from richcomponents.notebook import TONES, Table, templates
from richcomponents.outputs import check_outputs, write_text
from richcomponents.plots import (
    MOST,
    control_plot,
    correlation_plot,
    distribution_plot,
    estimate_plot,
    heat_map,
    heat_map_size,
    own_variance_plot,
    sample_plot,
    sensitivity_plot,
    variance_plot,
    volcano_plot,
)
from richcomponents.report.findings import Findings, Mixing, Outcome, Provenance
from richcomponents.text import counted, plain

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


@dataclass(frozen=True)
class Picture:
    """draw : on an Axes (whole: on a figure); text : read aloud; height, width : in inches."""

    draw: Callable[..., Any]
    text: str
    height: float
    width: float = _WIDTH
    whole: bool = False

    def svg(self, salt: str) -> Markup:
        """As an element; salt : tells identifiers of several pictures on one page apart; the same salt gives the same bytes."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        out = io.StringIO()
        style: Any = {**_STYLE, "svg.hashsalt": salt}
        with rc_context(style), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a letter the drawing font lacks: the browser has it
            figure = Figure(figsize=(self.width, self.height), layout="constrained")
            self.draw(figure) if self.whole else self.draw(ax=figure.add_subplot())
            figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        box = f"0 0 {round(72 * self.width)} {round(72 * self.height)}"
        opening = Markup('<svg viewBox="{}" width="{}" class="{}" role="img" aria-label="{}"><title>{}</title>').format(
            box, round(_SCREEN * self.width), "wide" if self.width > 1.4 * _WIDTH else "", *[plain(self.text)] * 2
        )
        drawn = re.sub(r"^.*?<svg[^>]*>\s*|<defs>\s*<style.*?</style>\s*</defs>", "", out.getvalue(), flags=re.DOTALL)
        # identifiers that matplotlib does not salt (figure_1, axes_1, ...) would repeat from picture to picture
        drawn = re.sub(r'(\bid="|url\(#|href="#)', lambda match: f"{match.group(1)}{salt}-", drawn)
        return opening + Markup(drawn.replace(_INK, "currentColor").strip())


def _lines(count: int) -> float:
    """Height of a picture with a line per row, and a legend below."""
    return 1.6 + 0.3 * min(count, MOST)


def coefficients(found: Outcome) -> Picture:
    """Of an outcome, by method."""
    draw = partial(estimate_plot, found.estimate, label=found.unit)
    return Picture(draw, f"Coefficients of {found.event} by method, with intervals", _lines(len(found.estimate.names)))


def effects(answer: ExposureAnswer) -> Picture:
    """With intervals; of very many columns against their p values."""
    many, names = len(answer.effects.names) > MOST, f"Effects of {answer.exposure}"
    if many:
        return Picture(partial(volcano_plot, answer.effects), f"{names} and p values", 4.6)
    draw = partial(estimate_plot, answer.effects, label=f"effect of {answer.exposure}")
    return Picture(draw, f"{names} by method, with intervals", _lines(len(answer.effects.names)))


def controls(answer: ExposureAnswer) -> Picture:
    """Held out."""
    hidden: Any = answer.hidden
    what = f"Effects of {answer.exposure} on held-out controls, with intervals"
    return Picture(partial(control_plot, hidden), what, _lines(len(hidden.names)))


def sensitivity(answer: ExposureAnswer) -> Picture:
    """All effects that so much noise of the controls allows."""
    what = f"Effects of {answer.exposure} by the assumed noise of the controls"
    return Picture(partial(sensitivity_plot, answer.effects, answer.path), what, 5.0)


def learned(found: Findings) -> Picture:
    """Directions, means or couplings."""
    one: Any = found.learned
    names = next(iter(found.views.values()))
    width, height = heat_map_size(names, [*names, *(one.rows[0] if one.rows else ())])  # whichever is written there
    return Picture(one.draw, one.title, height, max(_WIDTH, min(width, 1.4 * _WIDTH)))


def components(found: Findings) -> Picture:
    """Shares of the variance of views."""
    sets: Any = found.sets
    width, height = max(4.0, 1.8 + 0.9 * len(sets.rows)), 3.0 + 0.45 * len(found.views)
    what = "Share of each view's variance that each component carries"
    return Picture(sets.draw, what, height, width, whole=True)


def correlations(found: Findings) -> Picture:
    """Canonical ones, and the rank."""
    two: Any = found.diagnostics
    rank = found.effects[0].rank if found.effects else two.rank
    draw, of = (
        partial(correlation_plot, two.canonical_correlations, rank),
        counted(two.canonical_correlations, "direction"),
    )
    text = f"Canonical correlations between the views; {rank} of {of} taken as shared"
    return Picture(draw, text, 2.8)


def samples(found: Findings) -> list[tuple[str, Picture]]:
    """Before and after cleaning, by what they may be coloured by."""
    seen = found.samples
    if seen is None or seen.before is None or seen.after is None or not len(at := seen.drawn):
        return []
    points: Any = {"before": seen.before[at], "after": seen.after[at], "titles": ("as measured", "shared part removed")}
    out, what = [], "Samples in the shared directions, before and after cleaning"
    colours: list[tuple[str, Any]] = list(seen.known.items())[:2]
    for name, values in colours or [("", None)]:
        draw = partial(sample_plot, colour=None if values is None else values[at], label=name, **points)
        out.append((name, Picture(draw, f"{what}{f' by {name}' if name else ''}", 3.4, whole=True)))
    return out


def shares(found: Findings, estimated: bool) -> Picture:
    """Own and shared variance of each column."""
    table: Any = found.variance
    draw = partial(variance_plot, table.names, table.own, table.shared, table.low, table.high, estimated=estimated)
    what = "Share of each column's variance that is its own and that is shared"
    return Picture(draw, what, _lines(len(table.names)))


def own_variances(found: Findings) -> Picture:
    """By method."""
    table: Any = found.variance
    draw = partial(own_variance_plot, table, label="variance that is the column's own, Var(S1)")
    return Picture(draw, "Variance of each column that is its own, by method", _lines(len(table.names)))


def mixing(part: Mixing) -> Picture:
    """A, as a heat map."""
    A: Any = part.matrix
    draw = partial(heat_map, A, part.rows, part.columns, label="entry of A", known=part.known)
    width, height = heat_map_size(part.rows, part.columns)
    return Picture(draw, f"Heat map of A, {part.component} in {part.view}", height, width)


def distributions(found: Findings) -> list[tuple[str, Picture]]:
    """Of the columns of each view."""
    out = []
    for view, x in ({} if found.samples is None else found.samples.views).items():
        if len(known := np.flatnonzero(np.isfinite(x).any(axis=0))):
            names = [found.views[view][i] for i in known]
            draw = partial(distribution_plot, names, x[:, known], title=view)
            out.append((view, Picture(draw, f"Distributions of the columns of {view}", _lines(len(known)))))
    return out


_PICTURES: tuple[Callable[..., Any], ...] = (
    coefficients, effects, controls, sensitivity, learned, components, correlations, samples, shares, own_variances, mixing,
    distributions,
)  # fmt: skip


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
        found=found, title=title, style=style, script=script, policy=Markup(rules.format(*hashes)), tones=TONES, most=MOST,
        shown=SHOWN, versions=Provenance.versions(), contents=[], figures=[], entries=entries, clearest=clearest,
        pictures={draw.__name__: draw for draw in _PICTURES}, table=lambda *given: Markup(html_table(*given)),
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
