"""Convolution and pooling of three axes are written as those of planes, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from test_normalize import call, names, same_result
from tvm import relax

from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.ir.bindings import op_name, static_shape, straight_bindings


class Built:
    """A module that is written operator by operator."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        self.rng = np.random.default_rng(0)
        self.params = [
            relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)
        ]
        self.builder = relax.BlockBuilder()
        self.made: list[relax.Expr] = []

    def module(self, write: Any) -> tvm.IRModule:
        with self.builder.function("main", self.params):
            with self.builder.dataflow():
                result = self.builder.emit_output(write(self, *self.params))
            self.builder.emit_func_output(result)
        return self.builder.get()

    def conv(self, x: relax.Expr, filters: int, kernel: Any, groups: int = 1, **attrs: Any) -> Any:
        shape = (filters, static_shape(x)[1] // groups, *kernel)
        weight = relax.const(self.rng.normal(size=shape).astype("float32"))
        return self.builder.emit(relax.op.nn.conv3d(x, weight, groups=groups, **attrs))

    def channels(self, count: int) -> relax.Expr:
        return relax.const(self.rng.normal(size=(1, count, 1, 1, 1)).astype("float32"))


def only_planes(mod: tvm.IRModule) -> None:
    """No operator of three axes is left, and none but views has five."""
    left = [name for name in names(mod) if "3d" in name]
    assert not left, left
    views = ("relax.reshape", "relax.permute_dims")
    for binding in straight_bindings(mod["main"]):
        if op_name(binding.value) not in views:
            assert len(static_shape(binding.var)) < 5, binding


CONVOLUTIONS: list[tuple[tuple[int, ...], int, tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 6, 7, 5), 4, (3, 3, 3), {"padding": 1}),
    ((1, 4, 6, 7, 5), 5, (2, 3, 1), {"strides": (2, 1, 2), "padding": (1, 0, 1, 0, 2, 0)}),
    ((1, 4, 9, 5, 5), 3, (3, 2, 2), {"dilation": (2, 1, 2), "strides": (3, 2, 1)}),
    ((2, 3, 5, 6, 4), 4, (3, 3, 3), {"padding": 1, "strides": 2}),
    ((3, 3, 4, 4, 4), 2, (1, 3, 3), {}),
    ((1, 8, 5, 4, 4), 8, (3, 1, 1), {"groups": 8, "padding": (1, 0, 0)}),
    ((2, 6, 5, 4, 4), 4, (3, 3, 3), {"groups": 2, "padding": 1}),
    ((1, 3, 1, 6, 6), 4, (1, 1, 1), {}),
]


@pytest.mark.parametrize("shape, filters, kernel, attrs", CONVOLUTIONS)
def test_convolution(
    shape: tuple[int, ...], filters: int, kernel: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    before = Built(shape).module(lambda b, x: b.conv(x, filters, kernel, **attrs))
    after = normalize(before)
    only_planes(after)
    same_result(before, after)


@pytest.mark.parametrize("groups", [1, 2])
def test_integers_are_summed_in_int32(groups: int) -> None:
    """Of a module that is quantized already."""
    rng, x = np.random.default_rng(0), relax.Var("x0", relax.TensorType((1, 4, 5, 6, 6), "int8"))
    weight = rng.integers(-128, 128, (4, 4 // groups, 3, 3, 3)).astype("int8")

    def write(b: Built, _: relax.Expr) -> relax.Expr:
        op = relax.op.nn.conv3d(x, relax.const(weight), groups=groups, out_dtype="int32")
        return b.builder.emit(op)

    built = Built((1, 4, 5, 6, 6))
    built.params = [x]
    before = built.module(write)
    after = normalize(before)
    only_planes(after)
    data = rng.integers(-128, 128, (1, 4, 5, 6, 6)).astype("int8")
    (found,), (wanted,) = call(after, data), call(before, data)
    assert found.dtype == "int32"
    np.testing.assert_array_equal(found, wanted)


def pooled(kind: str, attrs: dict[str, Any], shape: tuple[int, ...]) -> tvm.IRModule:
    pool = getattr(relax.op.nn, kind)
    return Built(shape).module(lambda b, x: b.builder.emit(pool(x, **attrs)))


def planes_compute(kind: str, attrs: dict[str, Any], shape: tuple[int, ...]) -> None:
    before = pooled(kind, attrs, shape)
    after = normalize(before)
    only_planes(after)
    same_result(before, after)


def stays(kind: str, attrs: dict[str, Any], shape: tuple[int, ...]) -> None:
    assert names(normalize(pooled(kind, attrs, shape))) == [f"nn.{kind}"]


@pytest.mark.parametrize("kind", ["max_pool3d", "avg_pool3d"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"pool_size": (2, 2, 2), "strides": (2, 2, 2)},
        {"pool_size": (1, 2, 2), "strides": (1, 2, 2)},
        {"pool_size": (3, 1, 1), "strides": (1, 1, 1)},
        {"pool_size": (3, 2, 1), "strides": (2, 1, 1)},
    ],
)
@pytest.mark.parametrize("batch", [1, 2])
def test_pooling(kind: str, attrs: dict[str, Any], batch: int) -> None:
    planes_compute(kind, attrs, (batch, 3, 7, 6, 5))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    "attrs",
    [
        {"pool_size": (1, 3, 3), "strides": (1, 2, 2), "padding": (0, 1, 1)},
        {"pool_size": 3, "strides": 1, "padding": 1},
        {"pool_size": 3, "strides": 2, "padding": 1},
        {"pool_size": (4, 2, 2), "strides": (3, 2, 2), "padding": (2, 0, 0, 1, 0, 0)},
        {"pool_size": (2, 1, 1), "strides": 1, "padding": (1, 0, 0), "dilation": (3, 1, 1)},
        {"pool_size": 2, "strides": 2, "ceil_mode": True},
        {"pool_size": (3, 2, 2), "strides": (3, 2, 2), "ceil_mode": True},
    ],
)
def test_maxima_with_padding(attrs: dict[str, Any], batch: int) -> None:
    planes_compute("max_pool3d", attrs, (batch, 3, 7, 7, 5))


def test_a_window_of_padding_alone_stays() -> None:
    """Two places, three depths apart, of a tensor of one depth."""
    attrs = {"pool_size": (2, 1, 1), "padding": (2, 0, 0), "dilation": (3, 1, 1)}
    stays("max_pool3d", attrs, (1, 3, 1, 4, 4))


def test_padding_of_planes_whose_windows_are_pixels() -> None:
    attrs = {"pool_size": (2, 1, 1), "strides": 1, "padding": (0, 1, 1)}
    planes_compute("max_pool3d", attrs, (1, 3, 4, 4, 4))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    "attrs",
    [
        {"pool_size": (1, 3, 3), "padding": (0, 1, 1), "count_include_pad": False},
        {"pool_size": (2, 3, 3), "strides": 2, "padding": (0, 1, 1, 0, 0, 1)},
        {"pool_size": 3, "padding": 1, "count_include_pad": True},
        {"pool_size": (3, 1, 1), "padding": (1, 0, 0, 2, 0, 0), "count_include_pad": True},
        {"pool_size": 3, "strides": 2, "padding": 1, "count_include_pad": True},
    ],
)
def test_averages_with_padding(attrs: dict[str, Any], batch: int) -> None:
    planes_compute("avg_pool3d", attrs, (batch, 3, 7, 6, 5))


