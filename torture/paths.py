"""Outputs under every name a file can have: links, other spellings, pipes, folders, and a disk that fails half-way.

A case lays out a folder at random (the input, files of others, links of both kinds, a pipe, a folder), asks for outputs at
random places in it, and compares: what is read and what is not an output keeps its bytes, its mode and its place; an output
is what it was or whole, with the mode it had; a refusal changes nothing.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import stat
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import richcomponents as rc
from richcomponents.cli import main
from torture.harness import fault, is_clear, judged, refused, right

TIMEOUT = 60.0
_INPUT, _OTHER, _MODES = "data.csv", "other.bin", (0o600, 0o640, 0o644, 0o444)
_FREE = ("new.csv", "New.CSV", "sub/new.csv", "old.csv")


def lay_out(rng: random.Random, folder: Path, table: bytes) -> list[str]:
    """Fill the folder; returns names under which an output may be asked for."""
    (folder / "sub").mkdir()
    for name, content in ((_INPUT, table), (_OTHER, b"of others"), ("old.csv", b"an old result")):
        (folder / name).write_bytes(content)
        (folder / name).chmod(rng.choice(_MODES[:3] if name == "old.csv" else _MODES))
    os.mkfifo(folder / "pipe.csv")
    names = [*_FREE, _INPUT, "pipe.csv", "sub", f"sub/../{_INPUT}", "./old.csv", "nowhere/new.csv"]
    for number in range(rng.randrange(4)):
        name = f"link{number}.csv"
        target = rng.choice([_INPUT, "old.csv", "new.csv", "pipe.csv", "sub", "/dev/null", "nowhere/new.csv", name])
        (folder / name).symlink_to(target if rng.random() < 0.5 or target[0] == "/" else folder / target)
        names.append(name)
    for number in range(rng.randrange(3)):
        (folder / f"hard{number}.csv").hardlink_to(folder / rng.choice([_INPUT, "old.csv"]))
        names.append(f"hard{number}.csv")
    return names


def state_of(folder: Path) -> dict[str, Any]:
    """What is under every name, links not followed."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        at = path.lstat()
        what: Any = None
        if stat.S_ISLNK(at.st_mode):
            what = os.readlink(path)
        elif stat.S_ISREG(at.st_mode):
            what = path.read_bytes()
        found[str(path.relative_to(folder))] = (at.st_mode, what)
    return found


@contextlib.contextmanager
def failing_disk(rng: random.Random) -> Iterator[None]:
    """One call in so many does not work, as on a full disk."""
    name, left = rng.choice(["fsync", "replace", "open"]), rng.randrange(1, 3)
    working = getattr(os, name)

    def broken(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        writes = name != "open" or arguments[1] & os.O_CREAT
        left -= bool(writes)
        if writes and left == 0:
            raise OSError(28, "no space left on device")
        return working(*arguments, **options)

    setattr(os, name, broken)
    try:
        yield
    finally:
        setattr(os, name, working)


def command(*arguments: object) -> None:
    """The command line, whose refusals become errors again."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            if stop.code:
                raise rc.DataError(said.getvalue() or "no word of why") from None


def prepare(seed: int = 0) -> Callable[[int], dict[str, Any]]:
    warnings.simplefilter("ignore")
    data = rc.datasets.make_contrastive(80, d=2, S2="skewed", random_state=0)
    text = io.BytesIO()
    np.savetxt(text, data.X, delimiter=",", header="U_0,U_1,V_0,V_1", comments="")
    model = rc.ContrastiveRCA(views=2, n_blocks=10).fit(data.X)
    views = ("--views", "U=U_*", "--views", "V=V_*")

    def fit(path: Path, one: Path, two: Path) -> None:
        command("fit", path, *views, "--report", one, "--save", two)

    def made(path: Path, one: Path, two: Path) -> None:
        command("simulate", "-n", 20, "-d", 2, "--out", one, "--truth", two)

    # name -> (what is done, which of the two outputs it writes, whether it reads the input)
    works: dict[str, tuple[Callable[[Path, Path, Path], Any], int, bool]] = {
        "fit": (fit, 2, True),
        "simulate": (made, 2, False),
        "save": (lambda path, one, two: model.save(one), 1, False),
        "report": (lambda path, one, two: rc.write_report(one, model), 1, False),
        "moments": (lambda path, one, two: rc.Moments.of(data.X, 2, n_blocks=2).save(one), 1, False),
    }
    turns = ["fit", *["simulate", "save", "moments"] * 2, "report"]

    def run(case: int) -> dict[str, Any]:
        rng = random.Random(f"{seed}/{case}")
        name = turns[case % len(turns)]
        work, count, reads = works[name]
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            names = lay_out(rng, folder, text.getvalue())
            asked = [rng.choice(names), rng.choice(names)]
            wanted = [folder / one if rng.random() < 0.5 else Path(os.path.relpath(folder / one)) for one in asked]
            before, broken = state_of(folder), rng.random() < 0.2
            about = f"{name} to {asked[: max(count, 1)]}{', a failing disk' if broken else ''}"
            error: Exception | None = None
            with failing_disk(rng) if broken else contextlib.nullcontext():
                try:
                    work(folder / _INPUT, *wanted)
                except Exception as problem:
                    error = problem
            complaint = _compare(before, state_of(folder), folder, wanted[: max(count, 1)], error, broken, reads, count)
        if complaint:
            return fault(f"{complaint} [{about}]")
        if error is None:
            return right(notes=[name])
        known = isinstance(error, OSError) or is_clear(error)
        return refused(error, notes=[name]) if known else {**judged(error), "case": case}

    return run


def _compare(
    before: dict[str, Any],
    after: dict[str, Any],
    folder: Path,
    wanted: list[Path],
    error: Exception | None,
    broken: bool,
    reads: bool,
    count: int,
) -> str | None:
    """What is wrong, or None."""
    top = os.path.realpath(folder)
    written = {os.path.relpath(os.path.realpath(path), top) for path in wanted}
    if reads and error is None and _INPUT in written:
        return "the input is an output"
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    if error is not None and changed and not broken:
        return f"refused, but {sorted(changed)} changed"
    if not changed <= written:
        return f"{sorted(changed - written)} changed"
    for name in written & after.keys():
        (mode, content), old = after[name], before.get(name)
        if old is not None and mode != old[0]:
            return f"the mode of {name} is {mode:o}, it was {old[0]:o}"
        if name in changed and not _is_whole(content, folder / name):
            return f"{name} is not whole"
    if error is None and count and not written <= after.keys():
        return "an output is missing"
    return None


def _is_whole(content: Any, path: Path) -> bool:
    if not isinstance(content, bytes):
        return False
    if content[:2] == b"PK":
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    if content.startswith(b"<!DOCTYPE html>"):
        return content.endswith(b"</html>\n")
    return content.endswith((b"\n", b"}"))  # a table, or the truth
