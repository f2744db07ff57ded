"""The page around the sections: one HTML file with its style, script and pictures inside; nothing is loaded.

The sections of the page, in the order they are read: each takes the findings and returns HTML.

Rows of numbers as HTML tables, every string escaped.

Plots as SVG that lives inside a page: follows its text colour, refers to nothing outside, reads aloud.
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
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from richcomponents.algebra import Array
from richcomponents.contrastive.diagnostics import Diagnostics
from richcomponents.models.answers import ExposureAnswer
from richcomponents.notebook import TONES, cell
from richcomponents.outputs import check_outputs, write_text
from richcomponents.plots import (
    MOST,
    control_plot,
    correlation_plot,
    estimate_plot,
    heat_map,
    heat_map_size,
    own_variance_plot,
    sensitivity_plot,
    variance_plot,
    volcano_plot,
)
from richcomponents.report.findings import SUSPICIOUS, Findings, Provenance
from richcomponents.text import escape, number, p_value

_SHOWN = 25
_TEXT = ' class="text"'


def html_table(rows: Sequence[Mapping[str, object]], *, order: str | None = None, shown: int = _SHOWN) -> str:
    """A sortable table; of many rows, those largest in size in the column `order`, and all of them in a collapsed one.

    Columns in which nothing is known are left out.
    """
    if not rows:
        return ""
    known = [key for key in rows[0] if any(not _unknown(row[key]) for row in rows)]
    rows = [{key: row[key] for key in known} for row in rows]
    if len(rows) <= shown:
        return _table(rows)
    top = rows[:shown] if order is None else sorted(rows, key=lambda row: -_size(row[order]))[:shown]
    which = f"The first {shown}" if order is None else f"The {shown} largest by “{escape(order)}”"
    return (
        f'{_table(top)}<p class="soft">{which} of {len(rows)} rows.</p>'
        f"<details><summary>All {len(rows)} rows</summary>{_table(rows)}</details>"
    )


def _unknown(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _size(value: object) -> float:
    return abs(value) if isinstance(value, (int, float)) and math.isfinite(value) else -1.0


def searchable_table(rows: Sequence[Mapping[str, object]], name: str, shown: int = _SHOWN) -> str:
    """A sortable table of all rows, the first `shown` seen at first, with a search box and a button that saves a CSV file.

    The script makes the box and the buttons work; without it the table shows every row. name : of the file, without its end.
    """
    what = f"of {len(rows)} rows" if len(rows) > shown else f"{len(rows)} rows"
    more = f'<button type="button" class="all">show all {len(rows)} rows</button>' if len(rows) > shown else ""
    return (
        f'<div class="searched" data-shown="{shown}" data-file="{escape(name)}"><p class="tools" hidden><label>search '
        f'<input type="search" autocomplete="off" spellcheck="false"></label> {more} '
        f'<button type="button" class="save">save as CSV</button> <span class="soft" aria-live="polite">{what}</span></p>'
        f"{html_table(rows, shown=len(rows))}</div>"
    )


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    titles = "".join(
        f'<th scope="col"{"" if isinstance(value, (int, float)) else _TEXT}><button>{escape(str(title))}</button></th>'
        for title, value in rows[0].items()
    )
    body = "".join(f"<tr>{''.join(_cell(title, value) for title, value in row.items())}</tr>" for row in rows)
    return f'<div class="scroll"><table class="sortable"><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(title: str, value: object) -> str:
    if not isinstance(value, (int, float)):
        return f"<td{_TEXT}>{escape(str(value))}</td>"
    if _unknown(value):
        return '<td data-value="nan">–</td>'
    return f'<td data-value="{value!r}">{escape(cell(title, value)).replace("-", "−")}</td>'


_INK = "#0a0b0c"  # drawn in this colour, replaced by the page's own
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "axes.titlecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def inline_svg(
    draw: Callable[[Any], Any], size: tuple[float, float], text: str, salt: str, *, whole: bool = False
) -> str:
    """`draw(ax)` as an <svg> element of `size` inches, described by `text`.

    whole : it draws on a figure, not on an Axes. salt : tells the element identifiers of several pictures on one page apart;
    the same salt gives the same bytes.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    out = io.StringIO()
    style: Any = {**_STYLE, "svg.hashsalt": salt}
    with rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter the drawing font lacks: the browser has it
        figure = Figure(figsize=size, layout="constrained")
        draw(figure if whole else figure.add_subplot())
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    picture = out.getvalue()
    picture = picture[picture.index("<svg") :].replace(_INK, "currentColor")
    width, height = (round(72 * side) for side in size)
    wide = width * 4 // 3  # in a narrow window a picture scrolls rather than shrink below legibility
    opening = (
        f'<svg viewBox="0 0 {width} {height}" style="width:{wide}px;min-width:{min(wide, 560)}px" role="img" '
        f'aria-label="{escape(text)}">'
        f"<title>{escape(text)}</title>"
    )
    picture = re.sub(r"<svg[^>]*>", lambda _: opening, picture, count=1)
    picture = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", picture, count=1, flags=re.DOTALL)  # in style.css
    # identifiers that matplotlib does not salt (figure_1, axes_1, ...) would repeat from picture to picture
    return re.sub(r'(\bid="|url\(#|href="#)', lambda match: f"{match.group(1)}{salt}-", picture).strip()


