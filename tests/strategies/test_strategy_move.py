"""Data movement: concatenation, slices, padding, upsampling, channels in any order; any machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from alu_cases import (
    BARE,
    GEOMETRIES,
    SIM,
    build,
    cycles_of,
    estimated,
    random_int8,
    run_llvm,
    run_program,
)

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.strategies.base import LayerSchedule, LayerWork
from vta_byoc.strategies.movement import regions as moves
from vta_byoc.strategies.movement.concat import CONCAT
from vta_byoc.strategies.movement.gather import ZERO, alike, gathered_by
from vta_byoc.strategies.movement.move import MOVE, Move
from vta_byoc.strategies.movement.regions import ShownAxis
from vta_byoc.strategy import estimated_by
from vta_byoc.testing.strategies import check_strategy
from vta_byoc.workload.copy_region import CopyRegion, Source, merged
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.texts import from_json, to_json
from vta_byoc.workload.workloads import ConcatWorkload, MoveWorkload, Shape


def check(
    work: MoveWorkload,
    config: VTAConfig,
    data: Sequence[np.ndarray],
    expected: np.ndarray,
    llvm: bool = False,
) -> int:
    """Bit-exact with ``expected``; the cycles."""
    assert from_json(MoveWorkload, to_json(work)) == work
    assert work.out_shape == expected.shape
    program = build(MOVE, work, config, {})
    np.testing.assert_array_equal(run_program(program, data, work.out_shape), expected)
    if llvm:
        np.testing.assert_array_equal(run_llvm(MOVE, work, config, data, {}), expected)
    return cycles_of(program)


def tensors(*shapes: Shape, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [random_int8(rng, *shape) for shape in shapes]


def vectors(work: MoveWorkload, config: VTAConfig) -> int:
    return int(np.prod(packed_shape(work.out_shape, config)[:4]))


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("channels", [(24, 64, 9), (5, 40), (1, 1, 1)])
def test_concat(name: str, channels: tuple[int, ...]) -> None:
    config = GEOMETRIES[name]
    data = tensors(*((2, c, 5, 7) for c in channels))
    work = moves.concat([x.shape for x in data], config)
    check(work, config, data, np.concatenate(data, 1), llvm=channels == (5, 40))


@pytest.mark.parametrize("batch", [1, 2])
def test_operands_that_are_not_stored_in_place(batch: int) -> None:
    """Each is copied to its range of channels; the definition takes the weight of the copies."""

    def drawn(
        rng: np.random.Generator, config: VTAConfig
    ) -> tuple[ConcatWorkload, Mapping[str, np.ndarray]]:
        channels = int(rng.integers(1, 3)) * config.block, int(rng.integers(1, 40))
        return ConcatWorkload(batch, channels, 5, 6), {}

    check_strategy(CONCAT, drawn, machines=(SIM,), cases=2)


def test_a_copy_may_cost_nothing() -> None:
    """An estimate of 0 cycles is taken, one below is not."""

    class Free(Move):
        cycles = 0.0

        def estimate(self, schedule: LayerSchedule[MoveWorkload], config: VTAConfig) -> float:
            return self.cycles

    free, work = Free(), moves.pad((1, 16, 2, 2), (1, 0, 0, 0), SIM)
    schedule = MOVE.choose(LayerWork(work), SIM)
    assert estimated_by(free, schedule, SIM) == 0
    free.cycles = -0.5
    with pytest.raises(VTAError, match="a finite number of 0 or more is taken"):
        estimated_by(free, schedule, SIM)


def test_concat_of_whole_blocks_is_a_copy() -> None:
    """The port needs 4 cycles a vector."""
    data = tensors((1, 64, 28, 28), (1, 32, 28, 28))
    work = moves.concat([x.shape for x in data], SIM)
    assert work.lanes == ((),)
    cycles = check(work, SIM, data, np.concatenate(data, 1))
    assert cycles / vectors(work, SIM) <= 4.3


@pytest.mark.parametrize("batch, offsets", [(1, [0, 3200]), (2, [None, None])])
def test_what_is_concatenated_lies_in_one_range_of_one_image(
    batch: int, offsets: list[int | None]
) -> None:
    work = ConcatWorkload(batch, (32, 16), 10, 10)
    assert CONCAT.in_place_offsets(work, SIM) == offsets
    two = VTAConfig(log_batch=1)
    assert CONCAT.in_place_offsets(work, two) == [0, 6400]  # both images are one vector


def test_concat_shifts_lanes_on_the_way() -> None:
    data = tensors((1, 24, 28, 28), (1, 40, 28, 28))
    work = moves.concat([x.shape for x in data], SIM)
    cycles = check(work, SIM, data, np.concatenate(data, 1))
    assert cycles / vectors(work, SIM) <= 7


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("factors", [(2, 2), (1, 3), (4, 1)])
def test_upsample(name: str, factors: tuple[int, int]) -> None:
    config = GEOMETRIES[name]
    (x,) = tensors((1, 40, 9, 6))
    work = moves.upsample(x.shape, factors, config)
    expected = x.repeat(factors[0], 2).repeat(factors[1], 3)
    check(work, config, [x], expected, llvm=factors == (2, 2))


def test_upsample_loads_each_pixel_once() -> None:
    (x,) = tensors((1, 64, 26, 26))
    work = moves.upsample(x.shape, (2, 2), SIM)
    assert check(work, SIM, [x], x.repeat(2, 2).repeat(2, 3)) / vectors(work, SIM) <= 2.7


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 3, 2, 0), (20, 0, 0, 20), (0, 0, 5, 0)])
def test_pad(name: str, pads: tuple[int, int, int, int]) -> None:
    config = GEOMETRIES[name]
    (x,) = tensors((2, 20, 11, 8))
    work = moves.pad(x.shape, pads, config)
    top, left, bottom, right = pads
    expected = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    check(work, config, [x], expected, llvm=pads[0] == 1)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_slices(name: str) -> None:
    config, rng = GEOMETRIES[name], np.random.default_rng(1)
    (x,) = tensors((1, 70, 15, 12))
    for number in range(5):
        begin = tuple(int(rng.integers(0, n - 1)) for n in x.shape[1:])
        sizes = zip(begin, x.shape[1:], strict=True)
        end = tuple(int(rng.integers(first + 1, n + 1)) for first, n in sizes)
        steps = tuple(int(s) for s in rng.integers(1, 4, 3))
        c, h, w = (slice(*t) for t in zip(begin, end, steps, strict=True))
        work = moves.strided_slice(x.shape, begin, end, steps, config)
        check(work, config, [x], x[:, c, h, w], llvm=number == 0)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize(("channels", "groups"), [(58, 2), (48, 3)])
def test_channel_shuffle(name: str, channels: int, groups: int) -> None:
    config = GEOMETRIES[name]
    (x,) = tensors((1, channels, 5, 5))
    order = [int(c) for c in np.arange(channels).reshape(groups, -1).T.reshape(-1)]
    check(moves.channels_of(x.shape, order, config), config, [x], x[:, order])


def test_permuted_blocks_move_whole() -> None:
    (x,) = tensors((1, 64, 6, 6))
    order = [b * 16 + c for b in (2, 0, 3, 1) for c in range(16)]
    work = moves.channels_of(x.shape, order, SIM)
    assert work.lanes == ((),) and len(work.boxes) == 4
    check(work, SIM, [x], x[:, order])


@pytest.mark.parametrize("seed", range(6))
def test_anything_at_once(seed: int) -> None:
    """Random channels of two operands or zeros; rows and columns padded, skipped or repeated."""
    rng = np.random.default_rng(seed)
    config = [*GEOMETRIES.values(), BARE][seed % 6]
    height, width = (int(n) for n in rng.integers(2, 12, 2))
    data = tensors((1, 21, height, width), (1, 34, height, width), seed=seed)
    choices = [None, *((0, c) for c in range(21)), *((1, c) for c in range(34))]
    channels = [choices[int(i)] for i in rng.integers(0, len(choices), int(rng.integers(1, 40)))]
    axes, index = [], []
    for size in (height, width):
        repeat, before, behind = (int(v) for v in rng.integers(1, 4, 3))
        first, step = int(rng.integers(0, 2)), int(rng.integers(1, 3))
        source = list(range(first, size, step))
        if rng.random() < 0.5:
            repeat = 1
        elif rng.random() < 0.5:
            before = behind = 0
        shown = [-1] * (before * repeat) + [i for i in source for _ in range(repeat)]
        shown += [-1] * (behind * repeat)
        count, skipped = len(source), before * repeat
        axes.append(ShownAxis(len(shown), size, count, first, step, repeat, skipped))
        index.append(shown)
    work = moves.gathered([x.shape for x in data], channels, *axes, config)
    padded = [np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 1))) for x in data]  # row and column -1
    planes = [
        padded[c[0]][0, c[1]] if c else np.zeros((height + 1, width + 1), np.int8) for c in channels
    ]
    expected = np.stack(planes)[None][:, :, index[0]][:, :, :, index[1]]
    check(work, config, data, expected, llvm=True)


def test_boxes_by_hand() -> None:
    """Two boxes of a result: every second vector from the operand, the others zero."""
    (x,) = tensors((1, 16, 1, 6))
    source = Source(0, 5, (0,), (0,), (3,))
    boxes = (CopyRegion((3,), 0, (2,), (source,)), CopyRegion((3,), 1, (2,), ()))
    work = MoveWorkload((x.shape,), x.shape, boxes)
    expected = np.zeros_like(x)
    expected[..., ::2] = x[..., 5:]
    check(work, SIM, [x], expected, llvm=True)


def test_merged_boxes_have_few_axes() -> None:
    work = moves.concat([(1, 32, 9, 9), (1, 16, 9, 9)], SIM)
    assert [merged(box).size for box in work.boxes] == [(162,), (81,)]
    work = moves.pad((1, 32, 9, 9), (1, 0, 0, 0), SIM)
    assert merged(work.boxes[0]).size == (2, 90)


def test_boxes_of_another_machine_are_refused() -> None:
    work = moves.channels_of((1, 32, 2, 2), [5, 3], SIM)
    with pytest.raises(VTAError, match="a movement of 16 lanes; vectors of machine 1x32 have 32"):
        MOVE.constants(LayerSchedule(work), {}, GEOMETRIES["1x32"])


@pytest.mark.parametrize("name", GEOMETRIES)
def test_estimates(name: str) -> None:
    """Within a quarter (or 300 cycles a box) each, half of them within a twelfth."""
    config, ratios = GEOMETRIES[name], []
    shape: Shape = (1, 48, 26, 26)
    for work in (
        moves.concat([shape, (1, 24, 26, 26)], config),
        moves.upsample(shape, (2, 2), config),
        moves.upsample((1, 256, 5, 5), (3, 2), config),
        moves.pad(shape, (1, 1, 1, 1), config),
        moves.strided_slice(shape, (0, 0, 0), (48, 26, 26), (1, 2, 2), config),
        moves.strided_slice(shape, (16, 3, 0), (48, 20, 26), (1, 1, 1), config),
        moves.channels_of(shape, list(range(47, -1, -1)), config),
    ):
        cycles = cycles_of(build(MOVE, work, config, {}))
        estimate = estimated(MOVE, work, config)
        assert abs(estimate - cycles) <= max(0.25 * cycles, 300 * len(work.boxes)), work.out_shape
        ratios.append(estimate / cycles)
    assert 0.92 <= np.median(ratios) <= 1.08, ratios


def indices_of(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    """The numbers of the elements of tensors one after the other."""
    ends = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
    return [np.arange(a, b).reshape(s) for a, b, s in zip(ends, ends[1:], shapes, strict=False)]


PIXELS = (0, 1, 4, 2, 5, 3)
GATHERED: dict[str, tuple[tuple[tuple[int, ...], ...], Callable[..., np.ndarray], int]] = {
    "pixel shuffle": (
        ((2, 64, 3, 4),),
        lambda x: x.reshape(2, 16, 2, 2, 3, 4).transpose(PIXELS).reshape(2, 16, 6, 8),
        4,
    ),
    "space to depth": (
        ((1, 32, 8, 6),),
        lambda x: x.reshape(1, 32, 4, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 128, 4, 3),
        4,
    ),
    "plane as a row": (((2, 40, 5, 6),), lambda x: x.reshape(2, 40, 1, 30), 1),
    "channels that are taken": (((2, 40, 5, 6),), lambda x: x[:, [3, 1, 17, 39, 0]], 1),
    "rows and columns": (((1, 32, 8, 5),), lambda x: x.transpose(0, 1, 3, 2), 1),
    "rolled columns": (((1, 40, 5, 6),), lambda x: np.roll(x, 2, 3), 2),
    "backwards": (((2, 20, 5, 6),), lambda x: x[:, :, ::-1], 1),
    "one below the other": (
        ((2, 20, 5, 6), (2, 20, 3, 6)),
        lambda x, y: np.concatenate([x, y], 2),
        4,
    ),
    "channels last": (((1, 16, 4, 16),), lambda x: x.transpose(0, 3, 1, 2), 16),
}


@pytest.mark.parametrize("name", ["1x16", "2x16"])
@pytest.mark.parametrize("case", GATHERED)
def test_any_copy_of_elements(case: str, name: str) -> None:
    shapes, function, most = GATHERED[case]
    config, data = GEOMETRIES[name], tensors(*shapes)
    work = gathered_by(shapes, function(*indices_of(*shapes)), config)
    assert len(work.boxes) <= most
    check(work, config, data, function(*data), llvm=case == "one below the other")


@pytest.mark.parametrize("name", ["1x16", "2x16"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 1, 2, 1), (2, 20, 3, 2)])
def test_zeros_around_any_number_of_elements(shape: tuple[int, ...], name: str) -> None:
    config, (data,), (indices,) = GEOMETRIES[name], tensors(shape), indices_of(shape)
    widths = ((0, 0), (1, 2), (0, 0), (2, 1))
    work = gathered_by([shape], np.pad(indices, widths, constant_values=ZERO), config)
    check(work, config, [data], np.pad(data, widths))


def test_a_view_of_the_plane_copies_nothing() -> None:
    shape = (1, 40, 5, 6)
    work = gathered_by([shape], indices_of(shape)[0].reshape(1, 40, 1, 30), SIM)
    assert MOVE.in_place_offsets(work, SIM) == [0]
    turned = gathered_by([shape], indices_of(shape)[0].transpose(0, 1, 3, 2), SIM)
    assert MOVE.in_place_offsets(turned, SIM) == []


def test_copies_that_differ_in_one_element_are_told_apart() -> None:
    shape = (1, 32, 3, 2)
    straight = indices_of(shape)[0]
    swapped = straight.copy()
    swapped[0, [0, 1], 2, 1] = swapped[0, [1, 0], 2, 1]
    first, other = (gathered_by([shape], indices, SIM) for indices in (straight, swapped))
    assert len(first.boxes) == 1 and len(other.boxes) > 1
    assert gathered_by([shape], np.asfortranarray(straight.astype(np.int32)), SIM) is first
    assert gathered_by([shape], swapped[..., ::-1][..., ::-1], SIM) is other
    assert gathered_by([(1, 32, 2, 3)], straight, SIM) is not first


def test_vectors_that_are_copied_alike() -> None:
    rows = np.array([[3, 1], [0, 2], [3, 1], [0, 1], [0, 2]])
    assert [found.tolist() for found in alike(rows)] == [[0, 2], [1, 4], [3]]


def test_what_is_not_gathered() -> None:
    images = indices_of((4, 16, 2, 2))[0][::-1]
    assert len(gathered_by([(4, 16, 2, 2)], images, SIM).boxes) == 1
    text = (
        r"a copy moves elements between images: 4 images become 4; on a machine with BATCH 2 "
        r"images keep their lanes; move the batch axis in the model's input"
    )
    with pytest.raises(VTAError, match=text):
        gathered_by([(4, 16, 2, 2)], images, GEOMETRIES["2x16"])
    drawn = np.random.default_rng(0).permutation(math.prod((1, 16, 16, 16)))
    text = (
        r"a copy takes 256 boxes of vectors; at most 48 are taken; keep channels together in "
        r"whole blocks"
    )
    with pytest.raises(VTAError, match=text):
        gathered_by([(1, 16, 16, 16)], drawn.reshape(1, 16, 16, 16), SIM)
