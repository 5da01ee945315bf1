"""Cases for every operator of the TFLite importer: files with one operator, against LiteRT.

A generator writes the operator with a `Lite`; the shapes of its results are those that the
interpreter computes.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from importer_draws import Case, Draw

TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "int8": schema.TensorType.INT8,
    "int32": schema.TensorType.INT32,
}
ACTIVATIONS = (
    schema.ActivationFunctionType.NONE,
    schema.ActivationFunctionType.RELU,
    schema.ActivationFunctionType.RELU6,
    schema.ActivationFunctionType.RELU_N1_TO_1,
)
Generator = Callable[["Lite"], None]


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
        self._graph = schema.SubGraphT()
        self._graph.tensors, self._graph.operators = [], []

    def _tensor(self, shape: Sequence[int], dtype: str, buffer: int = 0) -> int:
        tensor = schema.TensorT()
        tensor.shape, tensor.type, tensor.buffer = list(shape), TYPES[dtype], buffer
        tensor.name = f"t{len(self._graph.tensors)}".encode()
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1

    def tensor(self, shape: Sequence[int], low: float = -4, high: float = 4) -> int:
        """A float32 input of the model."""
        self.feed.append(self.floats(shape, low, high))
        self.inputs.append(self._tensor(shape, "float32"))
        return self.inputs[-1]

    def const(self, value: Any, dtype: str = "int32") -> int:
        array = np.asarray(value, dtype)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(array.tobytes(), "uint8")
        self._model.buffers.append(buffer)
        return self._tensor(array.shape, dtype, len(self._model.buffers) - 1)

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
        entry.deprecatedBuiltinCode, entry.version = min(entry.builtinCode, 127), 1
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

    def test(self, *inputs: int, kind: str = "", outputs: int = 1, **options: Any) -> None:
        """The operator under test; its outputs are the model's."""
        self.outputs = [self._tensor((), "float32") for _ in range(outputs)]
        self.node(self.operator, inputs, self.outputs, kind, **options)
        self.text = f"{[self._graph.tensors[i].shape for i in inputs if i >= 0]} {options}"

    def file(self, shapes: dict[int, Sequence[int]] | None = None) -> bytes:
        """The file, with the shapes of the tensors that it makes."""
        for number, shape in (shapes or {}).items():
            self._graph.tensors[number].shape = list(shape)
        self._graph.inputs, self._graph.outputs = self.inputs, self.outputs
        self._model.subgraphs = [self._graph]
        builder = flatbuffers.Builder(1024)
        builder.Finish(self._model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    @functools.cached_property
    def interpreter(self) -> Interpreter:
        """After a run; its reference kernels, which define what an operator means."""
        interpreter = Interpreter(
            model_content=self.file(),
            experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
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


# ---------------------------------------------------------------- families
def unary(low: float = -4, high: float = 4, kind: str = "", **drawn: Any) -> Generator:
    def generate(g: Lite) -> None:
        options = {key: g.pick(*values) for key, values in drawn.items()}
        g.test(g.tensor(g.shape(1), low, high), kind=kind, **options)

    return generate


def binary(kind: str = "", low_right: float = -4) -> Generator:
    def generate(g: Lite) -> None:
        shape = g.shape(1)
        other = g.broadcast(shape) or (1,)
        options = {"fusedActivationFunction": g.pick(*ACTIVATIONS)} if kind else {}
        x = g.tensor(shape)
        values = g.floats(other, low_right)
        y = g.const(values, "float32") if g.flag() else g.tensor(other, low_right)
        g.test(*((y, x) if g.flag() and low_right < 0 else (x, y)), kind=kind, **options)

    return generate


def reduction(g: Lite) -> None:
    shape = g.shape(1)
    axes = g.const(g.axes(len(shape)))
    g.test(g.tensor(shape), axes, kind="ReducerOptions", keepDims=g.flag())


def _image(g: Lite, channels: int = 0, low: int = 4) -> tuple[int, ...]:
    return (g.size(1, 2), g.size(low, 8), g.size(low, 8), channels or g.size(1, 4))


def _window(g: Lite) -> dict[str, Any]:
    return {
        "padding": g.pick(schema.Padding.SAME, schema.Padding.VALID),
        "strideH": g.size(1, 3),
        "strideW": g.size(1, 3),
        "fusedActivationFunction": g.pick(*ACTIVATIONS),
    }


def _dilated(g: Lite) -> dict[str, Any]:
    window = _window(g)
    if g.flag():
        window |= {"strideH": 1, "strideW": 1}
        window |= {"dilationHFactor": g.size(1, 2), "dilationWFactor": g.size(1, 2)}
    else:
        window |= {"dilationHFactor": 1, "dilationWFactor": 1}
    return window


def conv(g: Lite) -> None:
    groups, outputs = g.size(1, 2), g.size(1, 3)
    depth = g.size(1, 3)
    weight = g.weights(groups * outputs, g.size(1, 3), g.size(1, 3), depth)
    bias = g.weights(groups * outputs)
    g.test(
        g.tensor(_image(g, groups * depth, 6)), weight, bias, kind="Conv2DOptions", **_dilated(g)
    )


def depthwise(g: Lite) -> None:
    channels, times = g.size(1, 4), g.size(1, 2)
    weight = g.weights(1, g.size(1, 3), g.size(1, 3), channels * times)
    options = _dilated(g) | {"depthMultiplier": times}
    bias = g.weights(channels * times)
    g.test(g.tensor(_image(g, channels, 6)), weight, bias, kind="DepthwiseConv2DOptions", **options)


def transpose_conv(g: Lite) -> None:
    options = _window(g) | {"fusedActivationFunction": ACTIVATIONS[0]}
    shape, outputs = _image(g, low=2), g.size(1, 3)
    kernel = [g.size(1, 3), g.size(1, 3)]
    strides = (options["strideH"], options["strideW"])
    if options["padding"] == schema.Padding.SAME:
        size = [n * s - g.size(0, s - 1) for n, s in zip(shape[1:3], strides, strict=True)]
    else:
        size = [
            (n - 1) * s + k + g.size(0, s - 1)
            for n, s, k in zip(shape[1:3], strides, kernel, strict=True)
        ]
    wanted = g.const([shape[0], *size, outputs])
    weight = g.weights(outputs, *kernel, shape[3])
    g.test(wanted, weight, g.tensor(shape), kind="TransposeConvOptions", **options)


def pool(g: Lite) -> None:
    sizes = {"filterHeight": g.size(1, 3), "filterWidth": g.size(1, 3)}
    g.test(g.tensor(_image(g)), kind="Pool2DOptions", **_window(g), **sizes)


def fully_connected(g: Lite) -> None:
    depth, outputs = g.size(), g.size()
    keep = g.flag()
    outer = g.shape(1, 3)
    options = {"fusedActivationFunction": g.pick(*ACTIVATIONS), "keepNumDims": keep}
    bias = g.pick(-1, g.weights(outputs))
    weight = g.weights(outputs, depth)
    g.test(g.tensor((*outer, depth)), weight, bias, kind="FullyConnectedOptions", **options)


def softmax(g: Lite) -> None:
    g.test(g.tensor(g.shape(1)), kind="SoftmaxOptions", beta=g.pick(1.0, 0.5, 2.0))


def prelu(g: Lite) -> None:
    shape = g.shape(1)
    g.test(g.tensor(shape), g.weights(*(g.broadcast(shape) or (1,))))


def quantization(g: Lite) -> None:
    """Both, one behind the other."""
    x = g.tensor(g.shape(1))
    q = g.quantized(0.05, g.size(-9, 9))
    g.node("QUANTIZE", [x], [q], "QuantizeOptions")
    g.outputs = [g._tensor((), "float32")]
    g.node("DEQUANTIZE", [q], g.outputs, "DequantizeOptions")


# ---------------------------------------------------------------- movement
def reshape(g: Lite) -> None:
    shape = g.shape(1)
    wanted = [*shape[1:], shape[0]]
    wanted[g.size(0, len(wanted) - 1)] = -1
    g.test(g.tensor(shape), g.const(wanted), kind="ReshapeOptions", newShape=wanted)


def expand_dims(g: Lite) -> None:
    shape = g.shape(1, 3)
    g.test(g.tensor(shape), g.const(g.axis(len(shape) + 1)), kind="ExpandDimsOptions")


def squeeze(g: Lite) -> None:
    shape = [g.pick(1, size) for size in g.shape(1)]
    ones = [axis - g.pick(0, len(shape)) for axis, size in enumerate(shape) if size == 1]
    g.test(g.tensor(shape), kind="SqueezeOptions", squeezeDims=ones[: g.size(0, len(ones))])


def transpose(g: Lite) -> None:
    shape = g.shape(1)
    g.test(g.tensor(shape), g.const(g.rng.permutation(len(shape))), kind="TransposeOptions")


def concatenation(g: Lite) -> None:
    shape = list(g.shape(1))
    axis = g.axis(len(shape))
    parts = []
    for _ in range(g.size(1, 3)):
        shape[axis] = g.size()
        parts.append(g.tensor(shape))
    fused = ACTIVATIONS[0]
    g.test(*parts, kind="ConcatenationOptions", axis=axis, fusedActivationFunction=fused)


def split(g: Lite) -> None:
    shape = list(g.shape(1))
    axis, count = g.axis(len(shape)), g.size(1, 3)
    shape[axis] *= count
    x = g.tensor(shape)
    g.test(g.const(axis), x, kind="SplitOptions", outputs=count, numSplits=count)


def split_v(g: Lite) -> None:
    shape = list(g.shape(1))
    axis = g.axis(len(shape))
    parts = [g.size() for _ in range(g.size(1, 3))]
    shape[axis] = sum(parts)
    if g.flag():
        parts[-1] = -1
    count = len(parts)
    x = g.tensor(shape)
    g.test(x, g.const(parts), g.const(axis), kind="SplitVOptions", outputs=count, numSplits=count)


def pad(g: Lite) -> None:
    shape = g.shape(1)
    widths = g.const([[g.size(0, 2), g.size(0, 2)] for _ in shape])
    value = [g.const(1.5, "float32")] if g.operator == "PADV2" else []
    g.test(g.tensor(shape), widths, *value, kind=f"Pad{'V2' if value else ''}Options")


def slice_(g: Lite) -> None:
    shape = g.shape(1)
    begin = [g.size(0, size - 1) for size in shape]
    size = [g.pick(-1, g.size(1, n - b)) for n, b in zip(shape, begin, strict=True)]
    g.test(g.tensor(shape), g.const(begin), g.const(size), kind="SliceOptions")


def strided_slice(g: Lite) -> None:
    shape = g.shape(1)
    begin = [g.size(-size, size - 1) for size in shape]
    step = [g.pick(1, 1, 1, 1, 2, 2, -1) for _ in shape]
    end = [g.size(-7, 7) for _ in shape]
    bits = (1 << len(shape)) - 1
    options = {
        "beginMask": g.size(0, bits),
        "endMask": g.size(0, bits),
        "shrinkAxisMask": g.pick(0, 0, g.size(0, bits)),
        "ellipsisMask": 0,
        "newAxisMask": 0,
    }
    limits = [g.const(values) for values in (begin, end, step)]
    g.test(g.tensor(shape), *limits, kind="StridedSliceOptions", **options)


def resize(g: Lite) -> None:
    corners, centers = g.pick((False, False), (True, False), (False, True))
    kind = "Bilinear" if "BILINEAR" in g.operator else "NearestNeighbor"
    size = g.const([g.size(1, 9), g.size(1, 9)])
    options = {"alignCorners": corners, "halfPixelCenters": centers}
    g.test(g.tensor(_image(g, low=1)), size, kind=f"Resize{kind}Options", **options)


CASES: dict[str, Generator] = {
    "ABS": unary(),
    "ADD": binary("AddOptions"),
    "AVERAGE_POOL_2D": pool,
    "CONCATENATION": concatenation,
    "CONV_2D": conv,
    "DEPTHWISE_CONV_2D": depthwise,
    "DEQUANTIZE": quantization,
    "DIV": binary("DivOptions", 0.5),
    "EXP": unary(),
    "EXPAND_DIMS": expand_dims,
    "FULLY_CONNECTED": fully_connected,
    "HARD_SWISH": unary(),
    "LEAKY_RELU": unary(-4, 4, "LeakyReluOptions", alpha=(0.1, 0.3, 1.5)),
    "LOGISTIC": unary(-20, 20),
    "MAXIMUM": binary(),
    "MAX_POOL_2D": pool,
    "MEAN": reduction,
    "MINIMUM": binary(),
    "MUL": binary("MulOptions"),
    "NEG": unary(),
    "PAD": pad,
    "PADV2": pad,
    "PRELU": prelu,
    "QUANTIZE": quantization,
    "REDUCE_MAX": reduction,
    "REDUCE_MIN": reduction,
    "RELU": unary(),
    "RELU6": unary(-4, 9),
    "RELU_N1_TO_1": unary(),
    "RESHAPE": reshape,
    "RESIZE_BILINEAR": resize,
    "RESIZE_NEAREST_NEIGHBOR": resize,
    "SLICE": slice_,
    "SOFTMAX": softmax,
    "SPLIT": split,
    "SPLIT_V": split_v,
    "SQUEEZE": squeeze,
    "STRIDED_SLICE": strided_slice,
    "SUB": binary("SubOptions"),
    "SUM": reduction,
    "TANH": unary(),
    "TRANSPOSE": transpose,
    "TRANSPOSE_CONV": transpose_conv,
}
"""TFLite operator -> generator."""


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="importer-cases-"))


def case(name: str, number: int, seed: int = 0) -> Case:
    """Draw `number` of the operator `name`."""
    g = Lite(name, seed, number, *name.encode())
    CASES[name](g)

    def model() -> Path:
        path = _folder() / f"{name}-{number}.tflite"
        path.write_bytes(g.file(g.made()))
        return path

    def expected() -> list[np.ndarray]:
        return [g.interpreter.get_tensor(number) for number in g.outputs]

    return Case(name, model, g.feed, expected, f"draw {number}: {g.text}")
