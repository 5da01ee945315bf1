# mypy: disable-error-code="no-untyped-def, no-untyped-call, valid-type, no-redef"
"""Running programs without a board: the Python interface and the drivers behind it.

A driver gives a runtime module whose function :func:`interpreter.symbol` has the signature that
every device shares (see ``hw/sim/interpreter.py``).  "sim" executes the program; "tsim" does
too, and its cycles are those of the timing model; "null" executes nothing, for dry runs: its
outputs are zeros.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.target import Target

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.disassembly import format_instruction
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import (
    COUNTER_SLOTS,
    INDEX_SLOT,
    LIMIT_SLOT,
    STATUS_SLOT,
    VALUE_SLOT,
    Fault,
    fault_message,
)
from vta_byoc.hw.isa import ISA
from vta_byoc.hw.program.program import Layer, Program, Symbol
from vta_byoc.hw.result import RunResult
from vta_byoc.hw.sim.interpreter import build_interpreter, call, symbol
from vta_byoc.hw.sim.target import as_target
from vta_byoc.hw.timing.engine import simulate


# ---------------------------------------------------------------- drivers
class Driver(Protocol):
    """A device: a name and the module that runs programs of one configuration."""

    @property
    def name(self) -> str: ...

    def module(
        self, config: VTAConfig, target: Target | Mapping[str, Any] | None = None
    ) -> tvm.runtime.Module: ...


@dataclass(frozen=True)
class Simulator:
    """The functional simulator; ``dot`` as in :func:`interpreter.build_interpreter`."""

    dot: str = "auto"
    name: str = "sim"

    def module(
        self, config: VTAConfig, target: Target | Mapping[str, Any] | None = None
    ) -> tvm.runtime.Module:
        return build_interpreter(config, target, self.dot)


@dataclass(frozen=True)
class NullDevice:
    """Executes nothing and reports zeros, at the speed of clearing the arena."""

    name: str = "null"

    def module(
        self, config: VTAConfig, target: Target | Mapping[str, Any] | None = None
    ) -> tvm.runtime.Module:
        return _build_null(symbol(config), str(as_target(target)))


DRIVERS: Mapping[str, Driver] = {
    d.name: d for d in (Simulator(), Simulator(name="tsim"), NullDevice())
}


def driver(name: str) -> Driver:
    """The driver ``name``."""
    if name not in DRIVERS:
        raise VTAError(f"unknown device {name!r}; known: {', '.join(DRIVERS)}; choose one")
    return DRIVERS[name]


@T.jit
def _null_run(
    insn_h: T.handle,
    inputs_h: T.handle,
    image_h: T.handle,
    region: T.int64,
    arena_h: T.handle,
    counters_h: T.handle,
    *,
    name: T.constexpr,
):
    T.func_attr({"tirx.noalias": True, "global_symbol": name})
    n = T.int64()
    n_inputs = T.int64()
    n_image = T.int64()
    n_arena = T.int64()
    T.match_buffer(insn_h, (n, 2), "uint64", align=8)
    T.match_buffer(inputs_h, (n_inputs,), "int8", align=1)
    T.match_buffer(image_h, (n_image,), "int8", align=1)
    arena = T.match_buffer(arena_h, (n_arena,), "int8")
    counters = T.match_buffer(counters_h, (COUNTER_SLOTS,), "int64")
    for i in T.serial(n_arena):
        arena[i] = T.int8(0)
    for i in T.serial(COUNTER_SLOTS):
        counters[i] = T.int64(0)


@functools.cache
def _build_null(name: str, target: str) -> tvm.runtime.Module:
    module = tvm.IRModule({name: _null_run.specialize(name=name)})
    return tvm.tirx.build(module, target=Target(target), pipeline="tirx")


# ---------------------------------------------------------------- running
def run(
    program: Program, inputs: Mapping[str, np.ndarray], *, device: str = "sim", dot: str = "auto"
) -> RunResult:
    """Run a program on ``inputs`` by symbol name; outputs come back by symbol name.

    A program that faults raises VTAError with the instruction, its text and the reason.  On
    device "null" the counters are those of the decoded stream; on "tsim" the result has a timing,
    which does not depend on the inputs.
    """
    packed = pack_inputs(program, inputs)
    if driver(device).name == "null":
        arena = np.zeros(program.arena_bytes, np.int8)
        return RunResult(arena, program.counters(), _outputs(program, arena))
    result = _probe(
        program.config,
        program.insns,
        packed,
        program.image,
        program.arena_bytes,
        dot,
        program.layers,
    )
    outputs = _outputs(program, result.arena)
    timing = simulate(program) if device == "tsim" else None
    return RunResult(result.arena, result.counters, outputs, result.sram, timing)


def run_stream(
    config: VTAConfig, insns: np.ndarray, arena: np.ndarray, *, dot: str = "auto"
) -> RunResult:
    """Run a raw stream, (n, 2) uint64, on a copy of a raw arena, int8."""
    insns, arena = np.asarray(insns), np.asarray(arena)
    if insns.ndim != 2 or insns.shape[1] != 2 or insns.dtype != np.uint64:
        raise VTAError(
            f"instructions are {insns.dtype} {insns.shape}; they must be uint64 (n, 2); "
            "encode them with ISA.encode"
        )
    if arena.ndim != 1 or arena.dtype != np.int8:
        raise VTAError(
            f"the arena is {arena.dtype} {arena.shape}; it must be int8 of one dimension; "
            "view its bytes as int8"
        )
    return _probe(config, insns, arena, np.zeros(0, np.int8), arena.size, dot, ())


def _probe(
    config: VTAConfig,
    insns: np.ndarray,
    inputs: np.ndarray,
    image: np.ndarray,
    arena_bytes: int,
    dot: str,
    layers: Sequence[Layer],
) -> RunResult:
    module = build_interpreter(config, dot=dot, probe=True)
    arena, counters, sram = call(config, module, insns, inputs, image, arena_bytes, probe=True)
    if counters[STATUS_SLOT] != Fault.NONE:
        raise fault_error(config, insns, counters, layers)
    return RunResult(arena, named_counters(counters), sram=sram)


def named_counters(counters: np.ndarray) -> dict[str, int]:
    """The published counters of a counters tensor."""
    return dict(zip(COUNTER_NAMES, counters.tolist(), strict=False))


def fault_error(
    config: VTAConfig, insns: np.ndarray, counters: np.ndarray, layers: Sequence[Layer] = ()
) -> VTAError:
    """The fault in a counters tensor as an error that names the instruction and its layer."""
    fault, index = Fault(int(counters[STATUS_SLOT])), int(counters[INDEX_SLOT])
    reason = fault_message(fault, int(counters[VALUE_SLOT]), int(counters[LIMIT_SLOT]))
    if index < 0:
        return VTAError(f"program of {len(insns)} instructions: {reason}")
    inside = [f" of layer {x.name}" for x in layers if x.begin <= index < x.end]
    text = _describe(config, insns[index])
    return VTAError(f"instruction {index}{''.join(inside[:1])} ({text}): {reason}")


def _describe(config: VTAConfig, words: np.ndarray) -> str:
    """Disassembly on one line, or the words where they are no instruction."""
    try:
        text = format_instruction(ISA.of(config).decode(*words.tolist()))
    except VTAError:
        return "{:016x} {:016x}".format(*words.tolist())
    return " ".join(text.split())


# ---------------------------------------------------------------- tensors
def pack_inputs(program: Program, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """The head of the arena, int8, with every input at its symbol's place."""
    symbols = {s.name: s for s in program.of_kind("input")}
    if set(symbols) != set(inputs):
        given, taken = (", ".join(sorted(names)) or "none" for names in (inputs, symbols))
        raise VTAError(f"inputs {given} given; the program takes {taken}; give exactly these")
    head = np.zeros(program.input_bytes, np.int8)
    for name, sym in symbols.items():
        head[sym.offset : sym.offset + sym.nbytes] = _checked(sym, np.asarray(inputs[name]))
    return head


def _checked(sym: Symbol, value: np.ndarray) -> np.ndarray:
    if value.shape != sym.shape or value.dtype != np.dtype(sym.dtype):
        raise VTAError(
            f"input {sym.name!r} is {value.dtype} {value.shape}; the program takes {sym.dtype} "
            f"{sym.shape}; convert it"
        )
    return np.ascontiguousarray(value).reshape(-1).view(np.int8)


def _outputs(program: Program, arena: np.ndarray) -> dict[str, np.ndarray]:
    return {s.name: program.view(arena, s.name).copy() for s in program.of_kind("output")}
