"""Rows of numbers as HTML tables, every string escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from richcomponents.cumulants.estimate import p_text
from richcomponents.text import escape

__all__ = ["html_table", "number"]

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
