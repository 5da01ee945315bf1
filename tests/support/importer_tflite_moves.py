"""Cases of TFLite operators that move data."""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from importer_tflite_graph import ACTIVATIONS, Lite
from importer_tflite_layers import image


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
        "offset": g.pick(False, False, True),
    }
    if options["offset"]:  # counts, which must be inside: the interpreter does not look
        begin = [g.size(0, size - 1) for size in shape]
        end = [g.size(1, size - first) for size, first in zip(shape, begin, strict=True)]
        options |= dict.fromkeys(("beginMask", "endMask", "shrinkAxisMask"), 0)
        step = [abs(size) for size in step]
    limits = [begin, end, step]
    if g.flag() and not options["offset"]:
        _name_axes(g, limits, options)
    numbers = [g.const(values) for values in limits]
    g.test(g.tensor(shape), *numbers, kind="StridedSliceOptions", **options)


MASKS = ("beginMask", "endMask", "shrinkAxisMask", "ellipsisMask", "newAxisMask")


def _name_axes(g: Lite, limits: list[list[int]], options: dict[str, int]) -> None:
    """An ellipsis in place of some entries, and a new axis before some entry.

    What an entry says that is an ellipsis or a new axis does not count: it is drawn. An ellipsis of
    no axis makes LiteRT read past the shape where new axes are behind it.
    """
    drawn = [
        [values[i] for values in limits] + [options[mask] >> i & 1 for mask in MASKS]
        for i in range(len(limits[0]))
    ]
    some = [g.size(-3, 3), g.size(-3, 3), g.pick(1, 2), *(g.size(0, 1) for _ in range(3))]
    if g.flag():
        first = g.size(0, len(drawn) - 1)
        drawn[first : first + g.size(1, 2)] = [[*some, 1, g.size(0, 1)]]
    if g.flag():
        drawn.insert(g.size(0, len(drawn)), [*some, 0, 1])
    columns = list(zip(*drawn, strict=True))
    limits[:] = [list(values) for values in columns[:3]]
    for mask, bits in zip(MASKS, columns[3:], strict=True):
        options[mask] = sum(bit << i for i, bit in enumerate(bits))


def resize(g: Lite) -> None:
    corners, centers = g.pick((False, False), (True, False), (False, True))
    kind = "Bilinear" if "BILINEAR" in g.operator else "NearestNeighbor"
    size = g.const([g.size(1, 9), g.size(1, 9)])
    options = {"alignCorners": corners, "halfPixelCenters": centers}
    g.test(g.tensor(image(g, low=1)), size, kind=f"Resize{kind}Options", **options)


def mirror_pad(g: Lite) -> None:
    modes = schema.MirrorPadMode
    mode = g.pick(modes.REFLECT, modes.SYMMETRIC)
    shape = g.shape(1)
    most = [n - (mode == modes.REFLECT) for n in shape]
    widths = g.const([[g.size(0, n), g.size(0, n)] for n in most])
    g.test(g.tensor(shape), widths, kind="MirrorPadOptions", mode=mode)


def pack(g: Lite) -> None:
    shape, count = g.shape(1, 3), g.size(1, 3)
    tensors = [g.tensor(shape) for _ in range(count)]
    g.test(*tensors, kind="PackOptions", axis=g.axis(len(shape) + 1), valuesCount=count)


def unpack(g: Lite) -> None:
    shape = g.shape(1)
    axis = g.axis(len(shape))
    x = g.tensor(shape)
    g.test(x, kind="UnpackOptions", outputs=shape[axis], axis=axis, num=shape[axis])


def gather(g: Lite) -> None:
    """Indices that are constant, or an input."""
    shape = g.shape(1, 3)
    axis = g.axis(len(shape))
    indices = g.integers(g.shape(0, 4 - len(shape)), 0, shape[axis] - 1).astype("int32")
    at = g.const(indices) if g.flag() else g.input(indices)
    x = g.tensor(shape) if g.flag() else g.weights(*shape)
    g.test(x, at, kind="GatherOptions", axis=axis)


def embedding(g: Lite) -> None:
    rows, shape = g.size(2, 9), g.shape(1, 2)
    ids = g.input(g.integers((g.size(),), 0, rows - 1).astype("int32"))
    g.test(ids, g.weights(rows, *shape))


def reverse(g: Lite) -> None:
    shape = g.shape(1)
    first = g.size(0, len(shape) - 1)
    g.test(g.tensor(shape), g.const(range(first, g.size(first + 1, len(shape)))))


def tile(g: Lite) -> None:
    shape = g.shape(1)
    g.test(g.tensor(shape), g.const([g.size(1, 3) for _ in shape]), kind="TileOptions")


def broadcast(g: Lite) -> None:
    shape = g.shape(1)
    other = g.broadcast(shape) or (1,)
    g.test(g.tensor(other), g.const(shape), kind="BroadcastToOptions")


def depth_to_space(g: Lite) -> None:
    block = g.size(1, 3)
    shape = (g.size(1, 2), g.size(), g.size(), block * block * g.size(1, 3))
    g.test(g.tensor(shape), kind="DepthToSpaceOptions", blockSize=block)


def space_to_depth(g: Lite) -> None:
    block = g.size(1, 3)
    shape = (g.size(1, 2), block * g.size(), block * g.size(), g.size(1, 3))
    g.test(g.tensor(shape), kind="SpaceToDepthOptions", blockSize=block)


def space_to_batch(g: Lite) -> None:
    blocks, widths, sizes = _blocks(g)
    inner = [n * b - sum(w) for n, b, w in zip(sizes, blocks, widths, strict=True)]
    x = g.tensor((g.size(1, 2), *inner, g.size(1, 3)))
    g.test(x, g.const(blocks), g.const(widths), kind="SpaceToBatchNDOptions")


def batch_to_space(g: Lite) -> None:
    blocks, crops, sizes = _blocks(g)
    x = g.tensor((g.size(1, 2) * int(np.prod(blocks)), *sizes, g.size(1, 3)))
    g.test(x, g.const(blocks), g.const(crops), kind="BatchToSpaceNDOptions")


def _blocks(g: Lite) -> tuple[list[int], list[list[int]], list[int]]:
    """Blocks of one axis or two, what is padded or cut off, and how many blocks there are."""
    count = g.size(1, 2)
    blocks = [g.size(1, 3) for _ in range(count)]
    return blocks, [[g.size(0, 1), g.size(0, 1)] for _ in blocks], [g.size(3, 5) for _ in blocks]
