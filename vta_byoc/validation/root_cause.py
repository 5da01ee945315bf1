"""Where a wrong value came from, when every implementation agrees about the program.

From the first wrong element of a stored tensor back: the STORE that wrote it, the accumulator that
it read, the instructions that computed it.  Each of these is a function of one number, and is held
against what the reference has between its operators: one that makes something else of the
reference's value is wrong.  Where the machine computes in another way than the reference (scales
and constants folded into sums, sums and maxima on the ALU), the instruction after which the value
is known to be wrong is named, and those on the way to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import tvm
from tvm import relax

from vta_byoc.hw.isa import ISA, AluOp, Instruction, MemType, Opcode
from vta_byoc.hw.program.program import Layer, Program
from vta_byoc.hw.reference.numpy_model import NumpyModel
from vta_byoc.hw.trace.implementations import Inputs, implementation
from vta_byoc.hw.verify.access import Loops, Transfer, decode_uops
from vta_byoc.ir.bindings import source_name, straight_bindings
from vta_byoc.ir.chains import as_step, is_narrowing
from vta_byoc.ir.names import operators_of
from vta_byoc.ir.reference import build_reference
from vta_byoc.runtime.execute import Inputs as ModelInputs
from vta_byoc.runtime.execute import run_vm
from vta_byoc.validation.bit_exact import _observing
from vta_byoc.workload.alu import on_int32
from vta_byoc.workload.layout import read_packed
from vta_byoc.workload.packing import PLANES

UNKNOWN = -1000
"""Stands for a byte that holds no element of the tensor."""
LONGEST = 4
"""At most this many instructions do one step of the reference (a shift in parts)."""
LEAST_VALUES = 3
"""So many different values must match before a STORE is said to be in the wrong place."""


@dataclass(frozen=True)
class Blame:
    """The instruction that is to blame, why, and what shows it."""

    index: int
    cause: str
    detail: str = ""
    evidence: str = ""


@dataclass(frozen=True)
class Stage:
    """A value between the layer's input and its stored tensor: variable ``name``, which ``op``
    (of ``ir.chains.STEP_OPS``) made of the one before; the first one has no ``op``."""

    op: str
    name: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """ALU operators that do it."""
        return {"shl": ("SHR", "MUL")}.get(self.op, (self.op.upper(),))


def culprit(
    qmod: tvm.IRModule,
    inputs: ModelInputs,
    program: Program,
    values: Inputs,
    layer: Layer,
    at: tuple[int, ...],
) -> Blame:
    """The first instruction on the way to ``layer.output[at]`` that can be shown to be wrong.

    Args:
        qmod, inputs: the quantized module and its inputs.
        program, values: a region's program and its inputs by symbol; it runs to its end.
        at: an element of the stored tensor, as the module has it, that is wrong.
    """
    chain = stages(qmod, layer.output)
    reference = _reference_values(qmod, inputs, [*(s.name for s in chain), layer.output])
    machine = _Machine(program, values)
    tensor = _Tensor.of(machine, layer.output, reference[layer.output])
    plane = tensor.wrong_plane(at)
    element, lane = divmod(int(tensor.places[(plane, *at)]), program.config.out_elem_bytes)
    store = machine.store_of(element)
    where = f"{layer.output}[{_list(at)}]"
    if store is not None and not _owns(machine.program, layer, store, element):
        return Blame(store, f"it overwrites {where}, which is not of its layer")
    if store is None:
        return _not_stored(machine, tensor, layer, where)
    acc = machine.source(store, element)
    way = f"way of the value: {_ranges([*machine.way(acc, store), store])}"
    cause = _misplaced(machine, tensor, store)
    if cause:
        return Blame(store, cause, f"first wrong value: {where}", way)
    numbers = [int(reference[s.name][at]) for s in chain]
    for number in range(1, plane + 1):
        chain = [*chain, Stage("shr", f"{layer.output} >> {8 * number}")]
        numbers.append(numbers[-1] >> 8)
    unstored = operators_of(layer.name)[:-1]
    blame = _in_chain(machine, store, acc, lane, chain, numbers, unstored)
    detail = blame.detail.replace("[]", f"[{_list(at)}]")
    return Blame(blame.index, blame.cause, detail, way)


def _not_stored(machine: _Machine, tensor: _Tensor, layer: Layer, where: str) -> Blame:
    missing = f"no STORE of the layer writes {where}"
    for store in machine.stores(layer):
        cause = _misplaced(machine, tensor, store)
        if cause:
            return Blame(store, cause, missing)
    return Blame(layer.end - 1, missing, "", "this is the layer's last instruction")


def _owns(program: Program, layer: Layer, store: int, element: int) -> bool:
    """Whether DRAM ``element`` of what ``layer`` stores may be written by a STORE: it is of the
    layer, or of one that stores a part of the tensor."""
    byte = element * program.config.out_elem_bytes
    for other in program.layers:
        if other.begin <= store < other.end and other.output:
            symbol = program.symbol(other.output)
            return other == layer or symbol.offset <= byte < symbol.offset + symbol.nbytes
    return False


# ---------------------------------------------------------------- the chain
def _in_chain(
    machine: _Machine,
    store: int,
    acc: int,
    lane: int,
    chain: Sequence[Stage],
    wanted: Sequence[int],
    unstored: Sequence[str],
) -> Blame:
    """Which instruction made lane ``lane`` of ACC element ``acc`` wrong before a STORE.

    ``wanted`` are the reference's values of ``chain``.  ``[]`` stands for the tensor's index.
    ``unstored`` are the operators that the layer computes before in the same tiles.
    """
    writers = machine.writers(acc, store)
    if not writers:
        return Blame(store, f"no instruction writes ACC element {acc}, which it reads")
    acts = [machine.act(i, acc, lane) for i in writers[-LONGEST * len(chain) :]]
    values = [acts[0].before, *(act.after for act in acts)]
    cuts = _aligned(acts, chain, wanted)
    found = [values[cut] for cut in cuts]
    if found[-1] == wanted[-1]:
        return Blame(store, "the accumulator is right and what is stored is not, or in its place")
    agreed = [i for i, value in enumerate(found) if value == wanted[i]]
    if agreed:
        stage = agreed[-1] + 1
        group = acts[cuts[stage - 1] : cuts[stage]]
        if not group:
            index = acts[cuts[stage]].index if cuts[stage] < len(acts) else store
            cause = f"no instruction before it computes {chain[stage].name}"
            return Blame(index, cause, f"{chain[stage].name}[] of the reference is {wanted[stage]}")
        cause = _why_step(group, chain[stage].name)
    else:
        # Everything after this stage would make the right result of the right value.
        wrong = [
            i
            for i in range(1, len(chain))
            if _applied(acts[cuts[i - 1] : cuts[i]], wanted[i - 1]) != wanted[i]
        ]
        stage = wrong[-1] if wrong else 0
        group = acts[: cuts[stage]]
        if not group:
            group = acts[:1]
        cause = _why_sum(group, chain[stage].name, unstored, exact=not wrong)
    detail = f"ACC element {acc} is {group[-1].after} after it; "
    detail += f"{chain[stage].name}[] of the reference is {wanted[stage]}"
    return Blame(group[-1].index, cause, detail)


def _why_step(group: Sequence[_Act], name: str) -> str:
    if len(group) == 1:
        return f"its operand or immediate is wrong: what it read is right, {name} is not"
    first = group[0].index
    return f"it or one from {first} on is wrong: what {first} read is right, {name} is not"


def _why_sum(group: Sequence[_Act], name: str, unstored: Sequence[str], *, exact: bool) -> str:
    if exact and {act.kind for act in group} <= {"LOAD", "RESET", "MAC"}:
        return (
            "the sum of products is wrong when this last GEMM of it is done; its operands, loops "
            "or an earlier GEMM of the sum are"
        )
    cause = f"{name} is wrong when it is done; it or one before it on the way of the value is"
    if unstored:
        cause += f"; with scopes dram {' and '.join(unstored)} would be stored and compared, too"
    return cause


def _aligned(acts: Sequence[_Act], chain: Sequence[Stage], wanted: Sequence[int]) -> list[int]:
    """How many of ``acts`` are done after each stage: cheapest, where it costs to let an
    instruction do what it is not for, or nothing do what changes the reference's value."""
    kinds = {kind for stage in chain[1:] for kind in stage.kinds}
    spent = [0, *(2 * (act.by_number and act.kind in kinds) for act in acts)]
    first = {end: (cost, [end]) for end, cost in enumerate(itertools.accumulate(spent))}
    best: list[dict[int, tuple[int, list[int]]]] = [first]
    for i in range(1, len(chain)):
        row: dict[int, tuple[int, list[int]]] = {}
        for end in range(len(acts) + 1):
            options = []
            for size in (1, 0, *range(2, LONGEST + 1)):  # of equals the first is taken
                if size <= end:
                    group = acts[end - size : end]
                    cost, cuts = best[-1][end - size]
                    cost += _cost(group, chain[i], wanted[i - 1], wanted[i])
                    options.append((cost, [*cuts, end]))
            row[end] = min(options, key=lambda option: option[0])
        best.append(row)
    return best[-1][len(acts)][1]


