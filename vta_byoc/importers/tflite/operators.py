"""TFLite operators as float Relax operators on NCHW tensors: one function each, one table.

Layers and reductions are here; what computes each element by itself is in
`importers.tflite.elementwise`, what moves data in `importers.tflite.movement` and, where axes
change their order or number, in `importers.tflite.reordering`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
from tflite import (
    Conv2DOptions,
    DepthwiseConv2DOptions,
    Padding,
    Pool2DOptions,
    TransposeConvOptions,
)
from tvm import relax

from vta_byoc.importers.tflite.constants import as_floats
from vta_byoc.importers.tflite.elementwise import ELEMENTWISE
from vta_byoc.importers.tflite.graph import NCHW, TFLiteGraph, stored_axis
from vta_byoc.importers.tflite.model import TFLiteTensor
from vta_byoc.importers.tflite.movement import MOVES, Converter, activated, inputs_of
from vta_byoc.importers.tflite.reordering import REORDERINGS
from vta_byoc.importers.tflite.spectra import REAL_OF, SPECTRA, is_complex, of_parts


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
    """Constant weights, transposed; integers for float data (dynamic range) as what they stand for.

    Raises:
        VTAError: they are not constant.
    """
    if weight.value is None:
        raise g.error(
            f'has weights "{weight.name}" that are computed while the model runs; weights must be '
            "constants; export the model with them as constants"
        )
    if weight.is_quantized and not data.is_quantized:
        weight = as_floats(weight)
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
    product = _transposed(g, data, weight, [options.StrideH(), options.StrideW()])
    g.store(activated(g, _biased(g, product, 3), options.FusedActivationFunction()))


def _transpose_conv_bias(g: TFLiteGraph) -> None:
    """MediaPipe's operator: TRANSPOSE_CONV with a bias; padding and strides are its options."""
    data, weight = inputs_of(g, 0, 1)
    if len(g.op.custom) < TRANSPOSE_CONV_BIAS.size:
        raise g.error(
            f"has {len(g.op.custom)} bytes of options; it has {TRANSPOSE_CONV_BIAS.size} or more; "
            "download or export the model again"
        )
    _, across, down = TRANSPOSE_CONV_BIAS.unpack_from(g.op.custom)
    if min(across, down) < 1:
        raise g.error(
            f"has strides of {down} rows and {across} columns; both must be at least 1; download "
            "or export the model again"
        )
    g.store(_biased(g, _transposed(g, data, weight, [down, across]), 2))


TRANSPOSE_CONV_BIAS = struct.Struct("<3i")
"""Padding, which the shape of the result tells too, and the strides of columns and rows."""


