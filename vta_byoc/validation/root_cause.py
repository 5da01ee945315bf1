"""The root cause of a wrong value, when every implementation agrees about the program.

From the first wrong element of a stored tensor back: the STORE that wrote it, the accumulator that
it read, the instructions that computed it.  Each of these is a function of one number, and is held
against what the reference has between its operators: one that makes something else of the
reference's value is wrong.  Where the machine computes in another way than the reference (scales
and constants folded into sums, sums and maxima on the ALU), the instruction after which the value
is known to be wrong is named, and those on the path to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.hw.program.program import Layer, Program
from vta_byoc.hw.trace.implementations import Inputs
from vta_byoc.ir.bindings import source_name, straight_bindings
from vta_byoc.ir.chains import as_step, is_narrowing
from vta_byoc.ir.names import channels_in, operators_of
from vta_byoc.ir.reference import build_reference
from vta_byoc.runtime.execute import Inputs as ModelInputs
from vta_byoc.runtime.execute import run_vm
from vta_byoc.validation.bit_exact import observing
from vta_byoc.validation.machine_run import LaneEffect, MachineRun, applied
from vta_byoc.validation.stored_tensor import StoredTensor, misplaced

LONGEST = 4
"""At most this many instructions do one step of the reference (a shift in parts)."""


@dataclass(frozen=True)
class RootCause:
    """The instruction that made the first wrong value.

    Attributes:
        index: the instruction.
        cause: what is wrong with it.
        detail: the value that shows it.
        evidence: the instructions that were looked at.
    """

    index: int
    cause: str
    detail: str = ""
    evidence: str = ""


@dataclass(frozen=True)
class Stage:
    """A value between the layer's input and its stored tensor.

    Attributes:
        op: of ``ir.chains.STEP_OPS``, what made it of the value before; "" for the first one.
        name: its variable.
    """

    op: str
    name: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """ALU operators that do it."""
        return {"shl": ("SHR", "MUL")}.get(self.op, (self.op.upper(),))


def find_root_cause(
    qmod: tvm.IRModule,
    inputs: ModelInputs,
    program: Program,
    values: Inputs,
    layer: Layer,
    at: tuple[int, ...],
) -> RootCause:
    """The first instruction on the path to ``layer.output[at]`` that can be shown to be wrong.

    Args:
        qmod: the quantized module.
        inputs: of the module.
        program: a region's program; it runs to its end.
        values: the inputs of the program by symbol.
        layer: the layer of the program that stores the tensor.
        at: an element of the stored tensor, as the module has it, that is wrong.
    """
    whole, channels = channels_in(layer.output)
    chain = stages(qmod, whole)
    reference = _reference_values(qmod, inputs, [*(s.name for s in chain), whole])
    if whole != layer.output:
        reference = {name: value[:, channels] for name, value in reference.items()}
    machine = MachineRun(program, values)
    tensor = StoredTensor.of(machine, layer.output, reference[whole])
    plane = tensor.wrong_plane(at)
    element, lane = divmod(int(tensor.places[(plane, *at)]), program.config.out_elem_bytes)
    store = machine.store_of(element)
    where = f"{layer.output}[{_list(at)}]"
    if store is not None and not _owns(machine.program, layer, store, element):
        return RootCause(store, f"it overwrites {where}, which is not of its layer")
    if store is None:
        return _not_stored(machine, tensor, layer, where)
    acc = machine.source(store, element)
    path = f"path of the value: {_ranges([*machine.dependencies(acc, store), store])}"
    cause = misplaced(machine, tensor, store)
    if cause:
        return RootCause(store, cause, f"first wrong value: {where}", path)
    numbers = [int(reference[s.name][at]) for s in chain]
    for number in range(1, plane + 1):
        chain = [*chain, Stage("shr", f"{layer.output} >> {8 * number}")]
        numbers.append(numbers[-1] >> 8)
    unstored = operators_of(layer.name)[:-1]
    found = _in_chain(machine, store, acc, lane, chain, numbers, unstored)
    detail = found.detail.replace("[]", f"[{_list(at)}]")
    return RootCause(found.index, found.cause, detail, path)


def _not_stored(machine: MachineRun, tensor: StoredTensor, layer: Layer, where: str) -> RootCause:
    missing = f"no STORE of the layer writes {where}"
    for store in machine.stores(layer):
        cause = misplaced(machine, tensor, store)
        if cause:
            return RootCause(store, cause, missing)
    return RootCause(layer.end - 1, missing, "", "this is the layer's last instruction")


def _owns(program: Program, layer: Layer, store: int, element: int) -> bool:
    """Whether a STORE may write DRAM ``element`` of what ``layer`` stores.

    It may where it is of the layer, or of one that stores a part of the tensor.
    """
    byte = element * program.config.out_elem_bytes
    for other in program.layers:
        if other.begin <= store < other.end and other.output:
            symbol = program.symbol(other.output)
            return other == layer or symbol.offset <= byte < symbol.offset + symbol.nbytes
    return False


# ---------------------------------------------------------------- the chain
def _in_chain(
    machine: MachineRun,
    store: int,
    acc: int,
    lane: int,
    chain: Sequence[Stage],
    wanted: Sequence[int],
    unstored: Sequence[str],
) -> RootCause:
    """Which instruction made lane ``lane`` of ACC element ``acc`` wrong before a STORE.

    ``wanted`` are the reference's values of ``chain``.  ``[]`` stands for the tensor's index.
    ``unstored`` are the operators that the layer computes before in the same tiles.
    """
    writers = machine.writers(acc, store)
    if not writers:
        return RootCause(store, f"no instruction writes ACC element {acc}, which it reads")
    effects = [machine.effect(i, acc, lane) for i in writers[-LONGEST * len(chain) :]]
    values = [effects[0].before, *(effect.after for effect in effects)]
    cuts = _aligned(effects, chain, wanted)
    found = [values[cut] for cut in cuts]
    if found[-1] == wanted[-1]:
        return RootCause(
            store, "the accumulator is right and what is stored is not, or in its place"
        )
    agreed = [i for i, value in enumerate(found) if value == wanted[i]]
    if agreed:
        stage = agreed[-1] + 1
        group = effects[cuts[stage - 1] : cuts[stage]]
        if not group:
            index = effects[cuts[stage]].index if cuts[stage] < len(effects) else store
            cause = f"no instruction before it computes {chain[stage].name}"
            return RootCause(index, cause, _of_reference(chain[stage], wanted[stage]))
        cause = _why_step(group, chain[stage].name)
    else:
        wrong = _wrong_stages(effects, cuts, wanted)
        stage = wrong[-1] if wrong else 0
        group = effects[: cuts[stage]] or effects[:1]
        cause = _why_sum(group, chain[stage].name, unstored, exact=not wrong)
    detail = f"ACC element {acc} is {group[-1].after} after it; "
    return RootCause(group[-1].index, cause, detail + _of_reference(chain[stage], wanted[stage]))


def _of_reference(stage: Stage, value: int) -> str:
    return f"{stage.name}[] of the reference is {value}"


def _wrong_stages(
    effects: Sequence[LaneEffect], cuts: Sequence[int], wanted: Sequence[int]
) -> list[int]:
    """The stages that make something wrong of the right value; all after the last one are right."""
    return [
        i
        for i in range(1, len(wanted))
        if applied(effects[cuts[i - 1] : cuts[i]], wanted[i - 1]) != wanted[i]
    ]


def _why_step(group: Sequence[LaneEffect], name: str) -> str:
    if len(group) == 1:
        return f"its operand or immediate is wrong: what it read is right, {name} is not"
    first = group[0].index
    return f"it or one from {first} on is wrong: what {first} read is right, {name} is not"


def _why_sum(
    group: Sequence[LaneEffect], name: str, unstored: Sequence[str], *, exact: bool
) -> str:
    if exact and {effect.kind for effect in group} <= {"LOAD", "RESET", "MAC"}:
        return (
            "the sum of products is wrong when this last GEMM of it is done; its operands, loops "
            "or an earlier GEMM of the sum are"
        )
    cause = f"{name} is wrong when it is done; it or one before it on the path of the value is"
    if unstored:
        cause += f"; with scopes dram {' and '.join(unstored)} would be stored and compared, too"
    return cause


def _aligned(
    effects: Sequence[LaneEffect], chain: Sequence[Stage], wanted: Sequence[int]
) -> list[int]:
    """How many of ``effects`` are done after each stage.

    Of all cuts the cheapest is taken: it costs to let an instruction do what it is not
    for, or nothing do what changes the reference's value.
    """
    kinds = {kind for stage in chain[1:] for kind in stage.kinds}
    costs = [0, *(2 * (effect.by_number and effect.kind in kinds) for effect in effects)]
    first = {end: (cost, [end]) for end, cost in enumerate(itertools.accumulate(costs))}
    best: list[dict[int, tuple[int, list[int]]]] = [first]
    for i in range(1, len(chain)):
        row: dict[int, tuple[int, list[int]]] = {}
        for end in range(len(effects) + 1):
            options = []
            for size in (1, 0, *range(2, LONGEST + 1)):  # of equals the first is taken
                if size <= end:
                    group = effects[end - size : end]
                    cost, cuts = best[-1][end - size]
                    cost += _cost(group, chain[i], wanted[i - 1], wanted[i])
                    options.append((cost, [*cuts, end]))
            row[end] = min(options, key=lambda option: option[0])
        best.append(row)
    return best[-1][len(effects)][1]


def _cost(group: Sequence[LaneEffect], stage: Stage, before: int, after: int) -> int:
    right = applied(group, before) == after
    if not group:
        return 0 if right else 3
    odd = sum(effect.kind not in stage.kinds for effect in group)
    return 2 * odd + (0 if right else 1 + len(group))


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
    observed, count = observing(qmod, unique)
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
