"""Channels between grouped convolutions in the order that leaves the fewest blocks of weights."""

from __future__ import annotations

import random

import pytest
import tvm
from integer_models import IntegerNet, equal_program
from layer_runs import equal_run
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.ir.bindings import static_shape
from vta_byoc.ir.names import ROUTED
from vta_byoc.options import BuildOptions
from vta_byoc.pipeline import compile_module

SIM = VTAConfig.preset("sim")
MACHINES = ("sim", "pynq", "chisel", "2x16", "tophub_4x8", "1x32")
SHUFFLE = (0, 2, 1, 3, 4)


def checked(
    net: IntegerNet,
    mod: tvm.IRModule,
    config: VTAConfig = SIM,
    off: tuple[str, ...] = (),
) -> Program:
    (program,) = equal_run(mod, config, net.inputs(), off).programs.values()
    return program


def reordered(program: Program) -> list[str]:
    """The tensors that are stored in another order than the model's."""
    return [symbol.name for symbol in program.symbols if symbol.name.endswith(ROUTED)]


def shuffled(net: IntegerNet, x: relax.Expr, groups: int, name: str) -> relax.Var:
    n, c, h, w = static_shape(x)
    seen = net.op("reshape", x, (n, groups, c // groups, h, w), name=f"{name}_seen")
    turned = net.op("permute_dims", seen, SHUFFLE, name=f"{name}_turned")
    return net.op("reshape", turned, (n, c, h, w), name=name)


def unit(
    net: IntegerNet,
    x: relax.Expr,
    middle: int,
    groups: int,
    name: str,
    stride: int = 1,
    residual: bool = True,
) -> relax.Var:
    """Grouped 1 x 1, shuffle, one of each channel, grouped 1 x 1, the sum with what was read."""
    channels = static_shape(x)[1]
    h = net.conv(x, middle, 1, groups=groups, name=f"{name}_pw1")
    h = shuffled(net, h, groups, f"{name}_shuffle")
    h = net.conv(h, middle, 3, groups=middle, stride=stride, relu=False, name=f"{name}_dw")
    last = net.conv(h, channels, 1, groups=groups, relu=not residual, name=f"{name}_pw2")
    return net.residual(last, x, name=f"{name}_sum") if residual else last


def stage(
    channels: int,
    middle: int,
    groups: int,
    *,
    units: int = 1,
    size: int = 7,
    batch: int = 1,
    seed: int = 0,
) -> IntegerNet:
    """A convolution of all channels, units with the sum, one without."""
    net = IntegerNet(seed, x=(batch, 16, size, size))
    x = net.conv(net.params[0], channels, 1, name="first")
    for number in range(units):
        x = unit(net, x, middle, groups, f"unit{number}")
    net.result = unit(net, x, middle, groups, "down", 2, residual=False)
    return net


def test_fewer_blocks_are_computed() -> None:
    net = stage(136, 136, 4, size=14)
    mod = net.module(net.result)
    program, apart = checked(net, mod), checked(net, mod, off=("ordered_channels",))
    whole = checked(net, mod, off=("zero_blocks",))
    names = {f"{unit}_{part}__routed" for unit in ("unit0", "down") for part in ("shuffle", "dw")}
    assert set(reordered(program)) == names
    assert not reordered(apart) and not reordered(whole)
    ours, before, most = (simulate(each).cycles for each in (program, apart, whole))
    assert ours < 0.95 * before < 0.9 * most


@pytest.mark.parametrize(
    ("groups", "machine"),
    [(2, "sim"), (3, "2x16"), (4, "pynq"), (8, "sim"), (8, "2x16"), (3, "pynq")],
)
def test_groups(groups: int, machine: str) -> None:
    net = stage(groups * 18, groups * 10, groups)
    checked(net, net.module(net.result), VTAConfig.preset(machine))


@pytest.mark.parametrize("seed", range(8))
def test_drawn_stages(seed: int) -> None:
    draw = random.Random(seed)
    groups = draw.choice([2, 3, 4, 8])
    net = stage(
        groups * draw.choice([5, 12, 17, 34]),
        groups * groups * draw.choice([2, 3, 5, 9]),
        groups,
        units=draw.randint(0, 2),
        size=draw.choice([4, 7]),
        batch=draw.choice([1, 1, 3]),
        seed=seed,
    )
    checked(net, net.module(net.result), VTAConfig.preset(MACHINES[seed % len(MACHINES)]))


@pytest.mark.parametrize("reader", ["output", "sum", "pool"])
def test_what_others_read_keeps_its_order(reader: str) -> None:
    net = IntegerNet(x=(1, 16, 14, 14))
    x = net.conv(net.params[0], 136, 1, name="first")
    h = shuffled(net, net.conv(x, 136, 1, groups=4, name="pw1"), 4, "shuffle")
    dw = net.conv(h, 136, 3, groups=136, relu=False, name="dw")
    last = net.conv(dw, 136, 1, groups=4, name="pw2")
    if reader == "sum":
        results = [net.residual(last, dw, name="sum")]
    elif reader == "pool":
        results = [last, net.op("nn.max_pool2d", dw, (2, 2), strides=(2, 2), name="pool")]
    else:
        results = [last, h]
    assert not reordered(checked(net, net.module(*results)))


def test_two_readers() -> None:
    net = IntegerNet(x=(1, 16, 14, 14))
    x = net.conv(net.params[0], 136, 1, name="first")
    h = shuffled(net, net.conv(x, 136, 1, groups=4, name="pw1"), 4, "shuffle")
    dw = net.conv(h, 136, 3, groups=136, relu=False, name="dw")
    left = net.conv(dw, 136, 1, groups=4, name="left")
    right = net.conv(h, 136, 1, groups=4, name="right")
    mod = net.module(net.residual(left, right, name="sum"))
    assert len(reordered(checked(net, mod))) == 2


@pytest.mark.parametrize("kernel", [1, 3])
def test_without_a_shuffle(kernel: int) -> None:
    """Groups of other sizes on both sides, and kernels of any size."""
    net = IntegerNet(x=(1, 16, 9, 9))
    x = net.conv(net.params[0], 102, 1, name="first")
    h = net.conv(x, 102, kernel, groups=3, name="thirds")
    checked(net, net.module(net.conv(h, 102, kernel, groups=2, name="halves")))


@pytest.mark.parametrize("window", [2, 3])
def test_a_pool_behind_groups(window: int) -> None:
    """It reads accumulators that several instructions of a step wrote."""
    net = IntegerNet(x=(1, 102, 12, 12))
    h = net.conv(net.params[0], 102, 3, groups=3, name="thirds")
    pads = (0, 0) if window == 2 else (1, 1)
    pool = net.op("nn.max_pool2d", h, (window, window), strides=(2, 2), padding=pads, name="pool")
    for machine in ("sim", "pynq"):
        checked(net, net.module(pool), VTAConfig.preset(machine))


@pytest.mark.parametrize("mode", ["dram", "off"])
def test_other_scope_modes(mode: str) -> None:
    net = stage(68, 68, 4)
    mod = net.module(net.result)
    made = compile_module(mod, options=BuildOptions(config=SIM, scopes=mode, check_forms=True))
    if mode == "dram":
        equal_program(made, net, mod)
    assert made.programs
