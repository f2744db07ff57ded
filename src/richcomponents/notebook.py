"""What was found, for a reader in a terminal and for one in a notebook: text in the first, HTML in the second.

There are two forms, used by everything that is shown. A :class:`Table` is a list of rows. A :class:`Summary` is a page of text
that also knows what is said first: the verdict, sentences in plain words, tables. A notebook shows these, and the whole text
(shrinkage, evidence in nats, ...) behind a fold. HTML comes from `templates/`, here and for the report, and every text in it is
escaped on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from richcomponents.text import cells, in_line, lined_up, plain

if TYPE_CHECKING:
    from jinja2 import Environment

_ROWS, _COLUMNS = 20, 9  # of a table that are seen at first
_FOLDED = 500  # rows behind a fold: a notebook keeps them all in its file

TONES = dict.fromkeys(("strong",), "good")
TONES |= dict.fromkeys(("weak", "not checked", "nothing shared"), "fair")
TONES |= dict.fromkeys(("not identified", "contradicted"), "poor")
"""Whether a verdict is good news; those that are neither are left out."""
_COLOURS = {"good": "#0f9d76", "fair": "#e08e0b", "poor": "#d1493f"}


@cache
def templates() -> Environment:
    """All HTML of the library, whatever is put into it escaped, and long texts. Who renders them shows characters that nobody
    would see."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    strict: dict[str, Any] = {
        "autoescape": select_autoescape(default=True, disabled_extensions=("txt",)),
        "undefined": StrictUndefined,
        "trim_blocks": True,
        "lstrip_blocks": True,
        "keep_trailing_newline": True,
    }
    made = Environment(loader=PackageLoader("richcomponents"), **strict)
    made.filters |= {"in_line": in_line, "cells": cells}
    return made


def _piece(name: str, *given: Any) -> str:
    """A piece of HTML of templates/notebook.html."""
    return str(getattr(templates().get_template("notebook.html").module, name)(*given))


def as_frame(rows: Sequence[Mapping[str, object]]) -> Any:
    """Rows as a data frame: of pandas where it is installed, else of polars, else a pyarrow Table."""
    columns = {title: [row[title] for row in rows] for title in (rows[0] if rows else ())}
    try:
        import pandas
    except ImportError:
        try:
            import polars
        except ImportError:
            import pyarrow

            return pyarrow.table(columns)
        return polars.DataFrame(columns)
    return pandas.DataFrame(columns)


class Table(list[dict[str, object]]):
    """Rows of a table, {title: value} each, with the same titles: a list that prints as a table, in a notebook, too.

    Examples
    --------
    >>> Table([{"name": "age", "p": 0.0}, {"name": "dose", "p": 0.25}])
    name        p
    age   < 1e-16
    dose   0.2500
    """

    def to_frame(self) -> Any:
        """As a data frame: of pandas where it is installed, else of polars, else a pyarrow Table."""
        return as_frame(self)

    def cells(self) -> list[list[str]]:
        """A head and the rows, as text; columns in which nothing is known are left out."""
        known = [
            title for title in (self[0] if self else ()) if any(row[title] == row[title] for row in self)
        ]  # nan is not
        return [known, *cells({title: row[title] for title in known} for row in self)]

    def _names(self) -> int:
        """How many columns stand in front of the numbers."""
        kinds = [isinstance(value, str) for value in (self[0].values() if self else ())]
        return kinds.index(False) if False in kinds else len(kinds)

    def __repr__(self) -> str:
        return "\n".join(lined_up(self.cells(), self._names())) if self else "(no rows)"

    def _repr_html_(self) -> str:
        head, *rows = self.cells()
        return html_table(head, rows, self._names())


class Tabular:
    """Anything that is a table of rows: a data frame, and a table in a terminal and in a notebook."""

    def rows(self) -> Table:
        raise NotImplementedError

    def to_frame(self) -> Any:
        """As a data frame: of pandas where it is installed, else of polars, else a pyarrow Table."""
        return self.rows().to_frame()

    def __str__(self) -> str:
        return str(self.rows())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.rows()._repr_html_()


class Summary(str):
    """A page of text, as any other text is; a notebook shows what is read first, and the whole text behind a fold.

    verdict : a word or two; says : sentences in plain words, the most important first; tables : anything that has
    `_repr_html_`, or is shown as text.

    Examples
    --------
    >>> found = Summary("all that was found", verdict="strong", says=["The parts are told apart."])
    >>> found
    all that was found
    >>> "told apart" in found._repr_html_(), found.upper()
    (True, 'ALL THAT WAS FOUND')
    """

    verdict: str
    says: tuple[str, ...]
    tables: tuple[Any, ...]

    def __new__(cls, text: str, *, verdict: str = "", says: Iterable[str] = (), tables: Iterable[Any] = ()) -> Self:
        page = super().__new__(cls, text)
        page.verdict, page.says, page.tables = verdict, tuple(dict.fromkeys(filter(None, says))), tuple(tables)
        return page

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        colour = _COLOURS.get(TONES.get(self.verdict, ""), "#8a919c")
        tables = list(map(shown, self.tables))
        return plain(_piece("summary", self.verdict, colour, self.says, tables, str(self)))


def folded(title: str, inside: str) -> str:
    """HTML that is seen after a click on its title."""
    return _piece("folded", title, inside)


def shown(thing: Any) -> str:
    """Anything as HTML: its own, or its text."""
    own = getattr(thing, "_repr_html_", None)
    return plain(_piece("text", str(thing))) if own is None else own()


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1) -> str:
    """Texts as a table, the first `names` columns to the left; of a long or wide one the first rows and columns, and the whole
    behind a fold."""
    return plain(_piece("table", head, rows, names, (_ROWS, _COLUMNS, _FOLDED)))
