"""What attention computes, on packed tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx
from tvm.tirx import Expr, Var

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.attention import (
    LIFT,
    PRODUCT,
    RATE,
    RESULT,
    ROOM,
    SCORE,
    SHARE,
    TOP,
    TOTAL,
    VALUES,
    lifts,
    rate_steps,
    result_steps,
    room,
    score_steps,
    share_steps,
)
from vta_byoc.ir.programs import Instructions
from vta_byoc.strategies.te.definition import OPERATORS, packed_operands
from vta_byoc.workload.attention import AttentionWorkload

AXES = {SCORE: "gts", TOP: "gt", ROOM: "gt", SHARE: "gts", TOTAL: "gt", RATE: "gt"}
AXES |= {VALUES: "gd", LIFT: "gd", PRODUCT: "gdt"}
"""Of a value: groups, queries, keys and channels of values."""


def constant_tensors(work: AttentionWorkload) -> list[te.Tensor]:
    """Placeholders: the identity and ones as inputs, ones as a weight, what spreads, the mask."""
    k = work.block
    found = [
        te.placeholder((1, k + 1, 1, 1, 1, k), "int8", name="units"),
        te.placeholder((1, 1, 1, 1, k, k), "int8", name="ones"),
    ]
    if work.hiding:
        found.append(te.placeholder((1, 1, 1, 1, k, k), "int8", name="spread"))
    if work.masks:
        shape = (work.masks, work.query_blocks, work.keys, 1, k)
        found.append(te.placeholder(shape, "int32", name="mask"))
    return found


def attention_definition(work: AttentionWorkload, config: VTAConfig) -> tirx.PrimFunc:
    """The result of queries, keys, values and the constants."""
    return _Definition(work, config).func()


class _Definition:
    def __init__(self, work: AttentionWorkload, config: VTAConfig) -> None:
        self.work, self.config, self.k = work, config, config.block
        self.operands = packed_operands(work, config)
        self.constants = constant_tensors(work)
        self.sizes = {
            "g": work.groups,
            "t": work.query_blocks * self.k,
            "s": work.keys,
            "d": work.width,
        }
        self.values: dict[str, te.Tensor] = {}
        self.axes = dict(AXES)
        self.count = 0

    def func(self) -> tirx.PrimFunc:
        work, k, numbers = self.work, self.k, self.work.attention
        self.values[SCORE] = self._scores()
        self._steps(score_steps(numbers))
        self.values[TOP] = self._reduced(SCORE, "gt", "s", te.max, "top")
        self._steps(room(numbers.width))
        self._steps(share_steps(numbers))
        self.values[TOTAL] = self._reduced(SHARE, "gt", "s", te.sum, "total")
        self._steps(rate_steps(numbers))
        self._mixed()
        self._steps(lifts())
        self._steps(result_steps(numbers))
        result, each = self.values[RESULT], work.width // k

        def packed(_n: Var, c: Var, _h: Var, t: Var, _b: Var, lane: Var) -> Expr:
            return result[c // each, c % each * k + lane, t].astype("int8")

        shape = (1, work.groups * each, 1, self.sizes["t"], 1, k)
        out = te.compute(shape, packed, name="out")
        return te.create_prim_func([*self.operands, *self.constants, out])

    def _scores(self) -> te.Tensor:
        work, (query, key) = self.work, self.operands[:2]
        each = work.depth // self.k
        c, lane = te.reduce_axis((0, each), "rc"), te.reduce_axis((0, self.k), "rk")

        def product(g: Var, t: Var, s: Var) -> Expr:
            left = query[0, g * each + c, 0, t, 0, lane].astype("int32")
            return te.sum(left * key[0, g * each + c, 0, s, 0, lane].astype("int32"), [c, lane])

        scores = te.compute(self._shape("gts"), product, name="products")
        if work.hiding:
            scores = self._hidden(scores)
        if not work.masks:
            return scores
        mask, k = self.constants[-1], self.k

        def masked(g: Var, t: Var, s: Var) -> Expr:
            which = g if work.masks > 1 else 0
            return scores[g, t, s] + mask[which, t // k, s, 0, t % k]

        return te.compute(self._shape("gts"), masked, name="masked")

    def _hidden(self, scores: te.Tensor) -> te.Tensor:
        """Scores and the mask of run time."""
        work, k, mask = self.work, self.k, self.operands[-1]
        masks, own, shift = work.hiding

        def at(g: Var, t: Var, s: Var) -> Expr:
            block = (g * work.hidden_blocks if masks > 1 else 0) + (t // k if own else 0)
            hidden = mask[0, block, 0, s, 0, t % k if own else 0].astype("int32")
            return scores[g, t, s] + (hidden << tirx.const(shift, "int32"))

        return te.compute(self._shape("gts"), at, name="hidden")

    def _mixed(self) -> None:
        """Sums of values, and of shares times values."""
        share, value, k, each = self.values[SHARE], self.operands[2], self.k, self.work.key_blocks
        first, second = (te.reduce_axis((0, self.work.keys), f"rs{i}") for i in range(2))

        def at(g: Var, s: Expr, d: Var) -> Expr:
            return value[0, g * each + s // k, 0, d, 0, s % k].astype("int32")

        self.values[VALUES] = te.compute(
            self._shape("gd"), lambda g, d: te.sum(at(g, first, d), [first]), name="values"
        )
        self.values[PRODUCT] = te.compute(
            self._shape("gdt"),
            lambda g, d, t: te.sum(share[g, t, second] * at(g, second, d), [second]),
            name="product",
        )

    def _shape(self, axes: str) -> tuple[int, ...]:
        return tuple(self.sizes[axis] for axis in axes)

    def _reduced(
        self, name: str, axes: str, over: str, by: Callable[..., Expr], called: str
    ) -> te.Tensor:
        value = self.values[name]
        r = te.reduce_axis((0, self.sizes[over]), f"r_{called}")
        return te.compute(self._shape(axes), lambda *i: by(value(*i, r), axis=[r]), name=called)

    def _steps(self, program: Instructions) -> None:
        for each in program:
            self._step(each.name, each.op, each.left, each.right)

    def _step(self, name: str, op: str, left: str, right: str | int) -> None:
        axes, function = self.axes[left], OPERATORS[op]

        def operand(index: Sequence[Var]) -> Expr:
            if isinstance(right, int):
                return tirx.const(right, "int32")
            at = dict(zip(axes, index, strict=True))
            return self.values[right](*(at[axis] for axis in self.axes[right]))

        value = self.values[left]
        self.count += 1
        self.values[name] = te.compute(
            self._shape(axes),
            lambda *i: function(value(*i), operand(i)),
            name=f"step{self.count}_{op}",
        )
        self.axes[name] = axes
