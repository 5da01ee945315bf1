"""norm: layer and root-mean-square normalization over the channels of every position.

Two kernels.  The first squares the elements of a position, adds up its blocks and stores the sums
of the lanes as int8 digits: a STORE keeps the low byte of an accumulator.  The second adds up the
lanes of the digits, and of the elements, by a weight of ones: the GEMM core then has the sum in
every lane, so that nothing needs to be broadcast.  The reciprocal root is a program of the ALU on
one vector a position (`ir.norms`), and the elements are multiplied by it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

import numpy as np
from tvm import te, tirx
from tvm.tirx import Expr, Var

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.norms import MEAN_BITS, SQUARES, SUM, X
from vta_byoc.ir.programs import Instruction
from vta_byoc.strategies.base import (
    KernelFunction,
    LayerSchedule,
    LayerWork,
    ScratchTensor,
    Strategy,
)
from vta_byoc.strategies.norms.nests import apply_nests, square_nests
from vta_byoc.strategies.norms.usage import (
    WEIGHTS,
    apply_space,
    axes_of,
    digit_count,
    square_space,
)
from vta_byoc.strategies.te.definition import OPERATORS, elementwise, epilogue_operands
from vta_byoc.strategies.te.kernel import KernelSpace
from vta_byoc.workload.norms import element_steps, token_steps
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.workloads import GroupNormWorkload, NormWorkload

Kind = TypeVar("Kind", bound=NormWorkload)
Sums: TypeAlias = Callable[[str], te.Tensor]
OPERAND_RANK = 3
"""Axes of a packed operand with one value for each channel."""


class Norm(Strategy[Kind]):
    """Two kernels, and a scratch tensor of digits between them."""

    @abstractmethod
    def lanes(self, work: Kind) -> int:
        """How many channels have lanes that are added up."""

    @abstractmethod
    def together(self, work: Kind, block: int) -> int:
        """How many lanes of a block, from its first on, are of one sum."""

    @abstractmethod
    def sums(self, wide: te.Tensor, work: Kind, block: int) -> Sums:
        """What gives the sums of a kind, SUM or SQUARES, of int32 data."""

    @abstractmethod
    def placed(self, *at: Expr) -> tuple[Expr, ...]:
        """Where the sums are that an element at (n, c, h, w, b, k) belongs to."""

    def kernel_spaces(self, layer: LayerWork[Kind], config: VTAConfig) -> tuple[KernelSpace, ...]:
        """The squares, then everything else."""
        spaces = square_space(layer.work, config), apply_space(layer.work, config)
        return tuple(map(KernelSpace.of_tiles, spaces))

    def definition(self, schedule: LayerSchedule[Kind], config: VTAConfig) -> tirx.PrimFunc:
        """The result of the data, the weights (unused here) and the tensor operands."""
        work, k = schedule.work, config.block
        shape = packed_shape(work.out_shape, config)
        data = te.placeholder(shape, "int8", name="data")
        weights = te.placeholder((WEIGHTS, 1, 1, 1, k, k), "int8", name="weights")
        operands = epilogue_operands(work.tensors, work.out_shape, config)
        wide = elementwise("wide", lambda v: v.astype("int32"), data)
        values: dict[str, te.Tensor | int] = dict(work.numbers)
        sums = self.sums(wide, work, k)
        values |= {kind: sums(kind) for kind in (SQUARES, *([SUM] if work.centred else []))}
        for each in token_steps(work):
            values[each.name] = _token_step(each, values)
        waiting = iter(operands)
        given = {name: values.get(name) for name in ("factor", "offset")}
        given = {name: next(waiting) if v is None else v for name, v in given.items()}
        values |= {X: wide, **given}
        for each in element_steps(work):
            values[each.name] = _element_step(each, values, shape, self.placed)
        last = values[element_steps(work)[-1].name]
        out = elementwise("out", lambda v: v.astype("int8"), last)
        return te.create_prim_func([data, weights, *operands, out])

    def tensors(self, work: Kind) -> tuple[str, ...]:
        """Factors and offsets of channels, where these differ."""
        return work.tensors

    def weights(
        self,
        schedule: LayerSchedule[Kind],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The weights that `nests` numbers: (count, 1, 1, 1, k, k)."""
        work, k = schedule.work, config.block
        eye = np.eye(k, dtype=np.int8)
        inside = (np.arange(k) < (self.lanes(work) - 1) % k + 1).astype(np.int8)
        unit = 1 << MEAN_BITS if work.centred else 1
        lanes = np.arange(k) // self.together(work, k)
        ones = (lanes[:, None] == lanes).astype(np.int8)
        made = [eye, eye * inside, ones, ones * inside, eye * np.int8(unit)]
        return [np.stack(made)[:, None, None, None]]

    def scratch(
        self, schedule: LayerSchedule[Kind], config: VTAConfig
    ) -> tuple[ScratchTensor, ...]:
        """The digits of the sums of squares by lane."""
        axes, digits = axes_of(schedule.work, config), digit_count(schedule.work, config)
        sums = tuple(axes.sizes[axis] for axis in axes.kept)
        return (ScratchTensor((digits, *sums, config.batch, config.block)),)

    def functions(self, schedule: LayerSchedule[Kind], config: VTAConfig) -> list[KernelFunction]:
        """The squares; then sums, statistics and the result."""
        work, (first, second) = schedule.work, schedule.kernels
        count = 2 + len(work.tensors)
        return [
            KernelFunction(square_nests(work, config, first.choice), (0, 1, count)),
            KernelFunction(apply_nests(work, config, second.choice), (*range(count + 1), -1)),
        ]


