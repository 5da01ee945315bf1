"""Where a wrong value came from, when every implementation agrees about the program.

From the first wrong element of a stored tensor back: the STORE that wrote it, the accumulator that
it read, the instructions that computed it; each is held against what the reference has between
its operators (sum of products, bias, shift, bounds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.bindings import is_constant, straight_bindings
from vta_byoc.hw.access import Loops, Transfer, decode_uops
from vta_byoc.hw.implementations import Implementation, Inputs
from vta_byoc.hw.isa import ISA, AluOp, Instruction, MemType, Opcode
from vta_byoc.hw.numpy_model import NumpyModel
from vta_byoc.hw.program import Layer, Program

from .check import _observing
from .reference import build_reference
from .runtime import Inputs as ModelInputs
from .runtime import run_vm

_KINDS = {
    "relax.nn.conv2d": "MAC",
    "relax.add": "ADD",
    "relax.right_shift": "SHR",
    "relax.left_shift": "SHR",
    "relax.maximum": "MAX",
    "relax.minimum": "MIN",
}


@dataclass(frozen=True)
class Blame:
    """The instruction that is to blame, why, and what shows it."""

    index: int
    cause: str
    detail: str
    evidence: str


@dataclass(frozen=True)
class _Stage:
    """An operator between the layer's input and its stored tensor."""

    kind: str
    name: str


@dataclass(frozen=True)
class _Source:
    """Where a stored byte came from: instructions by index, the accumulator and its lane."""

    store: int
    writers: tuple[int, ...]
    element: int
    lane: int


def culprit(
    qmod: tvm.IRModule,
    inputs: ModelInputs,
    program: Program,
    values: Inputs,
    run: Implementation,
    layer: Layer,
    at: tuple[int, ...],
) -> Blame:
    """The first instruction on the way to ``layer.output[at]`` whose value is not the reference's.

    Args:
        qmod, inputs: the quantized module and its inputs.
        program, values: a region's program and its inputs by symbol.
        run: the implementation that executes it.
        at: an element of the stored tensor, NCHW, that is wrong.
    """
    insns = [ISA.of(program.config).decode(*words) for words in program.insns.tolist()]
    source = _source(program, values, insns, layer, at)
    if source is None:
        return Blame(
            layer.end - 1,
            f"no STORE of the layer writes {layer.output}[{_list(at)}]",
            "",
            "this is the layer's last instruction",
        )
    way = f"way of the value: {_list((*source.writers, source.store))}"
    chain = stages(qmod, layer.output)
    wanted = _reference_values(qmod, inputs, [s.name for s in chain], at)
    before: int | None = None
    for index, stage in _pairs(insns, source, chain):
        expected = wanted[stage.name]
        reference = f"{stage.name}[{_list(at)}] of the reference is {expected}"
        acc = run.run(program, values, index).result.sram["acc"]
        value = int(acc[source.element].reshape(-1)[source.lane])
        if _kind(insns[index]) != stage.kind and expected != before:
            return Blame(index, f"no instruction before it computes {stage.name}", reference, way)
        if _kind(insns[index]) == stage.kind and value != expected:
            detail = f"ACC element {source.element} is {value} after it; {reference}"
            return Blame(index, _why(stage), detail, way)
        before = expected
    return Blame(
        source.store, "the accumulator is right and what is stored is not, or in its place", "", way
    )


def _why(stage: _Stage) -> str:
    if stage.kind == "MAC":
        return (
            "the sum of products is wrong when this last GEMM of it is done; its operands, loops "
            "or an earlier GEMM of the sum are"
        )
    return f"its operand or immediate is wrong: what it read is right, {stage.name} is not"


