"""The binary formats of TVM's runtime: one NDArray, and named lists of them (`save_param_dict`)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from vta_byoc.base import limits
from vta_byoc.hw.errors import VTAError

LIST_MAGIC = 0xF7E58D4F05049CB7
ARRAY_MAGIC = 0xDD5E40F096B4A13F
KINDS = {0: "int", 1: "uint", 2: "float"}
"""Type codes of DLPack."""
MOST_AXES = 32


@dataclass
class _Reader:
    """Little-endian values, one after the other; `what` is the file as errors call it."""

    data: bytes
    what: str
    at: int = 0

    def values(self, form: str) -> tuple[int, ...]:
        """Numbers as `struct` names them."""
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form), "a number"))

    def take(self, count: int, wanted: str) -> bytes:
        """The next `count` bytes."""
        if count < 0 or self.at + count > len(self.data):
            left = len(self.data) - self.at
            self.fail(f"{wanted} of {count} bytes was expected, {left} are left")
        part = self.data[self.at : self.at + count]
        self.at += count
        return part

    def fail(self, text: str) -> NoReturn:
        """Refuse the file."""
        raise VTAError(
            f"{self.what} is damaged at byte {self.at}: {text}; write it again with "
            "tvm.runtime.save_param_dict"
        )


def read_params(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a parameter file, by name; those of one NDArray under "".

    Raises:
        VTAError: the file is not there, is none of both formats, or ends early.
    """
    path = Path(path)
    what = f'parameter file "{path}"'
    if not path.is_file():
        kind = "is a directory" if path.is_dir() else "does not exist"
        raise VTAError(f"{what} {kind}; what save_param_dict wrote is needed; check the path")
    return params_of(path.read_bytes(), what)


def params_of(data: bytes, what: str) -> dict[str, np.ndarray]:
    """The arrays of the bytes of a parameter file, as `read_params`."""
    magic = int.from_bytes(data[:8], "little")
    reader = _Reader(data, what)
    if magic == ARRAY_MAGIC:
        return {"": _array(reader)}
    if magic != LIST_MAGIC:
        raise VTAError(
            f"{what} begins with {data[:8].hex() or 'nothing'}; parameter files begin with "
            f"{LIST_MAGIC.to_bytes(8, 'little').hex()}; write it with tvm.runtime.save_param_dict"
        )
    reader.values("QQ")
    names = [_name(reader) for _ in range(_count(reader))]
    count = _count(reader)
    if count != len(names):
        reader.fail(f"{count} arrays have {len(names)} names")
    return {name: _array(reader) for name in names}


def array_of(data: bytes, what: str) -> np.ndarray:
    """The array of the bytes of one NDArray.

    Raises:
        VTAError: they are something else, or end early.
    """
    return _array(_Reader(data, what))


def _count(reader: _Reader) -> int:
    (count,) = reader.values("Q")
    if count > len(reader.data):
        reader.fail(f"a list of {count} is longer than the file")
    return count


def _name(reader: _Reader) -> str:
    (length,) = reader.values("Q")
    try:
        return reader.take(length, "a name").decode("utf-8")
    except UnicodeDecodeError:
        reader.fail("a name is no UTF-8 text")


def _array(reader: _Reader) -> np.ndarray:
    magic, _, _, _, axes = reader.values("QQiii")
    if magic != ARRAY_MAGIC:
        reader.fail(f"an array begins with {ARRAY_MAGIC:#x}, not with {magic:#x}")
    code, bits, lanes = reader.values("BBH")
    if not 0 <= axes <= MOST_AXES:
        reader.fail(f"an array has {axes} axes")
    shape = reader.values("q" * axes)
    (nbytes,) = reader.values("q")
    dtype = _dtype(reader, code, bits, lanes)
    if min(shape, default=1) < 0:
        reader.fail(f"an array has the shape {shape}")
    limits.check([limits.declared("an array", shape, dtype)], reader.what)
    itemsize = np.dtype(dtype).itemsize
    expected = int(np.prod(shape, dtype=object)) * itemsize
    if nbytes != expected:
        reader.fail(f"{nbytes} bytes are stated for {shape} of {dtype}, which takes {expected}")
    values = np.frombuffer(reader.take(nbytes, "an array"), np.dtype(dtype).newbyteorder("<"))
    return values.astype(dtype).reshape(shape)


def _dtype(reader: _Reader, code: int, bits: int, lanes: int) -> str:
    if (code, bits) == (1, 1):
        return "bool"
    name = f"{KINDS.get(code, '?')}{bits}"
    try:
        known = lanes == 1 and code in KINDS and np.dtype(name).itemsize * 8 == bits
    except TypeError:
        known = False
    if not known:
        reader.fail(f"an array has the type code {code} with {bits} bits and {lanes} lanes")
    return name
