"""Does the verifier catch broken programs, and leave correct ones alone?

Correct programs (random ones and compiled ones) are broken one step at a time: tokens deleted,
added and moved, bases, loops, factors and pads changed.  The truth about a mutant comes from
running it strictly in many legal orders: it is harmful when one of them deadlocks, leaves its
memory or reads what nothing wrote, or when two of them leave different bytes.  The verifier must
flag every harmful mutant and no original.  A mutant that is safe to run but computes something else
is the divergence finder's: it must name the instruction that was changed.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tvm import tirx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from vta_byoc.codegen import ProgramBuilder
from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, Instruction, Opcode, Queue
from vta_byoc.hw.program.program import Program, Relocation
from vta_byoc.hw.reference.interleaving import POLICIES, run_interleaved
from vta_byoc.hw.testing.random_safe import random_safe_program
from vta_byoc.hw.trace.commit_log import first_difference
from vta_byoc.hw.trace.implementations import NumpyLog
from vta_byoc.hw.verify.verifier import verify
from vta_byoc.strategies.base import LayerSchedule, LayerWork
from vta_byoc.strategies.conv.conv2d import CONV2D
from vta_byoc.strategies.conv.grouping import groupings
from vta_byoc.strategies.conv.tile_space import conv_space
from vta_byoc.strategies.elementwise.elementwise import ELEMENTWISE
from vta_byoc.strategies.te.kernel import Kernel
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import (
    Conv2dWorkload,
    ElementwiseWorkload,
    Epilogue,
    Prologue,
    Step,
)

PRESETS = ("sim", "tophub_4x8", "2x16", "1x32")
RANDOM_RUNS = 3
COMPILED_SHARE = 5
"""One mutant in this many is of a compiled program."""
MUTANTS_OF_COMPILED = 20
Inputs = dict[str, np.ndarray]
Rng = np.random.Generator


# ---------------------------------------------------------------- correct programs
def compiled_program(rng: Rng) -> tuple[Program, Inputs]:
    """Two small convolutions and an addition of their results, with random tiles."""
    cfg = VTAConfig.preset(PRESETS[rng.integers(len(PRESETS))])
    channels, size = int(rng.integers(1, 2 * cfg.block + 1)), int(rng.integers(2, 6))
    builder = ProgramBuilder(cfg)
    shape = (1, blocks(channels, cfg.block), size, size, cfg.batch, cfg.block)
    builder.symbol("x", "input", shape, "int8")
    for source, name in (("x", "a"), ("a", "b")):
        builder.symbol(name, "temp", shape, "int8")
        kernel = int(rng.choice([1, 3]))
        work = Conv2dWorkload(
            1,
            channels,
            channels,
            size,
            size,
            (kernel, kernel),
            padding=(kernel // 2,) * 4,
            epilogue=Epilogue((Step("add", "channel"), *_rescale(9))),
        )
        given = {
            "weight": rng.integers(-128, 128, (channels, channels, kernel, kernel)).astype("int8"),
            "operand0": rng.integers(-5000, 5000, channels).astype("int32"),
        }
        schedule = _conv(rng, work, cfg)
        func = CONV2D.scheduled(schedule, cfg)
        _layer(builder, name, [source], CONV2D.constants(schedule, given, cfg), func)
    builder.symbol("y", "output", shape, "int8")
    sides = (Prologue(0), Prologue(1, (Step("shl", 1),)))
    end = Epilogue((Step("add", 1), *_rescale(1)))
    total = ElementwiseWorkload(1, channels, size, size, sides, "add", end)
    (chosen,) = ELEMENTWISE.choose(LayerWork(total), cfg).kernels
    kernel = Kernel(dataclasses.replace(chosen.choice, slots=_slots(rng)))
    schedule = LayerSchedule(total, kernels=(kernel,))
    func = ELEMENTWISE.scheduled(schedule, cfg)
    constants = ELEMENTWISE.constants(schedule, {}, cfg)
    _layer(builder, "y", ["a", "b"], constants, func)
    return builder.finish(), {"x": rng.integers(-128, 128, shape).astype(np.int8)}


def _rescale(shift: int) -> tuple[Step, ...]:
    return Step("shr", shift), Step("max", -128), Step("min", 127)


def _layer(
    builder: ProgramBuilder,
    name: str,
    operands: list[str],
    constants: list[np.ndarray],
    func: tirx.PrimFunc,
) -> None:
    """A layer ``name`` that stores the symbol of its name."""
    named = [builder.constant(f"{name}_{i}", value) for i, value in enumerate(constants)]
    builder.layer(name, func, [*operands, *named, name])


def _conv(rng: Rng, work: Conv2dWorkload, cfg: VTAConfig) -> LayerSchedule[Conv2dWorkload]:
    """A convolution with a random tile; every tile of these sizes fits SRAM."""
    (grouping,) = groupings(work, cfg)
    space = conv_space(work, grouping, cfg)
    tile = {name: int(rng.integers(1, axis[-1] + 1)) for name, axis in space.axes.items()}
    tile |= dict(zip(("kh", "kw"), work.kernel, strict=True))
    choice = Choice(tile, str(rng.choice(list(space.variants))), _slots(rng))
    return LayerSchedule(work, kernels=(Kernel(choice, grouping),))


def _slots(rng: Rng) -> tuple[int, int, int]:
    one, two, three = (int(s) for s in rng.integers(1, 3, 3))
    return one, two, three


def programs(count: int, rng: Rng) -> Iterator[tuple[Program, Inputs, int]]:
    """Correct programs, their inputs, and how many mutants to make of each: ``count`` in all."""
    compiled = count // COMPILED_SHARE
    for number in range(count - compiled):
        cfg = VTAConfig.preset(PRESETS[number % len(PRESETS)])
        yield *random_safe_program(cfg, rng, int(rng.integers(8, 33))), 1
    while compiled > 0:
        share = min(compiled, MUTANTS_OF_COMPILED)
        yield *compiled_program(rng), share
        compiled -= share


# ---------------------------------------------------------------- mutations
@dataclass(frozen=True)
class Mutant:
    """A program with one change at instruction ``index``."""

    program: Program
    kind: str
    index: int
    change: str


class _Editor:
    """Changes fields of a copy of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._isa = ISA.of(program.config)
        self.insns = [self._isa.decode(*words) for words in program.insns.tolist()]
        self.relocations = list(program.relocations)

    def set(self, index: int, **values: int) -> None:
        """Give fields of instruction ``index`` new values; VTAError where they do not fit."""
        insn = self.insns[index]
        self.insns[index] = Instruction(insn.opcode, {**insn.fields, **values})

    def done(self) -> Program:
        words = []
        for insn in self.insns:
            fields = {k: v for k, v in insn.fields.items() if k != "opcode"}
            words.append(self._isa.encode(insn.opcode, **fields))
        return dataclasses.replace(
            self._program,
            insns=np.array(words, np.uint64).reshape(-1, 2),
            relocations=tuple(self.relocations),
        )


