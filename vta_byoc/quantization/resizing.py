"""Bilinear resizing and pads that repeat the edge, as operators that have an integer form.

A resizing by a whole factor weighs two neighbours along each axis, and the weights repeat: growing
is a depthwise transposed convolution behind a copy of the edges, shrinking a strided depthwise
convolution or a selection, and a single row is repeated. What is written is compared with the
matrix of the resizing, so that any coordinates that give another result are left to the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    is_float32,
    known_shape,
    op_name,
    static_shape,
    straight_bindings,
    substituted,
    with_main,
)

RESIZE, PAD = "relax.image.resize2d", "relax.nn.pad"
MOST_TAPS = 64
"""Taps of a kernel; a resizing by more stays on the host."""
MOST_INT8 = 127
EQUAL = 1e-9
"""How far weights may be from those of the resizing, in float64."""


@dataclass(frozen=True)
class _Axis:
    """How one axis is resized: its edges are copied, then a kernel runs over it.

    Attributes:
        grows: whether the kernel is transposed.
        step: whole factor by which the axis grows or shrinks.
        kernel: float64 weights.
        edges: how many copies of the first and of the last row come before and behind.
        crop: what is cut from the result of a growing axis, before and behind.
    """

    grows: bool
    step: int
    kernel: np.ndarray
    edges: tuple[int, int] = (0, 0)
    crop: tuple[int, int] = (0, 0)

    def matrix(self, old: int) -> np.ndarray:
        """(new, old) weights of the whole."""
        rows = np.clip(np.arange(-self.edges[0], old + self.edges[1]), 0, old - 1)
        copied, taps = np.eye(old)[rows], len(self.kernel)
        if self.grows:
            full = np.zeros((self.step * (len(rows) - 1) + taps, old))
            for i, row in enumerate(copied):
                full[self.step * i : self.step * i + taps] += self.kernel[:, None] * row
            return full[self.crop[0] : len(full) - self.crop[1]]
        starts = range(0, len(rows) - taps + 1, self.step)
        return np.array([self.kernel @ copied[start : start + taps] for start in starts])


def resizes_as_layers(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with its bilinear resizings and edge pads as layers and picked rows.

    The last operator of each has its name. Itself if it has none.
    """
    main, writer, found = mod["main"], FunctionWriter(), False
    env: dict[relax.Var, relax.Expr] = {}
    for binding in straight_bindings(main):
        value, name = substituted(binding.value, env), str(binding.var.name)
        rule = _RULES.get(op_name(value))
        made = rule(writer, value, binding.var) if rule and is_float32(binding.var) else None
        found = found or made is not None
        env[binding.var] = writer.emit(value if made is None else made, name)
    if not found:
        return mod
    return with_main(mod, writer.finish(main, substituted(main.body.body, env)))


# ---------------------------------------------------------------- resizing
def _resized(writer: FunctionWriter, call: relax.Call, var: relax.Var) -> relax.Expr | None:
    """The last operator of a bilinear resizing."""
    old, new = known_shape(call.args[0].ty), known_shape(var.ty)
    is_linear = str(call.attrs.method) == "linear" and str(call.attrs.layout) == "NCHW"
    if not is_linear or old is None or new is None:
        return None
    mode = str(call.attrs.coordinate_transformation_mode)
    planned = [_axis(mode, *sizes) for sizes in zip(old[2:], new[2:], strict=True)]
    if None in planned:
        return None
    rows, columns = (axis for axis in planned if axis is not None)
    steps = _steps(rows, columns)
    data = call.args[0]
    for i, (one, other) in enumerate(steps):
        last = i == len(steps) - 1
        name = f"{var.name}{SEPARATOR}step{i}"
        data = _applied(writer, data, one, other, name)
        data = data if last else writer.emit(data, name)
    return data


def _steps(rows: _Axis, columns: _Axis) -> list[tuple[_Axis, _Axis]]:
    """Both axes in one kernel where int8 holds its weights, else one after the other."""
    if rows.kernel.size == 1 and rows.step == 1:
        return [(_same(columns), columns)]
    if columns.kernel.size == 1 and columns.step == 1:
        return [(rows, _same(rows))]
    both = np.outer(rows.kernel, columns.kernel)
    if rows.grows == columns.grows and both.size <= MOST_TAPS and _fits_int8(both):
        return [(rows, columns)]
    return [(rows, _same(rows)), (_same(columns), columns)]


def _same(other: _Axis) -> _Axis:
    """An axis that keeps its size beside one that may not."""
    return _Axis(other.grows, 1, np.ones(1))


def _fits_int8(weights: np.ndarray) -> bool:
    """Whether integers of at most 127 times one number are the weights."""
    return bool(np.abs(weights).max() / np.abs(weights[weights != 0]).min() <= MOST_INT8)


def _axis(mode: str, old: int, new: int) -> _Axis | None:
    """How an axis is resized; None where no factor is whole."""
    wanted = resize_matrix(mode, old, new)
    if wanted is None:
        return None
    if old == new:
        found: _Axis | None = _Axis(True, 1, np.ones(1))
    elif old == 1:
        found = _Axis(True, new, np.ones(new))
    elif new > old:
        found = _growing(mode, old, new)
    else:
        found = _shrinking(mode, old, new)
    if found is None or (old > 1 and len(found.kernel) > MOST_TAPS):
        return None
    made = found.matrix(old)
    return found if made.shape == wanted.shape and np.abs(made - wanted).max() < EQUAL else None


