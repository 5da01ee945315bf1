"""Max pooling on the ALU, separable: along one axis for all lines that matter, then the other.

Input is widened by the GEMM core (one identity weight), which also sorts it: positions that one
tap sees, a phase of the stride, become a plane of their own, so that every step runs over dense
vectors.  The first tap of an axis, its home, is widened right into the destination; the others are
maxima in place:

    for phases of the second axis:
        line = x at the home tap;  for other taps: line = max(line, x at the tap)
    line of the home tap = max(line of the home tap, lines of other taps);  store it

Where windows overlap so much that other taps see the home's phase too, the second axis starts from
a copy.  Where taps are split into steps, it starts from the least value.  Zero padding may win
against negative data: then taps outside the input are left out, and a home outside becomes -128.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.pooling.tile_space import MaxPool
from vta_byoc.strategies.te.tir_builder import Expr, Load, NestTensor
from vta_byoc.strategies.te.window import SlidingNests
from vta_byoc.workload.memory import ACC, WGT
from vta_byoc.workload.workloads import PoolWorkload

LOW = -128
Where = Callable[..., list[Expr]]


def scheduled_max(work: PoolWorkload, config: VTAConfig, choice: Choice) -> tirx.PrimFunc:
    """The nests for tiles of ``choice``."""
    return _MaxNests(work, config, choice).func()


class _MaxNests(SlidingNests):
    def __init__(self, work: PoolWorkload, config: VTAConfig, choice: Choice):
        taps = (choice.tile["kh"], choice.tile["kw"])
        self.pool = pool = MaxPool.of(work, config, choice.variant, taps)
        super().__init__(work.epilogue, pool.sliding, choice, taps, config)
        self.first, self.second = pool.taps[pool.first], pool.taps[pool.second]
        nests = self.nests
        identity = nests.weights("identity", 1)
        self.declare_rest()
        self.weight = nests.sram(WGT, "weight", (1,))
        self.lines = {
            phase: self._sram(f"lines{phase}", 0, high - low)
            for phase, (low, high) in self.second.phases(self.second.every).items()
        }
        most = max(high - low for low, high in self.second.phases(self.second.every).values())
        self.others = {
            phase: self._sram(f"others{phase}", high - low, most)
            for phase, (low, high) in self.first.phases(self.first.others).items()
        }
        home = self.lines[self.second.phase(self.second.home)]
        self.result = home if pool.in_place else nests.sram(ACC, "result", self.extents)
        nests.load("load_identity", (1,), lambda i: (self.weight[i], identity[i]))
        for tensor in (*self.lines.values(), *self.others.values()):
            if tensor is not self.result:
                nests.keep(tensor)

    def _sram(self, name: str, first: int, second: int) -> NestTensor:
        return self.nests.sram(ACC, name, self._shape(first, second))

    def _shape(self, first: int, second: int) -> tuple[int, int, int]:
        """Extents of a tile that is longer by this much along each axis."""
        more = {self.pool.first: first, self.pool.second: second}
        c, h, w = self.extents
        return c, h + more["h"], w + more["w"]

    def func(self) -> tirx.PrimFunc:
        self.tiled(self._tile)
        return self.finished()

    def _tile(self) -> None:
        nests, sliding = self.nests, self.sliding
        if self.pool.split:
            nests.reset("start", self.extents, lambda *i: self.result[i], self.where)
            if self.pool.negative:
                nests.alu("lowest", self.extents, _clamped(self.result), self.where)
        with (
            nests.loop("kho", sliding.rows.taps // self.pool.taps["h"].count) as row,
            nests.loop("kwo", sliding.cols.taps // self.pool.taps["w"].count) as col,
        ):
            self.input.step = (row, col)
            self.input.load()
            for phase, offsets in self.second.phases(self.second.every).items():
                self._line(phase, offsets)
            self._join()
        self.store(lambda *i: self.result[i])

    # ---------------------------------------------------------------- the first axis
    def _line(self, phase: int, offsets: tuple[int, int]) -> None:
        """The maxima along the first axis of the lines of one phase of the second."""
        lines, home = self.lines[phase], self.first.home
        name, spread = f"line{phase}", offsets[1] - offsets[0]
        at = (self.first.phase(home), self.first.offset(home)), (phase, offsets[0])
        self._widen(name, lines, at, (0, spread))
        if self.pool.signed:
            inside = self._line_where(spread)
            self._lowest_outside(name, lines, self.pool.first, spread, inside)
        for other, (low, high) in self.first.phases(self.first.others).items():
            tensor = self.others[other]
            at = (other, low), (phase, offsets[0])
            self._widen(f"{name}_{other}", tensor, at, (high - low, spread))
            for tap in self.first.others:
                if self.first.phase(tap) == other:
                    shift = self._moved(self.pool.first, self.first.offset(tap) - low)
                    text = f"{name}_tap{tap}"
                    self._maximum(text, lines, tensor, shift, self.pool.first, tap, spread)

    def _widen(
        self,
        name: str,
        tensor: NestTensor,
        at: tuple[tuple[int, int], tuple[int, int]],
        more: tuple[int, int],
    ) -> None:
        """Positions of a (phase, first offset) along each axis, into ``tensor``."""
        steps = {self.pool.first: self.first.window.step, self.pool.second: self.second.window.step}
        origin = {
            axis: phase + offset * steps[axis]
            for axis, (phase, offset) in zip((self.pool.first, self.pool.second), at, strict=True)
        }

        def where(c: Expr, h: Expr, w: Expr) -> list[Expr]:
            spread = {self.pool.first: more[0], self.pool.second: more[1]}
            return self.grid.inside({"c": c, "h": h - spread["h"], "w": w - spread["w"]})

        def product(c: Expr, h: Expr, w: Expr) -> tuple[Load, Load, Load]:
            y, x = origin["h"] + h * steps["h"], origin["w"] + w * steps["w"]
            return tensor[c, h, w], self.input[c, y, x], self.weight[0]

        extents = self._shape(*more)
        self.nests.reset(f"{name}_clear", extents, lambda *i: tensor[i], where)
        self.nests.gemm(f"{name}_widen", extents, product, where)

    def _lowest_outside(
        self, name: str, tensor: NestTensor, axis: str, spread: int, inside: Where
    ) -> None:
        """-128 where the home along ``axis`` lies outside the input."""
        taps = self.pool.taps[axis]
        for side, there in zip(("before", "behind"), taps.pads(taps.home), strict=True):

            def where(c: Expr, h: Expr, w: Expr, side: str = side) -> list[Expr]:
                position = self._position(axis, {"h": h, "w": w}[axis], taps.home)
                outside = position < 0 if side == "before" else position >= taps.window.size
                return [outside, *inside(c, h, w)]

            if there:
                lowest = _clamped(tensor)
                self.nests.alu(f"{name}_{side}", self._shape(0, spread), lowest, where)

    def _line_where(self, spread: int) -> Where:
        second = self.pool.second

        def where(c: Expr, h: Expr, w: Expr) -> list[Expr]:
            index = {"c": c, "h": h, "w": w}
            index[second] = index[second] - spread
            return self.grid.inside(index)

        return where

    def _position(self, axis: str, out: Expr, tap: int) -> Expr:
        window = self.pool.taps[axis].window
        return self.input.position("hw".index(axis), out * window.step + tap * window.dilation)

    @staticmethod
    def _moved(axis: str, by: int) -> tuple[int, int]:
        return (by, 0) if axis == "h" else (0, by)

    def _maximum(
        self,
        name: str,
        dst: NestTensor,
        src: NestTensor,
        shift: tuple[int, int],
        axis: str,
        tap: int,
        spread: int,
    ) -> None:
        """``dst = max(dst, src)`` for the outputs whose ``tap`` along ``axis`` is inside."""
        window, pads = self.pool.taps[axis].window, self.pool.taps[axis].pads(tap)

        def where(c: Expr, h: Expr, w: Expr) -> list[Expr]:
            conditions = self._line_where(spread)(c, h, w)
            position = self._position(axis, {"h": h, "w": w}[axis], tap)
            if self.pool.signed and pads[0]:
                conditions.append(position >= 0)
            if self.pool.signed and pads[1]:
                conditions.append(position < window.size)
            return conditions

        def larger(c: Expr, h: Expr, w: Expr) -> tuple[Load, Expr]:
            return dst[c, h, w], tirx.Max(dst[c, h, w], src[c, h + shift[0], w + shift[1]])

        self.nests.alu(name, self._shape(0, spread), larger, where)

    # ---------------------------------------------------------------- the second axis
    def _join(self) -> None:
        """The maxima along the second axis."""
        pool, second = self.pool, self.second
        offsets = second.phases(second.every)
        home = second.phase(second.home)
        taps = second.every if pool.split else second.others

        def source(tap: int) -> tuple[int, int]:
            return self._moved(pool.second, second.offset(tap) - offsets[second.phase(tap)][0])

        if not pool.in_place and not pool.split:
            shift, lines = source(second.home), self.lines[home]
            self.nests.alu(
                "copy",
                self.extents,
                lambda c, h, w: (self.result[c, h, w], lines[c, h + shift[0], w + shift[1]]),
                self.where,
            )
        if pool.signed and not pool.split:
            self._lowest_outside("join", self.result, pool.second, 0, self.where)
        for tap in taps:
            lines = self.lines[second.phase(tap)]
            self._maximum(f"join_tap{tap}", self.result, lines, source(tap), pool.second, tap, 0)


def _clamped(tensor: NestTensor) -> Callable[..., tuple[Load, Expr]]:
    """``tensor`` becomes -128: no value is less."""
    return lambda *i: (tensor[i], tirx.Min(tensor[i], tirx.const(LOW, "int32")))