def _flags(insn: Instruction) -> list[str]:
    """The token flags that the queue of ``insn`` has."""
    sides = {Queue.LOAD: ("next",), Queue.COMPUTE: ("prev", "next"), Queue.STORE: ("prev",)}
    return [f"{action}_{side}" for action in ("pop", "push") for side in sides[insn.queue]]


def _pick(rng: Rng, items: list) -> object:
    if not items:
        raise VTAError("nothing to change")
    return items[rng.integers(len(items))]


def _tokens(edit: _Editor, value: int) -> list[tuple[int, str]]:
    """(instruction, flag) of every token flag that is set (``value`` 1) or clear (0)."""
    return [(i, f) for i, x in enumerate(edit.insns) for f in _flags(x) if x[f] == value]


def delete_token(edit: _Editor, rng: Rng) -> tuple[int, str]:
    index, flag = _pick(rng, _tokens(edit, 1))
    edit.set(index, **{flag: 0})
    return index, flag


def add_token(edit: _Editor, rng: Rng) -> tuple[int, str]:
    index, flag = _pick(rng, _tokens(edit, 0))
    edit.set(index, **{flag: 1})
    return index, flag


def move_token(edit: _Editor, rng: Rng) -> tuple[int, str]:
    """To another instruction of the same queue, most often a near one."""
    index, flag = _pick(rng, _tokens(edit, 1))
    queue = edit.insns[index].queue
    line = [i for i, x in enumerate(edit.insns) if x.queue == queue and not x[flag]]
    line.sort(key=lambda i: abs(i - index))
    other = _pick(rng, line[: 4 if rng.random() < 0.7 else None])
    edit.set(index, **{flag: 0})
    edit.set(other, **{flag: 1})
    return other, f"{flag} from {index}"


