"""Text of strangers (column names, labels, file names) on a terminal: shown, never obeyed.

A column may be called "\\x1b[2J", hold a carriage return or turn the direction of writing round. Such characters are data and
are kept as they are; where a person reads them, they stand as their escapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from unicodedata import category

_LONGEST = 100  # characters of a name in a table; the row of a table is as wide as its longest name


def plain(text: str) -> str:
    """The text with every character that is not seen as such (except spaces and line breaks) as its escape.

    >>> plain("a\\x1b[31mb\\r\\u202ec\\n")
    'a\\\\x1b[31mb\\\\r\\\\u202ec\\n'
    """
    if text.isprintable():
        return text
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_visible, line)) for line in lines)


def _visible(character: str) -> str:
    return character if character.isprintable() or category(character) == "Zs" else ascii(character)[1:-1]


def in_line(name: object, longest: int = _LONGEST) -> str:
    """A name for a line or a table's cell: one line, and of a very long one its beginning and end.

    >>> in_line("two\\nlines"), in_line("a" * 20 + "b" * 20, 11)
    ('two\\\\nlines', 'aaaaa…bbbbb')
    """
    text = str(name)
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return plain(text).replace("\n", "\\n")


def in_lines(names: Iterable[object], longest: int = _LONGEST) -> list[str]:
    """Each of them for a line."""
    return [in_line(name, longest) for name in names]


def page(lines: Iterable[str]) -> str:
    """Lines as one text to be printed."""
    return plain("\n".join(lines))


_SMALLEST = 1e-16  # p values below say nothing but this


def p_text(p: float) -> str:
    """A p value for a reader.

    >>> p_text(0.0312), p_text(2e-5), p_text(0.0), p_text(float("nan"))
    ('0.0312', '2.0e-05', '< 1e-16', '')
    """
    if math.isnan(p):
        return ""
    if p < _SMALLEST:
        return f"< {_SMALLEST:.0e}"
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def p_value(p: float) -> str:
    """A p value with its letter.

    >>> p_value(0.0312), p_value(0.0)
    ('p = 0.0312', 'p < 1e-16')
    """
    text = p_text(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def number(value: float) -> str:
    """Three to four digits.

    >>> number(-0.12345), number(0.092551), number(12345.6), number(1e-7), number(3)
    ('-0.1235', '0.0926', '12350', '1.0e-07', '3')
    """
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value) or not (value == 0 or 1e-3 <= abs(value) < 1e6):
        return f"{value:.1e}"
    if value == 0:
        return "0"
    digits = min(3 - math.floor(math.log10(abs(value))), 4)
    return f"{round(value, digits):.{max(0, digits)}f}"


def is_p(title: str) -> bool:
    """Whether a column of this title holds p values, or others that are read like them."""
    return title in ("p", "q") or title.startswith("p (")


def cell(title: str, value: object) -> str:
    """A value of the column `title`, as text; nothing where it is not known.

    >>> cell("p", 0.0), cell("estimate", -1.23456), cell("name", "age"), cell("low", float("nan"))
    ('< 1e-16', '-1.235', 'age', '')
    """
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return p_text(value) if is_p(title) else number(value)
    return str(value)


def cells(rows: Iterable[Mapping[str, object]]) -> list[list[str]]:
    """The values of rows of a table, as text."""
    return [[cell(title, value) for title, value in row.items()] for row in rows]


def lined_up(rows: Sequence[Sequence[str]], names: int = 1) -> list[str]:
    """Cells as lines (see in_line) with columns one below the other, the first `names` to the left, the others to the right.

    >>> lined_up([["name", "value"], ["a", "1.50"]])
    ['name  value', 'a      1.50']
    """
    rows = [in_lines(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < names else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def as_sentence(text: str) -> str:
    """The text as a sentence: a capital in front, one full stop behind."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def listed(parts: Sequence[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def counted(items: Sequence[object], noun: str) -> str:
    """
    >>> counted(["a"], "view"), counted(["a", "b"], "view")
    ('1 view', '2 views')
    """
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"
