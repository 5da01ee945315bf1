"""Layers that VTA cannot take: each stays on the CPU with its reason, and what can run is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet
from small_models import call
from tvm import relax

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.bindings import straight_bindings
from vta_byoc.partition import Placement, mark, placements
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.execute import profile

SIM = VTAConfig()
PLAIN = VTAConfig(capabilities=Capabilities(mul=False))
TINY_ACC = VTAConfig(log_acc_buff_size=7)
CHANNELS = np.arange(16).reshape(1, 16, 1, 1)
SATURATED: tuple[tuple[str, Any], ...] = (("maximum", -128), ("minimum", 127))


def layer(
    op: str,
    shape: tuple[int, ...],
    weight: np.ndarray,
    steps: Sequence[tuple[str, Any]] = SATURATED,
    **attrs: Any,
) -> tuple[IntegerNet, tvm.IRModule]:
    """One layer called ``bad`` with an int8 result."""
    net = IntegerNet(x=shape)
    constant = relax.const(weight.astype("int8"))
    value = net.op(op, net.params[0], constant, out_dtype="int32", name="bad__acc", **attrs)
    for number, (step, operand) in enumerate(steps):
        operand = relax.const(np.asarray(operand, "int32"))
        value = net.op(step, value, operand, name=f"bad__{number}")
    return net, net.module(net.op("astype", value, "int8", name="bad"))


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, "int8")


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-3, 4, shape)


def placed(mod: tvm.IRModule, config: VTAConfig = SIM) -> Placement:
    """The record of ``bad``, after marking alone."""
    return next(p for p in placements(mark(config)(mod)) if p.name == "bad")


def check_cpu(net: IntegerNet, mod: tvm.IRModule, reason: str, config: VTAConfig = SIM) -> None:
    """On the CPU for ``reason``, compiled and equal to the reference."""
    record = placed(mod, config)
    assert (record.device, record.reason) == ("cpu", reason)
    compiled = compile_module(mod, config)
    assert not compiled.programs
    inputs = net.inputs()
    for got, want in zip(profile(compiled.exe, inputs).outputs, call(mod, *inputs), strict=True):
        np.testing.assert_array_equal(got, want)


# ---------------------------------------------------------------- layers that no machine takes
@pytest.mark.parametrize(
    ("op", "shape", "weight", "attrs", "have", "want"),
    [
        (
            "nn.conv2d",
            (1, 4, 4, 16),
            weights(3, 3, 16, 8),
            {"data_layout": "NHWC", "kernel_layout": "HWIO"},
            "NHWC and HWIO",
            "NCHW and OIHW",
        ),
        (
            "nn.conv2d",
            (1, 16, 4, 4),
            weights(3, 3, 16, 8),
            {"kernel_layout": "HWIO"},
            "NCHW and HWIO",
            "NCHW and OIHW",
        ),
        (
            "nn.conv1d",
            (1, 9, 16),
            weights(3, 16, 8),
            {"data_layout": "NWC", "kernel_layout": "WIO"},
            "NWC and WIO",
            "NCW and OIW",
        ),
    ],
    ids=["nhwc", "hwio", "nwc"],
)
def test_layouts(
    op: str, shape: tuple[int, ...], weight: np.ndarray, attrs: Any, have: str, want: str
) -> None:
    net, mod = layer(op, shape, weight, **attrs)
    reason = f"data and weights have the layouts {have}; {want} are taken; transpose them"
    check_cpu(net, mod, reason)


@pytest.mark.parametrize(
    ("shape", "weight", "listed"),
    [
        ((2, 3, 16), (2, 16, 8), "(2, 3, 16) and (2, 16, 8)"),
        ((16,), (16, 8), "(16,) and (16, 8)"),
        ((4, 16), (16,), "(4, 16) and (16,)"),
    ],
    ids=["batched weights", "vector times matrix", "matrix times vector"],
)
def test_matrices(shape: tuple[int, ...], weight: tuple[int, ...], listed: str) -> None:
    reason = (
        f"the matrices have shapes {listed}; rows (..., K) times a constant (K, M) are taken; "
        "reshape them"
    )
    check_cpu(*layer("matmul", shape, weights(*weight)), reason)


@pytest.mark.parametrize(
    ("shape", "kernel", "empty"),
    [((0, 16, 4, 4), 1, (0, 16, 4, 4)), ((1, 16, 2, 2), 3, (1, 16, 0, 0))],
    ids=["batch", "result"],
)
def test_zero_sized_dimensions(shape: tuple[int, ...], kernel: int, empty: tuple[int, ...]) -> None:
    _, mod = layer("nn.conv2d", shape, weights(16, 16, kernel, kernel))
    record = placed(mod)
    assert record.device == "cpu"
    assert record.why == Refusal(
        "a tensor has the shape",
        f"{empty}",
        "every dimension must be 1 or more",
        "leave out the operator, which computes nothing",
    )


@pytest.mark.parametrize(
    ("shape", "weight", "large"),
    [
        ((1, 16, 16384, 16385), (16, 16, 1, 1), "(1, 16, 16384, 16385) has 4295229440"),
        ((1, 1, 65536, 1), (65536, 1, 1, 1), "(1, 65536, 65536, 1) has 4294967296"),
    ],
    ids=["operand", "result"],
)
def test_tensors_beyond_the_address(
    shape: tuple[int, ...], weight: tuple[int, ...], large: str
) -> None:
    _, mod = layer("nn.conv2d", shape, ones(*weight))
    record = placed(mod)
    assert record.device == "cpu"
    assert record.reason == (
        f"a tensor of shape {large} elements; a 32-bit address reaches 4294967295; split the layer"
    )


def test_weights_that_are_not_constant() -> None:
    net = IntegerNet(x=(1, 16, 4, 4), w=(16, 16, 3, 3))
    acc = net.op("nn.conv2d", *net.params, out_dtype="int32", name="bad__acc")
    mod = net.module(net.op("astype", acc, "int8", name="bad"))
    check_cpu(net, mod, "not the whole pattern vta.conv2d (int8 operands, constant weights)")


# ---------------------------------------------------------------- sums that leave int32
def dense_overflow(length: int, weight: int, *steps: tuple[str, Any]) -> Placement:
    return placed(
        layer("matmul", (1, length), np.full((length, 2), weight), [*steps, *SATURATED])[1]
    )


OVERFLOW = (
    "the accumulator may reach {}; int32 holds -2147483648 to 2147483647; "
    "use smaller weights or closer scales"
)


def test_a_reduction_that_could_overflow() -> None:
    """131,072 products of -128 and 127 are beyond int32 by nothing but the last."""
    most = (2**31 - 1) // (128 * 127)
    assert dense_overflow(most, -127).device == "vta"
    beyond = dense_overflow(most + 1, -127)
    assert beyond.device == "cpu"
    assert beyond.reason == OVERFLOW.format((most + 1) * 127 * 128)
    assert dense_overflow(131072, -128).reason == OVERFLOW.format(2**31)
    assert dense_overflow(131072, 127).device == "vta", "-128 * 127 * 131072 is within int32"


def test_a_step_that_could_overflow() -> None:
    high = 16 * 127 * 128
    assert dense_overflow(16, -127, ("add", 2**31 - 1 - high)).device == "vta"
    beyond = dense_overflow(16, -127, ("add", 2**31 - high))
    assert (beyond.device, beyond.reason) == ("cpu", OVERFLOW.format(2**31))
    shifted = dense_overflow(16, -127, ("left_shift", 14))
    assert (shifted.device, shifted.reason) == ("cpu", OVERFLOW.format(high << 14))
    product = dense_overflow(16, -127, ("multiply", 2**15 - 1))
    assert (product.device, product.reason) == ("cpu", OVERFLOW.format(high * (2**15 - 1)))
    bounded = (("maximum", -1000), ("minimum", 1000), ("multiply", 2**15 - 1))
    assert dense_overflow(16, -127, *bounded).device == "vta"


def test_an_overflow_that_does_not_happen_is_right_on_the_cpu() -> None:
    """The interval is beyond int32, the data of the test is not."""
    length = 150_000
    net, mod = layer("matmul", (1, length), np.full((length, 2), 127), SATURATED)
    check_cpu(net, mod, OVERFLOW.format(length * 127 * 127))


@pytest.mark.parametrize(
    ("step", "listed"),
    [
        (("right_shift", 32), "32 to 32"),
        (("left_shift", -1), "-1 to -1"),
        (("right_shift", CHANNELS + 30), "30 to 45"),
    ],
    ids=["too far", "negative", "by channel"],
)
def test_shifts_out_of_range(step: tuple[str, Any], listed: str) -> None:
    _, mod = layer("nn.conv2d", (1, 16, 4, 4), weights(16, 16, 1, 1), [step, *SATURATED])
    record = placed(mod)
    assert record.device == "cpu"
    assert record.reason == (
        f"the accumulator shifts by {listed}; 0 to 31 are taken; split the shift"
    )


# ---------------------------------------------------------------- constants of other shapes
def test_constant_by_image() -> None:
    step = ("add", np.arange(2).reshape(2, 1, 1, 1))
    net, mod = layer("nn.conv2d", (2, 16, 4, 4), weights(16, 16, 1, 1), [step, *SATURATED])
    reason = (
        "the accumulator has a constant of shape (2, 1, 1, 1) for a tensor (2, 16, 4, 4); "
        "one value, one per channel or one per position is taken; write it as one of these"
    )
    check_cpu(net, mod, reason)


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize(
    ("weight", "constant"),
    [
        ((16, 16, 4, 4), (1, 16, 4, 4)),
        ((16, 16, 4, 4), (3, 1, 1, 1)),
        ((1, 16, 4, 4), (1, 16, 1, 1)),
        ((1, 16, 4, 4), (1, 1, 1, 1, 1)),
    ],
    ids=["plane", "batch", "channels", "rank"],
)
def test_a_constant_that_broadcasts_the_data_is_no_step(
    weight: tuple[int, ...], constant: tuple[int, ...], value: int
) -> None:
    """The product alone is computed, as int32; the result has the constant's shape."""
    steps = [("add", np.full(constant, value)), *SATURATED]
    net, mod = layer("nn.conv2d", (1, 16, 4, 4), weights(*weight), steps)
    inputs = net.inputs()
    (got,) = profile(compile_module(mod, SIM).exe, inputs).outputs
    (want,) = call(mod, *inputs)
    np.testing.assert_array_equal(got, want)


