"""Operators that move values: shapes, layouts, joining, cutting, padding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from vta_byoc.importers.rearranged import MIRRORED, depth_to_space, mirrored, space_to_depth
from vta_byoc.importers.relay.operators.entry import Operator, Ref, Result, Site


# ---------------------------------------------------------------- shapes
def new_shape(old: Sequence[int], asked: Sequence[int], zero_is_zero: bool = False) -> list[int]:
    """The shape that `reshape` means.

    0 keeps a size, -1 is what is left, -2 all that follow, -3 two axes as one, -4 one axis as two.

    Raises:
        ValueError: the sizes do not go into each other.
    """
    found: list[int] = []
    wanted, at = list(asked), 0
    while wanted:
        size = wanted.pop(0)
        if size == -4:
            first, second = wanted.pop(0), wanted.pop(0)
            whole = old[at]
            first = whole // second if first == -1 else first
            found += [first, whole // first if second == -1 else second]
            at += 1
        elif size == -3:
            found.append(old[at] * old[at + 1])
            at += 2
        elif size == -2:
            found += old[at:]
            at = len(old)
        elif size == 0 and not zero_is_zero:
            found.append(old[at])
            at += 1
        else:
            found.append(size)
            at += 1
    rest = math.prod(size for size in found if size != -1)
    result = [math.prod(old) // max(rest, 1) if size == -1 else size for size in found]
    if math.prod(result) != math.prod(old):
        raise ValueError(f"{tuple(old)} has another size than {tuple(result)}; correct the shape")
    return result


def asked_shape(s: Site, attribute: str, operand: int = 1) -> list[int]:
    """A shape that is an attribute, or a constant operand in texts of 0.8 and later."""
    if len(s.args) > operand:
        return [int(item) for item in s.array(operand).reshape(-1)]
    return s.integers(attribute)


def _reshape(s: Site) -> Result:
    old, asked = s.shape(), asked_shape(s, "newshape")
    turned = s.flag("reverse")
    try:
        shape = new_shape(old[::-1] if turned else old, asked[::-1] if turned else asked,
                          s.flag("allowzero"))  # fmt: skip
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise s.error(f"reshapes {old} to {asked}, which do not fit; correct the module") from error
    return relax.op.reshape(s.tensor(0), shape[::-1] if turned else shape)


def _reshape_like(s: Site) -> Result:
    return relax.op.reshape(s.tensor(0), s.shape(1))


def _squeeze(s: Site) -> Result:
    return relax.op.squeeze(s.tensor(0), s.optional_integers("axis"))


def _expand_dims(s: Site) -> Result:
    axis, count, shape = s.integer("axis"), s.integer("num_newaxis"), list(s.shape())
    at = axis if axis >= 0 else len(shape) + axis + 1
    return relax.op.reshape(s.tensor(0), [*shape[:at], *[1] * count, *shape[at:]])


def _transpose(s: Site) -> Result:
    return relax.op.permute_dims(s.tensor(0), s.optional_integers("axes"))


def _batch_flatten(s: Site) -> Result:
    first, *rest = s.shape()
    return relax.op.reshape(s.tensor(0), [first, math.prod(rest)])


def _layout_transform(s: Site) -> Result:
    source, target = s.text("src_layout"), s.text("dst_layout")
    if sorted(source) != sorted(target) or not source.isalpha() or not source.isupper():
        raise s.error(
            f"changes the layout {source} to {target}; permutations of the same axes are taken; "
            "save the module before layouts are packed"
        )
    return relax.op.permute_dims(s.tensor(0), [source.index(axis) for axis in target])


def _broadcast_to(s: Site) -> Result:
    return relax.op.broadcast_to(s.tensor(0), asked_shape(s, "shape"))


def _broadcast_to_like(s: Site) -> Result:
    return relax.op.broadcast_to(s.tensor(0), s.shape(1))


# ---------------------------------------------------------------- joining and cutting
def _concatenate(s: Site) -> Result:
    parts = s.tensors(0)
    rank = parts[0].ty.ndim
    return relax.op.concat(parts, s.axis(s.integer("axis"), rank))


def _stack(s: Site) -> Result:
    parts = s.tensors(0)
    axis = s.axis(s.integer("axis"), parts[0].ty.ndim + 1)
    wide = [s.emit(relax.op.expand_dims(p, axis), f"part{i}") for i, p in enumerate(parts)]
    return relax.op.concat(wide, axis)


def _split(s: Site) -> Result:
    shape = s.shape()
    axis = s.axis(s.integer("axis"), len(shape))
    asked = s.value("indices_or_sections")
    if isinstance(asked, int):
        if asked < 1 or shape[axis] % asked:
            raise s.error(f"splits {shape[axis]} into {asked} equal parts; correct the module")
        edges = [shape[axis] // asked * i for i in range(1, asked)]
    else:
        edges = s.integers("indices_or_sections")
    bounds = [0, *edges, shape[axis]]
    return tuple(
        s.emit(relax.op.strided_slice(s.tensor(0), [axis], [begin], [end]), f"{i}")
        for i, (begin, end) in enumerate(itertools.pairwise(bounds))
    )


def _strided_slice(s: Site) -> Result:
    shape = s.shape()
    begin, end = asked_shape(s, "begin", 1), asked_shape(s, "end", 2)
    strides = asked_shape(s, "strides", 3)
    axes = s.optional_integers("axes")
    axes = list(range(len(begin))) if axes is None else [s.axis(a, len(shape)) for a in axes]
    strides = strides * len(axes) if len(strides) == 1 else strides
    if s.text("slice_mode") == "size":
        sizes = [shape[axis] for axis in axes]
        cuts = zip(begin, end, sizes, strict=True)
        end = [size if last == -1 else first % size + last for first, last, size in cuts]
        strides = [1] * len(axes)
    value, forward = s.tensor(0), []
    for axis, first, last, step in zip(axes, begin, end, strides, strict=False):
        indices = range(*slice(first, last, step).indices(shape[axis]))
        if step < 0:  # Relax steps forward only
            picked = relax.const(np.array(list(indices), "int64"), "int64")
            value = s.emit(relax.op.take(value, picked, axis), f"axis{axis}")
        else:
            forward.append((axis, indices.start, max(indices.stop, indices.start), step))
    if not forward:
        return value
    columns = [list(column) for column in zip(*forward, strict=True)]
    return relax.op.strided_slice(value, *columns)


def _slice_like(s: Site) -> Result:
    axes = s.optional_integers("axes") or list(range(len(s.shape(1))))
    axes = [s.axis(axis, len(s.shape())) for axis in axes]
    ends = [s.shape(1)[axis] for axis in axes]
    return relax.op.strided_slice(s.tensor(0), axes, [0] * len(axes), ends)


def _tile(s: Site) -> Result:
    return relax.op.tile(s.tensor(0), s.integers("reps"))


def _repeat(s: Site) -> Result:
    return relax.op.repeat(s.tensor(0), s.integer("repeats"), s.integer("axis"))


def _reverse(s: Site) -> Result:
    return relax.op.flip(s.tensor(0), s.integer("axis"))


def _pad(s: Site) -> Result:
    """The value is a second operand in 0.8 and later, an attribute before."""
    pairs = s.value("pad_width")
    if not isinstance(pairs, list | tuple):
        raise s.error("has no pad_width; a pair for each axis is taken; correct the module")
    widths = [int(side) for pair in pairs for side in pair]
    value = float(s.array(1)) if len(s.args) > 1 else s.number("pad_value")
    mode = s.text("pad_mode")
    if mode == "constant":
        return relax.op.nn.pad(s.tensor(0), widths, "constant", value)
    return _mirrored(s, widths, {"edge": "edge", "reflect": "reflect"}.get(mode, mode))


def _mirror_pad(s: Site) -> Result:
    pairs = s.value("pad_width")
    assert isinstance(pairs, list | tuple)
    widths = [int(side) for pair in pairs for side in pair]
    return _mirrored(s, widths, s.text("mode").lower())


def _mirrored(s: Site, widths: Sequence[int], mode: str) -> Result:
    if mode not in MIRRORED:
        raise s.error(f'pads in the mode "{mode}"; constant, edge, reflect and symmetric are taken')
    return mirrored(s.emit, s.tensor(0), s.shape(), widths, mode)


def _depth_to_space(s: Site) -> Result:
    block, mode, last = s.integer("block_size"), s.text("mode"), s.text("layout") == "NHWC"
    return depth_to_space(s.emit, s.tensor(0), s.shape(), block, mode, last)


def _space_to_depth(s: Site) -> Result:
    block, last = s.integer("block_size"), s.text("layout") == "NHWC"
    return space_to_depth(s.emit, s.tensor(0), s.shape(), block, last)


OPERATORS: dict[str, Operator] = {
    "reshape": Operator(_reshape, 1, 2, {"newshape": Ref(), "reverse": False, "allowzero": False}),
    "contrib_reverse_reshape": Operator(
        _reshape, 1, 1, {"newshape": Ref(), "reverse": True, "allowzero": False}
    ),
    "reshape_like": Operator(_reshape_like, 2, 2),
    "squeeze": Operator(_squeeze, 1, 1, {"axis": Ref()}),
    "expand_dims": Operator(_expand_dims, 1, 1, {"axis": 0, "num_newaxis": 1}),
    "transpose": Operator(_transpose, 1, 1, {"axes": Ref()}),
    "nn.batch_flatten": Operator(_batch_flatten, 1, 1),
    "layout_transform": Operator(_layout_transform, 1, 1, {"src_layout": "", "dst_layout": ""}),
    "broadcast_to": Operator(_broadcast_to, 1, 2, {"shape": Ref(), "dtype": ""}),
    "broadcast_to_like": Operator(_broadcast_to_like, 2, 2),
    "concatenate": Operator(_concatenate, 1, 1, {"axis": 0}),
    "stack": Operator(_stack, 1, 1, {"axis": Ref(0)}),
    "split": Operator(_split, 1, 1, {"indices_or_sections": Ref(), "axis": 0}),
    "strided_slice": Operator(
        _strided_slice,
        1,
        4,
        {
            "begin": Ref(),
            "end": Ref(),
            "strides": Ref([1]),
            "slice_mode": "end",
            "axes": Ref(),
        },
    ),
    "slice_like": Operator(_slice_like, 2, 2, {"axes": Ref()}),
    "tile": Operator(_tile, 1, 1, {"reps": Ref()}),
    "repeat": Operator(_repeat, 1, 1, {"repeats": Ref(), "axis": Ref()}),
    "reverse": Operator(_reverse, 1, 1, {"axis": Ref()}),
    "nn.pad": Operator(_pad, 1, 2, {"pad_width": Ref(), "pad_mode": "constant", "pad_value": 0.0}),
    "nn.mirror_pad": Operator(_mirror_pad, 1, 1, {"pad_width": Ref(), "mode": "SYMMETRIC"}),
    "nn.depth_to_space": Operator(
        _depth_to_space, 1, 1, {"block_size": 1, "layout": "NCHW", "mode": "DCR"}
    ),
    "nn.space_to_depth": Operator(
        _space_to_depth, 1, 1, {"block_size": 1, "layout": "NCHW", "mode": "DCR"}
    ),
}
"""Relay's name -> how it becomes Relax."""
