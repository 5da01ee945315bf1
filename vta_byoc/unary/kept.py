"""Found programs kept on disk, so that only the first process of a user searches for them.

An entry is a program as JSON in a folder of the user's, named by a digest of all that it was found
with: the table, the sources and numpy. Its first line holds the digest of the rest. What is damaged
is searched for again and written anew.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections.abc import Callable

import numpy as np

from vta_byoc.base.sources import digests_of_rooms
from vta_byoc.hw.cache import cache_folder, read_entry, usable, write_entry
from vta_byoc.unary.program import Program
from vta_byoc.unary.target import Target

ROOMS = ("base", "hw", "ir", "unary")
"""Folders of `vta_byoc` whose sources a program depends on: all that this one imports."""
MOST_ENTRIES = 1024
"""Entries that are kept, some 300 bytes each; the ones that were used longest ago make room."""
_SUFFIX = ".function"


def kept_program(
    target: Target, multiplies: bool, search: Callable[[], Program | None]
) -> Program | None:
    """The program that `search` finds, from disk where it is known; None where there is none.

    Args:
        target: what the program has to give, and what nearer results are worth.
        multiplies: whether the machine's ALU has MUL.
        search: searches for the program.
    """
    folder = usable(cache_folder())
    if folder is None:
        return search()
    given = [target.wanted.tolist(), target.tolerance, target.worth, target.beyond, multiplies]
    asked = json.dumps([*_sources(), *given])
    path = folder / f"{hashlib.sha256(asked.encode()).hexdigest()}{_SUFFIX}"
    head, _, text = (read_entry(path) or b"").partition(b"\n")
    if head == _checksum(text):
        return _read(text)
    found = search()
    text = json.dumps(None if found is None else found.to_json()).encode()
    write_entry(path, _checksum(text) + b"\n" + text, MOST_ENTRIES)
    return found


def _read(text: bytes) -> Program | None:
    fields = json.loads(text)
    if fields is None:
        return None
    chains = {
        name: tuple((op, by if isinstance(by, str) else int(by)) for op, by in fields[name])
        for name in ("left", "right", "after")
    }
    return Program(op=fields["op"], **chains)


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


@functools.cache
def _sources() -> tuple[str, ...]:
    """Digests of the rooms, and what else may change the last bit of a sum."""
    return (*digests_of_rooms(ROOMS), np.__version__, platform.machine())
