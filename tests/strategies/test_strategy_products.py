"""Products of two computed tensors and transpositions, against numpy and their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from alu_cases import SIM, clamp

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.sim.simulator import run
from vta_byoc.schedule import reference
from vta_byoc.strategies.attention.transpose import TRANSPOSE
from vta_byoc.strategies.base import LayerWork, Strategy
from vta_byoc.strategies.conv.matmul2 import MATMUL2
from vta_byoc.testing.strategies import layer_program
from vta_byoc.workload.packing import pack_activation, unpack_activation
from vta_byoc.workload.products import ProductWorkload, TransposeWorkload
from vta_byoc.workload.workloads import Epilogue, Step

MACHINES = (SIM, VTAConfig.preset("1x32"))
GROUPS = 2


def product(rows: int, sums: int, columns: int, config: VTAConfig) -> ProductWorkload:
    """Of two groups; sizes in blocks."""
    k = config.block
    return ProductWorkload(
        *(1, GROUPS * sums * k, GROUPS * columns * k, 1, rows * k, (1, 1)),
        groups=GROUPS,
        epilogue=Epilogue((Step("shr", 8), *clamp())),
    )


def computed(
    strategy: Strategy[Any], work: ProductWorkload, given: Sequence[np.ndarray], config: VTAConfig
) -> np.ndarray:
    """The program's result, which is that of the definition on llvm."""
    schedule = strategy.choose(LayerWork(work), config)
    packed = [pack_activation(value, config) for value in given]
    values = [*packed, *strategy.constants(schedule, {}, config)]
    definition = strategy.compute(schedule, config)
    program = layer_program(strategy, schedule, config, definition, values)
    found = run(program, {f"x{n}": value for n, value in enumerate(packed)}).outputs["y"]
    np.testing.assert_array_equal(found, reference(definition, *values))
    return unpack_activation(found, 1, work.out_channels)


@pytest.mark.parametrize("config", MACHINES, ids=["1x16", "1x32"])
def test_products_of_two_tensors(config: VTAConfig) -> None:
    rng, work = np.random.default_rng(1), product(1, 2, 3, config)
    data, weight = (rng.integers(-128, 128, shape).astype(np.int8) for shape in work.in_shapes)
    left, right = (x.reshape(GROUPS, -1, x.shape[3]).astype(np.int32) for x in (data, weight))
    sums = np.einsum("gct,gco->got", left, right)
    expected = np.clip(sums >> 8, -128, 127).reshape(work.out_shape)
    np.testing.assert_array_equal(computed(MATMUL2, work, [data, weight], config), expected)


@pytest.mark.parametrize("config", MACHINES, ids=["1x16", "1x32"])
def test_rows_and_columns_exchanged(config: VTAConfig) -> None:
    k = config.block
    work = TransposeWorkload(1, GROUPS * 2 * k, GROUPS * 3 * k, 1, 2 * k, (1, 1), groups=GROUPS)
    (shape,) = work.in_shapes
    tensor = np.random.default_rng(2).integers(-128, 128, shape).astype(np.int8)
    expected = tensor.reshape(GROUPS, 2 * k, 3 * k).transpose(0, 2, 1).reshape(work.out_shape)
    np.testing.assert_array_equal(computed(TRANSPOSE, work, [tensor], config), expected)
