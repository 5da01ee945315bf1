"""What random networks have found, each as the smallest module that showed it."""

from __future__ import annotations

import numpy as np
import pytest
from dialect_numpy import run as reference
from integer_models import IntegerNet
from layer_runs import machines, run_module
from tvm import relax

from vta_byoc.passes.fuse_tiles import sharing_record
from vta_byoc.pipeline import OFF

MACHINES = machines()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("widened", [False, True])
def test_a_multiplier_of_zero(machine: str, widened: bool) -> None:
    """A layer without any weights gets the multiplier 0; so does a scaled tensor."""
    net = IntegerNet(x=(1, 8, 4, 5))
    if widened:
        acc: relax.Expr = relax.op.astype(net.params[0], "int32")
    else:
        weight = relax.const(np.zeros((16, 8, 3, 3), "int8"))
        acc = relax.op.nn.conv2d(net.params[0], weight, padding=1, out_dtype="int32")
    value = net.emit(acc, "layer__acc")
    steps = (("multiply", 0), ("add", 1 << 14), ("right_shift", 15), ("maximum", -128))
    for op, constant in (*steps, ("minimum", 127)):
        call = getattr(relax.op, op)(value, relax.const(np.int32(constant)))
        value = net.emit(call, f"layer__{op}")
    mod = net.module(net.emit(relax.op.astype(value, "int8"), "layer"))
    inputs = net.inputs()
    run = run_module(mod, MACHINES[machine], inputs)
    assert run.placement["layer"].device == "vta"
    np.testing.assert_array_equal(run.outputs[0], reference(mod, *inputs)["result"])


def test_a_constant_side_stays_on_the_host() -> None:
    """A batch normalization of rows, read by a float operator only, multiplies two int8 tensors."""
    net = IntegerNet(x=(1, 16))
    sides = [net.params[0], relax.const(np.arange(-8, 8, dtype="int8").reshape(1, 16))]
    wide = [net.emit(relax.op.astype(s, "int32"), f"join__{n}") for n, s in enumerate(sides)]
    value = net.emit(relax.op.multiply(*wide), "join__acc")
    for op, constant in (("right_shift", 3), ("maximum", -128), ("minimum", 127)):
        call = getattr(relax.op, op)(value, relax.const(np.int32(constant)))
        value = net.emit(call, f"join__{op}")
    mod = net.module(net.emit(relax.op.astype(value, "int8"), "join"))
    inputs = net.inputs()
    run = run_module(mod, MACHINES["1x16"], inputs)
    assert run.placement["join"].device == "cpu"
    assert "one side is a constant int8 tensor" in run.placement["join"].reason
    np.testing.assert_array_equal(run.outputs[0], reference(mod, *inputs)["result"])


def test_a_pool_of_single_positions_behind_a_sum() -> None:
    """The tiles of an elementwise operator have no rows and columns, be the windows of 1x1."""
    net = IntegerNet(x=(1, 16, 4, 5), y=(1, 16, 4, 5))
    joined = net.residual(*net.params, name="join")
    mod = net.module(net.op("nn.max_pool2d", joined, pool_size=(1, 1), name="pool"))
    inputs = net.inputs()
    run = run_module(mod, MACHINES["1x16"], inputs)
    (found,) = sharing_record(run.module)
    assert found.rule == "need tiles of rows and columns (conv2d) to pool in, have elementwise"
    np.testing.assert_array_equal(run.outputs[0], reference(mod, *inputs)["result"])


@pytest.mark.parametrize("machine", ["1x16", "1x32", "quarter"])
@pytest.mark.parametrize("turned", [False, True])
def test_tokens_that_the_host_packs(machine: str, turned: bool) -> None:
    """Rows of whole blocks, of an input; neither their number nor the channels fill the last."""
    net = IntegerNet(x=(1, 24, 40) if turned else (1, 40, 24))
    rows = net.params[0]
    if turned:
        rows = net.emit(relax.op.permute_dims(rows, [0, 2, 1]), "turned")
    weight = relax.const(np.random.default_rng(2).integers(-9, 10, (24, 10)).astype("int8"))
    value = net.emit(relax.op.matmul(rows, weight, out_dtype="int32"), "layer__acc")
    for op, constant in (("right_shift", 6), ("maximum", -128), ("minimum", 127)):
        call = getattr(relax.op, op)(value, relax.const(np.int32(constant)))
        value = net.emit(call, f"layer__{op}")
    mod = net.module(net.emit(relax.op.astype(value, "int8"), "layer"))
    inputs = net.inputs()
    run = run_module(mod, MACHINES[machine], inputs, planned=False, scopes=OFF)
    assert run.placement["layer"].device == "vta"
    packs = {gv.name_hint for gv in run.module.get_global_vars()}
    assert any("tokens" in name or "turned" in name for name in packs)
    np.testing.assert_array_equal(run.outputs[0], reference(mod, *inputs)["result"])
