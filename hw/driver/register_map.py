"""The registers of the published boards, by interface.

HLS: four cores with a page of 4 KiB each, as Vivado HLS lays out AXI-Lite (control at 0x00: bit 0
start, bit 7 start again by itself). Chisel: one core, one block of registers; addresses of 32 bits
(DE10-Nano, and PYNQ with the Chisel core). Offsets are bytes from the first register of the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

AP_START = 0x1
AP_AUTO_RESTART = 0x81
HLS_DONE = 0x1
CHISEL_LAUNCH = 0x1
CHISEL_FINISH = 0x2
BUS_DEAD = 0xFFFFFFFF
"""What a bus reads where nothing answers."""
_PAGE = 0x1000
"""Bytes of registers of one HLS core."""


@dataclass(frozen=True)
class RegisterMap:
    """Where a device has its registers, and what starts it.

    Attributes:
        interface: its name.
        registers: byte offset by name; the names are the same for every interface: `count`
            (instructions), the base addresses `insn`, `uop`, `inp`, `wgt`, `acc`, `out`, and
            `done`. `cycles` is there where the device counts them.
        start: (offset, value) of the writes that start a run, in order.
        stop: (offset, value) of the writes that stop whatever runs.
        done_mask: the bit of `done` that says that the device has finished.
        span: bytes that the registers take.
    """

    interface: str
    registers: Mapping[str, int]
    start: tuple[tuple[int, int], ...]
    stop: tuple[tuple[int, int], ...]
    done_mask: int
    span: int

    def __getitem__(self, name: str) -> int:
        return self.registers[name]


_FETCH, _LOAD, _COMPUTE, _STORE = (core * _PAGE for core in range(4))
HLS = RegisterMap(
    "hls",
    {
        "count": _FETCH + 0x10,
        "insn": _FETCH + 0x18,
        "inp": _LOAD + 0x10,
        "wgt": _LOAD + 0x18,
        "done": _COMPUTE + 0x18,
        "uop": _COMPUTE + 0x20,
        "acc": _COMPUTE + 0x28,
        "out": _STORE + 0x10,
    },
    start=(
        (_FETCH, AP_START),
        (_LOAD, AP_AUTO_RESTART),
        (_COMPUTE, AP_AUTO_RESTART),
        (_STORE, AP_AUTO_RESTART),
    ),
    stop=((_FETCH, 0), (_LOAD, 0), (_COMPUTE, 0), (_STORE, 0)),
    done_mask=HLS_DONE,
    span=4 * _PAGE,
)
CHISEL = RegisterMap(
    "chisel",
    {
        "done": 0x00,
        "cycles": 0x04,
        "count": 0x08,
        "insn": 0x0C,
        "uop": 0x10,
        "inp": 0x14,
        "wgt": 0x18,
        "acc": 0x1C,
        "out": 0x20,
    },
    start=((0x00, CHISEL_LAUNCH),),
    stop=((0x00, 0),),
    done_mask=CHISEL_FINISH,
    span=_PAGE,
)
INTERFACES: Mapping[str, RegisterMap] = {each.interface: each for each in (HLS, CHISEL)}
"""Register maps by the name of the interface."""
BASES = ("uop", "inp", "wgt", "acc", "out")
"""Base addresses that stay 0: instructions hold whole addresses, since one of the cores joins base
and address with OR."""