def _transposed(
    g: TFLiteGraph, data: TFLiteTensor, weight: TFLiteTensor, strides: list[int]
) -> relax.Expr:
    before, after, extra = [], [], []
    for i in (0, 1):
        whole = (data.shape[1 + i] - 1) * strides[i] + weight.shape[1 + i]
        wanted = g.op.outputs[0].shape[1 + i]
        cut = max(whole - wanted, 0)
        before.append(cut // 2)
        after.append(cut - cut // 2)
        extra.append(max(wanted - whole, 0))
    return relax.op.nn.conv2d_transpose(
        g.value(data),
        _weights(g, data, weight, (3, 0, 1, 2)),
        strides=strides,
        padding=[*before, *after],
        output_padding=extra,
    )


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


# ---------------------------------------------------------------- one axis or two
def _softmax(g: TFLiteGraph) -> None:
    (data,) = inputs_of(g, 0)
    beta = float(g.op.options("SoftmaxOptions").Beta())
    value = g.value(data)
    if beta != 1:
        value = g.emit(relax.op.multiply(value, relax.const(np.float32(beta))), "beta")
    g.store(relax.op.nn.softmax(value, stored_axis(len(data.shape), -1)))


def _log_softmax(g: TFLiteGraph) -> None:
    (data,) = inputs_of(g, 0)
    g.store(relax.op.nn.log_softmax(g.value(data), stored_axis(len(data.shape), -1)))


def _l2_normalization(g: TFLiteGraph) -> None:
    """Over the norm of the last axis, which is at least 1e-6."""
    (data,) = inputs_of(g, 0)
    value, axis = g.value(data), stored_axis(len(data.shape), -1)
    squares = g.emit(relax.op.multiply(value, value), "squares")
    total = g.emit(relax.op.sum(squares, [axis], keepdims=True), "total")
    norm = g.emit(relax.op.sqrt(total), "norm")
    norm = g.emit(relax.op.maximum(norm, relax.const(np.float32(1e-6))), "at_least")
    kind = g.op.options("L2NormOptions").FusedActivationFunction()
    g.store(activated(g, relax.op.divide(value, norm), kind))


def _batch_matmul(g: TFLiteGraph) -> None:
    """Matrices on the last two axes, of which either may be transposed."""
    options = g.op.options("BatchMatMulOptions")
    factors = []
    for tensor, turned in zip(inputs_of(g, 0, 1), (options.AdjX(), options.AdjY()), strict=True):
        value = g.plain(tensor)
        if turned:
            order = [*range(len(tensor.shape) - 2), len(tensor.shape) - 1, len(tensor.shape) - 2]
            value = g.emit(relax.op.permute_dims(value, order), "turned")
        factors.append(value)
    g.store_plain(relax.op.matmul(*factors))


def _extreme(op: Callable[..., relax.Expr]) -> Converter:
    """ARG_MAX and ARG_MIN: where on an axis it is, the first one of several."""

    def convert(g: TFLiteGraph) -> None:
        (data,) = inputs_of(g, 0)
        axis = int(g.integers(1).reshape(-1)[0]) % len(data.shape)
        found = g.emit(op(g.plain(data), axis), "found")
        g.store_plain(relax.op.astype(found, g.op.outputs[0].dtype))

    return convert


CONVERTERS: dict[str, Converter] = {
    **MOVES,
    **REORDERINGS,
    **ELEMENTWISE,
    **SPECTRA,
    "ARG_MAX": _extreme(relax.op.argmax),
    "ARG_MIN": _extreme(relax.op.argmin),
    "AVERAGE_POOL_2D": _pool(relax.op.nn.avg_pool2d),
    "BATCH_MATMUL": _batch_matmul,
    "CONV_2D": _conv2d,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _fully_connected,
    "L2_NORMALIZATION": _l2_normalization,
    "LOG_SOFTMAX": _log_softmax,
    "MAX_POOL_2D": _pool(relax.op.nn.max_pool2d),
    "MEAN": _reduction(relax.op.mean),
    "REDUCE_MAX": _reduction(relax.op.max),
    "REDUCE_MIN": _reduction(relax.op.min),
    "REDUCE_PROD": _reduction(relax.op.prod),
    "SOFTMAX": _softmax,
    "SUM": _reduction(relax.op.sum),
    "TRANSPOSE_CONV": _transpose_conv,
}
"""TFLite operator -> converter. A new operator is one entry; those that are computed of constants
only are in `importers.tflite.constants`."""
CUSTOM: dict[str, Converter] = {"custom Convolution2DTransposeBias": _transpose_conv_bias}
"""Operators that TFLite itself does not have -> converter."""


def convert(g: TFLiteGraph) -> None:
    """Write the operator of the graph.

    Raises:
        VTAError: it is not supported, or not as it is.
    """
    code = g.op.code
    if code in CUSTOM:
        CUSTOM[code](g)
        return
    if code not in CONVERTERS:
        raise g.error(
            f"is not supported; {len(CONVERTERS)} TFLite operators are; export the model "
            "without it or cut the model before it"
        )
    if not is_complex(g):
        CONVERTERS[code](g)
    elif code in REAL_OF:
        REAL_OF[code](g)
    elif code in MOVES or code in REORDERINGS:
        of_parts(g, CONVERTERS[code])
    else:
        raise g.error(
            "computes with complex numbers; they can be moved, and their parts and magnitudes "
            "taken; use their parts"
        )
