"""Convolutions of many shapes, tiles and machines, bit for bit against a direct numpy convolution.

Shapes and tiles are random but fixed by their seeds.  Each shape runs on two machines.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from conv_cases import Case, conv_case, fits, random_tile, random_work
from strict_machine import Machine

from vta_byoc.hw import simulator
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, Opcode
from vta_byoc.strategy import blocks
from vta_byoc.tiling import ConvTile, choose_conv_tile
from vta_byoc.workload import Conv2dWorkload

PRESETS = {"1x16": "pynq", "4x8": "tophub_4x8", "2x16": "2x16", "1x32": "1x32"}
SMALL_UOP_LOG = 5
SHAPES = 216
CHUNK = 9
WANTED = {
    "shapes": 200,
    "several tiles": 50,
    "tails": 30,
    "micro-ops split": 20,
    "micro-ops evicted": 10,
    "channels off the block": 20,
    "channels on the block": 20,
    "asymmetric pads": 20,
    "pads over 15": 8,
    "dilation": 20,
    "forced tiles": 50,
    "chosen tiles": 50,
    "order weights": 50,
    "order inputs": 20,
    "one slot": 20,
    "two slots": 50,
    "batch below BATCH": 20,
    **{f"stride {n}": 20 for n in (1, 2, 3)},
    **{f"kernel {n}": 10 for n in range(1, 8)},
    **{f"batch {n}": 10 for n in range(1, 5)},
    **{f"machine {name}": 50 for name in PRESETS},
}


@functools.cache
def machine(name: str, small_uops: bool) -> VTAConfig:
    """A preset, with a micro-op buffer of 8 where kernels shall be split."""
    config = VTAConfig.preset(PRESETS[name])
    return dataclasses.replace(config, log_uop_buff_size=SMALL_UOP_LOG) if small_uops else config


@dataclass(frozen=True)
class Shape:
    """One workload on two machines, each with its tile (None: chosen by the tiler)."""

    number: int
    work: Conv2dWorkload
    machines: tuple[str, str]
    small_uops: bool
    tiles: tuple[ConvTile | None, ConvTile | None]

    def variants(self) -> list[tuple[str, VTAConfig, ConvTile | None]]:
        return [
            (name, machine(name, self.small_uops), tile)
            for name, tile in zip(self.machines, self.tiles, strict=True)
        ]

    def case(self, config: VTAConfig, tile: ConvTile | None) -> Case:
        return conv_case(self.work, config, tile, seed=self.number)


def _shape(number: int) -> Shape:
    rng = np.random.default_rng(number)
    names = list(PRESETS)
    first = names[number % 4]
    second = names[(number % 4 + 1 + number // 4 % 3) % 4]
    small_uops = number % 5 == 4
    batch = {"batch": number // 4 % 4 + 1}
    work = random_work(rng, **batch)
    while any(fits_nowhere(work, machine(n, small_uops)) for n in (first, second)):
        work = random_work(rng, **batch)
    forced = number % 3 > 0
    tiles = [
        random_tile(rng, work, machine(n, small_uops)) if forced else None
        for n in (first, second)
    ]
    return Shape(number, work, (first, second), small_uops, (tiles[0], tiles[1]))


def fits_nowhere(work: Conv2dWorkload, config: VTAConfig) -> bool:
    return not fits(ConvTile(1, 1, 1, 1, inp_slots=1, wgt_slots=1, acc_slots=1), work, config)


@functools.cache
def shapes() -> list[Shape]:
    return [_shape(number) for number in range(SHAPES)]


# ---------------------------------------------------------------- results
@pytest.mark.parametrize("start", range(0, SHAPES, CHUNK))
def test_bit_exact(start: int) -> None:
    for shape in shapes()[start : start + CHUNK]:
        for name, config, tile in shape.variants():
            case = shape.case(config, tile)
            result = simulator.run(case.program, case.inputs)
            try:
                case.check(result.arena)
            except AssertionError as err:
                what = f"shape {shape.number} on {name}: {shape.work} {tile}"
                raise AssertionError(what) from err
            assert result.counters == case.program.counters()


@pytest.mark.parametrize("number", range(3, SHAPES, 9))
def test_every_legal_order(number: int) -> None:
    """A sample: no hazard without a token, and the same result in a random order of the queues."""
    shape = shapes()[number]
    _, config, tile = shape.variants()[number % 2]
    case = shape.case(config, tile)
    case.check(Machine(case.program, case.inputs).run())
    order = np.random.default_rng(number)
    case.check(Machine(case.program, case.inputs, seed=1).run(order))


# ---------------------------------------------------------------- what the shapes cover
def extents(work: Conv2dWorkload, config: VTAConfig) -> tuple[int, int, int, int]:
    """What a tile's co, oh, ow, ci divide."""
    return (
        blocks(work.out_channels, config.block),
        work.out_height,
        work.out_width,
        blocks(work.in_channels, config.block),
    )