def _growing(mode: str, old: int, new: int) -> _Axis | None:
    """A triangle around each row of the input."""
    inner = mode == "align_corners"
    step = (new - 1) // (old - 1) if inner else new // old
    at = _source(mode, old, new)
    first = int(np.floor(step * (-1 - at[0]))) + 1
    distance = (first + np.arange(2 * step)) / step + at[0]
    kernel = np.maximum(1 - np.abs(distance), 0)[: 2 * step]
    kernel = kernel[: int(np.flatnonzero(kernel > EQUAL)[-1]) + 1]
    edges = int(at[0] < -EQUAL), int(at[-1] > old - 1 + EQUAL)
    before = step * edges[0] - first
    behind = step * (old + sum(edges) - 1) + len(kernel) - before - new
    if min(before, behind) < 0 or max(before, behind) >= len(kernel):
        return None
    return _Axis(True, step, kernel, edges, (before, behind))


def _shrinking(mode: str, old: int, new: int) -> _Axis | None:
    """The mean of two rows in so many, or one of them."""
    if mode == "align_corners":
        if new < 2 or (old - 1) % (new - 1):
            return None
        return _Axis(False, (old - 1) // (new - 1), np.ones(1))
    start = float(_source(mode, old, new)[0])
    low = int(np.floor(start))
    kernel = np.zeros(low + 2)
    kernel[low : low + 2] = 1 - (start - low), start - low
    kernel = kernel[: int(np.flatnonzero(kernel)[-1]) + 1]
    return _Axis(False, old // new, kernel)


def _source(mode: str, old: int, new: int) -> np.ndarray:
    """Where each output lies in the input; it may be beyond the edges."""
    out = np.arange(new, dtype=np.float64)
    if mode == "align_corners":
        return out * (old - 1) / max(new - 1, 1)
    return out * old / new if mode == "asymmetric" else (out + 0.5) * old / new - 0.5


def resize_matrix(mode: str, old: int, new: int) -> np.ndarray | None:
    """(new, old) float64 weights of a bilinear resizing; None for other coordinates."""
    if mode not in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"):
        return None
    at = _source(mode, old, new)
    if mode == "pytorch_half_pixel" and new == 1:
        at = np.zeros(1)
    at = np.clip(at, 0, old - 1)
    return np.asarray(np.maximum(1 - np.abs(at[:, None] - np.arange(old)), 0))


def _applied(
    writer: FunctionWriter, data: relax.Expr, rows: _Axis, columns: _Axis, name: str
) -> relax.Expr:
    """Edges, then one layer over both axes."""
    for axis, plan in ((2, rows), (3, columns)):
        if any(plan.edges):
            data = _with_edges(data, axis, plan.edges, 0)
            data = writer.emit(data, f"{name}{SEPARATOR}edges{axis}")
    kernel = np.outer(rows.kernel, columns.kernel)
    steps = [rows.step, columns.step]
    if kernel.size == 1 and not rows.grows:
        return relax.op.strided_slice(data, [2, 3], [0, 0], list(static_shape(data)[2:]), steps)
    if rows.grows and not any((*rows.edges, *columns.edges)) and (kernel == 1).all():
        return _repeated(writer, data, steps, name)
    channels = static_shape(data)[1]
    weight = np.tile(kernel, (channels, 1, 1, 1)).astype("float32")
    if not rows.grows:
        return relax.op.nn.conv2d(data, relax.const(weight), strides=steps, groups=channels)
    crop = [rows.crop[0], columns.crop[0], rows.crop[1], columns.crop[1]]
    return relax.op.nn.conv2d_transpose(
        data, relax.const(weight), strides=steps, padding=crop, groups=channels
    )


def _repeated(writer: FunctionWriter, data: relax.Expr, steps: list[int], name: str) -> relax.Expr:
    """Single rows and columns, repeated."""
    if steps[0] > 1 and steps[1] > 1:
        data = writer.emit(relax.op.repeat(data, steps[0], 2), f"{name}{SEPARATOR}rows")
        return relax.op.repeat(data, steps[1], 3)
    return relax.op.repeat(data, max(steps), 2 if steps[0] > 1 else 3)


# ---------------------------------------------------------------- edges
def _with_edges(data: relax.Expr, axis: int, widths: tuple[int, int], nearest: int) -> relax.Expr:
    """`data` between its borders along an axis: rows picked by constant indices.

    Args:
        data: with a known shape.
        axis: along which the borders are put.
        widths: rows before and behind.
        nearest: 0 where the border repeats the outermost row, 1 where it reflects at it.
    """
    size = static_shape(data)[axis]
    before = [i * nearest for i in range(widths[0], 0, -1)]
    behind = [size - 1 - i * nearest for i in range(1, widths[1] + 1)]
    rows = np.array([*before, *range(size), *behind], "int64")
    return relax.op.take(data, relax.const(rows, "int64"), axis, "clip")


_NEAREST = {"replicate": 0, "edge": 0, "reflect": 1}
"""Mode of a pad -> how far from the outermost row the border begins."""


def _padded(writer: FunctionWriter, call: relax.Call, var: relax.Var) -> relax.Expr | None:
    """Pads that repeat the edge or reflect, as rows and columns picked by constant indices."""
    nearest = _NEAREST.get(str(call.attrs.pad_mode))
    pairs = [int(width) for width in call.attrs.pad_width]
    widths = dict(enumerate(zip(pairs[0::2], pairs[1::2], strict=True)))
    axes = [axis for axis, pair in widths.items() if any(pair)]
    if nearest is None or not axes or min(pairs) < 0 or known_shape(call.args[0].ty) is None:
        return None
    data = call.args[0]
    for axis in axes:
        made = _with_edges(data, axis, widths[axis], nearest)
        data = made if axis == axes[-1] else writer.emit(made, f"{var.name}{SEPARATOR}axis{axis}")
    return data


_RULES: dict[str, Callable[[FunctionWriter, relax.Call, relax.Var], relax.Expr | None]] = {
    RESIZE: _resized,
    PAD: _padded,
}
