"""The axes of an elementwise operator, and those along which each operand moves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from vta_byoc.cost.dma import CopyAxis, tile_copies, transfers
from vta_byoc.cost.search import Array, ceil_div, integer
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.fused.consumer import FusedConsumer, operand_kinds
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import FULL, MAP, ElementwiseWorkload, Step

Item = TypeVar("Item")
LOOPS = ("c", "p", "q", "n")
"""The loops over tiles, from the outermost."""


def tensors(work: ElementwiseWorkload) -> tuple[str, ...]:
    """Kinds of all tensor operands: those of the prologues, then those of the epilogue."""
    steps = [step for prologue in work.prologues for step in prologue.steps]
    return tuple(str(s.operand) for s in [*steps, *work.epilogue.steps] if s.is_tensor)


@dataclass(frozen=True)
class Shape:
    """The tensor as images, channel blocks and positions; one axis where operands do not care.

    ``q`` are columns where an operand is repeated along rows or along columns alone; ``p`` are rows
    then. It is 0, and no axis, elsewhere.
    """

    n: int
    c: int
    p: int
    q: int = 0

    @classmethod
    def of(
        cls, work: ElementwiseWorkload, config: VTAConfig, fused: Sequence[FusedConsumer] = ()
    ) -> Shape:
        """The fewest axes that let every tensor operand differ by those that it differs by."""
        n, c = blocks(work.batch, config.batch), blocks(work.channels, config.block)
        plane, kinds = work.height * work.width, set(tensors(work))
        for consumer in fused:
            kinds.update(operand_kinds(consumer))
        repeated = {work.repeated(i) for i in range(work.operands)} - {""}
        space = {"".join(axis for axis in each if axis in "hw") for each in repeated}
        if min(work.height, work.width) > 1 and space & {"h", "w"}:
            return cls(n, c, work.height, work.width)
        if not kinds and not repeated:
            return cls(1, 1, n * c * plane)
        if kinds <= {MAP} and all(not each.strip("hw") for each in repeated):
            return cls(1, n * c, plane)
        only_full = kinds <= {FULL} and repeated <= {"n"}
        return cls(n, 1, c * plane) if only_full else cls(n, c, plane)

    @property
    def sizes(self) -> dict[str, int]:
        """Extents by axis."""
        found = {"n": self.n, "c": self.c, "p": self.p}
        return {**found, "q": self.q} if self.q else found

    @property
    def space(self) -> tuple[str, ...]:
        """The axes without images."""
        return tuple(axis for axis in self.sizes if axis != "n")


@dataclass(frozen=True)
class Moved:
    """An int8 operand in a grid of tiles.

    Attributes:
        axes: those along which it moves, in the order of the grid.
        loop: the loop inside which its tile is loaded; "" before all of them.
        order: the loops over tiles, from the outermost.
        sizes: the extents of all axes.
        whole: it is not repeated.
    """

    axes: tuple[str, ...]
    loop: str
    order: tuple[str, ...]
    sizes: Mapping[str, int]
    whole: bool

    @classmethod
    def of(cls, work: ElementwiseWorkload, operand: int, shape: Shape) -> Moved:
        """Operand number ``operand`` of ``work``."""
        sizes, repeated = shape.sizes, work.repeated(operand)
        order = tuple(axis for axis in LOOPS if axis in sizes)
        if not repeated:
            return cls(tuple(sizes), order[-1], order, sizes, True)
        letters = {"n": "n", "c": "c", "p": "h" if shape.q else "hw", "q": "w"}
        axes = tuple(
            axis
            for axis, size in sizes.items()
            if size > 1 and not set(letters[axis]) & set(repeated)
        )
        loop = max(axes, key=order.index, default="")
        return cls(axes, loop, order, sizes, False)

    def with_steps(self, steps: Sequence[Step]) -> Moved:
        """Its accumulators, of which ``steps`` with operands by channel make one for each."""
        if self.whole or not any(step.is_tensor for step in steps):
            return self
        axes = tuple(axis for axis in self.sizes if axis in self.axes or axis == "c")
        return replace(self, axes=axes, loop=max(axes, key=self.order.index))

    def extents(self, of: Mapping[str, int]) -> list[int]:
        """What ``of`` says of its axes; a single 1 where it does not move."""
        return [of[axis] for axis in self.axes] or [1]

    def index(self, values: Mapping[str, Item]) -> tuple[Item | int, ...]:
        """Its index among those of all axes."""
        return tuple(values[axis] for axis in self.axes) or (0,)

    # ---------------------------------------------------------------- costs, by tile sizes
    def tile_size(self, tile: Mapping[str, Array]) -> Array:
        """Vectors of a tile."""
        size: Array = integer(1)
        for axis in self.axes:
            size = size * tile[axis]
        return size

    def _repeats(self, tile: Mapping[str, Array]) -> Array:
        """How often each vector is loaded, as loops around its own are over other axes."""
        around = self.order[: self.order.index(self.loop) + 1] if self.loop else ()
        found: Array = integer(1)
        for axis in around:
            if axis not in self.axes:
                found = found * ceil_div(self.sizes[axis], tile[axis])
        return found

    def fills(self, tile: Mapping[str, Array]) -> Array:
        """Tiles that are loaded."""
        found = self._repeats(tile)
        for axis in self.axes:
            found = found * ceil_div(self.sizes[axis], tile[axis])
        return found

    def vectors(self, tile: Mapping[str, Array]) -> Array:
        """Vectors of all tiles that are loaded."""
        return float(math.prod(self.extents(self.sizes))) * self._repeats(tile)

    def copies(self, tile: Mapping[str, Array]) -> Array:
        """DMA instructions that load them."""
        extents = self.extents(self.sizes)
        if self.whole:
            return tile_copies(extents, [tile[axis] for axis in self.axes])
        strides = [math.prod(extents[i + 1 :]) for i in range(len(extents))]
        rows = [CopyAxis(tile[a], step) for a, step in zip(self.axes, strides, strict=False)]
        return self.fills(tile) * (transfers(rows[::-1]) if rows else 1)