def _edges(edit: _Editor) -> list[tuple[int, str, int, str]]:
    """(pushing instruction, its flag, popping instruction, its flag) of every token."""
    found = []
    for one, two in itertools.permutations(Queue, 2):
        if abs(one - two) == 1:
            push, pop = ("push_next", "pop_prev") if two > one else ("push_prev", "pop_next")
            pushes = [i for i, x in enumerate(edit.insns) if x.queue == one and x[push]]
            pops = [i for i, x in enumerate(edit.insns) if x.queue == two and x[pop]]
            found += [(a, push, b, pop) for a, b in zip(pushes, pops, strict=False)]
    return found


def delete_edge(edit: _Editor, rng: Rng) -> tuple[int, str]:
    """Both ends of a token: the counts still match, so nothing deadlocks."""
    push, push_flag, pop, pop_flag = _pick(rng, _edges(edit))
    edit.set(push, **{push_flag: 0})
    edit.set(pop, **{pop_flag: 0})
    return pop, f"edge from {push}"


def move_edge(edit: _Editor, rng: Rng) -> tuple[int, str]:
    """The push to an earlier instruction of its queue, or the pop to a later one."""
    push, push_flag, pop, pop_flag = _pick(rng, _edges(edit))
    old, flag = (push, push_flag) if rng.random() < 0.5 else (pop, pop_flag)
    later = flag.startswith("pop")
    queue = edit.insns[old].queue
    line = [
        i
        for i, x in enumerate(edit.insns)
        if x.queue == queue and not x[flag] and (i > old) == later and x.opcode != Opcode.FINISH
    ]
    other = _pick(rng, line[:3] if later else line[-3:])
    edit.set(old, **{flag: 0})
    edit.set(other, **{flag: 1})
    return other, f"{flag} from {old}"


def _transfers(edit: _Editor) -> list[int]:
    memory = (Opcode.LOAD, Opcode.STORE)
    return [i for i, x in enumerate(edit.insns) if x.opcode in memory and x["x_size"] * x["y_size"]]


def _computes(edit: _Editor) -> list[int]:
    return [i for i, x in enumerate(edit.insns) if x.opcode in (Opcode.GEMM, Opcode.ALU)]


def _step(rng: Rng) -> int:
    """A change that is small more often than not."""
    size = int(rng.integers(1, 4)) if rng.random() < 0.7 else int(rng.integers(1, 200))
    return size if rng.random() < 0.5 else -size


def _nudge(edit: _Editor, rng: Rng, indices: list[int], names: list[str]) -> tuple[int, str]:
    """Change one field of one instruction."""
    index = _pick(rng, indices)
    name = _pick(rng, [n for n in names if n in edit.insns[index].fields])
    change = _step(rng)
    edit.set(index, **{name: edit.insns[index][name] + change})
    return index, f"{name} {change:+d}"


