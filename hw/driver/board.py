"""A board's description: a JSON file that says where its registers are and what machine it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vta_byoc.hw.config import PRESETS, VTAConfig
from vta_byoc.hw.config_values import refuse_unknown
from vta_byoc.hw.driver.dev_mem import DevMem
from vta_byoc.hw.driver.pynq_board import PynqBoard
from vta_byoc.hw.driver.register_driver import RegisterDriver
from vta_byoc.hw.driver.register_map import INTERFACES
from vta_byoc.hw.driver.transport import Transport
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.json_object import read_object, shown

PYNQ = "pynq"
"""The `memory` that is PYNQ's allocator."""
KEYS = ("interface", "base", "machine", "memory", "interrupt", "bitstream")


def open_board(path: str | Path) -> RegisterDriver:
    """The device that a description names.

    Its keys: `interface` ("hls" or "chisel"), `base` (physical address of the registers, a number
    or "0x43C00000"), `machine` (a preset or a configuration file), `memory` (the name of a
    u-dma-buf, or "pynq"), and where there are such things `interrupt` (a UIO device) and
    `bitstream` (a file; only its name counts unless PYNQ loads it).

    Raises:
        VTAError: the file cannot be read, a value is wrong, or the board cannot be opened.
    """
    where = f"board {path}"
    data = read_object(path, f"board description {path}", "name an existing JSON file")
    refuse_unknown(data, set(KEYS), where)
    interface = _one_of(data, "interface", list(INTERFACES), where)
    base = _address(data, where)
    machine = _machine(data, where)
    memory = _text(data, "memory", where)
    bitstream = str(data.get("bitstream", ""))
    registers = INTERFACES[interface]
    try:
        if memory == PYNQ:
            transport: Transport = PynqBoard(bitstream, base, registers.span)
        else:
            design = Path(bitstream).stem
            transport = DevMem(base, registers.span, memory, str(data.get("interrupt", "")), design)
    except (OSError, RuntimeError) as err:
        reason = getattr(err, "strerror", None) or err
        raise VTAError(
            f"{where} cannot be opened ({getattr(err, 'filename', None) or memory}: {reason}); its "
            "registers need root or a group of /dev/mem, its memory the kernel's u-dma-buf; check "
            "both"
        ) from err
    return RegisterDriver(where, registers, machine, transport)


def _text(data: dict[str, Any], key: str, where: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise VTAError(f"{where}: {key} is {shown(value)}; it must be a text; add it")
    return value


def _one_of(data: dict[str, Any], key: str, known: list[str], where: str) -> str:
    value = _text(data, key, where)
    if value not in known:
        raise VTAError(f"{where}: {key} is {value!r}; known: {', '.join(known)}; choose one")
    return value


def _address(data: dict[str, Any], where: str) -> int:
    value = data.get("base")
    try:
        found = int(value, 0) if isinstance(value, str) else int(value or 0)
    except (TypeError, ValueError):
        found = -1
    if found <= 0 or found % 4096:
        raise VTAError(
            f"{where}: base is {shown(value)}; it must be the physical address of the registers, "
            'a multiple of 4096 such as "0x43C00000"; correct it'
        )
    return found


def _machine(data: dict[str, Any], where: str) -> VTAConfig:
    name = _text(data, "machine", where)
    if name in PRESETS:
        return VTAConfig.preset(name)
    return VTAConfig.from_json(name)