# ---------------------------------------------------------------- the program
def _source(
    program: Program,
    values: Inputs,
    insns: Sequence[Instruction],
    layer: Layer,
    at: tuple[int, ...],
) -> _Source | None:
    config = program.config
    n, c, h, w = at
    packed = (n // config.batch, c // config.block, h, w, n % config.batch, c % config.block)
    symbol = program.symbol(layer.output)
    byte = symbol.offset + int(np.ravel_multi_index(packed, symbol.shape))
    element, lane = divmod(byte, config.out_elem_bytes)
    for store in range(layer.end - 1, layer.begin - 1, -1):
        if insns[store].opcode == Opcode.STORE:
            transfer = Transfer.of(config, insns[store])
            found = np.flatnonzero(transfer.elements() == element)
            if not transfer.empty and len(found):
                acc = insns[store]["sram_base"] + int(found[-1])
                writers = _writers(program, values, insns[:store], acc)
                return _Source(store, writers, acc, lane)
    return None


def _writers(
    program: Program, values: Inputs, insns: Sequence[Instruction], element: int
) -> tuple[int, ...]:
    """Instructions that made accumulator ``element``, from the last that replaced it."""
    model, writers = NumpyModel(program.config, program.new_arena(dict(values))), []
    for index, insn in enumerate(insns):
        if insn.opcode == Opcode.LOAD:
            if insn["mem_type"] == MemType.UOP:
                model.load(insn)
            elif insn["mem_type"] in (MemType.ACC, MemType.ACC_8BIT):
                transfer = Transfer.of(program.config, insn)
                where = transfer.sram
                if not transfer.empty and where.start <= element < where.stop:
                    writers = [index]
        elif insn.opcode in (Opcode.GEMM, Opcode.ALU):
            uops = decode_uops(program.config, model.uop[insn["uop_bgn"] : insn["uop_end"]])
            loops = Loops(insn, uops)
            if loops.steps and element in loops.touched("dst", program.config.acc_depth):
                writers = [index] if insn["reset"] else [*writers, index]
    return tuple(writers)


# ---------------------------------------------------------------- the reference
def stages(qmod: tvm.IRModule, output: str) -> list[_Stage]:
    """The int32 operators that end in tensor ``output``, in order, back to the first whose
    operands are both computed."""
    values = {str(b.var.name): b.value for b in straight_bindings(qmod["main"])}
    chain: list[_Stage] = []
    value = values[output]
    while isinstance(value, relax.Call) and value.args and isinstance(value.args[0], relax.Var):
        name = str(value.args[0].name)
        inner = values.get(name)
        if not isinstance(inner, relax.Call) or str(inner.ty.dtype) != "int32":
            break
        kind = _KINDS.get(str(getattr(inner.op, "name", "")))
        if kind is None:
            break
        chain.append(_Stage(kind, name))
        if kind == "MAC" or not is_constant(inner.args[-1]):
            break
        value = inner
    return chain[::-1]


def _pairs(
    insns: Sequence[Instruction], source: _Source, chain: Sequence[_Stage]
) -> list[tuple[int, _Stage]]:
    """The last instruction of each stage, in order; from the end, where both must meet.

    A stage that has no instruction is paired with the one that follows.
    """
    left, pairs, after = list(source.writers), [], source.store
    if all(_kind(insns[index]) != "ADD" for index in left):
        chain = _bias_first(chain)
    for stage in reversed(chain):
        places = [k for k, index in enumerate(left) if _kind(insns[index]) == stage.kind]
        if places:
            after, left = left[places[-1]], left[: places[-1]]
        pairs.append((after, stage))
    return pairs[::-1]


def _bias_first(chain: Sequence[_Stage]) -> Sequence[_Stage]:
    """The stages of a program that loads the bias into the accumulator instead of adding it."""
    if [stage.kind for stage in chain[:2]] != ["MAC", "ADD"]:
        return chain
    return [_Stage("MAC", chain[1].name), *chain[2:]]


def _kind(insn: Instruction) -> str:
    if insn.opcode == Opcode.GEMM:
        return "RESET" if insn["reset"] else "MAC"
    return AluOp(insn["alu_opcode"]).name if insn.opcode == Opcode.ALU else "LOAD"


def _reference_values(
    qmod: tvm.IRModule, inputs: ModelInputs, names: Sequence[str], at: tuple[int, ...]
) -> dict[str, int]:
    observed, count = _observing(qmod, names)
    machine = relax.VirtualMachine(build_reference(observed), tvm.cpu())
    values = run_vm(machine, inputs)[count:]
    return {name: int(value[at]) for name, value in zip(names, values, strict=True)}


def _list(numbers: Sequence[int]) -> str:
    shown = [str(n) for n in numbers]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:4], "...", *shown[-7:]])
