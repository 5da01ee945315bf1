"""Generators of ONNX cases: convolutions, pools, products, normalizations and attention."""

from __future__ import annotations

from typing import Any

from importer_onnx_graph import FLOATS, INT32, Generator, Onnx


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
    attrs["ceil_mode"] = n.pick(None, 0, 1)
    outputs = n.size(1, 2)
    if outputs == 2:
        attrs["storage_order"] = n.pick(None, 0, 1) if rank < 3 else None
    n.test(_plane(n, rank, 2), outputs=outputs, kernel_shape=kernel, **attrs)


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