def test_a_sum_that_stays_int32() -> None:
    net = IntegerNet(x=(2, 20, 5, 4))
    wide = net.op("astype", net.params[0], "int32", name="bad__wide")
    mod = net.module(net.op("sum", wide, axis=[2, 3], keepdims=True, name="bad"))
    reason = (
        "a sum that stays int32; a mean that is rescaled and saturated to int8 is taken; end "
        "it with astype int8"
    )
    check_cpu(net, mod, reason)


@pytest.mark.parametrize("axes", [[1], [1, 2], [1, 2, 3]])
def test_a_mean_over_other_axes(axes: list[int]) -> None:
    net = IntegerNet(x=(2, 20, 5, 4))
    wide = net.op("astype", net.params[0], "int32", name="bad__wide")
    total = net.op("sum", wide, axis=axes, keepdims=True, name="bad__sum")
    shifted = net.op("right_shift", total, relax.const(np.int32(6)), name="bad__shift")
    reason = (
        f"sum over the axes {axes} of a tensor (2, 20, 5, 4); the sum over rows and columns of "
        "(N, C, H, W) is taken, or over one of these axes that is kept; transpose it"
    )
    check_cpu(net, net.module(net.op("astype", shifted, "int8", name="bad")), reason)


def test_a_result_that_is_not_saturated_is_truncated_everywhere() -> None:
    """The dialect always saturates; without it the machine's store keeps the low byte, as LLVM."""
    net, mod = layer("nn.conv2d", (1, 16, 4, 4), weights(16, 16, 3, 3), [("add", 1000)])
    compiled = compile_module(mod, SIM)
    assert [p.device for p in compiled.placement] == ["vta"]
    inputs = net.inputs()
    np.testing.assert_array_equal(profile(compiled.exe, inputs).outputs, call(mod, *inputs))


