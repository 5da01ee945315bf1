"""Biases, clamps and scales in front of the movement that exporters put before them."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import tvm
from quantized_runs import assert_qdq, operators
from small_models import Graph, call, ops
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from models.quantized_transformers import LINEARS, quantized
from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.importers.load import load_model
from vta_byoc.ir.bindings import static_shape
from vta_byoc.ir.rewriter import Rewriter
from vta_byoc.partitioning.placement import CPU, VTA
from vta_byoc.pipeline import compile_module
from vta_byoc.quantize import quantize
from vta_byoc.validation.bit_exact import compare_layers

HAS_PT2E = all(importlib.util.find_spec(name) for name in ("torch", "torchao"))
needs_pt2e = pytest.mark.skipif(not HAS_PT2E, reason="torch and torchao are not installed")


def becomes(before: tvm.IRModule, *expected: str) -> tvm.IRModule:
    """`before`, normalized, has the operators `expected` and computes the same."""
    after = normalize(before)
    assert operators(after) == list(expected)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(static_shape(p)).astype("float32") for p in before["main"].params]
    for got, want in zip(call(after, *inputs), call(before, *inputs), strict=True):
        np.testing.assert_array_equal(got, want)
    return after


def weight(*shape: int, axis: int = 1) -> relax.Expr:
    """dequantize(int8), one scale for each index of `axis`."""
    rng = np.random.default_rng(1)
    values = relax.const(rng.integers(-127, 128, shape).astype("int8"))
    scale = relax.const((2.0 ** rng.integers(-9, -6, shape[axis])).astype("float32"))
    return relax.op.dequantize(values, scale, relax.const(np.int8(0)), axis=axis)


def quantized_by(value: relax.Expr, step: float, zero: int) -> relax.Expr:
    parameters = relax.const(np.float32(step)), relax.const(np.int8(zero))
    return relax.op.quantize(value, *parameters, out_dtype="int8")


def built(shape: tuple[int, ...], *steps: Any) -> tvm.IRModule:
    """`main` of one input on its grid of 1/16, and `steps`, each a function of the value before."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(quantized_by(x, 1 / 16, 3))
            parameters = relax.const(np.float32(1 / 16)), relax.const(np.int8(3))
            value = builder.emit(relax.op.dequantize(value, *parameters))
            for step in steps:
                value = builder.emit(step(value))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get()


def product(*shape: int) -> Any:
    return lambda x: relax.op.matmul(x, relax.BlockBuilder.current().emit(weight(*shape)))


def bias(*shape: int) -> Any:
    values = np.arange(np.prod(shape)).reshape(shape).astype("float32")
    return lambda x: relax.op.add(x, relax.const(values))


def reshape(*shape: int) -> Any:
    return lambda x: relax.op.reshape(x, shape)


def permute(*axes: int) -> Any:
    return lambda x: relax.op.permute_dims(x, list(axes))


def stated(x: relax.Expr) -> relax.Expr:
    return quantized_by(x, 1 / 8, -2)


# ---------------------------------------------------------------- what moves
def test_a_linear_layer_of_three_axes_is_one_layer() -> None:
    mod = built((2, 6, 8), reshape(12, 8), product(8, 4), bias(4), reshape(2, 6, 4), stated)
    becomes(mod, "quantize", "dequantize", "dequantize", "matmul", "add", "quantize")


def test_the_bias_and_the_clamp_behind_the_reshape_belong_to_the_layer() -> None:
    steps = (reshape(12, 8), product(8, 4), reshape(2, 6, 4), bias(1, 1, 4), relax.op.nn.relu)
    mod = becomes(
        built((2, 6, 8), *steps, permute(1, 0, 2), stated),
        *("quantize", "dequantize", "dequantize", "matmul", "add", "nn.relu"),
        *("quantize", "dequantize", "permute_dims", "quantize"),
    )
    integer = quantize(mod)
    assert operators(integer).count("matmul") == 1
    assert "dequantize" not in operators(integer)[1:]


def test_the_scale_goes_through_every_movement() -> None:
    moves = (reshape(2, 6, 2, 2), permute(0, 2, 1, 3), lambda x: relax.op.expand_dims(x, 0))
    slices = lambda x: relax.op.strided_slice(x, [1], [0], [1])  # noqa: E731
    wide = lambda x: relax.op.broadcast_to(x, (3, 1, 2, 6, 2))  # noqa: E731
    mod = built((2, 6, 8), product(8, 4), *moves, slices, wide, stated)
    after = normalize(mod)
    names = operators(after)
    assert names.index("quantize", 1) == names.index("matmul") + 1
    becomes(mod, *names)
    assert_qdq(after)


