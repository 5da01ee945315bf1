"""Convolutions of many shapes, tiles and machines, bit for bit against direct numpy convolutions.

Shapes and tiles are random but fixed by their seeds.  Each shape runs on two machines.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from conv_cases import (
    Case,
    chosen_tiling,
    conv_case,
    conv_transpose_case,
    random_tiling,
    random_transpose,
    random_work,
)
from draws import draws, least
from strict_machine import Machine

from vta_byoc.base.rewrites import without
from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, Opcode
from vta_byoc.hw.sim import simulator
from vta_byoc.strategies.conv import conv2d
from vta_byoc.strategies.conv.conv2d_transpose import phases_of
from vta_byoc.strategies.conv.filled import filled_of
from vta_byoc.strategies.conv.taps import LeftOut, left_out_of
from vta_byoc.strategies.conv.tile_space import conv_space
from vta_byoc.strategies.te.kernel import Grouping
from vta_byoc.workload.workloads import Conv2dWorkload

PRESETS = {"1x16": "sim", "4x8": "tophub_4x8", "2x16": "2x16", "1x32": "1x32", "quarter": "sim"}
SMALL_UOP_LOG = 5
SHAPES, MANY = draws(30, 120), 120
NUMBERS = range(MANY) if SHAPES == MANY else (1, 12, *range(15, 13 + SHAPES))
"""What is drawn: all of the first, or some of them that hold every kind of WANTED."""
TRANSPOSED, MANY_TRANSPOSED = draws(10, 20), 20
CHUNK = 10
Tiling = tuple[Grouping, Choice]
WANTED = {
    "shapes": MANY,
    "bias by GEMM": 20,
    "several tiles": 80,
    "tails": 40,
    "several images in a tile": 15,
    "several groups in a tile": 3,
    "split kernel rows": 20,
    "split kernel columns": 20,
    "held": 60,
    "gathered columns": 3,
    "micro-ops split": 8,
    "micro-ops evicted": 8,
    "channels off the block": 20,
    "channels on the block": 20,
    "groups apart": 8,
    "groups as one": 10,
    "depthwise": 12,
    "asymmetric pads": 20,
    "pads over 15": 2,
    "negative pads": 8,
    "dilation": 20,
    "multiplier": 8,
    "operand by position": 18,
    "operand by element": 20,
    "no steps": 5,
    "int32": 6,
    "forced tiles": 40,
    "chosen tiles": 40,
    "order weights": 50,
    "order inputs": 50,
    "one slot": 40,
    "two slots": 50,
    "batch below BATCH": 20,
    **{f"stride {n}": 20 for n in (1, 2, 3)},
    **{f"kernel {n}": 10 for n in range(1, 8)},
    **{f"batch {n}": 10 for n in range(1, 5)},
    **{f"machine {name}": 20 for name in PRESETS},
}


@functools.cache
def machine(name: str, small_uops: bool = False) -> VTAConfig:
    """A machine by name; a micro-op buffer of 8 where kernels shall be split."""
    config = VTAConfig.preset(PRESETS[name])
    if name == "quarter":
        config = dataclasses.replace(
            config,
            log_uop_buff_size=config.log_uop_buff_size - 2,
            log_inp_buff_size=config.log_inp_buff_size - 2,
            log_wgt_buff_size=config.log_wgt_buff_size - 2,
            log_acc_buff_size=config.log_acc_buff_size - 2,
        )
    return dataclasses.replace(config, log_uop_buff_size=SMALL_UOP_LOG) if small_uops else config


def two_machines(number: int, small_uops: bool = False) -> tuple[str, str]:
    """Two of all machines; only two have a small micro-op buffer too (each costs a simulator)."""
    names = list(PRESETS)[:2] if small_uops else list(PRESETS)
    first = number % len(names)
    other = 1 + number // len(names) % (len(names) - 1)
    return names[first], names[(first + other) % len(names)]


@dataclass(frozen=True)
class Shape:
    """One workload on two machines, each with its tiling (None: chosen by estimate)."""

    number: int
    work: Conv2dWorkload
    machines: tuple[str, str]
    small_uops: bool
    tilings: tuple[Tiling | None, Tiling | None]

    def variants(self) -> list[tuple[str, VTAConfig, Tiling | None]]:
        return [
            (name, machine(name, self.small_uops), tiling)
            for name, tiling in zip(self.machines, self.tilings, strict=True)
        ]

    @functools.cached_property
    def cases(self) -> list[Case]:
        """The programs of its variants."""
        return [self.case(config, tiling) for _, config, tiling in self.variants()]

    def case(self, config: VTAConfig, tiling: Tiling | None) -> Case:
        grouping, tile = tiling or (None, None)
        return conv_case(self.work, config, tile, seed=self.number, grouping=grouping)


def _shape(number: int) -> Shape:
    rng = np.random.default_rng(number)
    small_uops = number % 5 == 4
    machines = two_machines(number, small_uops)
    batch = {"batch": number // 4 % 4 + 1}
    work = random_work(rng, **batch)
    while any(fits_nowhere(work, machine(name, small_uops)) for name in machines):
        work = random_work(rng, **batch)
    work = dataclasses.replace(work, bias=number % 4 == 1 and not work.digit_shift)
    forced = number % 3 > 0
    tilings = [
        random_tiling(rng, work, machine(name, small_uops)) if forced else None for name in machines
    ]
    return Shape(number, work, machines, small_uops, (tilings[0], tilings[1]))


def fits_nowhere(work: Conv2dWorkload, config: VTAConfig) -> bool:
    try:
        chosen_tiling(work, config)
    except VTAError:
        return True
    return False


@functools.cache
def shapes() -> list[Shape]:
    return [_shape(number) for number in NUMBERS]


# ---------------------------------------------------------------- results
@pytest.fixture
def _padding(start: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of three chunks one leaves out products where that pays, one wherever it can, one none."""
    turn = start // CHUNK % 3
    if turn == 1:

        def every(
            work: Conv2dWorkload, grouping: Grouping, config: VTAConfig, *_: object
        ) -> LeftOut:
            return left_out_of(work, filled_of(work, grouping, config))[-1]

        monkeypatch.setattr(conv2d, "chosen_left_out", every)
    with without(["skip_padding", "zero_blocks"] if turn == 2 else []):
        yield