_MOST_HEAT_MAPS = 8


def _height(rows: int) -> float:
    return 1.3 + 0.3 * min(rows, MOST)


def _figure(picture: str, caption: str) -> str:
    return f'<figure><div class="scroll">{picture}</div><figcaption>{caption}</figcaption></figure>'


def verdict(found: Findings) -> str:
    """What was asked, and the answer; a test that fails takes the green away."""
    tone, alarms = TONES.get(found.verdict, ""), found.alarms()
    said = found.verdict == "model fails"
    badge = found.verdict + (f", {'and' if tone == 'poor' else 'but'} a test fails" if alarms and not said else "")
    advice = "".join(f"<li>{escape(sentence)}</li>" for sentence in found.advice())
    detail = f"<p>{escape(found.detail())}</p>" if found.detail() else ""
    return (
        f"<p>{escape(found.question())}</p>"
        f'<section class="verdict {tone if not alarms or tone == "poor" else "fair"}" aria-label="Verdict">'
        f'<span class="badge">{escape(badge)}</span>'
        f'<p class="headline">{escape(found.lead())}</p>{detail}<ul>{advice}</ul></section>'
    )


def coefficients(found: Findings) -> str:
    """The outcome on the component."""
    told = found.outcome
    if told is None:
        return ""
    picture = inline_svg(
        lambda ax: estimate_plot(told.estimate, label=told.unit, ax=ax),
        (7.6, _height(len(told.estimate.names))),
        f"Coefficients of {told.event} by method, with intervals",
        "outcome",
    )
    others = "the controls" if told.outside == "V" else told.outside
    words = {
        "naive": "Naive: the component's view as it is. " if found.sets else f"Naive: {others} are ignored. ",
        "residualised": f"Residualised: {others} are added as covariates. ",
        "instrumental": "Instrumental: on what the component's other views predict of it. ",
    }
    compared = "".join(escape(words[name]) for name in told.estimate.others if name in words)
    caption = (
        f"{compared}RCA: the regression on {escape(told.component)}. Lines are 95% intervals of RCA. (Second moments alone put "
        "no bound on these coefficients, so there is no identified set to draw.)"
    )
    classes = ""
    if told.contrast is not None:
        classes = (
            f" {escape(str(told.contrast))}. An odds ratio is what one unit multiplies the odds of "
            f"{escape(told.contrast.positive)} by, with its 95% interval."
        )
    return (
        f"<h2>What goes with {escape(told.event)}</h2><p>Each coefficient is the {escape(told.unit)} of the column, the "
        f"other columns held fixed.{classes}</p>{_figure(picture, caption)}{html_table(told.rows(), order='RCA')}"
    )


