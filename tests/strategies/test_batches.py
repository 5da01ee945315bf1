"""A batch takes no more cycles an image than an image alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from alu_cases import cycles_of
from draws import draws

from benchmarks.timing import LAYER, as_in_networks, conv_program
from vta_byoc.base.rewrites import without
from vta_byoc.cost.objective import NAMED, aiming
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.base import LayerWork, Strategy
from vta_byoc.strategies.conv.conv2d import CONV2D
from vta_byoc.strategies.conv.conv2d_transpose import CONV2D_TRANSPOSE
from vta_byoc.strategies.elementwise.elementwise import ELEMENTWISE
from vta_byoc.strategies.pooling.pool import POOL
from vta_byoc.strategies.te.timed import cycles_alone
from vta_byoc.strategy import STRATEGIES
from vta_byoc.workload.workloads import (
    Conv2dWorkload,
    ConvTransposeWorkload,
    ElementwiseWorkload,
    PoolWorkload,
    Prologue,
)

CONFIG = VTAConfig.preset("pynq")
SHAPES = (
    (256, 64, 28, 3, 2),
    (48, 256, 16, 3, 2),
    (48, 256, 4, 5, 3),
    (512, 96, 16, 3, 8),
)
"""Channels, size, kernel and images of what was slower in a batch once, by 0.2 to 60 %."""


def conv(ci: int, co: int, size: int, kernel: int) -> Conv2dWorkload:
    pads = (kernel // 2,) * 4
    work = Conv2dWorkload(1, ci, co, size, size, (kernel, kernel), padding=pads, epilogue=LAYER)
    return as_in_networks(work, CONFIG)


@pytest.mark.parametrize("ci, co, size, kernel, images", SHAPES)
def test_a_batch_is_no_slower_an_image(
    ci: int, co: int, size: int, kernel: int, images: int
) -> None:
    one = conv(ci, co, size, kernel)
    alone = cycles_of(conv_program(one, CONFIG))
    together = cycles_of(conv_program(dataclasses.replace(one, batch=images), CONFIG))
    assert together <= images * alone


@pytest.mark.parametrize("ci, co, size, kernel", [(64, 128, 14, 3), (208, 224, 7, 1)])
def test_tiles_that_are_close_by_estimate_are_timed(
    ci: int, co: int, size: int, kernel: int
) -> None:
    """Two took 0.9 and 2.4 % more an image with the tiles of one, for which estimates spoke."""
    one = conv(ci, co, size, kernel)
    two = dataclasses.replace(one, batch=2)
    with without(["joined_uops"]):
        (alone,) = CONV2D.choose(LayerWork(one), CONFIG).kernels
        (both,) = CONV2D.choose(LayerWork(two), CONFIG).kernels
        assert layer_cycles(two) <= 2 * layer_cycles(one)
    assert both.choice.tile != alone.choice.tile


@pytest.mark.parametrize("off", [(), ("early_loads", "joined_uops")])
@pytest.mark.parametrize("seed", range(draws(3, 6)))
def test_drawn_batches_are_no_slower_an_image(seed: int, off: tuple[str, ...]) -> None:
    rng = np.random.default_rng(seed)
    ci, co = (16 * int(blocks) for blocks in rng.integers(1, 17, 2))
    size, kernel = int(rng.choice([4, 7, 14, 16, 28])), int(rng.choice([1, 3]))
    with without(off):
        one = conv(ci, co, size, kernel)
        alone = layer_cycles(one)
        for images in (2, 4):
            together = layer_cycles(dataclasses.replace(one, batch=images))
            assert together <= images * alone, (ci, co, size, kernel, images)


def test_kernels_that_write_parts_of_a_result_are_timed() -> None:
    """What they store reaches from the first phase to the end of the last one."""
    work = ConvTransposeWorkload(1, 16, 32, 5, 6, (3, 3), (2, 2), epilogue=LAYER)
    chosen = CONV2D_TRANSPOSE.choose(LayerWork(work), CONFIG)
    kernels = [(each.func, each.args) for each in CONV2D_TRANSPOSE.functions(chosen, CONFIG)]
    each = [cycles_alone([kernel], CONFIG) for kernel in kernels]
    assert max(each) < cycles_alone(kernels, CONFIG) < sum(each)


def layer_cycles(work: Conv2dWorkload) -> int:
    """Cycles of a layer alone with the rewrites that are on."""
    (kernel,) = CONV2D.functions(CONV2D.choose(LayerWork(work), CONFIG), CONFIG)
    return cycles_alone([(kernel.func, kernel.args)], CONFIG)


def test_the_tiles_of_an_image_are_repeated_unless_others_cost_clearly_less() -> None:
    work = conv(256, 64, 28, 3)
    (one,) = CONV2D.choose(LayerWork(work), CONFIG).kernels
    (two,) = CONV2D.choose(LayerWork(dataclasses.replace(work, batch=2)), CONFIG).kernels
    assert dataclasses.replace(two.choice, cycles=0) == dataclasses.replace(one.choice, cycles=0)
    assert one.choice.cycles < two.choice.cycles <= 2 * one.choice.cycles
    small = conv(64, 64, 2, 1)  # weights for four images at once
    (four,) = CONV2D.choose(LayerWork(dataclasses.replace(small, batch=4)), CONFIG).kernels
    assert four.choice.tile["n"] == 4
    with aiming(NAMED["dram-bytes"]):
        (free,) = CONV2D.choose(LayerWork(dataclasses.replace(work, batch=2)), CONFIG).kernels
    assert free.choice.tile != one.choice.tile


@pytest.mark.parametrize(
    "strategy, work",
    [
        (ELEMENTWISE, ElementwiseWorkload(1, 64, 14, 14, (Prologue(0), Prologue(1)), "add")),
        (POOL, PoolWorkload("max", 1, 64, 14, 14, (2, 2), (2, 2))),
    ],
)
def test_other_layers_are_repeated_too(
    strategy: Strategy, work: ElementwiseWorkload | PoolWorkload
) -> None:
    assert strategy.name in STRATEGIES
    one = strategy.choose(LayerWork(work), CONFIG)
    many = strategy.choose(LayerWork(dataclasses.replace(work, batch=4)), CONFIG)
    assert strategy.estimate(many, CONFIG) <= 4 * strategy.estimate(one, CONFIG)
