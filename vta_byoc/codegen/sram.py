"""Where tiles live in SRAM: how large they are, and which slot an instance takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tvm import tirx
from tvm.s_tir import SBlockRealize

from vta_byoc.codegen.linear import CodegenError, VarTable
from vta_byoc.codegen.nest import extent_of
from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.memory import SRAM_SCOPES, WGT, depth_of, element_scalars

SLOTS_ATTR = "vta.slots"
DEFAULT_SLOTS = 2
SMALL_TILES = 32
"""Tiles of weights of which so many fit SRAM are small: their loads are short."""


class Tile:
    """One SRAM buffer and its current instance.

    ``base`` is the instance's first SRAM element, ``size`` its elements, ``generation`` counts the
    instances.
    """

    def __init__(self, config: VTAConfig, buffer: tirx.Var, shape: Sequence[int]):
        self.name = str(buffer.name)
        self.scope = str(buffer.scope())
        unit, scalars = element_scalars(config, self.scope), math.prod(shape)
        if scalars % unit:
            raise CodegenError(
                f"buffer {self.name} in {self.scope} has {scalars} scalars; an element has "
                f"{unit}; stage whole elements"
            )
        self.size = scalars // unit
        self.base = -1
        self.generation = 0
        self.slots: dict[int, int] = {}
        self.count = 0

    @property
    def instance(self) -> tuple[str, int, int]:
        """What tells this instance from every other one of the function."""
        return self.scope, self.base, self.generation


class SramMap:
    """Where each SRAM buffer's current instance lives.

    Each execution of an allocating block is a new instance; instance i takes slot i mod slots, a
    slot is carved out when it is first used.  A virtual thread owns the slot of its number.

    The largest tile of weights has as many slots as fit ``weight_room`` elements, if there are more
    than ``slots`` says: so much of it can be loaded ahead.
    """

    def __init__(
        self,
        config: VTAConfig,
        shapes: Mapping[tirx.Var, Sequence[int]],
        slots: Mapping[str, int],
        weight_room: int = 0,
    ):
        self._config = config
        self._shapes = shapes
        self._slots = slots
        self._ahead = self._loaded_ahead(weight_room)
        self._top = dict.fromkeys(SRAM_SCOPES, 0)
        self._tiles: dict[tirx.Var, Tile] = {}

    def __getitem__(self, buffer: tirx.Var) -> Tile:
        return self._tiles[buffer]

    def _loaded_ahead(self, room: int) -> dict[tirx.Var, int]:
        """The slots of the largest tile of weights; nothing where it is small."""
        weights = {
            buffer: Tile(self._config, buffer, shape).size
            for buffer, shape in self._shapes.items()
            if str(buffer.scope()) == WGT
        }
        largest = max(weights, key=weights.__getitem__, default=None)
        if not room or largest is None:
            return {}
        size, slots = weights[largest], self._slots.get(WGT, DEFAULT_SLOTS)
        if size * SMALL_TILES < depth_of(self._config, WGT):
            return {}
        return {largest: max(slots, (room - slots * (sum(weights.values()) - size)) // size)}

    def new_instance(self, buffer: tirx.Var, thread: int | None) -> None:
        """Give ``buffer`` its next instance, or that of virtual thread ``thread``."""
        tile = self._tiles.get(buffer)
        if tile is None:
            tile = self._tiles[buffer] = Tile(self._config, buffer, self._shapes[buffer])
        slots = self._ahead.get(buffer, self._slots.get(tile.scope, DEFAULT_SLOTS))
        self._select(tile, tile.count % slots if thread is None else thread)
        tile.count += 1
        tile.generation += 1

    def select_thread(self, thread: int, buffers: Sequence[tirx.Var]) -> None:
        """Make every buffer of ``buffers`` mean the instance of virtual thread ``thread``."""
        for buffer in buffers:
            self._select(self._tiles[buffer], thread)

    def _select(self, tile: Tile, slot: int) -> None:
        if slot not in tile.slots:
            at, depth = self._top[tile.scope], depth_of(self._config, tile.scope)
            if at + tile.size > depth:
                raise CodegenError(
                    f"{tile.scope} needs {at + tile.size} elements for {tile.name} (slot {slot}); "
                    f"this machine has {depth}; use smaller tiles or one slot ({SLOTS_ATTR})"
                )
            tile.slots[slot] = at
            self._top[tile.scope] = at + tile.size
        tile.base = tile.slots[slot]


def slots_of(func: tirx.PrimFunc) -> dict[str, int]:
    """Slots per SRAM scope that the schedule asked for (attribute SLOTS_ATTR)."""
    if SLOTS_ATTR not in func.attrs:
        return {}
    return {str(scope): int(count) for scope, count in func.attrs[SLOTS_ATTR].items()}


def tile_shapes(func: tirx.PrimFunc, table: VarTable) -> dict[tirx.Var, list[int]]:
    """Shape of every SRAM buffer, from the nests that fill it.

    Compaction sizes a padded stride-2 tile that does not divide its tensor for the whole tensor;
    the loops that write the tile say how large it really is.
    """
    finder = _TileFinder(table)
    finder.visit(func.body, [])
    return finder.shapes()


class _TileFinder:
    def __init__(self, table: VarTable):
        self._table = table
        self._declared: dict[tirx.Var, list[int]] = {}
        self._outer: dict[tirx.Var, set[int]] = {}
        self._written: dict[tirx.Var, list[int] | None] = {}

    def visit(self, stmt: tirx.Stmt, loops: list[tuple[int, int]]) -> None:
        if isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq[:]:
                self.visit(part, loops)
        elif isinstance(stmt, tirx.For):
            extent = extent_of(stmt)
            var = self._table.bind(stmt.loop_var, extent)
            self.visit(stmt.body, [*loops, (var, extent)])
        elif isinstance(stmt, SBlockRealize):
            for buffer in stmt.block.alloc_buffers:
                self._declared[buffer] = [int(s) for s in buffer.shape]
                self._outer[buffer] = {v for v, _ in loops}
            self.visit(stmt.block.body, loops)
        elif isinstance(stmt, tirx.BufferStore) and stmt.buffer in self._declared:
            self._store(stmt, loops)

    def _store(self, stmt: tirx.BufferStore, loops: list[tuple[int, int]]) -> None:
        buffer = stmt.buffer
        if buffer in self._written and self._written[buffer] is None:
            return
        shape = self._extents(stmt, dict(loops))
        before = self._written.get(buffer)
        if shape is None:
            self._written[buffer] = None
        else:
            self._written[buffer] = [max(a, b) for a, b in zip(shape, before or shape, strict=True)]

    def _extents(self, stmt: tirx.BufferStore, extents: dict[int, int]) -> list[int] | None:
        """Written extent of each dimension, or None where it is not that simple."""
        shape = []
        for index in stmt.indices[:]:
            try:
                form = self._table.linear(index)
            except CodegenError:
                return None
            outer = self._outer[stmt.buffer]
            if form.const or any(v in outer or c < 0 for v, c in form.terms):
                return None
            shape.append(1 + sum(c * (extents[v] - 1) for v, c in form.terms))
        return shape

    def shapes(self) -> dict[tirx.Var, list[int]]:
        result = {}
        for buffer, declared in self._declared.items():
            written = self._written.get(buffer)
            result[buffer] = [min(a, b) for a, b in zip(declared, written or declared, strict=True)]
        return result
