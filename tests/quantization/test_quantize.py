"""Float Relax becomes the integer dialect: group by group, and on any graph."""

from __future__ import annotations

import json
from typing import Any

import dialect_numpy
import numpy as np
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import Graph, Net, call, flat
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from vta_byoc.importers.load import load_model
from vta_byoc.ir.bindings import op_name, source_name
from vta_byoc.ir.quantization_record import float_regions
from vta_byoc.ir.records import text_of
from vta_byoc.quantize import QUANTIZATION, default_calibration, quantize


def samples(mod: tvm.IRModule, n: int = 3, seed: int = 0) -> list[list[np.ndarray]]:
    return [list(sample.values()) for sample in default_calibration(mod, n, seed)]


def quantized(mod: tvm.IRModule, calibration: Any = None) -> tvm.IRModule:
    qmod = quantize(mod, calibration=samples(mod) if calibration is None else calibration)
    relax.analysis.well_formed(qmod)
    return qmod


def ops(mod: tvm.IRModule) -> list[tuple[str, str]]:
    (block,) = mod["main"].body.blocks
    return [(b.var.name, op_name(b.value).removeprefix("relax.")) for b in block.bindings]


def record(mod: tvm.IRModule) -> dict[str, Any]:
    return json.loads(text_of(mod.get_attr(QUANTIZATION)))


def same(got: tvm.IRModule, expected: tvm.IRModule) -> None:
    """Structurally equal, without the record that only `quantize` writes."""
    tvm.ir.assert_structural_equal(got.without_attr(QUANTIZATION), expected)


def full(shape: tuple[int, ...], value: float) -> np.ndarray:
    return np.full(shape, value, "float32")


# ---------------------------------------------------------------- groups, before and after
HALVES = np.float32([[[[0.5]], [[-1.0]]]])
"""1x1 convolution of two channels: int8 (64, -128 -> -127) at scale 2**-7 would clip, so 2**-6."""


def test_conv_relu_group():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 2, 2), "float32")) -> R.Tensor((1, 1, 2, 2), "float32"):
            with R.dataflow():
                conv = R.nn.conv2d(x, R.const(HALVES, "float32"), out_dtype="float32")
                relu = R.nn.relu(conv)
                R.output(relu)
            return relu

    weight, bias = np.int8([[[[32]], [[-64]]]]), np.full((1, 1, 1, 1), 1 << 5, "int32")

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 2, 2, 2), "float32")) -> R.Tensor((1, 1, 2, 2), "float32"):
            with R.dataflow():
                q = R.quantize(x, R.const(1.0, "float32"), R.const(0, "int8"), axis=0)
                acc = R.nn.conv2d(q, R.const(weight, "int8"), out_dtype="int32")
                biased = R.add(acc, R.const(bias, "int32"))
                shifted = R.right_shift(biased, R.const(6, "int32"))
                low = R.maximum(shifted, R.const(0, "int32"))
                high = R.minimum(low, R.const(127, "int32"))
                y = R.astype(high, "int8")
                out = R.dequantize(y, R.const(1.0, "float32"), R.const(0, "int8"), axis=0)
                R.output(out)
            return out

    x = np.zeros((1, 2, 2, 2), "float32")
    x[0, :, 0, 0] = 100, -77
    qmod = quantized(Before, [x])
    same(qmod, Expected)
    assert record(qmod) == {
        "tensors": {
            "x__int8": {"scale": 1.0, "amax": 100.0},
            "conv__weight": {"scale": 2.0**-6, "amax": 1.0},
            "conv": {"scale": 1.0, "amax": 127.0},
        },
        "accumulators": {"conv": {"bound": 96 * 128 + 32, "shift": 6}},
        "sources": {"conv": ["conv", "relu"]},
        "absorbed": {"relu": ["conv", "relax.nn.relu"]},
    }


