"""TVM without PyTorch: two seconds less until a command or a worker starts.

TVM's FFI imports PyTorch, where it is installed, to know its tensors and its streams as arguments.
The command line hands TVM arrays alone, and models of PyTorch are read by their own importer, which
imports PyTorch itself, later.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

WAITING, FIRST = "torch", ("tvm_ffi", "tvm")
"""What is not found while one of the others is being imported."""


class _NotYet(MetaPathFinder):
    """Finds nothing, and says of PyTorch that it is not there while TVM is being imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None: others look.

        Raises:
            ModuleNotFoundError: PyTorch is asked for, and TVM is being imported.
        """
        if fullname == WAITING and any(map(_being_imported, FIRST)):
            raise ModuleNotFoundError(f"{WAITING} is imported when a model needs it", name=WAITING)
        return None


def _being_imported(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def import_torch_later() -> None:
    """From now on the first `import tvm` of this process leaves PyTorch alone."""
    if not any(isinstance(finder, _NotYet) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NotYet())
