"""Compiled interpreters kept on disk, so that only the first process of a machine builds one.

An entry is a module of LLVM IR in a folder of the user's, named by a digest of all that it was made
from: the sources of the machine, the versions of TVM and LLVM, the configuration, the target. Its
first line holds the digest of the rest. What is damaged, truncated or of another name is built
again and written anew; a folder that others may write is not used, since its entries are executed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import tvm
from tvm.target import codegen

from vta_byoc.hw.errors import VTAWarning

CACHE_VARIABLE = "VTA_BYOC_CACHE"
"""The environment variable that names the folder; "off" keeps nothing."""
OFF = "off"
MOST_ENTRIES = 64
"""Entries that are kept, about half a MiB each; the ones that were used longest ago make room."""
_HEAD = b"; sha256 "
_LOG = logging.getLogger("vta_byoc")


def cache_folder() -> Path | None:
    """The folder of kept code; None where VTA_BYOC_CACHE says "off" or there is no home folder."""
    named = os.environ.get(CACHE_VARIABLE, "")
    if named:
        return None if named == OFF else Path(named)
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return home / "vta_byoc"


def kept(
    facts: Mapping[str, object], build: Callable[[], tvm.runtime.Module]
) -> tvm.runtime.Module:
    """The module that ``build`` gives for ``facts``, from disk where it was built before.

    Args:
        facts: what the module depends on beside sources and versions, as JSON values.
        build: compiles the module with LLVM.
    """
    folder = _usable(cache_folder())
    if folder is None:
        return build()
    path = folder / f"{_digest_of(facts)}.ll"
    found = _read(path)
    if found is not None:
        return found
    module = build()
    _write(path, module)
    return module


# ---------------------------------------------------------------- what an entry is of
def _digest_of(facts: Mapping[str, object]) -> str:
    text = json.dumps({**facts, **_surroundings()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _surroundings() -> dict[str, object]:
    """Versions, and a digest of every source file of the machine."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parents[1]
    for path in sorted(root.rglob("*.py")):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(text)}\n".encode())
        digest.update(text)
    return {
        "sources": digest.hexdigest(),
        "tvm": [tvm.__version__, version("apache-tvm-ffi")],
        "llvm": codegen.llvm_version_major(),
    }


# ---------------------------------------------------------------- reading and writing
def _read(path: Path) -> tvm.runtime.Module | None:
    """The module in ``path``; None where there is none, or its digest is not that of its text."""
    try:
        head, _, text = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    if head != _HEAD + hashlib.sha256(text).hexdigest().encode():
        _LOG.info("%s is damaged; the interpreter is built again", path)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return tvm.runtime.load_module(str(path))


def _write(path: Path, module: tvm.runtime.Module) -> None:
    """Write ``module`` beside ``path`` and move it there, so that no reader sees a part of it."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="new-") as room:
            part = Path(room) / path.name
            module.write_to_file(str(part))
            text = part.read_bytes()
            part.write_bytes(_HEAD + hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
            part.replace(path)
        _make_room(path.parent)
    except OSError as err:
        _tell(path.parent, str(err.strerror or err))


def _make_room(folder: Path) -> None:
    entries = [(path.stat().st_mtime, path) for path in folder.glob("*.ll")]
    for _, path in sorted(entries)[:-MOST_ENTRIES]:
        path.unlink(missing_ok=True)


def _usable(folder: Path | None) -> Path | None:
    """``folder``, made where it is missing; None where code from it cannot be trusted."""
    if folder is None:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except OSError as err:
        return _tell(folder, str(err.strerror or err))
    me = os.geteuid() if hasattr(os, "geteuid") else about.st_uid
    if about.st_uid != me:
        return _tell(folder, f"it belongs to user {about.st_uid}, not to {me}")
    if hasattr(os, "geteuid") and about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return _tell(folder, f"others may write it (mode {about.st_mode & 0o777:03o})")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return _tell(folder, f"it cannot be written (mode {about.st_mode & 0o777:03o})")
    return folder


@functools.cache
def _tell(folder: Path, reason: str) -> None:
    """Warn once of a folder that the user named; the default one may be unusable in silence."""
    text = (
        f"{CACHE_VARIABLE} {str(folder)!r} is not used: {reason}; interpreters are built in every "
        f"process; name a folder of your own, or {OFF!r}"
    )
    if os.environ.get(CACHE_VARIABLE):
        warnings.warn(text, VTAWarning, stacklevel=2)
    else:
        _LOG.info("%s", text)
