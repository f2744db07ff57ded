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
        api = import_module("richcomponents.api")
        globals().update({public: getattr(api, public) for public in api.__all__ if hasattr(api, public)})
        globals()["__all__"] = api.__all__
        if name in globals():  # a public name, or a subpackage that became an attribute on the way
            return globals()[name]
    raise AttributeError(f"module 'richcomponents' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("richcomponents.api").__all__})
