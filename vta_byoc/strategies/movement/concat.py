"""concat: int8 tensors joined along the channels.

Packed, a range of channels is a range of the result, so an operand that a layer of the same region
stores can be stored right there: `in_place_offsets` says where.  What cannot (an input of the
region, a tensor that several concats hold) is copied by the GEMM core, as an elementwise operator
without steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import te, tirx

from vta_byoc.codegen import View, with_views
from vta_byoc.codegen.linear import row_major
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.base import KernelFunction, LayerSchedule, LayerWork, Strategy
from vta_byoc.strategies.elementwise.elementwise import ELEMENTWISE
from vta_byoc.strategies.te.definition import packed_operands
from vta_byoc.strategies.te.kernel import Kernels, KernelSpace
from vta_byoc.workload.packing import blocks, diagonal_weights, packed_shape
from vta_byoc.workload.workloads import ConcatWorkload, ElementwiseWorkload, Prologue


class Concat(Strategy[ConcatWorkload]):
    """A copy of each operand that is not stored in place."""

    name = "concat"
    workload = ConcatWorkload

    def kernel_spaces(
        self, layer: LayerWork[ConcatWorkload], config: VTAConfig
    ) -> tuple[KernelSpace, ...]:
        """A kernel for the copy of each operand."""
        return tuple(
            space
            for copy in _copies(layer.work, config)
            for space in ELEMENTWISE.spaces(LayerWork(copy), config)
        )

    def cheapest(self, layer: LayerWork[ConcatWorkload], config: VTAConfig) -> Kernels:
        """A kernel for the copy of each operand."""
        return tuple(
            kernel
            for copy in _copies(layer.work, config)
            for kernel in ELEMENTWISE.choose(LayerWork(copy), config).kernels
        )

    def estimate(self, schedule: LayerSchedule[ConcatWorkload], config: VTAConfig) -> float:
        """Cycles of copying all operands, those too that are stored in place."""
        return blocks(schedule.work.batch, config.batch) * super().estimate(schedule, config)

    def definition(
        self, schedule: LayerSchedule[ConcatWorkload], config: VTAConfig
    ) -> tirx.PrimFunc:
        """The operands side by side; the weight of the copies is not used here."""
        work, k = schedule.work, config.block
        data = packed_operands(work, config)
        scales = te.placeholder((1, 1, 1, 1, k, k), "int8", name="scales")
        firsts = _firsts(work, config)

        def at(n: tirx.Var, c: tirx.Var, *rest: tirx.Var) -> tirx.Expr:
            value = data[0][(n, c, *rest)]
            for tensor, first in zip(data[1:], firsts[1:], strict=True):
                part = tensor[(n, tirx.max(c - first, 0), *rest)]
                value = tirx.if_then_else(c >= first, part, value)
            return value

        out = te.compute(packed_shape(work.out_shape, config), at, name="out")
        return te.create_prim_func([*data, scales, out])

    def weights(
        self,
        schedule: LayerSchedule[ConcatWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The unit weight of the copies."""
        return [diagonal_weights((1,), config)]

    def functions(
        self, schedule: LayerSchedule[ConcatWorkload], config: VTAConfig
    ) -> list[KernelFunction]:
        """A copy of each operand, block of images by block of images."""
        work = schedule.work
        plane, scales = _plane(work, config), len(work.channels)
        total = blocks(sum(work.channels), config.block) * plane
        found = []
        copies = zip(_copies(work, config), _firsts(work, config), schedule.kernels, strict=True)
        for i, (copy, first, kernel) in enumerate(copies):
            func = ELEMENTWISE.scheduled(LayerSchedule(copy, kernels=(kernel,)), config)
            size = blocks(copy.channels, config.block) * plane
            steps = [tuple(row_major([int(d) for d in func.params[p].shape])) for p in (0, 2)]
            for n in range(blocks(work.batch, config.batch)):
                views = {
                    0: View(n * size, steps[0]),
                    2: View(n * total + first * plane, steps[1]),
                }
                found.append(KernelFunction(with_views(func, views), (i, scales, -1)))
        return found

    def in_place_offsets(self, work: ConcatWorkload, config: VTAConfig) -> list[int | None]:
        """Scalar offset of each operand in the result, where it is one range of it."""
        if blocks(work.batch, config.batch) > 1:
            return [None] * len(work.channels)
        return [first * _plane(work, config) for first in _firsts(work, config)]


def _firsts(work: ConcatWorkload, config: VTAConfig) -> list[int]:
    """First channel block of each operand in the result."""
    counts = [blocks(c, config.block) for c in work.channels]
    return [sum(counts[:i]) for i in range(len(counts))]


def _plane(work: ConcatWorkload, config: VTAConfig) -> int:
    """Scalars of one channel block."""
    return work.height * work.width * config.batch * config.block


def _copies(work: ConcatWorkload, config: VTAConfig) -> list[ElementwiseWorkload]:
    """Each operand of one block of images as an elementwise operator without steps."""
    return [
        ElementwiseWorkload(config.batch, channels, work.height, work.width, (Prologue(0),))
        for channels in work.channels
    ]


CONCAT = Concat()
