"""TFLite operators as float Relax operators on NCHW tensors: one function each, one table.

Operators that compute are here, operators that move data in `importers.tflite.movement`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tflite import (
    ActivationFunctionType,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    Padding,
    Pool2DOptions,
    TransposeConvOptions,
)
from tvm import relax

from vta_byoc.importers.tflite.graph import NCHW, TFLiteGraph, stored_axis
from vta_byoc.importers.tflite.model import TFLiteTensor
from vta_byoc.importers.tflite.movement import ACTIVATIONS, MOVES, Converter, activated, inputs_of


def _window(
    options: Conv2DOptions | DepthwiseConv2DOptions | Pool2DOptions | TransposeConvOptions,
    kernel: tuple[int, ...],
    size: tuple[int, ...],
) -> dict[str, list[int]]:
    """Strides, dilation and padding (top, left, bottom, right) of a window on a plane."""
    strides = [options.StrideH(), options.StrideW()]
    has_dilation = hasattr(options, "DilationHFactor")
    dilation = [options.DilationHFactor(), options.DilationWFactor()] if has_dilation else [1, 1]
    before, after = [0, 0], [0, 0]
    if options.Padding() == Padding.SAME:
        for i in range(2):
            extent = (kernel[i] - 1) * dilation[i] + 1
            total = max((-(-size[i] // strides[i]) - 1) * strides[i] + extent - size[i], 0)
            before[i], after[i] = total // 2, total - total // 2
    return {"strides": strides, "dilation": dilation, "padding": [*before, *after]}


# ---------------------------------------------------------------- layers with weights
def _weights(
    g: TFLiteGraph, data: TFLiteTensor, weight: TFLiteTensor, order: tuple[int, ...]
) -> relax.Expr:
    """Constant weights, transposed.

    Raises:
        VTAError: they are not constant, or are integers for float data.
    """
    if weight.value is None:
        raise g.error(
            f'has weights "{weight.name}" that are computed while the model runs; weights must be '
            "constants; export the model with them as constants"
        )
    if weight.is_quantized and not data.is_quantized:
        raise g.error(
            f'has float data "{data.name}" and {weight.dtype} weights (dynamic range '
            "quantization); both must be integers or both floats; convert the model with a "
            "representative data set (full integer quantization)"
        )
    return g.constant(weight, order)


def _biased(g: TFLiteGraph, value: relax.Expr, position: int, plane: bool = True) -> relax.Expr:
    """`value` plus the bias of its channels at `position`, if there is one.

    Args:
        g: the graph; its operator has the bias.
        value: what the bias is added to.
        position: of the bias among the inputs of the operator.
        plane: whether the channels are axis 1 of 4, else the last.
    """
    bias = g.op.inputs[position] if len(g.op.inputs) > position else None
    if bias is None:
        return value
    if bias.value is None:
        raise g.error(
            f'has a bias "{bias.name}" that is computed while the model runs; it must be constant; '
            "export the model with it as a constant"
        )
    value = g.emit(value, "product")
    if not plane:
        return relax.op.add(value, g.constant(bias))
    return relax.op.add(value, g.constant(bias, NCHW, (1, 1, 1, *bias.shape)))


def _conv2d(g: TFLiteGraph) -> None:
    data, weight = inputs_of(g, 0, 1)
    options = g.op.options("Conv2DOptions")
    _, height, width, channels = data.shape
    _, *kernel, inputs = weight.shape
    product = relax.op.nn.conv2d(
        g.value(data),
        _weights(g, data, weight, (0, 3, 1, 2)),
        groups=channels // inputs,
        **_window(options, tuple(kernel), (height, width)),
    )
    g.store(activated(g, _biased(g, product, 2), options.FusedActivationFunction()))


def _depthwise(g: TFLiteGraph) -> None:
    """Weights (1, KH, KW, C * M): output c * M + m reads channel c."""
    data, weight = inputs_of(g, 0, 1)
    options = g.op.options("DepthwiseConv2DOptions")
    _, height, width, channels = data.shape
    product = relax.op.nn.conv2d(
        g.value(data),
        _weights(g, data, weight, (3, 0, 1, 2)),
        groups=channels,
        **_window(options, weight.shape[1:3], (height, width)),
    )
    g.store(activated(g, _biased(g, product, 2), options.FusedActivationFunction()))


def _transpose_conv(g: TFLiteGraph) -> None:
    """Weights (O, KH, KW, I); the shape of the result decides how much is cut off."""
    weight, data = inputs_of(g, 1, 2)
    options = g.op.options("TransposeConvOptions")
    strides = [options.StrideH(), options.StrideW()]
    before, after, extra = [], [], []
    for i in (0, 1):
        whole = (data.shape[1 + i] - 1) * strides[i] + weight.shape[1 + i]
        wanted = g.op.outputs[0].shape[1 + i]
        cut = max(whole - wanted, 0)
        before.append(cut // 2)
        after.append(cut - cut // 2)
        extra.append(max(wanted - whole, 0))
    product = relax.op.nn.conv2d_transpose(
        g.value(data),
        _weights(g, data, weight, (3, 0, 1, 2)),
        strides=strides,
        padding=[*before, *after],
        output_padding=extra,
    )
    g.store(activated(g, _biased(g, product, 3), options.FusedActivationFunction()))


def _fully_connected(g: TFLiteGraph) -> None:
    data, weight = inputs_of(g, 0, 1)
    options = g.op.options("FullyConnectedOptions")
    depth = weight.shape[1]
    value = g.plain(data)
    if not options.KeepNumDims() and len(data.shape) != 2:
        value = g.emit(relax.op.reshape(value, [-1, depth]), "rows")
    product = relax.op.matmul(value, _weights(g, data, weight, (1, 0)))
    result = activated(g, _biased(g, product, 2, plane=False), options.FusedActivationFunction())
    g.store_plain(result)


# ---------------------------------------------------------------- two tensors
def _binary(op: Callable[..., relax.Expr], kind: str = "") -> Converter:
    def convert(g: TFLiteGraph) -> None:
        rank = len(g.op.outputs[0].shape)
        operands = [_operand(g, tensor, rank) for tensor in inputs_of(g, 0, 1)]
        activation = g.op.options(kind).FusedActivationFunction() if kind else 0
        g.store(activated(g, op(*operands), activation))

    return convert


def _operand(g: TFLiteGraph, tensor: TFLiteTensor, rank: int) -> relax.Expr:
    """A tensor that broadcasts to `rank` axes: missing ones are in front, in the file's order."""
    if rank != 4 or len(tensor.shape) in (0, 4):
        return g.value(tensor)
    shape = (1,) * (4 - len(tensor.shape)) + tensor.shape
    if tensor.value is not None:
        return g.constant(tensor, NCHW, shape)
    value = g.emit(relax.op.reshape(g.value(tensor), shape), "operand")
    return g.emit(relax.op.permute_dims(value, NCHW), "operand")


