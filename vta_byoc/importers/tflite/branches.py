"""TFLite's IF: both branches run, and a selection takes the results of one.

No operator of a branch has side effects, but those on variables, which are refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.tflite.model import IF, Model, Operator, Subgraph, TFLiteTensor, branches_of
from vta_byoc.importers.tflite.variables import ASSIGN, HANDLE, INITIALIZE, READ

_STEP = "export the model without it or cut the model before it"


def without_branches(model: Model) -> Model:
    """The model with the operators of both branches in the place of every IF.

    Raises:
        VTAError: a branch with variables, with other operands than the IF hands it, or whose
            results have another shape or type than those of the other.
    """
    if not model.subgraphs:
        return model
    counter = _Counter(model)
    operators = tuple(_flat(model.operators, model.subgraphs, counter))
    return dataclasses.replace(model, operators=operators, subgraphs={})


class _Counter:
    """Numbers that no tensor of the main graph has."""

    def __init__(self, model: Model) -> None:
        used = (t.index for op in model.operators for t in (*op.inputs, *op.outputs) if t)
        self._last = max((*used, *(t.index for t in (*model.inputs, *model.outputs))))

    def fresh(self) -> int:
        self._last += 1
        return self._last


def _flat(
    operators: tuple[Operator, ...], subgraphs: Mapping[int, Subgraph], counter: _Counter
) -> Iterator[Operator]:
    for op in operators:
        if op.code != IF:
            yield op
            continue
        branches = [_renumbered(op, subgraphs[n], counter) for n in branches_of(op)]
        for branch in branches:
            yield from _flat(branch.operators, subgraphs, counter)
        then, other = (branch.outputs for branch in branches)
        yield from _selections(op, then, other, counter)


def _renumbered(op: Operator, branch: Subgraph, counter: _Counter) -> Subgraph:
    """The branch on the operands that the IF hands it, all other tensors with new numbers."""
    handed = op.inputs[1:]
    if len(handed) != len(branch.inputs) or None in handed:
        raise _error(op, f"hands {len(handed)} operands to a branch of {len(branch.inputs)} inputs")
    known = {own.index: given for own, given in zip(branch.inputs, handed, strict=True) if given}

    def outer(tensor: TFLiteTensor) -> TFLiteTensor:
        if tensor.index not in known:
            known[tensor.index] = dataclasses.replace(tensor, index=counter.fresh())
        return known[tensor.index]

    made = []
    for inner in branch.operators:
        if inner.code in (ASSIGN, HANDLE, INITIALIZE, READ):
            raise _error(op, f"has {inner.code} in a branch, which would run always")
        read = tuple(None if tensor is None else outer(tensor) for tensor in inner.inputs)
        outputs = tuple(outer(tensor) for tensor in inner.outputs)
        made.append(dataclasses.replace(inner, inputs=read, outputs=outputs))
    return Subgraph((), tuple(outer(tensor) for tensor in branch.outputs), tuple(made))


def _selections(
    op: Operator,
    then: tuple[TFLiteTensor, ...],
    other: tuple[TFLiteTensor, ...],
    counter: _Counter,
) -> Iterator[Operator]:
    if not len(then) == len(other) == len(op.outputs):
        listed = f"{len(then)} and {len(other)}"
        raise _error(op, f"has branches of {listed} results, and {len(op.outputs)} of its own")
    given = op.inputs[0]
    if given is None or math.prod(given.shape) != 1:
        raise _error(op, "has no condition of one element")
    condition = dataclasses.replace(given, index=counter.fresh(), shape=())
    yield Operator("RESHAPE", (given,), (condition,), None)
    for first, second, result in zip(then, other, op.outputs, strict=True):
        kinds = [(each.shape, each.dtype) for each in (first, second, result)]
        if len(set(kinds)) > 1:
            listed = " and ".join(f"{shape} {dtype}" for shape, dtype in kinds[:2])
            raise _error(op, f'has branches that give "{result.name}" as {listed}')
        yield Operator("SELECT_V2", (condition, first, second), (result,), None)


def _error(op: Operator, text: str) -> VTAError:
    return VTAError(f'operator "{op.name}" ({op.code}) {text}; {_STEP}')