def effects(found: Findings) -> str:
    """Every exposure: a picture of its effects, and all of them in a table."""
    return "".join(_effects(found, answer, i) for i, answer in enumerate(found.effects))


_FIRST_READ = (
    "name", "estimate", "low", "high", "p", "q", "adjusted", "naive", "truth", "standard error", "identified low",
    "identified high", "calibrated p", "calibrated q",
)  # fmt: skip


def _effects(found: Findings, answer: ExposureAnswer, i: int) -> str:
    told, name, u = answer.effects, escape(answer.exposure), escape(next(iter(found.views)))
    many = len(told.names) > MOST
    if many:
        picture = inline_svg(
            lambda ax: volcano_plot(told, ax=ax),
            (7.6, 4.6),
            f"Effects of {answer.exposure} and p values",
            f"effects{i}",
        )
        caption = (
            "Each dot is a column: across, its effect; up, how clear it is (a p value of 0.001 is at 3). Blue dots have q "
            "below 0.1: at most about one in ten of them is there by chance. The clearest are named."
        )
    else:
        picture = inline_svg(
            lambda ax: estimate_plot(told, label=f"effect of {answer.exposure}", ax=ax),
            (7.6, _height(len(told.names))),
            f"Effects of {answer.exposure} by method, with intervals",
            f"effects{i}",
        )
        caption = (
            "Blue dot and line: the estimate and its 95% interval. Green: the controls as covariates (adjusted). Orange: no "
            "controls at all (naive). Pale band: all effects that agree with the correlations, whatever the noise of the "
            "controls (identified set)."
        )
    rows = [{key: row[key] for key in _FIRST_READ if key in row} for row in answer.rows()]
    rows = [rows[int(at)] for at in answer.order()]
    warned = f" {escape(answer.finding())}" if answer.verdict == "not separable" else ""
    form = "".join(c if c.isalnum() else "-" for c in answer.exposure)
    return (
        f"<h2>What changes with {name}</h2><p>Each effect is the difference in a column of {u} that goes with {name} "
        f"(for numbers: with one unit), in the column's own units.{warned}</p>"
        f"{_figure(picture, caption)}{searchable_table(rows, f'effects-{form}')}"
        '<p class="soft">low, high: 95% interval. q: share of false ones among all effects as clear as this one. '
        "calibrated: p and q that allow, beside the standard error, for an error as large as hidden controls show.</p>"
    )


def controls(found: Findings) -> str:
    """What controls get when they are hidden: their effects are zero in truth."""
    if not found.effects:
        return ""
    out = [
        "<h2>Are the controls valid?</h2><p>A control is a column that the exposure does not change, but what is hidden "
        "disturbs. Each was hidden in turn and its effect estimated from the others, as if it were a test: that effect "
        "should be zero.</p>"
    ]
    for i, answer in enumerate(found.effects):
        hidden = answer.hidden
        out.append(f"<h3>{escape(answer.exposure)}</h3>" if len(found.effects) > 1 else "")
        out.append(f"<p>{escape(answer.about_controls())}</p>")
        if hidden is None:
            continue

        def draw(ax: Any, hidden: Any = hidden) -> Any:
            return control_plot(hidden, ax=ax)

        what = f"Effects of {answer.exposure} on hidden controls, with intervals"
        picture = inline_svg(draw, (7.6, _height(len(hidden.names))), what, f"controls{i}")
        caption = (
            "Your controls, as the method sees them when they are hidden. Blue: the estimate with its 95% interval; green: the "
            "other controls as covariates. Intervals that miss the dashed line are worth a second look."
        )
        rows = [{k: v for k, v in row.items() if k != "exposure"} for row in answer.controls]
        out.append(_figure(picture, caption) + html_table(rows))
    if any(answer.controls for answer in found.effects):
        out.append(
            "<p>A control with a small p may be changed by the exposure, or disturbed by something that the others do not see. "
            "Leave it out, fit again, and compare. “Effects move without it” says by how many of their standard errors the "
            "effects on the tests move when it (and those hidden with it) is left out: above 1 the answer leans on it.</p>"
        )
    return "".join(out)


