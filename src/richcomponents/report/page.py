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
from richcomponents.cumulants.estimate import p_text
from richcomponents.outputs import check_outputs, write_text
from richcomponents.plots import (
    MOST,
    correlation_plot,
    estimate_plot,
    heat_map,
    heat_map_size,
    own_variance_plot,
    variance_plot,
)
from richcomponents.report.findings import SUSPICIOUS, Findings, Provenance, p_value
from richcomponents.text import escape

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
    shown = escape(p_text(value)) if title == "p" or title.startswith("p (") else number(value)
    return f'<td data-value="{value!r}">{shown.replace("-", "−")}</td>'


def number(value: float) -> str:
    """Three to four digits, with a real minus sign.

    >>> number(-0.12345), number(12345.6), number(1e-7), number(3)
    ('−0.1235', '12350', '1.0e−07', '3')
    """
    if isinstance(value, int):
        text = str(value)
    elif value == 0 or 1e-3 <= abs(value) < 1e6:
        digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
        text = f"{round(value, 3 - math.floor(math.log10(abs(value)))):.{min(digits, 4)}f}" if value else "0"
    else:
        text = f"{value:.1e}"
    return text.replace("-", "−")


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


_TONE = {"strong": "good", "known mixing": "good", "weak": "fair", "not identified": "poor", "paper": "fair"}
_MOST_HEAT_MAPS = 8


def _height(rows: int) -> float:
    return 1.3 + 0.3 * min(rows, MOST)


def _figure(picture: str, caption: str) -> str:
    return f'<figure><div class="scroll">{picture}</div><figcaption>{caption}</figcaption></figure>'


def verdict(found: Findings) -> str:
    """What was asked, and the answer; a test that fails takes the green away."""
    tone, alarms = _TONE.get(found.verdict, ""), found.alarms()
    badge = found.verdict + (", but a test fails" if alarms else "")
    advice = "".join(f"<li>{escape(sentence)}</li>" for sentence in found.advice())
    return (
        f"<p>{escape(found.question())}</p>"
        f'<section class="verdict {tone if not alarms or tone == "poor" else "fair"}" aria-label="Verdict">'
        f'<span class="badge">{escape(badge)}</span>'
        f'<p class="headline">{escape(found.headline())}</p><ul>{advice}</ul></section>'
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
    compared = (
        "Naive: the controls are ignored. Residualised: the controls are added as covariates. "
        if told.outside == "V"
        else ""
    )
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
        "the relative error is the largest of the component's transformations; p (absent) is the chance of such evidence if "
        "the component were not there."
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
    files = "".join(
        f"<dt>{escape(path)}</dt><dd>SHA-256 <code>{escape(digest)}</code></dd>" for path, digest in made.files.items()
    )
    date = f"<dt>made</dt><dd>{escape(made.date)}</dd>" if made.date else ""
    return (
        f"<h2>How to reproduce this page</h2>{command}<dl><dt>versions</dt><dd>{escape(versions)}</dd>"
        f"<dt>seed (random_state)</dt><dd>{escape(str(made.seed))}</dd>{files}{date}</dl>"
        f"<details><summary>Words used on this page</summary>{_OF_TWO if found.sets is None else _OF_MANY}</details>"
    )


_OF_TWO = (
    "<dl><dt>U, V</dt><dd>The two groups of columns: tests and controls, measured on the same samples.</dd>"
    "<dt>S1, S2, S3</dt><dd>The hidden parts: U = S1 + S2 and V = A S2 + S3. S2 is shared, S1 is U's own, S3 is V's own; "
    "the three are independent.</dd>"
    "<dt>identified set</dt><dd>All values that agree with the observed correlations.</dd>"
    "<dt>residualising</dt><dd>Subtracting from U what V predicts; the same as adding V as covariates.</dd></dl>"
)
_OF_MANY = (
    "<dl><dt>view</dt><dd>A group of columns, measured on the same samples as the others.</dd>"
    "<dt>component</dt><dd>A hidden part, called by the views it lives in. Each view is the sum of its components, each "
    "transformed by a matrix A; all components are independent.</dd></dl>"
)


SECTIONS = (verdict, coefficients, learned, components, shared_directions, variances, mixing, checks, reproduce)


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
