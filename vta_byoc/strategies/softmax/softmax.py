"""softmax: along an axis of positions, beside attention and its products.

One kernel. Scores are widened by the GEMM core, and everything else is the ALU's: a maximum over
vectors, the exponential and the reciprocal of `ir.attention`, a sum over vectors and a product.
Lanes never mix, so whatever lies in them has a sum of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from tvm import te, tirx
from tvm.tirx import Expr

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.attention import RESULT, SCORE, SHARE, TOP, TOTAL
from vta_byoc.ir.programs import Instruction, Instructions
from vta_byoc.strategies.base import LayerSchedule, LayerWork, SingleKernelStrategy
from vta_byoc.strategies.softmax.nests import softmax_nests
from vta_byoc.strategies.softmax.usage import softmax_space, widened
from vta_byoc.strategies.te.definition import OPERATORS, elementwise
from vta_byoc.strategies.te.kernel import KernelSpace
from vta_byoc.workload.packing import diagonal_weights, packed_shape
from vta_byoc.workload.softmax import SoftmaxWorkload


class SoftmaxStrategy(SingleKernelStrategy[SoftmaxWorkload]):
    """Rows or columns of packed planes."""

    name = "softmax"
    workload = SoftmaxWorkload

    def kernel_spaces(
        self, layer: LayerWork[SoftmaxWorkload], config: VTAConfig
    ) -> tuple[KernelSpace, ...]:
        """One kernel."""
        return (KernelSpace.of_tiles(softmax_space(layer.work, config)),)

    def definition(
        self, schedule: LayerSchedule[SoftmaxWorkload], config: VTAConfig
    ) -> tirx.PrimFunc:
        """The result of the scores and the weight (unused here)."""
        work, k = schedule.work, config.block
        data = te.placeholder(packed_shape(work.out_shape, config), "int8", name="data")
        weights = te.placeholder((1, 1, 1, 1, k, k), "int8", name="weights")
        return te.create_prim_func([data, weights, _Definition(work).result(data)])

    def weights(
        self,
        schedule: LayerSchedule[SoftmaxWorkload],
        _given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """What widens and raises: (1, 1, 1, 1, k, k)."""
        return [diagonal_weights((1 << widened(schedule.work),), config)]

    def scheduled(
        self, schedule: LayerSchedule[SoftmaxWorkload], config: VTAConfig
    ) -> tirx.PrimFunc:
        """Scores, weight, result."""
        (kernel,) = schedule.kernels
        return softmax_nests(schedule.work, config, kernel.choice)


class _Definition:
    """The steps of a softmax on a packed tensor (n, c, h, w, b, k)."""

    def __init__(self, work: SoftmaxWorkload) -> None:
        self.work, self.softmax = work, work.softmax
        self.values: dict[str, te.Tensor] = {}
        self.count = 0

    def result(self, data: te.Tensor) -> te.Tensor:
        softmax, axis, values = self.softmax, self.work.axis, self.values
        values[SCORE] = elementwise("wide", lambda v: v.astype("int32"), data)
        self._steps(softmax.raised)
        values[TOP] = self._reduced(SCORE, te.max, "top")
        self._steps(softmax.room)
        self._steps(softmax.share)
        values[TOTAL] = self._reduced(SHARE, te.sum, "total")
        self._steps(softmax.rate)
        self._steps(softmax.result)
        last, zero = values[RESULT], tirx.const(0, "int8")

        def at(*i: Expr) -> Expr:
            value = last(*i).astype("int8")
            if self.work.keys == self.work.places:
                return value
            return tirx.if_then_else(i[axis] < self.work.keys, value, zero)

        return te.compute(data.shape, at, name="out")

    def _reduced(self, name: str, by: Callable[..., Expr], called: str) -> te.Tensor:
        """Over the scores along the axis, which is left out."""
        value, axis = self.values[name], self.work.axis
        r = te.reduce_axis((0, self.work.keys), f"r_{called}")
        shape = [size for place, size in enumerate(value.shape) if place != axis]
        return te.compute(
            shape, lambda *i: by(value(*i[:axis], r, *i[axis:]), axis=[r]), name=called
        )

    def _steps(self, program: Instructions) -> None:
        for each in program:
            self.count += 1
            self.values[each.name] = self._step(each)

    def _step(self, each: Instruction) -> te.Tensor:
        function, left, axis = OPERATORS[each.op], self.values[each.left], self.work.axis
        right = self.values[each.right] if isinstance(each.right, str) else each.right

        def value(*i: Expr) -> Expr:
            if isinstance(right, int):
                return function(left(*i), tirx.const(right, "int32"))
            is_whole = len(right.shape) == len(i)
            return function(left(*i), right(*(i if is_whole else (*i[:axis], *i[axis + 1 :]))))

        return te.compute(left.shape, value, name=f"step{self.count}_{each.op}")


SOFTMAX = SoftmaxStrategy()
