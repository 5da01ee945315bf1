"""Channels that are only moved between convolutions: stored where they are read."""

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
from vta_byoc.options import BuildOptions
from vta_byoc.partitioning.placement import ROUTED
from vta_byoc.pipeline import Compiled, compile_module

SIM = VTAConfig.preset("sim")
MACHINES = ("sim", "pynq", "chisel", "2x16", "tophub_4x8", "1x32")
SHUFFLE = (0, 2, 1, 3, 4)
OFF = ("routed_channels",)


def compiled(mod: tvm.IRModule, config: VTAConfig = SIM, off: tuple[str, ...] = ()) -> Compiled:
    options = BuildOptions(config=config, without_rewrites=off, check_forms=True)
    return compile_module(mod, options=options)


def checked(
    net: IntegerNet, mod: tvm.IRModule, config: VTAConfig = SIM, off: tuple[str, ...] = ()
) -> Program:
    (program,) = equal_run(mod, config, net.inputs(), off).programs.values()
    return program


def names(program: Program) -> list[str]:
    return [layer.name for layer in program.layers]


def shuffled(net: IntegerNet, x: relax.Expr, groups: int, name: str) -> relax.Var:
    n, c, h, w = static_shape(x)
    seen = net.op("reshape", x, (n, groups, c // groups, h, w), name=f"{name}_seen")
    turned = net.op("permute_dims", seen, SHUFFLE, name=f"{name}_turned")
    return net.op("reshape", turned, (n, c, h, w), name=name)


def sliced(net: IntegerNet, x: relax.Expr, first: int, last: int, name: str) -> relax.Var:
    return net.op("strided_slice", x, [1], [first], [last], name=name)


def unit(net: IntegerNet, x: relax.Expr, name: str, groups: int = 2) -> relax.Var:
    """Half of the channels pass by, the others are convolved; both are joined and shuffled."""
    half = static_shape(x)[1] // 2
    kept = sliced(net, x, 0, half, f"{name}_kept")
    h = net.conv(sliced(net, x, half, 2 * half, f"{name}_half"), half, 1, name=f"{name}_pw1")
    h = net.conv(h, half, 3, groups=half, relu=False, name=f"{name}_dw")
    h = net.conv(h, half, 1, name=f"{name}_pw2")
    joined = net.op("concat", [kept, h], axis=1, name=f"{name}_joined")
    return shuffled(net, joined, groups, f"{name}_shuffled")


def stage(half: int, units: int, size: int = 6, seed: int = 0) -> IntegerNet:
    """Two convolutions, joined and shuffled; units; one convolution of each channel, one of all."""
    net = IntegerNet(seed, x=(1, 16, size, size))
    first, second = (net.conv(net.params[0], half, 1, name=name) for name in ("left", "right"))
    x = shuffled(net, net.op("concat", [first, second], axis=1, name="joined"), 2, "shuffled")
    for number in range(units):
        x = unit(net, x, f"unit{number}")
    down = net.conv(x, 2 * half, 3, stride=2, groups=2 * half, relu=False, name="down")
    wide = net.conv(down, 24, 1, name="wide")
    net.result = net.residual(wide, net.conv(x, 24, 3, stride=2, name="all"), name="sum")
    return net


def test_nothing_is_moved() -> None:
    net = stage(40, 2)
    mod = net.module(net.result)
    made = compiled(mod)
    program, apart = equal_program(made, net, mod), checked(net, mod, off=OFF)
    assert simulate(program).cycles < 0.8 * simulate(apart).cycles
    copies = {"unit0_joined", "unit0_shuffled", "unit1_kept", "unit1_joined", "unit1_shuffled"}
    assert copies <= set(names(apart))
    assert not copies & {name.split("__")[0] for name in names(program)} - {"unit1_shuffled"}
    records = {record.name: record for record in made.placement}
    assert {records[name].note for name in ("unit0_kept", "unit0_joined")} == {ROUTED}
    assert [records[name].bound for name in ("unit0_kept", "unit1_shuffled")] == [0, 0]


def test_filters_are_computed_in_ranges() -> None:
    """Of 40 channels 20 are read by the next unit, 10 by the one behind, 10 by what follows."""
    net = stage(40, 2)
    found = [name for name in names(checked(net, net.module(net.result))) if "__ch" in name]
    ranges = ("0_9", "10_19", "20_39")
    assert sorted(found) == [f"{name}__channels_{r}" for name in ("left", "right") for r in ranges]


@pytest.mark.parametrize("seed", range(6))
def test_drawn_stages(seed: int) -> None:
    draw = random.Random(seed)
    half = draw.choice([6, 16, 22, 29, 40, 58])
    net = stage(half, draw.randint(1, 4), draw.choice([4, 7]), seed)
    config = VTAConfig.preset(MACHINES[seed % len(MACHINES)])
    checked(net, net.module(net.result), config)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("machine", ["sim", "2x16"])
def test_several_images(machine: str, batch: int) -> None:
    net = IntegerNet(x=(batch, 16, 5, 5))
    x = unit(net, net.conv(net.params[0], 40, 1, name="first"), "unit")
    net.result = net.conv(x, 24, 1, name="last")
    checked(net, net.module(net.result), VTAConfig.preset(machine))


def test_halves_in_whole_blocks_are_read_where_they_are() -> None:
    """Each half is a part of its own, and lies in what is joined behind."""
    net = IntegerNet(x=(1, 16, 8, 8))
    both = net.conv(net.params[0], 64, 1, name="both")
    kept, half = sliced(net, both, 0, 32, "kept"), sliced(net, both, 32, 64, "half")
    deep = net.conv(half, 32, 3, name="deep")
    joined = net.op("concat", [kept, half, deep], axis=1, name="joined")
    mod = net.module(net.conv(joined, 32, 1, name="last"))
    program = checked(net, mod)
    parts = ["both__channels_0_31", "both__channels_32_63"]
    both, rest = names(program)[:2], names(program)[2:]
    assert (sorted(both), rest) == (parts, ["deep", "last"])
    assert len(names(checked(net, mod, off=OFF))) > 4


@pytest.mark.parametrize("reader", ["output", "sum", "pool"])
def test_what_others_read_is_moved(reader: str) -> None:
    net = IntegerNet(x=(1, 16, 8, 8))
    x = unit(net, net.conv(net.params[0], 40, 1, name="first"), "unit")
    last = net.conv(x, 40, 1, name="last")
    if reader == "sum":
        results = [net.residual(x, last, name="sum")]
    elif reader == "pool":
        results = [last, net.op("nn.max_pool2d", x, (2, 2), strides=(2, 2), name="pool")]
    else:
        results = [last, x]
    program = checked(net, net.module(*results))
    assert any(name.startswith("unit_shuffled") for name in names(program))
    assert not any("unit_shuffled__routed" in name for name in names(program))


def test_a_channel_that_is_taken_twice_is_moved() -> None:
    net = IntegerNet(x=(1, 16, 8, 8))
    x = net.conv(net.params[0], 40, 1, name="first")
    half = sliced(net, x, 4, 24, "half")
    joined = net.op("concat", [half, half], axis=1, name="joined")
    program = checked(net, net.module(net.conv(joined, 16, 1, name="last")))
    assert not any("__" in name for name in names(program) if name.startswith("first"))


def test_excluded_movement_stays_on_the_cpu() -> None:
    net = stage(40, 1)
    mod = net.module(net.result)
    options = BuildOptions(config=SIM, exclude=("unit0_kept",), check_forms=True)
    made = compile_module(mod, options=options)
    assert {r.name: r.device for r in made.placement}["unit0_kept"] == "cpu"


@pytest.mark.parametrize("mode", ["dram", "off"])
def test_other_scope_modes(mode: str) -> None:
    net = stage(22, 1)
    mod = net.module(net.result)
    options = BuildOptions(config=SIM, scopes=mode, check_forms=True)
    made = compile_module(mod, options=options)
    if mode == "dram":
        equal_program(made, net, mod)
    assert made.programs
