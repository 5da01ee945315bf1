"""matmul2: products of matrices of which one, a computed tensor, is the weight."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import te, tirx
from tvm.tirx import Expr, Var

from vta_byoc.cost.dma import with_alike_epilogue
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.base import LayerSchedule, LayerWork, SingleKernelStrategy
from vta_byoc.strategies.conv.conv2d import grouping_of, kernel_space
from vta_byoc.strategies.conv.schedule import ConvVariant, conv_function, conv_schedule
from vta_byoc.strategies.conv.tile_space import operands_at_groups
from vta_byoc.strategies.te.definition import packed_operands, with_epilogue
from vta_byoc.strategies.te.kernel import Grouping, KernelSpace
from vta_byoc.workload.memory import DRAM_ACC, DRAM_INP, DRAM_WGT
from vta_byoc.workload.products import ProductWorkload
from vta_byoc.workload.workloads import Conv2dWorkload


class Matmul2(SingleKernelStrategy[ProductWorkload]):
    """A 1 x 1 convolution in groups, whose weight is a tensor in the layout of the data."""

    name = "matmul2"
    workload = ProductWorkload

    def costs_like(self, work: ProductWorkload, config: VTAConfig) -> ProductWorkload:
        """The same product, whatever the immediates behind it."""
        alike = with_alike_epilogue(work, config)
        assert isinstance(alike, ProductWorkload)
        return alike

    def kernel_spaces(
        self, layer: LayerWork[ProductWorkload], config: VTAConfig
    ) -> tuple[KernelSpace, ...]:
        """One kernel, each group in blocks of its own."""
        alike: LayerWork[Conv2dWorkload] = LayerWork(layer.work, layer.fused, layer.weight_batch)
        return (kernel_space(alike, config, [own_blocks(layer.work, config)]),)

    def definition(
        self, schedule: LayerSchedule[ProductWorkload], config: VTAConfig
    ) -> tirx.PrimFunc:
        """The product of packed tensors: data, the tensor that is the weight, operands."""
        work, grouping, k = schedule.work, grouping_of(schedule.kernels[0]), config.block
        data, weight = packed_operands(work, config)
        rc = te.reduce_axis((0, grouping.ci), "rc")
        rk = te.reduce_axis((0, k), "rk")

        def mac(n: Var, o: Var, h: Var, w: Var, bi: Var, bo: Var) -> Expr:
            channels = o // grouping.co * grouping.ci + rc
            left = data[n, channels, h, w, bi, rk].astype("int32")
            right = weight[n, channels, h, o % grouping.co * k + bo, bi, rk].astype("int32")
            return te.sum(left * right, axis=[rc, rk])

        shape = (1, grouping.count * grouping.co, 1, work.width, config.batch, k)
        return with_epilogue([data, weight], te.compute(shape, mac, name="acc"), work, config)

    def scopes(self, work: ProductWorkload) -> tuple[str, ...]:
        """The data as inputs, the other tensor as weights."""
        return (DRAM_INP, DRAM_WGT, *(DRAM_ACC for _ in self.tensors(work)))

    def weights(
        self,
        _schedule: LayerSchedule[ProductWorkload],
        _given: Mapping[str, np.ndarray],
        _config: VTAConfig,
    ) -> list[np.ndarray]:
        """None: both operands are computed."""
        return []

    def scheduled(
        self, schedule: LayerSchedule[ProductWorkload], config: VTAConfig
    ) -> tirx.PrimFunc:
        """Data, weight, operands, result."""
        work, (kernel,) = schedule.work, schedule.kernels
        grouping, choice = grouping_of(kernel), kernel.choice
        func = conv_function(work, grouping, config, ConvVariant.parse(choice.variant))
        at_groups = operands_at_groups(work.epilogue, grouping, config)
        return conv_schedule(func, work, choice, at_groups)


def own_blocks(work: ProductWorkload, config: VTAConfig) -> Grouping:
    """Each group of channels in whole blocks."""
    sums, channels = (
        size // work.groups // config.block for size in (work.in_channels, work.out_channels)
    )
    return Grouping(1, work.groups, sums, channels)


MATMUL2 = Matmul2()
