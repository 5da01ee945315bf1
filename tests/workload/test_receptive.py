"""Which outputs read the input through which taps, against every pair of output and tap."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.borders import apart, border_boxes, boxes, middle, pack_borders, runs
from vta_byoc.workload.receptive import outputs_inside, products_inside, without_blind_taps
from vta_byoc.workload.workloads import Conv2dWorkload

AXES = [  # (size, kernel, stride, dilation, padding before, behind)
    axis
    for axis in itertools.product((1, 2, 5), (1, 2, 3), (1, 2), (1, 2, 5), (-1, 0, 1, 2, 5), (0, 3))
    if axis[0] + axis[4] + axis[5] > (axis[1] - 1) * axis[3] and axis[0] + axis[4] > 0
]
"""What may stand along an axis of a convolution: there is an output, padding may be negative."""


def convolutions() -> Iterator[Conv2dWorkload]:
    """Convolutions whose rows and columns differ: each axis meets some others."""
    others = np.random.default_rng(0).permutation(AXES).tolist()
    for rows, columns in zip(AXES, others, strict=True):
        size, kernel, stride, dilation, before, behind = zip(rows, columns, strict=True)
        yield Conv2dWorkload(1, 4, 4, *size, kernel, stride, before + behind, dilation)


WORKS = list(convolutions())


def read(work: Conv2dWorkload, axis: int, taps: slice = slice(None)) -> list[dict[int, int]]:
    """For each row (axis 0) or column of the result the positions of the input that it reads, by
    number among those of ``taps``."""
    size = (work.height, work.width)[axis]
    stride, dilation, before = work.strides[axis], work.dilation[axis], work.padding[axis]
    places = [
        [out * stride + tap * dilation - before for tap in range(work.kernel[axis])][taps]
        for out in range(work.out_shape[2 + axis])
    ]
    return [{tap: at for tap, at in enumerate(row) if 0 <= at < size} for row in places]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_outputs_and_products_inside(step: int) -> None:
    for count, size, at in itertools.product(range(1, 6), range(1, 6), range(-7, 8)):
        inside = [out for out in range(count) if 0 <= out * step + at < size]
        low, high = outputs_inside(count, size, step, at)
        assert list(range(low, high)) == inside and (inside or (low, high) == (0, 0))
    for count, size, taps, dilation, before in itertools.product(
        range(1, 4), range(1, 4), range(1, 4), (1, 2), (0, 1, 3)
    ):
        pairs = itertools.product(range(count), range(taps))
        inside = [p for p in pairs if 0 <= p[0] * step + p[1] * dilation - before < size]
        assert products_inside(count, size, taps, step, dilation, before) == len(inside)
        assert products_inside(count, size, taps) == products_inside(count, size, taps, 1, 1, 0)


def test_taps_that_are_left_read_what_they_did_and_the_others_nothing() -> None:
    """Along both axes; the first and the last tap that are left read something, or could not be
    left out: there is one tap, or less padding than a dilation."""
    for work in WORKS:
        less, kept = without_blind_taps(work)
        assert less.out_shape == work.out_shape and min(less.kernel) >= 1
        assert (less is work) == (less.kernel == work.kernel)
        for axis, taps in enumerate(kept):
            left = range(work.kernel[axis])[taps]
            assert len(left) == less.kernel[axis]
            assert read(less, axis) == read(work, axis, taps)
            assert sum(map(len, read(less, axis))) == sum(map(len, read(work, axis)))
            seen = {tap for row in read(less, axis) for tap in row}
            for tap, pad in ((0, less.padding[axis]), (len(left) - 1, less.padding[axis + 2])):
                assert not seen or tap in seen or pad < less.dilation[axis]


def test_runs_are_of_positions_that_read_the_same_taps() -> None:
    """Neighbouring runs do not; the boxes are all runs of rows with all of columns."""
    for work in WORKS:
        for axis in (0, 1):
            taps = [tuple(row) for row in read(work, axis)]
            groups = [(tap, len(list(of))) for tap, of in itertools.groupby(taps)]
            ends = [0, *itertools.accumulate(length for _, length in groups)]
            assert runs(work, axis) == list(itertools.pairwise(ends))
        rows, columns = (runs(work, axis) for axis in (0, 1))
        assert boxes(work) == [(r, c) for r in rows for c in columns]
        longest = [max(b - a for a, b in each) for each in (rows, columns)]
        inner = middle(work)
        assert [b - a for a, b in inner] == longest and inner in boxes(work)
        assert sorted([inner, *border_boxes(work)]) == sorted(boxes(work))


def test_values_that_follow_the_taps_are_those_of_the_middle_and_what_borders_add() -> None:
    rng, config = np.random.default_rng(1), VTAConfig.preset("tophub_4x8")
    for work in WORKS[::7]:
        shape = (3, *work.out_shape[2:])
        values, places = np.zeros(shape, np.int64), [middle(work), *border_boxes(work)]
        for (top, bottom), (left, right) in places:
            values[:, top:bottom, left:right] = rng.integers(-99, 99, (3, 1, 1))
        found = apart(work, values)
        assert (found is None) == (len(places) == 1)
        if found is None:
            continue
        inner, added = found
        assert (inner.dtype, added.dtype) == (np.int32, np.int32)
        again = np.zeros(shape, np.int64) + inner[:, None, None]
        for more, ((top, bottom), (left, right)) in zip(added, places[1:], strict=True):
            again[:, top:bottom, left:right] += more[:, None, None]
        np.testing.assert_array_equal(again, values)
        packed = pack_borders(added, config)
        assert packed.shape == (len(added), 1, config.batch, config.block)
        assert (packed[:, 0, :, :3] == added[:, None]).all() and not packed[..., 3:].any()


def test_values_of_a_box_that_differ_follow_no_taps() -> None:
    work = Conv2dWorkload(1, 4, 4, 6, 6, (3, 3), padding=(1, 1, 1, 1))
    values = np.zeros((2, 6, 6), np.int64)
    assert apart(work, values) is not None
    values[1, 3, 2] = 1
    assert apart(work, values) is None
