"""What a TFLite file computes of constants, computed when it is read.

Converters store weights as 16-bit floats, as 8-bit integers or sparse, with operators behind them
that write them out, and shapes as operators on shapes. The importer wants numbers: what follows
from constants is a constant here, and operators that nothing reads are gone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from vta_byoc.base import limits
from vta_byoc.base.boundary import at
from vta_byoc.importers.tflite.model import Model, Operator, TFLiteTensor
from vta_byoc.importers.tflite.strided import Part, parts_of

Value = np.ndarray
Fold = Callable[[Operator, Sequence[TFLiteTensor]], Value | None]
"""The value of an operator on constants; None where it is left to the converters."""


def folded(model: Model) -> Model:
    """The model without operators on constants and without operators that nothing reads."""
    known: dict[int, TFLiteTensor] = {}
    operators = []
    for op in model.operators:
        inputs = tuple(None if t is None else known.get(t.index, t) for t in op.inputs)
        op = dataclasses.replace(op, inputs=inputs)
        at(f'operator "{op.name}" ({op.code})')
        value = _value(op)
        if value is None:
            operators.append(op)
        else:
            known[op.outputs[0].index] = _constant(op.outputs[0], value)
    outputs = tuple(known.get(tensor.index, tensor) for tensor in model.outputs)
    return dataclasses.replace(model, outputs=outputs, operators=_read(operators, outputs))


def _constant(tensor: TFLiteTensor, value: Value) -> TFLiteTensor:
    return dataclasses.replace(tensor, value=value, shape=value.shape, dtype=str(value.dtype))


def as_floats(tensor: TFLiteTensor) -> TFLiteTensor:
    """A constant as float32: of integers what they stand for.

    Raises:
        VTAError: see `TFLiteTensor.quantization`.
    """
    value = np.asarray(tensor.value)
    if not tensor.is_quantized:
        return _constant(tensor, value.astype("float32"))
    q = tensor.quantization()
    along = [1] * value.ndim
    if value.ndim:
        along[q.axis] = -1
    zero, scale = (x.reshape(along) if x.ndim else x for x in (q.zero, q.scale))
    floats = ((value.astype("int64") - zero) * scale).astype("float32")
    return dataclasses.replace(_constant(tensor, floats), scales=np.zeros(0, "float32"))


def _value(op: Operator) -> Value | None:
    """The result of an operator on constants; None of any other."""
    fold = FOLDS.get(op.code)
    given = [tensor for tensor in op.inputs if tensor is not None]
    if fold is None or len(op.outputs) != 1 or not given:
        return None
    if op.code not in OF_SHAPES and any(tensor.value is None for tensor in given):
        return None
    if op.code in WHOLE and any("float" in t.dtype or t.is_quantized for t in given):
        return None
    return fold(op, given)


def _read(operators: Sequence[Operator], outputs: Sequence[TFLiteTensor]) -> tuple[Operator, ...]:
    """The operators whose results the outputs depend on, in their order."""
    wanted = {tensor.index for tensor in outputs}
    kept = []
    for op in reversed(operators):
        if wanted.isdisjoint(tensor.index for tensor in op.outputs):
            continue
        kept.append(op)
        wanted |= {t.index for t in op.inputs[: READ_INPUTS.get(op.code)] if t is not None}
    return tuple(reversed(kept))


# ---------------------------------------------------------------- one operator each
def _arrays(given: Sequence[TFLiteTensor]) -> list[Value]:
    return [np.asarray(tensor.value) for tensor in given]


def _reshaped(op: Operator, given: Sequence[TFLiteTensor]) -> Value:
    return np.asarray(given[0].value).reshape(op.outputs[0].shape)


def _packed(op: Operator, given: Sequence[TFLiteTensor]) -> Value:
    return np.stack(_arrays(given), op.options("PackOptions").Axis())


def _joined(op: Operator, given: Sequence[TFLiteTensor]) -> Value:
    return np.concatenate(_arrays(given), op.options("ConcatenationOptions").Axis())


def _cut(op: Operator, given: Sequence[TFLiteTensor]) -> Value | None:
    data, begin, end, step = _arrays(given)
    options = op.options("StridedSliceOptions")
    limits_of = (begin.tolist(), end.tolist(), step.tolist())
    parts = None if options.Offset() else parts_of(options, *limits_of, data.ndim)
    return None if parts is None else np.asarray(data[tuple(map(_index, parts))])


def _index(part: Part | None) -> slice | int | None:
    """A part of a slice as NumPy takes it."""
    if part is None or part.shrinks:
        return None if part is None else part.begin
    start = None if part.from_start else part.begin
    return slice(start, None if part.to_end else part.end, part.step)


def _product(op: Operator, given: Sequence[TFLiteTensor]) -> Value:
    data, axes = _arrays(given)
    keep = op.options("ReducerOptions").KeepDims()
    axis = tuple(axes.reshape(-1).tolist())
    return np.asarray(np.prod(data, axis, data.dtype, keepdims=bool(keep)))


def _gathered(op: Operator, given: Sequence[TFLiteTensor]) -> Value | None:
    data, indices = _arrays(given)
    options = op.options("GatherOptions")
    return None if options.BatchDims() else np.asarray(np.take(data, indices, options.Axis()))


def _counted(op: Operator, given: Sequence[TFLiteTensor]) -> Value:
    start, limit, step = (array.item() for array in _arrays(given))
    shape = [len(range(start, limit, step))]
    limits.check([limits.declared(f'tensor "{op.name}"', shape, given[0].dtype)], "the model")
    return np.arange(start, limit, step).astype(given[0].dtype)


def _filled(op: Operator, given: Sequence[TFLiteTensor]) -> Value:
    shape, value = _arrays(given)
    sizes = shape.tolist()
    limits.check([limits.declared(f'tensor "{op.name}"', sizes, given[1].dtype)], "the model")
    return np.full(sizes, value, given[1].dtype)


def _binary(function: Callable[[Value, Value], Value], kind: str = "") -> Fold:
    def fold(op: Operator, given: Sequence[TFLiteTensor]) -> Value | None:
        left, right = _arrays(given)
        if kind and op.options(kind).FusedActivationFunction():
            return None
        return np.asarray(function(left, right)).astype(left.dtype)

    return fold


FOLDS: dict[str, Fold] = {
    "ADD": _binary(np.add, "AddOptions"),
    "CAST": lambda op, given: np.asarray(given[0].value).astype(op.outputs[0].dtype),
    "CONCATENATION": _joined,
    "DENSIFY": lambda op, given: np.asarray(given[0].value),
    "DEQUANTIZE": lambda op, given: np.asarray(as_floats(given[0]).value),
    "EXPAND_DIMS": _reshaped,
    "FILL": _filled,
    "FLOOR_DIV": _binary(np.floor_divide),
    "GATHER": _gathered,
    "MAXIMUM": _binary(np.maximum),
    "MINIMUM": _binary(np.minimum),
    "MUL": _binary(np.multiply, "MulOptions"),
    "PACK": _packed,
    "RANGE": _counted,
    "RANK": lambda op, given: np.array(len(given[0].shape), "int32"),
    "REDUCE_PROD": _product,
    "RESHAPE": _reshaped,
    "SHAPE": lambda op, given: np.array(given[0].shape, op.outputs[0].dtype),
    "SQUEEZE": _reshaped,
    "STRIDED_SLICE": _cut,
    "SUB": _binary(np.subtract, "SubOptions"),
    "ZEROS_LIKE": lambda op, given: np.zeros(given[0].shape, op.outputs[0].dtype),
}
"""TFLite operator -> its value of constants."""
OF_SHAPES = frozenset({"RANK", "SHAPE", "ZEROS_LIKE"})
"""They look at no number of their inputs."""
WHOLE = frozenset(FOLDS) - OF_SHAPES - {"CAST", "DENSIFY", "DEQUANTIZE", "FILL"}
"""Folded on integers that count something: floats are left to the rules of all importers."""
READ_INPUTS = {"RESHAPE": 1}
"""Inputs that are read where it is not all of them: the file knows the shape of the result."""