# ---------------------------------------------------------------- machines
@pytest.mark.parametrize(
    "step",
    [("multiply", 3), ("multiply", CHANNELS - 5), ("left_shift", CHANNELS // 4)],
    ids=["number", "by channel", "left shift by channel"],
)
def test_machine_without_mul(step: tuple[str, Any]) -> None:
    steps = [step, ("right_shift", 3), *SATURATED]
    net, mod = layer("nn.conv2d", (1, 16, 4, 4), weights(16, 16, 1, 1), steps)
    assert placed(mod, SIM).device == "vta"
    reason = (
        "the accumulator multiplies and the machine has no MUL (CAPABILITIES.mul is false); "
        "quantize for this machine (config=), use power-of-two scales or a machine with MUL"
    )
    check_cpu(net, mod, reason, PLAIN)


def test_machine_without_mul_shifts_by_powers_of_two() -> None:
    steps = [("left_shift", 2), ("add", CHANNELS), ("right_shift", 3), *SATURATED]
    net, mod = layer("nn.conv2d", (1, 16, 4, 4), weights(16, 16, 1, 1), steps)
    compiled = compile_module(mod, PLAIN)
    assert [p.device for p in compiled.placement] == ["vta"]
    inputs = net.inputs()
    np.testing.assert_array_equal(profile(compiled.exe, inputs).outputs, call(mod, *inputs))


def test_machine_without_acc_8bit_takes_what_others_take() -> None:
    """Elementwise operators load int8 as GEMM input; nothing needs the widening load."""
    config = VTAConfig(capabilities=Capabilities(acc_8bit=False))
    net = IntegerNet(x=(1, 20, 6, 6))
    conv = net.conv(net.params[0], 20, relu=False, name="conv")
    pool = net.op("nn.max_pool2d", conv, pool_size=(3, 3), padding=(1, 1, 1, 1), name="pool")
    mod = net.module(net.residual(pool, net.params[0], name="bad"))
    compiled = compile_module(mod, config)
    assert [p.device for p in compiled.placement] == ["vta"] * 3
    inputs = net.inputs()
    np.testing.assert_array_equal(profile(compiled.exe, inputs).outputs, call(mod, *inputs))


def test_operands_that_no_tile_leaves_room_for() -> None:
    """A result, and two operands by channel, in an accumulator of two elements."""
    steps = [("add", CHANNELS), ("right_shift", CHANNELS // 4), *SATURATED]
    net, mod = layer("nn.conv2d", (1, 16, 4, 4), weights(16, 16, 3, 3), steps)
    reason = (
        "no tile of a 3x3 convolution fits the SRAM of machine 1x16 (the smallest needs 3 ACC of 2 "
        "elements); use larger buffers or leave the layer to the CPU"
    )
    check_cpu(net, mod, reason, TINY_ACC)


def test_the_smallest_buffers_take_a_convolution() -> None:
    """Two elements of each SRAM: a tile is one vector and one tap."""
    tiny = dataclasses.replace(TINY_ACC, log_inp_buff_size=5, log_wgt_buff_size=9)
    steps = [("add", CHANNELS), ("right_shift", 3), *SATURATED]
    net, mod = layer("nn.conv2d", (1, 20, 5, 4), weights(16, 20, 3, 3), steps, padding=(1, 2, 0, 1))
    compiled = compile_module(mod, tiny)
    assert [p.device for p in compiled.placement] == ["vta"]
    inputs = net.inputs()
    np.testing.assert_array_equal(profile(compiled.exe, inputs).outputs, call(mod, *inputs))


@pytest.mark.parametrize("groups", [1, 4])
def test_a_bad_layer_among_good_ones(groups: int) -> None:
    """Its neighbours stay on VTA, and the whole is right."""
    net = IntegerNet(x=(1, 16, 6, 6))
    first = net.conv(net.params[0], 16, groups=groups, name="first")
    image = net.op("permute_dims", first, [0, 2, 3, 1], name="nhwc")
    weight = relax.const(weights(1, 1, 16, 16).astype("int8"))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    acc = net.op("nn.conv2d", image, weight, out_dtype="int32", name="bad__acc", **layouts)
    bad = net.op(
        "astype", net.op("right_shift", acc, relax.const(6), name="bad__s"), "int8", name="bad"
    )
    last = net.conv(net.op("permute_dims", bad, [0, 3, 1, 2], name="nchw"), 16, name="last")
    mod = net.module(last)
    assert all(b.var.name for b in straight_bindings(mod["main"]))
    compiled = compile_module(mod, SIM)
    devices = {p.name: p.device for p in compiled.placement}
    assert (devices["first"], devices["bad"], devices["last"]) == ("vta", "cpu", "vta")
    inputs = net.inputs()
    np.testing.assert_array_equal(profile(compiled.exe, inputs).outputs, call(mod, *inputs))