def sensitivity(found: Findings) -> str:
    """How the effects depend on what is assumed: the noise of the controls, and how many directions are hidden."""
    out = []
    for i, answer in enumerate(found.effects):
        if not answer.rank:
            continue
        of = f" of {escape(answer.exposure)}" if len(found.effects) > 1 else ""

        def draw(ax: Any, answer: ExposureAnswer = answer) -> Any:
            return sensitivity_plot(answer.effects, answer.path, ax=ax)

        what = f"Effects of {answer.exposure} by the assumed noise of the controls"
        picture = inline_svg(draw, (7.6, 4.4), what, f"sensitivity{i}")
        caption = (
            "The columns whose effects depend most on how noisy the controls are. Left: not at all, which is what adding "
            "them as covariates assumes. Right: as noisy as the correlations allow. Dots: the estimates (beside their "
            "lines where several directions are hidden). Lines that stay on one side of zero keep their sign whatever the "
            "noise."
        )
        out.append(f"<h2>What if the controls were noisier?{of}</h2>{_figure(picture, caption)}")
        if len(answer.ranks) > 1:
            out.append(
                f"<h3>And if more, or less, were hidden?</h3><p>Effects with {_ranks(answer)} hidden directions. "
                f"Columns that change much are not settled.</p>{html_table(answer.rank_rows(_SHOWN))}"
            )
    return "".join(out)


def _ranks(answer: ExposureAnswer) -> str:
    ranks = list(map(str, answer.ranks))
    return " or ".join(filter(None, [", ".join(ranks[:-1]), ranks[-1]]))


def learned(found: Findings) -> str:
    """Directions, means or couplings of the component."""
    if found.learned is None:
        return ""
    title, rows = found.learned.title, found.learned.rows
    names = next(iter(found.views.values()))
    across = [*names, *(rows[0] if rows else ())]  # whichever is written there, it needs room
    picture = inline_svg(found.learned.draw, (7.6, heat_map_size(names, across)[1]), title, "learned")
    order = next((key for key, value in rows[0].items() if isinstance(value, float)), None) if rows else None
    return f"<h2>{escape(title)}</h2>{_figure(picture, escape(title) + '.')}{html_table(rows, order=order)}"


def components(found: Findings) -> str:
    """Which component carries how much of which view."""
    if found.sets is None:
        return ""
    size = (max(4.0, 1.8 + 0.9 * len(found.sets.rows)), 3.0 + 0.45 * len(found.views))
    picture = inline_svg(
        found.sets.draw, size, "Share of each view's variance that each component carries", "components", whole=True
    )
    caption = (
        "Bars: the share of a view's variance that a component carries there. Dots below: the views it lives in. In the table, "
        "the relative error is the largest of the component's transformations; the verdict says whether the data tell the "
        "component (strong), its transformations but not how much there is of it (covariance not told), or neither (weak); p "
        "(absent) is the chance of such evidence if the component were not there."
    )
    return (
        f"<h2>Which parts are there</h2>{_figure(picture, caption)}{html_table(found.sets.rows)}"
        f"<details><summary>What tells these parts apart</summary><pre>{escape(found.sets.explanation)}</pre></details>"
    )


def shared_directions(found: Findings) -> str:
    """Canonical correlations and the rank."""
    d = found.diagnostics
    if d is None:
        return ""
    picture = inline_svg(
        lambda ax: correlation_plot(d.canonical_correlations, d.rank, ax=ax),
        (7.6, 2.8),
        f"Canonical correlations between the views; the first {d.rank} are taken as shared",
        "correlations",
    )
    caption = (
        "Each bar is one direction in which the two views go together. Coloured directions are modelled as shared; grey ones "
        "are taken for chance."
    )
    return f"<h2>What the views share</h2>{_figure(picture, caption)}"


