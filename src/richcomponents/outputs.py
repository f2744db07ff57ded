"""The one way this library writes a file: whole or not at all, over nothing that is read, and with the mode it had.

A file is written next to its place and moved there. A symbolic link is written through: the link stays, the file it points
to is replaced. Only regular files are replaced: devices, pipes, sockets and folders are refused. What exists keeps its mode
(and owner, where the system allows that); what is new gets the mode of the user's mask.
"""

from __future__ import annotations

import csv
import io
import os
import re
import secrets
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from richcomponents.errors import DataError

PathLike = str | os.PathLike[str]
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def check_outputs(outputs: Iterable[PathLike | None], inputs: Iterable[PathLike | None] = ()) -> None:
    """Refuse, before anything is read or computed, outputs that cannot be written or that would destroy something.

    No output may be one of the inputs (or lie in an input that is a folder), nor may two outputs be one file: by path, through
    links, or under names that some file systems take for one. None stands for an output or input that was not asked for.
    """
    wanted = [Path(path) for path in outputs if path is not None]
    given = [Path(path) for path in inputs if path is not None]
    for number, path in enumerate(wanted):
        target = _target(path)
        for other in given:
            if _same_file(path, other):
                raise DataError(f"writing {path} would overwrite the input {other}: give the output another name")
            if other.is_dir() and other.resolve() in target.parents:
                raise DataError(f"{path} lies inside the input {other}: write it somewhere else")
        for other in wanted[:number]:
            if _same_file(path, other) or _same_name(target, _target(other)):
                raise DataError(f"two outputs are one file, {other} and {path}: give them different names")


@contextmanager
def writing(path: PathLike) -> Iterator[IO[bytes]]:
    """A file to write to; it takes its place when the block ends, and never exists in part."""
    target = _target(Path(path))
    temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)  # the last one is Windows'
    old = target.stat() if target.exists() else None
    handle = os.open(temporary, new, 0o666 if old is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            if old is not None:
                _inherit(temporary, old)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:  # a full disk, a limit
            error.filename = str(path)
        raise


def write_text(path: PathLike, text: str) -> None:
    """Write a text file, UTF-8; see :func:`writing`."""
    with writing(path) as file:
        file.write(text.encode("utf-8"))


def _target(path: Path) -> Path:
    """The file that is written when `path` is: behind links; refused when it is none."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        what = _KINDS.get(stat.S_IFMT(mode), "not a regular file")
        raise DataError(f"cannot write {path}: it is {what}; give the name of a file")
    target = path.resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} to: make it first")
    if (mode is not None and not os.access(target, os.W_OK)) or not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write {path}: the file or its folder is read-only")
    return target


def _same_file(one: Path, two: Path) -> bool:
    """One file under two names; links of either kind count."""
    try:
        return one.samefile(two)
    except OSError:
        return one.resolve() == two.resolve()


def _same_name(one: Path, two: Path) -> bool:
    """Names that differ in case or in how accents are coded are one on some systems: then the later file would win."""
    if one.exists() and two.exists():
        return False  # and they are two files here
    return unicodedata.normalize("NFC", str(one)).casefold() == unicodedata.normalize("NFC", str(two)).casefold()


def _inherit(temporary: Path, old: os.stat_result) -> None:
    """Group, owner and mode; a mode meant for one group is not given to another."""
    mode = stat.S_IMODE(old.st_mode) & 0o777
    if hasattr(os, "chown"):
        with suppress(PermissionError):
            os.chown(temporary, -1, old.st_gid)
        with suppress(PermissionError):
            os.chown(temporary, old.st_uid, -1)
        if temporary.stat().st_gid != old.st_gid:
            mode &= ~stat.S_IRWXG
    os.chmod(temporary, mode)


_TABLES = (".csv", ".tsv", ".parquet")

harmless: ContextVar[bool] = ContextVar("harmless", default=False)
"""Whether texts in text tables that a spreadsheet would take for formulas get an apostrophe before them (`--safe-csv`)."""
_FORMULA = r"^([=+\-@\t\r])"


def check_table_name(path: PathLike | None) -> None:
    """Refuse, before anything is read, the name of a table of a kind that is not written."""
    if path is not None and Path(path).suffix.lower() not in _TABLES:
        raise DataError(f"cannot write {Path(path).name}: a table's name ends in {', '.join(_TABLES)}")


@contextmanager
def table_writing(path: PathLike) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yields a function that appends rows, {name: column} of numbers or texts, the same names each time; whole or not at all.

    Text tables have numbers in as many digits as tell them apart, and an empty cell for what is missing.
    """
    import pyarrow
    from pyarrow import compute, parquet
    from pyarrow import csv as text_tables

    check_table_name(path)
    kind = Path(path).suffix.lower()
    held: list[Any] = []
    with writing(path) as file:
        writer: Any = None

        def flush() -> None:
            nonlocal writer
            table = pyarrow.concat_tables(held)
            held.clear()
            if writer is None and kind == ".parquet":
                writer = parquet.ParquetWriter(file, table.schema)
            elif writer is None:
                options = text_tables.WriteOptions(delimiter="," if kind == ".csv" else "\t", quoting_style="needed")
                file.write(_heading(table.column_names, options.delimiter))
                options.include_header = False
                writer = text_tables.CSVWriter(file, table.schema, write_options=options)
            writer.write_table(table)

        def append(columns: Mapping[str, Any]) -> None:
            made = {}
            for name, values in columns.items():
                column = pyarrow.array(values, from_pandas=True)
                if harmless.get() and kind != ".parquet":
                    name = re.sub(_FORMULA, r"'\1", name)
                    if pyarrow.types.is_string(column.type):
                        column = compute.replace_substring_regex(column, _FORMULA, r"'\1")
                made[name] = column
            held.append(pyarrow.table(made))
            if sum(part.num_rows * part.num_columns for part in held) > 2**23:
                flush()

        yield append
        if held:
            flush()
        if writer is not None:
            writer.close()


def _heading(names: Sequence[str], delimiter: str) -> bytes:
    """Names in quotes where they need some, as Python's and everybody's reader of CSV expects."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(names)
    return text.getvalue().encode("utf-8")
