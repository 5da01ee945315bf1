"""Array files (`.npy`, `.npz`): read after their headers have been checked, and written by name.

A header can declare terabytes that the file does not hold, and an archive can unpack to a thousand
times its size: sizes are compared with the file and with `limits.memory_limit` before memory is
taken.  `np.savez` takes names as keyword arguments and so loses `file` and `allow_pickle`; here
every name is kept.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

import numpy as np

from vta_byoc.base import limits
from vta_byoc.hw.errors import VTAError

MEMBER = ".npy"
FORMATS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""Versions of the .npy format that arrays of numbers have."""
OLDEST = (1980, 1, 1, 0, 0, 0)
"""The time of every member: the same arrays make the same bytes."""


@dataclass(frozen=True)
class Spec:
    """Shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def read_header(file: IO[bytes]) -> tuple[Spec, bool]:
    """Shape and dtype, and whether columns come first; `file` stands at the values then.

    Raises:
        ValueError: no `.npy` file, one of objects, or a shape that no array has.
    """
    version = np.lib.format.read_magic(file)
    if version not in FORMATS:
        raise ValueError(f"version {version} of the .npy format")
    shape, by_columns, dtype = FORMATS[version](file)
    if dtype.hasobject:
        raise ValueError("arrays of objects")
    if any(dim < 0 for dim in shape):
        raise ValueError(f"the shape {shape}")
    return Spec(tuple(shape), dtype), by_columns


def read_npy(path: Path) -> np.ndarray:
    """The array of an `.npy` file.

    Raises:
        VTAError: it takes more than the limit, or does not hold what it declares.
        ValueError, EOFError: the file is no array of numbers.
    """
    with path.open("rb") as file:
        _check_fits(file, path.stat().st_size, f'the array in "{path}"')
        file.seek(0)
        array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    return array


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an `.npz` file, by name.

    Raises:
        VTAError: they take more than the limit.
        Exception: what zipfile, zlib or NumPy say about a file that is no archive of arrays.
    """
    with zipfile.ZipFile(path) as archive:
        names = {name.removesuffix(MEMBER): name for name in archive.namelist()}
        check_members(archive, path)
        arrays = {}
        for name, member in names.items():
            with archive.open(member) as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays


def check_members(archive: zipfile.ZipFile, path: Path) -> None:
    """Compare what every array of an archive declares with its size, and all with the limit.

    Raises:
        VTAError: an array declares what its member does not hold, or they take more than the
            limit.
    """
    found = []
    for info in archive.infolist():
        what = f'the array "{info.filename.removesuffix(MEMBER)}" in "{path}"'
        with archive.open(info) as file:
            found.append(_check_fits(file, info.file_size, what))
    limits.check(found, f'the file "{path}"')


def _check_fits(file: IO[bytes], nbytes: int, what: str) -> limits.Declared:
    spec, _ = read_header(file)
    wanted = limits.Declared(what, spec.shape, spec.dtype.itemsize)
    held = nbytes - file.tell()
    if wanted.nbytes > held:
        raise VTAError(
            f"{what} declares the shape {limits.listed(spec.shape)}, {limits.size(wanted.nbytes)}; "
            f"the file holds {limits.size(held)} of it; save it again"
        )
    limits.check([wanted], what)
    return wanted


# ---------------------------------------------------------------- names
_UNSAFE = re.compile(r"[%\\\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PLAIN_PATH = re.compile(r"(?!\.\.?(?:/|$))[^/]+(?:/(?!\.\.?(?:/|$))[^/]+)*")


def member_name(name: str) -> str:
    r"""`name` as the name of an archive's member, without `.npy`.

    It stays as it is, but for `%`, `\` and control characters, and for every `/` of a name that is
    no plain relative path (`/x`, `../x`, `a//b`): those become `%` and two hexadecimal digits for
    each byte of UTF-8. `array_name` is the inverse.
    """
    text = _UNSAFE.sub(_percent, name)
    return text if _PLAIN_PATH.fullmatch(text) else text.replace("/", "%2F")


def array_name(member: str) -> str:
    """The name that `member_name` made `member` of."""
    return unquote(member, errors="surrogatepass")


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found.group().encode("utf-8", "surrogatepass"))


def save_named(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an `.npz` file with an array for each name, whatever the name is.

    Equal arrays make equal bytes.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(member_name(name) + MEMBER, OLDEST)
            with archive.open(info, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def load_named(path: Path) -> dict[str, np.ndarray]:
    """The arrays that `save_named` (`vta-byoc run --output`) wrote, under their names.

    Raises:
        VTAError: they take more than the limit.
    """
    return {array_name(name): array for name, array in read_npz(path).items()}