def variances(found: Findings) -> str:
    """Each column of U: how much is its own, how sure that is, by method."""
    table = found.variance
    if table is None:
        return ""
    shares = inline_svg(
        lambda ax: variance_plot(table.names, table.own, table.shared, ax=ax),
        (7.6, _height(len(table.names))),
        "Share of each column's variance that is its own and that is shared",
        "variance",
    )

    intervals = inline_svg(
        lambda ax: own_variance_plot(table, label="variance that is the column's own, Var(S1)", ax=ax),
        (7.6, _height(len(table.names))),
        "Variance of each column that is its own, by method",
        "intervals",
    )
    return (
        "<h2>How much of each column is its own</h2>"
        + _figure(shares, "The variance of every column of U, split into its own part and the part shared with V.")
        + _figure(
            intervals,
            "The pale band is what correlations alone allow, whatever the distributions (the identified set); naive takes all "
            "variance to be the column's own, residualising is the band's upper end. The line is the 95% interval of RCA"
            + (
                "; here the higher orders say nothing, so it is the band, widened for sampling noise."
                if found.verdict == "not identified"
                else ", which also uses skewness and kurtosis."
            ),
        )
        + html_table(table.rows(), order="shared share")
    )


def mixing(found: Findings) -> str:
    """How components enter views, as heat maps."""
    if found.diagnostics is not None and not found.diagnostics.rank:
        return ""
    out = []
    for i, part in enumerate(found.mixing[:_MOST_HEAT_MAPS]):
        what = "the shared part" if found.sets is None else part.component
        out.append(f"<h2>How {escape(what)} enters {escape(part.view)}</h2>")
        A = part.matrix
        if A is None:
            out.append(f"<p>A has {len(part.rows)} x {len(part.columns)} entries, too many to show.</p>")
            continue

        def draw(ax: Any, A: Any = A, part: Any = part) -> Any:
            return heat_map(A, part.rows, part.columns, label="entry of A", ax=ax)

        picture = inline_svg(
            draw,
            heat_map_size(part.rows, part.columns),
            f"Heat map of A, {part.component} in {part.view}",
            f"mixing{i}",
        )
        caption = f"How {escape(what)}, in the columns across, enters each column of {escape(part.view)} (down)."
        out.append(_figure(picture, caption + (" Only the shared directions count." if found.sets is None else "")))
    left = len(found.mixing) - _MOST_HEAT_MAPS
    return "".join(out) + (f'<p class="soft">{left} more transformations are in the model.</p>' if left > 0 else "")


def checks(found: Findings) -> str:
    """Diagnostics, each with what it means."""
    rows = _of_two_views(found.diagnostics) if found.diagnostics is not None else []
    for answer in found.effects:
        p = answer.outside.p_value
        meaning = "Small p: the exposure changes some controls, or more is hidden than was modelled. See above."
        rows.append((f"Controls and {answer.exposure}", p_value(p), p >= SUSPICIOUS, meaning))
    if found.outcome is not None:
        told, p = found.outcome, found.outcome.test.p_value
        meaning = (
            f"Small p: the outcome goes with {told.outside}, so it depends on more than {told.component} and the coefficients "
            "may be wrong."
        )
        rows.append((f"{told.name} and {told.outside}", p_value(p), p >= SUSPICIOUS, meaning))
    if not rows:
        return ""
    body = "".join(
        f'<tr><td>{escape(name)}</td><td class="text">{escape(value)}</td><td class="text">{_mark(good)}</td>'
        f'<td class="long">{escape(meaning)}</td></tr>'
        for name, value, good, meaning in rows
    )
    return (
        '<h2>Checks</h2><div class="scroll"><table><thead><tr><th scope="col">check</th><th scope="col" class="text">value</th>'
        f'<th scope="col" class="text"></th><th scope="col" class="text">what it means</th></tr></thead><tbody>{body}</tbody>'
        "</table></div>"
    )