def _cost(group: Sequence[_Act], stage: Stage, before: int, after: int) -> int:
    right = _applied(group, before) == after
    if not group:
        return 0 if right else 3
    odd = sum(act.kind not in stage.kinds for act in group)
    return 2 * odd + (0 if right else 1 + len(group))


# ---------------------------------------------------------------- instructions on one lane
@dataclass(frozen=True)
class _Act:
    """What an instruction does to one lane: operators with their operands, None to replace it;
    ``by_number``: the operands are its immediate."""

    index: int
    kind: str
    by_number: bool
    changes: tuple[tuple[AluOp | None, int], ...]
    before: int
    after: int


def _applied(acts: Sequence[_Act], value: int) -> int:
    """What ``acts`` make of ``value``."""
    for act in acts:
        for op, operand in act.changes:
            value = _changed(op, value, operand)
    return value


def _changed(op: AluOp | None, value: int, operand: int) -> int:
    return operand if op is None else on_int32(op, value, operand)


class _Machine:
    """A program's run, to be looked at between instructions.

    Every tensor is at a place of its own, so that all are there when the run has ended.
    """

    def __init__(self, program: Program, values: Inputs) -> None:
        self.program, self.config = program.without_sharing(), program.config
        self._as_given = program
        isa = ISA.of(self.config)
        self.insns = [isa.decode(*words) for words in self.program.insns.tolist()]
        self._values = values
        self._run = implementation("sim")  # the fastest; all agree
        self._acc: dict[int, np.ndarray] = {}
        self.arena = self._run.run(self.program, values).result.arena
        self._loops = dict(self._all_loops())

    def _all_loops(self) -> Iterator[tuple[int, Loops]]:
        """The loops of every GEMM and ALU instruction with the micro-ops that it finds."""
        model = NumpyModel(self.config, self.program.new_arena(dict(self._values)))
        for index, insn in enumerate(self.insns):
            if insn.opcode == Opcode.LOAD and insn["mem_type"] == MemType.UOP:
                model.load(insn)
            elif insn.opcode in (Opcode.GEMM, Opcode.ALU):
                words = model.uop[insn["uop_bgn"] : insn["uop_end"]]
                loops = Loops(insn, decode_uops(self.config, words))
                if loops.steps:
                    yield index, loops

    def acc(self, index: int) -> np.ndarray:
        """The accumulators (elements, lanes) int32 after instruction ``index``; -1: at first."""
        if index < 0:
            return np.zeros((self.config.acc_depth, self.config.out_elem_bytes), np.int32)
        if index not in self._acc:
            state = self._run.run(self.program, self._values, index).result.sram["acc"]
            self._acc[index] = state.reshape(len(state), -1)
        return self._acc[index]

    # ------------------------------------------------------------ stores
    def stores(self, layer: Layer) -> list[int]:
        """The STORE instructions of a layer that move data."""
        return [i for i in range(layer.begin, layer.end) if self._transfer(i) is not None]

    def _transfer(self, index: int) -> Transfer | None:
        if self.insns[index].opcode != Opcode.STORE:
            return None
        transfer = Transfer.of(self.config, self.insns[index])
        return None if transfer.empty else transfer

    def elements(self, store: int) -> np.ndarray:
        """DRAM elements that a STORE writes, in the order of the accumulators it reads."""
        transfer = self._transfer(store)
        assert transfer is not None
        return transfer.elements().reshape(-1)

    def distance(self, store: int) -> int:
        """How many DRAM elements behind its place in the program as given a STORE writes."""
        given = ISA.of(self.config).decode(*self._as_given.insns[store].tolist())
        return int(self.insns[store]["dram_base"] - given["dram_base"])

    def store_of(self, element: int) -> int | None:
        """The last STORE that writes DRAM element ``element``."""
        for index in reversed(range(len(self.insns))):
            transfer = self._transfer(index)
            if transfer is not None and (transfer.elements() == element).any():
                return index
        return None

    def source(self, store: int, element: int) -> int:
        """The ACC element that a STORE puts at DRAM element ``element``."""
        last = int(np.flatnonzero(self.elements(store) == element)[-1])
        return int(self.insns[store]["sram_base"]) + last

    # ------------------------------------------------------------ accumulators
    def writers(self, element: int, before: int) -> list[int]:
        """Instructions before ``before`` that made ACC ``element``, from the last replacement."""
        found: list[int] = []
        for index in reversed(range(before)):
            if self._writes(index, element):
                found.append(index)
                if self._replaces(self.insns[index]):
                    break
        return found[::-1]

    def _writes(self, index: int, element: int) -> bool:
        insn = self.insns[index]
        if index in self._loops:
            return element in self._loops[index].touched("dst", self.config.acc_depth)
        if insn.opcode != Opcode.LOAD or insn["mem_type"] not in (MemType.ACC, MemType.ACC_8BIT):
            return False
        transfer = Transfer.of(self.config, insn)
        return not transfer.empty and transfer.sram.start <= element < transfer.sram.stop

    @staticmethod
    def _replaces(insn: Instruction) -> bool:
        return insn.opcode == Opcode.LOAD or bool(insn["reset"])

    def _read(self, index: int, element: int) -> list[int]:
        """ACC elements that an ALU instruction on tensors reads for ``element``, step by step."""
        insn, loops = self.insns[index], self._loops[index]
        rows = np.arange(insn["iter_out"])[:, None, None]
        cols = np.arange(insn["iter_in"])[:, None]
        dst, src = (
            loops.uops[k] + rows * insn[f"{k}_factor_out"] + cols * insn[f"{k}_factor_in"]
            for k in ("dst", "src")
        )
        return cast("list[int]", src[dst == element].tolist())

    def way(self, element: int, before: int) -> list[int]:
        """All instructions that ACC ``element`` depends on through accumulators, ascending."""
        waiting, seen = [(element, before)], set[tuple[int, int]]()
        while waiting:
            target, end = waiting.pop()
            for index in self.writers(target, end):
                if (target, index) in seen:
                    continue
                seen.add((target, index))
                insn = self.insns[index]
                if insn.opcode == Opcode.ALU and not insn["use_imm"]:
                    waiting += [(e, index) for e in set(self._read(index, target)) - {target}]
        return sorted({index for _, index in seen})

    def act(self, index: int, element: int, lane: int) -> _Act:
        """What instruction ``index`` does to a lane of ACC ``element``, which it writes."""
        insn = self.insns[index]
        before, after = (int(self.acc(i)[element, lane]) for i in (index - 1, index))
        changes: tuple[tuple[AluOp | None, int], ...] = ((None, after),)
        kind = "RESET" if insn.opcode == Opcode.GEMM else "LOAD"
        if insn.opcode == Opcode.GEMM and not insn["reset"]:
            kind, changes = "MAC", ((AluOp.ADD, after - before),)
        elif insn.opcode == Opcode.ALU:
            op, sources = AluOp(insn["alu_opcode"]), self._read(index, element)
            operands = [insn["imm"] for _ in sources]
            if not insn["use_imm"]:
                operands = [int(self.acc(index - 1)[e, lane]) for e in sources]
            kind, changes = op.name, tuple((op, x) for x in operands)
        by_number = insn.opcode == Opcode.ALU and bool(insn["use_imm"])
        return _Act(index, kind, by_number, changes, before, after)