def test_residual_add_group():
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((1, 2), "float32"), b: R.Tensor((1, 2), "float32")) -> R.Tensor(
            (1, 2), "float32"
        ):
            with R.dataflow():
                total = R.add(a, b)
                relu = R.nn.relu(total)
                R.output(relu)
            return relu

    @I.ir_module
    class Expected:
        @R.function
        def main(a: R.Tensor((1, 2), "float32"), b: R.Tensor((1, 2), "float32")) -> R.Tensor(
            (1, 2), "float32"
        ):
            with R.dataflow():
                qa = R.quantize(a, R.const(4.0, "float32"), R.const(0, "int8"), axis=0)
                qb = R.quantize(b, R.const(1.0, "float32"), R.const(0, "int8"), axis=0)
                wide_a = R.astype(qa, "int32")
                same_scale = R.left_shift(wide_a, R.const(2, "int32"))
                wide_b = R.astype(qb, "int32")
                total = R.add(same_scale, wide_b)
                rounded = R.add(total, R.const(4, "int32"))
                shifted = R.right_shift(rounded, R.const(3, "int32"))
                low = R.maximum(shifted, R.const(0, "int32"))
                high = R.minimum(low, R.const(127, "int32"))
                y = R.astype(high, "int8")
                out = R.dequantize(y, R.const(8.0, "float32"), R.const(0, "int8"), axis=0)
                R.output(out)
            return out

    qmod = quantized(Before, [(full((1, 2), 500), full((1, 2), 100))])
    same(qmod, Expected)
    assert record(qmod)["accumulators"] == {"total": {"bound": 128 * 5 + 4, "shift": 3}}


def test_data_movement_and_clamps_stay_int8():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                pool = R.nn.max_pool2d(x, pool_size=[2, 2], strides=[2, 2])
                flat = R.reshape(pool, R.shape([2, 4]))
                relu = R.nn.relu(flat)
                low = R.minimum(relu, R.const(6.0, "float32"))
                both = R.add(low, low)
                R.output(both)
            return both

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                q = R.quantize(x, R.const(0.125, "float32"), R.const(0, "int8"), axis=0)
                pool = R.nn.max_pool2d(q, pool_size=[2, 2], strides=[2, 2])
                flat = R.reshape(pool, R.shape([2, 4]))
                relu = R.maximum(flat, R.const(0, "int8"))
                low = R.minimum(relu, R.const(48, "int8"))
                lhs = R.astype(low, "int32")
                rhs = R.astype(low, "int32")
                total = R.add(lhs, rhs)
                floor = R.maximum(total, R.const(-128, "int32"))
                ceiling = R.minimum(floor, R.const(127, "int32"))
                y = R.astype(ceiling, "int8")
                out = R.dequantize(y, R.const(0.125, "float32"), R.const(0, "int8"), axis=0)
                R.output(out)
            return out

    same(quantized(Before, [full((1, 2, 4, 4), 9)]), Expected)


def test_mean_group():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 7, 7), "float32")) -> R.Tensor((1, 2, 1, 1), "float32"):
            with R.dataflow():
                mean = R.mean(x, axis=[2, 3], keepdims=True)
                R.output(mean)
            return mean

    # 2675 / 2**17 = 21400 / 2**20, the most precise 15-bit multiplier for 1/49.
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 2, 7, 7), "float32")) -> R.Tensor((1, 2, 1, 1), "float32"):
            with R.dataflow():
                q = R.quantize(x, R.const(1.0, "float32"), R.const(0, "int8"), axis=0)
                wide = R.astype(q, "int32")
                total = R.sum(wide, axis=[2, 3], keepdims=True)
                product = R.multiply(total, R.const(2675, "int32"))
                rounded = R.add(product, R.const(1 << 16, "int32"))
                shifted = R.right_shift(rounded, R.const(17, "int32"))
                floor = R.maximum(shifted, R.const(-128, "int32"))
                ceiling = R.minimum(floor, R.const(127, "int32"))
                y = R.astype(ceiling, "int8")
                out = R.dequantize(y, R.const(1.0, "float32"), R.const(0, "int8"), axis=0)
                R.output(out)
            return out

    qmod = quantized(Before, [full((1, 2, 7, 7), 120)])
    same(qmod, Expected)
    assert record(qmod)["accumulators"]["mean"]["bound"] == 128 * 49 * 2675 + (1 << 16)


