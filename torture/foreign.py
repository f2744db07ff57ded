"""Tables of others' making, mutated: text, Parquet, h5ad and npy as pandas, pyarrow, anndata and numpy write them.

Bytes are changed, lost and added; quotes, line ends and cells are put where they do not belong; headers are exchanged; the
indices of sparse matrices are forged. Every mutation is read by the door of Python and by that of the command line. A table
that comes out must have the rows and values that another reader finds in the same bytes (the csv module for text, polars for
Parquet, plain Python over h5py and over the bytes of an .npy), or those that were written.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import random
import re
import tempfile
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

import richcomponents as rc
from richcomponents.data.rows import open_source
from torture.harness import fault, is_clear, judged, limit_memory, refused, right

TIMEOUT = 30.0
CAP = 2 * 2**30
N, NAMES = 24, ["a", "b", "c", "d"]
_GONE = {"", ".", "#n/a", "#na", "-nan", "<na>", "n/a", "na", "nan", "none", "null"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)", re.IGNORECASE | re.ASCII)
_CELLS = [
    *(
        b"",
        b"NA",
        b"#N/A",
        b"inf",
        b"1e400",
        b"1_000",
        b"0x10",
        b"+1.5",
        b" 7 ",
        b'5"',
        b'"5 in',
        b'"5',
        b'x""',
        b"\xff",
        b"-",
    ),
    *(b'"1.5"', b'"1,5"', b"1e-400", b"1.", b"\xef\xbb\xbf1", b"\0", b"'3'", b"1 2", b"True", b"\r", b"\n", b'"\n"'),
]


def frame(rng: np.random.Generator) -> pd.DataFrame:
    table = pd.DataFrame(rng.normal(size=(N, 4)) * 10.0 ** rng.integers(-3, 4, 4), columns=NAMES)
    table["b"] = rng.integers(-9, 10, N).astype(float)
    notes = ["fine", "5 in", "a, b; c", 'he said "5"', "two\nlines", "", "naïve", "NA"]
    table.insert(2, "note", [notes[i] for i in rng.integers(0, len(notes), N)])
    return table


# ---- what is written, and what another reader finds in it: rows of the columns a, b, c, d


def texts(table: pd.DataFrame) -> dict[str, bytes]:
    plain = table.assign(note=table["note"].str.replace('"', "").str.replace("\n", " "))
    written = {
        "pandas.csv": table.to_csv(index=False).encode(),
        "index.csv": table.to_csv().encode(),
        "excel.csv": table.to_csv(index=False, sep=";", lineterminator="\r\n", encoding="utf-8").encode("utf-8-sig"),
        "r.csv": plain.to_csv(quoting=csv.QUOTE_NONNUMERIC).encode(),
        "plain.tsv": table.drop(columns="note").to_csv(index=False, sep="\t").encode(),
    }
    return {**written, "packed.csv.gz": gzip.compress(written["pandas.csv"], mtime=0)}


def strict_text(data: bytes, name: str) -> Any:
    """As the csv module reads it; None when it does not."""
    sign = {"excel.csv": ";", "plain.tsv": "\t"}.get(name, ",")
    try:
        raw = gzip.decompress(data) if name.endswith(".gz") else data
        text = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="surrogateescape")
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=sign, strict=True) if row]
    except (csv.Error, OSError, EOFError, ValueError):
        return None
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        return None
    names = [name.strip() for name in rows[0]]
    if any(names.count(name) != 1 for name in NAMES):
        return None
    return _numbers([[row[names.index(name)] for name in NAMES] for row in rows[1:]])


def _numbers(rows: list[list[str]]) -> Any:
    out = np.empty((len(rows), len(NAMES)))
    for i, row in enumerate(rows):
        for j, cell in enumerate(map(str.strip, row)):
            if cell.lower() not in _GONE and not _NUMBER.fullmatch(cell):
                return None
            out[i, j] = np.nan if cell.lower() in _GONE else float(cell)
    return out


def parquets(table: pd.DataFrame) -> dict[str, bytes]:
    out = {}
    for name, options in {
        "snappy.parquet": {"row_group_size": 10},
        "plain.parquet": {"compression": "none", "use_dictionary": False},
        "checked.parquet": {"write_page_checksum": True, "compression": "none"},
        "paged.parquet": {"data_page_size": 64, "compression": "gzip"},
    }.items():
        sink = io.BytesIO()
        pq.write_table(
            pa.Table.from_pandas(table.assign(b=table["b"].astype(int)), preserve_index=False), sink, **options
        )
        out[name] = sink.getvalue()
    return out


def polars_reads(data: bytes, name: str) -> Any:
    """As polars reads it, column by column; None for one that it does not read."""
    return [_polars_column(data, column) for column in NAMES]


def _polars_column(data: bytes, column: str) -> Any:
    try:
        found = pl.read_parquet(io.BytesIO(data), columns=[column])[column]
        return found.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    except BaseException as error:  # panics are no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return None


def with_footer(data: bytes, written: bytes) -> bytes:
    """The damaged pages of a Parquet file, which are found by their distance from its begin, under the footer as written."""
    return data + written[-8 - int.from_bytes(written[-8:-4], "little") :]


def stores(table: pd.DataFrame, folder: Path) -> dict[str, bytes]:
    values = table[NAMES].to_numpy()
    values[np.abs(values) < 0.3 * np.abs(values).max(axis=0)] = 0.0
    out = {}
    for name, kind, options in (
        ("dense.h5ad", np.asarray, {}),
        ("rows.h5ad", sparse.csr_matrix, {}),
        ("columns.h5ad", sparse.csc_matrix, {}),
        ("packed.h5ad", sparse.csr_matrix, {"compression": "gzip"}),
    ):
        obs = pd.DataFrame({"age": np.arange(float(N)), "who": pd.Categorical(["x", "y"] * (N // 2))})
        cells = anndata.AnnData(kind(values), obs=obs.set_index(obs.index.astype(str)), var=pd.DataFrame(index=NAMES))
        cells.write_h5ad(folder / name, **options)
        out[name] = (folder / name).read_bytes()
    return out


def plain_store(data: bytes, name: str) -> Any:
    """X as lists of Python numbers over h5py, checked entry by entry."""
    try:
        with h5py.File(io.BytesIO(data), "r") as file:
            names = [v.decode() if isinstance(v, bytes) else v for v in file["var"][file["var"].attrs["_index"]][:]]
            X = file["X"]
            if isinstance(X, h5py.Dataset):
                return np.array(X[:].tolist(), dtype=float)[:, [names.index(name) for name in NAMES]]
            rows, columns = (int(k) for k in X.attrs["shape"])
            values, places, ends = (X[part][:].tolist() for part in ("data", "indices", "indptr"))
            by_rows = str(X.attrs["encoding-type"]) == "csr_matrix"
            length = columns if by_rows else rows
            if rows * columns > 10**6 or len(ends) != (rows if by_rows else columns) + 1 or ends[0] != 0:
                return None
            out = np.zeros((rows, columns))
            for i, (low, high) in enumerate(pairwise(ends)):
                if not 0 <= low <= high <= len(values):
                    return None
                for k in range(low, high):
                    if not 0 <= places[k] < length:
                        return None
                    out[(i, places[k]) if by_rows else (places[k], i)] += values[k]
            return out[:, [names.index(name) for name in NAMES]]
    except Exception:
        return None


def arrays(table: pd.DataFrame) -> dict[str, bytes]:
    values, out = table[NAMES].to_numpy(), {}
    for name, array in {
        "rows.npy": values,
        "columns.npy": np.asfortranarray(values),
        "single.npy": values.astype("<f4"),
        "whole.npy": table[["b"] * 4].to_numpy().astype(np.int16),
        "other.npy": values.astype(">f8"),
    }.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        out[name] = buffer.getvalue()
    return out


def plain_array(data: bytes, name: str) -> Any:
    """The header read by itself, the values from the bytes."""
    try:
        if data[:6] != b"\x93NUMPY":
            return None
        wide = data[6] > 1
        start = 12 if wide else 10
        end = start + int.from_bytes(data[8:start], "little")
        header = ast.literal_eval(data[start:end].decode("utf-8" if data[6] > 2 else "latin1"))
        dtype, shape = np.dtype(header["descr"]), header["shape"]
        if dtype.kind not in "biuf" or len(shape) != 2:
            return None
        found = np.frombuffer(data, dtype, count=shape[0] * shape[1], offset=end)
        return found.reshape(shape, order="F" if header["fortran_order"] else "C").astype(float)
    except Exception:
        return None


# ---- mutations


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Bytes changed, lost or added, anywhere."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        if not out:
            break
        at, size = rng.randrange(len(out)), rng.choice([1, 1, 2, 8, 100])
        kind = rng.randrange(7)
        if kind <= 2:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            out[at] = rng.choice([0, 255, rng.randrange(256)])
        elif kind == 4:
            del out[at : at + size]
        elif kind == 5:
            out[at:at] = rng.randbytes(size)
        else:
            del out[rng.choice([at, len(out) - min(size, len(out))]) :]
    return bytes(out)


def rewritten_text(rng: random.Random, data: bytes, sign: bytes) -> bytes:
    """Quotes, line ends, cells and headers that do not belong."""
    out = data
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at, kind = rng.randrange(len(out) + 1), rng.randrange(9)
        end = b"\r\n" if b"\r\n" in out else b"\n"
        lines = out.split(end)
        line = rng.randrange(len(lines))
        if kind <= 1:
            out = (
                out[:at]
                + rng.choice([b'"', b'"', b'""', b"\n", b"\r", sign, b"\n\n", b";", b"\xef\xbb\xbf"])
                + out[at:]
            )
        elif kind <= 3:
            cells = lines[line].split(sign)
            cells[rng.randrange(len(cells))] = rng.choice(_CELLS)
            lines[line] = sign.join(cells)
            out = end.join(lines)
        elif kind == 4:
            found = [m.start() for m in re.finditer(rb'["\n\r,;\t]', out)] or [0]
            one = rng.choice(found)
            out = out[:one] + rng.choice([b"", b'"', b" "]) + out[one + 1 :]
        elif kind == 5:
            numbers = [str(2019 + i).encode() for i in range(lines[0].count(sign) + 1)]
            names = lines[0].split(sign)
            first = rng.choice(
                [numbers, [*names[:-1], names[0]], names[::-1], names[:-1], [b""] * len(names), [*names, b"z"]]
            )
            out = end.join([sign.join(first), *lines[1:]])
        elif kind == 6:
            del lines[line]
            out = end.join(lines)
        elif kind == 7:
            lines.insert(line, rng.choice([b"", b" ", lines[line], sign * 3, b"#"]))
            out = end.join(lines)
        else:
            out = out[:at]
    return out


def forged_store(rng: random.Random, data: bytes, path: Path) -> bytes:
    """Another array, attribute or link in a file that is otherwise whole."""
    path.write_bytes(data)
    with h5py.File(path, "r+") as file:
        parts = ["X"] if isinstance(file["X"], h5py.Dataset) else ["X/indices", "X/indptr", "X/data"]
        name = rng.choice([*parts * 3, "var/_index", "obs/_index", "obs/age"])
        values = file[name][:]
        kind = rng.randrange(8)
        if kind == 7 and parts != ["X"]:
            shape = [N, 4]
            shape[rng.randrange(2)] = rng.choice([0, 1, 3, 5, 25, 10**6, 2**40, -1])
            file["X"].attrs["shape"] = np.array(shape)
        elif kind == 6:
            del file[name]
            file[name] = rng.choice(
                [h5py.ExternalLink("other.h5", "/X"), h5py.SoftLink("/obs/age"), h5py.SoftLink("/" + name)]
            )
        elif kind >= 4 or values.dtype.kind == "O":
            del file[name]
            file[name] = rng.choice([values[:-1], values[::-1], np.concatenate([values, values]), values[:0]])
        else:
            flat = values.reshape(-1)
            flat[rng.randrange(flat.size)] = rng.choice([-1, 0, 3, 4, 5, N, 7, 2**31 - 1, 2_000_000_000])
            file[name][...] = values
    return path.read_bytes()


# ---- the test


def prepare(seed: int = 0, only: str = "") -> Callable[[int], dict[str, Any]]:
    warnings.simplefilter("ignore")
    shared = Path("/dev/shm")
    folder = tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None)
    place, table = Path(folder.name), frame(np.random.default_rng(seed))
    families: list[tuple[int, dict[str, bytes], Callable[[bytes, str], Any]]] = [
        (8, texts(table), strict_text),
        (4, parquets(table), polars_reads),
        (4, stores(table, place), plain_store),
        (4, arrays(table), plain_array),
    ]
    families = [family for family in families if any(only in name for name in family[1])]
    turns = [i for i, (share, _, _) in enumerate(families) for _ in range(share)]
    whole = {}
    for _, files, oracle in families:
        for name, data in files.items():
            (place / name).write_bytes(data)
            whole[name] = oracle(data, name)
            for door in _doors(place / name):
                if not _agrees(door(), [whole[name]]):
                    raise RuntimeError(f"{name} is read as something else before anything is changed")
    limit_memory(CAP)

    def run(case: int) -> dict[str, Any]:
        assert folder  # lives as long as the cases
        rng = random.Random(f"{seed}/{case}")
        _, files, oracle = families[turns[case % len(turns)]]
        name = rng.choice(list(files))
        data, ending = files[name], name.rpartition(".")[2]
        if ending in ("csv", "tsv", "gz") and rng.random() < 0.7:
            sign = {"excel.csv": b";", "plain.tsv": b"\t"}.get(name, b",")
            plain = gzip.decompress(data) if ending == "gz" else data
            new = rewritten_text(rng, plain, sign)
            new = gzip.compress(new, mtime=0) if ending == "gz" else new
        elif ending == "h5ad" and rng.random() < 0.5:
            new = forged_store(rng, data, place / "forged.h5")
        else:
            new = damaged(rng, data)
        path = place / name
        path.write_bytes(new)
        others = [new, with_footer(new, data)] if ending == "parquet" else [new]  # polars minds what nobody needs
        return _judged(path, name, lambda: [whole[name], *(oracle(other, name) for other in others)])

    return run


def _judged(path: Path, name: str, truths: Callable[[], list[Any]]) -> dict[str, Any]:
    found = []
    for door in _doors(path):
        try:
            found.append(door())
        except Exception as error:
            if not is_clear(error):
                return {**judged(error), "error": f"{judged(error)['error']} [{name}]"}
            found.append(error)
    read = [values for values in found if not isinstance(values, Exception)]
    if not read:
        return refused(found[0], notes=[f"{name}, refused"])
    known = truths()
    for values in read:
        if not _agrees(values, known):
            return fault(f"{name}: read as {np.shape(values)}, others find {[_shown(other) for other in known]}")
    return right(notes=[f"{name}, read", *[f"{name}, one door refused"] * (len(read) < len(found))])


def _doors(path: Path) -> list[Callable[[], Any]]:
    """The columns a, b, c, d in Python and on the command line."""

    def python() -> Any:
        rows = open_source(path)
        return (rows if path.suffix == ".npy" else rows.select(NAMES)).array()

    def command_line() -> Any:
        rows = open_source(path)
        columns = rows.read(rows.source.all_names if path.suffix == ".npy" else NAMES)
        text = next((name for name, values in columns.items() if values.dtype.kind != "f"), None)
        if text is not None:
            raise rc.DataError(f"column {text!r} holds text")
        return np.column_stack(list(columns.values()))

    return [python, command_line]


def _agrees(values: Any, known: list[Any]) -> bool:
    """Whether a table is one of the known; of Parquet each column, since they are stored apart, each sound or damaged."""
    if isinstance(known[0], list):
        return all(any(_equal(values[:, j], other[j]) for other in known) for j in range(len(NAMES)))
    return any(_equal(values, other) for other in known)


def _shown(found: Any) -> Any:
    return [np.shape(column) for column in found] if isinstance(found, list) else np.shape(found)


def _equal(one: Any, two: Any) -> bool:
    return np.shape(one) == np.shape(two) and bool(np.array_equal(one, two, equal_nan=True))
