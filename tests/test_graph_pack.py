"""Packing: layouts, where packs and unpacks stand, and equality of the packed module on llvm."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet, island_net, residual_net
from small_models import call
from tvm import relax

from vta_byoc.graph_pack import graph_pack, pack_compute, pack_counts, unpack_compute
from vta_byoc.hw.config import VTAConfig
from vta_byoc.partition import mark
from vta_byoc.strategy import (
    pack_activation,
    pack_bias,
    pack_weight,
    unpack_activation,
)

PRESETS = ("sim", "tophub_4x8", "2x16", "1x32")


def packed(mod: tvm.IRModule, config: VTAConfig) -> tvm.IRModule:
    return graph_pack(config)(mark(config)(mod))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("shape", [(1, 16, 5, 7), (3, 20, 4, 4), (4, 40, 1, 3)])
def test_pack_and_unpack_are_inverse(preset: str, shape: tuple[int, ...]) -> None:
    config = VTAConfig.preset(preset)
    x = np.random.default_rng(0).integers(-128, 128, shape).astype("int8")
    packed_x = pack_activation(x, config)
    assert packed_x.shape[4:] == (config.batch, config.block)
    np.testing.assert_array_equal(unpack_activation(packed_x, *shape[:2]), x)
    lanes = int(np.prod(packed_x.shape)) - x.size
    assert np.count_nonzero(packed_x == 0) >= lanes
    b, k = config.batch, config.block
    n, c, h, w = (int(s) - 1 for s in shape)
    assert packed_x[n // b, c // k, h, w, n % b, c % k] == x[n, c, h, w]


@pytest.mark.parametrize("preset", PRESETS)
def test_computes_equal_the_numpy_packing(preset: str) -> None:
    config = VTAConfig.preset(preset)
    shape = (3, 20, 4, 5)
    x = np.random.default_rng(1).integers(-128, 128, shape).astype("int8")
    want = pack_activation(x, config)
    for func, source, expected in (
        (pack_compute(shape, config), x, want),
        (unpack_compute(shape, config), want, x),
    ):
        built = tvm.compile(func.with_attr("global_symbol", "main"), target="llvm")
        out = tvm.runtime.tensor(np.zeros(expected.shape, "int8"))
        built["main"](tvm.runtime.tensor(source), out)
        np.testing.assert_array_equal(out.numpy(), expected)


def test_weight_and_bias_layout() -> None:
    config = VTAConfig.preset("tophub_4x8")
    weight = np.arange(10 * 9 * 2 * 3, dtype="int32").reshape(10, 9, 2, 3).astype("int8")
    got = pack_weight(weight, config)
    assert got.shape == (2, 2, 2, 3, 8, 8)
    assert got[1, 1, 1, 2, 1, 0] == weight[9, 8, 1, 2]
    assert got[1, 1, 1, 2, 2, 0] == 0
    bias = pack_bias(np.arange(10), config)
    assert bias.shape == (2, 4, 8) and bias.dtype == np.int32
    assert (bias[1, :, 1] == 9).all() and (bias[1, :, 2:] == 0).all()


def test_one_pack_and_one_unpack_around_a_packed_part() -> None:
    net = residual_net()
    mod = packed(net.module(net.result), VTAConfig())
    assert pack_counts(mod) == {"vta_pack": 1, "vta_unpack": 1}


def test_a_value_used_packed_and_plain_is_converted_once() -> None:
    net = IntegerNet(x=(1, 16, 6, 6))
    a = net.conv(net.params[0], 16, name="a")
    b = net.conv(a, 16, name="b")
    c = net.conv(a, 16, name="c")
    first = net.op("nn.max_pool2d", a, pool_size=(2, 2), name="p")
    second = net.op("nn.avg_pool2d", a, pool_size=(1, 1), name="q")
    mod = packed(net.module(b, c, first, second, a), VTAConfig())
    assert pack_counts(mod) == {"vta_pack": 1, "vta_unpack": 3}


def test_island_is_unpacked_and_packed_again() -> None:
    net = island_net()
    mod = packed(net.module(net.result), VTAConfig())
    assert pack_counts(mod) == {"vta_pack": 2, "vta_unpack": 2}


def test_equal_workloads_share_one_compute() -> None:
    net = IntegerNet(x=(1, 16, 6, 6))
    a = net.conv(net.params[0], 16, name="a")
    b = net.conv(a, 16, name="b")
    mod = packed(net.module(b), VTAConfig())
    computes = [gv.name_hint for gv in mod.functions if "compute" in gv.name_hint]
    assert computes == ["vta_conv2d_compute"]


def test_module_without_matches_is_left_alone() -> None:
    net = IntegerNet(x=(1, 16, 6, 6))
    pooled = net.op("nn.max_pool2d", net.params[0], pool_size=(2, 2), name="p")
    mod = mark(VTAConfig())(net.module(pooled))
    tvm.ir.assert_structural_equal(graph_pack(VTAConfig())(mod), mod)


def build(mod: tvm.IRModule) -> relax.VirtualMachine:
    return relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("channels", [16, 20, 33])
def test_packed_module_on_llvm_equals_the_plain_one(preset: str, channels: int) -> None:
    """The strategies' computes are the operators' definitions: they run as they are."""
    for net in (residual_net(channels, size=5, batch=3), island_net()):
        mod = net.module(net.result)
        inputs = net.inputs()
        want = call(mod, *inputs)
        got = call(packed(mod, VTAConfig.preset(preset)), *inputs)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)
