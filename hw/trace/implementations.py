"""Everything that executes programs and writes a commit log: one interface, one table of names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import INDEX_SLOT, STATUS_SLOT, Fault, fault_message
from vta_byoc.hw.isa import ISA, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.reference.interleaving import POLICIES, _chooser, _Machine
from vta_byoc.hw.reference.numpy_model import NumpyModel
from vta_byoc.hw.result import RunResult
from vta_byoc.hw.rtl.build import core_library
from vta_byoc.hw.rtl.simulation import CoreRun, Wave, run_core
from vta_byoc.hw.trace.commit_log import CommitLog, LoggedRun, effect
from vta_byoc.hw.verify.rules import named

Inputs = Mapping[str, np.ndarray]


class Implementation(Protocol):
    """Something that executes programs and says what each instruction wrote."""

    @property
    def name(self) -> str:
        """What `--left` and `--right` of `diff` call it."""

    def run(self, program: Program, inputs: Inputs, until: int | None = None) -> LoggedRun:
        """Run ``program``; with ``until`` that is the last instruction executed.

        A fault is no error here: it is the log's ``stopped``.
        """
        ...


@dataclass(frozen=True)
class SimulatorLog:
    """The functional simulator; ``dot`` as in ``interpreter.build_interpreter``."""

    dot: str = "auto"
    name: str = "sim"

    def run(self, program: Program, inputs: Inputs, until: int | None = None) -> LoggedRun:
        """Run the compiled interpreter with its log."""
        # Here, not above: the other implementations need no TVM.
        from vta_byoc.hw.sim.interpreter_log import run_logged_stream
        from vta_byoc.hw.sim.simulator import fault_error, named_counters

        insns, arena = _start(program, inputs, until)
        end, counters, sram, digests = run_logged_stream(program.config, insns, arena, self.dot)
        fault, index = Fault(int(counters[STATUS_SLOT])), int(counters[INDEX_SLOT])
        executed = np.arange(len(insns)) < (len(insns) if index < 0 or not fault else index)
        stopped = ""
        if fault and not (until is not None and fault == Fault.NO_FINISH):
            stopped = str(fault_error(program.config, insns, counters, program.layers))
        log = _log(self.name, program, inputs, digests, executed, stopped)
        return LoggedRun(log, RunResult(end, named_counters(counters), sram=sram))


@dataclass(frozen=True)
class NumpyLog:
    """The numpy model, or a class derived from it."""

    model: type[NumpyModel] = NumpyModel
    name: str = "numpy"

    def run(self, program: Program, inputs: Inputs, until: int | None = None) -> LoggedRun:
        """Step the model, and digest what each instruction has changed."""
        insns, arena = _start(program, inputs, until)
        model = self.model(program.config, arena)
        digests, executed = np.zeros(len(insns), np.uint64), np.zeros(len(insns), bool)
        stopped = ""
        for index in range(len(insns)):
            try:
                digests[index] = self._step(model, insns, index)
            except VTAError as err:
                where = named(program.config, insns, program.layers, index)
                stopped = f"{where}: {err}"
                break
            executed[index] = True
        if not stopped and until is None and insns[-1, 0] & np.uint64(7) != Opcode.FINISH:
            reason = fault_message(Fault.NO_FINISH, 0, 0)
            stopped = f"program of {len(insns)} instructions: {reason}"
        log = _log(self.name, program, inputs, digests, executed, stopped)
        return LoggedRun(log, model.result())

    def _step(self, model: NumpyModel, insns: np.ndarray, index: int) -> int:
        """Execute one instruction; its digest."""
        insn = model.isa.decode(*insns[index].tolist())
        model.step(insn)
        left = sum(model.tokens.values())
        if insn.opcode == Opcode.FINISH and left:
            raise VTAError(fault_message(Fault.TOKEN_LEFT, left, 0))
        if insn.opcode == Opcode.FINISH and index < len(insns) - 1:
            raise VTAError(fault_message(Fault.AFTER_FINISH, len(insns) - 1 - index, 0))
        return effect(model.config, insn, model.result()).digest


class _LoggingMachine(_Machine):
    """The machine of ``hw/reference/interleaving.py``, noting what each instruction wrote."""

    def __init__(self, program: Program, arena: np.ndarray) -> None:
        super().__init__(program.config, program.insns, arena, program.layers, None)
        self.digests = np.zeros(len(program.insns), np.uint64)
        self.executed = np.zeros(len(program.insns), bool)
        # A FINISH that ends the program too early counts as refused.
        self.ends = np.array([insn.opcode == Opcode.FINISH for insn in self._insns], bool)
        self.until: int | None = None

    def _step(self, index: int) -> None:
        super()._step(index)
        self.digests[index] = effect(self._config, self._insns[index], self.state()).digest
        self.executed[index] = True
        if index == self.until:
            raise _Reached

    def state(self) -> RunResult:
        return self._model.result()


class _Reached(Exception):
    """The instruction that a run should end with was executed."""


@dataclass(frozen=True)
class OrderLog:
    """The numpy model with its queues in the order of a policy of ``hw/reference/interleaving.py``.

    Entries are at the places of their instructions, in whatever order those ran.
    """

    policy: str = "random"
    seed: int = 0

    @property
    def name(self) -> str:
        """`order-`, the policy, and the seed where there is one."""
        return f"order-{self.policy}" + (f"-{self.seed}" if self.seed else "")

    def run(self, program: Program, inputs: Inputs, until: int | None = None) -> LoggedRun:
        """Run in the order that the policy chooses among those that tokens allow."""
        _, arena = _start(program, inputs, until)
        choose, stopped = _chooser(self.policy, self.seed, None), ""
        size = len(program.insns) if until is None else until + 1
        try:
            machine = _LoggingMachine(program, arena)
        except VTAError as err:  # it decodes everything first
            none = np.zeros(size, bool)
            log = _log(self.name, program, inputs, none.astype(np.uint64), none, str(err))
            return LoggedRun(log, NumpyModel(program.config, arena).result())
        machine.until = until
        try:
            machine.run(choose)
        except _Reached:
            pass
        except VTAError as err:
            stopped = str(err)
            machine.executed &= ~machine.ends
        digests, executed = machine.digests[:size], machine.executed[:size]
        log = _log(self.name, program, inputs, digests, executed, stopped)
        return LoggedRun(log, machine.state())


@dataclass(frozen=True)
class CoreLog:
    """The core of `hw/rtl/` in Verilator, its queues side by side.

    An instruction's entry is made of the memories behind its end. With `wave`, a layer and a file,
    the layer is run a second time for its waveforms, in programs that have it.
    """

    wave: tuple[str, str] | None = None
    name: str = "rtl"

    def run(self, program: Program, inputs: Inputs, until: int | None = None) -> LoggedRun:
        """Run on the core, and digest the memories behind the end of each instruction.

        Raises:
            VTAError: the core cannot be built: for the machine, or with the tools that are there.
        """
        core_library(program.config)  # what runs is compared, not what cannot be built
        insns, arena = _start(program, inputs, until)
        config, size, stopped = program.config, len(insns), ""
        isa = ISA.of(config)
        if isa.decode(*insns[-1].tolist()).opcode != Opcode.FINISH:
            finish = np.array([isa.encode(Opcode.FINISH)], np.uint64)
            insns = np.concatenate([insns, finish])
        digests, executed = np.zeros(len(insns), np.uint64), np.zeros(len(insns), bool)
        state = RunResult(arena, {})

        def committed(index: int, dram: np.ndarray, sram: Mapping[str, np.ndarray]) -> None:
            nonlocal state
            state = RunResult(dram, {}, sram=dict(sram))
            insn = isa.decode(*insns[index].tolist())
            digests[index], executed[index] = effect(config, insn, state).digest, True

        try:
            done = run_core(config, insns, arena, committed=committed)
            state = RunResult(done.arena, done.counters, sram=done.sram)
            if until is None and self.wave:
                self._write_wave(program, insns, arena, done)
        except VTAError as err:
            stopped = str(err)
        log = _log(self.name, program, inputs, digests[:size], executed[:size], stopped)
        return LoggedRun(log, state)

    def _write_wave(
        self, program: Program, insns: np.ndarray, arena: np.ndarray, done: CoreRun
    ) -> None:
        """Run again, with waveforms of the cycles of the layer's instructions."""
        assert self.wave is not None
        name, path = self.wave
        for layer in program.layers:
            if layer.name == name:
                spans = done.spans[layer.begin : layer.end]
                wave = Wave(path, int(spans[:, 0].min()), int(spans[:, 1].max()) + 1)
                run_core(program.config, insns, arena, wave=wave)


