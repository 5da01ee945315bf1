"""The comparison with the reference sees every tensor that a region stores, and every change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet, island_net
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import (
    FunctionWriter,
    is_constant,
    source_name,
    straight_bindings,
    substituted,
    with_main,
)
from vta_byoc.pipeline import DRAM_ONLY, ON, compile_module
from vta_byoc.validation.bit_exact import TensorCheck, compare_layers


def wide_net() -> IntegerNet:
    """Channels off the block, and a result that is also read inside its region."""
    net = IntegerNet(x=(1, 24, 7, 7))
    a = net.conv(net.params[0], 20, name="first")
    b = net.conv(a, 20, relu=False, name="second")
    net.result = relax.Tuple([a, net.residual(b, a, name="join")])
    return net


def check(
    made: tvm.IRModule, reference: tvm.IRModule, net: IntegerNet, scopes: str
) -> list[TensorCheck]:
    compiled = compile_module(made, VTAConfig(), scopes=scopes)
    return compare_layers(reference, compiled, net.inputs())


@pytest.mark.parametrize("scopes", [ON, DRAM_ONLY])
@pytest.mark.parametrize("build", [wide_net, island_net])
def test_every_stored_tensor_is_compared(build: Callable[[], IntegerNet], scopes: str) -> None:
    """With scopes the sum is fused into ``second``, which is never stored."""
    net = build()
    mod = net.module(net.result)
    checks = check(mod, mod, net, scopes)
    wanted = {
        wide_net: [("first", "region0"), ("join", "region0")],
        island_net: [("first", "region0"), ("second", "region1")],
    }[build]
    if build is wide_net and scopes == DRAM_ONLY:
        wanted.append(("second", "region0"))
    assert sorted((c.name, c.where) for c in checks) == sorted(wanted)
    assert all(c.equal for c in checks), [str(c) for c in checks if not c.equal]
    assert {c.name: c.size for c in checks}["first"] == (20 * 49 if build is wide_net else 32 * 144)


def test_one_changed_weight_is_found_in_its_layer_and_after_it() -> None:
    net = wide_net()
    mod = net.module(net.result)
    wrong = with_changed_weight(mod, "second")
    checks = {c.name: c for c in check(wrong, mod, net, DRAM_ONLY)}
    assert checks["first"].equal
    assert checks["second"].n_different > 0
    # Only output channel 3 reads the weight.
    assert checks["second"].first is not None and checks["second"].first[:2] == (0, 3)
    assert checks["second"].value != checks["second"].reference
    assert checks["join"].n_different > 0
    shared = {c.name: c for c in check(wrong, mod, net, ON)}
    assert shared == {"first": checks["first"], "join": checks["join"]}


def with_changed_weight(mod: tvm.IRModule, layer: str) -> tvm.IRModule:
    """`mod` with another value of weight [3, 5, 1, 1] of `layer`."""
    main, writer = mod["main"], FunctionWriter()
    env: dict[relax.Var, relax.Expr] = {}
    for binding in straight_bindings(main):
        var, value = binding.var, substituted(binding.value, env)
        if source_name(var) == layer and is_constant(value.args[-1]):
            weight = value.args[-1].value.numpy().copy()
            if weight.ndim == 4 and weight.dtype == np.int8:
                weight[3, 5, 1, 1] = -weight[3, 5, 1, 1] - 1
                value = relax.Call(value.op, [value.args[0], relax.const(weight)], value.attrs)
        env[var] = writer.emit(value, str(var.name))
    return with_main(mod, writer.finish(main, substituted(main.body.body, env)))


def twin_net() -> IntegerNet:
    """Two residual additions of equal shape and equal shifts."""
    net = IntegerNet(x=(1, 16, 6, 6))
    a = net.conv(net.params[0], 16, name="first")
    one = net.residual(a, net.params[0], name="one")
    b = net.conv(one, 16, name="second")
    net.result = net.residual(b, one, name="two")
    return net


def test_equal_operators_keep_their_names() -> None:
    net = twin_net()
    mod = net.module(net.result)
    compiled = compile_module(mod, VTAConfig(), scopes=DRAM_ONLY)
    names = ["first", "one", "second", "two"]
    assert [(p.name, p.device) for p in compiled.placement] == [(n, "vta") for n in names]
    checks = compare_layers(mod, compiled, net.inputs())
    assert sorted(c.name for c in checks) == sorted(names)
    assert all(c.equal for c in checks), [str(c) for c in checks]
    shared = compile_module(mod, VTAConfig())
    assert [p.name for p in shared.placement] == names
    layers = [layer.name for layer in shared.programs["region0"].layers]
    assert layers == ["first+one", "second+two"]
    checks = compare_layers(mod, shared, net.inputs())
    assert [(c.name, c.equal) for c in checks] == [("one", True), ("two", True)]
