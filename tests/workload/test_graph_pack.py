"""Packing: layouts, where packs and unpacks stand, and equality of the packed module on llvm."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet, flatten_net, island_net, residual_net, stem_net
from small_models import call
from tvm import relax

from vta_byoc.graph_pack import graph_pack, pack_counts
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import static_shape, straight_bindings
from vta_byoc.partition import mark, placements

PRESETS = ("sim", "tophub_4x8", "2x16", "1x32")


def packed(mod: tvm.IRModule, config: VTAConfig) -> tvm.IRModule:
    return graph_pack(config)(mark(config)(mod))


def narrow_net() -> IntegerNet:
    """Few channels behind a layer on VTA."""
    net = IntegerNet(x=(1, 16, 40, 40))
    narrow = net.conv(net.params[0], 3, name="narrow")
    net.result = net.conv(narrow, 32, 7, stride=2, name="wide")
    return net


@pytest.mark.parametrize(
    ("net", "packs", "unpacks"),
    [
        pytest.param(residual_net(), 1, 1, id="one of each around a packed part"),
        pytest.param(island_net(), 2, 2, id="an island is unpacked and packed again"),
        pytest.param(stem_net(channels=16), 1, 1, id="whole blocks are not folded"),
        pytest.param(narrow_net(), 1, 1, id="what is packed already is not folded"),
        pytest.param(flatten_net(1), 1, 1, id="a flattened pixel stays packed"),
        pytest.param(flatten_net(3), 1, 1, id="a flattened plane stays packed"),
    ],
)
def test_where_tensors_are_packed(net: IntegerNet, packs: int, unpacks: int) -> None:
    """Nothing is folded: the host has nothing to gather where a tensor is packed already, and a
    dense layer reads the plane."""
    mod = packed(net.module(net.result), VTAConfig())
    assert pack_counts(mod) == {"vta_pack": packs, "vta_unpack": unpacks, "vta_fold": 0}


def test_a_value_used_packed_and_plain_is_converted_once() -> None:
    net = IntegerNet(x=(1, 16, 6, 6))
    a = net.conv(net.params[0], 16, name="a")
    b = net.conv(a, 16, name="b")
    c = net.conv(a, 16, name="c")
    first, second = (net.op("abs", a, name=name) for name in ("p", "q"))
    mod = packed(net.module(b, c, first, second, a), VTAConfig())
    assert pack_counts(mod) == {"vta_pack": 1, "vta_unpack": 3, "vta_fold": 0}


def test_equal_workloads_share_one_compute() -> None:
    net = IntegerNet(x=(1, 16, 6, 6))
    a = net.conv(net.params[0], 16, name="a")
    b = net.conv(a, 16, name="b")
    mod = packed(net.module(b), VTAConfig())
    computes = [gv.name_hint for gv in mod.functions if "compute" in gv.name_hint]
    assert computes == ["vta_conv2d_compute"]


def test_module_without_matches_is_left_alone() -> None:
    net = IntegerNet(x=(1, 16, 6, 6))
    mod = mark(VTAConfig())(net.module(net.op("abs", net.params[0], name="p")))
    tvm.ir.assert_structural_equal(graph_pack(VTAConfig())(mod), mod)


def test_a_stem_is_folded_instead_of_packed_and_once_for_two_layers() -> None:
    net = stem_net()
    mod = packed(net.module(net.result), VTAConfig())
    assert pack_counts(mod) == {"vta_pack": 0, "vta_unpack": 1, "vta_fold": 1}
    records = {p.name: p for p in placements(mod)}
    (fold,) = {r.host_bytes for r in records.values() if r.host_bytes}
    assert records["first"].host_bytes == records["second"].host_bytes == fold
    assert records["first"].note.startswith("windows of ")
    assert "packed GEMM" in records["first"].note, "the alternative, with its estimate"
    assert records["first"].cycles > 0
    folded = next(b.var for b in straight_bindings(mod["main"]) if "folded" in str(b.var.name))
    assert math.prod(static_shape(folded)) == fold


def moved_net(half: int) -> IntegerNet:
    """Two layers joined and shuffled; half goes through another, and both are joined again."""
    net = IntegerNet(x=(1, 16, 4, 5))
    sides = [net.conv(net.params[0], half, 1, name=name) for name in ("left", "right")]
    x = shuffled(net, net.op("concat", sides, axis=1, name="joined"), "first")
    kept, taken = (
        net.op("strided_slice", x, [1], [at], [at + half], name=f"from{at}") for at in (0, half)
    )
    inner = net.conv(taken, half, 1, name="inner")
    x = shuffled(net, net.op("concat", [kept, inner], axis=1, name="again"), "second")
    net.result = net.conv(x, 16, 1, name="last")
    return net


def shuffled(net: IntegerNet, x: relax.Var, name: str) -> relax.Var:
    """The two halves of the channels, in turns."""
    n, c, h, w = static_shape(x)
    apart = net.op("reshape", x, (n, 2, c // 2, h, w), name=f"{name}_apart")
    turned = net.op("permute_dims", apart, [0, 2, 1, 3, 4], name=f"{name}_turned")
    return net.op("reshape", turned, (n, c, h, w), name=name)


def test_channels_are_not_moved_but_stored_where_they_are_read() -> None:
    """Filters are computed in ranges, of which no channel fills a block of its own."""
    net = moved_net(20)
    mod = net.module(net.result)
    found = packed(mod, VTAConfig())
    assert pack_counts(found) == {"vta_pack": 1, "vta_unpack": 1, "vta_fold": 0}
    names = [str(b.var.name) for b in straight_bindings(found["main"])]
    ranges = [f"{side}__channels_{part}" for side in ("left", "right") for part in ("0_9", "10_19")]
    assert [name for name in names if "channels" in name] == ranges
    assert not {"joined", "first", "from0", "again", "second"} & set(names)
    for got, want in zip(call(found, *net.inputs()), call(mod, *net.inputs()), strict=True):
        np.testing.assert_array_equal(got, want)


NETS = {
    "flattened": flatten_net,
    "permuted and flattened": functools.partial(flatten_net, how="permuted"),
    "folded": stem_net,
    "16 channels": functools.partial(residual_net, 16, size=5, batch=3),
    "33 channels": functools.partial(residual_net, 33, size=5, batch=3),
    "an island": island_net,
}


@functools.cache
def plain(name: str) -> tuple[tvm.IRModule, list[np.ndarray], list[np.ndarray]]:
    """One of the networks, its inputs and what it computes."""
    net = NETS[name]()
    mod, inputs = net.module(net.result), net.inputs()
    return mod, inputs, call(mod, *inputs)


def check(name: str, preset: str) -> None:
    mod, inputs, want = plain(name)
    got = call(packed(mod, VTAConfig.preset(preset)), *inputs)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("preset", ["sim", "tophub_4x8"])
@pytest.mark.parametrize("name", list(NETS)[:3])
def test_views_and_folds_give_the_same_result(preset: str, name: str) -> None:
    check(name, preset)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", list(NETS)[3:])
def test_packed_module_on_llvm_equals_the_plain_one(preset: str, name: str) -> None:
    """The strategies' computes are the operators' definitions: they run as they are."""
    check(name, preset)
