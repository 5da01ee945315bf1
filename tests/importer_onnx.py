"""Cases for every operator of the ONNX importer: models with one node, against ONNX Runtime.

A generator writes the node with an `Onnx`.  Models take float32 only; integers and booleans are
made of it by Cast.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from importer_draws import Case, Draw
from onnx import TensorProto, helper, numpy_helper

OPSETS = (13, 17, 18, 21)
"""One is drawn where a generator asks for none."""
FLOATS, INT32, INT64, BOOL = (
    TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL,
)  # fmt: skip


class Onnx(Draw):
    """A model under construction; methods return the names of tensors."""

    def __init__(self, operator: str, *seed: int) -> None:
        super().__init__(*seed)
        self.operator = operator
        self.opset = self.pick(*OPSETS)
        self.feed: list[np.ndarray] = []
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: list[str] = []

    def input(self, array: np.ndarray, dtype: int = FLOATS) -> str:
        """An input, cast to `dtype`."""
        self.feed.append(array)
        name = f"x{len(self.feed)}"
        return name if dtype == FLOATS else self.node("Cast", name, to=dtype)

    def tensor(self, shape: Sequence[int], low: float = -4, high: float = 4) -> str:
        return self.input(self.floats(shape, low, high))

    def const(self, value: Any, dtype: str = "float32") -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weights(self, *shape: int) -> str:
        return self.const(self.floats(shape, -1, 1))

    def node(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any) -> Any:
        made = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        attrs = {key: value for key, value in attrs.items() if value is not None}
        self.nodes.append(helper.make_node(op, list(inputs), made, domain=domain, **attrs))
        return made[0] if outputs == 1 else made

    def test(self, *inputs: str, outputs: int = 1, **attrs: Any) -> None:
        """The node under test; its outputs are the model's."""
        made = self.node(self.operator, *inputs, outputs=outputs, **attrs)
        self.outputs = [made] if outputs == 1 else made

    def model(self, results: Sequence[np.ndarray] = ()) -> onnx.ModelProto:
        """The model; `results` give its outputs their types."""
        ends = [
            helper.make_tensor_value_info(f"x{i + 1}", FLOATS, array.shape)
            for i, array in enumerate(self.feed)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        if results:
            outputs = [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in zip(self.outputs, results, strict=True)
            ]
        graph = helper.make_graph(self.nodes, "case", ends, outputs, self.constants)
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=10)
        return model


Generator = Callable[[Onnx], None]


# ---------------------------------------------------------------- families
def unary(
    low: float = -4, high: float = 4, *dtypes: int, opset: int = 0, **drawn: Any
) -> Generator:
    """One tensor, of floats or of one of `dtypes`; attributes are drawn from tuples."""

    def generate(n: Onnx) -> None:
        n.opset = opset or n.opset
        x = n.input(n.floats(n.shape(0), low, high), n.pick(FLOATS, *dtypes))
        n.test(x, **{key: n.pick(*values) for key, values in drawn.items()})

    return generate


def special(n: Onnx) -> None:
    """Numbers, infinities and what is no number."""
    x = n.node("Log", n.tensor(n.shape(0), -1, 1))
    n.test(n.node("Mul", x, n.const(n.pick(1, -1))))


def binary(
    *dtypes: int, low: float = -4, low_right: float = -4, opset: int = 0, **drawn: Any
) -> Generator:
    def generate(n: Onnx) -> None:
        n.opset = opset or n.opset
        shape, dtype = n.shape(0), n.pick(*(dtypes or (FLOATS, INT32, INT64)))
        shapes = [shape, n.broadcast(shape)]
        if n.flag():
            shapes.reverse()
        left = n.input(n.floats(shapes[0], low), dtype)
        right = n.input(n.floats(shapes[1], low_right), dtype)
        n.test(left, right, **{key: n.pick(*values) for key, values in drawn.items()})

    return generate


def several(n: Onnx) -> None:
    shape = n.shape(0)
    shapes = [shape, *(n.broadcast(shape) for _ in range(n.size(0, 2)))]
    dtype = n.pick(FLOATS, INT32) if n.operator in ("Max", "Min") else FLOATS
    n.test(*(n.input(n.floats(s), dtype) for s in shapes))


