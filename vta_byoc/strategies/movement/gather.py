"""Any copy of elements as boxes: which element of the operands each of the result is.

Vectors of the result whose lanes come from as many vectors of the operands, lane by lane alike, are
copied alike. Among those, vectors whose distances repeat are the axes of a box.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.workload.copy_region import CopyRegion, Source
from vta_byoc.workload.packing import blocks, packed_shape
from vta_byoc.workload.workloads import MoveWorkload, Shape

MOST_BOXES = 48
"""Kernels of one copy; each has its loads, its weights and its search for a tile."""
ZERO = -2
"""Stands in place of an element for a zero."""
KEPT, KEPT_ELEMENTS = 16, 1 << 18
"""Copies whose boxes are kept, a block of a transformer has some eight; elements of the largest."""


def gathered_by(in_shapes: Sequence[Shape], indices: np.ndarray, config: VTAConfig) -> MoveWorkload:
    """The copy whose result (N, C, H, W) holds at each place element ``indices`` of the operands.

    Elements are numbered as the operands (N, C, H, W) have them in row-major order, one operand
    after the other; ZERO is none of them.

    Raises:
        VTAError: the images of a batch, which share vectors, change places; or the copy is no
            small number of boxes.
    """
    known = _known if indices.size <= KEPT_ELEMENTS else _gathered
    return known(tuple(in_shapes), _Indices.of(indices), config)


@dataclass(frozen=True)
class _Indices:
    """Elements by place; equal ones are known by their digest."""

    shape: Shape
    digest: bytes
    values: np.ndarray = field(compare=False, repr=False)

    @classmethod
    def of(cls, values: np.ndarray) -> _Indices:
        wide = np.ascontiguousarray(values, np.int64)
        return cls(wide.shape, hashlib.sha256(wide.tobytes()).digest(), wide)


def _gathered(in_shapes: tuple[Shape, ...], given: _Indices, config: VTAConfig) -> MoveWorkload:
    """As :func:`gathered_by`."""
    indices = given.values
    n, c, h, w = indices.shape
    images = in_shapes[0][0]
    shapes = list(in_shapes)
    whole = n if config.batch == 1 else 1
    if config.batch > 1:
        if any(shape[0] != n for shape in in_shapes) or not _by_image(in_shapes, indices):
            raise VTAError(
                Refusal(
                    "a copy moves elements between images:",
                    f"{images} images become {n}",
                    f"on a machine with BATCH {config.batch} images keep their lanes",
                    "move the batch axis in the model's input",
                )
            )
        # what the first image is copied from, among operands of one image
        indices, shapes = _image(in_shapes, indices, 0), [(1, *s[1:]) for s in in_shapes]
    places, there = np.full(indices.shape, ZERO), indices != ZERO
    places[there] = _places(shapes, config)[indices[there]]
    lanes = np.full((whole, blocks(c, config.block) * config.block, h, w), -1, np.int64)
    lanes[:, :c] = places.reshape(whole, c, h, w)
    rows = lanes.reshape(whole, -1, config.block, h, w).transpose(0, 1, 3, 4, 2)
    found = list(_boxes(rows.reshape(-1, config.block), shapes, config))
    if len(found) > MOST_BOXES:
        raise VTAError(
            Refusal(
                "a copy takes",
                f"{len(found)} boxes of vectors",
                f"at most {MOST_BOXES} are taken",
                "keep channels together in whole blocks",
            )
        )
    if config.batch > 1:
        found = [
            _for_images(box, blocks(n, config.batch), in_shapes, (n, c, h, w), config)
            for box in found
        ]
    return MoveWorkload(in_shapes, (n, c, h, w), tuple(found))


_known = functools.lru_cache(maxsize=KEPT)(_gathered)
"""The layers of a network copy alike again and again."""


def _by_image(in_shapes: Sequence[Shape], indices: np.ndarray) -> bool:
    """Whether each image of the result has the elements of that image alone, alike."""
    first = _image(in_shapes, indices, 0)
    return bool((first != -1).all()) and all(
        (_image(in_shapes, indices, number) == first).all() for number in range(1, len(indices))
    )


def _image(in_shapes: Sequence[Shape], indices: np.ndarray, image: int) -> np.ndarray:
    """Elements of image ``image`` among those of one image of all operands.

    -1 stands for those of another image.
    """
    found = np.full(indices.shape[1:], -1, np.int64)
    before = ahead = 0
    for shape in in_shapes:
        size = math.prod(shape[1:])
        local = indices[image] - before - image * size
        own = (local >= 0) & (local < size)
        found[own] = local[own] + ahead
        before, ahead = before + shape[0] * size, ahead + size
    found[indices[image] == ZERO] = ZERO
    return found


def _places(shapes: Sequence[Shape], config: VTAConfig) -> np.ndarray:
    """For each element of the operands, in order, its place among their packed lanes."""
    found, start, k = [], 0, config.block
    for n, c, h, w in shapes:
        nb, cb = n, blocks(c, k)
        image, channel, row, col = np.ogrid[:n, :c, :h, :w]
        vector = ((image * cb + channel // k) * h + row) * w + col
        found.append((start + vector * k + channel % k).ravel())
        start += nb * cb * h * w * k
    return np.concatenate(found)


def _boxes(rows: np.ndarray, shapes: Sequence[Shape], config: VTAConfig) -> Iterator[CopyRegion]:
    """Boxes of the vectors of the result, whose lanes have the places ``rows`` (vectors, k)."""
    k = config.block
    rows = _filled(rows, k)
    vectors, lane = np.where(rows < 0, -1, rows // k), np.where(rows < 0, -1, rows % k)
    # each lane's source by its rank among those of the vector, in order of first use
    rank = np.full_like(vectors, -1)
    heads = np.full_like(vectors, -1)
    used = np.zeros(len(rows), np.int64)
    for at in range(k):
        column = vectors[:, at]
        seen = (heads == column[:, None]) & (column >= 0)[:, None]
        known = seen.any(axis=1)
        new = ~known & (column >= 0)
        heads[new, used[new]] = column[new]
        rank[known, at] = seen.argmax(axis=1)[known]
        rank[new, at] = used[new]
        used[new] += 1
    starts = np.cumsum([0, *(_vectors(shape, config) for shape in shapes)])
    operand = np.where(heads < 0, -1, np.searchsorted(starts, heads, side="right") - 1)
    kinds = np.concatenate([rank, lane, operand], axis=1)
    for own in alike(kinds):
        row = own[0]
        count = int(used[row])
        points = np.concatenate([own[:, None], heads[own, :count]], axis=1)
        straight = tuple(range(k))
        made = [tuple(np.where(rank[row] == i, lane[row], -1).tolist()) for i in range(count)]
        moved = [() if each == straight else each for each in made]
        operands = [int(operand[row, i]) for i in range(count)]
        for run in _runs(points):
            sources = tuple(
                Source(
                    operands[i],
                    int(run.start[i + 1] - starts[operands[i]]),
                    tuple(int(step[i + 1]) for step in run.steps),
                    (0,) * len(run.counts),
                    run.counts,
                    moved[i],
                )
                for i in range(count)
            )
            steps = tuple(int(step[0]) for step in run.steps)
            yield CopyRegion(run.counts, int(run.start[0]), steps, sources)


def alike(rows: np.ndarray) -> list[np.ndarray]:
    """The numbers of equal rows, ascending; those rows come first whose first one does."""
    numbers: dict[bytes, int] = {}
    size, text = rows.shape[1] * rows.itemsize, rows.tobytes()
    texts = (text[at : at + size] for at in range(0, len(text), size))
    kind = np.array([numbers.setdefault(row, len(numbers)) for row in texts])
    return [np.flatnonzero(kind == number) for number in range(len(numbers))]


def _filled(rows: np.ndarray, k: int) -> np.ndarray:
    """``rows`` with lanes that do not exist copied too, where that keeps a vector as it is."""
    straight = rows[:, :1] // k * k + np.arange(k)
    alike = ((rows == straight) | (rows == -1)).all(axis=1) & (rows[:, 0] >= 0)
    return np.where(alike[:, None], straight, rows)


def _vectors(shape: Shape, config: VTAConfig) -> int:
    return math.prod(packed_shape(shape, config)[:4])


@dataclass(frozen=True)
class _Run:
    """Points ``start + sum(i * steps)`` for all indices i below ``counts``, outermost first."""

    start: np.ndarray
    counts: tuple[int, ...]
    steps: tuple[np.ndarray, ...]

    @property
    def kind(self) -> tuple[object, ...]:
        """What two runs have in common that differ by their start alone."""
        return self.counts, *(tuple(step.tolist()) for step in self.steps)


def _runs(points: np.ndarray) -> list[_Run]:
    """``points`` (count, coordinates), in order of the first, as few runs of constant steps."""
    bends = (np.diff(points, 2, axis=0) != 0).any(axis=1)
    runs, at = [], 0
    edges = (np.flatnonzero(bends) + 1).tolist()
    for edge in [*edges, len(points) - 1]:
        if edge < at or (edge == at and edge + 1 < len(points)):
            continue  # where a run begins its distance may change
        part = points[at : edge + 1]
        step = part[1] - part[0] if len(part) > 1 else np.zeros_like(part[0])
        runs.append(_Run(part[0], (len(part),), (step,)))
        at = edge + 1
    while len(joined := _joined(runs)) < len(runs):
        runs = joined
    return runs


def _joined(runs: Sequence[_Run]) -> list[_Run]:
    """Runs that are alike, at equal distances, as one run with another axis."""
    kinds: dict[tuple[object, ...], list[_Run]] = {}
    for run in runs:
        kinds.setdefault(run.kind, []).append(run)
    return [joined for alike in kinds.values() for joined in _along(alike)]


def _along(runs: Sequence[_Run]) -> Iterator[_Run]:
    """Runs of one kind, those at equal distances as one."""
    at = 0
    while at < len(runs):
        first, count, step = runs[at], 1, np.zeros_like(runs[at].start)
        while at + count < len(runs):
            distance = runs[at + count].start - runs[at + count - 1].start
            if count > 1 and (distance != step).any():
                break
            step, count = distance, count + 1
        whole = _Run(first.start, (count, *first.counts), (step, *first.steps))
        yield whole if count > 1 else first
        at += count


def _for_images(
    box: CopyRegion, images: int, in_shapes: Sequence[Shape], out: Shape, config: VTAConfig
) -> CopyRegion:
    """``box`` of one image for ``images`` vectors of images."""

    def one(shape: Shape) -> int:
        return _vectors((1, *shape[1:]), config)

    sources = tuple(
        Source(
            s.operand,
            s.start,
            (one(in_shapes[s.operand]), *s.steps),
            (0, *s.low),
            (images, *s.high),
            s.lanes,
        )
        for s in box.sources
    )
    return CopyRegion((images, *box.size), box.start, (one(out), *box.steps), sources)
