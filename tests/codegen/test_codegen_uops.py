"""Loops to hardware loops and micro-op kernels, and the micro-op buffer."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter

import numpy as np
import pytest

from vta_byoc.codegen.uops import (
    BEST,
    FAR,
    LOOP_LIMIT,
    TUTORIALS,
    CompressedNest,
    LoopCompression,
    LoopDim,
    UopBuffer,
    compress,
    compressed_count,
    dst_distance,
    fuse,
)
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA

CONFIG = VTAConfig()
SMALL = dataclasses.replace(CONFIG, log_uop_buff_size=5)
Step = tuple[int, int, int]


def executed(part: CompressedNest) -> list[Step]:
    """The micro-ops of one instruction in the order in which the hardware runs them."""
    steps = []
    for index in itertools.product(*(range(d.extent) for d in part.loops)):
        for uop in part.kernel:
            at = np.array(uop)
            for i, d in zip(index, part.loops, strict=True):
                at = at + i * np.array(d.strides)
            steps.append((int(at[0]), int(at[1]), int(at[2])))
    return steps


def nested(dims: list[LoopDim], base: Step) -> list[Step]:
    """The same nest as plain loops."""
    steps = []
    for index in itertools.product(*(range(d.extent) for d in dims)):
        at = np.array(base)
        for i, d in zip(index, dims, strict=True):
            at = at + i * np.array(d.strides)
        steps.append((int(at[0]), int(at[1]), int(at[2])))
    return steps


def closest(steps: list[Step]) -> int:
    """Distance of the nearest two steps with one destination."""
    last: dict[int, int] = {}
    best = FAR
    for k, (dst, _, _) in enumerate(steps):
        best = min(best, k - last.get(dst, -FAR))
        last[dst] = k
    return best


def random_dims(rng: np.random.Generator) -> list[LoopDim]:
    """Up to five loops; reductions, broadcasts, backward and overlapping strides included."""
    strides = [0, 1, 2, 3, 7, 20, 100]
    return [
        LoopDim(
            int(rng.integers(1, 6)),
            (
                int(rng.choice(strides)),
                int(rng.choice(strides)) * int(rng.choice([1, 1, 1, -1])),
                int(rng.choice(strides)),
            ),
        )
        for _ in range(int(rng.integers(1, 6)))
    ]


# ---------------------------------------------------------------- fusing
def test_fuse() -> None:
    def dim(extent: int, *strides: int) -> LoopDim:
        return LoopDim(extent, (strides[0], strides[1], 0))

    assert fuse([dim(4, 3, 6), dim(3, 1, 2)]) == [dim(12, 1, 2)]
    assert fuse([dim(4, 3, 7), dim(3, 1, 2)]) == [dim(4, 3, 7), dim(3, 1, 2)], "src jumps"
    assert fuse([dim(2, 12, 24), dim(4, 3, 6), dim(3, 1, 2)]) == [dim(24, 1, 2)]
    assert fuse([dim(4, 1, 1), dim(1, 9, 9)]) == [dim(4, 1, 1)]
    assert fuse([dim(4, 0, 0), dim(3, 0, 0)]) == [dim(12, 0, 0)]
    assert fuse([]) == []


# ---------------------------------------------------------------- folding
@pytest.mark.parametrize("config", [CONFIG, SMALL], ids=["8192 micro-ops", "8 micro-ops"])
@pytest.mark.parametrize("mode", [BEST, TUTORIALS], ids=lambda m: m.name)
def test_random_nests_run_the_same_steps(config: VTAConfig, mode: LoopCompression) -> None:
    for seed in range(300):
        rng = np.random.default_rng(seed)
        dims = random_dims(rng)
        base = (5, 700, 3)
        distance = int(rng.choice([1, 2, 4]))
        parts = list(compress(config, fuse(dims), base, mode, distance=distance))
        steps = [s for part in parts for s in executed(part)]
        assert Counter(steps) == Counter(nested(dims, base)), f"{seed}: {dims}"
        for part in parts:
            assert len(part.kernel) <= config.uop_depth
            assert len(part.loops) <= 2
            assert part.steps == len(executed(part))
            assert all(d.extent <= LOOP_LIMIT and min(d.strides) >= 0 for d in part.loops)
            if mode is BEST:
                assert closest(executed(part)) >= distance, f"{seed}: {dims}"


def test_two_best_loops() -> None:
    """Of four loops the two longest leave the smallest kernel."""
    dims = [
        LoopDim(2, (0, 1, 1)),
        LoopDim(9, (1, 2, 0)),
        LoopDim(3, (9, 18, 0)),
        LoopDim(8, (27, 0, 2)),
    ]
    (part,) = compress(CONFIG, dims, (0, 0, 0))
    assert [d.extent for d in part.loops] == [9, 8]
    assert len(part.kernel) == 6
    assert part.kernel[:3] == ((0, 0, 0), (9, 18, 0), (18, 36, 0)), "the reduction is outermost"


def test_published_takes_the_outermost_loops() -> None:
    dims = [LoopDim(2, (0, 1, 1)), LoopDim(3, (9, 18, 0)), LoopDim(9, (1, 2, 0))]
    (part,) = compress(CONFIG, dims, (0, 0, 0), TUTORIALS)
    assert [d.extent for d in part.loops] == [2, 3]


def test_kernel_over_the_buffer_is_split() -> None:
    dims = [LoopDim(20, (1, 0, 0)), LoopDim(19, (20, 1, 0)), LoopDim(10, (0, 30, 1))]
    parts = list(compress(SMALL, dims, (0, 0, 0), distance=1))
    assert len(parts) == 2, "ten micro-ops of eight"
    assert [len(p.kernel) for p in parts] == [5, 5]


def test_loop_over_the_field_is_split() -> None:
    parts = list(compress(CONFIG, [LoopDim(40_000, (0, 1, 0))], (0, 0, 0)))
    assert sum(p.steps for p in parts) == 40_000
    assert all(d.extent <= LOOP_LIMIT for p in parts for d in p.loops)
    assert sorted(s[1] for p in parts for s in executed(p)) == list(range(40_000))


def test_one_destination_never_twice_in_an_instruction() -> None:
    """A dot product into one element has no safe distance: an instruction a step."""
    parts = list(compress(CONFIG, [LoopDim(6, (0, 1, 1))], (0, 0, 0), distance=4))
    assert [p.steps for p in parts] == [1] * 6
    three = [LoopDim(6, (0, 1, 1)), LoopDim(3, (1, 0, 6))]
    parts = list(compress(CONFIG, three, (0, 0, 0), distance=4))
    assert [p.steps for p in parts] == [3] * 6


# ---------------------------------------------------------------- counting
@pytest.mark.parametrize("config", [CONFIG, SMALL], ids=["8192 micro-ops", "8 micro-ops"])
def test_count_is_what_fold_makes(config: VTAConfig) -> None:
    for seed in range(300):
        rng = np.random.default_rng(seed)
        dims, distance = random_dims(rng), int(rng.choice([1, 2, 4, 9]))
        parts = list(compress(config, fuse(dims), (5, 700, 3), distance=distance))
        want = len(parts), sum(len(part.kernel) for part in parts)
        assert compressed_count(config, dims, distance) == want, f"{seed}: {dims}"


def test_few_destinations() -> None:
    """As many destinations as the distance fit one instruction, whichever loop the nest has
    outside; fewer are an instruction a step of the reduction."""
    reduction = LoopDim(25_088 // 16, (0, 1, 1))
    for count, want in ((2, (1568, 1568)), (3, (1568, 1568)), (4, (1, 1)), (40, (1, 1))):
        channels = LoopDim(count, (1, 0, 1568))
        for dims in ([channels, reduction], [reduction, channels]):
            assert compressed_count(CONFIG, dims, 4) == want
            for part in compress(CONFIG, dims, (0, 0, 0), distance=4):
                assert closest(executed(part)) >= 4
    assert compressed_count(CONFIG, [LoopDim(40_000, (1, 1, 0))], 4) == (4, 4)
    assert compressed_count(CONFIG, [], 4) == (1, 1)


def test_span_is_what_the_steps_touch() -> None:
    for seed in range(200):
        rng = np.random.default_rng(seed)
        for part in compress(CONFIG, fuse(random_dims(rng)), (5, 700, 3), distance=2):
            steps = np.array(executed(part))
            want = zip(steps.min(axis=0).tolist(), (steps.max(axis=0) + 1).tolist(), strict=True)
            assert part.spans == tuple(want), str(seed)


# ---------------------------------------------------------------- distance
def test_distance_against_every_step() -> None:
    for seed in range(400):
        rng = np.random.default_rng(seed)
        dims = fuse(random_dims(rng))
        pairs = list(itertools.combinations(range(len(dims)), min(2, len(dims))))
        hw = pairs[int(rng.integers(len(pairs)))]
        rest = [d for k, d in enumerate(dims) if k not in hw]
        order = [dims[k] for k in hw] + sorted(rest, key=lambda d: d.strides[0] != 0)
        assert dst_distance(dims, hw) == closest(nested(order, (0, 0, 0))), f"{seed}: {dims} {hw}"


def test_distance_of_a_large_nest_is_quick() -> None:
    """Found from the strides, not by running half a million steps."""
    dims = [
        LoopDim(16, (196, 0, 9)),
        LoopDim(14, (14, 16, 0)),
        LoopDim(14, (1, 1, 0)),
        LoopDim(144, (0, 256, 1)),
    ]
    assert math.prod(d.extent for d in dims) == 451_584
    assert dst_distance(dims, (0, 3)) == 14 * 14
    assert dst_distance(dims, (0, 1)) == 14
    assert dst_distance(dims[:3], (0, 1)) == FAR


# ---------------------------------------------------------------- the micro-op buffer
def kernel(count: int, start: int = 0) -> tuple[Step, ...]:
    return tuple((start + k, 0, 0) for k in range(count))


def test_equal_kernels_are_loaded_once() -> None:
    buffer = UopBuffer(CONFIG, BEST)
    assert buffer.place(kernel(3), "a") == (0, (0, 3))
    assert buffer.place(kernel(4, 9), "b") == (3, (3, 4))
    assert buffer.place(kernel(3), "c") == (0, None), "another site shares it"
    isa = ISA.of(CONFIG)
    assert [isa.decode_uop(w)["dst"] for w in buffer.words] == [0, 1, 2, 9, 10, 11, 12]


def test_published_keeps_a_kernel_a_site() -> None:
    buffer = UopBuffer(CONFIG, TUTORIALS)
    assert buffer.place(kernel(3), "a") == (0, (0, 3))
    assert buffer.place(kernel(3), "b") == (3, (0, 3)), "loaded twice, stored once"
    assert buffer.place(kernel(3), "a") == (0, None)
    assert len(buffer.words) == 3


def test_full_buffer_starts_again() -> None:
    buffer = UopBuffer(SMALL, BEST)
    assert SMALL.uop_depth == 8
    assert buffer.place(kernel(5), "a") == (0, (0, 5))
    assert buffer.place(kernel(3, 20), "b") == (5, (5, 3)), "exactly full"
    assert buffer.place(kernel(1, 40), "c") == (0, (8, 1)), "evicts all"
    assert buffer.place(kernel(5), "a") == (1, (0, 5)), "loaded again from where it is in DRAM"
    assert buffer.place(kernel(8, 60), "d") == (0, (9, 8)), "as large as the buffer"
    assert len(buffer.words) == 17