def reduction(n: Onnx) -> None:
    """Axes as an attribute or an input, none, or none on purpose."""
    shape = n.shape(1)
    axes, keep = n.axes(len(shape)), n.pick(None, 0, 1)
    positive = n.operator in ("ReduceLogSum",)
    x = n.tensor(shape, 0.5 if positive else -2, 2)
    as_input = n.opset >= (13 if n.operator == "ReduceSum" else 18)
    if n.size(1, 4) == 1:
        n.test(x, keepdims=keep, noop_with_empty_axes=n.pick(0, 1) if as_input else None)
    elif as_input:
        n.test(x, n.const(axes, "int64"), keepdims=keep)
    else:
        n.test(x, axes=axes, keepdims=keep)


def extreme(n: Onnx) -> None:
    shape = n.shape(1)
    x = n.input(n.rng.permutation(int(np.prod(shape))).reshape(shape).astype("float32"))
    if n.flag():
        x = n.input(n.floats(shape))
        n.feed, n.nodes = [n.feed[-1]], []
        x = "x1"
    n.test(
        x,
        axis=n.axis(len(shape)),
        keepdims=n.pick(None, 0, 1),
        select_last_index=n.pick(None, 0, 1),
    )


def along(**drawn: Any) -> Generator:
    """One tensor and an axis, which may be left out."""

    def generate(n: Onnx) -> None:
        shape = n.shape(1)
        axis = n.pick(None, n.axis(len(shape)))
        n.test(n.tensor(shape), axis=axis, **{k: n.pick(*v) for k, v in drawn.items()})

    return generate