def test_last_dense_layer_leaves_from_int32():
    weight, bias = np.float32([[1.0, -1.0]]), np.float32([0.5, 0.25])
    ints, bias_ints = np.int8([[64, -64]]), np.int32([32, 16])

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 1), "float32")) -> R.Tensor((1, 2), "float32"):
            with R.dataflow():
                product = R.matmul(x, R.const(weight, "float32"))
                total = R.add(product, R.const(bias, "float32"))
                R.output(total)
            return total

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 1), "float32")) -> R.Tensor((1, 2), "float32"):
            with R.dataflow():
                q = R.quantize(x, R.const(1.0, "float32"), R.const(0, "int8"), axis=0)
                acc = R.matmul(q, R.const(ints, "int8"), out_dtype="int32")
                biased = R.add(acc, R.const(bias_ints, "int32"))
                out = R.dequantize(biased, R.const(2.0**-6, "float32"), R.const(0, "int32"), axis=0)
                R.output(out)
            return out

    same(quantized(Before, [full((1, 1), 100)]), Expected)


def test_concat_rescales_the_finer_input():
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((1, 2), "float32"), b: R.Tensor((1, 2), "float32")) -> R.Tensor(
            (1, 2, 2), "float32"
        ):
            with R.dataflow():
                both = R.concat((a, b), axis=0)
                twice = R.add(both, both)
                R.output(twice)
            return twice

    samples = [(full((1, 2), 127), full((1, 2), 31))]
    qmod = quantize(Before, calibration=samples, float_tail=False)
    assert ops(qmod)[:9] == [
        ("a__int8", "quantize"),
        ("b__int8", "quantize"),
        ("both__part1__wide", "astype"),
        ("both__part1__round", "add"),
        ("both__part1__shift", "right_shift"),
        ("both__part1__max", "maximum"),
        ("both__part1__min", "minimum"),
        ("both__part1", "astype"),
        ("both", "concat"),
    ]
    x = [np.float32([[127, -126]]), np.float32([[30.25, -0.5]])]
    got = dialect_numpy.run(qmod, *x)["both"]
    np.testing.assert_array_equal(got, [[127, -126], [30, 0]])
    np.testing.assert_array_equal(call(qmod, *x)[0], dialect_numpy.run(qmod, *x)["result"])


def test_an_unknown_operator_is_a_float_island():
    g = Graph((1, 3, 6, 6))
    x = g.conv(g.params[0], 4, name="first")
    x = g.op("cumsum", x, 1, name="island")
    qmod = quantized(g.module(g.conv(x, 4, name="second")))
    names = [name for name, op in ops(qmod) if op in ("quantize", "dequantize", "cumsum")]
    assert names == ["x0__int8", "first", "island", "island__int8", "second"]


def test_a_float_graph_stays_float():
    g = Graph((1, 3, 4))
    x = g.op("reshape", g.params[0], (3, 4))
    qmod = quantized(g.module(g.op("exp", g.op("nn.relu", x))))
    assert [op for _, op in ops(qmod)] == ["reshape", "nn.relu", "exp"]


def test_what_reads_a_float_value_does_not_depend_on_other_readers():
    g = Graph((1, 3, 6, 6))
    island = g.op("cumsum", g.params[0], 1, name="island")
    conv = g.conv(island, 4)
    qmod = quantized(g.module(conv, g.op("reshape", island, (3, 36), name="exact")))
    types = {b.var.name: str(b.var.ty.dtype) for b in qmod["main"].body.blocks[0].bindings}
    assert (types["exact"], types["island__int8"]) == ("float32", "int8")


def test_preprocessing_stays_float():
    g = Graph((1, 3, 6, 6))
    shifted = g.op("add", g.params[0], g.const(-0.5), name="shifted")
    qmod = quantized(g.module(g.conv(shifted, 4)))
    assert ops(qmod)[:2] == [("shifted", "add"), ("shifted__int8", "quantize")]


def test_relu6_is_two_bounds_of_the_group():
    g = Graph((1, 3, 6, 6))
    x = g.conv(g.params[0], 4)
    x = g.op("minimum", g.op("maximum", x, g.const(0)), g.const(0.5), name="relu6")
    qmod = quantized(g.module(x))
    (block,) = qmod["main"].body.blocks
    bounds = {b.var.name: b.value.args[1].value.numpy() for b in block.bindings[4:6]}
    assert bounds == {"conv__max": 0, "conv__min": 64}
    assert record(qmod)["sources"] == {"conv": ["conv", "maximum", "relu6"]}


def test_a_shared_layer_is_not_absorbed():
    g = Graph((1, 3, 6, 6))
    y = g.conv(g.params[0], 4)
    qmod = quantized(g.module(g.op("nn.relu", y), g.op("tanh", y), y))
    assert record(qmod)["sources"] == {"conv": ["conv"]}
    assert ("relu", "maximum") in ops(qmod)
    assert [name for name, op in ops(qmod) if op == "dequantize"] == ["conv__float", "relu__float"]


