"""Networks with every exact rewrite on, and each off by itself: the same integers."""

from __future__ import annotations

import pytest
import tvm
from integer_models import IntegerNet, equal_program
from network_hunt import Tally, try_network

from vta_byoc.base.rewrites import REWRITES, without
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.options import BuildOptions
from vta_byoc.pipeline import compile_module
from vta_byoc.quantization.scales import Rescale

PYNQ, SIM = VTAConfig.preset("pynq"), VTAConfig.preset("sim")
OWN = ("pool_first", "short_chains", "implied_clamps")
SHUFFLE = (0, 2, 1, 3, 4)
SEED = 23
MACHINES = ("pynq", "chisel", "tophub_4x8")


def pooled_net(relu: bool = False, readers: int = 1) -> IntegerNet:
    """Convolution, leaky relu of slope 0.1, 2x2 pool, and a sum whose bounds imply clamps."""
    net = IntegerNet(x=(1, 16, 12, 12))
    first = net.conv(net.params[0], 32, relu=relu, name="first")
    leaky = net.leaky_relu(first, 205, 11, Rescale(11, -128), "leaky")
    pooled = net.op("nn.max_pool2d", leaky, (2, 2), strides=(2, 2), name="pool")
    base = net.conv(pooled, 32, k=1, name="base")
    last = net.conv(base, 32, relu=False, name="last")
    net.result = net.residual(last, base, (0, 0), shift=0, name="sum")
    if readers > 1:
        again = net.op("nn.max_pool2d", leaky, (3, 3), strides=(1, 1), name="again")
        net.result = net.residual(
            net.conv(again, 32, k=5, pads=(0, 0, 0, 0), name="wide"), net.result, name="both"
        )
    return net


def checked(
    net: IntegerNet, config: VTAConfig, mod: tvm.IRModule, off: tuple[str, ...] = (), **options: str
) -> Program:
    """The program, whose results and stored tensors are the reference's."""
    compiled = compile_module(
        mod, options=BuildOptions(config=config, without_rewrites=off, check_forms=True, **options)
    )
    return equal_program(compiled, net, mod)


@pytest.mark.parametrize("machine", MACHINES)
def test_all_on_and_each_off(machine: str) -> None:
    net, config = pooled_net(), VTAConfig.preset(machine)
    mod = net.module(net.result)
    cycles = {off: simulate(checked(net, config, mod, off)).cycles for off in [(), *zip(OWN)]}
    assert min(cycles.values()) >= cycles[()] * 0.99, cycles
    assert max(cycles.values()) > cycles[()], cycles


def test_a_pool_is_computed_before_what_no_tile_takes() -> None:
    net = pooled_net()
    mod = net.module(net.result)
    program = checked(net, PYNQ, mod)
    assert [layer.name for layer in program.layers][:2] == ["first+pool", "leaky"]
    apart = checked(net, PYNQ, mod, ("pool_first",))
    assert [layer.name for layer in apart.layers][:3] == ["first", "leaky", "pool"]
    assert program.counters()["out_store_nbytes"] < apart.counters()["out_store_nbytes"]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("pads", [(1, 1), (0, 0)])
def test_a_pool_that_overlaps_stays_on_chip(machine: str, pads: tuple[int, int]) -> None:
    """A biased convolution, a 3x3 pool every 2x2 behind it, and what reads that."""
    net, config = IntegerNet(x=(1, 16, 30, 30)), VTAConfig.preset(machine)
    stem = net.conv(net.params[0], 40, name="stem")
    pool = net.op("nn.max_pool2d", stem, (3, 3), strides=(2, 2), padding=pads, name="pool")
    mod = net.module(net.conv(pool, 32, k=1, name="last"))
    program, apart = checked(net, config, mod), checked(net, config, mod, ("overlapping_pools",))
    assert [layer.name for layer in program.layers] == ["stem+pool", "last"]
    assert [layer.name for layer in apart.layers] == ["stem", "pool", "last"]
    assert simulate(program).cycles < simulate(apart).cycles
    assert program.counters()["out_store_nbytes"] < apart.counters()["out_store_nbytes"]
    assert program.counters()["inp_load_nbytes"] < apart.counters()["inp_load_nbytes"]


def test_in_a_tile_the_epilogue_works_on_maxima() -> None:
    net = pooled_net()
    mod = net.module(net.result)
    program, later = checked(net, SIM, mod), checked(net, SIM, mod, ("pool_first",))
    names = [layer.name for layer in program.layers]
    assert names[0] == "first+leaky+pool" and names == [layer.name for layer in later.layers]
    assert program.counters()["alu_counter"] < later.counters()["alu_counter"]


def test_a_tensor_with_two_readers_stays() -> None:
    net = pooled_net(readers=2)
    names = [layer.name for layer in checked(net, PYNQ, net.module(net.result)).layers]
    assert names[:2] == ["first", "leaky"]


def test_names_in_demands_stay() -> None:
    net = pooled_net()
    mod = net.module(net.result)
    demands = {("pool", "leaky"): "global.vta.inp"}
    options = BuildOptions(config=PYNQ, demands=demands)
    (program,) = compile_module(mod, options=options).programs.values()
    assert [layer.name for layer in program.layers][:3] == ["first", "leaky", "pool"]


def test_scopes_off_and_dram() -> None:
    net = pooled_net()
    mod = net.module(net.result)
    dram = checked(net, PYNQ, mod, scopes="dram")
    assert [layer.name for layer in dram.layers][:3] == ["first", "leaky", "pool"]


@pytest.mark.parametrize("name", [*OWN, "overlapping_pools"])
def test_random_networks_with_one_off(name: str) -> None:
    assert name in REWRITES
    with without([name]):
        try_network(SEED + list(REWRITES).index(name), Tally())


@pytest.mark.parametrize(("channels", "groups"), [(36, 3), (24, 1)])
def test_a_shuffle_is_the_order_of_filters(channels: int, groups: int) -> None:
    net = IntegerNet(x=(1, 36, 5, 6))
    first = net.conv(net.params[0], channels, k=3, groups=groups, name="first")
    seen = net.op("reshape", first, (1, 3, channels // 3, 5, 6), name="seen")
    turned = net.op("permute_dims", seen, SHUFFLE, name="turned")
    net.result = net.conv(
        net.op("reshape", turned, (1, channels, 5, 6), name="back"), 16, name="last"
    )
    mod = net.module(net.result)
    neither = ("folded_shuffles", "routed_channels")
    program, apart = (checked(net, SIM, mod, off) for off in ((), neither))
    assert [layer.name for layer in program.layers] == ["back", "last"]
    assert [layer.name for layer in apart.layers] == ["first", "back", "last"]
    assert simulate(program).cycles < simulate(apart).cycles


def test_a_shuffle_behind_wide_groups_is_a_copy() -> None:
    """Without groups four times the products would cost more."""
    net = IntegerNet(x=(1, 256, 5, 6))
    first = net.conv(net.params[0], 256, k=3, groups=4, name="first")
    seen = net.op("reshape", first, (1, 4, 64, 5, 6), name="seen")
    turned = net.op("permute_dims", seen, SHUFFLE, name="turned")
    net.result = net.op("reshape", turned, (1, 256, 5, 6), name="back")
    program = checked(net, SIM, net.module(net.result))
    assert [layer.name for layer in program.layers] == ["first", "back"]
