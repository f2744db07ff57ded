"""Saved objects: one file format for states and models, as plain arrays and a table of objects in JSON.

An object is written as a row of a table, after the objects it holds:

    {"kind": "object", "class": "Canonical", "fields": {"n": 500, "correlations": {"row": 3}, ...}}

Numbers and short texts stand in the row itself, arrays are members of the archive, everything else is the number of an
EARLIER row, so that shared parts are written once, stay shared, and no cycle can be described. Reading builds objects only of
the classes registered with :func:`storable`: a file names them, it never imports or runs anything. Caches are left out.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from richcomponents.archive import KINDS, read_archive, write_archive
from richcomponents.errors import StateFileError

MAX_BYTES = 4 * 2**30  # of arrays, unless the caller allows more

_T = TypeVar("_T")


# ---- what may be saved

_REGISTERED: dict[str, Any] = {}


def storable(what: _T) -> _T:
    """Allow objects of a class (or a function of a module, by name) in saved files; usable as a decorator.

    An object is taken apart into what its class is made from, by annotated parameters: parts from a file must be there and of
    these types. Fields of a dataclass with compare=False are caches and left out. A class may say otherwise by a method
    `to_parts()`, {name: part}, and a classmethod `of_parts(...)`. A class with a method `check_memory(limit)` is asked, as soon
    as an object is read, whether using it would take more bytes than the caller allows.
    """
    if not isinstance(what, (type, types.FunctionType)):
        raise TypeError(f"only classes and functions of a module can be registered, not {what!r}")
    name = _name_of(what)
    if isinstance(what, type) and name in _REGISTERED and _REGISTERED[name].__module__ != what.__module__:
        raise TypeError(f"{what.__module__} and {_REGISTERED[name].__module__} both define {name}: rename one")
    _REGISTERED[name] = what
    return what


def _name_of(what: Any) -> str:
    """The name in files: that of the class alone for our own, so that moving a module does not make old files unreadable."""
    ours = what.__module__.partition(".")[0] == __name__.partition(".")[0]
    return str(what.__qualname__ if ours else f"{what.__module__}.{what.__qualname__}")


class Storable:
    """Base of what users save to one file and load again: states, components, estimators.

    Every subclass may be saved, those of users too (they must be imported before they are loaded): a dataclass by its fields,
    an estimator by its parameters and what fit has set.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        storable(cls)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, all or nothing: an npz archive of arrays with a JSON header, never pickle.

        What is saved is what was fitted: sums over rows, not rows. (A model of partial_fit, which is to continue, also holds
        the rows of leaves that are not complete yet.) Sums over few rows give the rows away: unlike :meth:`Moments.save`, this
        refuses none, so a model of few rows per block belongs where its data may be.
        """
        write(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Self:
        """Read a saved object: everything about it equals the original, bit for bit.

        Nothing in the file is executed, and nothing is read when it declares more than `max_bytes` of arrays.
        """
        return read(path, cls, max_bytes, f"not a {cls.__name__}: use richcomponents.load")


def load(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """Whatever was saved in this file: Moments, a Component or a fitted estimator.

    Nothing in the file is executed, and nothing is read when it declares more than `max_bytes` of arrays. A file that is
    damaged, too large, or written by an older or newer version is refused with :class:`StateFileError`.

    Examples
    --------
    >>> import tempfile, richcomponents as rc
    >>> data = rc.datasets.make_contrastive(2000, d=3, S2="skewed", random_state=0)
    >>> model = rc.ContrastiveRCA(views=3).fit(data.X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.npz")
    ...     again = rc.load(f"{folder}/model.npz")
    >>> bool((again.transform(data.X) == model.transform(data.X)).all())
    True
    """
    return read(path, Storable, max_bytes, "no state, component or model")


def write(what: object, path: str | os.PathLike[str]) -> None:
    """Write any storable object, all or nothing."""
    writer = _Writer()
    root = writer.row(what, type(what).__name__)
    if not _is_bounded(writer.rows, writer.arrays):
        raise ValueError(f"this {type(what).__name__} holds too many small objects to be saved in one file")
    write_archive(Path(path), {"root": root, "rows": writer.rows}, writer.arrays)


def read(path: str | os.PathLike[str], cls: type[_T], max_bytes: int, otherwise: str) -> _T:
    """An object of a class from a file; otherwise : what the file's content is not, when it is of another class."""
    header, arrays = read_archive(Path(path), max_bytes)
    try:
        if not _is_bounded(header["rows"], arrays):
            raise StateFileError("it describes an object with more parts, or more deeply nested, than any of ours")
        root = _Reader(header, arrays, max_bytes).root()
        if not isinstance(root, cls):
            raise StateFileError(f"it holds a {type(root).__name__}, {otherwise}")
        return root
    except StateFileError as error:
        raise StateFileError(f"{path}: {error}") from error
    except MemoryError as error:
        raise StateFileError(f"{path} describes an object that is too large: {error}") from error
    except Exception as error:  # a forged header can be wrong in many ways; all of them mean the same to the user
        raise StateFileError(f"{path} does not describe an object ({type(error).__name__}: {error})") from error


def _is_bounded(rows: list[dict[str, Any]], arrays: Mapping[str, Any]) -> bool:
    """Whether every object of the table can be printed: a few rows that each hold the one before twice show billions of parts.

    Counted are, as often as they are held, numbers, texts by their length, and entries of arrays, which take longer (numpy
    shows small ones whole, and six entries per axis of others).
    """
    parts: list[int] = []
    depths: list[int] = []
    for row in rows:
        held = row["fields"].values() if row["kind"] == "object" else row.get("items", [])
        held = [part for pair in held for part in pair] if row["kind"] == "dict" else held
        inside = [part["row"] for part in held if isinstance(part, dict)]
        if not all(number in range(len(parts)) for number in inside):
            raise StateFileError("its rows do not describe an object: one holds a row that is not before it")
        own = sum(1 + len(part) // 16 if isinstance(part, str) else 1 for part in held)
        if row["kind"] == "text":
            own += int(arrays[row["array"]].size) // 64
        elif "array" in row:
            array = arrays[row["array"]]
            seen = array.size if array.size <= 1000 else prod(min(n, 6) for n in array.shape)
            own += int(seen * max(16, array.dtype.itemsize // 64))
        parts.append(1 + own + sum(parts[number] for number in inside))
        depths.append(1 + max((depths[number] for number in inside), default=0))
        if parts[-1] > 2**24 or depths[-1] > 32:
            return False
    return True


# ---- writing


class _Writer:
    """The table of objects and the arrays, filled from the leaves up."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.arrays: dict[str, Any] = {}
        self._known: dict[int, tuple[Any, int]] = {}  # the object is held, so that its id stays its own
        self._open: set[int] = set()

    def value(self, what: Any, where: str) -> Any:
        """As it stands in a row: itself, or the number of the row that describes it."""
        if isinstance(what, str):
            return str(what)
        return what if what is None or type(what) in (bool, int, float) else {"row": self.row(what, where)}

    def row(self, what: Any, where: str) -> int:
        if id(what) in self._known:
            return self._known[id(what)][1]
        if id(what) in self._open:
            raise ValueError(f"{where} holds itself and cannot be saved")
        self._open.add(id(what))
        row = self._describe(what, where)
        self._open.discard(id(what))
        self.rows.append(row)
        self._known[id(what)] = what, len(self.rows) - 1
        return len(self.rows) - 1

    def _describe(self, what: Any, where: str) -> dict[str, Any]:
        if isinstance(what, (np.ndarray, np.generic)):
            return self._array(what, where)
        if type(what) in (list, tuple) and len(what) and all(type(item) is str for item in what):
            return {"kind": "text", "as": type(what).__name__, "array": self._text(what, where)}
        if type(what) in (list, tuple, slice, range):
            parts = [what.start, what.stop, what.step] if isinstance(what, (slice, range)) else what
            items = [self.value(item, f"{where}[{i}]") for i, item in enumerate(parts)]
            return {"kind": type(what).__name__, "items": items}
        if isinstance(what, Mapping):
            pairs = [[self.value(k, where), self.value(v, f"{where}[{k!r}]")] for k, v in what.items()]
            return {"kind": "dict", "items": pairs}
        if isinstance(what, types.FunctionType) and _REGISTERED.get(_name_of(what)) is what:
            return {"kind": "function", "name": _name_of(what)}
        cls = type(what)
        if _REGISTERED.get(_name_of(cls)) is not cls:
            raise TypeError(
                f"{where} is a {cls.__name__}, which cannot be saved: use numbers, texts, arrays, lists and dicts "
                "of them, or classes registered with richcomponents.storage.storable"
            )
        named = {name: self.value(part, f"{where}.{name}") for name, part in _parts(what).items()}
        return {"kind": "object", "class": _name_of(cls), "fields": named}

    def _array(self, what: Any, where: str) -> dict[str, Any]:
        array = np.asarray(what)
        if array.dtype == object and array.ndim == 1 and all(isinstance(item, str) for item in array):
            return {"kind": "text", "as": "array", "array": self._text(array.tolist(), where)}
        if array.dtype.kind not in KINDS:
            raise TypeError(f"{where} is an array of {array.dtype}, which cannot be saved: use numbers or texts")
        # Products of matrices may round differently for another memory order: the order is part of the value.
        axes = list(range(array.ndim))
        if not array.flags.c_contiguous:
            axes.sort(key=lambda axis: -abs(array.strides[axis]))
        plain = np.asarray(array.transpose(axes), dtype=array.dtype.newbyteorder("<"), order="C")
        row = {"kind": "array" if isinstance(what, np.ndarray) else "scalar", "array": self._keep(plain, where)}
        return row if axes == sorted(axes) else {**row, "axes": axes}

    def _text(self, items: Any, where: str) -> str:
        return self._keep(np.frombuffer(json.dumps([str(item) for item in items]).encode(), dtype=np.uint8), where)

    def _keep(self, array: Any, where: str) -> str:
        """The array's name in the file: that of the attribute that holds it, numbered where several have it."""
        name = re.split(r"[^\w.]", where)[0].rpartition(".")[2]
        name = f"{name}-{len(self.arrays)}" if name in self.arrays else name
        self.arrays[name] = array
        return name


# ---- reading

_OF_ITEMS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "slice": lambda items: slice(*items),
    "range": lambda items: range(*items),
}


class _Reader:
    """Rows of the table back to objects, first to last."""

    def __init__(self, header: dict[str, Any], arrays: Mapping[str, Any], max_bytes: int) -> None:
        self.header, self.arrays, self.max_bytes = header, arrays, max_bytes
        self._objects: list[Any] = []
        self._text_left = 2**24

    def root(self) -> Any:
        for row in self.header["rows"]:
            self._objects.append(self._make(row))
        return self._objects[_natural(self.header["root"])]

    def value(self, what: Any) -> Any:
        if isinstance(what, dict):
            return self._objects[_natural(what["row"])]
        if isinstance(what, list):
            raise StateFileError("a list stands where a number, a text or a row was expected")
        return what

    def _make(self, row: dict[str, Any]) -> Any:
        kind = row["kind"]
        if kind in ("array", "scalar"):
            return self._array(row)
        if kind == "text":
            return self._text(row)
        if kind in _OF_ITEMS:
            return _OF_ITEMS[kind]([self.value(item) for item in row["items"]])
        if kind == "dict":
            return {_key(self.value(k)): self.value(v) for k, v in row["items"]}
        name = row.get("class", row.get("name", ""))
        what = _REGISTERED.get(name)
        if kind == "function" and isinstance(what, types.FunctionType):
            return what
        if kind == "object" and isinstance(what, type):
            made = _made(what, {name: self.value(part) for name, part in row["fields"].items()})
            if hasattr(what, "check_memory"):
                made.check_memory(self.max_bytes)
            return made
        raise StateFileError(
            f"there is no {kind} {name!r} in this version of richcomponents: update it, or "
            "import the module that defines it before loading"
        )

    def _array(self, row: dict[str, Any]) -> Any:
        array = self.arrays[row["array"]]
        if "axes" in row:
            array = array.transpose(np.argsort([_natural(axis) for axis in row["axes"]]))
        return array if row["kind"] == "array" else array[()]

    def _text(self, row: dict[str, Any]) -> Any:
        array = self.arrays[row["array"]]
        self._text_left -= array.nbytes
        if array.dtype != np.uint8 or self._text_left < 0:
            raise StateFileError(f"the texts {row['array']!r} are too long or not texts")
        items = json.loads(array.tobytes().decode("utf-8"))
        if not isinstance(items, list) or not all(type(item) is str for item in items):
            raise StateFileError(f"{row['array']!r} is not a list of texts")
        if row["as"] == "array":
            return np.array(items, dtype=object)
        return _OF_ITEMS[row["as"]](items)


def _key(key: Any) -> Any:
    """A key of a dict: a number, a text, or tuples of them."""
    if not (key is None or isinstance(key, (bool, int, float, str, np.generic, tuple))):
        raise StateFileError(f"a {type(key).__name__} cannot be the key of a dict")
    return tuple(map(_key, key)) if isinstance(key, tuple) else key


def _natural(number: Any) -> int:
    """A row or an axis: Python would read negative numbers from the end."""
    if type(number) is not int or number < 0:
        raise StateFileError(f"{number!r} is not the number of a row")
    return number


# ---- objects and their parts


@cache
def _parameters(make: Any) -> dict[str, tuple[Any, bool]]:
    """{name: (annotated type, whether it must be given)} of what an object is made from."""
    caches = {field.name for field in fields(make) if not field.compare} if is_dataclass(make) else set()
    source: Any = make
    if isinstance(make, type) and not is_dataclass(make):  # fields are annotated on the class, its bases included
        source = make.__init__  # type: ignore[misc]
    hints = typing.get_type_hints(source)
    given = inspect.signature(make).parameters.items()
    return {name: (hints[name], one.default is one.empty) for name, one in given if name not in caches}


def _parts(what: Any) -> dict[str, Any]:
    """What an object is made from; of an estimator its parameters, and what fit has set."""
    cls: Any = type(what)
    if hasattr(cls, "to_parts"):
        return dict(what.to_parts())
    if not hasattr(cls, "_get_param_names"):
        return {name: getattr(what, name) for name in _parameters(getattr(cls, "of_parts", cls))}
    for name in vars(what):
        if not _may_be_set(cls, name):
            raise TypeError(
                f"{cls.__name__}.{name} belongs to the class and cannot be saved with one object: set it in fit, or in "
                "__init__ as a parameter, and nowhere else"
            )
    return dict(vars(what))


def _may_be_set(cls: Any, name: str) -> bool:
    """A parameter, or a name that hides nothing of the class (a method, for example)."""
    return name in cls._get_param_names() or (
        name.isidentifier() and not name.startswith("__") and not hasattr(cls, name)
    )


def _made(cls: Any, parts: dict[str, Any]) -> Any:
    """An object from its parts, which may be wrong."""
    if hasattr(cls, "_get_param_names"):
        for name in set(cls._get_param_names()) - parts.keys():
            raise StateFileError(f"the parameter {name!r} of {cls.__name__} is missing")
        for name in parts:
            if not _may_be_set(cls, name):
                raise StateFileError(f"{cls.__name__} cannot have a fitted attribute {name!r}")
        made = cls.__new__(cls)
        made.__dict__.update(parts)
        return made
    make = getattr(cls, "of_parts", cls)
    expected = _parameters(make)
    for name in parts.keys() - expected.keys():
        raise StateFileError(f"{cls.__name__} has no part {name!r} in this version of richcomponents: update it")
    for name, (hint, required) in expected.items():
        if name not in parts and required:
            raise StateFileError(f"the part {name!r} of {cls.__name__} is missing")
        if name in parts and not _fits(parts[name], hint):
            raise StateFileError(f"{cls.__name__}.{name} should be {hint}, it is {type(parts[name]).__name__}")
    return make(**parts)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type, as far as our dataclasses use them."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(origin, "__value__"):  # an alias by name: NDArray[...] of numpy, from Python 3.12 on
        return _fits(value, origin.__value__[inside])
    if hint is Any or hint is object:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in inside)
    if origin is typing.Literal:
        return value in inside
    if origin is np.ndarray:
        kinds = typing.get_args(inside[1]) if len(inside) > 1 else ()
        allowed = [k for k in kinds if isinstance(k, type)]
        return isinstance(value, np.ndarray) and (not allowed or np.issubdtype(value.dtype, allowed[0]))
    if origin is tuple:
        kinds = inside[:1] * len(value) if inside[-1:] == (Ellipsis,) and isinstance(value, tuple) else inside
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(_fits(k, inside[0]) and _fits(v, inside[1]) for k, v in value.items())
    if origin is not None:
        return callable(value) if origin is typing.get_origin(Callable[[int], int]) else isinstance(value, origin)
    if hint in (int, float):
        number = (int, np.integer) if hint is int else (int, float, np.integer, np.floating)
        return isinstance(value, number) and not isinstance(value, bool)
    return value is None if hint in (None, type(None)) else isinstance(value, hint)
