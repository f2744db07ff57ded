"""The pictures of a page: SVG that lives inside it, follows its text colour, refers to nothing outside and reads aloud.

Each is drawn once, as wide as a phone can show it; the page scales it to the room there is.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup

from richcomponents.effects.answer import ExposureAnswer
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
from richcomponents.report.findings import Findings, Mixing
from richcomponents.text import plain

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


def _rows(count: int) -> float:
    """Height of a picture with a line per row, and a legend below."""
    return 1.6 + 0.3 * min(count, MOST)


def coefficients(found: Any) -> Picture:
    """Of an outcome, by method."""
    draw = partial(estimate_plot, found.estimate, label=found.unit)
    return Picture(draw, f"Coefficients of {found.event} by method, with intervals", _rows(len(found.estimate.names)))


def effects(answer: ExposureAnswer) -> Picture:
    """With intervals; of very many columns against their p values."""
    many, names = len(answer.effects.names) > MOST, f"Effects of {answer.exposure}"
    if many:
        return Picture(partial(volcano_plot, answer.effects), f"{names} and p values", 4.6)
    draw = partial(estimate_plot, answer.effects, label=f"effect of {answer.exposure}")
    return Picture(draw, f"{names} by method, with intervals", _rows(len(answer.effects.names)))


def controls(answer: ExposureAnswer) -> Picture:
    """Held out."""
    assert answer.hidden is not None
    what = f"Effects of {answer.exposure} on held-out controls, with intervals"
    return Picture(partial(control_plot, answer.hidden), what, _rows(len(answer.hidden.names)))


def sensitivity(answer: ExposureAnswer) -> Picture:
    """All effects that so much noise of the controls allows."""
    what = f"Effects of {answer.exposure} by the assumed noise of the controls"
    return Picture(partial(sensitivity_plot, answer.effects, answer.path), what, 5.0)


def learned(found: Findings) -> Picture:
    """Directions, means or couplings."""
    assert found.learned is not None
    names, rows = next(iter(found.views.values())), found.learned.rows
    width, height = heat_map_size(
        names, [*names, *(rows[0] if rows else ())]
    )  # whichever is written there, it needs room
    return Picture(found.learned.draw, found.learned.title, height, max(_WIDTH, min(width, 1.4 * _WIDTH)))


def components(found: Findings) -> Picture:
    """Shares of the variance of views."""
    assert found.sets is not None
    width, height = max(4.0, 1.8 + 0.9 * len(found.sets.rows)), 3.0 + 0.45 * len(found.views)
    what = "Share of each view's variance that each component carries"
    return Picture(found.sets.draw, what, height, width, whole=True)


def correlations(found: Findings) -> Picture:
    """Canonical ones, and the rank."""
    assert found.diagnostics is not None
    rank = found.effects[0].rank if found.effects else found.diagnostics.rank
    draw = partial(correlation_plot, found.diagnostics.canonical_correlations, rank)
    return Picture(draw, f"Canonical correlations between the views; the first {rank} are taken as shared", 2.8)


def samples(found: Findings) -> list[tuple[str, Picture]]:
    """Before and after cleaning, by what they may be coloured by."""
    seen = found.samples
    if seen is None or seen.before is None or seen.after is None or not len(at := seen.drawn()):
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
    return Picture(draw, what, _rows(len(table.names)))


def own_variances(found: Findings) -> Picture:
    """By method."""
    table: Any = found.variance
    draw = partial(own_variance_plot, table, label="variance that is the column's own, Var(S1)")
    return Picture(draw, "Variance of each column that is its own, by method", _rows(len(table.names)))


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
            out.append((view, Picture(draw, f"Distributions of the columns of {view}", _rows(len(known)))))
    return out
