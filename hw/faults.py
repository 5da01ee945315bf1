"""What a machine refuses while it runs a program: one table for every simulator and message.

A fault has a code, a value and a limit.  The interpreter writes them into the counters tensor
(slots below); :func:`fault_message` turns them into the text of a VTAError.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping

from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.isa import LOADABLE, STORABLE, AluOp, MemType, Opcode

COUNTER_SLOTS = 16
"""Length of the int64 counters tensor: the published counters first, then the slots below."""
STATUS_SLOT = len(COUNTER_NAMES)
INDEX_SLOT = STATUS_SLOT + 1
VALUE_SLOT = STATUS_SLOT + 2
LIMIT_SLOT = STATUS_SLOT + 3

MAX_STEPS = 1 << 26
"""Micro-op executions one instruction may ask for: ten times all of ResNet-18, yet under a second,
so that a corrupt loop count is refused and not waited for."""

TOKEN_PAIRS = ("load->compute", "compute->load", "compute->store", "store->compute")
"""The four token queues.  Queue ``q`` of ``isa.Queue`` pushes to its next as pair ``2 q`` and pops
from it as pair ``2 q + 1``; it pushes to its previous as ``2 q - 1`` and pops as ``2 q - 2``."""


class Fault(enum.IntEnum):
    """Why a program was stopped; 0 means that it was not."""

    NONE = 0
    OPCODE = 1
    RESERVED_BITS = 2
    MEM_TYPE = 3
    STORE_PAD = 4
    SRAM_RANGE = 5
    DRAM_RANGE = 6
    UOP_RANGE = 7
    UOP_RESERVED = 8
    DST_RANGE = 9
    SRC_RANGE = 10
    WGT_RANGE = 11
    STEPS = 12
    ALU_OPCODE = 13
    ALU_RESET = 14
    NO_MUL = 15
    NO_ACC_8BIT = 16
    TOKEN_FLAG = 17
    TOKEN_MISSING = 18
    TOKEN_OVERFLOW = 19
    TOKEN_LEFT = 20
    NO_FINISH = 21
    AFTER_FINISH = 22
    ARENA_SIZE = 23


def _names(types: Iterable[MemType]) -> str:
    """Memory types in the order of their codes."""
    return ", ".join(mem.name for mem in sorted(types))


_CORRUPT = "the stream is corrupt: compile the program again"
_BUG = "the program's compiler must keep inside it"
MESSAGES: Mapping[Fault, tuple[str, str, str]] = {
    Fault.OPCODE: ("opcode {value}", f"known opcodes are 0 to {max(Opcode)}", _CORRUPT),
    Fault.RESERVED_BITS: ("reserved bits {value:#x} are set", "they must be 0", _CORRUPT),
    Fault.MEM_TYPE: (
        "memory type {value}",
        f"LOAD takes {_names(LOADABLE)} and STORE takes {_names(STORABLE)}",
        _CORRUPT,
    ),
    Fault.STORE_PAD: ("padding on a STORE", "STORE takes none", "pad when loading instead"),
    Fault.SRAM_RANGE: ("SRAM element {value}", "the buffer has {limit} elements", _BUG),
    Fault.DRAM_RANGE: ("DRAM byte {value}", "the arena has {limit} bytes", _BUG),
    Fault.UOP_RANGE: ("micro-op {value}", "the range must rise and end by {limit}", _BUG),
    Fault.UOP_RESERVED: ("micro-op reserved bits {value:#x} are set", "they must be 0", _CORRUPT),
    Fault.DST_RANGE: ("destination ACC element {value}", "the buffer has {limit} elements", _BUG),
    Fault.SRC_RANGE: ("source element {value}", "the buffer has {limit} elements", _BUG),
    Fault.WGT_RANGE: ("WGT element {value}", "the buffer has {limit} elements", _BUG),
    Fault.STEPS: ("{value} micro-op steps", "one instruction may take {limit}", "split the loop"),
    Fault.ALU_OPCODE: (
        "ALU opcode {value}",
        f"known ALU opcodes are 0 to {max(AluOp)}",
        _CORRUPT,
    ),
    Fault.ALU_RESET: ("reset bit on an ALU instruction", "only GEMM resets", _CORRUPT),
    Fault.NO_MUL: (
        "ALU MUL",
        "this machine has no multiplier (CAPABILITIES.mul)",
        "compile the program for this configuration",
    ),
    Fault.NO_ACC_8BIT: (
        "LOAD of ACC_8BIT",
        "this machine cannot widen (CAPABILITIES.acc_8bit)",
        "compile the program for this configuration",
    ),
    Fault.TOKEN_FLAG: (
        "a token flag points beside the queues",
        "LOAD has no previous and STORE no next queue",
        _CORRUPT,
    ),
    Fault.TOKEN_MISSING: (
        "pop from {pair} finds no token",
        "a token must be pushed earlier in the stream",
        "the machine would wait for ever: correct the dependencies",
    ),
    Fault.TOKEN_OVERFLOW: (
        "too many tokens outstanding from {pair}",
        "the machine counts to {limit}",
        "pop tokens sooner",
    ),
    Fault.TOKEN_LEFT: (
        "{value} tokens are left at FINISH",
        "there must be none",
        "the program ends before its queues do: correct the dependencies",
    ),
    Fault.NO_FINISH: ("the stream ends without FINISH", "FINISH must come last", _CORRUPT),
    Fault.AFTER_FINISH: (
        "FINISH is followed by {value} instructions",
        "FINISH must come last",
        _CORRUPT,
    ),
    Fault.ARENA_SIZE: (
        "inputs and image are {value} bytes",
        "the arena has {limit} bytes",
        "make the arena at least as large",
    ),
}


def fault_message(fault: Fault, value: int, limit: int) -> str:
    """``<what> <value>; <limit>; <next step>`` of one fault; a token pair comes as ``value``."""
    pair = TOKEN_PAIRS[value % len(TOKEN_PAIRS)]
    return "; ".join(t.format(value=value, limit=limit, pair=pair) for t in MESSAGES[fault])


def static_message(fault: Fault) -> str:
    """The message of ``fault`` without its numbers, for an assertion compiled into a library."""
    return re.sub(r"\{[^}]*\}", "?", "; ".join(MESSAGES[fault]))
