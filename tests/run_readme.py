"""Run the README as a stranger would, with what `pip install richcomponents` brings and nothing else.

Its Python, in order, and its commands but those that take minutes, in an empty folder with one table of a reader's own.
`make install` runs it in an environment without extras, and without the sources.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from documents import fenced, shell_lines

README = Path(__file__).parent.parent / "README.md"
EXTRAS = ("numba", "dask", "zarr", "h5py", "anndata", "pandas", "polars")
TOO_LONG = ("demo",)


def write_table(path: Path) -> None:
    """A reader's table: tests T_0.., controls C_0.., and the disease."""
    import numpy as np

    import richcomponents as rc

    data = rc.datasets.make_confounded(400, d_u=4, d_v=5, binary_exposure=True, random_state=1)
    names = [f"T_{i}" for i in range(4)] + [f"C_{i}" for i in range(5)] + ["disease"]
    table = np.column_stack([data.X, data.y])
    np.savetxt(path, table, delimiter=",", header=",".join(names), comments="")


def main() -> None:
    import richcomponents as rc

    assert "site-packages" in str(rc.__file__), f"the sources were found, not the wheel: {rc.__file__}"
    found = [name for name in EXTRAS if importlib.util.find_spec(name)]
    assert not found, f"this environment has more than a plain install: {found}"
    command = Path(sys.executable).parent / "rca"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_table(Path("table.csv"))
        for words in shell_lines(README):
            if words[0] == "rca" and words[1] not in TOO_LONG:
                print("rca", *words[1:], flush=True)
                subprocess.run([command, *words[1:]], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        namespace: dict[str, object] = {}
        for language, code in fenced(README):
            if language == "python":
                print(code.splitlines()[-1], flush=True)
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(code, README.name, "exec"), namespace)
        os.chdir("/")
    print(f"the README runs on a plain install of richcomponents {rc.__version__}")


if __name__ == "__main__":
    main()
