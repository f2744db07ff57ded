"""Mutated files of every kind: a clear error or a correct load, no code executed, no memory beyond the cap.

Half of the mutations damage bytes anywhere in the file, as a disk or a transfer would: what loads must then equal the
original. The other half is forged: members are changed and the archive is written anew, checksums and all, as an attacker
would. A forged file may load, but only as a registered class, within the cap, and using it must not crash the process.
"""

from __future__ import annotations

import gc
import hashlib
import io
import json
import os
import random
import re
import resource
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

import richcomponents as rc
from richcomponents.datasets import make_contrastive
from richcomponents.storage import Storable, write
from torture.harness import fault, judged, limit_memory, refused, right

TIMEOUT = 20.0
CAP = 256 * 2**20  # bytes of address space a load may add; the files are far smaller
_HOSTILE: list[Any] = [
    *(-1, 0, 1, 2, 3, 10**6, 2**31, 2**63, 10**30, True, None, 0.5, "", "x", "../../etc/passwd", "\x1b[2J\r\u202e"),
    *("os.system", "builtins.eval", "__class__", "ContrastiveRCA", "Moments", "Component", "|O", "<f8", "<U99999999"),
    *([], {}, [[]], {"row": 0}, {"row": -1}, {"row": 10**9}, [-1], [2**40], [2**20, 2**20], float("inf"), float("nan")),
]
_WATCHED = ("exec", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class", "marshal.loads")
_QUIET = ("import", "socket.connect", "ctypes.dlopen", "os.remove", "os.rename", "shutil.rmtree", "code.__new__")


class Watch:
    """An audit hook: whatever runs code, or reaches outside, while a file is read."""

    def __init__(self) -> None:
        self.armed, self.seen = False, []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        if event in _WATCHED or event in _QUIET or (event == "open" and _writes(arguments)):
            self.seen.append(f"{event} {arguments!r:.80}")
        if event == "compile" and arguments[1] != "<unknown>":  # numpy reads its headers with ast.literal_eval
            self.seen.append(f"compile {arguments!r:.80}")


def _writes(arguments: tuple[Any, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    return bool((isinstance(mode, str) and set(mode) & set("wax+")) or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def originals(folder: Path) -> list[tuple[str, bytes]]:
    """One small file of every kind."""
    data = make_contrastive(90, d=2, S2="skewed", random_state=0)
    label = (data.y > data.y.mean()).astype(int)
    three = rc.datasets.make_views(200, d=2, sets=[("a", "b", "c"), ("a",), ("b",), ("c",)])
    general = rc.RCA(views=three.views, sets=[("a", "b", "c"), ("a",), ("b",), ("c",)], n_blocks=10)
    rca = rc.ContrastiveRCA(views=2, n_blocks=10)
    fitted = rc.ContrastiveRCA(views=2, n_blocks=10).fit(data.X)
    kinds: dict[str, Any] = {
        "Moments": rc.Moments.of(data.X, 4, n_blocks=4),
        "Moments of order six": rc.Moments.of(data.X[:, :2], 6, n_blocks=4),
        "Component": fitted.components_["S1"],
        "Component of samples": rc.Component.of_samples(data.S1),
        "ContrastiveRCA": fitted,
        "ContrastiveRCA, paper": rc.ContrastiveRCA(views=2, n_blocks=10, method="paper").fit(data.X),
        "ContrastiveRCA, stream": rc.ContrastiveRCA(views=2, n_blocks=10).partial_fit(data.X),
        "PCA": rc.ComponentPCA(rca=rca).fit(data.X),
        "regression": rc.ComponentRegression(rca=rca).fit(data.X, data.y),
        "mixture": rc.ComponentGaussianMixture(2, rca=rca, n_init=1).fit(data.X),
        "logistic": rc.ComponentLogisticRegression(rca=rca).fit(data.X, label),
        "Ising": rc.ComponentIsing(rca=rca).fit(data.X * 3**0.5),  # S1 has variance one, as spins have
        "RCA": rc.RCA(**general.get_params()).fit(three.X),
        "RCA, two views": rc.RCA(views={"a": [0, 1], "b": [2, 3]}, n_blocks=10).fit(data.X),
        "RCA, discovered": general.set_params(discover=True).fit(three.X),
        "PCA of an RCA": rc.ComponentPCA(component=("a",), rca=general).fit(three.X),
    }
    out = []
    for name, thing in kinds.items():
        thing.save(folder / "file")
        out.append((name, (folder / "file").read_bytes()))
    return out


def fingerprint(thing: Any) -> str:
    """Equal for equal objects: the members of a file that it is written to."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        write(thing, path)
        return hashlib.sha256(repr(sorted(members_of(path.read_bytes()).items())).encode()).hexdigest()


# ---- mutations


def damage(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Bytes changed, lost, added or moved, anywhere."""
    out = bytearray(data)
    at = rng.randrange(len(out))
    size = min(rng.choice([1, 2, 4, 16, 100, 1000]), len(out) - at)
    kind = rng.randrange(10)
    if kind <= 2:
        for _ in range(rng.choice([1, 1, 1, 2, 5, 50])):
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    elif kind == 3:
        out[at] = rng.randrange(256)
    elif kind == 4:
        del out[at:]
    elif kind == 5:
        del out[at : at + size]
    elif kind == 6:
        out[at:at] = rng.randbytes(size)
    elif kind == 7:
        out[at : at + size] = bytes([rng.choice([0, 255, 65])]) * size
    elif kind == 8:
        other = rng.choice(others)
        out[at:] = other[min(at, len(other) - 1) :]
    else:  # the records of the archive itself: signatures, sizes, offsets
        start = rng.choice([found.start() for found in re.finditer(b"PK", out)])
        out[min(start + rng.randrange(46), len(out) - 1)] = rng.randrange(256)
    return bytes(out)


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def forge(rng: random.Random, members: dict[str, bytes]) -> bytes:
    """Members changed and the archive written anew with right checksums."""
    members = dict(members)
    arrays = [name for name in members if name != "header.json"]
    kind = rng.randrange(10)
    if kind <= 3:
        header = json.loads(members["header.json"])
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            _change(rng, header)
        members["header.json"] = json.dumps(header).encode()
    elif kind == 4:
        members["header.json"] = damage(rng, members["header.json"] + b"PK..", [b"{}", b"[" * 100_000])
    elif kind == 5:
        name = rng.choice(arrays)
        members[name] = damage(rng, members[name] + b"PK..", list(members.values()))
    elif kind == 6:
        array = np.load(io.BytesIO(members[name := rng.choice(arrays)]))
        members[name] = _npy(_other_array(rng, array))
    elif kind == 7:
        header = json.loads(members["header.json"])
        header["rows"] = _with_doubling_key(header["rows"])
        members["header.json"] = json.dumps(header).encode()
    elif kind == 8:
        header = json.loads(members["header.json"])
        _hold_often(rng, header)
        members["header.json"] = json.dumps(header).encode()
    else:
        name = rng.choice(list(members))
        if rng.random() < 0.5:
            del members[name]
        else:
            members[rng.choice([name + "x", "../evil.npy", "header.json"])] = members.pop(name)
    buffer = io.BytesIO()
    way = zipfile.ZIP_DEFLATED if rng.random() < 0.05 else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", way) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _with_doubling_key(rows: list[Any]) -> list[Any]:
    """Tuples each twice the one before, and a dict with the last one as its key: small in the file, endless to hash."""
    first = len(rows)
    tuples = [{"kind": "tuple", "items": [{"row": first + i - 1}] * 2 if i else [1, 2]} for i in range(60)]
    return [*rows, *tuples, {"kind": "dict", "items": [[{"row": first + 59}, 1]]}]


def _hold_often(rng: random.Random, header: Any) -> None:
    """A part of the root that holds some row many times over: small in the file, endless to print."""
    rows = header["rows"]
    root = rows[header["root"]]
    first, depth, width = len(rows), rng.choice([1, 2, 15, 40, 1000]), rng.choice([1, 2, 2, 300])
    held: Any = {"row": rng.randrange(first)} if rng.random() < 0.7 else "x" * 5000
    for i in range(depth):
        rows.append({"kind": rng.choice(["list", "tuple"]), "items": [{"row": first + i - 1} if i else held] * width})
    part = {"row": first + depth - 1}
    rows.append({**root, "fields": {**root["fields"], rng.choice(list(root["fields"])): part}})
    header["root"] = len(rows) - 1


def _change(rng: random.Random, tree: Any) -> None:
    """One random place of a JSON tree: another value, gone, or put elsewhere."""
    places = list(_places(tree))
    holder, key = rng.choice(places)
    kind = rng.randrange(4)
    if kind <= 1:
        holder[key] = deepcopy(rng.choice(_HOSTILE))
    elif kind == 2:
        other, there = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[there])) if there in _keys(other) else None
    else:
        del holder[key]


def _keys(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else range(len(holder))


def _places(tree: Any) -> Any:
    for key in list(_keys(tree)):
        yield tree, key
        if isinstance(tree[key], (dict, list)):
            yield from _places(tree[key])


def _other_array(rng: random.Random, array: Any) -> Any:
    flat = array.copy()
    if array.size and rng.random() < 0.7:
        value = rng.choice([np.nan, np.inf, -1, 0, 1e300, 2**62, 1e-320, -(2.0**40)])
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flat.flat[rng.randrange(array.size)] = np.asarray(value).astype(array.dtype)
        return flat
    return rng.choice([flat.astype("<f4"), flat.T, flat.reshape(-1), flat[:0], np.array(["x"]), np.zeros((3, 3))])


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


# ---- the test


def prepare(seed: int = 0) -> Callable[[int], dict[str, Any]]:
    """Files are kept in memory; a case writes one mutation to a scratch file and loads it under watch."""
    warnings.simplefilter("ignore")
    shared = Path("/dev/shm")
    folder = tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None)
    path = Path(folder.name) / "file"
    kinds = originals(Path(folder.name))
    whole = {}
    for name, data in kinds:
        path.write_bytes(data)
        thing = rc.load(path)
        _use(thing)  # whatever is imported, compiled or cached when first used, is now
        whole[name] = fingerprint(rc.load(path))
    every = [data for _, data in kinds]
    members = {name: members_of(data) for name, data in kinds}
    turns = [
        i for i, (_, data) in enumerate(kinds) for _ in range(5 if len(data) < 20_000 else 1)
    ]  # small ones are fast
    watch = Watch()
    limit_memory(CAP)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def run(case: int) -> dict[str, Any]:
        assert folder  # lives as long as the cases
        rng = random.Random(f"{seed}/{case}")
        name, data = kinds[turns[case % len(turns)]]
        forged = case // len(turns) % 2 == 1
        path.write_bytes(forge(rng, members[name]) if forged else damage(rng, data, every))
        notes = [f"{name}, {'forged' if forged else 'damaged'}"]
        watch.seen, watch.armed = [], True
        try:
            thing = rc.load(path)
        except rc.StateFileError as error:
            watch.armed = False
            outcome = refused(error, notes=notes)
            cause = error.__cause__
            while cause is not None:
                if isinstance(cause, MemoryError) and not isinstance(cause, rc.CapacityError):
                    outcome = fault(f"more memory than the cap was asked for: {error}")
                cause = cause.__cause__
        except Exception as error:
            outcome = judged(error)
            outcome = fault(outcome["error"]) if outcome["ended"] == "refused" else outcome  # files have one error
        else:
            watch.armed = False
            outcome = right(notes=notes)
            if not forged and fingerprint(thing) not in whole.values():  # a splice may be all of another file
                outcome = fault(f"{name}: damaged, but loaded as something else")
            if forged:
                if not isinstance(thing, Storable):
                    outcome["notes"].append(f"loaded a {type(thing).__name__}")
                if complaint := _use(thing):
                    outcome = fault(f"{name}: {complaint}")
        finally:
            watch.armed = False
        if watch.seen:
            outcome = fault(f"{name}: {watch.seen[0]} while reading")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown * 1024 > CAP:
            outcome = fault(f"{name}: memory grew by {grown} KiB")
        if case % 500 == 0:
            gc.collect()
        return outcome

    return run


def _use(thing: Any) -> str | None:
    """Touch and print what was loaded; a forged object may refuse in any words, it may not take the process down.

    Returns a complaint about what it printed, or None.
    """
    told = ""
    try:
        told += repr(thing)
        if isinstance(thing, rc.Moments):
            _ = thing.mean, thing.covariance(), thing.moment(3)
        elif isinstance(thing, rc.Component):
            _ = thing.cumulant(3)
        elif isinstance(thing, Storable):
            told += thing.summary()
            component = getattr(thing, "component_", None)
            _ = component.cumulant(3) if isinstance(component, rc.Component) else None
    except Exception as error:
        told += f"{error!r}"
    obeyed = sorted({c for c in told if not (c.isprintable() or c == "\n")})
    return f"characters that a terminal obeys: {obeyed}" if obeyed else None