def sram_base(edit: _Editor, rng: Rng) -> tuple[int, str]:
    return _nudge(edit, rng, _transfers(edit), ["sram_base"])


def dram_base(edit: _Editor, rng: Rng) -> tuple[int, str]:
    """In the relocation too: the address is wrong, the file is consistent."""
    index, change = _nudge(edit, rng, _transfers(edit), ["dram_base"])
    moved = int(change.split()[1])
    edit.relocations = [
        Relocation(r.index, r.symbol, r.addend + moved) if r.index == index else r
        for r in edit.relocations
    ]
    return index, change


def loop(edit: _Editor, rng: Rng) -> tuple[int, str]:
    sizes = ["y_size", "x_size", "x_stride"]
    if rng.random() < 0.5:
        return _nudge(edit, rng, _transfers(edit), sizes)
    return _nudge(edit, rng, _computes(edit), ["uop_bgn", "uop_end", "iter_out", "iter_in"])


def factor(edit: _Editor, rng: Rng) -> tuple[int, str]:
    names = [f"{o}_factor_{a}" for o in ("dst", "src", "wgt") for a in ("out", "in")]
    return _nudge(edit, rng, _computes(edit), names)


def pad(edit: _Editor, rng: Rng) -> tuple[int, str]:
    names = [f"{a}_pad_{k}" for a in "yx" for k in "01"]
    loads = [i for i in _transfers(edit) if edit.insns[i].opcode == Opcode.LOAD]
    return _nudge(edit, rng, loads, names)


MUTATIONS: Mapping[str, Callable[[_Editor, Rng], tuple[int, str]]] = {
    f.__name__: f
    for f in (
        delete_token,
        add_token,
        move_token,
        delete_edge,
        move_edge,
        sram_base,
        dram_base,
        loop,
        factor,
        pad,
    )
}


def mutate(program: Program, kind: str, rng: Rng) -> Mutant:
    """``program`` with one change of ``kind``; tries until the change can be encoded."""
    for _ in range(100):
        edit = _Editor(program)
        try:
            index, change = MUTATIONS[kind](edit, rng)
            return Mutant(edit.done(), kind, index, change)
        except VTAError:
            continue
    return mutate(program, str(rng.choice([*MUTATIONS])), rng)


# ---------------------------------------------------------------- the truth
def outcome(program: Program, inputs: Inputs, policy: str, seed: int, hold: int | None) -> bytes:
    """All bytes of DRAM and SRAM after a strict run."""
    result = run_interleaved(program, inputs, policy, seed, hold=hold)
    return b"".join([result.arena.tobytes(), *(m.tobytes() for m in result.sram.values())])


def harm(program: Program, inputs: Inputs, index: int | None = None) -> tuple[str, bytes]:
    """Why a program must not run (empty if it may), and what it leaves behind if it may."""
    runs: list[tuple[str, int, int | None]] = [(p, 0, None) for p in POLICIES if p != "random"]
    runs += [("random", seed, None) for seed in range(RANDOM_RUNS)]
    runs += [("program", 0, index)] if index is not None else []
    first = b""
    for policy, seed, hold in runs:
        try:
            left = outcome(program, inputs, policy, seed, hold)
        except VTAError as err:
            return f"{policy} {seed}: {err}", b""
        if first and left != first:
            return f"{policy} {seed}: other bytes than in order {runs[0][0]}", b""
        first = left
    return "", first


