"""Plots as SVG that lives inside a page: follows its text colour, refers to nothing outside, reads aloud."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

from richcomponents.text import escape

__all__ = ["inline_svg"]

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
