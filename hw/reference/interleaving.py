"""Order-adversarial simulation: the three queues run in any order that the tokens allow.

A correct program gives the same bytes whatever the order.  Each policy is one adversary; the
semantics of the instructions are those of ``hw/reference/numpy_model.py``.  A program that
deadlocks stops with the instructions that wait; with the sanitizer (``hw/reference/sanitizer.py``)
so does one that leaves its memory or reads what nothing wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import TOKEN_PAIRS, Fault, fault_message
from vta_byoc.hw.isa import ISA, Instruction, Opcode, Queue
from vta_byoc.hw.program.program import Layer, Program
from vta_byoc.hw.reference.numpy_model import NumpyModel
from vta_byoc.hw.reference.sanitizer import Sanitizer
from vta_byoc.hw.result import RunResult
from vta_byoc.hw.verify.rules import named
from vta_byoc.hw.verify.tokens import PAIRS, Pair, bad_flags, pairs_of, waiting

Heads = Mapping[Queue, int]
_RANKS: Mapping[str, Mapping[Queue, int]] = {
    "program": {},
    "load-early": {Queue.LOAD: -1},
    "load-late": {Queue.LOAD: 1},
    "compute-early": {Queue.COMPUTE: -1},
    "compute-late": {Queue.COMPUTE: 1},
    "store-early": {Queue.STORE: -1},
    "store-late": {Queue.STORE: 1},
}
POLICIES = (*_RANKS, "random")
"""Which of the instructions that could run does: the first in the stream; those of one queue as
early or as late as the tokens allow; any, in random bursts."""


def run_interleaved(
    program: Program,
    inputs: Mapping[str, np.ndarray],
    policy: str = "program",
    seed: int = 0,
    *,
    hold: int | None = None,
    sanitize: bool = True,
) -> RunResult:
    """Run a program in the order of ``policy``.

    Args:
        program: what to run.
        inputs: arrays by symbol name.
        policy: one of :data:`POLICIES`.
        seed: of policy "random".
        hold: an instruction that waits, with all after it in its queue, until nothing else can run.
        sanitize: check bounds against SRAM and symbols, and refuse reads of undefined memory.

    Raises:
        VTAError: with the instruction and the reason.
    """
    arena = program.new_arena(dict(inputs))
    memory = Sanitizer(program.config, arena.size, program) if sanitize else None
    machine = _Machine(program.config, program.insns, arena, program.layers, memory)
    result = machine.run(_chooser(policy, seed, hold))
    outputs = {s.name: program.view(result.arena, s.name).copy() for s in program.of_kind("output")}
    return RunResult(result.arena, result.counters, outputs, result.sram)


def run_stream_interleaved(
    config: VTAConfig,
    insns: np.ndarray,
    arena: np.ndarray,
    policy: str = "program",
    seed: int = 0,
    *,
    hold: int | None = None,
    sanitize: bool = False,
) -> RunResult:
    """Run a raw stream, (n, 2) uint64, on a copy of a raw arena, int8.

    The order is that of :func:`run_interleaved`.
    """
    memory = Sanitizer(config, arena.size, None) if sanitize else None
    return _Machine(config, insns, arena, (), memory).run(_chooser(policy, seed, hold))


# ---------------------------------------------------------------- policies
Chooser = Callable[[Heads], Queue]


def _chooser(policy: str, seed: int, hold: int | None) -> Chooser:
    if policy not in POLICIES:
        raise VTAError(f"unknown policy {policy!r}; known: {', '.join(POLICIES)}; choose one")
    choose = _random(seed) if policy == "random" else _ranked(_RANKS[policy])

    def held(ready: Heads) -> Queue:
        free = {q: i for q, i in ready.items() if i != hold}
        return choose(free or ready)

    return held


def _ranked(ranks: Mapping[Queue, int]) -> Chooser:
    return lambda ready: min(ready, key=lambda q: (ranks.get(q, 0), ready[q]))


def _random(seed: int) -> Chooser:
    """A random favourite order of the queues, drawn anew every few instructions."""
    rng = np.random.default_rng(seed)
    favourites = rng.permutation(len(Queue))

    def choose(ready: Heads) -> Queue:
        nonlocal favourites
        if rng.random() < 0.3:
            favourites = rng.permutation(len(Queue))
        return min(ready, key=lambda q: favourites[q])

    return choose


# ---------------------------------------------------------------- the machine
class _Machine:
    """Three queues of decoded instructions in front of the numpy model."""

    def __init__(
        self,
        config: VTAConfig,
        insns: np.ndarray,
        arena: np.ndarray,
        layers: Sequence[Layer],
        memory: Sanitizer | None,
    ) -> None:
        self._config = config
        self._words = insns
        self._layers = layers
        self._memory = memory
        self._model = NumpyModel(config, arena)
        self._insns = [self._decode(i) for i in range(len(insns))]
        self._lines: dict[Queue, list[int]] = {q: [] for q in Queue}
        for index, insn in enumerate(self._insns):
            self._lines[insn.queue].append(index)
        self._next = dict.fromkeys(Queue, 0)
        self._tokens = dict.fromkeys(PAIRS, 0)

    def _decode(self, index: int) -> Instruction:
        try:
            insn = ISA.of(self._config).decode(*self._words[index].tolist())
        except VTAError as err:
            raise self._error(index, str(err)) from err
        if bad_flags(insn):
            raise self._error(index, fault_message(Fault.TOKEN_FLAG, 0, 0))
        return insn

    def run(self, choose: Chooser) -> RunResult:
        """To FINISH, or to the first thing that is wrong."""
        while heads := self._heads():
            lacking = {q: self._lacking(i) for q, i in heads.items()}
            ready = {q: i for q, i in heads.items() if not lacking[q]}
            if not ready:
                stuck = {q: (i, lacking[q]) for q, i in heads.items()}
                raise VTAError(f"deadlock: {waiting(stuck, self._named)}")
            index = ready[choose(ready)]
            self._step(index)
            if self._insns[index].opcode == Opcode.FINISH:
                self._check_end(index)
                return self._model.result()
        raise VTAError(
            f"program of {len(self._insns)} instructions: {fault_message(Fault.NO_FINISH, 0, 0)}"
        )

    def _heads(self) -> dict[Queue, int]:
        """The next instruction of every queue that is not done."""
        at = self._next
        return {q: line[at[q]] for q, line in self._lines.items() if at[q] < len(line)}

    def _lacking(self, index: int) -> list[Pair]:
        """The pairs that have no token for instruction ``index``."""
        return [p for p in pairs_of(self._insns[index], "pop") if not self._tokens[p]]

    def _step(self, index: int) -> None:
        insn = self._insns[index]
        for pair in pairs_of(insn, "pop"):
            self._tokens[pair] -= 1
        try:
            if self._memory is not None:
                self._memory.before(index, insn, self._model)
            self._model.execute(insn)
        except VTAError as err:
            raise self._error(index, str(err)) from err
        for pair in pairs_of(insn, "push"):
            self._push(index, pair)
        self._next[insn.queue] += 1

    def _push(self, index: int, pair: Pair) -> None:
        limit = self._config.capabilities.max_tokens
        if self._tokens[pair] == limit:
            raise self._error(index, fault_message(Fault.TOKEN_OVERFLOW, PAIRS.index(pair), limit))
        self._tokens[pair] += 1

    def _check_end(self, index: int) -> None:
        """FINISH ends the program: nothing may be left to do."""
        for queue, head in self._heads().items():
            if queue == Queue.COMPUTE:
                after = len(self._insns) - 1 - index
                raise self._error(index, fault_message(Fault.AFTER_FINISH, after, 0))
            raise self._error(
                index,
                f"FINISH ends the program before {self._named(head)}; FINISH must wait for every "
                "queue; push a token there and pop it before FINISH",
            )
        for number, pair in enumerate(PAIRS):
            if self._tokens[pair]:
                reason = fault_message(Fault.TOKEN_LEFT, self._tokens[pair], 0)
                raise self._error(index, f"{TOKEN_PAIRS[number]}: {reason}")

    # ---------------------------------------------------------------- messages
    def _named(self, index: int) -> str:
        return named(self._config, self._words, self._layers, index)

    def _error(self, index: int, reason: str) -> VTAError:
        return VTAError(f"{self._named(index)}: {reason}")
