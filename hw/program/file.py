"""Program files: save and load a Program with format version, configuration and checksum.

Layout, little-endian: magic (8 bytes), format version (4), payload length (8), SHA-256 of all the
other bytes (32), payload (``Program.to_bytes``).  Equal programs give equal files.  Later versions
keep the first four, so that a newer file is told from a damaged one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vta_byoc.hw.config import GROUPS, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Layer, Program, Relocation, Symbol

MAGIC = b"\x93VTA\r\n\x1a\n"
"""Not text, and spoilt by whatever rewrites line ends."""
VERSION = 3
_HEAD = struct.Struct("<8sIQ")
_DIGEST_BYTES = 32
_START = _HEAD.size + _DIGEST_BYTES
_IRRELEVANT = ("TARGET", "HW_VER", "TIMING")
"""Configuration keys that do not change what a program means."""
_DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32")


# ---------------------------------------------------------------- bytes
def to_file_bytes(program: Program) -> bytes:
    """The contents of a program file."""
    payload = program.to_bytes()
    head = _HEAD.pack(MAGIC, VERSION, len(payload))
    return head + _digest(head, payload) + payload


def from_file_bytes(data: bytes, where: str = "program") -> Program:
    """The program in the contents of a file; ``where`` names the file in errors."""
    if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
        raise VTAError(
            f"{where} is not a VTA program; program files begin with the bytes {MAGIC.hex()}; give "
            "a file that vta_byoc has saved"
        )
    if len(data) < _START:
        raise _truncated(where, len(data), _START)
    _, version, length = _HEAD.unpack_from(data)
    if len(data) < _START + length:
        raise _truncated(where, len(data), _START + length)
    if len(data) > _START + length:
        raise VTAError(
            f"{where} has {len(data)} bytes; its header says {_START + length}; something was "
            "appended or the file is damaged: save the program again"
        )
    head, digest, payload = data[: _HEAD.size], data[_HEAD.size : _START], data[_START:]
    if _digest(head, payload) != digest:
        raise VTAError(
            f"{where} is damaged: the SHA-256 of its contents is not the one saved with them; "
            "every bit must be as it was written; save the program again"
        )
    if version != VERSION:
        raise VTAError(
            f"{where} has format version {version}; this vta_byoc reads version {VERSION}; install "
            "the vta_byoc that saved it, or compile the program again"
        )
    return _decode(payload, where)


def _digest(head: bytes, payload: bytes) -> bytes:
    return hashlib.sha256(head + payload).digest()


def _truncated(where: str, have: int, need: int) -> VTAError:
    return VTAError(
        f"{where} is truncated: it has {have} bytes; at least {need} belong to it; copy it again "
        "or save the program again"
    )


# ---------------------------------------------------------------- files
def save(program: Program, path: str | Path) -> None:
    """Write a program file; an existing file is replaced as a whole or not at all."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "xb") as file:
            file.write(to_file_bytes(program))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as err:
        with contextlib.suppress(OSError):
            part.unlink()
        raise VTAError(
            f"program file {path} cannot be written ({err.strerror}); its folder must exist and be "
            "writable; give another path"
        ) from err


def load(path: str | Path, config: VTAConfig | None = None) -> Program:
    """Read a program file.

    Args:
        path: a file that :func:`save` wrote.
        config: the machine that is to run it, when it must be a certain one. Name, version and
            timing may differ from what the program was compiled for; the rest may not.

    Raises:
        VTAError: it is no such file, or its program is for another machine.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as err:
        raise VTAError(
            f"program file {path} cannot be read ({err.strerror}); give a file that vta_byoc has "
            "saved"
        ) from err
    program = from_file_bytes(data, f"program file {path}")
    if config is not None:
        _check_config(f"program file {path}", program.config, config)
    return program


def _check_config(where: str, have: VTAConfig, want: VTAConfig) -> None:
    one, two = _flat(have), _flat(want)
    different = [f"{key} {one[key]}, not {two[key]}" for key in one if one[key] != two[key]]
    if different:
        raise VTAError(
            f"{where} is for another machine: {'; '.join(different[:3])}; a program runs on the "
            "configuration that it was compiled for; compile it for this one"
        )


def _flat(config: VTAConfig) -> dict[str, Any]:
    """What a program depends on, by dotted key."""
    data = {k: v for k, v in config.to_dict().items() if k not in _IRRELEVANT}
    groups = {key: data.pop(key) for key in GROUPS if key in data}
    return data | {f"{key}.{k}": v for key, group in groups.items() for k, v in group.items()}


# ---------------------------------------------------------------- payload
def _decode(payload: bytes, where: str) -> Program:
    """The inverse of ``Program.to_bytes``, for bytes that need not come from it."""
    try:
        program = _program(*_parts(payload))
        if program.to_bytes() == payload:
            return program
        reason = "its contents are not in canonical form"
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as err:
        reason = f"{type(err).__name__}: {err}"
    raise VTAError(
        f"{where} holds no program ({' '.join(reason.split())}); a file holds what vta_byoc saved; "
        "save the program again"
    )


def _parts(payload: bytes) -> tuple[Mapping[str, Any], bytes, bytes]:
    parts, at = [], 0
    for _ in range(3):
        (size,) = struct.unpack_from("<Q", payload, at) if at + 8 <= len(payload) else (0,)
        parts.append(payload[at + 8 : at + 8 + size])
        at += 8 + size
    if at != len(payload):
        raise ValueError(f"parts of {at} bytes in {len(payload)}")
    head = json.loads(parts[0])
    if not isinstance(head, dict):
        raise TypeError("the header is no object")
    return head, parts[1], parts[2]


def _program(head: Mapping[str, Any], insns: bytes, image: bytes) -> Program:
    return Program(
        config=VTAConfig.from_dict(head["config"]),
        insns=np.frombuffer(insns, "<u8").astype(np.uint64).reshape(-1, 2),
        image=np.frombuffer(image, np.int8).copy(),
        symbols=tuple(_symbol(entry) for entry in head["symbols"]),
        relocations=tuple(_relocation(*entry) for entry in head["relocations"]),
        layers=tuple(_layer(**entry) for entry in head["layers"]),
        input_bytes=_number(head["input_bytes"]),
        arena_bytes=_number(head["arena_bytes"]),
    )


def _number(value: Any) -> int:
    """A size, index or address."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 48:
        raise ValueError(f"{value!r} is no size or index")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _symbol(entry: Mapping[str, Any]) -> Symbol:
    shape = tuple(_number(n) for n in entry["shape"])
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"{entry['dtype']!r} is no dtype of a symbol")
    symbol = Symbol(
        _text(entry["name"]),
        _text(entry["kind"]),
        shape,
        entry["dtype"],
        _number(entry["align"]),
        _text(entry["scope"]),
        _number(entry["offset"]),
        _text(entry["parent"]),
        _number(entry["inside"]),
    )
    _number(symbol.nbytes)
    return symbol


def _relocation(index: Any, symbol: Any, addend: Any) -> Relocation:
    return Relocation(_number(index), _text(symbol), _number(addend))


def _layer(name: Any, begin: Any, end: Any, output: Any) -> Layer:
    return Layer(_text(name), _number(begin), _number(end), _text(output))
