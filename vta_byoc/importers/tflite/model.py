"""TFLite files as plain data: tensors with their names, constants and quantization, operators."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tflite

from vta_byoc.base import limits
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.quantized_tensor import Quantization, checked
from vta_byoc.importers.tflite import sparse

RESOURCE = "resource"
"""What a handle of a variable has instead of a dtype."""
DTYPES: Mapping[int, str] = {tflite.TensorType.RESOURCE: RESOURCE} | {
    getattr(tflite.TensorType, name.upper()): name
    for name in (
        *("float32", "float16", "float64", "int4", "int8", "uint8", "int16", "uint16"),
        *("int32", "uint32", "int64", "uint64", "bool", "complex64"),
    )
}


@dataclass(frozen=True)
class TFLiteTensor:
    """One tensor, as the file describes it.

    Attributes:
        shape: in the file's order of axes (NHWC).
        value: the constant, None for an activation.
        scales, zeros, axis: as stored, not checked; no scales: not quantized.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    value: np.ndarray | None
    scales: np.ndarray
    zeros: np.ndarray
    axis: int

    @property
    def is_quantized(self) -> bool:
        """Whether the file states scales for its integers."""
        return self.scales.size > 0 and "float" not in self.dtype

    def quantization(self) -> Quantization:
        """Scale and zero point, checked.

        Raises:
            VTAError: see `quantized_tensor.checked`.
        """
        return checked(
            self.name,
            self.dtype,
            self.scales,
            self.zeros,
            axis=self.axis,
            rank=len(self.shape),
            constant=self.value is not None,
        )


