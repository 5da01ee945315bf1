"""Layers with the same weights have one scale, as the steps of an unrolled recurrent layer."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from layer_runs import machines, run_module
from small_models import Graph, call
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.quantization_record import functions
from vta_byoc.quantization.calibration.statistics import tensor_statistics
from vta_byoc.quantization.tensor_pairs import quantization_record
from vta_byoc.quantization.tied_layers import NEAR, share_ranges
from vta_byoc.quantization.value import Span
from vta_byoc.quantize import quantize
from vta_byoc.validation.noise import decibels

STEPS, WIDTH = 12, 16
MACHINES = {name: machines()[name] for name in ("1x16", "2x16")}


def recurrent(*, tied: bool = True) -> tvm.IRModule:
    """A gated recurrence over the rows of its input."""
    g = Graph((STEPS, WIDTH), seed=3)
    weights = [g.normal(WIDTH, WIDTH, scale=0.3) for _ in range(2 if tied else 2 * STEPS)]
    state: relax.Expr = g.const(np.zeros((1, WIDTH)))
    states: list[relax.Expr] = []
    for step in range(STEPS):
        first = 0 if tied else 2 * step
        row = g.op("strided_slice", g.params[0], [0], [step], [step + 1], name=f"row_{step}")
        gate, new = (
            g.op(
                "add",
                row,
                g.op("matmul", state, weights[first + n], name=f"layer{n}_{step}"),
                name=f"sum{n}_{step}",
            )
            for n in range(2)
        )
        gate, new = (
            g.op("sigmoid", gate, name=f"gate_{step}"),
            g.op("tanh", new, name=f"new_{step}"),
        )
        state = g.op("multiply", gate, new, name=f"state_{step}")
        states.append(state)
    return g.module(g.op("concat", states, axis=0, name="all"))


def batches(count: int, seed: int, quiet: Sequence[int] = ()) -> list[list[np.ndarray]]:
    """Inputs, of which the rows `quiet` are near zero."""
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((count, STEPS, WIDTH)).astype("float32")
    drawn[:, list(quiet)] *= 0.01
    return [[sample] for sample in drawn]


PAIR = [[np.ones((1, WIDTH), "float32")] * 2]


def shared(
    mod: tvm.IRModule, quiet: Sequence[int] = ()
) -> tuple[dict[str, float], dict[str, float], dict[str, Span]]:
    """Ranges before and after, and spans after, by the names of tensors."""
    seen = tensor_statistics(mod, batches(4, 1, quiet))
    ranges = {var: each.amax for var, each in seen.items()}
    spans = {var: each.interval for var, each in seen.items()}
    before = {str(var.name): amax for var, amax in ranges.items()}
    share_ranges(mod, ranges, spans)
    after = {str(var.name): amax for var, amax in ranges.items()}
    return before, after, {str(var.name): span for var, span in spans.items()}


def test_steps_take_the_largest_range_that_is_near() -> None:
    before, after, spans = shared(recurrent())
    for role in ("layer0", "layer1", "sum0", "gate", "new", "state"):
        names = [f"{role}_{step}" for step in range(4, STEPS)]
        largest = max(after[name] for name in names)
        assert len({before[name] for name in names}) > 4
        near = [name for name in names if before[name] >= NEAR * largest]
        assert len(near) >= 4
        assert [after[name] for name in near] == [largest] * len(near)
        assert all(after[name] == before[name] for name in {*names} - {*near})
        assert len({spans[name] for name in near}) == 1
        assert -largest <= spans[near[0]][0] <= spans[near[0]][1] <= largest
    assert after["layer0_5"] != after["layer1_5"]
    assert after["all"] == before["all"] and after["row_3"] == before["row_3"]


def test_a_step_that_is_much_smaller_keeps_its_range() -> None:
    quiet = 6
    before, after, _ = shared(recurrent(), (quiet - 1,))
    assert before[f"layer0_{quiet}"] < NEAR * max(before[f"layer0_{n}"] for n in range(STEPS))
    assert after[f"layer0_{quiet}"] == before[f"layer0_{quiet}"]
    assert after["layer0_8"] == after["layer0_10"] != before["layer0_8"]


def test_tensors_without_ranges_get_none() -> None:
    """A model that states its scales is not calibrated."""
    ranges: dict[relax.Var, float] = {}
    share_ranges(recurrent(), ranges, {})
    assert not ranges


def test_other_weights_share_nothing() -> None:
    before, after, _ = shared(recurrent(tied=False))
    assert after == before


def test_products_of_two_tensors_are_no_layers_with_the_same_weights() -> None:
    g = Graph((1, 8, 16), (1, 8, 16), seed=1)
    x, y = g.params
    turned = g.op("permute_dims", y, [0, 2, 1], name="turned")
    scores = g.op("matmul", x, turned, name="scores")
    again = g.op("matmul", g.op("multiply", x, g.const(2.0), name="more"), turned, name="again")
    mod = g.module(g.op("add", scores, again, name="sum"))
    rng = np.random.default_rng(0)
    pair = [rng.standard_normal((1, 8, 16)).astype("float32") for _ in range(2)]
    ranges = {var: each.amax for var, each in tensor_statistics(mod, [pair]).items()}
    before = dict(ranges)
    share_ranges(mod, ranges, {})
    assert ranges == before


@pytest.mark.parametrize("other", ["bound", "order"])
def test_numbers_and_places_of_operands_tell_parts_apart(other: str) -> None:
    """Towers with the same weights, of which one is clipped elsewhere, or subtracted from."""
    g = Graph((1, WIDTH), (1, WIDTH), seed=2)
    weight, one = g.normal(WIDTH, WIDTH), g.const(1.0)
    layers = [g.op("matmul", x, weight, name=f"layer_{n}") for n, x in enumerate(g.params)]
    if other == "bound":
        ends = [g.op("clip", y, 0.0, 6.0 - n, name=f"end_{n}") for n, y in enumerate(layers)]
    else:
        ends = [g.op("subtract", layers[0], one, name="end_0")]
        ends += [g.op("subtract", one, layers[1], name="end_1")]
    mod = g.module(*ends)
    ranges = {var: 1.0 + place / 8 for place, var in enumerate(tensor_statistics(mod, PAIR))}
    share_ranges(mod, ranges, {})
    after = {str(var.name): amax for var, amax in ranges.items()}
    assert after["layer_0"] == after["layer_1"]
    assert after["end_0"] != after["end_1"]


@functools.cache
def quantized() -> tvm.IRModule:
    """The same module for all machines that multiply."""
    return quantize(recurrent(), calibration=batches(4, 1), scales="mul")


@pytest.mark.parametrize("machine", MACHINES)
def test_one_program_for_all_steps(machine: str) -> None:
    mod, qmod, config = recurrent(), quantized(), MACHINES[machine]
    entries = functions(qmod)
    assert len(entries) == 2 * STEPS
    # the first steps have no state behind them, so what follows of it is no part of a group
    assert len({entry["program"] for entry in entries.values()}) <= STEPS // 2
    tensors = quantization_record(qmod)["tensors"]
    assert len({tensors[f"gate_{step}"]["scale"] for step in range(5, STEPS)}) <= 2
    inputs = batches(1, 2)[0]
    run = run_module(qmod, config, inputs, planned=False)
    np.testing.assert_array_equal(run.outputs[0], call(qmod, *inputs)[0])
    (want,) = call(mod, *inputs)
    error = np.square(want - run.outputs[0]).sum()
    assert decibels(float(np.square(want).sum()), float(error)) > 25


def test_powers_of_two_keep_their_own() -> None:
    mod = recurrent()
    qmod = quantize(mod, calibration=batches(4, 1), config=VTAConfig.preset("sim"))
    tensors, before = quantization_record(qmod)["tensors"], shared(mod)[0]
    for step in range(1, STEPS):
        name = f"layer0_{step}"
        assert tensors[name]["amax"] == before[name]