@pytest.mark.usefixtures("_padding")
@pytest.mark.parametrize("start", range(0, SHAPES, CHUNK))
def test_bit_exact(start: int) -> None:
    for shape in shapes()[start : start + CHUNK]:
        for (name, _, tiling), case in zip(shape.variants(), shape.cases, strict=True):
            result = simulator.run(case.program, case.inputs)
            try:
                case.check(result.arena)
            except AssertionError as err:
                what = f"shape {shape.number} on {name}: {shape.work} {tiling}"
                raise AssertionError(what) from err
            assert result.counters == case.program.counters()


@pytest.mark.parametrize("number", range(3, SHAPES, 12))
def test_every_legal_order(number: int) -> None:
    """A sample: no hazard without a token, and the same result in a random order of the queues."""
    shape = shapes()[number]
    case = shape.cases[number % 2]
    clamped = [step.op for step in shape.work.epilogue.steps[-2:]] == ["max", "min"]
    saturated = clamped and shape.work.epilogue.dtype == "int8"
    case.check(Machine(case.program, case.inputs, saturated=saturated).run())
    order = np.random.default_rng(number)
    case.check(Machine(case.program, case.inputs, seed=1, saturated=saturated).run(order))


@pytest.mark.parametrize("start", range(0, TRANSPOSED, CHUNK))
def test_transposed_bit_exact(start: int) -> None:
    for number in range(start, start + CHUNK):
        work = random_transpose(np.random.default_rng(number))
        work = dataclasses.replace(work, bias=number % 2 == 1 and not work.digit_shift)
        for name in two_machines(number):
            case = conv_transpose_case(work, machine(name), seed=number)
            try:
                case.check(simulator.run(case.program, case.inputs).arena)
            except AssertionError as err:
                raise AssertionError(f"shape {number} on {name}: {work}") from err