@dataclass
class Tally:
    """What was seen so far."""

    programs: int = 0
    instructions: int = 0
    verify_seconds: float = 0.0
    false_alarms: int = 0
    unsafe_originals: int = 0
    mutants: Counter[str] = dataclasses.field(default_factory=Counter)
    harmful: Counter[str] = dataclasses.field(default_factory=Counter)
    missed: Counter[str] = dataclasses.field(default_factory=Counter)
    cautious: Counter[str] = dataclasses.field(default_factory=Counter)
    wrong: Counter[str] = dataclasses.field(default_factory=Counter)
    unlocated: Counter[str] = dataclasses.field(default_factory=Counter)

    def original(self, program: Program, inputs: Inputs) -> bytes:
        """Check a correct program; what it leaves behind."""
        self.programs += 1
        self.instructions += len(program.insns)
        start = time.perf_counter()
        violations = verify(program)
        self.verify_seconds += time.perf_counter() - start
        if violations:
            self.false_alarms += 1
            print(f"program {self.programs}: false alarm: {violations[0]}", file=sys.stderr)
        reason, left = harm(program, inputs)
        if reason:
            self.unsafe_originals += 1
            print(f"program {self.programs}: not correct: {reason}", file=sys.stderr)
        return left

    def mutant(self, original: Program, mutant: Mutant, inputs: Inputs, expected: bytes) -> None:
        """Compare the verifier and the divergence finder with the truth."""
        kind = mutant.kind
        self.mutants[kind] += 1
        flagged = bool(verify(mutant.program))
        reason, left = harm(mutant.program, inputs, mutant.index)
        self.harmful[kind] += bool(reason)
        if reason and not flagged:
            self.missed[kind] += 1
            self._complain(mutant, f"missed: {reason}")
        if flagged and not reason:
            self.cautious[kind] += 1
        if not flagged and not reason and left != expected:
            self.wrong[kind] += 1
            found = diverges_at(original, mutant.program, inputs)
            if found != mutant.index:
                self.unlocated[kind] += 1
                self._complain(mutant, f"first difference at {found}")

    def _complain(self, mutant: Mutant, text: str) -> None:
        where = f"program {self.programs}: {mutant.kind} at {mutant.index}: {mutant.change}"
        print(f"{where}: {text}", file=sys.stderr)


def diverges_at(original: Program, mutant: Program, inputs: Inputs) -> int | None:
    """The first instruction whose effect differs between two variants of a program."""
    logs = [NumpyLog().run(program, inputs).log for program in (original, mutant)]
    difference = first_difference(*logs, variants=True)
    return difference.index if difference else None


def measure(count: int, seed: int) -> Tally:
    """Make and judge ``count`` mutants."""
    rng, tally, kinds = np.random.default_rng(seed), Tally(), itertools.cycle(MUTATIONS)
    for program, inputs, share in programs(count, rng):
        expected = tally.original(program, inputs)
        for _ in range(share):
            tally.mutant(program, mutate(program, next(kinds), rng), inputs, expected)
    return tally


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1500, help="mutants (default: 1500)")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default: 0)")
    options = parser.parse_args()
    start = time.perf_counter()
    tally = measure(options.count, options.seed)
    figures = [
        Figure("mutants", tally.mutants.total(), "mutants"),
        Figure("programs", tally.programs, "programs"),
        Figure("harmful_mutants", tally.harmful.total(), "mutants"),
        Figure.at_most("harmful_mutants_missed", tally.missed.total(), "mutants", 0),
        Figure.at_most("false_alarms", tally.false_alarms, "programs", 0),
        Figure.at_most("unsafe_originals", tally.unsafe_originals, "programs", 0),
        Figure("flagged_mutants_not_seen_to_harm", tally.cautious.total(), "mutants"),
        Figure("safe_mutants_with_other_results", tally.wrong.total(), "mutants"),
        Figure.at_most("other_results_not_located", tally.unlocated.total(), "mutants", 0),
        Figure("verify_us_an_instruction", 1e6 * tally.verify_seconds / tally.instructions, "us"),
        Figure("seconds", time.perf_counter() - start, "s"),
    ]
    columns = ("mutants", "harmful", "missed", "cautious", "wrong", "unlocated")
    kinds = {k: {c: getattr(tally, c)[k] for c in columns} for k in MUTATIONS}
    return report("mutation", figures, options.json, kinds=kinds)


if __name__ == "__main__":
    sys.exit(main())
