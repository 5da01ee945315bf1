"""Depthwise convolution on the vector ALU: any window and machine against numpy; estimates."""

from __future__ import annotations

import dataclasses
from typing import Any

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
    depthwise_reference,
    estimated,
    named,
    operand_values,
    random_depthwise,
    random_int8,
    run_llvm,
    run_program,
)
from draws import draws

from vta_byoc.cost.dma import halves
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.strategies.base import LayerWork, Strategy
from vta_byoc.strategies.conv.conv2d import CONV2D
from vta_byoc.strategies.conv.depthwise import DEPTHWISE, pack_channels
from vta_byoc.workload.workloads import CHANNEL, Conv2dWorkload, Epilogue, Step

BIASED = Epilogue((Step("add", CHANNEL), Step("shr", 7), *clamp()))


def layer(channels: int, size: int, kernel: int = 3, **fields: Any) -> Conv2dWorkload:
    """A depthwise layer that keeps the size of its plane."""
    pads = (kernel // 2,) * 4
    work = Conv2dWorkload(
        1, channels, channels, size, size, (kernel, kernel), (1, 1), pads, groups=channels
    )
    return dataclasses.replace(work, epilogue=BIASED, **fields)


def given(work: Conv2dWorkload, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    operands = operand_values(rng, work.epilogue.steps, work.out_shape)
    return {**named(operands), "weight": random_int8(rng, work.out_channels, 1, *work.kernel)}


def check(work: Conv2dWorkload, config: VTAConfig, seed: int = 0, llvm: bool = False) -> Program:
    """Bit-exact with numpy."""
    values = given(work, seed)
    x = random_int8(np.random.default_rng(seed + 1), *work.in_shapes[0])
    operands = [v for name, v in values.items() if name != "weight"]
    expected = depthwise_reference(work, x, values["weight"], operands)
    program = build(DEPTHWISE, work, config, values)
    np.testing.assert_array_equal(run_program(program, [x], work.out_shape), expected)
    if llvm:
        found = run_llvm(DEPTHWISE, work, config, [x], values)
        np.testing.assert_array_equal(found, expected)
    return program


@pytest.mark.parametrize("name", GEOMETRIES)
def test_random_windows(name: str) -> None:
    for seed in range(draws(7, 14)):
        work = random_depthwise(np.random.default_rng([seed, len(name)]))
        check(work, GEOMETRIES[name], seed, llvm=seed == 0)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("kernel", [1, 2, 3, 7])
def test_tiny_planes_of_many_channels(size: int, kernel: int) -> None:
    work = dataclasses.replace(layer(200, size), kernel=(kernel, kernel), padding=(3,) * 4)
    check(work, SIM)
    check(work, GEOMETRIES["4x8"])


def test_extreme_products() -> None:
    work = dataclasses.replace(layer(16, 3), epilogue=Epilogue((Step("shr", 10), *clamp())))
    values = {"weight": np.full((16, 1, 3, 3), -128, np.int8)}
    x = np.full(work.in_shapes[0], -128, np.int8)
    program = build(DEPTHWISE, work, SIM, values)
    expected = depthwise_reference(work, x, values["weight"])
    np.testing.assert_array_equal(run_program(program, [x], work.out_shape), expected)


@pytest.mark.parametrize("count", range(1, 40))
def test_halves_add_every_term_once(count: int) -> None:
    terms = [1 << i for i in range(count)]
    for additions, distance in halves(count):
        assert additions <= distance  # no term is changed and read in one instruction
        for i in range(additions):
            terms[i] += terms[i + distance]
    assert terms[0] == (1 << count) - 1


def test_weights_are_a_vector_a_tap() -> None:
    config = GEOMETRIES["4x8"]
    weight = random_int8(np.random.default_rng(0), 12, 1, 2, 3)
    packed = pack_channels(weight, config)
    assert packed.shape == (2, 6, 4, 8)
    np.testing.assert_array_equal(packed[1, 5, 2, :4], weight[8:, 0, 1, 2])
    assert not packed[1, :, :, 4:].any()


# ---------------------------------------------------------------- refusals
def test_refusals() -> None:
    with pytest.raises(VTAError, match="this machine has no MUL .* use block-diagonal weights"):
        estimated(DEPTHWISE, layer(16, 4), BARE)
    mixed = dataclasses.replace(layer(16, 4), groups=4)
    with pytest.raises(VTAError, match="16 to 16 channels in 4 groups; .* use conv2d"):
        DEPTHWISE.spaces(LayerWork(mixed), SIM)
    wide = dataclasses.replace(layer(16, 60, 61), padding=(30,) * 4)
    with pytest.raises(VTAError, match="no tile of a depthwise convolution fits the SRAM"):
        estimated(DEPTHWISE, wide, SIM)


# ---------------------------------------------------------------- cost
def cost(strategy: Strategy, work: Conv2dWorkload, config: VTAConfig) -> int:
    return cycles_of(build(strategy, work, config, given(work)))


@pytest.mark.parametrize("name", GEOMETRIES)
def test_estimates(name: str) -> None:
    """Within a fifth (or 300 cycles) each, half of them within a twelfth."""
    config, ratios = GEOMETRIES[name], []
    for seed in range(8):
        work = random_depthwise(np.random.default_rng([seed, 5]))
        work = dataclasses.replace(work, height=work.height + seed, batch=1)
        estimate, cycles = estimated(DEPTHWISE, work, config), cost(DEPTHWISE, work, config)
        assert abs(estimate - cycles) <= max(0.2 * cycles, 300), choice_of(DEPTHWISE, work, config)
        ratios.append(estimate / cycles)
    assert 0.92 <= np.median(ratios) <= 1.08, ratios


@pytest.mark.parametrize("channels", [64, 512])
@pytest.mark.parametrize(("kernel", "size"), [(3, 1), (5, 1), (3, 7), (5, 7)])
def test_it_wins_on_tiny_planes_only(channels: int, kernel: int, size: int) -> None:
    """The estimates of the two mappings choose as the timing simulator would."""
    work = layer(channels, size, kernel)
    faster = cost(DEPTHWISE, work, SIM) < cost(CONV2D, work, SIM)
    assert faster == (size == 1)
    assert faster == (estimated(DEPTHWISE, work, SIM) < estimated(CONV2D, work, SIM))
