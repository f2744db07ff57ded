"""Rich Component Analysis: models of one hidden component of several views of the same samples.

The public names live in `richcomponents.api`, which is imported when one of them is first asked for: the command line
answers `--help` without loading scientific libraries.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from richcomponents.api import *  # noqa: F403


def __getattr__(name: str) -> object:
    if not name.startswith("__") or name == "__all__":  # Python's own questions load nothing
        public = {one: what for one, what in vars(import_module("richcomponents.api")).items() if one[0].isalpha()}
        globals().update(public)
        if name == "__all__":
            return sorted(public)
        if name in globals():  # a public name, or a subpackage that became an attribute on the way
            return globals()[name]
    raise AttributeError(f"module 'richcomponents' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "__all__", *import_module("richcomponents").__all__})