# ---------------------------------------------------------------- pools and reductions
def _pool(op: Callable[..., relax.Expr]) -> Converter:
    def convert(g: TFLiteGraph) -> None:
        (data,) = inputs_of(g, 0)
        options = g.op.options("Pool2DOptions")
        kernel = (options.FilterHeight(), options.FilterWidth())
        window = _window(options, kernel, data.shape[1:3])
        pooled = op(g.value(data), pool_size=kernel, count_include_pad=False, **window)
        g.store(activated(g, pooled, options.FusedActivationFunction()))

    return convert


def _reduction(op: Callable[..., relax.Expr]) -> Converter:
    def convert(g: TFLiteGraph) -> None:
        (data,) = inputs_of(g, 0)
        rank = len(data.shape)
        axes = sorted(stored_axis(rank, int(axis)) for axis in g.integers(1).reshape(-1))
        value = op(g.value(data), axes, keepdims=True)
        if g.op.options("ReducerOptions").KeepDims():
            g.store(value)
            return
        kept = g.emit(value, "kept")
        if rank == 4:
            kept = g.in_order(kept)
        g.store_plain(relax.op.reshape(kept, g.op.outputs[0].shape))

    return convert


# ---------------------------------------------------------------- one tensor
def _unary(op: Callable[[relax.Expr], relax.Expr]) -> Converter:
    def convert(g: TFLiteGraph) -> None:
        g.store(op(g.value(*inputs_of(g, 0))))

    return convert


