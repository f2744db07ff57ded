"""What sections of the page are made of: tables with all that goes with them, and pictures that live inside a page.

Every string is escaped. Pictures are SVG: they follow the page's text colour, refer to nothing outside and read aloud. Each is
drawn twice, for a desk (and paper) and for a phone; the page shows one of them.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from richcomponents.notebook import cell
from richcomponents.plots import MOST
from richcomponents.text import escape

SHOWN = 25
"""Rows of a table that are seen at first."""
_SEARCHED = 10  # rows from which on a table has a search box
_PHONE = 3.9  # inches
_WIDTHS = {"widest": 26, "wider": 14, "wide": 9}  # columns above which print is smaller
_TEXT = ' class="text"'
_SORT = (
    '<span class="sort" role="button" tabindex="0">{}</span>'  # a button would not be printed again on the next page
)


class Doubtful(float):
    """A number that is not told: pale in a table."""


def html_table(rows: Sequence[Mapping[str, object]], name: str, *, order: str | None = None, shown: int = SHOWN) -> str:
    """A table of all rows, that a click on a title sorts, with a button that saves it as a CSV file; long ones have a search
    box and show the first `shown` rows until more are asked for (on paper: all).

    name : of the file, without its end. order : a column; the rows largest in size there come first. Columns in which
    nothing is known are left out. The script makes box and buttons work; without it the table shows every row.
    """
    if not rows:
        return ""
    known = [key for key in rows[0] if any(not _unknown(row[key]) and row[key] != "" for row in rows)]
    rows = [{key: row[key] for key in known} for row in rows]
    if order in known and len(rows) > shown:

        def size(row: Mapping[str, Any]) -> float:
            return abs(row[order]) if isinstance(row[order], (int, float)) and math.isfinite(row[order]) else -1.0

        rows = sorted(rows, key=size, reverse=True)
    return with_tools(_table(rows), name, len(rows), shown)


def with_tools(table: str, name: str, rows: int, shown: int = SHOWN) -> str:
    """A table (HTML) of so many rows, with what works on it."""
    form = "".join(c if c.isalnum() else "-" for c in name)
    search = (
        '<label>search <input type="search" autocomplete="off" spellcheck="false"></label> ' if rows > _SEARCHED else ""
    )
    more = f'<button type="button" class="all">show all {rows} rows</button> ' if rows > shown else ""
    return (
        f'<div class="searched" role="group" aria-label="table: {escape(name)}" data-shown="{shown}" '
        f'data-file="{escape(form)}"><p class="tools" hidden>{search}{more}'
        '<button type="button" class="save">save as CSV</button> <span class="soft" aria-live="polite"></span></p>'
        f"{table}</div>"
    )


def _unknown(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    titles = "".join(
        f'<th scope="col"{"" if isinstance(value, (int, float)) else _TEXT}>{_SORT.format(escape(str(title)))}</th>'
        for title, value in rows[0].items()
    )
    body = "".join(f"<tr>{''.join(_cell(title, value) for title, value in row.items())}</tr>" for row in rows)
    kind = "sortable" + next((f" {width}" for width, most in _WIDTHS.items() if len(rows[0]) > most), "")
    return scrolled(kind, titles, body)


def scrolled(kind: str, titles: str, body: str) -> str:
    """A table (HTML) of one line of titles, in a box of its own."""
    head = f"<thead><tr>{titles}</tr></thead>"
    return f'<div class="scroll"><table class="{kind}">{head}<tbody>{body}</tbody></table></div>'


def _cell(title: str, value: object) -> str:
    if not isinstance(value, (int, float)):
        return f"<td{_TEXT}>{escape(str(value))}</td>"
    if _unknown(value):
        return '<td data-value="nan">–</td>'
    doubt = ' class="doubt"' if isinstance(value, Doubtful) else ""
    return f'<td{doubt} data-value="{value!r}">{escape(cell(title, value)).replace("-", "−")}</td>'


def height(rows: int) -> float:
    """Of a picture with a line per row, in inches."""
    return 1.3 + 0.3 * min(rows, MOST)


def figure(
    draw: Callable[..., Any],
    size: tuple[float, float],
    text: str,
    salt: str,
    caption: str,
    *,
    whole: bool = False,
    phone: float | None = None,
) -> str:
    """A picture of `size` inches with its caption (HTML); text : read aloud. whole : `draw` takes a figure, not an Axes; salt :
    tells the identifiers of pictures on one page apart; phone : height of the narrow one, if it needs another."""
    wide = inline_svg(draw, size, text, salt, whole=whole)
    if size[0] > _PHONE:
        narrow = (_PHONE, phone or size[1] + 0.5)
        other = inline_svg(draw, narrow, text, f"{salt}-p", whole=whole)
        wide = f'<div class="desk">{wide}</div><div class="phone">{other}</div>'
    return f"<figure>{wide}<figcaption>{caption}</figcaption></figure>"


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


def inline_svg(
    draw: Callable[..., Any], size: tuple[float, float], text: str, salt: str, *, whole: bool = False
) -> str:
    """`draw(ax=...)` as an <svg> element of `size` inches, described by `text`.

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
        draw(figure) if whole else draw(ax=figure.add_subplot())
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    picture = out.getvalue()
    picture = picture[picture.index("<svg") :].replace(_INK, "currentColor")
    width, height = (round(72 * side) for side in size)
    opening = (
        f'<svg viewBox="0 0 {width} {height}" style="width:{width * 4 // 3}px" role="img" '
        f'aria-label="{escape(text)}">'
        f"<title>{escape(text)}</title>"
    )
    picture = re.sub(r"<svg[^>]*>", lambda _: opening, picture, count=1)
    picture = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", picture, count=1, flags=re.DOTALL)  # in style.css
    # identifiers that matplotlib does not salt (figure_1, axes_1, ...) would repeat from picture to picture
    return re.sub(r'(\bid="|url\(#|href="#)', lambda match: f"{match.group(1)}{salt}-", picture).strip()
