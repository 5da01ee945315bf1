"""Generators of ONNX cases: indices, movement of data, and tensors made of shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from importer_onnx_graph import BOOL, FLOATS, INT32, INT64, Onnx
from onnx import TensorProto, helper, numpy_helper


# ---------------------------------------------------------------- indices
def gather(n: Onnx) -> None:
    shape = n.shape(1)
    axis = n.axis(len(shape))
    size, other = shape[axis], n.shape(0, 2)
    given = n.pick(None, axis) if axis == 0 else axis
    n.test(n.tensor(shape), _indices(n, other, size), axis=given)


def _indices(n: Onnx, shape: Sequence[int], size: int) -> str:
    """From -size to size - 1, constant or computed while the model runs."""
    values = n.integers(shape, -size, size - 1)
    if n.flag():
        return n.const(values, n.pick("int32", "int64"))
    return n.input(values.astype("float32"), n.pick(INT32, INT64))


def gather_elements(n: Onnx) -> None:
    shape = n.shape(1)
    axis = n.axis(len(shape))
    other = [n.size(1, size) for size in shape]
    other[axis] = n.size(1, 6)
    n.test(n.tensor(shape), _indices(n, other, shape[axis]), axis=axis)


def _coordinates(n: Onnx, shape: Sequence[int], outer: Sequence[int]) -> np.ndarray:
    return np.stack([n.integers(outer, -size, size - 1) for size in shape], -1)


def gather_nd(n: Onnx) -> None:
    shape = n.shape(2)
    batch = n.size(0, 1)
    depth = n.size(1, len(shape) - batch)
    outer = (*shape[:batch], *n.shape(1, 2))
    at = _coordinates(n, shape[batch : batch + depth], outer)
    index = n.const(at, "int64") if n.flag() else n.input(at.astype("float32"), INT64)
    n.test(n.tensor(shape), index, batch_dims=n.pick(None, 0) if batch == 0 else batch)


def scatter_elements(n: Onnx) -> None:
    shape = n.shape(1)
    axis = n.axis(len(shape))
    order = np.argsort(n.rng.uniform(size=shape), axis)
    kept = tuple(slice(n.size(1, size)) for size in shape)
    at = order[kept]
    at = np.where(n.rng.integers(2, size=at.shape), at, at - shape[axis])
    if n.operator == "Scatter":
        n.opset = 10
        n.test(n.tensor(shape), n.const(at, "int64"), n.tensor(at.shape), axis=axis)
        return
    n.opset = 18
    reduction = n.pick(None, "none", "add", "mul", "max", "min")
    n.test(
        n.tensor(shape), n.const(at, "int64"), n.tensor(at.shape), axis=axis, reduction=reduction
    )


def scatter_nd(n: Onnx) -> None:
    n.opset, shape = 18, n.shape(1)
    depth = n.size(1, len(shape))
    whole = np.stack(
        np.unravel_index(n.rng.permutation(int(np.prod(shape[:depth]))), shape[:depth]), -1
    )
    at = whole[: n.size(1, len(whole))]
    at = np.where(n.rng.integers(2, size=at.shape), at, at - np.asarray(shape[:depth]))
    updates = n.tensor((len(at), *shape[depth:]))
    n.test(
        n.tensor(shape),
        n.const(at, "int64"),
        updates,
        reduction=n.pick(None, "add", "mul", "max", "min"),
    )


def one_hot(n: Onnx) -> None:
    depth, shape = n.size(2, 5), n.shape(1, 2)
    index = n.input(n.integers(shape, -depth, depth - 1).astype("float32"), INT64)
    values = n.const(n.pick([0, 1], [2, -1]))
    axis = n.pick(None, n.axis(len(shape) + 1))
    n.test(index, n.const(depth, "int64"), values, axis=axis)


def top_k(n: Onnx) -> None:
    shape = n.shape(1)
    axis = n.axis(len(shape))
    x = n.input(n.rng.permutation(int(np.prod(shape))).reshape(shape).astype("float32"))
    count = n.const([n.size(1, shape[axis])], "int64")
    n.test(x, count, outputs=2, axis=axis, largest=n.pick(None, 0, 1), sorted=1)


# ---------------------------------------------------------------- movement
def _limits(n: Onnx, size: int, step: int) -> tuple[int, int]:
    """From and to that take at least one element, some of them beyond the axis."""
    while True:
        start, end = n.pick(n.size(-7, 7), 2**40), n.pick(n.size(-7, 7), 2**40, -(2**40))
        if len(range(*slice(start, end, step).indices(size))):
            return start, end


def slice_(n: Onnx) -> None:
    shape = n.shape(1)
    axes = n.axes(len(shape))
    if n.size(1, 4) == 1:  # without axes and steps
        limits = [_limits(n, shape[0], 1)]
        more = []
    else:
        steps = [n.pick(1, 1, 2, 3, -1, -2) for _ in axes] if n.flag() else [1] * len(axes)
        limits = [_limits(n, shape[axis], step) for axis, step in zip(axes, steps, strict=True)]
        more = [axes, steps] if max(steps) > 1 or min(steps) < 1 else [axes]
    start, end = ([pair[i] for pair in limits] for i in (0, 1))
    is_small = max(map(abs, [*start, *end])) < 2**31
    kind = n.pick("int32", "int64") if is_small else "int64"
    n.test(n.tensor(shape), *(n.const(values, kind) for values in (start, end, *more)))


def split(n: Onnx) -> None:
    shape = n.shape(1)
    axis = n.axis(len(shape))
    first = n.size(0, shape[axis])
    if n.opset >= 18 and n.flag() and shape[axis] > 1:
        n.test(n.tensor(shape), outputs=2, axis=axis, num_outputs=2)
        return
    parts = n.const([first, shape[axis] - first], "int64")
    n.test(n.tensor(shape), parts, outputs=2, axis=n.pick(None, 0) if axis == 0 else axis)


def pad(n: Onnx) -> None:
    shape, mode = n.shape(1), n.pick(None, "constant", "reflect", "edge", "wrap")
    n.opset = 19 if mode == "wrap" else n.opset
    least = 0 if mode else -1
    widths = [n.size(least if s > 2 else 0, max(0, s - 1) if mode else 2) for s in shape * 2]
    value = n.pick([], [n.const(1.5)])
    if n.opset >= 18 and n.flag():
        axis = n.axis(len(shape))
        pads = n.const([widths[axis], widths[axis]], "int64")
        more = value or [""]
        n.test(n.tensor(shape), pads, *more, n.const([axis], "int64"), mode=mode)
        return
    n.test(n.tensor(shape), n.const(widths, "int64"), *value, mode=mode)


def concat(n: Onnx) -> None:
    shape = list(n.shape(1))
    axis = n.axis(len(shape))
    parts = []
    for _ in range(n.size(1, 3)):
        shape[axis] = n.size()
        parts.append(n.tensor(tuple(shape)))
    n.test(*parts, axis=axis)


def reshape(n: Onnx) -> None:
    shape = n.shape(1)
    wanted = [*shape[1:], shape[0]]
    wanted[n.size(0, len(wanted) - 1)] = -1
    if len(shape) > 1 and n.flag():
        wanted = [0, *wanted[1:]] if -1 in wanted[1:] else [0, -1]
    n.test(n.tensor(shape), n.const(wanted, "int64"), allowzero=n.pick(None, 0))


def transpose(n: Onnx) -> None:
    shape = n.shape(1)
    n.test(
        n.tensor(shape), perm=n.pick(None, [int(axis) for axis in n.rng.permutation(len(shape))])
    )


def squeeze(n: Onnx) -> None:
    shape = [n.pick(1, 1, size) for size in n.shape(1)]
    ones = [axis - n.pick(0, len(shape)) for axis, size in enumerate(shape) if size == 1]
    chosen = [n.const(ones[: n.size(1, len(ones))], "int64")] if ones and n.flag() else []
    n.test(n.tensor(shape), *chosen)


def unsqueeze(n: Onnx) -> None:
    shape, more = n.shape(0, 3), n.size(1, 2)
    rank = len(shape) + more
    axes = [int(a) - n.pick(0, rank) for a in n.rng.permutation(rank)[:more]]
    n.test(n.tensor(shape), n.const(axes, "int64"))


def expand(n: Onnx) -> None:
    shape = [n.pick(1, size) for size in n.shape(1)]
    wide = [n.pick(1, size) if size > 1 else n.size() for size in shape]
    wide = wide[n.size(0, len(wide) - 1) :] if n.flag() else [n.size(), *wide]
    n.test(n.tensor(shape), n.const(wide, "int64"))


def tile(n: Onnx) -> None:
    shape = n.shape(1)
    n.test(n.tensor(shape), n.const([n.size(1, 3) for _ in shape], "int64"))


def flatten(n: Onnx) -> None:
    shape = n.shape(1)
    n.test(n.tensor(shape), axis=n.pick(None, n.size(-len(shape), len(shape))))


def blocks(n: Onnx) -> None:
    b, c, h, w = n.size(1, 3), n.size(1, 3), n.size(1, 3), n.size(1, 3)
    if n.operator == "DepthToSpace":
        n.test(n.tensor((1, c * b * b, h, w)), blocksize=b, mode=n.pick(None, "DCR", "CRD"))
    else:
        n.test(n.tensor((1, c, h * b, w * b)), blocksize=b)


def where(n: Onnx) -> None:
    shape = n.shape(0)
    condition = n.node("Greater", n.tensor(n.broadcast(shape)), n.const(0))
    dtype = n.pick(FLOATS, INT32)
    n.test(condition, n.input(n.floats(shape), dtype), n.input(n.floats(n.broadcast(shape)), dtype))


def clip(n: Onnx) -> None:
    low, high = n.pick((-1, 2), (None, 1), (-0.5, None), (2, -1), (None, None))
    bounds = ["" if bound is None else n.const(bound) for bound in (low, high)]
    n.test(n.tensor(n.shape(0)), *bounds)


def cast(n: Onnx) -> None:
    kinds = (INT32, INT64, BOOL, TensorProto.INT8, TensorProto.UINT8, TensorProto.DOUBLE)
    to = n.pick(*kinds, TensorProto.INT16)  # what is rounded to 16-bit floats is not, here
    x = n.input(n.floats(n.shape(0), 0 if to == TensorProto.UINT8 else -4))
    if n.operator == "Cast":
        n.test(x, to=to)
    else:
        n.opset = 19
        n.test(x, n.const(1, helper.tensor_dtype_to_np_dtype(to)))


def cum_sum(n: Onnx) -> None:
    shape = n.shape(1)
    axis = n.const(n.axis(len(shape)), "int32")
    n.test(n.tensor(shape), axis, exclusive=n.pick(None, 0, 1), reverse=n.pick(None, 0, 1))


def cum_prod(n: Onnx) -> None:
    n.opset = 26
    shape, dtype = n.shape(1), n.pick(FLOATS, INT32, INT64)
    axis = n.const(n.axis(len(shape)), "int32")
    x = n.input(n.floats(shape), dtype)
    n.test(x, axis, exclusive=n.pick(None, 0, 1), reverse=n.pick(None, 0, 1))


def reverse_sequence(n: Onnx) -> None:
    shape = n.shape(2)
    time, batch = n.pick((0, 1), (1, 0))
    lengths = n.pick([shape[time]] * shape[batch], n.integers((shape[batch],), 1, shape[time]))
    attrs = {} if (time, batch) == (0, 1) and n.flag() else {"time_axis": time, "batch_axis": batch}
    dtype = n.pick(FLOATS, INT32)
    x = n.input(n.floats(shape), dtype)
    if n.flag():
        n.test(x, n.const(lengths, "int64"), **attrs)
    else:
        n.test(x, n.input(np.asarray(lengths, "float32"), INT64), **attrs)


def col2im(n: Onnx) -> None:
    n.opset, rank = 18, n.size(1, 2)
    block, strides = ([n.size(1, 3) for _ in range(rank)] for _ in range(2))
    # ONNX Runtime 1.32 reads the wrong columns of a row with dilation.
    dilations = [n.size(1, 3) for _ in range(rank)] if rank > 1 else [1]
    begin, end = ([n.size(0, 1) for _ in range(rank)] for _ in range(2))
    counts, beyond = [n.size(1, 3) for _ in range(rank)], [n.size(0, 2) for _ in range(rank)]
    image = [
        max(1, (counts[a] - 1) * strides[a] + dilations[a] * (block[a] - 1) + 1
            - begin[a] - end[a] + min(beyond[a], strides[a] - 1))
        for a in range(rank)
    ]  # fmt: skip
    places = [
        (image[a] + begin[a] + end[a] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1
        for a in range(rank)
    ]
    columns = n.tensor((n.size(1, 2), n.size(1, 3) * math.prod(block), math.prod(places)))
    sizes = n.const(image, "int64"), n.const(block, "int64")
    n.test(columns, *sizes, strides=strides, dilations=dilations, pads=[*begin, *end])


def trilu(n: Onnx) -> None:
    shape = n.shape(2)
    n.test(
        n.tensor(shape), *n.pick([], [n.const(n.size(-3, 3), "int64")]), upper=n.pick(None, 0, 1)
    )


def eye_like(n: Onnx) -> None:
    n.test(n.tensor((n.size(), n.size())), k=n.pick(None, n.size(-2, 2)), dtype=n.pick(None, INT32))


def constant_of_shape(n: Onnx) -> None:
    value = n.pick(
        None,
        numpy_helper.from_array(np.array([3], "int64")),
        numpy_helper.from_array(np.array([2.5], "float32")),
    )
    made = n.node("ConstantOfShape", n.const(n.shape(1), "int64"), value=value)
    n.tensor(())
    n.outputs = [n.node("Add", n.node("Cast", made, to=FLOATS), "x1")]


def range_(n: Onnx) -> None:
    kind = n.pick("int32", "int64", "float32")
    start, step = n.size(-3, 3), n.pick(1, 2, -1)
    limits = (start, start + step * n.size(1, 4), step)
    made = n.node("Range", *(n.const(value, kind) for value in limits))
    n.tensor(())
    n.outputs = [n.node("Add", n.node("Cast", made, to=FLOATS), "x1")]


def shape_of(n: Onnx) -> None:
    shape = n.shape(1)
    x = n.tensor(shape)
    if n.operator == "Shape" and n.opset >= 15:
        n.test(x, start=n.pick(None, n.size(-5, 3)), end=n.pick(None, n.size(-3, 5)))
    else:
        n.test(x)
    n.outputs = [
        n.node("Add", n.node("Cast", n.outputs[0], to=FLOATS), n.node("ReduceMax", x, keepdims=0))
    ]


def constant(n: Onnx) -> None:
    made = n.node("Constant", value=numpy_helper.from_array(n.floats(n.shape(0))))
    n.outputs = [n.node("Add", made, n.tensor(()))]


def einsum(n: Onnx) -> None:
    a, b, c = n.size(), n.size(), n.size()
    equation, *shapes = n.pick(
        ("ij,jk->ik", (a, b), (b, c)), ("bij,bjk->bik", (c, a, b), (c, b, a)), ("ij->ji", (a, b)),
        ("ij->i", (a, b)), ("i,i->", (a,), (a,)), ("ii->i", (a, a)),
        ("...ij,...jk->...ik", (c, a, b), (c, b, a)),
        ("ij,kj", (a, b), (c, b)),
    )  # fmt: skip
    n.test(*(n.tensor(shape) for shape in shapes), equation=equation)