def test_a_scale_that_stands_in_front_of_a_padding_is_stated_once() -> None:
    pad = lambda x: relax.op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1])  # noqa: E731
    pool = lambda x: relax.op.nn.max_pool2d(x, (2, 2), (2, 2))  # noqa: E731
    mod = built((1, 2, 6, 6), pad, pool, lambda x: quantized_by(x, 1 / 16, 3))
    becomes(mod, "quantize", "dequantize", "nn.pad", "nn.max_pool2d", "quantize")


def test_rules_that_undo_each_other_end() -> None:
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.add(x, x))
        builder.emit_func_output(result)
    turned = lambda _rewriter, call: relax.op.add(call.args[1], call.args[0])  # noqa: E731
    with pytest.raises(AssertionError, match="the rules of relax.add still apply after 100 rounds"):
        Rewriter(builder.get()["main"], lambda _name: (turned,)).run()


def test_weights_that_are_cut_stay_integers() -> None:
    def sliced(x: relax.Expr) -> relax.Expr:
        emit = relax.BlockBuilder.current().emit
        part = relax.op.strided_slice(emit(weight(8, 6)), [1], [2], [6])
        return relax.op.matmul(x, emit(part))

    mod = becomes(
        built((2, 8), sliced, stated), "quantize", "dequantize", "dequantize", "matmul", "quantize"
    )
    made = [b.value for b in mod["main"].body.blocks[0].bindings]
    assert static_shape(made[2].args[1]) == (4,) and static_shape(made[2]) == (8, 4)


# ---------------------------------------------------------------- what stays
def test_a_bias_along_an_axis_that_the_reshape_takes_apart_stays() -> None:
    mod = built((2, 6, 8), product(8, 4), reshape(2, 6, 2, 2), bias(1, 1, 2, 2), stated)
    assert operators(normalize(mod))[-3:] == ["reshape", "add", "quantize"]


def test_a_reshape_that_takes_rows_apart_stays() -> None:
    mod = built((2, 6, 8), reshape(24, 4), product(4, 4), stated)
    assert operators(normalize(mod)) == [
        *("quantize", "dequantize", "reshape", "dequantize", "matmul", "quantize")
    ]


def test_what_never_becomes_integer_is_not_quantized_early() -> None:
    @I.ir_module
    class Float:
        @R.function
        def main(x: R.Tensor((4, 6), "float32")) -> R.Tensor((6,), "int8"):
            with R.dataflow():
                a = R.nn.softmax(x)
                b = R.strided_slice(a, [0], [1], [2])
                c = R.reshape(b, R.shape([6]))
                y = R.quantize(c, R.const(0.01, "float32"), R.const(0, "int8"), out_dtype="int8")
                R.output(y)
            return y

    becomes(Float, "nn.softmax", "strided_slice", "reshape", "quantize")


# ---------------------------------------------------------------- a transformer
@needs_pt2e
def test_linear_layers_of_a_transformer_run_on_vta() -> None:
    """All of their multiplications, bit for bit; what stays multiplies two activations."""
    import torch

    net, x = quantized("bert_block")
    mod = load_model(torch.export.export(net, (x,)))
    assert_qdq(mod)
    (got,) = call(mod, x.numpy())
    np.testing.assert_allclose(got, net(x).detach().numpy(), atol=1e-4)
    integer = quantize(mod)
    compiled = compile_module(integer, VTAConfig.preset("sim"))
    rows = {row.name: row.device for row in compiled.placement if row.macs}
    assert rows == {**dict.fromkeys(LINEARS, VTA), "bmm": CPU, "bmm_1": CPU}
    checks = compare_layers(integer, compiled, [x.numpy()])
    assert len(checks) >= len(LINEARS) and all(check.equal for check in checks)


def test_a_sum_that_others_read_takes_no_further_constant() -> None:
    """Hard swish reads its layer's sum twice; merging its 3 into the bias would leave two sums."""
    g = Graph((1, 4, 5, 5))
    x = g.conv(g.params[0], 8)
    gate = g.op("clip", g.op("add", x, g.const(3.0)), 0, 6)
    found = normalize(g.module(g.op("multiply", x, gate)))
    assert [op for _, op in ops(found)].count("add") == 2


def test_constants_behind_each_other_are_one() -> None:
    g = Graph((1, 4, 5, 5))
    x = g.op("add", g.conv(g.params[0], 8), g.const(3.0))
    assert [op for _, op in ops(normalize(g.module(x)))].count("add") == 1