_ALL: tuple[Implementation, ...] = (
    SimulatorLog(),
    SimulatorLog("portable", "sim-portable"),
    NumpyLog(),
    *(OrderLog(policy) for policy in POLICIES),
    CoreLog(),
)
IMPLEMENTATIONS: Mapping[str, Implementation] = {i.name: i for i in _ALL}
"""Implementations by name."""


def implementation(name: str) -> Implementation:
    """The implementation ``name``."""
    if name not in IMPLEMENTATIONS:
        raise VTAError(
            f"unknown implementation {name!r}; known: {', '.join(IMPLEMENTATIONS)}; choose one"
        )
    return IMPLEMENTATIONS[name]


def _start(program: Program, inputs: Inputs, until: int | None) -> tuple[np.ndarray, np.ndarray]:
    """(instructions to run, arena before the first)."""
    if not len(program.insns):
        raise VTAError(
            "program has 0 instructions; the shortest is FINISH alone; compile the program again"
        )
    names = {s.name for s in program.of_kind("input")}
    if names != set(inputs):
        given, taken = (", ".join(sorted(n)) or "none" for n in (set(inputs), names))
        raise VTAError(f"inputs {given} given; the program takes {taken}; give exactly these")
    insns = program.insns if until is None else program.insns[: until + 1]
    return insns, program.new_arena(dict(inputs))


def _log(
    source: str,
    program: Program,
    inputs: Inputs,
    digests: np.ndarray,
    executed: np.ndarray,
    stopped: str,
) -> CommitLog:
    sha = hashlib.sha256()
    for name in sorted(inputs):
        sha.update(name.encode() + b"\0" + np.ascontiguousarray(inputs[name]).tobytes())
    return CommitLog(source, program, sha.hexdigest(), digests, executed, stopped)