def _of_two_views(d: Diagnostics) -> list[tuple[str, str, bool | None, str]]:
    """Name, value, whether it is fine (None: it is neither) and meaning."""
    total, left, fit = len(d.canonical_correlations), d.leftover.p_value, d.overidentification
    split = (
        "How clearly skewness and kurtosis tell the own part from the shared part. Small: collect more samples, or rely on the "
        "band above."
    )
    beyond = "Small p: the views share more than was modelled. Check that V holds controls only, or raise the rank."
    structure = "Small p: U = S1 + S2, V = A S2 + S3 with independent parts does not fit these data."
    seen = "Large (above about 100): some shared directions are barely visible in V."
    disturbances = "How many independent disturbances the views have in common."
    rows: list[tuple[str, str, bool | None, str]] = [("Shared directions", f"{d.rank} of {total}", None, disturbances)]
    if d.rank and np.isfinite(d.strength):
        rows.append(("Evidence on the split", f"{d.strength:.1f} standard errors", d.verdict == "strong", split))
    if d.rank < total:
        value = f"correlation {d.leftover_correlation:.2f}, {p_value(left)}"
        rows.append(("Left beyond the rank", value, left >= SUSPICIOUS, beyond))
    if fit is not None:
        rows.append(("Structure of the model", p_value(fit.p_value), fit.p_value >= SUSPICIOUS, structure))
    if d.rank:
        rows.append(("Condition of A", number(d.condition_A), None, seen))
    return rows


def _mark(good: bool | None) -> str:
    if good is None:
        return ""
    return '<span class="ok">✓ fine</span>' if good else '<span class="bad">! look</span>'


def reproduce(found: Findings) -> str:
    """Command, versions, seed and files."""
    made = found.provenance
    versions = ", ".join(f"{name} {version}" for name, version in Provenance.versions().items())
    command = f"<pre><code>{escape(made.command)}</code></pre>" if made.command else ""
    words = _OF_EFFECTS if found.effects else _OF_TWO if found.sets is None else _OF_MANY
    files = "".join(
        f"<dt>{escape(path)}</dt><dd>SHA-256 <code>{escape(digest)}</code></dd>" for path, digest in made.files.items()
    )
    date = f"<dt>made</dt><dd>{escape(made.date)}</dd>" if made.date else ""
    return (
        f"<h2>How to reproduce this page</h2>{command}<dl><dt>versions</dt><dd>{escape(versions)}</dd>"
        f"<dt>seed (random_state)</dt><dd>{escape(str(made.seed))}</dd>{files}{date}</dl>"
        f"<details><summary>Words used on this page</summary>{words}</details>"
    )


_OF_TWO = (
    "<dl><dt>U, V</dt><dd>The two groups of columns: tests and controls, measured on the same samples.</dd>"
    "<dt>S1, S2, S3</dt><dd>The hidden parts: U = S1 + S2 and V = A S2 + S3. S2 is shared, S1 is U's own, S3 is V's own; "
    "the three are independent.</dd>"
    "<dt>identified set</dt><dd>All values that agree with the observed correlations.</dd>"
    "<dt>residualising</dt><dd>Subtracting from U what V predicts; the same as adding V as covariates.</dd></dl>"
)
_OF_EFFECTS = (
    "<dl><dt>tests, controls</dt><dd>Two groups of columns (U, V), measured on the same samples. The exposure may change "
    "the tests; it does not change the controls.</dd>"
    "<dt>hidden directions</dt><dd>How many independent disturbances tests and controls have in common, given the "
    "exposure.</dd><dt>naive</dt><dd>The difference as it is, with known covariates removed.</dd>"
    "<dt>adjusted</dt><dd>The controls are added as covariates (analysis of covariance). That takes them to be free of "
    "noise; as they are not, part of the disturbance stays.</dd>"
    "<dt>identified set</dt><dd>All effects that agree with the observed correlations, whatever the noise of the "
    "controls.</dd></dl>"
)
_OF_MANY = (
    "<dl><dt>view</dt><dd>A group of columns, measured on the same samples as the others.</dd>"
    "<dt>component</dt><dd>A hidden part, called by the views it lives in. Each view is the sum of its components, each "
    "transformed by a matrix A; all components are independent.</dd></dl>"
)


SECTIONS = (
    verdict, coefficients, effects, controls, sensitivity, learned, components, shared_directions, variances, mixing, checks,
    reproduce,
)  # fmt: skip


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