@pytest.mark.parametrize(
    "attrs",
    [
        {"pool_size": 3, "padding": 1, "count_include_pad": False},
        {"pool_size": 2, "strides": 2, "ceil_mode": True},
    ],
)
def test_averages_of_unequal_numbers_of_depths_stay(attrs: dict[str, Any]) -> None:
    stays("avg_pool3d", attrs, (1, 3, 7, 7, 7))


def test_sums_of_neighbouring_channels_stay() -> None:
    """As LRN has them: the channels are the depths of one channel."""
    attrs = {"pool_size": (5, 1, 1), "padding": (2, 0, 0), "count_include_pad": True}
    stays("avg_pool3d", attrs, (1, 1, 16, 6, 6))


@pytest.mark.parametrize("batch", [1, 2])
def test_means_of_all_places(batch: int) -> None:
    shape = (batch, 3, 4, 5, 6)
    whole = relax.op.nn.avg_pool3d
    for write in (
        lambda b, x: b.builder.emit(relax.op.mean(x, [2, 3, 4], keepdims=True)),
        lambda b, x: b.builder.emit(relax.op.mean(x, [-1, -2, -3])),
        lambda b, x: b.builder.emit(relax.op.nn.adaptive_avg_pool3d(x, 1)),
        lambda b, x: b.builder.emit(whole(x, (4, 5, 6))),
    ):
        before = Built(shape).module(write)
        after = normalize(before)
        only_planes(after)
        assert "mean" in names(after)
        same_result(before, after)


def residual(b: Built, x: relax.Expr) -> relax.Expr:
    """As a block of R3D or X3D: two layers, a gate, what is added, a concat."""
    emit = b.builder.emit
    biased = emit(relax.op.add(b.conv(x, 8, (3, 3, 3), padding=1), b.channels(8)))
    one = emit(relax.op.nn.silu(biased))
    two = emit(relax.op.multiply(b.conv(one, 8, (3, 1, 1), padding=(1, 0, 0)), b.channels(8)))
    mean = emit(relax.op.mean(two, [2, 3, 4], keepdims=True))
    gate = emit(relax.op.sigmoid(b.conv(mean, 8, (1, 1, 1))))
    gated = emit(relax.op.multiply(two, gate))
    total = emit(relax.op.nn.relu(emit(relax.op.add(gated, one))))
    return emit(relax.op.concat([total, emit(relax.op.clip(one, -0.5, 0.75))], axis=1))


@pytest.mark.parametrize("batch", [1, 2])
def test_what_stands_between_layers_works_on_planes(batch: int) -> None:
    before = Built((batch, 4, 5, 6, 6)).module(residual)
    after = normalize(before)
    same_result(before, after)
    if batch == 1:  # a gate has the axis of the batch otherwise, which planes have not
        only_planes(after)


def test_constants_by_place_stay() -> None:
    """What differs along two axes is added to the tensor as it was."""
    places = relax.const(np.arange(30, dtype="float32").reshape(1, 1, 5, 6, 1))
    before = Built((1, 4, 5, 6, 6)).module(
        lambda b, x: b.builder.emit(relax.op.add(b.conv(x, 4, (1, 1, 1)), places))
    )
    after = normalize(before)
    same_result(before, after)
    assert names(after)[-1] == "add"