def test_transposed_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    works = [random_transpose(np.random.default_rng(number)) for number in range(TRANSPOSED)]
    phases = [phases_of(work) for work in works]
    counts = {
        "several phases": sum(len(p) > 1 for p in phases),
        "phases without taps": sum(any(x.is_empty for x in p) for p in phases),
        "phases with negative pads": sum(any(min(x.work.padding) < 0 for x in p) for p in phases),
        "groups": sum(work.groups > 1 for work in works),
        "output padding": sum(any(work.output_padding) for work in works),
        "dilation": sum(work.dilation != (1, 1) for work in works),
    }
    with capsys.disabled():
        print(f"\ntransposed convolutions: {', '.join(f'{k} {v}' for k, v in counts.items())}")
    assert min(counts.values()) >= least(4, TRANSPOSED, MANY_TRANSPOSED)


# ---------------------------------------------------------------- what the shapes cover
def tile_features(shape: Shape, config: VTAConfig, tiling: Tiling | None) -> set[str]:
    work = shape.work
    grouping, tile = tiling or chosen_tiling(work, config)
    whole = {name: axis[-1] for name, axis in conv_space(work, grouping, config).axes.items()}
    words, slots = tile.variant.split(), set(tile.slots)
    off = bool(work.in_channels % config.block or work.out_channels % config.block)
    found = {
        "several tiles": any(tile.tile[name] < size for name, size in whole.items()),
        "tails": any(size % tile.tile[name] for name, size in whole.items()),
        "several images in a tile": tile.tile["n"] > 1,
        "several groups in a tile": tile.tile["g"] > 1,
        "split kernel rows": tile.tile["kh"] < work.kernel[0],
        "split kernel columns": tile.tile["kw"] < work.kernel[1],
        f"order {words[0]}": True,
        "held": "held" in words,
        "gathered columns": "gathered" in words,
        "groups apart": grouping.count > 1,
        "groups as one": work.groups > 1 and grouping.count == 1,
        "one slot": 1 in slots,
        "two slots": 2 in slots,
        "batch below BATCH": work.batch % config.batch != 0,
        "channels off the block": off,
        "channels on the block": not off,
    }
    return {name for name, holds in found.items() if holds}


def work_features(work: Conv2dWorkload) -> set[str]:
    top, left, bottom, right = work.padding
    kinds = work.epilogue.tensors
    found = {
        "depthwise": 1 < work.groups == work.in_channels,
        "asymmetric pads": (top, left) != (bottom, right),
        "pads over 15": max(work.padding) > 15,
        "negative pads": min(work.padding) < 0,
        "dilation": work.dilation != (1, 1),
        "multiplier": any(step.op == "mul" for step in work.epilogue.steps),
        "operand by position": "map" in kinds,
        "operand by element": "full" in kinds,
        "no steps": not work.epilogue.steps,
        "bias by GEMM": work.bias,
        "int32": work.epilogue.dtype == "int32",
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
    name, config, tiling = shape.variants()[0]
    small = shape.cases[0]
    large = shape.case(machine(name), tiling or chosen_tiling(shape.work, config))
    loaded = small.program.counters()["uop_load_nbytes"]
    found = {
        "micro-ops split": gemms(small) > gemms(large),
        "micro-ops evicted": loaded > small.program.symbol("vta.uops").nbytes,
    }
    return {name for name, holds in found.items() if holds}


def features(shape: Shape) -> set[str]:
    found = {"shapes"} | work_features(shape.work)
    for name, config, tiling in shape.variants():
        found |= {f"machine {name}", "chosen tiles" if tiling is None else "forced tiles"}
        found |= tile_features(shape, config, tiling)
    return found | (uop_features(shape) if shape.small_uops else set())


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    """How many shapes have what; printed."""
    counts = Counter(name for shape in shapes() for name in features(shape))
    with capsys.disabled():
        listed = ", ".join(f"{name} {counts[name]}" for name in WANTED)
        print(f"\nconvolution shapes, each on two machines: {listed}")
    wanted = {name: least(count, SHAPES, MANY) for name, count in WANTED.items()}
    assert not {name: counts[name] for name, count in wanted.items() if counts[name] < count}
    assert all(len(set(shape.machines)) == 2 for shape in shapes())
