"""What the interpreter emits to refuse an instruction, to move tokens, and to report a fault."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from vta_byoc.hw.faults import LIMIT_SLOT, STATUS_SLOT, VALUE_SLOT, Fault, static_message
from vta_byoc.hw.sim.decoding import i64, variable
from vta_byoc.hw.sim.dot import Expr

FAULT_SLOTS = (STATUS_SLOT, VALUE_SLOT, LIMIT_SLOT)
"""The slots of the counters that hold a fault, in the order of the state's `fault`."""


def refuse(s: Any, condition: Expr, fault: Fault, value: Expr = 0, limit: Expr = 0) -> None:
    """Emit: if ``condition`` holds and nothing was refused before, record ``fault``."""
    with T.If(T.And(s.fault[0] == 0, condition)), T.Then():
        for slot, entry in enumerate((int(fault), value, limit)):
            T.buffer_store(s.fault, i64(entry), [slot])


def _move_token(s: Any, pair: Expr, exists: Expr, fault: Fault, bound: int, change: int) -> None:
    refuse(s, T.Not(exists), Fault.TOKEN_FLAG)
    which = variable(T.Select(exists, pair, i64(0)))
    refuse(s, s.tokens[which] == bound, fault, which, bound)
    T.buffer_store(s.tokens, s.tokens[which] + change, [which])


def pop(s: Any, flag: Expr, pair: Expr, exists: Expr) -> None:
    """Emit: take a token of ``pair`` (an index of ``faults.TOKEN_PAIRS``) if ``flag`` is set."""
    with T.If(flag == 1), T.Then():
        _move_token(s, pair, exists, Fault.TOKEN_MISSING, 0, -1)


def push(s: Any, flag: Expr, pair: Expr, exists: Expr, limit: int) -> None:
    """Emit: add a token to ``pair`` if ``flag`` is set; at most ``limit`` are outstanding."""
    with T.If(flag == 1), T.Then():
        _move_token(s, pair, exists, Fault.TOKEN_OVERFLOW, limit, 1)


def record(s: Any) -> None:
    """Emit the fault, or that there is none, into the counters."""
    for i, slot in enumerate(FAULT_SLOTS):
        T.buffer_store(s.counters, s.fault[i], [slot])


def _stopped(fault: Fault) -> str:
    return f"VTA stopped: {static_message(fault)} (hw.simulator.run names the instruction)"


def assert_no_fault(counters: Expr) -> None:
    """Emit one assertion a fault, so that a caller without Python code still reads the reason."""
    for fault in Fault:
        if fault != Fault.NONE:
            with T.Assert(counters[STATUS_SLOT] != int(fault), _stopped(fault)):
                pass