# ---------------------------------------------------------------- any graph
def check_numerics(mod: tvm.IRModule, tolerance: float, seed: int = 0) -> None:
    """Quantized on its own inputs: LLVM equals NumPy bit for bit and is near the float result."""
    inputs = samples(mod, 1, seed)[0]
    qmod = quantized(mod, [inputs])
    results = flat(dialect_numpy.run(qmod, *inputs)["result"])
    for got, want, exact in zip(call(qmod, *inputs), results, call(mod, *inputs), strict=True):
        np.testing.assert_array_equal(got, want)
        assert np.abs(got - exact).max() <= tolerance * max(np.abs(exact).max(), 1)
    check_bounds(qmod, [1e9 * array for array in inputs])


def check_bounds(qmod: tvm.IRModule, inputs: list[np.ndarray]) -> None:
    """Saturating inputs stay within every proven bound (NumPy checks int32 at each step)."""
    values = dialect_numpy.run(qmod, *inputs)
    for layer, proof in record(qmod)["accumulators"].items():
        parts = [values[f"{layer}__{part}"] for part in ("bias", "round", "acc")
                 if f"{layer}__{part}" in values]  # fmt: skip
        assert max(int(np.abs(np.int64(part)).max()) for part in parts) <= proof["bound"]


def test_residual_network():
    g = Graph((1, 3, 12, 12), seed=3)
    x = g.op("nn.relu", g.conv(g.params[0], 8, name="stem"))
    for i in range(3):
        y = g.op("nn.relu", g.conv(x, 8, name=f"a{i}"))
        x = g.op("nn.relu", g.op("add", g.conv(y, 8, name=f"b{i}"), x, name=f"add{i}"))
    x = g.op("mean", x, axis=[2, 3], keepdims=False)
    mod = g.module(g.dense(x, 10, name="fc"))
    check_numerics(mod, 0.05)
    qmod = quantized(mod)
    (block,) = qmod["main"].body.blocks
    assert {source_name(b.var) for b in block.bindings} == {
        "x0", "stem", *(f"{part}{i}" for part in ("a", "b", "add") for i in range(3)), "mean", "fc",
    }  # fmt: skip


def test_several_inputs_outputs_and_readers():
    g = Graph((1, 4, 6, 6), (1, 4, 6, 6))
    a, b = g.params
    shared = g.conv(g.op("add", a, b, name="sum"), 4, name="shared")
    left = g.conv(shared, 4, name="left")
    right = g.op("abs", shared, name="right")
    both = g.op("concat", [left, right, a], axis=1, name="both")
    check_numerics(g.module(left, both, shared, a, left), 0.1)


def test_split_and_constants():
    g = Graph((1, 4, 6, 6))
    parts = g.op("split", g.conv(g.params[0], 4), 2, axis=1, name="parts")
    first = g.emit(relax.TupleGetItem(parts, 0), "first")
    second = g.emit(relax.TupleGetItem(parts, 1), "second")
    total = g.op("add", first, g.normal(1, 2, 6, 6), name="total")
    mod = g.module(g.op("concat", [total, second], axis=1), g.normal(3))
    assert ("parts", "split") in ops(quantized(mod))
    check_numerics(mod, 0.1)


def test_a_tuple_read_as_a_whole():
    g = Graph((1, 4, 6, 6))
    parts = g.op("split", g.conv(g.params[0], 4), 2, axis=1, name="parts")
    check_numerics(g.module(g.op("concat", parts, axis=0), parts), 0.1)


def test_dense_layers():
    g = Graph((2, 5, 8))
    x = g.op("nn.relu", g.dense(g.params[0], 12, name="first"), name="relu")
    mod = g.module(g.dense(g.dense(x, 12, name="second"), 4, name="third"))
    check_numerics(mod, 0.05)
    last = [name for name, op in ops(quantized(mod)) if op in ("astype", "dequantize")]
    assert last == ["first", "second", "third"]


