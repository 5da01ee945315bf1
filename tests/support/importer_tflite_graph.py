"""A TFLite file under construction, for the cases of the importer."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from importer_draws import Draw
from sparse_tensors import encoded

TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "float16": schema.TensorType.FLOAT16,
    "int8": schema.TensorType.INT8,
    "int32": schema.TensorType.INT32,
    "int64": schema.TensorType.INT64,
    "bool": schema.TensorType.BOOL,
    "int4": schema.TensorType.INT4,
    "complex64": schema.TensorType.COMPLEX64,
    "resource": schema.TensorType.RESOURCE,
}
ACTIVATIONS = (
    schema.ActivationFunctionType.NONE,
    schema.ActivationFunctionType.RELU,
    schema.ActivationFunctionType.RELU6,
    schema.ActivationFunctionType.RELU_N1_TO_1,
)
VERSIONS = {"BROADCAST_TO": 2}
"""Of operators whose first version the interpreter does not know."""
FAST_ONLY = ("CEIL", "ELU", "ROUND")
"""Operators without a reference kernel in the interpreter's package."""
Generator = Callable[["Lite"], None]


def _subgraph() -> schema.SubGraphT:
    graph = schema.SubGraphT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = [], [], [], []
    return graph


class Lite(Draw):
    """A file under construction; methods return the numbers of tensors."""

    def __init__(self, operator: str, *seed: int) -> None:
        super().__init__(*seed)
        self.operator = operator
        self.feed: list[np.ndarray] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.text = ""
        self._model = schema.ModelT()
        self._model.version = 3
        self._model.buffers = [schema.BufferT()]
        self._model.operatorCodes = []
        self._graph, self._others = _subgraph(), []

    @contextlib.contextmanager
    def called(self) -> Iterator[int]:
        """What is added inside belongs to another subgraph, whose number this is."""
        main, self._graph = self._graph, _subgraph()
        self._others.append(self._graph)
        yield len(self._others)
        self._graph = main

    def takes(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """State what a called subgraph reads and gives."""
        self._graph.inputs, self._graph.outputs = list(inputs), list(outputs)

    def made_tensor(self, shape: Sequence[int], dtype: str = "float32") -> int:
        """A tensor that an operator makes, of a known shape."""
        return self._tensor(shape, dtype)

    def _tensor(self, shape: Sequence[int], dtype: str, buffer: int = 0) -> int:
        tensor = schema.TensorT()
        tensor.shape, tensor.type, tensor.buffer = list(shape), TYPES[dtype], buffer
        tensor.name = f"t{len(self._graph.tensors)}".encode()
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1

    def tensor(self, shape: Sequence[int], low: float = -4, high: float = 4) -> int:
        """A float32 input of the model."""
        return self.input(self.floats(shape, low, high))

    def input(self, values: np.ndarray) -> int:
        """An input of the model that is given `values`."""
        self.feed.append(values)
        self.inputs.append(self._tensor(values.shape, str(values.dtype)))
        return self.inputs[-1]

    def const(self, value: Any, dtype: str = "int32") -> int:
        array = np.asarray(value, dtype)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(array.tobytes(), "uint8")
        self._model.buffers.append(buffer)
        return self._tensor(array.shape, dtype, len(self._model.buffers) - 1)

    def scaled(self, values: np.ndarray, dtype: str, scales: np.ndarray) -> int:
        """A constant of integers, with a scale for each index of its first axis."""
        octets = values.astype("int8")
        if dtype == "int4":
            low, high = np.append(octets, np.zeros(octets.size % 2, "int8")).reshape(-1, 2).T
            octets = (low & 15) | (high << 4)
        number = self.const(octets, "int8")
        tensor = self._graph.tensors[number]
        tensor.shape, tensor.type = list(values.shape), TYPES[dtype]
        q = schema.QuantizationParametersT()
        q.scale, q.zeroPoint, q.quantizedDimension = scales, [0] * len(scales), 0
        tensor.quantization = q
        return number

    def sparse(self, values: np.ndarray, order: Sequence[int], blocks: Any) -> int:
        """A sparse constant, in compressed rows at every level."""
        return self.stored(*encoded(values, order, blocks, lambda: True), values.shape)

    def stored(
        self, values: np.ndarray, sparsity: schema.SparsityParametersT, shape: Sequence[int]
    ) -> int:
        """A sparse constant of `shape`, of which `values` are stored."""
        number = self.const(values, str(values.dtype))
        tensor = self._graph.tensors[number]
        tensor.shape, tensor.sparsity = list(shape), sparsity
        return number

    def weights(self, *shape: int) -> int:
        return self.const(self.floats(shape, -1, 1), "float32")

    def quantized(self, scale: float, zero: int) -> int:
        """An int8 tensor to be made."""
        number = self._tensor((), "int8")
        q = schema.QuantizationParametersT()
        q.scale, q.zeroPoint = [scale], [zero]
        self._graph.tensors[number].quantization = q
        return number

    def node(
        self,
        code: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        kind: str = "",
        **options: Any,
    ) -> None:
        entry = schema.OperatorCodeT()
        entry.builtinCode = getattr(schema.BuiltinOperator, code)
        entry.deprecatedBuiltinCode = min(entry.builtinCode, 127)
        entry.version = VERSIONS.get(code, 1)
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self._model.operatorCodes)
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if kind:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
            operator.builtinOptions = getattr(schema, f"{kind}T")()
            for name, value in options.items():
                assert hasattr(operator.builtinOptions, name), name
                setattr(operator.builtinOptions, name, value)
        self._model.operatorCodes.append(entry)
        self._graph.operators.append(operator)

    def test(
        self,
        *inputs: int,
        kind: str = "",
        outputs: int = 1,
        dtype: str = "float32",
        **options: Any,
    ) -> None:
        """The operator under test; its outputs are the model's."""
        self.outputs = [self._tensor((), dtype) for _ in range(outputs)]
        self.node(self.operator, inputs, self.outputs, kind, **options)
        self.text = f"{[self._graph.tensors[i].shape for i in inputs if i >= 0]} {options}"

    def file(self, shapes: dict[int, Sequence[int]] | None = None) -> bytes:
        """The file, with the shapes of the tensors that it makes."""
        for number, shape in (shapes or {}).items():
            self._graph.tensors[number].shape = list(shape)
        self._graph.inputs, self._graph.outputs = self.inputs, self.outputs
        self._model.subgraphs = [self._graph, *self._others]
        builder = flatbuffers.Builder(1024)
        builder.Finish(self._model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    @functools.cached_property
    def interpreter(self) -> Interpreter:
        """After a run; its reference kernels, which define what an operator means."""
        kernels = OpResolverType.BUILTIN_REF
        if self.operator in FAST_ONLY:
            kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        interpreter = Interpreter(
            model_content=self.file(), experimental_op_resolver_type=kernels
        )
        interpreter.allocate_tensors()
        for number, array in zip(self.inputs, self.feed, strict=True):
            interpreter.set_tensor(number, array)
        interpreter.invoke()
        return interpreter

    def made(self) -> dict[int, Sequence[int]]:
        """The shapes of the tensors that operators make."""
        numbers = [number for operator in self._graph.operators for number in operator.outputs]
        return {number: self.interpreter.get_tensor(number).shape for number in numbers}
