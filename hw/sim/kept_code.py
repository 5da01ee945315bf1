"""Compiled interpreters kept on disk, so that only the first process of a machine builds one.

An entry is a module of LLVM IR, or a library for what this machine alone runs, in a folder of the
user's. It is named by a digest of all that it was made from: the sources of the machine, the
versions of TVM and LLVM, the configuration, the target. Its first line, or the last bytes of a
library, hold the digest of the rest. What is damaged, truncated or of another name is built again
and written anew; a folder that others may write is not used, since its entries are executed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import tvm
from tvm.target import codegen

from vta_byoc.hw.cache import (
    cache_folder,
    digest_of_sources,
    intact,
    is_whole_library,
    read_entry,
    usable,
    write_entry,
    write_library,
)
from vta_byoc.hw.sim.machine_code import library_of, linker

MOST_ENTRIES = 64
"""Entries that are kept, about half a MiB each; the ones that were used longest ago make room."""
LIBRARY = ".sim.so"
"""Of a library's name: the cores that Verilator built lie beside it and are counted apart."""
_HEAD = b"; sha256 "
_LOG = logging.getLogger("vta_byoc")


def kept(
    facts: Mapping[str, object], build: Callable[[], tvm.runtime.Module]
) -> tvm.runtime.Module:
    """The module that ``build`` gives for ``facts``, from disk where it was built before.

    Args:
        facts: what the module depends on beside sources and versions, as JSON values.
        build: compiles the module with LLVM.
    """
    folder = usable(cache_folder())
    if folder is None:
        return build()
    path = folder / f"{_digest_of(facts)}.ll"
    found = _read(path)
    if found is not None:
        return found
    module = build()
    _write(path, module)
    return module


def kept_library(
    facts: Mapping[str, object], build: Callable[[], tvm.runtime.Module]
) -> tvm.runtime.Module:
    """What :func:`kept` gives, as a loaded library that no JIT compiles and that is not exported.

    Where nothing links, or the folder's file system executes nothing, it is that module itself.
    """
    folder = usable(cache_folder())
    if folder is None or linker() is None:
        return kept(facts, build)
    path = folder / f"{_digest_of(facts)}{LIBRARY}"
    if not is_whole_library(path):
        module = build()
        library = library_of(module)
        if library is None:
            return module
        if not write_library(path, library, MOST_ENTRIES):
            return module
    try:
        return tvm.runtime.load_module(str(path))
    except (RuntimeError, ValueError) as err:  # not executed from there; gone by now
        _LOG.info("%s", err)
        return kept(facts, build)


# ---------------------------------------------------------------- what an entry is of
def _digest_of(facts: Mapping[str, object]) -> str:
    text = json.dumps({**facts, **_surroundings()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _surroundings() -> dict[str, object]:
    """Versions, and a digest of every source file of the machine."""
    return {
        "sources": digest_of_sources(Path(__file__).resolve().parents[1]),
        "tvm": [tvm.__version__, version("apache-tvm-ffi")],
        "llvm": codegen.llvm_version_major(),
    }


# ---------------------------------------------------------------- reading and writing
def _read(path: Path) -> tvm.runtime.Module | None:
    """The module in ``path``; None where there is none, or its digest is not that of its text."""
    data = read_entry(path)
    if data is None:
        return None
    head, _, text = data.partition(b"\n")
    whole = intact(path, head == _HEAD + hashlib.sha256(text).hexdigest().encode())
    return tvm.runtime.load_module(str(path)) if whole else None


def _write(path: Path, module: tvm.runtime.Module) -> None:
    """Write ``module`` to ``path``, behind a line with its digest.

    LLVM gives the text only: where it writes a file itself, a full disk ends the process.
    """
    text = module.inspect_source("ll").encode()
    head = _HEAD + hashlib.sha256(text).hexdigest().encode()
    write_entry(path, head + b"\n" + text, MOST_ENTRIES)
