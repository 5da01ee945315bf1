"""A batch takes no more cycles an image than an image alone."""

from __future__ import annotations

import dataclasses

import pytest
from alu_cases import cycles_of

from benchmarks.timing import LAYER, as_in_networks, conv_program
from vta_byoc.cost.objective import NAMED, aiming
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.base import LayerWork, Strategy
from vta_byoc.strategies.conv.conv2d import CONV2D
from vta_byoc.strategies.elementwise.elementwise import ELEMENTWISE
from vta_byoc.strategies.pooling.pool import POOL
from vta_byoc.strategy import STRATEGIES
from vta_byoc.workload.workloads import Conv2dWorkload, ElementwiseWorkload, PoolWorkload, Prologue

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