class _Table(Protocol):
    """A table of the file: its bytes, and where it begins in them."""

    Bytes: bytes
    Pos: int


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes:
        code: its name in TFLite (`CONV_2D`).
        inputs: the tensors that it reads; None is one that the file leaves out.
        outputs: the tensors that it makes.
        table: its options.
        custom: the options of a custom operator, as its runtime lays them out.
    """

    code: str
    inputs: tuple[TFLiteTensor | None, ...]
    outputs: tuple[TFLiteTensor, ...]
    table: _Table | None
    custom: bytes = b""

    @property
    def name(self) -> str:
        """It has none: that of the first tensor it makes."""
        return self.outputs[0].name if self.outputs else self.code

    def options(self, kind: str) -> Any:
        """The options, read as the table `kind` ("Conv2DOptions"); defaults if there are none."""
        result = getattr(tflite, kind)()
        if self.table is None:
            raise VTAError(
                f'operator "{self.name}" ({self.code}) has no options; every file that a converter '
                "writes has them; convert the model again"
            )
        result.Init(self.table.Bytes, self.table.Pos)
        return result


@dataclass(frozen=True)
class Subgraph:
    """A graph that an operator runs; its tensors are numbered apart from those of others."""

    inputs: tuple[TFLiteTensor, ...]
    outputs: tuple[TFLiteTensor, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True)
class Model:
    """The main graph of a file; its operators stand in the order in which they run.

    Attributes:
        initial: the operators of the graphs that are called once, before the first call.
        subgraphs: number -> graph, of the branches of every IF.
    """

    inputs: tuple[TFLiteTensor, ...]
    outputs: tuple[TFLiteTensor, ...]
    operators: tuple[Operator, ...]
    initial: tuple[Operator, ...] = ()
    subgraphs: Mapping[int, Subgraph] = field(default_factory=dict)


def read(path: Path) -> Model:
    """The main graph of a file.

    Raises:
        VTAError: the file is no TFLite model, or is cut off.
    """
    data = path.read_bytes()
    if not tflite.Model.ModelBufferHasIdentifier(data, 0):
        raise VTAError(
            f'model file "{path}" is no TFLite model: bytes 4 to 8 are {data[4:8]!r}, not '
            "b'TFL3'; convert the model again"
        )
    try:
        return _checked(_model(tflite.Model.GetRootAsModel(data, 0)), path)
    except VTAError:
        raise
    except Exception as error:
        raise VTAError(
            f'model file "{path}" cannot be read: {type(error).__name__}: {error}; the file is '
            "damaged; convert or download the model again"
        ) from error


def _checked(model: Model, path: Path) -> Model:
    if not (model.inputs and model.outputs and model.operators):
        raise VTAError(
            f'model file "{path}" has {len(model.operators)} operators, {len(model.inputs)} inputs '
            f"and {len(model.outputs)} outputs; a model needs at least one of each; convert the "
            "model again"
        )
    return model


def _model(model: tflite.Model) -> Model:
    main = _subgraph(model, 0)
    subgraphs: dict[int, Subgraph] = {}
    _add_branches(model, main.operators, subgraphs)
    once = _called_once(model, main.operators)
    return Model(main.inputs, main.outputs, main.operators, once, subgraphs)


def _subgraph(model: tflite.Model, number: int) -> Subgraph:
    graph = model.Subgraphs(number)
    tensors = [_tensor(model, graph, i) for i in range(graph.TensorsLength())]
    operators = [
        _operator(model, graph.Operators(i), tensors) for i in range(graph.OperatorsLength())
    ]
    inputs = tuple(tensors[graph.Inputs(i)] for i in range(graph.InputsLength()))
    outputs = tuple(tensors[graph.Outputs(i)] for i in range(graph.OutputsLength()))
    return Subgraph(inputs, outputs, tuple(operators))


IF = "IF"


def branches_of(op: Operator) -> tuple[int, int]:
    """The numbers of the graphs that an IF runs where its condition holds, and where not."""
    options = op.options("IfOptions")
    return int(options.ThenSubgraphIndex()), int(options.ElseSubgraphIndex())


def _add_branches(
    model: tflite.Model, operators: tuple[Operator, ...], subgraphs: dict[int, Subgraph]
) -> None:
    """Add the graphs that IFs run, those in their branches too."""
    for number in (n for op in operators if op.code == IF for n in branches_of(op)):
        if number not in subgraphs:
            subgraphs[number] = _subgraph(model, number)
            _add_branches(model, subgraphs[number].operators, subgraphs)


def _called_once(model: tflite.Model, operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
    calls = [op for op in operators if op.code == "CALL_ONCE"]
    numbers = [op.options("CallOnceOptions").InitSubgraphIndex() for op in calls]
    return tuple(op for i in numbers for op in _subgraph(model, i).operators)


def _tensor(model: tflite.Model, graph: tflite.SubGraph, index: int) -> TFLiteTensor:
    tensor = graph.Tensors(index)
    name = tensor.Name().decode()
    dtype = DTYPES.get(tensor.Type())
    if dtype is None:
        raise VTAError(
            f'tensor "{name}" has the TFLite type {tensor.Type()}; numbers of 8 to 64 bits can be '
            "imported; remove the operator that uses it"
        )
    shape = tuple(int(tensor.Shape(i)) for i in range(tensor.ShapeLength()))
    sizes = [max(dim, 0) for dim in shape]
    limits.check([limits.declared(f'tensor "{name}"', sizes, dtype)], "the model")
    q = tensor.Quantization()
    has_scales = q is not None and q.ScaleLength() > 0
    value = _value(model.Buffers(tensor.Buffer()), dtype, shape, tensor)
    return TFLiteTensor(
        index,
        name,
        shape,
        dtype if value is None else str(value.dtype),
        value,
        q.ScaleAsNumpy() if has_scales else np.zeros(0, "float32"),
        q.ZeroPointAsNumpy() if has_scales and q.ZeroPointLength() else np.zeros(1, "int64"),
        int(q.QuantizedDimension()) if has_scales else 0,
    )


def _value(
    buffer: tflite.Buffer, dtype: str, shape: tuple[int, ...], tensor: tflite.Tensor
) -> np.ndarray | None:
    """A constant; of 4 bits as int8, of a sparse tensor with its zeros."""
    if not buffer.DataLength() and tensor.Sparsity() is None:
        return None
    raw = buffer.DataAsNumpy().tobytes() if buffer.DataLength() else b""
    stored = "int8" if dtype == "int4" else dtype
    values = np.frombuffer(raw, np.dtype(stored).newbyteorder("<")).astype(stored)
    if dtype == "int4":  # two in a byte, the lower bits first
        values = np.stack([values << 4 >> 4, values >> 4], -1).reshape(-1)[: math.prod(shape)]
    if tensor.Sparsity() is not None:
        return sparse.dense(tensor.Name().decode(), values, shape, tensor.Sparsity())
    return values.reshape(shape)


def _operator(
    model: tflite.Model, operator: tflite.Operator, tensors: list[TFLiteTensor]
) -> Operator:
    entry = model.OperatorCodes(operator.OpcodeIndex())
    code = max(entry.DeprecatedBuiltinCode(), entry.BuiltinCode())
    name = tflite.opcode2name(code)
    custom = b""
    if name == "CUSTOM":
        name = f"custom {entry.CustomCode().decode()}"
        if operator.CustomOptionsLength():
            custom = operator.CustomOptionsAsNumpy().tobytes()
    read = [int(operator.Inputs(i)) for i in range(operator.InputsLength())]
    made = [int(operator.Outputs(i)) for i in range(operator.OutputsLength())]
    return Operator(
        name,
        tuple(tensors[i] if i >= 0 else None for i in read),
        tuple(tensors[i] for i in made),
        operator.BuiltinOptions(),
        custom,
    )
