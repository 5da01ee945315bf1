"""Networks whose loads come early: the same integers in every order that the tokens allow."""

from __future__ import annotations

import numpy as np
import pytest
from integer_models import IntegerNet, equal_program

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.reference.interleaving import POLICIES, run_interleaved
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.options import BuildOptions
from vta_byoc.pipeline import compile_module

LOADS = ("joined_uops", "early_loads")
MACHINES = ("pynq", "chisel", "core", "2x16", "tophub_4x8")


def net() -> IntegerNet:
    """Convolutions one behind the other, a sum, and weights that are larger than the tensors."""
    made = IntegerNet(x=(1, 16, 6, 6))
    first = made.conv(made.params[0], 64, name="first")
    second = made.conv(first, 64, name="second")
    third = made.conv(second, 64, k=1, relu=False, name="third")
    total = made.residual(third, first, name="sum")
    made.result = made.conv(total, 32, name="last")
    return made


def program_of(made: IntegerNet, config: VTAConfig, *off: str) -> Program:
    """The program without some rewrites, whose stored tensors are the reference's."""
    mod = made.module(made.result)
    options = BuildOptions(config=config, without_rewrites=off, check_forms=True)
    return equal_program(compile_module(mod, options=options), made, mod)


def drawn_inputs(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        s.name: rng.integers(-128, 128, s.shape).astype(s.dtype) for s in program.of_kind("input")
    }


@pytest.mark.parametrize("machine", MACHINES)
def test_every_order_that_tokens_allow(machine: str) -> None:
    made, config = net(), VTAConfig.preset(machine)
    program, before = program_of(made, config), program_of(made, config, *LOADS)
    inputs = drawn_inputs(program)
    wanted = run_interleaved(before, inputs).outputs
    for policy in POLICIES:
        found = run_interleaved(program, inputs, policy, 11).outputs
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, policy)
    assert simulate(program).cycles < simulate(before).cycles
    for kind in ("inp_load", "wgt_load", "acc_load", "out_store"):
        name = f"{kind}_nbytes"
        assert program.counters()[name] == before.counters()[name], "the same bytes, earlier"


def test_each_off_by_itself() -> None:
    made, config = net(), VTAConfig.preset("pynq")
    cycles = {off: simulate(program_of(made, config, *off)).cycles for off in ((), *zip(LOADS))}
    assert cycles[()] < min(cycles[(name,)] for name in LOADS), cycles
