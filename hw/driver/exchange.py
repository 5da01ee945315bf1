"""A file that client and server on one computer both map, for tensors that a call carries.

TVM's RPC moves some 20 MB a second; on one computer a mapped file costs a copy. Whether the other
side is on this computer is found out by the file: who can open it and reads the token is.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ALIGN = 64
Place = tuple[str, tuple[int, ...], int]
"""Dtype, shape and first byte of a tensor in the file."""


class Exchange:
    """A mapped file of `nbytes` bytes that begins with a token.

    Attributes:
        path: the file; it is removed by `forget_name`, and lives on while it is mapped.
        token: what the file begins with when it is made, hexadecimal.
    """

    def __init__(self, nbytes: int) -> None:
        self.token = secrets.token_hex(16)
        descriptor, name = tempfile.mkstemp(prefix="vta-byoc-", dir=_folder())
        self.path = Path(name)
        try:
            os.ftruncate(descriptor, nbytes)
            self._map = mmap.mmap(descriptor, nbytes)
        except (OSError, ValueError):
            self.forget_name()
            raise
        finally:
            os.close(descriptor)
        self._map[: len(self.token)] = self.token.encode()

    def forget_name(self) -> None:
        """Remove the file's name: nobody else can open it."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def __len__(self) -> int:
        return len(self._map)

    def view(self, place: Place) -> np.ndarray:
        """The tensor at a place, which can be written."""
        return mapped(self._map, place)


def attached(path: str, token: str) -> mmap.mmap | None:
    """The file of the other side mapped, or None where it is not on this computer."""
    try:
        with open(path, "r+b") as file:
            found = mmap.mmap(file.fileno(), 0)
    except (OSError, ValueError):
        return None
    return found if found[: len(token)] == token.encode() else None


def mapped(memory: mmap.mmap, place: Place) -> np.ndarray:
    """The tensor at a place of a mapped file."""
    dtype, shape, at = place
    count = int(np.prod(shape))
    return np.frombuffer(memory, dtype, count, at).reshape(shape)


def places(shapes: Sequence[tuple[tuple[int, ...], str]]) -> tuple[list[Place], int]:
    """Places for tensors one behind the other, and the bytes that they take."""
    found: list[Place] = []
    end = 0
    for shape, dtype in shapes:
        found.append((dtype, shape, end))
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        end += -(-nbytes // ALIGN) * ALIGN
    return found, end


def _folder() -> str | None:
    """Memory where there is such a folder, else that of temporary files."""
    shm = "/dev/shm"
    return shm if os.access(shm, os.W_OK) else None