def test_padding_and_adaptive_pooling():
    g = Graph((1, 3, 6, 6))
    x = g.op("nn.pad", g.conv(g.params[0], 4), [0, 0, 0, 0, 1, 2, 0, 1], name="pad")
    x = g.op("nn.adaptive_avg_pool2d", x, (1, 1), name="pool")
    mod = g.module(x, g.op("nn.pad", x, [0, 0, 0, 0, 1, 1, 1, 1], "constant", 2.0, name="twos"))
    listed = ops(quantized(mod))
    assert ("pad", "nn.pad") in listed and ("pool__acc", "sum") in listed
    assert listed.index(("twos", "nn.pad")) > listed.index(("pool__float", "dequantize"))


def test_other_dtypes_pass_through():
    g = Graph((2, 3, 4, 4))
    x = g.conv(g.params[0], 4)
    mod = g.module(g.op("argmax", x, axis=1), g.op("nn.relu", x))
    best, _ = call(quantized(mod), *samples(mod)[0])
    assert best.dtype == np.int64 and best.shape == (2, 4, 4)


def test_tir_functions_are_islands(tmp_path):
    net = Net(x=[1, 3, 6, 6])
    pads = net.const([0, 0, 1, 1, 0, 0, 1, 1], "int64")
    x = net.node("Pad", net.conv("x", 3, 4), pads, name="pad", mode="reflect")
    mod = load_model(net.save(tmp_path / "net.onnx", net.conv(x, 4, 4)))
    qmod = quantized(mod)
    inputs = samples(mod)[0]
    np.testing.assert_allclose(call(qmod, *inputs)[0], call(mod, *inputs)[0], atol=0.25)


def test_names_that_repeat():
    g = Graph((1, 3, 6, 6))
    x = g.conv(g.op("nn.relu", g.conv(g.params[0], 4)), 4)
    qmod = quantized(g.module(x))
    names = [name for name, _ in ops(qmod)]
    assert len(set(names)) == len(names)
    assert set(record(qmod)["accumulators"]) == {"conv", "conv__2"}


def test_same_calibration_same_module():
    g = Graph((1, 3, 6, 6))
    mod = g.module(g.conv(g.params[0], 4))
    tvm.ir.assert_structural_equal(quantized(mod), quantized(mod))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to 8 operators on values of shape (1, C, 6, 6), each reading any earlier value."""
    g = Graph((1, 4, 6, 6), (1, 4, 6, 6), seed=draw(st.integers(0, 1000)))
    values: list[Any] = list(g.params)
    for index in range(draw(st.integers(1, 8))):
        x, y = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        name = f"op{index}"
        options = {
            "conv": lambda x, y, name: g.conv(x, draw(st.sampled_from([4, 6])), name=name),
            "grouped": lambda x, y, name: g.conv(x, 4, groups=2, name=name),
            "relu": lambda x, y, name: g.op("nn.relu", x, name=name),
            "relu6": lambda x, y, name: g.op(
                "minimum", g.op("maximum", x, g.const(0)), g.const(1), name=name
            ),
            "pool": lambda x, y, name: g.op("nn.max_pool2d", x, [3, 3], [1, 1], [1, 1], name=name),
            "add": lambda x, y, name: g.op("add", x, g.slice_like(y, x), name=name),
            "constant": lambda x, y, name: g.op("add", x, g.normal(1, 1, 6, 1), name=name),
            "island": lambda x, y, name: g.op("abs", x, name=name),
            "concat": lambda x, y, name: g.slice_like(g.op("concat", [x, y], axis=1, name=name), x),
        }
        values.append(options[draw(st.sampled_from(sorted(options)))](x, y, name))
    g.outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    return g


@settings(max_examples=12)
@given(graphs())
def test_random_graphs(g):
    check_numerics(g.module(*g.outputs), 0.15)


def test_indices_are_no_operators_that_stay_float():
    """Their clamps are of integers: nothing is said of them."""

    @I.ir_module
    class Before:
        @R.function
        def main(ids: R.Tensor((1, 4), "int64")) -> R.Tensor((1, 4, 4), "float32"):
            with R.dataflow():
                low = R.maximum(ids, R.const(0, "int64"))
                places = R.minimum(low, R.const(3, "int64"))
                rows = R.take(R.const(TABLE), places, axis=0)
                y = R.matmul(rows, R.const(TABLE.T))
                R.output(y)
            return y

    qmod = quantized(Before, [[np.array([[0, 1, 2, 3]])], [np.array([[5, -1, 2, 0]])]])
    assert not float_regions(qmod)


TABLE = np.float32([[0.5, -1], [0.25, 0], [1, 1], [0, -0.5]])
