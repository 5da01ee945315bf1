"""Chosen tilings kept on disk, so that only the first process of a user searches for them.

A file holds the choices for one machine, made by one state of the sources, whose digests its name
is; a line of it holds a digest of the rest of the line, one of what was asked for, and the kernels
that were chosen. Lines are only appended. One that is damaged or cut off is passed over: its layer
is searched for again. What is read equals what a search finds, byte for byte.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vta_byoc.base.sources import digests_of_rooms
from vta_byoc.hw.cache import cache_folder, tell_unusable, usable
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.te.kernel import Kernel, Kernels

ROOMS = ("base", "codegen", "cost", "hw", "ir", "strategies", "workload")
"""Folders of `vta_byoc` whose sources a choice depends on: all that strategies import."""
MOST_BYTES = 16 << 20
"""Size of a file to which nothing more is added; a line takes some 250 bytes."""
MOST_FILES = 32
"""Files that are kept; the ones that were used longest ago make room."""
_SUFFIX = ".tiles"
_LOG = logging.getLogger("vta_byoc")


def kept_choice(asked: str, config: VTAConfig, search: Callable[[], Kernels]) -> Kernels:
    """The kernels that `search` finds for `asked` on a machine, from disk where they are known.

    Args:
        asked: all that the choice depends on beside the machine and the sources, as text.
        config: the machine.
        search: searches for the kernels; what it raises is not kept.
    """
    folder = usable(cache_folder())
    if folder is None:
        return search()
    choices = _choices(folder / f"{_digest_of(config)}{_SUFFIX}")
    key = hashlib.sha256(asked.encode()).hexdigest()
    found = choices.find(key)
    if found is None:
        found = search()
        choices.add(key, found)
    return found


class KeptChoices:
    """The choices in one file, which other processes may add to meanwhile.

    Args:
        path: the file; it need not exist.
    """

    def __init__(self, path: Path):
        self.path = path
        self.seen = 0
        self._texts: dict[str, list[str]] = {}

    def find(self, key: str) -> Kernels | None:
        """The kernels kept under `key`; None where there are none."""
        if key not in self._texts:
            self._read()
        texts = self._texts.get(key)
        return None if texts is None else tuple(Kernel.from_text(text) for text in texts)

    def add(self, key: str, kernels: Kernels) -> None:
        """Append the kernels under `key`, unless the file is full or cannot be written."""
        texts = [kernel.to_text() for kernel in kernels]
        rest = f"{key} {json.dumps(texts)}"
        line = f"\n{_checksum(rest)} {rest}\n".encode()
        self._texts[key] = texts
        if self.seen + len(line) > MOST_BYTES:
            return
        try:
            if not self.path.exists():
                _make_room(self.path.parent)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            with open(os.open(self.path, flags, 0o600), "ab", buffering=0) as file:
                file.write(line)
        except OSError as err:
            tell_unusable(self.path.parent, str(err.strerror or err))

    def _read(self) -> None:
        """Take in what was appended since the last time, up to the last whole line."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.seen)
                text = file.read(MOST_BYTES)
        except OSError:
            return
        if not self.seen:
            with contextlib.suppress(OSError):
                os.utime(self.path)
        whole = text[: text.rfind(b"\n") + 1]
        self.seen += len(whole)
        for line in whole.splitlines():
            if line and not self._take(line):
                _LOG.info("%s has a damaged line; its layer is searched for again", self.path)

    def _take(self, line: bytes) -> bool:
        """Take a line in; False where it is damaged."""
        head, _, rest = line.decode(errors="replace").partition(" ")
        if head != _checksum(rest):
            return False
        key, _, texts = rest.partition(" ")
        self._texts[key] = json.loads(texts)
        return True


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# ---------------------------------------------------------------- what a file is of
@functools.cache
def _choices(path: Path) -> KeptChoices:
    return KeptChoices(path)


@functools.lru_cache(maxsize=256)
def _digest_of(config: VTAConfig) -> str:
    facts = {"machine": config.to_dict(), "sources": _sources(), "numpy": np.__version__}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@functools.cache
def _sources() -> list[str]:
    """Digests of the rooms."""
    return digests_of_rooms(ROOMS)


def _make_room(folder: Path) -> None:
    files = [(path.stat().st_mtime, path) for path in folder.glob(f"*{_SUFFIX}")]
    for _, path in sorted(files)[: 1 - MOST_FILES]:
        path.unlink(missing_ok=True)