# ---------------------------------------------------------------- the stored tensor
@dataclass(frozen=True)
class _Tensor:
    """A stored tensor and the reference's.

    Attributes:
        places: bytes in the arena, (planes, *shape of the tensor).
        wanted: what the reference has there, int8, as ``places``.
        found: what is there.
        expected: by byte of the arena, int16; UNKNOWN where no element is.
    """

    places: np.ndarray
    wanted: np.ndarray
    found: np.ndarray
    expected: np.ndarray

    @classmethod
    def of(cls, machine: _Machine, name: str, reference: np.ndarray) -> _Tensor:
        symbol, arena = machine.program.symbol(name), machine.arena
        count = PLANES if reference.dtype == np.int32 else 1
        wanted = np.stack([(reference >> 8 * p).astype(np.int8) for p in range(count)])
        packed = symbol.offset + np.arange(symbol.nbytes).reshape(symbol.shape)
        planes = packed.reshape(count, *packed.shape[-6:])
        forms = zip(*(read_packed(plane, reference.shape) for plane in planes), strict=True)
        places = min(
            (np.stack(form) for form in forms),
            key=lambda form: np.count_nonzero(arena[form] != wanted),
        )
        expected = np.full(arena.size, UNKNOWN, np.int16)
        expected[places] = wanted
        return cls(places, wanted, arena[places], expected)

    def wrong_plane(self, at: tuple[int, ...]) -> int:
        """The lowest byte of element ``at`` that is wrong."""
        wrong = [found[at] != want[at] for found, want in zip(self.found, self.wanted, strict=True)]
        return wrong.index(True)


