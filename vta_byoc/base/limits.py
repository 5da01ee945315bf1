"""What a file may ask for: sizes are checked as they are declared, before memory is taken.

A model of some hundred bytes can declare tensors of terabytes, and an archive of some kilobytes can
unpack to them.  One limit holds for the tensors of a model together, and for the arrays of a file.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from vta_byoc.hw.errors import VTAError

GIB = 1 << 30
MEMORY_LIMIT = 8 * GIB
"""Bytes, unless `memory_limit` says otherwise."""
MAX_ELEMENTS = (1 << 31) - 1
"""Of one tensor: compiled code counts its elements in int32."""

_LIMIT: ContextVar[int] = ContextVar("limit", default=MEMORY_LIMIT)


@contextlib.contextmanager
def memory_limit(nbytes: int) -> Iterator[None]:
    """Within the block, models and files may take so many bytes."""
    token = _LIMIT.set(nbytes)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def current_limit() -> int:
    """Bytes that the tensors of a model, or the arrays of a file, may take together."""
    return _LIMIT.get()


@dataclass(frozen=True)
class Declared:
    """A tensor as it is declared.

    Attributes:
        what: as errors call it, as in `tensor "x"`.
        itemsize: bytes of an element.
    """

    what: str
    shape: tuple[int, ...]
    itemsize: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.elements * self.itemsize


def declared(what: str, shape: Sequence[int], dtype: str) -> Declared:
    """From the name of a NumPy dtype; one that NumPy does not know counts 8 bytes an element."""
    import numpy as np  # the command line reads the default limit for its help

    try:
        itemsize = np.dtype(dtype).itemsize
    except TypeError:
        itemsize = 8
    return Declared(what, tuple(int(dim) for dim in shape), itemsize)


def check(tensors: Iterable[Declared], whole: str) -> None:
    """Refuse tensors that are too large, one of them or all together.

    Args:
        tensors: as declared; sizes are not yet allocated.
        whole: what has them all, as in `the model`.

    Raises:
        VTAError: the tensor (or their sum and the largest), its shape and size, the limit, and the
            option that raises it.
    """
    total, largest = 0, None
    for tensor in tensors:
        _check_one(tensor)
        total += tensor.nbytes
        if largest is None or tensor.nbytes > largest.nbytes:
            largest = tensor
    if largest is not None and total > current_limit():
        raise VTAError(
            f"the tensors of {whole} take {size(total)} together, {largest.what} of shape "
            f"{listed(largest.shape)} the most of it; {_advice(total)}"
        )


def _check_one(tensor: Declared) -> None:
    if tensor.nbytes > current_limit():
        raise VTAError(
            f"{tensor.what} of shape {listed(tensor.shape)} takes {size(tensor.nbytes)}; "
            f"{_advice(tensor.nbytes)}"
        )
    if tensor.elements > MAX_ELEMENTS:
        raise VTAError(
            f"{tensor.what} of shape {listed(tensor.shape)} has {tensor.elements:,} elements; a "
            f"tensor has at most {MAX_ELEMENTS:,}; use smaller shapes"
        )


def _advice(nbytes: int) -> str:
    needed = -(-nbytes // GIB)
    return (
        f"{size(current_limit())} are taken at most; correct the shapes, or raise the limit "
        f"(--memory-limit {needed})"
    )


def size(nbytes: int) -> str:
    """Bytes in words: `512 bytes`, `23.8 GiB`."""
    if nbytes < 1 << 20:
        return f"{nbytes:,} bytes"
    unit, name = (GIB, "GiB") if nbytes >= GIB else (1 << 20, "MiB")
    value = nbytes / unit
    return f"{value:,.0f} {name}" if nbytes % unit == 0 else f"{value:,.1f} {name}"


def listed(shape: Sequence[int]) -> str:
    """A shape as `(1, 3, 8, 8)`, one value as `(5)`."""
    return f"({', '.join(map(str, shape))})"
