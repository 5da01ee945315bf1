"""Running programs without a board, on one of the devices of ``hw/sim/devices.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tvm

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.disassembly import format_instruction
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import (
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
from vta_byoc.hw.rtl.simulation import run_core
from vta_byoc.hw.sim.devices import DRIVERS, Driver, driver
from vta_byoc.hw.sim.interpreter import build_interpreter, call, call_with
from vta_byoc.hw.timing.engine import simulate


# ---------------------------------------------------------------- running
def run(
    program: Program, inputs: Mapping[str, np.ndarray], *, device: str = "sim", dot: str = "auto"
) -> RunResult:
    """Run a program on ``inputs`` by symbol name; outputs come back by symbol name.

    A program that faults raises VTAError with the instruction, its text and the reason.  On
    device "null" the counters are those of the decoded stream; on "tsim" the result has a timing,
    which does not depend on the inputs; on "rtl" it has the cycles that the core took.
    """
    if device == "rtl":
        return _run_core(program, inputs)
    packed = pack_inputs(program, inputs)
    kind = driver(device)
    if not kind.computes:
        arena = np.zeros(program.arena_bytes, np.int8)
        return RunResult(arena, program.counters(), _outputs(program, arena))
    if not DRIVERS.is_built_in(device):
        return _run_own(program, kind, packed)
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
    timing = simulate(program) if kind.timed else None
    return RunResult(result.arena, result.counters, outputs, result.sram, timing)


def _run_core(program: Program, inputs: Mapping[str, np.ndarray]) -> RunResult:
    """Run on the core: with its memories and cycles, which the device's module does not give."""
    packed = pack_inputs(program, inputs)
    arena = np.zeros(program.arena_bytes, np.int8)
    arena[: packed.size] = packed
    arena[packed.size : packed.size + program.image.size] = program.image
    done = run_core(program.config, program.insns, arena)
    outputs = _outputs(program, done.arena)
    return RunResult(done.arena, done.counters, outputs, done.sram, cycles=done.cycles)


READ_ONLY = ("instructions", "inputs", "constants")
"""What a device's function gets to read, in the order of its first arguments."""


def changed_buffer(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> str | None:
    """Which of READ_ONLY differs behind a run of a device; None where all are as they were."""
    pairs = zip(READ_ONLY, before, after, strict=True)
    return next((name for name, old, new in pairs if not np.array_equal(old, new)), None)


def _run_own(program: Program, kind: Driver, packed: np.ndarray) -> RunResult:
    """Run on the device of a plug-in, which must leave alone what it reads.

    Raises:
        VTAError: the device changed one of READ_ONLY, or reports a fault.
    """
    config = program.config
    given = [tvm.runtime.tensor(np.ascontiguousarray(x)) for x in _read(program, packed)]
    arena, counters = call_with(config, kind.module(config), given, program.arena_bytes)
    changed = changed_buffer(_read(program, packed), [x.numpy() for x in given])
    if changed is not None:
        raise VTAError(
            f'device "{kind.name}" of {DRIVERS.by(kind.name)} changed the {changed} of a program; '
            "it only reads them; write to the arena and the counters alone"
        )
    if counters[STATUS_SLOT] != Fault.NONE:
        raise fault_error(config, program.insns, counters, program.layers)
    timing = simulate(program) if kind.timed else None
    return RunResult(arena, named_counters(counters), _outputs(program, arena), timing=timing)


def _read(program: Program, packed: np.ndarray) -> tuple[np.ndarray, ...]:
    return program.insns, packed, program.image


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
