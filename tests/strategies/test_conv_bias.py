"""Biases as products: which values they reach, when they are chosen, and that they are exact."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from conv_cases import conv_case, rescale
from integer_models import IntegerNet
from layer_runs import machines, run_module
from small_models import call

from vta_byoc.base.rewrites import REWRITES, without
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.verify.verifier import check
from vta_byoc.options import BuildOptions
from vta_byoc.pipeline import compile_module
from vta_byoc.strategies.conv.bias import (
    bias_lanes,
    biased,
    constant_lanes,
    in_idle_lanes,
    packed_bias,
    reach,
)
from vta_byoc.workload.workloads import CHANNEL, MAP, Conv2dWorkload, Epilogue, Step

SIM = VTAConfig.preset("sim")
WORK = Conv2dWorkload(1, 32, 32, 6, 6, (1, 1), epilogue=rescale(8))


@pytest.mark.parametrize("lanes", [1, 2, 5, 8, 16, 32])
def test_every_value_within_reach_is_exact(lanes: int) -> None:
    most = reach(lanes)
    step = max(1, most // 5000)
    values = np.unique(np.r_[np.arange(-most, most + 1, step), -most, most, np.arange(-300, 300)])
    values = values[abs(values) <= most]
    weights = bias_lanes(values, lanes).astype(np.int64)
    np.testing.assert_array_equal(weights @ constant_lanes(lanes).astype(np.int64), values)


def test_reach_at_sixteen_lanes() -> None:
    assert reach(16) == 242_062


def test_lanes_of_channels_that_do_not_exist_add_nothing() -> None:
    constant, weights = packed_bias(np.full(20, 77, np.int32), SIM)
    assert constant.shape == (1, 1, 16) and weights.shape == (2, 16, 16)
    assert not weights[1, 4:].any()


def given(work: Conv2dWorkload, bias: int = 1000) -> dict[str, np.ndarray]:
    shape = (work.out_channels, work.in_channels, *work.kernel)
    operand = np.full(work.out_channels, bias, np.int32)
    return {"weight": np.ones(shape, np.int8), "operand0": operand}


def test_the_step_is_gone_and_the_others_keep_their_order() -> None:
    steps = (Step("add", 5), Step("add", MAP), Step("add", CHANNEL), Step("mul", CHANNEL))
    work = dataclasses.replace(WORK, epilogue=Epilogue(steps))
    arrays = {"weight": np.ones(1), "operand0": np.ones(1), "operand1": np.ones(1) * 2}
    arrays["operand2"] = np.ones(1) * 3
    found = biased(work, arrays, 16)
    assert found is not None
    assert found[0].bias and found[0].epilogue.steps == (*steps[:2], steps[3])
    assert {k: float(v[0]) for k, v in found[1].items()} == {
        "weight": 1,
        "operand0": 1,
        "bias": 2,
        "operand1": 3,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"digit_shift": 7},
        {"epilogue": Epilogue((Step("shr", 1), Step("add", CHANNEL)))},
        {"epilogue": Epilogue((Step("max", CHANNEL),))},
        {"epilogue": Epilogue((Step("add", 3),))},
        {"bias": True},
    ],
    ids=["two digits", "after a shift", "no sum", "no operand", "already"],
)
def test_what_is_left_to_the_alu(change: dict[str, object]) -> None:
    work = dataclasses.replace(WORK, **change)  # type: ignore[arg-type]
    assert biased(work, given(WORK), 16) is None


def test_values_beyond_reach_are_left_to_the_alu() -> None:
    assert biased(WORK, given(WORK, reach(16)), 16) is not None
    assert biased(WORK, given(WORK, -reach(16) - 1), 16) is None
    with without(["bias_gemm"]):
        assert biased(WORK, given(WORK), 16) is None


def test_idle_lanes_need_no_product_of_their_own() -> None:
    work = dataclasses.replace(WORK, in_channels=27)
    found = in_idle_lanes(work, given(work), 16)
    assert found is not None
    changed, arrays, lanes = found
    assert (changed.in_channels, changed.bias, lanes) == (32, False, 5)
    x = np.concatenate([np.zeros(27), constant_lanes(5)])
    np.testing.assert_array_equal(arrays["weight"][:, :, 0, 0] @ x, np.full(32, 1000))
    assert in_idle_lanes(WORK, given(WORK), 16) is None
    assert in_idle_lanes(work, given(work, reach(5) + 1), 16) is None


@pytest.mark.parametrize("preset", ["sim", "chisel", "tophub_4x8", "2x16", "1x32"])
def test_programs_are_clean_on_every_machine(preset: str) -> None:
    work = dataclasses.replace(WORK, bias=True, epilogue=Epilogue(WORK.epilogue.steps[1:]))
    case = conv_case(work, VTAConfig.preset(preset))
    check(case.program)
    assert case.program.counters()["acc_load_nbytes"] == 0


def small_net() -> IntegerNet:
    """A stem whose 27 lanes of 32 the host fills, a residual block, wide biases at the end."""
    net = IntegerNet(x=(1, 3, 20, 20))
    stem = net.conv(net.params[0], 32, 3, stride=2, name="stem")
    deep = net.conv(stem, 32, relu=False, name="deep")
    joined = net.residual(deep, stem, name="join")
    net.result = net.conv(joined, 24, 3, groups=2, name="last")
    return net


@functools.cache
def wanted() -> np.ndarray:
    net = small_net()
    (result,) = call(net.module(net.result), *net.inputs())
    return np.asarray(result)


MACHINES = ("1x16", "4x8", "2x16")
OTHERS = [name for name in REWRITES if name != "bias_gemm"]
OFF = [
    *((machine, off) for off in ([], ["bias_gemm"]) for machine in MACHINES),
    *((MACHINES[number % len(MACHINES)], [name]) for number, name in enumerate(OTHERS)),
]
"""With and without biases as products on each machine; of the others each on one, in turn.

Without padding that is skipped this network has another program on 4x8 only, which it gets.
"""


@pytest.mark.parametrize(("machine", "off"), OFF, ids=str)
def test_a_network_is_exact_with_every_rewrite_off(machine: str, off: list[str]) -> None:
    net, config = small_net(), machines()[machine]
    with without(off):
        run = run_module(net.module(net.result), config, net.inputs())
    np.testing.assert_array_equal(run.outputs[0], wanted())
    for program in run.programs.values():
        check(program)
    stem = run.plans["stem"]
    assert stem.fold is not None
    if "bias_gemm" in off:
        assert not stem.fold.constants and not run.plans["deep"].work.bias
    elif machine == "1x16":
        assert stem.fold.constants == 5 and run.plans["deep"].work.bias


def test_compilations_with_and_without_a_rewrite_differ() -> None:
    """Nothing that one of them keeps is taken by the other."""
    net, texts = small_net(), []
    for off in ((), ("bias_gemm",), ()):
        options = BuildOptions(SIM, without_rewrites=off)
        (program,) = compile_module(net.module(net.result), options=options).programs.values()
        texts.append(program.insns.tobytes())
    assert texts[0] == texts[2] != texts[1]
