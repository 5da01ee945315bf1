"""norm: layer and root-mean-square normalization over the channels of every position.

Two kernels.  The first squares the elements of a position, adds up its blocks and stores the sums
of the lanes as int8 digits: a STORE keeps the low byte of an accumulator.  The second adds up the
lanes of the digits, and of the elements, by a weight of ones: the GEMM core then has the sum in
every lane, so that nothing needs to be broadcast.  The reciprocal root is a program of the ALU on
one vector a position (`ir.norms`), and the elements are multiplied by it.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from vta_byoc.strategies.norms.usage import WEIGHTS, apply_space, digits_of, square_space
from vta_byoc.strategies.te.definition import OPERATORS, elementwise, epilogue_operands
from vta_byoc.strategies.te.kernel import KernelSpace
from vta_byoc.workload.norms import element_steps, token_steps
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.workloads import NormWorkload

OPERAND_RANK = 3
"""Axes of a packed operand with one value for each channel."""


class Norm(Strategy[NormWorkload]):
    """Two kernels, and a scratch tensor of digits between them."""

    name = "norm"
    workload = NormWorkload

    def kernel_spaces(
        self, layer: LayerWork[NormWorkload], config: VTAConfig
    ) -> tuple[KernelSpace, ...]:
        """The squares, then everything else."""
        spaces = square_space(layer.work, config), apply_space(layer.work, config)
        return tuple(map(KernelSpace.of_tiles, spaces))

    def definition(self, schedule: LayerSchedule[NormWorkload], config: VTAConfig) -> tirx.PrimFunc:
        """The result of the data, the weights (unused here) and the tensor operands."""
        work, k = schedule.work, config.block
        shape = packed_shape(work.out_shape, config)
        data = te.placeholder(shape, "int8", name="data")
        weights = te.placeholder((WEIGHTS, 1, 1, 1, k, k), "int8", name="weights")
        operands = epilogue_operands(work.tensors, work.out_shape, config)
        wide = elementwise("wide", lambda v: v.astype("int32"), data)
        values: dict[str, te.Tensor | int] = dict(work.numbers)
        values |= {SQUARES: _sums(wide, work, k, squared=True)}
        if work.centred:
            values[SUM] = _sums(wide, work, k, squared=False)
        for each in token_steps(work):
            values[each.name] = _token_step(each, values)
        waiting = iter(operands)
        given = {name: values.get(name) for name in ("factor", "offset")}
        given = {name: next(waiting) if v is None else v for name, v in given.items()}
        values |= {X: wide, **given}
        for each in element_steps(work):
            values[each.name] = _element_step(each, values, shape)
        last = values[element_steps(work)[-1].name]
        out = elementwise("out", lambda v: v.astype("int8"), last)
        return te.create_prim_func([data, weights, *operands, out])

    def tensors(self, work: NormWorkload) -> tuple[str, ...]:
        """Factors and offsets of channels, where these differ."""
        return work.tensors

    def weights(
        self,
        schedule: LayerSchedule[NormWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The weights that `nests` numbers: (count, 1, 1, 1, k, k)."""
        work, k = schedule.work, config.block
        eye = np.eye(k, dtype=np.int8)
        inside = (np.arange(k) < (work.summed - 1) % k + 1).astype(np.int8)
        unit = 1 << MEAN_BITS if work.centred else 1
        ones = np.ones((k, k), np.int8)
        made = [eye, eye * inside, ones, ones * inside, eye * np.int8(unit)]
        return [np.stack(made)[:, None, None, None]]

    def scratch(
        self, schedule: LayerSchedule[NormWorkload], config: VTAConfig
    ) -> tuple[ScratchTensor, ...]:
        """The digits of the sums of squares by lane."""
        n, _, h, w, b, k = packed_shape(schedule.work.out_shape, config)
        return (ScratchTensor((digits_of(schedule.work, config), n, h * w, b, k)),)

    def functions(
        self, schedule: LayerSchedule[NormWorkload], config: VTAConfig
    ) -> list[KernelFunction]:
        """The squares; then sums, statistics and the result."""
        work, (first, second) = schedule.work, schedule.kernels
        count = 2 + len(work.tensors)
        return [
            KernelFunction(square_nests(work, config, first.choice), (0, 1, count)),
            KernelFunction(apply_nests(work, config, second.choice), (*range(count + 1), -1)),
        ]


def _sums(wide: te.Tensor, work: NormWorkload, k: int, *, squared: bool) -> te.Tensor:
    """Over the channels of a token, (n, h, w, b)."""
    n, blocks, h, w, b, _ = wide.shape
    rc, rk = te.reduce_axis((0, blocks), "rc"), te.reduce_axis((0, k), "rk")

    def total(n: Var, h: Var, w: Var, b: Var) -> Expr:
        value = wide[n, rc, h, w, b, rk]
        value = value * value if squared else value
        inside = tirx.if_then_else(rc * k + rk < work.summed, value, tirx.const(0, "int32"))
        return te.sum(inside, axis=[rc, rk])

    return te.compute((n, h, w, b), total, name=SQUARES if squared else SUM)


def _token_step(each: Instruction, values: Mapping[str, te.Tensor | int]) -> te.Tensor:
    function, left = OPERATORS[each.op], values[each.left]
    assert not isinstance(left, int), "an operation begins with a tensor"
    if isinstance(each.right, int):
        by = tirx.const(each.right, "int32")
        return elementwise(f"token_{each.name}", lambda v: function(v, by), left)
    return elementwise(f"token_{each.name}", function, left, values[each.right])


def _element_step(
    each: Instruction, values: Mapping[str, te.Tensor | int], shape: tuple[int, ...]
) -> te.Tensor:
    """A step of (n, c, h, w, b, k): its operand may be one of a token or of a channel."""
    function, left = OPERATORS[each.op], values[each.left]
    assert not isinstance(left, int), "an operation begins with a tensor"
    right: te.Tensor | int = values[each.right] if isinstance(each.right, str) else each.right

    def operand(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        if isinstance(right, int):
            return tirx.const(right, "int32")
        is_of_channel = len(right.shape) == OPERAND_RANK
        value: Expr = right(c, b, k) if is_of_channel else right(n, h, w, b)
        return value

    def at(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        by = operand(n, c, h, w, b, k)
        return function(left[n, c, h, w, b, k], by)

    return te.compute(shape, at, name=f"element_{each.name}")


NORM = Norm()
