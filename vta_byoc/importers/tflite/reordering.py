"""TFLite operators that change the order or the number of axes, or repeat what lies on them."""

from __future__ import annotations

import numpy as np
from tflite import MirrorPadMode
from tvm import relax

from vta_byoc.importers.rearranged import depth_to_space, mirrored, space_to_depth
from vta_byoc.importers.tflite.graph import TFLiteGraph, stored_axis
from vta_byoc.importers.tflite.movement import Converter, inputs_of, stored_widths
from vta_byoc.ir.bindings import static_shape


def _mirror_pad(g: TFLiteGraph) -> None:
    (data,) = inputs_of(g, 0)
    reflects = g.op.options("MirrorPadOptions").Mode() == MirrorPadMode.REFLECT
    value = g.value(data)
    widths = stored_widths(len(data.shape), g.integers(1))
    g.store(
        mirrored(g.emit, value, static_shape(value), widths, "reflect" if reflects else "symmetric")
    )


def _pack(g: TFLiteGraph) -> None:
    """Tensors of one shape along a new axis."""
    shape = g.op.outputs[0].shape
    axis = g.op.options("PackOptions").Axis() % len(shape)
    part = [1 if i == axis else size for i, size in enumerate(shape)]
    tensors = inputs_of(g, *range(len(g.op.inputs)))
    parts = [g.emit(relax.op.reshape(g.plain(tensor), part), "part") for tensor in tensors]
    g.store_plain(relax.op.concat(parts, axis))


def _unpack(g: TFLiteGraph) -> None:
    (data,) = inputs_of(g, 0)
    axis = g.op.options("UnpackOptions").Axis() % len(data.shape)
    value = g.plain(data)
    for i, tensor in enumerate(g.op.outputs):
        part = g.emit(relax.op.strided_slice(value, [axis], [i], [i + 1]), "part")
        g.store_plain(relax.op.reshape(part, tensor.shape), i)


def _gather(g: TFLiteGraph) -> None:
    data, indices = inputs_of(g, 0, 1)
    options = g.op.options("GatherOptions")
    if options.BatchDims():
        raise g.error(
            f"has {options.BatchDims()} batch axes; the indices of all batches must be the same; "
            "export the model with batch_dims=0"
        )
    axis = options.Axis() % len(data.shape)
    g.store_plain(relax.op.take(g.plain(data), g.plain(indices), axis))


def _embedding(g: TFLiteGraph) -> None:
    rows, table = inputs_of(g, 0, 1)
    g.store_plain(relax.op.take(g.plain(table), g.plain(rows), 0))


def _reverse(g: TFLiteGraph) -> None:
    (data,) = inputs_of(g, 0)
    value = g.value(data)
    for axis in g.integers(1).reshape(-1):
        value = g.emit(relax.op.flip(value, stored_axis(len(data.shape), int(axis))), "turned")
    g.store(value)


def _tile(g: TFLiteGraph) -> None:
    repeats = [int(count) for count in g.integers(1)]
    g.store_plain(relax.op.tile(g.plain(*inputs_of(g, 0)), repeats))


def _broadcast(g: TFLiteGraph) -> None:
    g.store_plain(relax.op.broadcast_to(g.plain(*inputs_of(g, 0)), g.op.outputs[0].shape))


# ---------------------------------------------------------------- planes
def _depth_to_space(g: TFLiteGraph) -> None:
    value, block = g.value(*inputs_of(g, 0)), g.op.options("DepthToSpaceOptions").BlockSize()
    g.store(depth_to_space(g.emit, value, static_shape(value), block, "DCR", last=False))


def _space_to_depth(g: TFLiteGraph) -> None:
    value, block = g.value(*inputs_of(g, 0)), g.op.options("SpaceToDepthOptions").BlockSize()
    g.store(space_to_depth(g.emit, value, static_shape(value), block, last=False))


def _space_to_batch(g: TFLiteGraph) -> None:
    """Blocks of the axes behind the batch become batches, before those of the data."""
    blocks, widths = g.integers(1).reshape(-1).tolist(), g.integers(2).reshape(-1).tolist()
    (data,) = inputs_of(g, 0)
    count, rank = len(blocks), len(data.shape)
    value = g.plain(data)
    if any(widths):
        around = [0, 0, *widths, *[0] * (2 * (rank - 1 - count))]
        value = g.emit(relax.op.nn.pad(value, around, "constant", 0.0), "padded")
    batch, *sizes = static_shape(value)
    inner, rest = sizes[:count], sizes[count:]
    split = [n for size, b in zip(inner, blocks, strict=True) for n in (size // b, b)]
    apart = g.emit(relax.op.reshape(value, [batch, *split, *rest]), "apart")
    firsts, seconds = range(1, 2 * count, 2), range(2, 2 * count + 1, 2)
    order = [*seconds, 0, *firsts, *range(2 * count + 1, 2 * count + 1 + len(rest))]
    moved = g.emit(relax.op.permute_dims(apart, order), "moved")
    size = [n // b for n, b in zip(inner, blocks, strict=True)]
    g.store_plain(relax.op.reshape(moved, [batch * int(np.prod(blocks)), *size, *rest]))


def _batch_to_space(g: TFLiteGraph) -> None:
    """The way back, of which `crops` are cut off."""
    blocks, crops = g.integers(1).reshape(-1).tolist(), g.integers(2).reshape(-1, 2).tolist()
    (data,) = inputs_of(g, 0)
    count = len(blocks)
    whole, *sizes = data.shape
    inner, rest, batch = sizes[:count], sizes[count:], whole // int(np.prod(blocks))
    apart = g.emit(relax.op.reshape(g.plain(data), [*blocks, batch, *inner, *rest]), "apart")
    pairs = [axis for i in range(count) for axis in (count + 1 + i, i)]
    order = [count, *pairs, *range(2 * count + 1, 2 * count + 1 + len(rest))]
    moved = g.emit(relax.op.permute_dims(apart, order), "moved")
    size = [n * b for n, b in zip(inner, blocks, strict=True)]
    value = g.emit(relax.op.reshape(moved, [batch, *size, *rest]), "whole")
    begin = [before for before, _ in crops]
    end = [n - after for n, (_, after) in zip(size, crops, strict=True)]
    g.store_plain(relax.op.strided_slice(value, list(range(1, count + 1)), begin, end))


REORDERINGS: dict[str, Converter] = {
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "BROADCAST_TO": _broadcast,
    "DEPTH_TO_SPACE": _depth_to_space,
    "EMBEDDING_LOOKUP": _embedding,
    "GATHER": _gather,
    "MIRROR_PAD": _mirror_pad,
    "PACK": _pack,
    "REVERSE_V2": _reverse,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPACE_TO_DEPTH": _space_to_depth,
    "TILE": _tile,
    "UNPACK": _unpack,
}
"""TFLite operator -> converter."""
