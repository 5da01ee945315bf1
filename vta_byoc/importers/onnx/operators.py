"""ONNX operators that TVM's importer does not take as they are, or takes apart."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal

import numpy as np
from tvm import relax

from vta_byoc.importers.onnx.exact import EXACT
from vta_byoc.importers.onnx.node import Converter, NodeAttributes, values_of
from vta_byoc.importers.onnx.pooling import explicit_pads, max_pool, pool
from vta_byoc.importers.onnx.qdq import convert_dequantize, convert_quantize
from vta_byoc.importers.onnx.resizing import resize, upsample
from vta_byoc.importers.rearranged import mirrored
from vta_byoc.ir.bindings import is_constant, static_shape


def _clip(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Constant bounds become maximum and minimum; TVM's converter makes opaque functions."""
    bounds = [inputs[i] for i in (1, 2)]
    if bounds == [None, None]:
        bounds = [relax.const(attrs[key], "float32") if key in attrs else None for key in _CLIP]
    if any(bound is not None and not is_constant(bound) for bound in bounds):
        return None
    result = inputs[0]
    for bound, op in zip(bounds, (relax.op.maximum, relax.op.minimum), strict=True):
        if bound is not None and not np.isnan(bound.value.numpy()):
            result = op(result, bound)
    return result


_CLIP: tuple[Literal["min", "max"], ...] = ("min", "max")


