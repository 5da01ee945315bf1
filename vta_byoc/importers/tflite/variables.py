"""Variables of TFLite files as inputs and outputs.

A streaming model keeps what it has seen in variables: it reads them, and assigns them what the next
call is to read. A compiled function keeps nothing between calls, so a variable becomes an input, by
the variable's name, and an output behind the others, by that name and `_next`, which the caller
gives back to the next call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.tflite.model import Model, Operator, TFLiteTensor

NEXT = "_next"
"""Behind the name of a variable: the output with its next value."""
HANDLE, INITIALIZE, READ, ASSIGN = "VAR_HANDLE", "CALL_ONCE", "READ_VARIABLE", "ASSIGN_VARIABLE"


def as_states(model: Model) -> tuple[Model, dict[str, np.ndarray]]:
    """The model without variables, and what each input that stands for one begins with.

    Returns:
        The model, and by the names of variables arrays of their shape and dtype, in the file's
        order of axes; zeros where the file does not say.

    Raises:
        VTAError: a variable that nothing names.
    """
    states = _States()
    operators = []
    for op in model.operators:
        read = tuple(None if tensor is None else states.seen(tensor) for tensor in op.inputs)
        op = dataclasses.replace(op, inputs=read)
        if not states.take(op):
            operators.append(op)
    outputs = [states.seen(tensor) for tensor in model.outputs]
    outputs += [dataclasses.replace(states.now[name], name=name + NEXT) for name in states.read]
    initial = _initial(model.initial) if states.read else {}
    without = dataclasses.replace(
        model,
        inputs=(*model.inputs, *states.read.values()),
        outputs=tuple(outputs),
        operators=tuple(operators),
    )
    return without, {name: _first(t, initial.get(name)) for name, t in states.read.items()}


class _States:
    """What the variables hold at the operator that has been come to.

    Attributes:
        read: variable -> the input that stands for it.
        now: variable -> the tensor that it holds.
    """

    def __init__(self) -> None:
        self.read: dict[str, TFLiteTensor] = {}
        self.now: dict[str, TFLiteTensor] = {}
        self._handles: dict[int, str] = {}
        self._same: dict[int, TFLiteTensor] = {}

    def seen(self, tensor: TFLiteTensor) -> TFLiteTensor:
        """The tensor that an operator or the caller reads as `tensor`."""
        return self._same.get(tensor.index, tensor)

    def take(self, op: Operator) -> bool:
        """Whether the operator is one on variables, which is noted."""
        if op.code == HANDLE:
            self._handles[op.outputs[0].index] = variable(op)
        elif op.code == READ:
            self._read(self._variable(op), op.outputs[0])
        elif op.code == ASSIGN:
            value = op.inputs[1]
            assert value is not None
            self.now[self._variable(op)] = value
        return op.code in (HANDLE, INITIALIZE, READ, ASSIGN)

    def _variable(self, op: Operator) -> str:
        handle = op.inputs[0]
        if handle is None or handle.index not in self._handles:
            raise VTAError(
                f'operator "{op.name}" ({op.code}) reads a variable that no VAR_HANDLE before it '
                "names; convert the model again"
            )
        return self._handles[handle.index]

    def _read(self, name: str, tensor: TFLiteTensor) -> None:
        if name not in self.now:
            self.now[name] = self.read[name] = dataclasses.replace(tensor, name=name)
        self._same[tensor.index] = self.now[name]


def variable(op: Operator) -> str:
    """The name that a VAR_HANDLE gives a variable."""
    options = op.options("VarHandleOptions")
    container, name = (
        part.decode() if part else "" for part in (options.Container(), options.SharedName())
    )
    return f"{container}/{name}" if container else name


def _initial(operators: tuple[Operator, ...]) -> Mapping[str, np.ndarray]:
    """What the subgraph that is called once assigns, where it is constant."""
    names = {op.outputs[0].index: variable(op) for op in operators if op.code == HANDLE}
    found: dict[str, np.ndarray] = {}
    for op in operators:
        if op.code != ASSIGN:
            continue
        handle, value = op.inputs[:2]
        if handle is not None and value is not None and value.value is not None:
            found[names[handle.index]] = value.value
    return found


def _first(tensor: TFLiteTensor, given: np.ndarray | None) -> np.ndarray:
    if given is not None:
        return given
    zero = int(tensor.quantization().zero) if tensor.is_quantized else 0
    return np.full(tensor.shape, zero, tensor.dtype)
