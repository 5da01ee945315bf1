"""pool: max and sum pooling over any windows; a mean is a sum with a divisor in its epilogue.

Both read int8 through the GEMM core with one identity weight (see :mod:`.max` and
:mod:`.sum`).  On machines without MUL the divisor of a mean is in that weight.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import te, tirx
from tvm.tirx import Expr, Var

from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.base import LayerSchedule, LayerWork, SingleKernelStrategy
from vta_byoc.strategies.pooling.max import scheduled_max
from vta_byoc.strategies.pooling.sum import digits_for, scheduled_sum, sum_space
from vta_byoc.strategies.pooling.tile_space import max_space
from vta_byoc.strategies.te.definition import packed_operands, with_epilogue
from vta_byoc.strategies.te.kernel import KernelSpace
from vta_byoc.strategies.te.window import seen, windows_of
from vta_byoc.workload.borders import boxes
from vta_byoc.workload.packing import diagonal_weights, packed_shape
from vta_byoc.workload.workloads import PoolWorkload

INT8_LOW = -128


class Pool(SingleKernelStrategy[PoolWorkload]):
    """A max or sum pool; each kind has nests of its own."""

    name = "pool"
    workload = PoolWorkload

    def kernel_spaces(
        self, layer: LayerWork[PoolWorkload], config: VTAConfig
    ) -> tuple[KernelSpace, ...]:
        """One kernel."""
        space = max_space if layer.work.kind == "max" else sum_space
        return (KernelSpace.of_tiles(space(layer.work, config)),)

    def definition(self, schedule: LayerSchedule[PoolWorkload], config: VTAConfig) -> tirx.PrimFunc:
        """Data, identity weight (unused here), operands of the epilogue, result."""
        work = schedule.work
        (data,) = packed_operands(work, config)
        count = len(digits_for(work)) * max(1, len(work.factors))
        shape = (count, 1, 1, 1, config.block, config.block)
        identity = te.placeholder(shape, "int8", name="identity")
        return with_epilogue([data, identity], _pooled(work, data, config), work, config)

    def weights(
        self,
        schedule: LayerSchedule[PoolWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The identity times each digit of each factor: (digits * factors, 1, 1, 1, k, k)."""
        digits = [value for digit in digits_for(schedule.work) for value in digit.values]
        return [diagonal_weights(digits, config)]

    def scheduled(self, schedule: LayerSchedule[PoolWorkload], config: VTAConfig) -> tirx.PrimFunc:
        """Data, identity, operands, result."""
        work, (kernel,) = schedule.work, schedule.kernels
        nests = scheduled_max if work.kind == "max" else scheduled_sum
        return nests(work, config, kernel.choice)


def _pooled(work: PoolWorkload, data: te.Tensor, config: VTAConfig) -> te.Tensor:
    rows, cols = windows_of(work.window)
    kh, kw = te.reduce_axis((0, rows.taps), "kh"), te.reduce_axis((0, cols.taps), "kw")
    low = INT8_LOW if work.kind == "max" else 0

    def pooled(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        value = seen(data, (rows, cols), (kh, kw), (n, c, h, w, b, k), low)
        return (te.max if work.kind == "max" else te.sum)(value, axis=[kh, kw])

    shape = packed_shape(work.out_shape, config)
    value = te.compute(shape, pooled, name="pooled")
    if work.factor == 1 and not work.factors:
        return value
    return te.compute(shape, lambda *i: value[i] * _factor(work, i[2], i[3]), name="scaled")


def _factor(work: PoolWorkload, h: Var, w: Var) -> Expr:
    """What the sum at a row and a column is multiplied by."""
    factor: Expr = tirx.const(work.factor, "int32")
    if not work.factors:
        return factor
    for ((top, bottom), (left, right)), own in zip(boxes(work.window), work.factors, strict=True):
        here = tirx.all(h >= top, h < bottom, w >= left, w < right)
        factor = tirx.if_then_else(here, tirx.const(own, "int32"), factor)
    return factor


POOL = Pool()