def _leaky_relu(g: TFLiteGraph) -> None:
    alpha = float(g.op.options("LeakyReluOptions").Alpha())
    g.store(relax.op.nn.leakyrelu(g.value(*inputs_of(g, 0)), alpha))


def _prelu(g: TFLiteGraph) -> None:
    """The slopes broadcast, as the operand of an addition does."""
    rank = len(g.op.outputs[0].shape)
    data, slope = (_operand(g, tensor, rank) for tensor in inputs_of(g, 0, 1))
    below = g.emit(relax.op.minimum(data, relax.const(np.float32(0))), "below")
    scaled = g.emit(relax.op.multiply(below, slope), "scaled")
    above = g.emit(relax.op.nn.relu(data), "above")
    g.store(relax.op.add(above, scaled))


def _softmax(g: TFLiteGraph) -> None:
    (data,) = inputs_of(g, 0)
    beta = float(g.op.options("SoftmaxOptions").Beta())
    value = g.value(data)
    if beta != 1:
        value = g.emit(relax.op.multiply(value, relax.const(np.float32(beta))), "beta")
    g.store(relax.op.nn.softmax(value, stored_axis(len(data.shape), -1)))


def _hard_swish(g: TFLiteGraph) -> None:
    value = g.value(*inputs_of(g, 0))
    shifted = g.emit(relax.op.add(value, relax.const(np.float32(3))), "shifted")
    gate = g.emit(relax.op.clip(shifted, 0, 6), "gate")
    product = g.emit(relax.op.multiply(value, gate), "product")
    g.store(relax.op.multiply(product, relax.const(np.float32(1 / 6))))


def _keep(g: TFLiteGraph) -> None:
    """QUANTIZE and DEQUANTIZE: the numbers stay, `value` and `store` change how they are held."""
    (data,) = inputs_of(g, 0)
    g.store(g.value(data))


CONVERTERS: dict[str, Converter] = {
    **MOVES,
    "ABS": _unary(relax.op.abs),
    "ADD": _binary(relax.op.add, "AddOptions"),
    "AVERAGE_POOL_2D": _pool(relax.op.nn.avg_pool2d),
    "CONV_2D": _conv2d,
    "DEPTHWISE_CONV_2D": _depthwise,
    "DEQUANTIZE": _keep,
    "DIV": _binary(relax.op.divide, "DivOptions"),
    "EXP": _unary(relax.op.exp),
    "FULLY_CONNECTED": _fully_connected,
    "HARD_SWISH": _hard_swish,
    "LEAKY_RELU": _leaky_relu,
    "LOGISTIC": _unary(relax.op.sigmoid),
    "MAXIMUM": _binary(relax.op.maximum),
    "MAX_POOL_2D": _pool(relax.op.nn.max_pool2d),
    "MEAN": _reduction(relax.op.mean),
    "MINIMUM": _binary(relax.op.minimum),
    "MUL": _binary(relax.op.multiply, "MulOptions"),
    "NEG": _unary(relax.op.negative),
    "PRELU": _prelu,
    "QUANTIZE": _keep,
    "REDUCE_MAX": _reduction(relax.op.max),
    "REDUCE_MIN": _reduction(relax.op.min),
    "RELU": _unary(relax.op.nn.relu),
    "RELU6": _unary(ACTIVATIONS[ActivationFunctionType.RELU6]),
    "RELU_N1_TO_1": _unary(ACTIVATIONS[ActivationFunctionType.RELU_N1_TO_1]),
    "SOFTMAX": _softmax,
    "SUB": _binary(relax.op.subtract, "SubOptions"),
    "SUM": _reduction(relax.op.sum),
    "TANH": _unary(relax.op.tanh),
    "TRANSPOSE_CONV": _transpose_conv,
}
"""TFLite operator -> converter. A new operator is one entry."""
