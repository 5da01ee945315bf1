"""Schedules as a user writes them, right or with one thing wrong, for the tests of own schedules.

All are of one small layer: data (1, I/16, 1, 16) times weight (O/16, I/16, 16, 16), shifted right
by 8 and clipped, as int8.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, te, tirx

import vta_byoc.schedule as vs

K = 16
CHAIN = ("shifted", "floored", "clip")
Map = Callable[[Any], Any]


@dataclass(frozen=True)
class Layer:
    """What is computed; every field is one thing that a user may write otherwise."""

    inputs: int = 4
    outputs: int = 4
    product: Callable[[Any, Any, Sequence[Any]], Any] | None = None
    shift: Map = lambda v: v >> tirx.const(8, "int32")
    floor: Map = lambda v: tirx.Max(v, -128)
    clip: Map = lambda v: tirx.Min(v, 127)
    dtype: str = "int8"
    operand: str = "int8"

    def definition(self) -> tirx.PrimFunc:
        """The function before it is scheduled; parameters data, weight, out."""
        data = te.placeholder((1, self.inputs, 1, K), self.operand, name="data")
        weight = te.placeholder((self.outputs, self.inputs, K, K), "int8", name="weight")
        rc, rk = te.reduce_axis((0, self.inputs), "rc"), te.reduce_axis((0, K), "rk")

        def product(n: Any, o: Any, b: Any, k: Any) -> Any:
            if self.product is not None:
                return te.sum(self.product(data, weight, (n, o, b, k, rc, rk)), axis=[rc, rk])
            left, right = data[n, rc, b, rk], weight[o, rc, k, rk]
            return te.sum(left.astype("int32") * right.astype("int32"), axis=[rc, rk])

        value = te.compute((1, self.outputs, 1, K), product, name="acc")
        for name, function in zip(CHAIN, (self.shift, self.floor, self.clip), strict=True):
            value = self._map(name, function, value)
        out = self._map("out", lambda v: v.astype(self.dtype), value)
        return te.create_prim_func([data, weight, out])

    @staticmethod
    def _map(name: str, function: Map, value: te.Tensor) -> te.Tensor:
        return te.compute(value.shape, lambda *i: function(value(*i)), name=name)


@dataclass
class Recipe:
    """A right schedule in steps; a test leaves one out or does another in its place."""

    layer: Layer = dataclasses.field(default_factory=Layer)
    tile: int = 2

    def __post_init__(self) -> None:
        self.definition = self.layer.definition()
        self.sch = s_tir.Schedule(self.definition)
        self.load = self.fetch = "none"

    def stage(self) -> Recipe:
        """Operands and accumulators into SRAM."""
        self.cache()
        self.sch.set_scope("acc", 0, vs.ACC)
        return self

    def cache(self) -> None:
        """The operands into SRAM."""
        for position, scope in ((0, vs.INP), (1, vs.WGT)):
            self.sch.cache_read("acc", position, scope)
        self.load, self.fetch = "data_local.inp_buffer", "weight_local.wgt_buffer"

    def inline(self, names: Sequence[str] = CHAIN) -> Recipe:
        """The chain behind the sum into the store."""
        for name in names:
            self.sch.compute_inline(name)
        return self

    def tiles(
        self, inside: Callable[..., Sequence[Any]] | None = None, bind: Sequence[str] = ()
    ) -> Recipe:
        """Tiles of outputs and inputs.

        ``inside`` gives the order of the sum's loops; the loops over tiles of outputs and over
        the tile are bound to the threads of ``bind``.
        """
        sch = self.sch
        n, o, b, k = sch.get_loops("out")
        outer, inner = sch.split(o, [None, self.tile])
        sch.reorder(outer, n, inner, b, k)
        for loop, thread in zip((outer, n), bind, strict=False):
            sch.bind(loop, thread)
        sch.compute_at("acc", outer if len(bind) < 2 else n, preserve_unit_loops=True)
        an, ao, ab, ak, rc, rk = sch.get_loops("acc")[-6:]
        part, rest = sch.split(rc, [None, self.tile])
        order = inside or (lambda part, rest, n, o, b, k, rk: (part, rest, n, o, b, k, rk))
        sch.reorder(*order(part, rest, an, ao, ab, ak, rk))
        for block in (self.load, self.fetch):
            sch.compute_at(block, part)
        sch.decompose_reduction("acc", part)
        return self

    def state(self, *leave_out: str) -> Recipe:
        """What each nest is, but for the blocks of ``leave_out``."""
        stated = [(vs.dma_copy, (self.load, self.fetch, "out")), (vs.alu, ("out",))]
        stated.append((vs.gemm, ("acc_init", "acc_update")))
        for function, names in stated:
            for name in names:
                if name not in leave_out:
                    function(self.sch, name)
        return self


def right(layer: Layer | None = None) -> Recipe:
    """The whole recipe."""
    return Recipe(layer or Layer()).stage().inline().tiles().state()