def _dropout(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Inference keeps every element, and the mask says so."""
    training = inputs[2]
    if training is not None and (not is_constant(training) or training.value.numpy().any()):
        raise ValueError("its operand training_mode may be true; only inference is imported")
    if attrs["tvm_custom"]["num_outputs"] == 1:
        return inputs[0]
    return relax.Tuple([inputs[0], relax.op.ones_like(inputs[0], "bool")])


LEAST_OF_LAYERS = -2
"""Elements behind the last window of a layer with `auto_pad`, negative: up to two are left out at
the end by all; of more, ONNX Runtime leaves some out at the front."""


def _conv(inputs: list[relax.Expr], attrs: NodeAttributes) -> None:
    """TVM would pad in an opaque function before the layer, and ignores kernel_shape."""
    _check_kernel(inputs[1], attrs)
    explicit_pads(inputs[0], static_shape(inputs[1])[2:], attrs, LEAST_OF_LAYERS)


def _check_kernel(weight: relax.Expr, attrs: NodeAttributes) -> None:
    shape, wanted = static_shape(weight)[2:], tuple(attrs.get("kernel_shape", ()))
    if wanted and wanted != shape:
        raise ValueError(f"kernel_shape is {wanted} and the weights are {shape}")


def _gemm(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Constant weights and bias take alpha, beta and transB; TVM would scale the data."""
    data, weight, bias = inputs[:3]
    alpha, beta = attrs.get("alpha", 1.0), attrs.get("beta", 1.0)
    if not is_constant(weight) or not (bias is None or beta == 1 or is_constant(bias)):
        return None
    matrix = weight.value.numpy()
    matrix = matrix.T if attrs.get("transB") else matrix
    if attrs.get("transA"):
        data = relax.op.permute_dims(data, [1, 0])
    product = relax.op.matmul(data, relax.const(np.ascontiguousarray(matrix * np.float32(alpha))))
    if bias is None:
        return product
    if beta != 1:
        bias = relax.const(bias.value.numpy() * np.float32(beta))
    return relax.op.add(product, bias)


OF_ITS_OWN = ("edge", "reflect", "wrap")
"""Modes of a Pad that repeat elements of the tensor."""


def _pad(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Constant padding stays an operator; padding with values of the tensor takes these.

    TVM's converter makes opaque functions of both; what is not known here is left to it.
    """
    data, mode = inputs[0], attrs.get("mode", b"constant").decode()
    pads = attrs.get("pads") if inputs[1] is None else values_of(inputs[1])
    value = attrs.get("value", 0.0) if inputs[2] is None else values_of(inputs[2])
    axes = range(data.ty.ndim) if inputs[3] is None else values_of(inputs[3])
    if pads is None or axes is None or min(pads, default=0) < 0 or len(pads) != 2 * len(axes):
        return None
    widths = [0] * (2 * data.ty.ndim)
    for number, axis in enumerate(int(axis) % data.ty.ndim for axis in axes):
        widths[2 * axis : 2 * axis + 2] = int(pads[number]), int(pads[number + len(axes)])
    if mode in OF_ITS_OWN:
        return mirrored(lambda call, _part: call, data, static_shape(data), widths, mode)
    if mode != "constant" or value is None:
        return None
    return relax.op.nn.pad(data, widths, "constant", float(np.reshape(value, -1)[0]))


# ---------------------------------------------------------------- transposed convolution
def _conv_transpose(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Pads that follow from output_shape, which TVM ignores; one dimension as a row of two."""
    data, weight, bias = inputs[:3]
    _check_kernel(weight, attrs)
    rank = data.ty.ndim - 2
    if rank not in (1, 2):
        return None
    before, after = _transpose_pads(inputs, attrs, rank)
    if rank == 1:
        data, weight = (relax.op.expand_dims(item, 2) for item in (data, weight))
    result = relax.op.nn.conv2d_transpose(
        data,
        weight,
        strides=[*_ROW[rank][1], *_per_axis(attrs, "strides", 1, rank)],
        padding=[*_ROW[rank][0], *before, *_ROW[rank][0], *after],
        output_padding=[*_ROW[rank][0], *_per_axis(attrs, "output_padding", 0, rank)],
        dilation=[*_ROW[rank][1], *_per_axis(attrs, "dilations", 1, rank)],
        groups=int(attrs.get("group", 1)),
    )
    if bias is not None:
        result = relax.op.add(result, relax.op.reshape(bias, [1, -1, 1, 1]))
    return relax.op.squeeze(result, [2]) if rank == 1 else result


_ROW: dict[int, tuple[list[int], list[int]]] = {1: ([0], [1]), 2: ([], [])}
"""Rank -> no padding and stride 1 for the axes that are missing to two."""


PerAxis = Literal["dilations", "output_padding", "pads", "strides"]


def _per_axis(attrs: NodeAttributes, key: PerAxis, default: int, rank: int) -> list[int]:
    return [int(value) for value in attrs.get(key, [default] * rank)]


def _transpose_pads(
    inputs: list[relax.Expr], attrs: NodeAttributes, rank: int
) -> tuple[list[int], list[int]]:
    """Padding before and after each axis, as the ONNX specification derives it."""
    mode = attrs.get("auto_pad", b"NOTSET").decode()
    if "output_shape" not in attrs and not mode.startswith("SAME"):
        pads = _per_axis(attrs, "pads", 0, 2 * rank) if mode == "NOTSET" else [0] * (2 * rank)
        return pads[:rank], pads[rank:]
    sizes, kernel = static_shape(inputs[0])[2:], static_shape(inputs[1])[2:]
    strides = _per_axis(attrs, "strides", 1, rank)
    wanted = [int(size) for size in attrs.get("output_shape", ())][-rank:]
    wanted = wanted or [size * stride for size, stride in zip(sizes, strides, strict=True)]
    dilations = _per_axis(attrs, "dilations", 1, rank)
    extra = _per_axis(attrs, "output_padding", 0, rank)
    before, after = [], []
    for axis in range(rank):
        whole = strides[axis] * (sizes[axis] - 1) + (kernel[axis] - 1) * dilations[axis] + 1
        total = whole + extra[axis] - wanted[axis]
        if total < 0 and mode.startswith("SAME"):
            total = 0  # a kernel shorter than its stride: ONNX Runtime does not fill the rest
        if total < 0:
            raise ValueError(f"output_shape {wanted[axis]} exceeds the result by {-total}")
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return before, after


# ---------------------------------------------------------------- any number of operands
def _folded(op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Converter:
    """A chain of `op`; TVM would stack all operands and reduce."""

    def convert(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
        operands = [item for item in inputs if item is not None]
        if all(is_constant(item) for item in operands):
            return None
        return functools.reduce(op, operands)

    return convert


def _mean(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    total = _folded(relax.op.add)(inputs, attrs)
    count = sum(item is not None for item in inputs)
    if total is None or count == 1:
        return total
    return relax.op.multiply(total, relax.const(np.float32(1 / count)))


# ---------------------------------------------------------------- attributes of old opsets
def _slice(inputs: list[relax.Expr], attrs: NodeAttributes) -> None:
    """Ranges that are attributes, below opset 10, as the operands they are later."""
    if "starts" in attrs:
        axes = attrs.get("axes", range(len(attrs["starts"])))
        ranges = (attrs["starts"], attrs["ends"], axes)
        inputs[1:] = [relax.const(np.asarray(list(each), "int64")) for each in ranges]


def _topk(inputs: list[relax.Expr], attrs: NodeAttributes) -> None:
    """TVM reads an attribute below opset 11, where opset 10 has an operand."""
    count = None if inputs[1] is None else values_of(inputs[1])
    if count is not None:
        attrs["k"] = int(count.reshape(-1)[0])


def _space_to_depth(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr | None:
    """Mode CRD, channels outside of the blocks' elements, which TVM does not know."""
    if attrs.get("mode", b"DCR") != b"CRD":
        return None
    size, (batch, channels, height, width) = int(attrs["blocksize"]), static_shape(inputs[0])
    rows, columns = height // size, width // size
    blocks = relax.op.reshape(inputs[0], (batch, channels, rows, size, columns, size))
    blocks = relax.op.permute_dims(blocks, [0, 1, 3, 5, 2, 4])
    return relax.op.reshape(blocks, (batch, channels * size * size, rows, columns))


OVERRIDES: dict[str, Converter] = {
    **EXACT,
    "AveragePool": pool,
    "Clip": _clip,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DequantizeLinear": convert_dequantize,
    "Dropout": _dropout,
    "Gemm": _gemm,
    "LpPool": pool,
    "Max": _folded(relax.op.maximum),
    "MaxPool": max_pool,
    "Mean": _mean,
    "Min": _folded(relax.op.minimum),
    "Pad": _pad,
    "QuantizeLinear": convert_quantize,
    "Resize": resize,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Sum": _folded(relax.op.add),
    "TopK": _topk,
    "Upsample": upsample,
}
"""ONNX operator -> our converter; None as its result lets TVM's converter do the work."""
