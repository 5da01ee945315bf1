"""ONNX's own operators that TVM's importer does not have, as simpler ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tvm import relax

from vta_byoc.importers.onnx.node import NodeAttributes, known_values, values_of
from vta_byoc.importers.onnx.spectra import dft
from vta_byoc.ir.bindings import constant_of, static_shape

Inputs = list[relax.Expr]
Written = Callable[[relax.BlockBuilder, Inputs, NodeAttributes], relax.Expr]
"""(builder, inputs, None for one that is left out; attributes) -> the value or values."""
IMAGE_AXES = (1, 2)
"""Axes of an image that blocks are added to."""


def _lp_normalization(
    builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes
) -> relax.Expr:
    """Divided by the sum of magnitudes (p 1) or by its root of squares (p 2) along one axis.

    Where all are zero they stay zero, as in ONNX Runtime.
    """
    x, axis = inputs[0], [int(attrs.get("axis", -1))]
    if int(attrs.get("p", 2)) == 1:
        norm = relax.op.sum(relax.op.abs(x), axis, keepdims=True)
    else:
        norm = relax.op.sqrt(relax.op.sum(relax.op.multiply(x, x), axis, keepdims=True))
    least = relax.const(np.finfo("float32").tiny, "float32")
    return relax.op.divide(x, relax.op.maximum(norm, least))


def _cum_prod(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    """The product of all elements up to each one along an axis, or from it on (`reverse`)."""
    axis = int(known_values(inputs[1], "axis").reshape(-1)[0]) % len(static_shape(inputs[0]))
    is_backwards = bool(attrs.get("reverse", 0))
    x = relax.op.flip(inputs[0], axis) if is_backwards else inputs[0]
    dtype, exclusive = str(inputs[0].ty.dtype), bool(attrs.get("exclusive", 0))
    product = relax.op.cumprod(x, axis, dtype, exclusive)
    return relax.op.flip(product, axis) if is_backwards else product


# ---------------------------------------------------------------- sequences
def _reverse_sequence(
    builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes
) -> relax.Expr:
    """The first elements of each sequence in the opposite order, as many as its length says."""
    x, lengths = inputs[:2]
    shape = static_shape(x)
    time, batch = int(attrs.get("time_axis", 0)), int(attrs.get("batch_axis", 1))
    steps, known = shape[time], values_of(lengths)
    if known is not None:
        if not 0 <= known.min() <= known.max() <= steps:
            raise ValueError(f"its lengths are {known.tolist()}; 0 to {steps} is taken")
        if (known == steps).all():
            return relax.op.flip(x, time)
    order = [batch, time, *(axis for axis in range(len(shape)) if axis not in (batch, time))]
    rows = [shape[axis] for axis in order]
    flat = relax.op.reshape(relax.op.permute_dims(x, order), (rows[0] * rows[1], *rows[2:]))
    taken = relax.op.take(flat, _places(lengths, rows[0], steps), 0)
    return relax.op.permute_dims(relax.op.reshape(taken, rows), np.argsort(order).tolist())


def _places(lengths: relax.Expr, count: int, steps: int) -> relax.Expr:
    """(count * steps,) the row of each step of each sequence in all rows."""
    step = np.arange(steps, dtype="int64")
    first = np.arange(count, dtype="int64")[:, None] * steps
    known = values_of(lengths)
    if known is not None:
        ends = known.astype("int64").reshape(count, 1)
        return constant_of((np.where(step < ends, ends - 1 - step, step) + first).reshape(-1))
    end = relax.op.reshape(relax.op.astype(lengths, "int64"), (count, 1))
    last = relax.op.subtract(end, relax.const(1, "int64"))
    turned = relax.op.subtract(last, constant_of(step))
    place = relax.op.where(relax.op.less(constant_of(step), end), turned, constant_of(step))
    return relax.op.reshape(relax.op.add(place, constant_of(first)), (count * steps,))


# ---------------------------------------------------------------- images
def _col2im(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    """Columns added to an image where their blocks lie: a transposed convolution, block by block.

    Its weights are 0 and 1; each channel is a group of its own.
    """
    image = known_values(inputs[1], "image_shape").reshape(-1).tolist()
    block = known_values(inputs[2], "block_shape").reshape(-1).tolist()
    rank = len(image)
    if rank not in IMAGE_AXES:
        raise ValueError(f"its image has {rank} axes; 1 or 2 are taken")
    strides, dilations, pads = (
        [int(n) for n in given]
        for given in (
            attrs.get("strides", [1] * rank),
            attrs.get("dilations", [1] * rank),
            attrs.get("pads", [0] * (2 * rank)),
        )
    )
    room = [
        image[a] + pads[a] + pads[a + rank] - dilations[a] * (block[a] - 1) - 1 for a in range(rank)
    ]
    counts = [space // stride + 1 for space, stride in zip(room, strides, strict=True)]
    beyond = [space % stride for space, stride in zip(room, strides, strict=True)]
    batch, rows, columns = static_shape(inputs[0])
    taps = math.prod(block)
    if min(counts) < 1 or columns != math.prod(counts) or rows % taps:
        raise ValueError(
            f"it has columns ({rows}, {columns}); blocks of {block} lie at {counts} places of an "
            f"image of {image}"
        )
    blocks = relax.op.reshape(inputs[0], (batch, rows, *_plane(counts, 1)))
    weights = np.tile(np.eye(taps, dtype="float32"), (rows // taps, 1))
    result = relax.op.nn.conv2d_transpose(
        blocks,
        relax.const(weights.reshape(rows, 1, *_plane(block, 1))),
        strides=_plane(strides, 1),
        padding=[*_plane(pads[:rank], 0), *_plane(pads[rank:], 0)],
        output_padding=_plane(beyond, 0),
        dilation=_plane(dilations, 1),
        groups=rows // taps,
    )
    return relax.op.reshape(result, (batch, rows // taps, *image))


def _plane(sizes: Sequence[int], missing: int) -> list[int]:
    """A value for each of two axes; a row is a plane of height one."""
    return [missing] * (2 - len(sizes)) + list(sizes)


ABSENT: Mapping[str, Written] = {
    "Col2Im": _col2im,
    "CumProd": _cum_prod,
    "DFT": dft,
    "LpNormalization": _lp_normalization,
    "ReverseSequence": _reverse_sequence,
}
"""Operator of ONNX's own domain -> how it is written with simpler operators."""
