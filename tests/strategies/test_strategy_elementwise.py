"""Elementwise operators: any shape, steps and machine against numpy; cycles and estimates."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
from alu_cases import (
    BARE,
    GEOMETRIES,
    SIM,
    build,
    choice_of,
    clamp,
    cycles_of,
    elementwise_reference,
    estimated,
    named,
    operand_values,
    random_elementwise,
    random_int8,
    random_repeated,
    run_llvm,
    run_program,
)
from draws import draws, least

from vta_byoc.cost.lower_bound import bound
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.ir.chains import OTHER, SELF
from vta_byoc.strategies.base import LayerWork
from vta_byoc.strategies.elementwise.elementwise import ELEMENTWISE
from vta_byoc.strategies.te.int8_function import results_of
from vta_byoc.strategies.te.prologue import Term, plan_of
from vta_byoc.workload.packing import blocks, diagonal_weights
from vta_byoc.workload.workloads import (
    CHANNEL,
    FULL,
    MAP,
    ElementwiseWorkload,
    Epilogue,
    Prologue,
    Step,
)


def work_of(
    shape: tuple[int, int, int, int], op: str | None, *sides: tuple[Step, ...], steps: tuple = ()
) -> ElementwiseWorkload:
    """Sides on operands of their own; int8 saturation at the end."""
    pairs = tuple(Prologue(i, side) for i, side in enumerate(sides))
    return ElementwiseWorkload(*shape, pairs, op, Epilogue((*steps, *clamp())))


def all_steps(work: ElementwiseWorkload) -> list[Step]:
    return [step for side in work.prologues for step in side.steps] + list(work.epilogue.steps)


def check(
    work: ElementwiseWorkload, config: VTAConfig, seed: int = 0, llvm: bool = False
) -> Program:
    """Bit-exact with numpy on random data and at both ends of int8."""
    rng = np.random.default_rng(seed)
    operands = operand_values(rng, all_steps(work), work.out_shape)
    program = build(ELEMENTWISE, work, config, named(operands))
    data = [random_int8(rng, *shape) for shape in work.in_shapes]
    for x in data:
        x.flat[: 1 + x.size // 9] = rng.choice([-128, 127])
    expected = elementwise_reference(work, data, operands)
    np.testing.assert_array_equal(run_program(program, data, work.out_shape), expected)
    if llvm:
        found = run_llvm(ELEMENTWISE, work, config, data, named(operands))
        np.testing.assert_array_equal(found, expected)
    return program


def vectors(work: ElementwiseWorkload, config: VTAConfig) -> int:
    n, c, h, w = work.out_shape
    return blocks(n, config.batch) * blocks(c, config.block) * h * w


@pytest.mark.parametrize("name", GEOMETRIES)
def test_random_workloads(name: str) -> None:
    kinds: Counter[str] = Counter()
    drawn, many = draws(8, 16), 16
    for seed in range(drawn):
        work = random_elementwise(np.random.default_rng([seed, len(name)]))
        try:
            check(work, GEOMETRIES[name], seed, llvm=seed % 12 == 0)
        except AssertionError as err:
            if "overflows" not in str(err):
                raise
            continue
        kinds[work.op or "unary"] += 1
    assert sum(kinds.values()) >= least(13, drawn, many) and len(kinds) >= 4, kinds


@pytest.mark.parametrize("name", [*GEOMETRIES, "bare"])
def test_random_functions_of_one_operand(name: str) -> None:
    """Half of them add their right side again."""
    again, config = Counter[bool](), {**GEOMETRIES, "bare": BARE}[name]
    mul, drawn, many = config.capabilities.mul, draws(6, 12), 12
    for seed in range(drawn):
        rng = np.random.default_rng([seed, len(name), 1])
        work = random_elementwise(rng, 0.3 * mul, mul, same=1.0)
        try:
            check(work, config, seed, llvm=seed % 6 == 0)
        except AssertionError as err:
            if "overflows" not in str(err):
                raise
            continue
        again[any(step.is_other for step in work.epilogue.steps)] += 1
    assert min(again[True], again[False]) >= least(3, drawn, many), again


def test_random_workloads_without_mul_and_widening_loads() -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        work = random_elementwise(rng, tensors=0.2 if seed % 2 else 0.0, mul=False)
        negated = work.prologues[-1].steps if work.op == "sub" else ()
        if any(step.is_tensor for step in negated):
            continue
        check(work, BARE, seed)


@pytest.mark.parametrize("name", [*GEOMETRIES, "bare"])
def test_random_operands_that_are_repeated(name: str) -> None:
    config, axes = {**GEOMETRIES, "bare": BARE}[name], Counter[str]()
    drawn, many = draws(8, 16), 16
    for seed in range(drawn):
        work = random_repeated(np.random.default_rng([seed, len(name)]), config)
        try:
            check(work, config, seed, llvm=seed % 12 == 0)
        except AssertionError as err:
            if "overflows" not in str(err):
                raise
            continue
        axes.update(work.repeated(operand) for operand in range(2))
    assert axes.total() >= least(24, drawn, many) and len(axes) >= 5, axes


def test_a_gate_by_channel_costs_little_more_than_one_pass() -> None:
    """It is widened once; each vector of the tensor is widened, multiplied, rounded and clamped."""
    shapes = (1, 96, 28, 28), (1, 96, 1, 1)
    sides, steps = (Prologue(0), Prologue(1)), (Step("add", 64), Step("shr", 7), *clamp())
    work = ElementwiseWorkload(*shapes[0], sides, "mul", Epilogue(steps), shapes=shapes)
    program = check(work, SIM)
    each = 2 + SIM.timing.alu_tensor_cycles + len(steps) * SIM.timing.alu_imm_cycles
    assert cycles_of(program) < 1.1 * each * vectors(work, SIM)
    assert 0.9 < estimated(ELEMENTWISE, work, SIM) / cycles_of(program) < 1.1
    assert bound(work, SIM) <= cycles_of(program)


@pytest.mark.parametrize("kind", [CHANNEL, MAP, FULL])
@pytest.mark.parametrize("op", ["add", "mul", "max", "min", "shr"])
def test_tensor_operands_on_tiles_that_do_not_divide(kind: str, op: str) -> None:
    work = work_of((2, 70, 11, 23), None, (Step(op, kind),), steps=(Step(op, kind), Step("shr", 5)))
    check(work, GEOMETRIES["quarter"])


@pytest.mark.parametrize("kinds", [(MAP, CHANNEL), (FULL, MAP), (CHANNEL, FULL, MAP)])
def test_mixed_tensor_operands_of_many_tiles(kinds: tuple[str, ...]) -> None:
    steps = tuple(Step("add", kind) for kind in kinds)
    work = work_of((3, 64, 20, 31), "max", (), steps, steps=(Step("shr", 6), *steps[:1]))
    check(work, GEOMETRIES["quarter"])
    check(work, GEOMETRIES["4x8"])


@pytest.mark.parametrize("shift", [0, 1, 7, 8, 15, 22])
def test_aligned_residual(shift: int) -> None:
    """Both sides widened and aligned, one by more than an int8 weight can hold."""
    half = (Step("add", 1 << min(shift - 1, 14)),) if shift else ()
    steps = (*half, Step("shr", shift))
    work = work_of((1, 20, 5, 6), "add", (Step("shl", shift),), (), steps=steps)
    for config in (SIM, BARE, GEOMETRIES["2x16"]):
        check(work, config)


def test_leaky_relu_reads_its_operand_once() -> None:
    sides = (Prologue(0), Prologue(0, (Step("shr", 3),)))
    work = ElementwiseWorkload(1, 32, 14, 14, sides, "max", Epilogue(clamp()))
    program = check(work, SIM, llvm=True)
    assert program.counters()["inp_load_nbytes"] == 32 * 14 * 14


def test_the_right_side_is_added_again() -> None:
    """The positive part, and a clamped square of the distance from 3, as functions have it."""
    sides = (Prologue(0, (Step("mul", -40),)), Prologue(0, (Step("max", 3), Step("mul", 80))))
    steps = (Step("shr", 4), Step("add", -90), Step("min", 0), Step("mul", SELF), Step("shr", 9))
    steps = (*steps, Step("add", OTHER), Step("shr", 6), *clamp())
    work = ElementwiseWorkload(1, 32, 5, 7, sides, "add", Epilogue(steps))
    plan = plan_of(work, SIM)
    assert plan.other == Term(0, 1, sides[1].steps) and not plan.summed
    program = check(work, SIM, llvm=True)
    found = {step.operand for step in work.epilogue.steps if isinstance(step.operand, str)}
    assert found == {SELF, OTHER} and work.epilogue.tensors == ()
    x = np.arange(-128, 128)
    wide = np.maximum(x, 3) * 80
    bump = np.minimum(((wide - 40 * x) >> 4) - 90, 0) ** 2 >> 9
    wanted = np.clip((bump + wide) >> 6, -128, 127)
    assert results_of(work) == tuple(wanted.tolist())
    data = np.resize(x, work.out_shape).astype(np.int8)
    np.testing.assert_array_equal(
        run_program(program, [data], work.out_shape), np.resize(wanted, work.out_shape)
    )


def test_minus_of_the_right_side_needs_no_mul() -> None:
    """-max(x >> 2, 3) + ...: the sign moves to the weight."""
    right = (Step("shl", 1), Step("shr", 2), Step("max", 3), Step("min", 50), Step("add", -7))
    for rest in ((), (Step("shl", 20), Step("shr", 17))):
        work = work_of((1, 16, 9, 9), "sub", (), (*right, *rest))
        check(work, BARE)
        assert [term.scale for term in plan_of(work, BARE).terms] == [-2, 1]


def test_sums_of_scaled_operands_are_gemms() -> None:
    sides = (Step("shl", 4), Step("add", 9)), (Step("mul", -3), Step("add", -2), Step("shl", 1))
    work = work_of((1, 16, 4, 4), "sub", *sides)
    plan = plan_of(work, SIM)
    assert plan.scales == (16, 6) and not plan.head.steps and not plan.other
    assert plan.steps[0] == Step("add", 9 + 4)
    check(work, SIM)
    check(work, BARE)


def test_wide_constants_stay_steps() -> None:
    """Sums of offsets beyond an immediate are added in two."""
    sides = ((Step("add", 30000),), (Step("add", 20000),))
    work = work_of((1, 16, 3, 3), "add", *sides, steps=(Step("shr", 8),))
    assert plan_of(work, SIM).steps[:2] == (Step("add", 25000), Step("add", 25000))
    check(work, SIM)


def test_a_product_with_zero() -> None:
    side = (Step("add", CHANNEL), Step("mul", 0), Step("add", 5))
    check(work_of((1, 16, 3, 3), "add", side, ()), SIM)


# ---------------------------------------------------------------- refusals
NO_MUL = "an elementwise multiplication needs the ALU's MUL; this machine has none"
TENSORS = "a subtraction whose right operand has tensor operands or wide immediates multiplies by"


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (work_of((1, 16, 2, 2), "mul", (), ()), NO_MUL),
        (work_of((1, 16, 2, 2), None, (Step("max", 0), Step("mul", 3))), NO_MUL),
        (work_of((1, 16, 2, 2), None, (), steps=(Step("mul", CHANNEL),)), NO_MUL),
        (work_of((1, 16, 2, 2), "sub", (), (Step("add", MAP),)), TENSORS),
        (work_of((1, 16, 2, 2), "sub", (), (Step("max", -(1 << 15)),)), TENSORS),
    ],
)
def test_what_needs_mul(work: ElementwiseWorkload, text: str) -> None:
    for function in (ELEMENTWISE.choose, ELEMENTWISE.spaces):
        with pytest.raises(VTAError, match=text) as error:
            function(LayerWork(work), BARE)
        assert "leave it to the CPU" in str(error.value) and "\n" not in str(error.value)
    check(work, SIM)


def test_diagonal_weights() -> None:
    weights = diagonal_weights((1, -128), SIM)
    assert weights.shape == (2, 1, 1, 1, 16, 16) and weights.dtype == np.int8
    np.testing.assert_array_equal(weights[1, 0, 0, 0], np.eye(16) * -128)


# ---------------------------------------------------------------- cycles
RESCALE = (Step("add", 1), Step("shr", 1))


@pytest.mark.parametrize(
    ("channels", "size", "steps", "limit"),
    [(64, 56, (), 6.5), (64, 56, RESCALE, 7.6), (128, 28, RESCALE, 8.0), (256, 14, RESCALE, 8.5)],
)
def test_cycles_of_a_residual_add(
    channels: int, size: int, steps: tuple[Step, ...], limit: float
) -> None:
    """Clear 1, two GEMMs 2, a cycle a step; the port needs 6 a vector."""
    work = work_of((1, channels, size, size), "add", (), (), steps=steps)
    program = build(ELEMENTWISE, work, SIM, {})
    assert cycles_of(program) / vectors(work, SIM) <= limit


@pytest.mark.parametrize("name", GEOMETRIES)
def test_estimates(name: str) -> None:
    """Within a fifth (or 300 cycles) each, half of them within a twelfth."""
    config, ratios = GEOMETRIES[name], []
    for seed in range(8):
        rng = np.random.default_rng([seed, 7])
        work = random_elementwise(rng)
        h, w = (int(rng.integers(1, 40)) for _ in range(2))
        work = dataclasses.replace(work, height=h, width=w)
        operands = operand_values(rng, all_steps(work), work.out_shape)
        cycles = cycles_of(build(ELEMENTWISE, work, config, named(operands)))
        estimate = estimated(ELEMENTWISE, work, config)
        choice = choice_of(ELEMENTWISE, work, config)
        assert abs(estimate - cycles) <= max(0.2 * cycles, 300), (work, choice)
        ratios.append(estimate / cycles)
    assert 0.92 <= np.median(ratios) <= 1.08, ratios