def _misplaced(machine: _Machine, tensor: _Tensor, store: int) -> str:
    """How another address would make all that a STORE writes right; "" where none does."""
    lanes = machine.config.out_elem_bytes
    wanted = tensor.expected[: tensor.expected.size // lanes * lanes].reshape(-1, lanes)
    acc = machine.acc(store - 1).astype(np.int8)
    there, base = machine.elements(store), int(machine.insns[store]["sram_base"])
    data = acc[base : base + there.size]
    if _fit(data, wanted[there]).all():
        return ""
    known = (wanted != UNKNOWN).any(axis=1)
    if len(np.unique(data)) >= LEAST_VALUES:
        starts = np.flatnonzero(_fit(data[0], wanted) & known) - there[0]
        right = [
            d
            for d in starts.tolist()
            if there.min() + d >= 0 and there.max() + d < len(wanted)
            and known[there + d].all()
            and _fit(data, wanted[there + d]).all()
        ]
        if len(right) == 1:
            first = int(there[0]) + right[0] - machine.distance(store)
            return f"all that it stores would be right if it began at DRAM element {first:#x}"
    if len(np.unique(wanted[there][wanted[there] != UNKNOWN])) >= LEAST_VALUES:
        firsts = np.flatnonzero(_fit(acc, wanted[there[0]]))
        right = [e for e in firsts.tolist() if _fit(acc[e : e + there.size], wanted[there]).all()]
        if len(right) == 1:
            return f"all that it stores would be right if it began at ACC element {right[0]}"
    return ""


def _fit(data: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which vectors (last axis) hold what is wanted; False for other numbers of vectors."""
    if data.ndim == wanted.ndim and data.shape != wanted.shape:
        return np.zeros(1, bool)
    return np.asarray(((data == wanted) | (wanted == UNKNOWN)).all(axis=-1))


# ---------------------------------------------------------------- the reference
def stages(qmod: tvm.IRModule, output: str) -> list[Stage]:
    """The values that become tensor ``output`` step by step, the first one made by no step.

    An int8 tensor that no steps end in is its own only stage.
    """
    values = {str(b.var.name): b for b in straight_bindings(qmod["main"])}
    binding = values[output]
    if is_narrowing(binding.value):
        binding = values.get(str(binding.value.args[0].name), binding)
    chain: list[Stage] = []
    while (step := as_step(binding.value, str(binding.var.ty.dtype))) is not None:
        source = values.get(str(step[2].name))
        if source is None or source_name(source.var) != source_name(binding.var):
            break
        chain.append(Stage(step[0], str(binding.var.name)))
        binding = source
    return [Stage("", str(binding.var.name)), *chain[::-1]]


def _reference_values(
    qmod: tvm.IRModule, inputs: ModelInputs, names: Sequence[str]
) -> dict[str, np.ndarray]:
    unique = list(dict.fromkeys(names))
    observed, count = _observing(qmod, unique)
    machine = relax.VirtualMachine(build_reference(observed), tvm.cpu())
    return dict(zip(unique, run_vm(machine, inputs)[count:], strict=True))


# ---------------------------------------------------------------- text
def _list(numbers: Sequence[int]) -> str:
    return ", ".join(str(n) for n in numbers)


def _ranges(numbers: Sequence[int]) -> str:
    """``3, 5-7``; of many the first and the last."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    shown = ["-".join(map(str, part)) for part in parts]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:4], "...", *shown[-7:]])