class TokenNorm(Norm[NormWorkload]):
    """Sums over the channels of every position."""

    name = "norm"
    workload = NormWorkload

    def lanes(self, work: NormWorkload) -> int:
        """Channels of a token."""
        return work.summed

    def placed(self, *at: Expr) -> tuple[Expr, ...]:
        """The token of an element at (n, c, h, w, b, k)."""
        n, _, h, w, b, _ = at
        return n, h, w, b

    def together(self, work: NormWorkload, block: int) -> int:
        """All lanes of a block."""
        return block

    def sums(self, wide: te.Tensor, work: NormWorkload, block: int) -> Sums:
        """Over the channels of a token, (n, h, w, b)."""
        n, blocks, h, w, b, _ = wide.shape
        rc, rk = te.reduce_axis((0, blocks), "rc"), te.reduce_axis((0, block), "rk")

        def total(kind: str) -> te.Tensor:
            def value(n: Var, h: Var, w: Var, b: Var) -> Expr:
                own = _power(kind, wide[n, rc, h, w, b, rk])
                inside = tirx.if_then_else(
                    rc * block + rk < work.summed, own, tirx.const(0, "int32")
                )
                return te.sum(inside, axis=[rc, rk])

            return te.compute((n, h, w, b), value, name=kind)

        return total


class GroupNorm(Norm[GroupNormWorkload]):
    """Sums over all positions of groups of channels: one channel each, all, or any between."""

    name = "group_norm"
    workload = GroupNormWorkload

    def lanes(self, work: GroupNormWorkload) -> int:
        """Channels of the image: those behind the last are of no group of many blocks."""
        return work.channels

    def placed(self, *at: Expr) -> tuple[Expr, ...]:
        """Where the sums of the group of an element at (n, c, h, w, b, k) are."""
        n, c, _, _, b, k = at
        return n, c, b, k

    def together(self, work: GroupNormWorkload, block: int) -> int:
        """Lanes of a block that are of one group."""
        return min(block, work.group_channels)

    def sums(self, wide: te.Tensor, work: GroupNormWorkload, block: int) -> Sums:
        """Over the positions and channels of the group of a channel, (n, c, b, k)."""
        n, blocks, h, w, b, _ = wide.shape
        together, count = self.together(work, block), work.blocks_of_sum(block)
        rc, rk = te.reduce_axis((0, count), "rc"), te.reduce_axis((0, together), "rk")
        rh, rw = te.reduce_axis((0, h), "rh"), te.reduce_axis((0, w), "rw")

        def total(kind: str) -> te.Tensor:
            def value(n: Var, c: Var, b: Var, k: Var) -> Expr:
                at_c, at_k = c // count * count + rc, k // together * together + rk
                own = _power(kind, wide[n, at_c, rh, rw, b, at_k])
                is_inside = at_c * block + at_k < work.channels
                if work.groups > 1:
                    return te.sum(own, axis=[rc, rk, rh, rw])
                inside = tirx.if_then_else(is_inside, own, tirx.const(0, "int32"))
                return te.sum(inside, axis=[rc, rk, rh, rw])

            return te.compute((n, blocks, b, block), value, name=kind)

        return total


def _power(kind: str, value: Expr) -> Expr:
    return value * value if kind == SQUARES else value


def _token_step(each: Instruction, values: Mapping[str, te.Tensor | int]) -> te.Tensor:
    function, left = OPERATORS[each.op], values[each.left]
    assert not isinstance(left, int), "an operation begins with a tensor"
    if isinstance(each.right, int):
        by = tirx.const(each.right, "int32")
        return elementwise(f"token_{each.name}", lambda v: function(v, by), left)
    return elementwise(f"token_{each.name}", function, left, values[each.right])


def _element_step(
    each: Instruction,
    values: Mapping[str, te.Tensor | int],
    shape: tuple[int, ...],
    placed: Callable[..., tuple[Expr, ...]],
) -> te.Tensor:
    """A step of (n, c, h, w, b, k): its operand may be one of a sum or of a channel."""
    function, left = OPERATORS[each.op], values[each.left]
    assert not isinstance(left, int), "an operation begins with a tensor"
    right: te.Tensor | int = values[each.right] if isinstance(each.right, str) else each.right

    def operand(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        if isinstance(right, int):
            return tirx.const(right, "int32")
        is_of_channel = len(right.shape) == OPERAND_RANK
        value: Expr = right(c, b, k) if is_of_channel else right(*placed(n, c, h, w, b, k))
        return value

    def at(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        by = operand(n, c, h, w, b, k)
        return function(left[n, c, h, w, b, k], by)

    return te.compute(shape, at, name=f"element_{each.name}")


NORM, GROUP_NORM = TokenNorm(), GroupNorm()
