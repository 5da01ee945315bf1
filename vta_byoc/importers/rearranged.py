"""Movements of elements that several formats know, on NCHW or NHWC tensors of known shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

Emit = Callable[[relax.Expr, str], relax.Var]
"""Binds an expression, one operator, to a variable of the operator that is converted and a part."""
MIRRORED = ("edge", "reflect", "symmetric")


def mirrored(
    emit: Emit, value: relax.Expr, shape: Sequence[int], widths: Sequence[int], mode: str
) -> relax.Expr:
    """Padding with values of the tensor: a choice of indices along each axis.

    Args:
        emit: binds what is made on the way.
        value: of the shape `shape`.
        shape: of `value`.
        widths: two for each axis, before and after it.
        mode: one of `MIRRORED`, or "wrap", as `numpy.pad` calls them.
    """
    for axis, size in enumerate(shape):
        before, after = widths[2 * axis : 2 * axis + 2]
        if before or after:
            picked = np.pad(np.arange(size, dtype="int64"), (before, after), mode)  # type: ignore[call-overload]
            value = emit(relax.op.take(value, relax.const(picked, "int64"), axis), f"axis{axis}")
    return value


def depth_to_space(
    emit: Emit, value: relax.Expr, shape: Sequence[int], block: int, mode: str, last: bool
) -> relax.Expr:
    """Channels to pixels.

    Args:
        emit: binds what is made on the way.
        value: of four axes and the shape `shape`.
        shape: of `value`.
        block: rows and columns that the channels of a pixel become.
        mode: DCR, the block comes before the channels, or CRD, behind them.
        last: whether the channels are the last axis, else the second.
    """
    n, c, h, w = (shape[i] for i in ((0, 3, 1, 2) if last else (0, 1, 2, 3)))
    depth = c // (block * block)
    middle = [block, block, depth] if mode == "DCR" else [depth, block, block]
    rows, columns, channels = (1, 2, 3) if mode == "DCR" else (2, 3, 1)
    if last:
        split = [n, h, w, *middle]
        order = [0, 1, rows + 2, 2, columns + 2, channels + 2]
        result = [n, h * block, w * block, depth]
    else:
        split = [n, *middle, h, w]
        order = [0, channels, 4, rows, 5, columns]
        result = [n, depth, h * block, w * block]
    return _moved(emit, value, split, order, result)


def space_to_depth(
    emit: Emit, value: relax.Expr, shape: Sequence[int], block: int, last: bool
) -> relax.Expr:
    """Pixels to channels: row and column of the block first, then the channel.

    The arguments are those of `depth_to_space`.
    """
    if last:
        n, h, w, c = shape
        split, order = [n, h // block, block, w // block, block, c], [0, 1, 3, 2, 4, 5]
        result = [n, h // block, w // block, c * block * block]
    else:
        n, c, h, w = shape
        split, order = [n, c, h // block, block, w // block, block], [0, 3, 5, 1, 2, 4]
        result = [n, c * block * block, h // block, w // block]
    return _moved(emit, value, split, order, result)


def _moved(
    emit: Emit,
    value: relax.Expr,
    split: Sequence[int],
    order: Sequence[int],
    result: Sequence[int],
) -> relax.Expr:
    apart = emit(relax.op.reshape(value, split), "apart")
    return relax.op.reshape(emit(relax.op.permute_dims(apart, order), "moved"), result)
