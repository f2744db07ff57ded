"""A table like those of CITE-seq, genes (sparse) and proteins of the same cells, from disk: time, peak memory, error.

    python benchmarks/cells.py [--cells 100000] [--genes 2000] [--proteins 100] [--kind h5mu|h5ad|parquet]
                               [--subset 10000] [--place DIR] [--json FILE]

The model holds exactly. Programs z (few of them active in a cell, and then exponential) move a few genes each and all proteins:

    genes = S1 + S2,   S2 = L z,   S1 = (programs of the genes alone) + (sparse exponential noise),   proteins = B z + noise,

so that A L = B. The file is made once, in pieces, and kept in --place. It is fitted in a process of its own, so that the peak
memory is its own. Errors are those against the truth, |A L - B| / |B| and |Cov(S2) - L Cov(z) L'| / |L Cov(z) L'|, beside that
of residualising (all that proteins predict of genes is shared), and the largest relative difference between the fit of the
first cells from their own sparse file and that of the same cells as a dense array.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import richcomponents as rc
from sections import tell

PIECE, SHARED, OWN = 10_000, 4, 6
ACTIVE, EXPRESSED = 0.15, 0.08  # of programs in a cell; of genes by chance


class Truth:
    """L (genes, SHARED), B (proteins, SHARED), programs of the genes alone (genes, OWN)."""

    def __init__(self, genes: int, proteins: int) -> None:
        rng = np.random.default_rng([7, genes, proteins])
        touched = rng.random((genes, SHARED + OWN)) < 0.1
        loadings = rng.exponential(size=touched.shape) * touched
        self.L, self.own = loadings[:, :SHARED], loadings[:, SHARED:]
        self.B = rng.normal(size=(proteins, SHARED))
        self.variance = 2 * ACTIVE - ACTIVE**2  # of an exponential that is there with that probability

    @property
    def names(self) -> dict[str, list[str]]:
        return {"rna": [f"gene{i}" for i in range(len(self.L))], "protein": [f"protein{i}" for i in range(len(self.B))]}

    def piece(self, number: int, cells: int) -> tuple[Any, Any]:
        """Genes (cells, genes), sparse, and proteins (cells, proteins), of one piece of the table."""
        rng = np.random.default_rng([11, number])
        z = rng.exponential(size=(cells, SHARED + OWN)) * (rng.random((cells, SHARED + OWN)) < ACTIVE)
        noise = sparse.random(cells, len(self.L), EXPRESSED, "csr", rng=rng, data_rvs=rng.standard_exponential)
        genes = sparse.csr_matrix(z) @ sparse.csr_matrix(np.hstack([self.L, self.own]).T) + noise
        proteins = z[:, :SHARED] @ self.B.T + rng.normal(size=(cells, len(self.B)))
        return genes.astype(np.float32).tocsr(), proteins.astype(np.float32)

    def pieces(self, cells: int) -> Any:
        for number, start in enumerate(range(0, cells, PIECE)):
            yield self.piece(number, PIECE)[0][: cells - start], self.piece(number, PIECE)[1][: cells - start]

    def errors(self, mixing: Any, shared: Any) -> tuple[float, float]:
        cov = self.variance * self.L @ self.L.T
        return (
            float(np.linalg.norm(mixing @ self.L - self.B) / np.linalg.norm(self.B)),
            float(np.linalg.norm(shared - cov) / np.linalg.norm(cov)),
        )


def make(path: Path, truth: Truth, cells: int) -> None:
    """The file, piece by piece: as AnnData and MuData write theirs, or Parquet."""
    if path.exists():
        return
    unfinished = path.with_name(f"unfinished{path.suffix}")
    (write_parquet if path.suffix == ".parquet" else write_hdf5)(unfinished, truth, cells)
    unfinished.rename(path)


def write_parquet(path: Path, truth: Truth, cells: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.float32()) for names in truth.names.values() for name in names])
    with pq.ParquetWriter(path, schema) as writer:
        for genes, proteins in truth.pieces(cells):
            values = np.hstack([genes.toarray(), proteins])
            writer.write_table(pa.table(list(np.ascontiguousarray(values.T)), schema=schema))


def write_hdf5(path: Path, truth: Truth, cells: int) -> None:
    """.h5mu: two modalities; .h5ad: one matrix of all columns, sparse."""
    import h5py

    with h5py.File(path, "w") as file:
        labels = [f"cell{i}" for i in range(cells)]
        if path.suffix == ".h5ad":
            _annotate(file, labels, [name for names in truth.names.values() for name in names])
            both = (
                sparse.hstack([genes, sparse.csr_matrix(proteins)], "csr") for genes, proteins in truth.pieces(cells)
            )
            _write_sparse(file, both, cells)
            return
        _frame(file, "obs", labels)
        parts = {name: file.create_group(f"mod/{name}") for name in truth.names}
        file["mod"].attrs["mod-order"] = list(parts)
        for name, part in parts.items():
            _annotate(part, labels, truth.names[name])
        _write_sparse(parts["rna"], (genes for genes, _ in truth.pieces(cells)), cells)
        dense = parts["protein"].create_dataset("X", (cells, len(truth.B)), "f4", chunks=(1000, len(truth.B)))
        for number, (_, proteins) in enumerate(truth.pieces(cells)):
            dense[number * PIECE : number * PIECE + len(proteins)] = proteins


def _annotate(group: Any, cells: list[str], columns: list[str]) -> None:
    _frame(group, "obs", cells)
    _frame(group, "var", columns)


def _frame(group: Any, name: str, labels: list[str]) -> None:
    import h5py

    frame = group.create_group(name)
    frame.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
    frame.attrs["column-order"] = np.array([], dtype="f8")
    frame.create_dataset("_index", data=np.array(labels, dtype=object), dtype=h5py.string_dtype())


def _write_sparse(group: Any, pieces: Any, cells: int) -> None:
    X = group.create_group("X")
    X.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
    data = X.create_dataset("data", (0,), "f4", maxshape=(None,), chunks=(2**18,))
    indices = X.create_dataset("indices", (0,), "i4", maxshape=(None,), chunks=(2**18,))
    ends = [np.zeros(1, dtype=np.int64)]
    for piece in pieces:
        at = data.shape[0]
        for held, values in ((data, piece.data), (indices, piece.indices)):
            held.resize((at + piece.nnz,))
            held[at:] = values
        ends.append(piece.indptr[1:].astype(np.int64) + at)
        X.attrs["shape"] = np.array([cells, piece.shape[1]])
    X.create_dataset("indptr", data=np.concatenate(ends))


def fit(path: Path, truth: Truth) -> dict[str, float]:
    """In this process: all cells of the file."""
    began, used = time.perf_counter(), time.process_time()
    model = rc.ContrastiveRCA(views=truth.names).fit(path)
    took, used = time.perf_counter() - began, time.process_time() - used
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) / 2**20  # what getrusage says is at least that of the parent
    mixing, shared = truth.errors(model.A_, model.components_["S2"].covariance)
    # residualising: all that the proteins predict of the genes is shared (T = 0)
    low = model.solution_.pair.from_x * model.solution_.posterior.correlations
    residualised = truth.errors(model.A_, low @ low.T)[1]
    return {
        "cells": model.n_samples_,
        "seconds": took,
        "seconds of all cores": used,
        "peak GB": peak,
        "shared directions": model.rank_,
        "error of A": mixing,
        "error of Cov(S2)": shared,
        "error of Cov(S2), residualising": residualised,
    }


def against_dense(place: Path, truth: Truth, cells: int, kind: str) -> float:
    """The largest relative difference between fits of a sparse file and of the same cells as an array."""
    path = place / f"subset-{cells}x{len(truth.L)}x{len(truth.B)}.{kind}"
    make(path, truth, cells)
    X = np.vstack([np.hstack([genes.toarray(), proteins]) for genes, proteins in truth.pieces(cells)])
    names = [name for names in truth.names.values() for name in names]
    views = {view: [names.index(name) for name in chosen] for view, chosen in truth.names.items()}
    one, two = rc.ContrastiveRCA(views=truth.names).fit(path), rc.ContrastiveRCA(views=views).fit(X.astype(np.float64))

    def difference(a: Any, b: Any) -> float:
        return float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(b)).max())

    parts = [(one.components_[key].covariance, two.components_[key].covariance) for key in one.components_]
    return max(difference(a, b) for a, b in [(one.A_, two.A_), *parts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--genes", type=int, default=2000)
    parser.add_argument("--proteins", type=int, default=100)
    parser.add_argument("--kind", choices=["h5mu", "h5ad", "parquet"], default="h5mu")
    parser.add_argument("--subset", type=int, default=15_000, help="cells that are also fitted as a dense array")
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()) / "richcomponents-cells")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.place.mkdir(parents=True, exist_ok=True)
    truth = Truth(options.genes, options.proteins)
    path = options.place / f"{options.cells}x{options.genes}x{options.proteins}.{options.kind}"
    if options.alone:
        print(json.dumps(fit(path, truth)))
        return
    make(path, truth, options.cells)
    alone = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], "--alone"], check=True, stdout=subprocess.PIPE, text=True
    )
    result = json.loads(alone.stdout)
    result["file GB"] = path.stat().st_size / 2**30
    if options.subset:
        difference = against_dense(options.place, truth, options.subset, options.kind)
        result["largest difference from the dense fit"] = f"{difference:.1e}"
    tell(result, options.json)


if __name__ == "__main__":
    main()
