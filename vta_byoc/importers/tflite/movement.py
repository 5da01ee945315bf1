"""TFLite operators that move data, and what all operators share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tflite import ActivationFunctionType
from tvm import relax

from vta_byoc.importers.tflite.graph import TFLiteGraph, stored_axis
from vta_byoc.importers.tflite.model import TFLiteTensor
from vta_byoc.importers.tflite.strided import Part, parts_of

Converter = Callable[[TFLiteGraph], None]


def inputs_of(g: TFLiteGraph, *positions: int) -> list[TFLiteTensor]:
    """The tensors that must be there."""
    found = [g.op.inputs[i] if i < len(g.op.inputs) else None for i in positions]
    if any(tensor is None for tensor in found):
        raise g.error(f"lacks one of its inputs {positions}; convert the model again")
    return [tensor for tensor in found if tensor is not None]


def activated(g: TFLiteGraph, value: relax.Expr, kind: int) -> relax.Expr:
    """The activation that is fused into an operator."""
    if kind == ActivationFunctionType.NONE:
        return value
    function = ACTIVATIONS.get(kind)
    if function is None:
        raise g.error(
            f"has the fused activation {kind}; relu, relu6, relu_n1_to_1 and tanh can be imported; "
            "use one of these"
        )
    return function(g.emit(value, "linear"))


ACTIVATIONS: dict[int, Callable[[relax.Expr], relax.Expr]] = {
    ActivationFunctionType.RELU: relax.op.nn.relu,
    ActivationFunctionType.RELU6: lambda x: relax.op.clip(x, 0, 6),
    ActivationFunctionType.RELU_N1_TO_1: lambda x: relax.op.clip(x, -1, 1),
    ActivationFunctionType.TANH: relax.op.tanh,
}


# ---------------------------------------------------------------- movement
def _reshape(g: TFLiteGraph) -> None:
    """RESHAPE, SQUEEZE and EXPAND_DIMS; the file knows the shape of the result."""
    g.store_plain(relax.op.reshape(g.plain(*inputs_of(g, 0)), g.op.outputs[0].shape))


def _transpose(g: TFLiteGraph) -> None:
    order = [int(axis) for axis in g.integers(1)]
    g.store_plain(relax.op.permute_dims(g.plain(*inputs_of(g, 0)), order))


def _concatenation(g: TFLiteGraph) -> None:
    options = g.op.options("ConcatenationOptions")
    values = [g.value(tensor) for tensor in inputs_of(g, *range(len(g.op.inputs)))]
    axis = stored_axis(len(g.op.outputs[0].shape), options.Axis())
    value = relax.op.concat(values, axis)
    g.store(activated(g, value, options.FusedActivationFunction()))


def _split(g: TFLiteGraph) -> None:
    (data,) = inputs_of(g, 1)
    _pieces(g, data, int(g.integers(0).reshape(-1)[0]))


def _split_v(g: TFLiteGraph) -> None:
    (data,) = inputs_of(g, 0)
    _pieces(g, data, int(g.integers(2).reshape(-1)[0]))


def _pieces(g: TFLiteGraph, data: TFLiteTensor, axis: int) -> None:
    value, start = g.value(data), 0
    stored = stored_axis(len(data.shape), axis)
    for i, tensor in enumerate(g.op.outputs):
        end = start + tensor.shape[axis]
        g.store(relax.op.strided_slice(value, [stored], [start], [end]), i)
        start = end


def _pad(g: TFLiteGraph) -> None:
    (data,) = inputs_of(g, 0)
    widths = stored_widths(len(data.shape), g.integers(1))
    g.store(relax.op.nn.pad(g.value(data), widths, "constant", _pad_value(g)))


def stored_widths(rank: int, pairs: np.ndarray) -> list[int]:
    """Of a padding: before and after each axis, in the order in which they are held."""
    widths = [0] * (2 * rank)
    for axis in range(rank):
        at = 2 * stored_axis(rank, axis)
        widths[at : at + 2] = [int(width) for width in pairs[axis]]
    return widths


def _pad_value(g: TFLiteGraph) -> float:
    if len(g.op.inputs) < 3:
        return 0.0
    (filling,) = inputs_of(g, 2)
    number = float(g.integers(2).reshape(-1)[0])
    if not filling.is_quantized:
        return number
    q = filling.quantization()
    return float(np.float32(number - float(q.zero)) * np.float32(q.scale))


def _slice(g: TFLiteGraph) -> None:
    (data,) = inputs_of(g, 0)
    begin, sizes = g.integers(1).tolist(), g.integers(2).tolist()
    rank = len(data.shape)
    axes = [stored_axis(rank, axis) for axis in range(rank)]
    end = [
        whole if size < 0 else start + size
        for whole, start, size in zip(data.shape, begin, sizes, strict=True)
    ]
    g.store(relax.op.strided_slice(g.value(data), axes, begin, end))


def _picked(g: TFLiteGraph, axis: int, size: int, part: Part) -> range:
    """The indices that a slice takes of an axis: one or more, all inside it."""
    begin, end, step, shrink = part.begin, part.end, part.step, part.shrinks
    if not step or (shrink and step < 0):
        raise g.error(
            f"has a step of {step} on axis {axis}; a slice goes on or back, one element only on; "
            "correct the step"
        )
    begin = 0 if part.from_start and step > 0 else begin
    if shrink and -size <= begin < size:
        return range(begin % size, begin % size + 1)
    start = None if part.from_start and step < 0 else begin
    indices = range(*slice(start, None if part.to_end else end, step).indices(size))
    if shrink or not indices:
        raise g.error(
            f"takes no element from {begin} to {end} of axis {axis}, which has {size}; a tensor "
            "must have elements; correct the limits"
        )
    return indices


def _strided_slice(g: TFLiteGraph) -> None:
    """The elements of each axis (`parts_of`); axes that are dropped or new are a reshape."""
    (data,) = inputs_of(g, 0)
    options = g.op.options("StridedSliceOptions")
    begin, end, step = ([int(v) for v in g.integers(i)] for i in (1, 2, 3))
    if options.Offset():
        end = [first + count for first, count in zip(begin, end, strict=True)]
    parts = parts_of(options, begin, end, step, len(data.shape))
    if parts is None:
        raise g.error(
            f"has {len(begin)} entries for {len(data.shape)} axes, with the masks "
            f"{options.EllipsisMask():b} of ellipses and {options.NewAxisMask():b} of new axes; "
            "one ellipsis at most, and an entry for each axis at most, can be imported; slice "
            "every axis explicitly"
        )
    taken = [part for part in parts if part is not None]
    sizes = zip(data.shape, taken, strict=True)
    picked = [_picked(g, axis, size, part) for axis, (size, part) in enumerate(sizes)]
    value = _sliced(g, g.value(data), len(data.shape), picked)
    if len(taken) == len(parts) and not any(part.shrinks for part in taken):
        g.store(value)
        return
    value = g.emit(value, "slice")
    if len(data.shape) == 4:
        value = g.in_order(value)
    g.store_plain(relax.op.reshape(value, g.op.outputs[0].shape))


def _sliced(g: TFLiteGraph, value: relax.Expr, rank: int, picked: Sequence[range]) -> relax.Expr:
    """The elements at the indices of each axis; those that go back are named one by one."""
    onward = {stored_axis(rank, i): each for i, each in enumerate(picked) if each.step > 0}
    back = {stored_axis(rank, i): each for i, each in enumerate(picked) if each.step < 0}
    for axis, indices in back.items():
        listed = relax.const(np.array(indices, "int64"), "int64")
        value = g.emit(relax.op.take(value, listed, axis), "back")
    begin, end = [each.start for each in onward.values()], [each.stop for each in onward.values()]
    steps = [each.step for each in onward.values()]
    return relax.op.strided_slice(value, list(onward), begin, end, steps) if onward else value


def _resize(method: str, kind: str) -> Converter:
    def convert(g: TFLiteGraph) -> None:
        (data,) = inputs_of(g, 0)
        options = g.op.options(kind)
        mode, rounding = "asymmetric", "floor"
        if options.AlignCorners():
            mode, rounding = "align_corners", "round_prefer_ceil"
        elif options.HalfPixelCenters():
            mode = "tf_half_pixel_for_nn" if method == "nearest_neighbor" else "half_pixel"
        resized = relax.op.image.resize2d(
            g.value(data),
            relax.ShapeExpr(list(g.op.outputs[0].shape[1:3])),
            layout="NCHW",
            method=method,
            coordinate_transformation_mode=mode,
            rounding_method=rounding if method == "nearest_neighbor" else "",
        )
        g.store(resized)

    return convert


MOVES: dict[str, Converter] = {
    "CONCATENATION": _concatenation,
    "EXPAND_DIMS": _reshape,
    "PAD": _pad,
    "PADV2": _pad,
    "RESHAPE": _reshape,
    "RESIZE_BILINEAR": _resize("linear", "ResizeBilinearOptions"),
    "RESIZE_NEAREST_NEIGHBOR": _resize("nearest_neighbor", "ResizeNearestNeighborOptions"),
    "SLICE": _slice,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "SQUEEZE": _reshape,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": _transpose,
}
"""TFLite operator -> converter."""
