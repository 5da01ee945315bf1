"""`check_device`: a device against the simulator, and what it must leave alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.faults import COUNTER_SLOTS
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.sim.devices import Driver
from vta_byoc.hw.sim.interpreter import NO_REGION, symbol
from vta_byoc.hw.testing.random_safe import random_safe_program
from vta_byoc.testing.cases import Conformance, Mismatch, Suite, compare
from vta_byoc.testing.cases import machines as default_machines

READ_ONLY = ("input", "const", "uop")
"""Kinds of symbols in the arena that no program writes."""


@dataclass(frozen=True)
class _Run:
    """What a device left behind: the arena and the counters."""

    arena: np.ndarray
    counters: np.ndarray


def check_device(
    device: Driver | type[Driver],
    *,
    machines: Sequence[VTAConfig] | None = None,
    seed: int = 0,
    cases: int = 16,
    case: int | None = None,
) -> Conformance:
    """Check a device on random programs that the verifier accepts.

    Every output and counter must be the simulator's, twice in a row; the buffers that a device only
    reads (instructions, inputs, the image of constants) and what the arena holds of them must stay
    as they were. A device that does not compute must leave zeros.

    Args:
        device: as `vta_byoc.extend.register_device` takes it; a class is made without arguments.
        machines: they take turns; those of `vta_byoc.testing.machines` when None.
        seed: equal seeds draw equal cases.
        cases: how many.
        case: the only one to try, as an error names it.

    Raises:
        ConformanceError: the first case that is wrong, with the arguments that repeat it.
    """
    made = device() if isinstance(device, type) else device

    def attempt(rng: np.random.Generator, config: VTAConfig) -> None:
        program, inputs = random_safe_program(config, rng)
        head = simulator.pack_inputs(program, inputs)
        module = made.module(config)
        expected = simulator.run(program, inputs)
        for turn in ("first run", "second run"):
            found = _run(module, program, head, turn)
            if not made.computes:
                _check_nothing(found, turn)
                continue
            for tensor in program.symbols:
                kind = "is only read" if tensor.kind in READ_ONLY else "is an output"
                if tensor.kind in (*READ_ONLY, "output"):
                    left = program.view(found.arena, tensor.name)
                    right = program.view(expected.arena, tensor.name)
                    compare(tensor.name, left, right, f"{turn}, {tensor.name} {kind}")
            counted = simulator.named_counters(found.counters)
            if counted != expected.counters:
                name = next(n for n in counted if counted[n] != expected.counters[n])
                raise Mismatch(
                    f"{turn}: counter {name} is {counted[name]}, must be {expected.counters[name]}"
                )

    what = f'device "{made.name}"'
    return Suite(what, seed, cases, case, machines or default_machines()).run(attempt)


def _run(module: tvm.runtime.Module, program: Program, head: np.ndarray, turn: str) -> _Run:
    """One run of the device's packed function.

    Raises:
        Mismatch: it changed a buffer that it only reads.
    """
    given = {"instructions": program.insns, "inputs": head, "image of constants": program.image}
    buffers = [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in given.values()]
    arena = tvm.runtime.empty((program.arena_bytes,), "int8")
    counters = tvm.runtime.empty((COUNTER_SLOTS,), "int64")
    module[symbol(program.config)](*buffers, NO_REGION, arena, counters)
    for (name, before), buffer in zip(given.items(), buffers, strict=True):
        if not np.array_equal(buffer.numpy(), before):
            raise Mismatch(f"{turn}: it changed the {name}, which a device only reads")
    return _Run(arena.numpy(), counters.numpy())


def _check_nothing(found: _Run, turn: str) -> None:
    """A device that does not compute leaves zeros."""
    if found.arena.any() or found.counters.any():
        raise Mismatch(f"{turn}: it says that it does not compute, and left values other than 0")
