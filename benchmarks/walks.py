"""How far the data walk through the house: files, functions, hops and depth of five calls, and what stands in the rooms.

    python benchmarks/walks.py [--rows 1000] [--columns 3] [--list]

Only code under the package counts; what a first call imports and compiles is done before. A hop is a call from one file of the
package to another, or the return from it; depth is the number of its frames on the stack. --list names every private
attribute that is read outside of the file that defines it, and every public parameter.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import richcomponents as rc
from richcomponents.datasets import make_contrastive, make_views

PACKAGE = Path(rc.__file__).parent


class Walk:
    """What sys.setprofile tells of one call."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.hops = self.depth = 0
        self.stack: list[str] = []
        self.inside: dict[str, bool] = {}

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        file = frame.f_code.co_filename
        if event not in ("call", "return") or not self._counts(file):
            return
        if event == "return":
            self.stack.pop()
            self.hops += bool(self.stack) and self.stack[-1] != file
            return
        self.hops += bool(self.stack) and self.stack[-1] != file
        self.stack.append(file)
        self.functions.add(frame.f_code)
        self.depth = max(self.depth, len(self.stack))

    def _counts(self, file: str) -> bool:
        if file not in self.inside:
            self.inside[file] = PACKAGE in Path(file).parents
        return self.inside[file]

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.functions}


def walk(call: Callable[[], object]) -> Walk:
    call()
    seen = Walk()
    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def calls(n: int, d: int, place: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = make_contrastive(n, d, S2="skewed", random_state=0)
    three = make_views(n, 3, d, sets=[tuple("abc"), ("a",), ("b",), ("c",)], random_state=0)
    names = [f"{'TC'[i // d]}_{i % d}" for i in range(2 * d)]
    table = pa.table(dict(zip([*names, "y"], [*data.X.T, data.y], strict=True)))
    pq.write_table(table, place / "table.parquet")
    X, y, X3 = data.X, data.y, three.X
    yield "ContrastiveRCA.fit(X)", lambda: rc.ContrastiveRCA(views=d).fit(X)
    learner = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=d))
    yield "ComponentRegression.fit", lambda: learner.fit(X, y)
    yield "RCA.fit, three views", lambda: rc.RCA(views=three.views, sets=three.sets).fit(X3)
    yield "Moments.from_source(parquet)", lambda: rc.Moments.from_source(place / "table.parquet", order=4)
    words = ["fit", str(place / "table.parquet"), "--views", "tests=T_*", "--views", "controls=C_*", "--target", "y"]
    yield "rca fit --report", lambda: command([*words, "--report", str(place / "page.html")])


def command(words: list[str]) -> None:
    from richcomponents.cli import main

    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        try:
            main(words)
        except SystemExit as left:
            if left.code:
                raise


# ---- what stands in the rooms


def sources() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def private_reads(trees: dict[Path, ast.Module]) -> list[str]:
    """`x._name` where x is neither self nor cls and the file neither defines _name nor binds it to anything."""
    reads = []
    for path, tree in trees.items():
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        own |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        own |= {node.attr for node in attributes if not isinstance(node.ctx, ast.Load)}
        for node in attributes:
            mine = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if node.attr.startswith("_") and not node.attr.endswith("__") and not mine and node.attr not in own:
                reads.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {ast.unparse(node)}")
    return reads


def parameters() -> dict[str, list[str]]:
    """Of every public class."""
    public = ((name, getattr(rc, name)) for name in dir(rc) if name[0] != "_")
    classes = {name: what for name, what in public if inspect.isclass(what) and not issubclass(what, Exception)}
    return {name: list(inspect.signature(what.__init__).parameters)[1:] for name, what in classes.items()}


def duplicates() -> str:
    """The count that the command `duplicates` gives of the package, where there is one."""
    tool = shutil.which("duplicates")
    if tool is None:
        return "no such command here"
    told = subprocess.run([tool, "--repo", str(PACKAGE), "--seconds", "120"], capture_output=True, text=True)
    return told.stdout.splitlines()[0]


def table(heads: list[str], lines: list[list[Any]]) -> None:
    cells = [heads, *([str(cell) for cell in line] for line in lines)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    for line in cells:
        print(
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
            sep="  ",
        )
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=3)
    parser.add_argument("--list", action="store_true", help="name the private reads and the parameters")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as place:
        for name, call in calls(options.rows, options.columns, Path(place)):
            seen = walk(call)
            lines.append([name, len(seen.files), len(seen.functions), seen.hops, seen.depth])
    table(["walk", "files", "functions", "hops", "depth"], lines)
    trees = sources()
    files, length = Counter(map(room, trees)), defaultdict[str, int](int)
    for path in trees:
        length[room(path)] += len(path.read_text().splitlines())
    total = ["all", len(trees), sum(length.values())]
    table(["room", "files", "lines"], [*([name, files[name], length[name]] for name in length), total])
    reads, public = private_reads(trees), parameters()
    table(["class", "parameters"], [[name, len(names)] for name, names in public.items() if names])
    print(f"private attributes read across files: {len(reads)}")
    print(f"written twice: {duplicates()}")
    if options.list:
        print("", *reads, *(f"{name}({', '.join(names)})" for name, names in public.items()), sep="\n")


if __name__ == "__main__":
    main()
