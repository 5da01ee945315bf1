"""What a run of a decoder's programs costs: cycles of the timing model, bytes that it moves."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from vta_byoc.decoding.memory import PREFILL, STEP, placed
from vta_byoc.decoding.programs import DecoderPrograms
from vta_byoc.hw.counters import dram_bytes
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate

NEEDED = ("const", "state", "input", "output")
"""Kinds of symbols whose bytes no schedule can leave out: weights, caches, tokens and results."""


@dataclass(frozen=True)
class RunCost:
    """One run of a program.

    Attributes:
        cycles: by the timing model; they do not depend on the tokens or on the window.
        milliseconds: the same at the machine's clock.
        moved_bytes: between DRAM and the chip, micro-ops and instructions included.
        needed_bytes: of weights, caches, tokens and results, each once.
        port_cycles: what the memory port needs for `needed_bytes`: no schedule is faster.
    """

    cycles: int
    milliseconds: float
    moved_bytes: int
    needed_bytes: int
    port_cycles: int

    @property
    def port_share(self) -> float:
        """Of the cycles, those that the port needs at least: 1 is the port's bound."""
        return self.port_cycles / self.cycles

    def to_json(self) -> dict[str, int | float]:
        """The values by name."""
        return {**dataclasses.asdict(self), "port_share": self.port_share}


def run_cost(program: Program) -> RunCost:
    """What one run of ``program`` costs."""
    found = simulate(program)
    needed = sum(symbol.nbytes for kind in NEEDED for symbol in program.of_kind(kind))
    return RunCost(
        found.cycles,
        found.milliseconds,
        dram_bytes(program.counters()) + program.insns.nbytes,
        needed,
        -(-needed // program.config.timing.port_bytes),
    )


def run_costs(programs: DecoderPrograms) -> dict[str, RunCost]:
    """What a run costs of each of a decoder's programs, by name: of a prompt, of a token."""
    halves = {PREFILL: programs.prefill, STEP: programs.step}
    return {name: run_cost(half.program) for name, half in halves.items()}


def memory_bytes(programs: DecoderPrograms) -> dict[str, int]:
    """Bytes of the device's memory: constants of both programs, caches, and all of the arena."""
    memory, step = placed(programs), programs.step.program
    caches = sum(symbol.nbytes for symbol in step.of_kind("state"))
    return {"constants": memory.constants, "caches": caches, "arena": memory.nbytes}