def tile_features(work: Conv2dWorkload, config: VTAConfig, tile: ConvTile) -> set[str]:
    sizes = (tile.co, tile.oh, tile.ow, tile.ci)
    pairs = list(zip(extents(work, config), sizes, strict=True))
    slots = set(tile.slots().values())
    off = bool(work.in_channels % config.block or work.out_channels % config.block)
    found = {
        "several tiles": math.prod(-(-total // size) for total, size in pairs) > 1,
        "tails": any(size < total and total % size for total, size in pairs),
        f"order {tile.order}": True,
        "one slot": 1 in slots,
        "two slots": 2 in slots,
        "batch below BATCH": work.batch % config.batch != 0,
        "channels off the block": off,
        "channels on the block": not off,
    }
    return {name for name, holds in found.items() if holds}


def work_features(work: Conv2dWorkload) -> set[str]:
    top, left, bottom, right = work.padding
    found = {
        "asymmetric pads": (top, left) != (bottom, right),
        "pads over 15": max(work.padding) > 15,
        "dilation": work.dilation != (1, 1),
        f"batch {work.batch}": True,
        **{f"stride {n}": True for n in work.strides},
        **{f"kernel {n}": True for n in work.kernel},
    }
    return {name for name, holds in found.items() if holds}


def gemms(case: Case) -> int:
    """GEMM instructions of a program, resets left out."""
    isa = ISA.of(case.program.config)
    insns = [isa.decode(*words) for words in case.program.insns.tolist()]
    return sum(i.opcode == Opcode.GEMM and not i["reset"] for i in insns)


def uop_features(shape: Shape) -> set[str]:
    """Whether the small micro-op buffer of the first machine split or evicted kernels."""
    name, config, tile = shape.variants()[0]
    chosen = tile or choose_conv_tile(shape.work, config)
    small, large = (shape.case(c, chosen) for c in (config, machine(name, False)))
    loaded = small.program.counters()["uop_load_nbytes"]
    found = {
        "micro-ops split": gemms(small) > gemms(large),
        "micro-ops evicted": loaded > small.program.symbol("vta.uops").nbytes,
    }
    return {name for name, holds in found.items() if holds}


def features(shape: Shape) -> set[str]:
    found = {"shapes"} | work_features(shape.work)
    for name, config, tile in shape.variants():
        found |= {f"machine {name}", "chosen tiles" if tile is None else "forced tiles"}
        found |= tile_features(shape.work, config, tile or choose_conv_tile(shape.work, config))
    return found | (uop_features(shape) if shape.small_uops else set())


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    """How many shapes have what; printed."""
    counts = Counter(name for shape in shapes() for name in features(shape))
    with capsys.disabled():
        listed = ", ".join(f"{name} {counts[name]}" for name in WANTED)
        print(f"\nconvolution shapes, each on two machines: {listed}")
    assert not {name: counts[name] for name, least in WANTED.items() if counts[name] < least}
    assert all(len(set(shape.machines)) == 2 for shape in shapes())
