"""Tiles of an attention turned: rows become lanes."""

from __future__ import annotations

from tvm import tirx

from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.attention.nests import Kernel
from vta_byoc.strategies.te.tir_builder import Expr
from vta_byoc.workload.attention import AttentionWorkload
from vta_byoc.workload.memory import ACC, INP, WGT


def merge_nests(work: AttentionWorkload, config: VTAConfig, choice: Choice) -> tirx.PrimFunc:
    """The units, the result with queries in lanes; the result."""
    return _Merge(work, config, choice).func()


class _Merge(Kernel):
    def func(self) -> tirx.PrimFunc:
        nests, work, k = self.nests, self.work, self.k
        units = nests.param("units", (k + 1,))
        tiles = nests.weights("tiles", work.groups * self.queries * self.width)
        out = nests.param("out", (work.groups, self.width, self.queries * k))
        chunk = self.choice.tile["t"]
        unit = nests.sram(INP, "unit", (k,))
        tile = nests.sram(WGT, "tile", (chunk, self.width))
        acc = nests.sram(ACC, "turned", (self.width, chunk, k))
        nests.load("load_units", (k,), lambda i: (unit[i], units[i]))
        with (
            nests.loop("go", work.groups) as group,
            nests.loop("to", -(-self.queries // chunk)) as outer,
        ):
            each = (self.width, chunk, k)

            def at(t: Expr) -> Expr:
                return outer * chunk + t

            def inside(t: Expr) -> list[Expr]:
                return [at(t) < self.queries] if self.queries % chunk else []

            nests.load(
                "load",
                (chunk, self.width),
                lambda t, d: (tile[t, d], tiles[(group * self.queries + at(t)) * self.width + d]),
                lambda t, d: inside(t),
            )
            nests.reset("clear", each, lambda d, t, i: acc[d, t, i])
            nests.gemm(
                "turn",
                each,
                lambda d, t, i: (acc[d, t, i], unit[i], tile[t, d]),
                lambda d, t, i: inside(t),
            )
            nests.store(
                "store",
                each,
                lambda d, t, i: (out[group, d, at(t) * k + i], acc[d, t, i]),
                lambda d, t, i: inside(t),
            )
        return self.finish()
