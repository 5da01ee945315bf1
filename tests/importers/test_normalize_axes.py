"""Operators of one spatial axis and reductions are written as operators of planes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from rule_cases import becomes
from small_models import Net
from test_normalize import loaded, names, same_result
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.partition import placements
from vta_byoc.pipeline import partition_for_vta
from vta_byoc.quantize import quantize


def only(mod: tvm.IRModule, kind: str) -> Any:
    (call,) = (b.value for b in straight_bindings(mod["main"]) if op_name(b.value) == kind)
    return call


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": [3], "strides": [2], "pads": [1, 0]},
        {"kernel_shape": [2], "strides": [2], "ceil_mode": 1},
    ],
)
def test_pooling_along_one_axis(op: str, attrs: dict[str, Any], tmp_path: Any) -> None:
    net = Net(x=(2, 3, 9))
    mod = loaded(net, tmp_path, net.node(op, "x", **attrs))
    kind = "nn.max_pool2d" if op == "MaxPool" else "nn.avg_pool2d"
    assert names(mod) == ["reshape", kind, "reshape"]
    assert int(only(mod, f"relax.{kind}").attrs.pool_size[0]) == 1


def test_transposed_convolution_along_one_axis() -> None:
    kernel = np.random.default_rng(0).standard_normal((6, 4, 4)).astype("float32")
    data = relax.Var("x", R.Tensor((1, 6, 5), "float32"))
    attrs = {"strides": 3, "padding": [1, 0], "output_padding": 1, "groups": 2}
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            call = relax.op.nn.conv1d_transpose(data, relax.const(kernel), **attrs)
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    before = builder.get()
    after = normalize(before)
    assert names(after) == ["reshape", "nn.conv2d_transpose", "reshape"]
    same_result(before, after)


@pytest.mark.parametrize(
    ("shape", "axes", "kept"),
    [((2, 3, 7), [2], 0), ((2, 3, 4, 5), [2, 3], 0), ((2, 3, 4, 5), [-1, -2], 1)],
)
def test_the_maximum_of_planes(
    shape: tuple[int, ...], axes: list[int], kept: int, tmp_path: Any
) -> None:
    net = Net(x=shape)
    mod = loaded(net, tmp_path, net.node("ReduceMax", "x", axes=axes, keepdims=kept))
    pool = only(mod, "relax.nn.max_pool2d")
    assert [int(size) for size in pool.attrs.pool_size] == [1, *shape[2:]][-2:]


@pytest.mark.parametrize("axes", [[1], [3], [1, 2, 3]])
def test_other_maxima_stay(axes: list[int], tmp_path: Any) -> None:
    net = Net(x=(2, 3, 4, 5))
    assert names(loaded(net, tmp_path, net.node("ReduceMax", "x", axes=axes))) == ["max"]


@pytest.mark.parametrize(("index", "begin"), [(-1, 6), (2, 2)])
def test_one_place_is_a_slice(index: int, begin: int) -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3, 7), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                y = R.take(x, R.const(begin, "int64"), axis=2)
                R.output(y)
            return y

    after = normalize(Before)
    assert names(after) == ["strided_slice", "reshape"]
    same_result(Before, after)


def test_several_places_are_taken() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3, 7), "float32")) -> R.Tensor((2, 3, 2), "float32"):
            with R.dataflow():
                y = R.take(x, R.const([1, 5], "int64"), axis=2)
                R.output(y)
            return y

    assert names(normalize(Before)) == ["take"]


# ---------------------------------------------------------------- reductions
@pytest.mark.parametrize("kind", ["mean", "sum", "max", "min"])
@pytest.mark.parametrize(
    ("inner", "outer"), [((1, False), (1, False)), ((2, True), (1, False)), ((2, True), (3, True))]
)
def test_reductions_in_a_row_are_one(
    kind: str, inner: tuple[int, bool], outer: tuple[int, bool]
) -> None:
    reduce = getattr(relax.op, kind)

    def build(emit: Any, x: relax.Expr) -> relax.Expr:
        return reduce(emit(reduce(x, inner[0], keepdims=inner[1])), outer[0], keepdims=outer[1])

    found = becomes([(1, 3, 4, 5)], build, 1e-5)
    assert [name for name in found if name != "reshape"] in ([kind], ["nn.max_pool2d"])


@pytest.mark.parametrize("kind", ["mean", "sum", "max", "min"])
def test_a_reduction_of_one_element_is_that_element(kind: str) -> None:
    def build(_emit: Any, x: relax.Expr) -> relax.Expr:
        return getattr(relax.op, kind)(x, [1, 3])

    assert becomes([(2, 1, 4, 1)], build) == ["reshape"]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("permuted", [False, True])
def test_a_mean_of_channels_last(permuted: bool, keepdims: bool) -> None:
    """Of the planes before a permutation; else of tokens."""

    def build(emit: Any, x: relax.Expr) -> relax.Expr:
        x = emit(relax.op.permute_dims(x, [0, 2, 3, 1])) if permuted else x
        return relax.op.mean(x, [1, 2], keepdims=keepdims)

    found = becomes([(2, 3, 4, 5)], build, 1e-5)
    assert found == ["reshape"] * (not permuted) + ["mean"] + ["reshape"] * keepdims


def test_a_reduction_that_another_reads_stays() -> None:
    def build(emit: Any, x: relax.Expr) -> relax.Expr:
        rows = emit(relax.op.mean(x, 2, keepdims=True))
        return relax.op.add(emit(relax.op.mean(rows, 3, keepdims=True)), rows)

    assert becomes([(1, 3, 4, 5)], build, 1e-5) == ["mean", "mean", "add"]


@pytest.mark.parametrize("others", [0, 1])
def test_what_has_no_element_is_joined_to_nothing(others: int) -> None:
    def build(emit: Any, x: relax.Expr) -> relax.Expr:
        nothing = emit(relax.op.strided_slice(x, [2], [4], [4]))
        return relax.op.concat([x, nothing, *[x] * others], axis=2)

    assert becomes([(1, 3, 4)], build) == ["concat"] * others


def test_pooling_between_convolutions_of_one_axis_runs_on_vta(tmp_path: Any) -> None:
    net = Net(x=(1, 16, 12))
    first = net.node("Conv", "x", net.normal(16, 16, 3, scale=0.1), pads=[1, 1], name="first")
    pooled = net.node("MaxPool", first, kernel_shape=[2], strides=[2], name="pool")
    last = net.node("Conv", pooled, net.normal(16, 16, 3, scale=0.1), pads=[1, 1], name="last")
    mod = loaded(net, tmp_path, net.node("ReduceMax", last, axes=[2], name="largest"))
    samples = [net.rng.standard_normal((1, 16, 12)).astype("float32")]
    placed = placements(partition_for_vta(quantize(mod, calibration=samples)))
    on_vta = {op.name for op in placed if op.device == "vta"}
    assert {"first", "pool", "last", "largest"} <= on_vta
