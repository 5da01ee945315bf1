"""The folder of the user's that holds what is built or found once, and whether it is usable.

A folder that others may write is not used, since what it holds is executed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import stat
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path

from vta_byoc.hw.errors import VTAWarning

CACHE_VARIABLE = "VTA_BYOC_CACHE"
"""The environment variable that names the folder; "off" keeps nothing."""
OFF = "off"
_DIGEST_BYTES = hashlib.sha256().digest_size
_LOG = logging.getLogger("vta_byoc")


def cache_folder() -> Path | None:
    """The folder of what is kept; None where VTA_BYOC_CACHE says "off" or no home is known."""
    named = os.environ.get(CACHE_VARIABLE, "")
    if named:
        return None if named == OFF else Path(named)
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return home / "vta_byoc"


def usable(folder: Path | None) -> Path | None:
    """``folder``, made where it is missing; None where code from it cannot be trusted."""
    if folder is None:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except OSError as err:
        return tell_unusable(folder, str(err.strerror or err))
    me = os.geteuid() if hasattr(os, "geteuid") else about.st_uid
    if about.st_uid != me:
        return tell_unusable(folder, f"it belongs to user {about.st_uid}, not to {me}")
    if hasattr(os, "geteuid") and about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return tell_unusable(folder, f"others may write it (mode {about.st_mode & 0o777:03o})")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return tell_unusable(folder, f"it cannot be written (mode {about.st_mode & 0o777:03o})")
    return folder


@functools.cache
def tell_unusable(folder: Path, reason: str) -> None:
    """Warn once of a folder that the user named; the default one may be unusable in silence."""
    text = (
        f"{CACHE_VARIABLE} {str(folder)!r} is not used: {reason}; interpreters are built and "
        f"tilings searched for in every process; name a folder of your own, or {OFF!r}"
    )
    if os.environ.get(CACHE_VARIABLE):
        warnings.warn(text, VTAWarning, stacklevel=2)
    else:
        _LOG.info("%s", text)


def digest_of_sources(root: Path) -> str:
    """A digest of the names and texts of every Python file below `root`, as hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)} {_digest_of_source(path)}\n".encode())
    return digest.hexdigest()


@functools.cache
def _digest_of_source(path: Path) -> str:
    """Of a file that this process runs: it is read once, whoever asks."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_entry(path: Path, data: bytes, most: int) -> bool:
    """Write an entry of a usable folder as a whole, so that no reader sees a part of it.

    Of the entries with its suffixes the `most` that were used last are kept. A folder that cannot
    be written is told of; nothing of the entry is left then.

    Returns:
        Whether it is written.
    """
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="new-") as room:
            part = Path(room) / path.name
            part.write_bytes(data)
            part.replace(path)
        _keep(path.parent.glob("*" + "".join(path.suffixes)), most)
    except OSError as err:
        tell_unusable(path.parent, str(err.strerror or err))
        return False
    return True


def _keep(entries: Iterable[Path], most: int) -> None:
    """Remove all but the ``most`` that were used last; other processes may remove them, too."""
    used = []
    for entry in entries:
        with contextlib.suppress(FileNotFoundError):
            used.append((entry.stat().st_mtime, entry))
    for _, entry in sorted(used)[:-most]:
        entry.unlink(missing_ok=True)


def read_entry(path: Path) -> bytes | None:
    """What an entry holds, which counts as used now; None where there is none."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return data


def write_library(path: Path, library: bytes, most: int) -> bool:
    """Write a shared library as `write_entry` does, with its digest behind its last byte."""
    return write_entry(path, library + hashlib.sha256(library).digest(), most)


def is_whole_library(path: Path) -> bool:
    """Whether there is a library of `write_library` in `path` whose digest is that of its bytes."""
    data = read_entry(path)
    if data is None:
        return False
    return intact(path, data[-_DIGEST_BYTES:] == hashlib.sha256(data[:-_DIGEST_BYTES]).digest())


def intact(path: Path, equal: bool) -> bool:
    """Whether the digest of an entry is `equal` to the one in it; told of where it is not."""
    if not equal:
        _LOG.info("%s is damaged; what it held is built again", path)
    return equal
