"""Machine code of modules that run in this process, by the system's linker where there is one.

TVM's JIT lets LLVM's back end optimize, whatever the target says, and compiles when a module is
first called: for one of 130 small functions that takes five times as long as an object file at the
target's own level, linked and loaded. What the functions compute is the same.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import tvm
import tvm_ffi.libinfo

LIBRARIES = ("-l:libm.so.6", "-l:libc.so.6")
"""What functions may call beside TVM, under the names that every Linux loader knows. Most call
nothing of it, and the linker takes three times as long with it as without."""
_Taken = TypeVar("_Taken")


def with_machine_code(module: tvm.runtime.Module) -> tvm.runtime.Module:
    """The functions of a module as a loaded library, so that no JIT compiles them.

    Args:
        module: as `tvm.tirx.build` made it for the host's CPU.

    Returns:
        The library; the module itself where there is no linker, or where it does not link.
    """
    # The file is not needed behind this.
    library = _library(module, lambda path: tvm.runtime.load_module(str(path)))
    return module if library is None else library


def library_of(module: tvm.runtime.Module) -> bytes | None:
    """The same functions as the bytes of a shared library; None where they do not link."""
    return _library(module, Path.read_bytes)


@functools.cache
def linker() -> str | None:
    """The linker's path; None elsewhere than on Linux, whose files are linked here."""
    return shutil.which("ld") if sys.platform == "linux" else None


@functools.cache
def _tvm_ffi() -> str:
    """The library that every function calls; TVM looks through its distribution each time."""
    return str(tvm_ffi.libinfo.find_libtvm_ffi())


def _library(module: tvm.runtime.Module, take: Callable[[Path], _Taken]) -> _Taken | None:
    """What `take` has of a module's library; None where it does not link, or there is no room.

    The object file is in memory: LLVM ends the process where a disk is full, a linker only itself.
    """
    by = linker()
    if by is None:
        return None
    built = os.memfd_create("functions.o")
    try:
        module.write_to_file(f"/proc/self/fd/{built}", "o")
        with tempfile.TemporaryDirectory(prefix="vta_byoc-") as folder:
            library = Path(folder, "functions.so")
            if not any(_link(by, built, library, also) for also in ((), LIBRARIES)):
                return None
            return take(library)
    except OSError:  # no folder for temporary files
        return None
    finally:
        os.close(built)


def _link(by: str, built: int, library: Path, also: Sequence[str]) -> bool:
    """Link the object file that is open as `built` with TVM and `also`; whether that works."""
    # Every name must be found now: one that the loader misses would end the process.
    flags = ("-shared", "--no-undefined", "-z", "now", "-o", str(library))
    inputs = (f"/proc/self/fd/{built}", _tvm_ffi(), *also)
    done = subprocess.run([by, *flags, *inputs], capture_output=True, pass_fds=(built,))
    return not done.returncode