# ---------------------------------------------------------------- layers
def _window(n: Onnx, rank: int, dilated: bool = True) -> tuple[list[int], dict[str, Any]]:
    kernel = [n.size(1, 3) for _ in range(rank)]
    attrs: dict[str, Any] = {"strides": n.pick(None, [n.size(1, 3) for _ in range(rank)])}
    if dilated:
        attrs["dilations"] = n.pick(None, [n.size(1, 2) for _ in range(rank)])
    mode = n.pick("pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "")
    if mode == "pads":
        attrs["pads"] = [n.size(0, size - 1) for size in kernel * 2]
    elif mode:
        attrs["auto_pad"] = mode
    return kernel, attrs


def _plane(n: Onnx, rank: int, channels: int) -> str:
    return n.tensor((n.size(1, 2), channels, *(n.size(5, 9) for _ in range(rank))))


def conv(n: Onnx) -> None:
    rank, groups = n.size(1, 3), n.size(1, 2)
    inputs, outputs = groups * n.size(1, 3), groups * n.size(1, 3)
    kernel, attrs = _window(n, rank)
    bias = [n.weights(outputs)] if n.flag() else []
    weight = n.weights(outputs, inputs // groups, *kernel)
    shape = n.pick(None, kernel)
    n.test(_plane(n, rank, inputs), weight, *bias, group=groups, kernel_shape=shape, **attrs)


def conv_transpose(n: Onnx) -> None:
    rank, groups = n.size(1, 3), n.size(1, 2)
    inputs, outputs = groups * n.size(1, 2), n.size(1, 2)
    kernel, attrs = _window(n, rank)
    bias = [n.weights(groups * outputs)] if n.flag() else []
    strides = attrs["strides"] or [1] * rank
    attrs["output_padding"] = n.pick(None, [n.size(0, s - 1) for s in strides])
    weight = n.weights(inputs, outputs, *kernel)
    n.test(_plane(n, rank, inputs), weight, *bias, group=groups, **attrs)


def average_pool(n: Onnx) -> None:
    n.opset = n.pick(13, 19, 21)
    rank = n.size(1, 3)
    kernel, attrs = _window(n, rank, n.opset >= 19)
    flags = {"ceil_mode": n.pick(None, 0, 1), "count_include_pad": n.pick(None, 0, 1)}
    n.test(_plane(n, rank, 2), kernel_shape=kernel, **flags, **attrs)


def max_pool(n: Onnx) -> None:
    rank = n.size(1, 3)
    kernel, attrs = _window(n, rank)
    ceil = n.pick(None, 0, 1)
    n.test(_plane(n, rank, 2), kernel_shape=kernel, ceil_mode=ceil, **attrs)


def lp_pool(n: Onnx) -> None:
    n.opset = 18
    rank = n.size(1, 3)
    kernel, attrs = _window(n, rank)
    n.test(_plane(n, rank, 2), kernel_shape=kernel, p=n.pick(None, 1, 2, 3), **attrs)


def global_pool(**drawn: Any) -> Generator:
    def generate(n: Onnx) -> None:
        n.test(_plane(n, n.size(1, 3), 2), **{k: n.pick(*v) for k, v in drawn.items()})

    return generate


def gemm(n: Onnx) -> None:
    m, k, o = n.size(), n.size(), n.size()
    a, b = n.flag(), n.flag()
    make = n.weights if n.flag() else lambda *shape: n.tensor(shape)
    left, right = n.tensor((k, m) if a else (m, k)), make(*((o, k) if b else (k, o)))
    bias = [make(*n.pick((o,), (m, o), (1, o), (m, 1), (), (1,)))] if n.flag() else []
    factors = {"alpha": n.pick(None, 0.5, 2.0), "beta": n.pick(None, 0.5, 0.0)}
    n.test(left, right, *bias, transA=int(a), transB=int(b), **factors)


def matmul(n: Onnx) -> None:
    m, k, o = n.size(), n.size(), n.size()
    outer = n.shape(0, 2)
    left, right = n.pick(
        ((*outer, m, k), (*n.broadcast(outer), k, o)), ((k,), (*outer, k, o)),
        ((*outer, m, k), (k,)), ((k,), (k,)), ((m, k), (*outer, k, o)),
    )  # fmt: skip
    dtype = n.pick(FLOATS, FLOATS, INT32)
    n.test(n.input(n.floats(left), dtype), n.input(n.floats(right), dtype))


def _affine(n: Onnx, *shape: int) -> list[str]:
    return [n.weights(*shape), n.weights(*shape)]


def batch_norm(n: Onnx) -> None:
    shape = (n.size(1, 2), n.size(2, 4), *n.shape(0, 3))
    variance = n.const(n.floats((shape[1],), 0.5, 2))
    n.test(
        n.tensor(shape),
        *_affine(n, shape[1]),
        n.weights(shape[1]),
        variance,
        epsilon=n.pick(None, 1e-2),
    )


def instance_norm(n: Onnx) -> None:
    shape = (n.size(1, 2), n.size(2, 4), *n.shape(1, 3))
    n.test(n.tensor(shape), *_affine(n, shape[1]), epsilon=n.pick(None, 1e-2))


def layer_norm(n: Onnx) -> None:
    n.opset = n.pick(17, 21)
    shape = n.shape(2)
    axis = n.size(1, len(shape) - 1)
    given = axis - len(shape) if n.flag() else axis
    scale, shift = _affine(n, *shape[axis:])
    n.test(n.tensor(shape), scale, *n.pick([], [shift]), axis=given, epsilon=n.pick(None, 1e-2))


def group_norm(n: Onnx) -> None:
    n.opset, groups = 21, n.size(1, 3)
    shape = (n.size(1, 2), groups * n.size(1, 2), *n.shape(1, 3))
    n.test(n.tensor(shape), *_affine(n, shape[1]), num_groups=groups, epsilon=n.pick(None, 1e-2))


def rms_norm(n: Onnx) -> None:
    n.opset, shape = 23, n.shape(2)
    axis = n.size(1, len(shape) - 1)
    n.test(n.tensor(shape), n.weights(*shape[axis:]), axis=axis, epsilon=n.pick(None, 1e-2))


def skip_norm(n: Onnx) -> None:
    shape = (n.size(), n.size(), n.size(2, 5))
    more = n.pick([], [n.weights(shape[2])])
    n.test(
        n.tensor(shape), n.tensor(shape), *_affine(n, shape[2]), *more,
        domain="com.microsoft", epsilon=n.pick(None, 1e-2),
    )  # fmt: skip


def embed_norm(n: Onnx) -> None:
    batch, length, width = n.size(1, 2), n.size(1, 3), n.size(2, 4)
    ids = n.input(n.floats((batch, length), 0, 4), INT32)
    segments = n.input(n.floats((batch, length), 0, 1), INT32)
    tables = [n.weights(5, width), n.weights(length, width), n.weights(2, width)]
    n.test(
        ids, segments, *tables, *_affine(n, width), outputs=2, domain="com.microsoft", epsilon=1e-3
    )
    n.outputs = n.outputs[:1]


def mean_variance(n: Onnx) -> None:
    shape = (n.size(2, 3), n.size(2, 3), n.size(2, 3), n.size(2, 3))
    n.test(n.tensor(shape), axes=n.pick(None, sorted(axis % 4 for axis in n.axes(4))))


def lrn(n: Onnx) -> None:
    shape = (n.size(1, 2), n.size(2, 6), n.size(), n.size())
    attrs = {"alpha": n.pick(None, 0.1), "beta": n.pick(None, 0.5), "bias": n.pick(None, 2.0)}
    n.test(n.tensor(shape), size=n.pick(1, 3, 5), **attrs)


def attention(n: Onnx) -> None:
    batch, length, heads = n.size(1, 2), n.size(1, 3), n.size(1, 2)
    width = 2 * heads
    n.test(
        n.tensor((batch, length, width)), n.weights(width, 3 * width), n.weights(3 * width),
        num_heads=heads, domain="com.microsoft",
    )  # fmt: skip


def prelu(n: Onnx) -> None:
    shape = n.shape(1)
    slope = n.broadcast(shape)
    n.test(n.tensor(shape), n.weights(*slope) if n.flag() else n.tensor(slope))


def bias_gelu(n: Onnx) -> None:
    shape = n.shape(1)
    n.test(n.tensor(shape), n.weights(shape[-1]), domain="com.microsoft")


def fast_gelu(n: Onnx) -> None:
    shape = n.shape(1)
    n.test(n.tensor(shape), *n.pick([], [n.weights(shape[-1])]), domain="com.microsoft")


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
    to = n.pick(*kinds, TensorProto.FLOAT16)
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


# ---------------------------------------------------------------- images
def resize(n: Onnx) -> None:
    rank = n.pick(1, 2, 2, 3)
    shape = (1, n.size(1, 2), *(n.size(2, 5) for _ in range(rank)))
    mode = n.pick("nearest", "linear", "cubic")
    coordinates = n.pick(
        None, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
        "half_pixel_symmetric",
    )  # fmt: skip
    rounding = n.pick(None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    attrs = {
        "mode": mode, "coordinate_transformation_mode": coordinates,
        "nearest_mode": rounding if mode == "nearest" else None,
        "cubic_coeff_a": n.pick(None, -0.5) if mode == "cubic" else None,
        "exclude_outside": n.pick(None, 1) if mode == "cubic" else None,
    }  # fmt: skip
    if n.flag():
        sizes = [*shape[:2], *(n.size(2, 9) for _ in range(rank))]
        n.test(n.tensor(shape), "", "", n.const(sizes, "int64"), **attrs)
    else:
        scales = [1, 1, *(n.pick(2.0, 3.0, 1.5, 0.5) for _ in range(rank))]
        n.test(n.tensor(shape), "", n.const(scales), **attrs)


def upsample(n: Onnx) -> None:
    n.opset = 9
    scales = n.const([1, 1, n.pick(1, 2, 3), n.pick(1, 2, 1.5)])
    n.test(n.tensor((1, 2, 4, 4)), scales, mode=n.pick(None, "nearest", "linear"))


def grid_sample(n: Onnx) -> None:
    n.opset = n.pick(16, 20)
    modes = ("bilinear", "nearest", "bicubic") if n.opset < 20 else ("linear", "nearest", "cubic")
    attrs = {
        "mode": n.pick(None, *modes), "padding_mode": n.pick(None, "zeros", "border", "reflection"),
        "align_corners": n.pick(None, 0, 1),
    }  # fmt: skip
    n.test(n.tensor((1, 2, n.size(2, 5), n.size(2, 5))), n.tensor((1, 3, 4, 2), -1.5, 1.5), **attrs)


def affine_grid(n: Onnx) -> None:
    n.opset = 20
    size = n.const([1, 2, n.size(1, 4), n.size(1, 4)], "int64")
    n.test(n.tensor((1, 2, 3)), size, align_corners=n.pick(None, 0, 1))


def _boxes(n: Onnx, count: int, size: float) -> np.ndarray:
    corners = np.sort(n.rng.uniform(0, size, (2, count, 2)), 0)
    return np.concatenate([corners[0], corners[1]], 1).astype("float32")


def roi_align(n: Onnx) -> None:
    n.opset, count = n.pick(13, 16), n.size(1, 3)
    modes = ("half_pixel", "output_half_pixel")
    attrs = {
        "mode": n.pick(None, "avg"), "sampling_ratio": n.pick(None, 1, 2),
        "output_height": n.size(1, 3), "output_width": n.size(1, 3),
        "spatial_scale": n.pick(None, 0.5),
        "coordinate_transformation_mode": n.pick(None, *modes) if n.opset == 16 else None,
    }  # fmt: skip
    batch = n.const(n.integers((count,), 0, 0), "int64")
    n.test(n.tensor((1, 2, 6, 6)), n.const(_boxes(n, count, 6)), batch, **attrs)


def max_roi_pool(n: Onnx) -> None:
    boxes = np.round(_boxes(n, n.size(1, 3), 5))
    rois = np.concatenate([np.zeros((len(boxes), 1), "float32"), boxes], 1)
    n.test(
        n.tensor((1, 2, 6, 6)),
        n.const(rois),
        pooled_shape=[n.size(1, 3), n.size(1, 3)],
        spatial_scale=n.pick(None, 0.5),
    )


def max_unpool(n: Onnx) -> None:
    height, width = n.size(1, 3), n.size(1, 3)
    kernel = [2, n.size(1, 2)]
    places = np.arange(2 * height * kernel[0] * width * kernel[1])
    windows = places.reshape(2, height, kernel[0], width, kernel[1])
    chosen = windows[:, :, n.size(0, 1), :, n.size(0, kernel[1] - 1)]
    x = n.tensor((1, 2, height, width))
    n.test(x, n.const(chosen[None], "int64"), kernel_shape=kernel, strides=kernel)


def quantization(n: Onnx) -> None:
    """Both, as no model may end in between."""
    kind, axis = n.pick("int8", "uint8"), None
    scale, zero = n.const(0.05), n.const(n.size(0, 9), kind)
    q = n.node("QuantizeLinear", n.tensor(n.shape(1)), scale, zero, axis=axis)
    n.outputs = [n.node("DequantizeLinear", q, scale, zero, axis=axis)]


def shrink(n: Onnx) -> None:
    n.test(n.tensor(n.shape(0)), lambd=n.pick(None, 1.0), bias=n.pick(None, 0.5))


def dropout(n: Onnx) -> None:
    n.test(n.tensor(n.shape(0)), *n.pick([], [n.const(0.3)]))


def bit_shift(n: Onnx) -> None:
    shape = n.shape(0)
    x, y = (n.input(np.round(n.floats(shape, 0)), TensorProto.UINT8) for _ in range(2))
    n.test(x, y, direction=n.pick("LEFT", "RIGHT"))


def bitwise_not(n: Onnx) -> None:
    n.opset = 18
    n.test(n.input(n.floats(n.shape(0)), INT32))


def mod(n: Onnx) -> None:
    shape, whole = n.shape(0), n.flag()
    dtype = n.pick(INT32, INT64) if whole else FLOATS
    right = n.input(n.floats(n.broadcast(shape), 1), dtype)
    n.test(n.input(n.floats(shape), dtype), right, fmod=n.pick(0, 1) if whole else 1)


def sequence(n: Onnx) -> None:
    """Made and taken apart in one model."""
    shape = n.shape(1)
    x, y = n.tensor(shape), n.tensor(shape)
    both = n.node("SequenceConstruct", x, y)
    at = n.const(n.size(-2, 1), "int64")
    if n.operator == "SequenceErase":
        both = n.node("SequenceErase", both, at)
    elif n.operator == "SequenceInsert":
        both = n.node("SequenceInsert", both, x, *n.pick([], [at]))
    elif n.operator == "SplitToSequence":
        both = n.node("SplitToSequence", x, n.const([1] * shape[0], "int64"), axis=0)
    if n.operator == "SequenceLength":
        length = n.node("Cast", n.node("SequenceLength", both), to=FLOATS)
        n.outputs = [n.node("Add", x, length)]
    elif n.operator == "SequenceAt":
        n.outputs = [n.node("SequenceAt", both, at)]
    else:
        n.outputs = [n.node("ConcatFromSequence", both, axis=0, new_axis=n.pick(None, 0, 1))]


def optional(n: Onnx) -> None:
    n.opset = 18
    x = n.tensor(n.shape(0))
    some = n.node("Optional", x)
    if n.operator == "OptionalHasElement":
        there = n.node("Cast", n.node("OptionalHasElement", some), to=FLOATS)
        n.outputs = [n.node("Add", x, there)]
    else:
        n.outputs = [n.node("OptionalGetElement", some)]


def integer_product(n: Onnx) -> None:
    x, w = n.floats((3, 4)), n.const(n.integers((4, 2), -9, 9), "int16")
    n.test(n.input(x, TensorProto.INT16), w, domain="com.microsoft")


CASES: dict[str, Generator] = {
    "Abs": unary(-4, 4, INT32, INT64),
    "Acos": unary(-1, 1),
    "Acosh": unary(1, 9),
    "Add": binary(),
    "AffineGrid": affine_grid,
    "And": binary(BOOL),
    "ArgMax": extreme,
    "ArgMin": extreme,
    "Asin": unary(-1, 1),
    "Asinh": unary(),
    "Atan": unary(),
    "Atanh": unary(-0.9, 0.9),
    "Attention": attention,
    "AveragePool": average_pool,
    "BatchNormalization": batch_norm,
    "BiasGelu": bias_gelu,
    "BitShift": bit_shift,
    "BitwiseAnd": binary(INT32, INT64, opset=18),
    "BitwiseNot": bitwise_not,
    "BitwiseOr": binary(INT32, INT64, opset=18),
    "BitwiseXor": binary(INT32, INT64, opset=18),
    "Cast": cast,
    "CastLike": cast,
    "Ceil": unary(),
    "Clip": clip,
    "Concat": concat,
    "ConcatFromSequence": sequence,
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Cos": unary(),
    "Cosh": unary(),
    "CumSum": cum_sum,
    "DepthToSpace": blocks,
    "DequantizeLinear": quantization,
    "Div": binary(low_right=1),
    "Dropout": dropout,
    "Einsum": einsum,
    "Elu": unary(-4, 4, alpha=(None, 0.5)),
    "EmbedLayerNormalization": embed_norm,
    "Equal": binary(),
    "Erf": unary(),
    "Exp": unary(),
    "Expand": expand,
    "EyeLike": eye_like,
    "FastGelu": fast_gelu,
    "Flatten": flatten,
    "Floor": unary(),
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Gelu": unary(-4, 4, opset=20, approximate=(None, "none", "tanh")),
    "Gemm": gemm,
    "GlobalAveragePool": global_pool(),
    "GlobalLpPool": global_pool(p=(None, 1, 2, 3)),
    "GlobalMaxPool": global_pool(),
    "Greater": binary(),
    "GreaterOrEqual": binary(),
    "GridSample": grid_sample,
    "GroupNormalization": group_norm,
    "HardSigmoid": unary(-4, 4, alpha=(None, 0.3), beta=(None, 0.4)),
    "HardSwish": unary(opset=14),
    "Hardmax": along(),
    "Identity": unary(),
    "InstanceNormalization": instance_norm,
    "IsInf": special,
    "IsNaN": special,
    "LRN": lrn,
    "LayerNormalization": layer_norm,
    "LeakyRelu": unary(-4, 4, alpha=(None, 0.2, 1.5)),
    "Less": binary(),
    "LessOrEqual": binary(),
    "Log": unary(0.1, 9),
    "LogSoftmax": along(),
    "LpPool": lp_pool,
    "MatMul": matmul,
    "MatMulInteger16": integer_product,
    "Max": several,
    "MaxPool": max_pool,
    "MaxRoiPool": max_roi_pool,
    "MaxUnpool": max_unpool,
    "Mean": several,
    "MeanVarianceNormalization": mean_variance,
    "Min": several,
    "Mish": unary(opset=18),
    "Mod": mod,
    "Mul": binary(),
    "Neg": unary(-4, 4, INT32, INT64),
    "Not": lambda n: n.test(n.input(n.floats(n.shape(0), -1, 1), BOOL)),
    "OneHot": one_hot,
    "Optional": optional,
    "OptionalGetElement": optional,
    "OptionalHasElement": optional,
    "Or": binary(BOOL),
    "PRelu": prelu,
    "Pad": pad,
    "Pow": binary(FLOATS, low=0.5),
    "QuantizeLinear": quantization,
    "RMSNormalization": rms_norm,
    "Range": range_,
    "Reciprocal": unary(0.5, 4),
    "ReduceL1": reduction,
    "ReduceL2": reduction,
    "ReduceLogSum": reduction,
    "ReduceLogSumExp": reduction,
    "ReduceMax": reduction,
    "ReduceMean": reduction,
    "ReduceMin": reduction,
    "ReduceProd": reduction,
    "ReduceSum": reduction,
    "ReduceSumSquare": reduction,
    "Relu": unary(-4, 4, opset=14),
    "Reshape": reshape,
    "Resize": resize,
    "RoiAlign": roi_align,
    "Round": unary(),
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Selu": unary(-4, 4, alpha=(None, 1.5), gamma=(None, 0.9)),
    "SequenceAt": sequence,
    "SequenceConstruct": sequence,
    "SequenceErase": sequence,
    "SequenceInsert": sequence,
    "SequenceLength": sequence,
    "Shape": shape_of,
    "Shrink": shrink,
    "Sigmoid": unary(-20, 20),
    "Sign": unary(-4, 4, INT32),
    "Sin": unary(),
    "Sinh": unary(),
    "Size": shape_of,
    "SkipLayerNormalization": skip_norm,
    "Slice": slice_,
    "Softmax": along(),
    "Softplus": unary(-40, 40),
    "Softsign": unary(),
    "SpaceToDepth": blocks,
    "Split": split,
    "SplitToSequence": sequence,
    "Sqrt": unary(0, 9),
    "Squeeze": squeeze,
    "Sub": binary(),
    "Sum": several,
    "Tan": unary(-1, 1),
    "Tanh": unary(),
    "ThresholdedRelu": unary(-4, 4, alpha=(None, 0.5)),
    "Tile": tile,
    "TopK": top_k,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
    "Upsample": upsample,
    "Where": where,
    "Xor": binary(BOOL),
}
"""ONNX operator -> generator."""


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="importer-cases-"))


def case(name: str, number: int, seed: int = 0) -> Case:
    """Draw `number` of the operator `name`."""
    n = Onnx(name, seed, number, *name.encode())
    CASES[name](n)

    @functools.cache
    def expected() -> list[np.ndarray]:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            n.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        feed = {f"x{i + 1}": array for i, array in enumerate(n.feed)}
        return [np.asarray(array) for array in session.run(None, feed)]

    def model() -> Path:
        path = _folder() / f"{name}-{number}.onnx"
        onnx.save(n.model(expected()), str(path))
        return path

    last = next((node for node in reversed(n.nodes) if node.op_type == name), None)
    text = f"opset {n.opset}, shapes {[array.shape for array in n.feed]}"
    if last is not None:
        attrs = {a.name: helper.get_attribute_value(a) for a in last.attribute}
        text += f", {attrs}"
    return Case(name, model, n.feed, expected, f"draw {number}: {text}")
