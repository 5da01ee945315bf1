"""What the partition table takes, what it refuses, and the reasons it gives."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet, residual_net
from tvm import relax

from vta_byoc.dialect import Rescale
from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.partition import TABLE, composites, mark, parse_composite, placements

CONFIG = VTAConfig()


def placed(mod: tvm.IRModule, config: VTAConfig = CONFIG) -> dict[str, tuple[str, str]]:
    """(device, reason) of each operator by name."""
    return {p.name: (p.device, p.reason) for p in placements(mark(config)(mod))}


def test_table_names_are_strategies() -> None:
    from vta_byoc.strategy import STRATEGIES

    assert [e.name for e in TABLE] == ["vta.conv2d", "vta.add"]
    assert {e.strategy for e in TABLE} == set(STRATEGIES)


def test_marks_convolutions_and_additions() -> None:
    net = residual_net()
    marked = mark(CONFIG)(net.module(net.result))
    kinds = [str(f.attrs["Composite"]) for f in composites(marked).values()]
    assert sorted(kinds) == ["vta.add", "vta.conv2d", "vta.conv2d"]
    records = placements(marked)
    assert [(p.name, p.op, p.device) for p in records] == [
        ("conv_a", "relax.nn.conv2d", "vta"),
        ("conv_b", "relax.nn.conv2d", "vta"),
        ("join", "relax.add", "vta"),
    ]
    assert [p.macs for p in records] == [32 * 32 * 9 * 64, 32 * 32 * 9 * 64, 0]


def test_parsed_workload_holds_every_number() -> None:
    net = IntegerNet(x=(1, 16, 9, 7))
    out = net.conv(net.params[0], 24, 3, stride=2, pads=(0, 1, 2, 3), shift=7, name="c")
    marked = mark(CONFIG)(net.module(out))
    (func,) = composites(marked).values()
    _, parsed = parse_composite(func)
    work = parsed.work
    assert (work.batch, work.in_channels, work.out_channels) == (1, 16, 24)
    assert (work.height, work.width, work.kernel) == (9, 7, (3, 3))
    assert (work.strides, work.padding, work.dilation) == ((2, 2), (0, 1, 2, 3), (1, 1))
    assert (work.shift, work.low, work.high) == (7, 0, 127)
    assert (work.out_height, work.out_width) == (5, 5)


def test_addition_shifts_are_parsed_side_by_side() -> None:
    for shifts in ((0, 0), (0, 3), (2, 0), (-1, 2), (3, -2)):
        for shift in (-1, 0, 4):
            net = IntegerNet(x=(1, 16, 4, 4), y=(1, 16, 4, 4))
            out = net.residual(*net.params, shifts, shift=shift, name="s")
            marked = mark(CONFIG)(net.module(out))
            (func,) = composites(marked).values()
            _, parsed = parse_composite(func)
            work = parsed.work
            assert (work.left_lhs, work.left_rhs, work.shift) == (*shifts, shift)
            assert work.rounding == (8 if shift == 4 else 0)


def test_reasons_of_refused_operators() -> None:
    net = IntegerNet(x=(1, 3, 8, 8))
    stem = net.conv(net.params[0], 16, name="stem")
    pool = net.op("nn.max_pool2d", stem, pool_size=(2, 2), strides=(2, 2), name="pool")
    grouped = net.conv(pool, 16, groups=16, name="depthwise")
    assert placed(net.module(grouped)) == {
        "stem": (
            "cpu",
            "3 of 16 input lanes would work; at least a quarter must; fold space into channels or "
            "use a machine with a smaller BLOCK",
        ),
        "pool": ("cpu", "no pattern of the partition table takes relax.nn.max_pool2d"),
        "depthwise": (
            "cpu",
            "convolution has 16 groups; the strategy takes 1; write it as a dense conv",
        ),
    }


def test_pattern_that_is_not_complete_stays_on_the_cpu() -> None:
    net = IntegerNet(x=(1, 16, 8, 8))
    weight = relax.const(np.ones((16, 16, 1, 1), "int8"))
    bare = net.op("nn.conv2d", net.params[0], weight, out_dtype="int32", name="bare")
    device, reason = placed(net.module(bare))["bare"]
    assert device == "cpu"
    assert reason == "not the whole pattern vta.conv2d (bias, shift and clamp to int8)"


def conv_of(weight: np.ndarray, bias: np.ndarray, rescale: Rescale) -> tvm.IRModule:
    net = IntegerNet(x=(1, weight.shape[1], 4, 4))
    attrs = SimpleNamespace(strides=[1, 1], padding=[0] * 4, dilation=[1, 1], groups=1)
    return net.module(net.conv2d(net.params[0], weight, bias, attrs, rescale, "c"))


@pytest.mark.parametrize(
    ("mod", "reason"),
    [
        (
            conv_of(np.ones((16, 16, 1, 1), "int8"), np.zeros(16, "int32"), Rescale(8, -200)),
            "clamp to [-200, 127]; an int8 result needs -128 <= low <= high <= 127",
        ),
        (
            conv_of(np.ones((16, 16, 1, 1), "int8"), np.zeros(16, "int32"), Rescale(40)),
            "shift by 40; int32 shifts are -31 to 31",
        ),
        (
            conv_of(
                np.ones((16, 16, 1, 1), "int8"), np.full(16, 2**31 - 100, "int32"), Rescale(8)
            ),
            "the accumulator may reach 2147485596; int32 holds 2147483647; use smaller weights",
        ),
    ],
    ids=["clamp", "shift", "overflow"],
)
def test_arithmetic_that_does_not_fit(mod: tvm.IRModule, reason: str) -> None:
    assert placed(mod)["c"] == ("cpu", reason)


def test_machine_without_acc_8bit_keeps_additions_on_the_cpu() -> None:
    config = VTAConfig(capabilities=Capabilities(acc_8bit=False))
    net = residual_net()
    result = placed(net.module(net.result), config)
    assert result["conv_a"][0] == "vta"
    assert result["join"] == (
        "cpu",
        "the machine has no ACC_8BIT load (CAPABILITIES.acc_8bit is false); "
        "a machine that loads int8 into the accumulator takes it",
    )


def test_layer_too_large_for_the_buffers_says_so() -> None:
    config = VTAConfig(log_inp_buff_size=5)
    net = residual_net()
    device, reason = placed(net.module(net.result), config)["conv_a"]
    assert device == "cpu"
    assert reason.startswith("no tile of a 3x3 convolution fits the SRAM of machine 1x16")


def test_idle_batch_lanes_are_reported() -> None:
    net = residual_net()
    result = placed(net.module(net.result), VTAConfig.preset("tophub_4x8"))
    assert result["conv_a"] == ("vta", "pattern vta.conv2d; 75 % of the batch lanes idle")


def test_broadcast_addition_is_refused() -> None:
    net = IntegerNet(x=(1, 16, 4, 4), y=(1, 16, 1, 1))
    out = net.residual(*net.params, name="s")
    assert placed(net.module(out))["s"] == (
        "cpu",
        "operands have shapes (1, 16, 4, 4) and (1, 16, 1, 1); two equal NCHW shapes are taken",
    )


def test_placement_needs_a_marked_module() -> None:
    net = residual_net()
    with pytest.raises(VTAError, match="module has no placement record; run partition_for_vta"):
        placements(net.module(net.result))
