"""What the partition table takes, what it refuses, and the reasons it gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet, residual_net
from tvm import relax

from vta_byoc.base.rewrites import without
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.partition import mark, placements
from vta_byoc.partitioning.composite import composites
from vta_byoc.partitioning.kept_match import match_of

CONFIG = VTAConfig()


def placed(mod: tvm.IRModule, config: VTAConfig = CONFIG) -> dict[str, tuple[str, str]]:
    """(device, reason) of each operator by name."""
    return {p.name: (p.device, p.reason) for p in placements(mark(config)(mod))}


def test_marks_convolutions_and_additions() -> None:
    net = residual_net()
    marked = mark(CONFIG)(net.module(net.result))
    kinds = [str(f.attrs["Composite"]) for f in composites(marked).values()]
    assert sorted(kinds) == ["vta.binary", "vta.conv2d", "vta.conv2d"]
    records = placements(marked)
    assert [(p.name, p.op, p.device) for p in records] == [
        ("conv_a", "relax.nn.conv2d", "vta"),
        ("conv_b", "relax.nn.conv2d", "vta"),
        ("join", "relax.add", "vta"),
    ]
    assert [p.macs for p in records] == [32 * 32 * 9 * 64, 32 * 32 * 9 * 64, 0]
    assert [p.alu_ops > 0 for p in records] == [True] * 3
    assert all(p.bound > 0 for p in records)


def parsed_work(mod: tvm.IRModule, config: VTAConfig = CONFIG) -> Any:
    """The workload of the only composite of the marked module."""
    (func,) = composites(mark(config)(mod)).values()
    return match_of(func).parsed.work


def test_parsed_workload_holds_every_number() -> None:
    net = IntegerNet(x=(1, 16, 9, 7))
    out = net.conv(net.params[0], 24, 3, stride=2, pads=(0, 1, 2, 3), shift=7, name="c")
    work = parsed_work(net.module(out))
    assert (work.batch, work.in_channels, work.out_channels) == (1, 16, 24)
    assert (work.height, work.width, work.kernel) == (9, 7, (3, 3))
    assert (work.strides, work.padding, work.dilation) == ((2, 2), (0, 1, 2, 3), (1, 1))
    assert (work.out_height, work.out_width, work.groups) == (5, 5, 1)
    assert [(s.op, s.operand) for s in work.epilogue.steps] == [
        ("add", "channel"),
        ("shr", 7),
        ("max", 0),
        ("min", 127),
    ]
    assert work.epilogue.dtype == "int8"


def test_conv1d_is_a_convolution_of_one_row_and_a_dense_layer_of_one_pixel() -> None:
    net = IntegerNet(x=(2, 16, 9), y=(2, 3, 16))
    weight = relax.const(np.ones((8, 8, 3), "int8"))
    options = {"strides": 2, "padding": (1, 3), "dilation": 2, "groups": 2}
    row = net.op("nn.conv1d", net.params[0], weight, out_dtype="int32", name="row", **options)
    work = parsed_work(net.module(row))
    assert (work.height, work.width, work.kernel) == (1, 9, (1, 3))
    assert (work.strides, work.padding, work.dilation) == ((1, 2), (0, 1, 0, 3), (1, 2))
    assert (work.groups, work.out_shape) == (2, (2, 8, 1, 5))
    dense = IntegerNet(x=(2, 3, 16))
    matrix = relax.const(np.ones((16, 8), "int8"))
    out = dense.op("matmul", dense.params[0], matrix, out_dtype="int32", name="d")
    work = parsed_work(dense.module(out))
    assert (work.in_shapes, work.out_shape) == (((6, 16, 1, 1),), (6, 8, 1, 1))


def test_transposed_convolution_keeps_its_weights_form() -> None:
    net = IntegerNet(x=(1, 8, 4, 5))
    weight = relax.const(np.ones((8, 3, 4, 2), "int8"))
    options = {
        "strides": (2, 3),
        "padding": (1, 0, 1, 1),
        "output_padding": (1, 2),
        "dilation": (1, 2),
        "groups": 2,
    }
    out = net.op(
        "nn.conv2d_transpose", net.params[0], weight, out_dtype="int32", name="t", **options
    )
    work = parsed_work(net.module(out))
    assert (work.kernel, work.strides, work.output_padding) == ((4, 2), (2, 3), (1, 2))
    assert (work.padding, work.dilation, work.groups) == ((1, 0, 1, 1), (1, 2), 2)
    assert work.out_shape == tuple(out.ty.shape.values) == (1, 6, 9, 16)


def test_addition_shifts_are_parsed_side_by_side() -> None:
    for shifts in ((0, 0), (0, 3), (2, 0), (-1, 2), (3, -2)):
        for shift in (-1, 0, 4):
            net = IntegerNet(x=(1, 16, 4, 4), y=(1, 16, 4, 4))
            out = net.residual(*net.params, shifts, shift=shift, name="s")
            work = parsed_work(net.module(out))
            assert work.op == "add" and [side.operand for side in work.prologues] == [0, 1]
            for side, left in zip(work.prologues, shifts, strict=True):
                rounded = {-1: [("add", 1), ("shr", 1)], -2: [("add", 2), ("shr", 2)], 0: []}
                expected = [("shl", left)] if left > 0 else rounded[left]
                assert [(s.op, s.operand) for s in side.steps] == expected
            after = {-1: [("shl", 1)], 0: [("max", 0)], 4: [("add", 8), ("shr", 4), ("max", 0)]}
            first = [(s.op, s.operand) for s in work.epilogue.steps]
            assert first[: len(after[shift])] == after[shift]


def test_reasons_of_refused_operators() -> None:
    net = IntegerNet(x=(1, 3, 8, 8))
    stem = net.conv(net.params[0], 16, name="stem")
    size = net.op("abs", stem, name="size")
    moved = net.op("concat", [size, size], axis=1, name="moved")
    result = placed(net.module(moved))
    assert result["stem"][0] == "vta"
    assert result["size"] == ("cpu", "no pattern of the partition table takes relax.abs")
    assert result["moved"] == (
        "cpu",
        "moves data that the CPU computes; VTA moves what it has computed itself; bring the "
        "operators before it to VTA",
    )


def test_a_product_without_steps_is_taken_as_int32() -> None:
    net = IntegerNet(x=(1, 16, 8, 8))
    weight = relax.const(np.ones((16, 16, 1, 1), "int8"))
    bare = net.op("nn.conv2d", net.params[0], weight, out_dtype="int32", name="bare")
    assert placed(net.module(bare))["bare"] == ("vta", "pattern vta.conv2d")
    work = parsed_work(net.module(bare))
    assert (work.epilogue.steps, work.epilogue.dtype) == ((), "int32")


def test_float_convolution_is_not_the_pattern() -> None:
    net = IntegerNet(x=(1, 16, 8, 8))
    wide = net.op("astype", net.params[0], "float32", name="wide")
    weight = relax.const(np.ones((16, 16, 1, 1), "float32"))
    device, reason = placed(net.module(net.op("nn.conv2d", wide, weight, name="bare")))["bare"]
    assert device == "cpu"
    assert reason == "not the whole pattern vta.conv2d (int8 operands, constant weights)"


def test_layer_too_large_for_the_buffers_says_so() -> None:
    """A result, bias and shift by channel do not fit two elements; other layers stay on VTA."""
    net = IntegerNet(x=(1, 16, 8, 8))
    weight = relax.const(np.ones((16, 16, 3, 3), "int8"))
    value = net.op("nn.conv2d", net.params[0], weight, out_dtype="int32", name="c__acc")
    for step in ("add", "right_shift"):
        operand = relax.const(np.arange(16, dtype="int32").reshape(1, 16, 1, 1))
        value = net.op(step, value, operand, name=f"c__{step}")
    out = net.conv(net.op("astype", value, "int8", name="c"), 16, name="next")
    result = placed(net.module(out), VTAConfig(log_acc_buff_size=7))
    assert result["c"][0] == "cpu"
    assert result["c"][1].startswith("no tile of a 3x3 convolution fits the SRAM of machine 1x16")
    assert result["next"][0] == "vta"


def test_idle_batch_lanes_are_reported() -> None:
    net = residual_net()
    result = placed(net.module(net.result), VTAConfig.preset("tophub_4x8"))
    assert result["conv_a"] == ("vta", "pattern vta.conv2d; 75 % of the batch lanes idle")


def test_operands_are_repeated() -> None:
    net = IntegerNet(x=(2, 16, 4, 4), y=(2, 16, 1, 1))
    mod = net.module(net.residual(*net.params, name="s"))
    for machine in (VTAConfig(), VTAConfig.preset("2x16")):
        assert placed(mod, machine)["s"] == ("vta", "pattern vta.binary")


def test_one_image_is_not_repeated_over_batch_lanes() -> None:
    net = IntegerNet(x=(2, 16, 4, 4), y=(16, 1, 1))
    mod = net.module(net.residual(*net.params, name="s"))
    assert placed(mod)["s"] == ("vta", "pattern vta.binary")
    assert placed(mod, VTAConfig.preset("2x16"))["s"] == (
        "cpu",
        "operands have shapes (2, 16, 4, 4) and (16, 1, 1); one image is not repeated on a machine "
        "with BATCH 2; expand the smaller one in the model (the CPU writes the copies then)",
    )


def test_a_repeated_operand_has_no_constants_by_position() -> None:
    net = IntegerNet(x=(1, 16, 4, 4), y=(1, 1, 4, 4))
    x, y = (net.op("astype", each, "int32", name=f"s__{each.name}") for each in net.params)
    zeros = relax.const(np.arange(16, dtype="int32").reshape(1, 1, 4, 4))
    total = net.op("add", x, net.op("add", y, zeros, name="s__zero"), name="s__sum")
    clamped = net.op("minimum", total, relax.const(np.int32(127)), name="s__min")
    clamped = net.op("maximum", clamped, relax.const(np.int32(-128)), name="s__max")
    assert placed(net.module(net.op("astype", clamped, "int8", name="s")))["s"] == (
        "cpu",
        "an operand is repeated from (1, 1, 4, 4) to (1, 16, 4, 4) behind constants per position; "
        "behind single numbers and those per channel it is taken; write the constants behind the "
        "operator",
    )


def test_placement_needs_a_marked_module() -> None:
    net = residual_net()
    with pytest.raises(VTAError, match="module has no placement record; run partition_for_vta"):
        placements(net.module(net.result))


def test_every_operator_of_a_channel_shuffle_is_on_vta() -> None:
    """Three operators of the model are one group: its reason stands at each."""
    net = IntegerNet(x=(1, 16, 6, 5))
    a = net.conv(net.params[0], 32, name="a")
    seen = net.op("reshape", a, (1, 2, 16, 6, 5), name="seen")
    turned = net.op("permute_dims", seen, [0, 2, 1, 3, 4], name="turned")
    mod = net.module(net.op("reshape", turned, (1, 32, 6, 5), name="shuffled"))
    assert placed(mod) == {
        "a": ("vta", "pattern vta.conv2d_shuffled; part of shuffled"),
        "seen": ("vta", "pattern vta.conv2d_shuffled; part of shuffled"),
        "turned": ("vta", "pattern vta.conv2d_shuffled; part of shuffled"),
        "shuffled": ("vta", "pattern vta.conv2d_shuffled"),
    }
    with without(["folded_shuffles"]):
        assert placed(mod) == {
            "a": ("vta", "pattern vta.conv2d"),
            "seen": ("vta", "pattern vta.channel_shuffle; part of shuffled"),
            "turned": ("vta", "pattern vta.channel_shuffle; part of shuffled"),
            "shuffled": ("vta", "pattern vta.channel_shuffle"),
        }


def test_a_slice_between_reshapes_is_no_shuffle() -> None:
    """A plane seen as a row, cut, and seen as a plane again, behind a convolution."""
    net = IntegerNet(x=(1, 16, 4, 5))
    a = net.conv(net.params[0], 32, name="a")
    row = net.op("reshape", a, (1, 32, 20), name="row")
    cut = net.op("strided_slice", row, [2], [0], [20], name="cut")
    mod = net.module(net.op("reshape", cut, (1, 32, 4, 5), name="plane"))
    assert placed(mod)["a"] == ("vta", "pattern vta.conv2d")


@pytest.mark.parametrize("value", [1, 2])
def test_an_average_is_a_convolution_of_ones(value: int) -> None:
    net = IntegerNet(x=(1, 16, 6, 5))
    weight = relax.const(np.full((16, 1, 2, 2), value, "int8"))
    acc = net.op("nn.conv2d", net.params[0], weight, groups=16, out_dtype="int32", name="p__acc")
    shifted = net.op("right_shift", acc, relax.const(2), name="p__shift")
    mod = net.module(net.op("astype", shifted, "int8", name="p"))
    entry = "vta.avg_pool2d" if value == 1 else "vta.conv2d"
    assert placed(mod) == {"p": ("vta", f"pattern {entry}")}
