"""The budgets of the house: lines and numeric constants of each room of src, against the table [tool.house] of pyproject.toml.

    python benchmarks/house.py

A room over its budget fails `make check`. Lines are those of `wc -l`; a constant is a module-level name bound to a number or to
a tuple of numbers. Budgets start at what a room has, and are lowered with every room that is rewritten.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def is_number(node: ast.expr | None) -> bool:
    """Whether an expression is a number, or a tuple of numbers."""
    match node:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return bool(parts) and all(map(is_number, parts))
    return False


def counted(source: Path) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Files, lines and constants by room; files of the package itself are the room "top"."""
    files, lines, constants = Counter[str](), Counter[str](), Counter[str]()
    for path in source.rglob("*.py"):
        parts, text = path.relative_to(source).parts, path.read_text()
        room = parts[0] if len(parts) > 1 else "top"
        files[room] += 1
        lines[room] += text.count("\n")
        bound = (node for node in ast.parse(text).body if isinstance(node, (ast.Assign, ast.AnnAssign)))
        constants[room] += sum(is_number(node.value) for node in bound)
    return files, lines, constants


def main() -> int:
    budget = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["house"]
    files, lines, constants = counted(ROOT / "src" / "richcomponents")
    rooms: dict[str, tuple[int, int]] = {room: (most[0], most[1]) for room, most in budget["rooms"].items()}
    over = []
    print(f"{'room':12} files   lines  budget  constants  budget")
    for room in sorted(set(lines) | set(rooms)):
        most = rooms.get(room, (0, 0))
        print(f"{room:12} {files[room]:5} {lines[room]:7} {most[0]:7} {constants[room]:10} {most[1]:7}")
        over += [room] if lines[room] > most[0] or constants[room] > most[1] else []
    total = budget["all"]
    sums = [sum(one.values()) for one in (files, lines, constants)]
    print(f"{'all':12} {sums[0]:5} {sums[1]:7} {total[0]:7} {sums[2]:10} {total[1]:7}")
    over += ["all"] if sums[1] > total[0] or sums[2] > total[1] else []
    if over:
        print(f"over its budget: {', '.join(over)}. Make it smaller; budgets are only ever lowered.")
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
