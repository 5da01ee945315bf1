"""conv2d: any convolution; conv1d and dense layers are cases of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tvm import te, tirx
from tvm.tirx import Expr, Var

from vta_byoc.base.int8_digits import split
from vta_byoc.cost.search import Choice, Space, best, keeps_weights
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.strategies.base import (
    LayerSchedule,
    LayerWork,
    cheapest_of,
)
from vta_byoc.strategies.conv.bias import (
    BIAS,
    bias_operands,
    bias_scopes,
    biased,
    packed_bias,
    with_bias,
)
from vta_byoc.strategies.conv.convolution import Convolution
from vta_byoc.strategies.conv.copies import KEEP, stage_before_copy
from vta_byoc.strategies.conv.filled import filled_of
from vta_byoc.strategies.conv.gemm_usage import chosen_left_out
from vta_byoc.strategies.conv.grouping import groupings, pack_grouped
from vta_byoc.strategies.conv.pooled import PooledTiles
from vta_byoc.strategies.conv.schedule import ConvVariant, conv_function, conv_schedule
from vta_byoc.strategies.conv.taps import without_zeros
from vta_byoc.strategies.conv.tile_space import (
    bias_at_groups,
    conv_space,
    gemm_work,
    operands_at_groups,
)
from vta_byoc.strategies.fused.planes import planes_of
from vta_byoc.strategies.fused.tile import Roles
from vta_byoc.strategies.te.definition import packed_operands
from vta_byoc.strategies.te.kernel import Grouping, Kernel, Kernels, KernelSpace
from vta_byoc.workload.memory import DRAM_WGT
from vta_byoc.workload.workloads import Conv2dWorkload

ROLES = Roles((1, 2), (3, 4), sorted=True)
"""Dimensions of the result: images, block-diagonal groups, channel blocks, rows, columns."""


class Conv2d(Convolution):
    """A convolution on the GEMM core."""

    name = "conv2d"
    fuses = fuses_pools = reuses_weights = True
    roles = ROLES

    def kernel_spaces(
        self, layer: LayerWork[Conv2dWorkload], config: VTAConfig
    ) -> tuple[KernelSpace, ...]:
        """One kernel; fused consumers and calls in a row leave groups, and weights, as without."""
        found = groupings(layer.work, config)
        if layer.fused or layer.weight_batch > 1:
            (alone,) = self.choose(LayerWork(layer.work), config).kernels
            found = [grouping_of(alone)]
        return (kernel_space(layer, config, found),)

    def cheapest(self, layer: LayerWork[Conv2dWorkload], config: VTAConfig) -> Kernels:
        """The only kernel, with the grouping that costs least where there are several."""
        (space,) = self.spaces(layer, config)
        return (cheapest_kernel(layer.work, space, config),)

    def sums(
        self, schedule: LayerSchedule[Conv2dWorkload], config: VTAConfig
    ) -> tuple[list[te.Tensor], te.Tensor]:
        """Of packed data and weight (groups * co, ci, KH, KW, k, k), and a bias.

        A weight of two digits is (groups * co, 2, ci, KH, KW, k, k), the upper digit first.
        """
        work, grouping = schedule.work, grouping_of(schedule.kernels[0])
        (data,) = packed_operands(work, config)
        weight = te.placeholder(weight_shape(work, grouping, config), "int8", name="weight")
        acc, inputs = accumulators(work, data, weight, grouping), [data, weight]
        if work.bias:
            inputs += bias_operands((grouping.count * grouping.co,), config)
            acc = with_bias(acc, *inputs[-2:])
        return inputs, acc

    def factors(
        self,
        schedule: LayerSchedule[Conv2dWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The packed "weight" (O, I/groups, KH, KW), and what makes "bias" (O,)."""
        work, grouping = schedule.work, grouping_of(schedule.kernels[0])
        bias = packed_bias(given[BIAS], config) if work.bias else []
        return [packed_weight(given["weight"], work, grouping, config), *bias]

    def factor_scopes(self, work: Conv2dWorkload) -> tuple[str, ...]:
        """Those of the weight; of a bias those of the constant vector and of its weights."""
        return (DRAM_WGT, *bias_scopes(work))

    def tiled(self, schedule: LayerSchedule[Conv2dWorkload], config: VTAConfig) -> tirx.PrimFunc:
        """Data, weight, operands, result."""
        work, (kernel,) = schedule.work, schedule.kernels
        grouping, choice = grouping_of(kernel), kernel.choice
        pool = PooledTiles.of(work, schedule.fused)
        window = planes_of(work, schedule.fused)
        left_out = chosen_left_out(work, grouping, config, choice, pool, window)
        filled = filled_of(work, grouping, config)
        if pool is not None:
            work = pool.convolution
        func = conv_function(work, grouping, config, ConvVariant.parse(choice.variant), pool)
        groups = operands_at_groups(work.epilogue, grouping, config)
        at_groups = groups, bias_at_groups(grouping, config)
        func = conv_schedule(func, work, choice, *at_groups, pooled=pool is not None)
        return without_zeros(func, work, left_out, filled)

    def steps(self, work: Conv2dWorkload) -> tuple[str, ...]:
        """What is kept, where steps make it, and its copy."""
        return (KEEP, stage_before_copy(work.epilogue) or KEEP)

    def bias_forms(
        self, work: Conv2dWorkload, given: Mapping[str, np.ndarray], config: VTAConfig
    ) -> list[tuple[Conv2dWorkload, dict[str, np.ndarray]]]:
        """In boxes, and either with the constant vector."""
        forms = super().bias_forms(work, given, config)
        products = [biased(*form, config.block) for form in ((work, given), *forms)]
        return forms + [found for found in products if found is not None]

    def kept_tile(
        self, schedule: LayerSchedule[Conv2dWorkload], config: VTAConfig
    ) -> Choice | None:
        """The tile, where it leaves all weights in SRAM."""
        (kernel,) = schedule.kernels
        calls = schedule.weight_batch
        grouping = grouping_of(kernel)
        space = conv_space(schedule.work, grouping, config, fused=schedule.fused, calls=calls)
        return kernel.choice if keeps_weights(space, kernel.choice) else None


def kernel_space(
    layer: LayerWork[Conv2dWorkload],
    config: VTAConfig,
    found: Sequence[Grouping],
    out_strides: tuple[int, int] | None = None,
) -> KernelSpace:
    """What a kernel of one of the groupings ``found`` could be.

    ``out_strides``: elements between rows and columns of a result that is part of a larger one.
    """
    work, fused, calls = layer.work, layer.fused, layer.weight_batch
    spaces = [conv_space(work, each, config, out_strides, fused, calls) for each in found]
    return KernelSpace(tuple(zip(found, spaces, strict=True)))


def cheapest_kernel(work: Conv2dWorkload, space: KernelSpace, config: VTAConfig) -> Kernel:
    """The kernel of ``space`` that costs least by estimate; VTAError where nothing fits."""
    if len(space.candidates) == 1:
        return cheapest_of(space, config)

    def floor(candidate: tuple[Grouping | None, Space]) -> int:
        assert candidate[0] is not None
        return gemm_work(work, candidate[0], config)

    found: Kernel | None = None
    refused: VTAError | None = None
    for candidate in sorted(space.candidates, key=floor):
        if found and found.choice.cycles <= floor(candidate):
            break
        try:
            choice = best(candidate[1], config)
        except VTAError as err:
            refused = refused or err
            continue
        if found is None or choice.cycles < found.choice.cycles:
            found = Kernel(choice, candidate[0])
    if found is None:
        assert refused is not None
        raise refused
    return found


def grouping_of(kernel: Kernel) -> Grouping:
    """How ``kernel`` puts groups of channels in blocks."""
    assert kernel.grouping is not None
    return kernel.grouping


def weight_shape(work: Conv2dWorkload, grouping: Grouping, config: VTAConfig) -> tuple[int, ...]:
    """Shape of the packed weight."""
    k = config.block
    digits = (work.digits,) if work.digit_shift else ()
    return (grouping.count * grouping.co, *digits, grouping.ci, *work.kernel, k, k)


def accumulators(
    work: Conv2dWorkload,
    data: te.Tensor,
    weight: te.Tensor,
    grouping: Grouping,
    name: str = "acc",
) -> te.Tensor:
    """The accumulators (N/b, O/k, OH, OW, b, k) of packed data and weight."""
    top, left, _, _ = work.padding
    n, _, height, width, b, k = (int(s) for s in data.shape)
    rc = te.reduce_axis((0, grouping.ci), "rc")
    kh = te.reduce_axis((0, work.kernel[0]), "kh")
    kw = te.reduce_axis((0, work.kernel[1]), "kw")
    rk = te.reduce_axis((0, k), "rk")

    def mac(digit: tuple[int, ...], index: Sequence[Var]) -> Expr:
        n_, o, h, w, bi, bo = index
        row = h * work.strides[0] + kh * work.dilation[0] - top
        col = w * work.strides[1] + kw * work.dilation[1] - left
        inside = tirx.all(row >= 0, row < height, col >= 0, col < width)
        value = data[n_, o // grouping.co * grouping.ci + rc, row, col, bi, rk]
        left_ = tirx.if_then_else(inside, value, tirx.const(0, "int8")).astype("int32")
        right = weight[(o, *digit, rc, kh, kw, bo, rk)].astype("int32")
        return te.sum(left_ * right, axis=[rc, kh, kw, rk])

    shape = (n, grouping.count * grouping.co, work.out_height, work.out_width, b, k)
    if not work.digit_shift:
        return te.compute(shape, lambda *i: mac((), i), name=name)
    high = te.compute(shape, lambda *i: mac((0,), i), name=f"{name}_high")
    low = te.compute(shape, lambda *i: mac((1,), i), name=f"{name}_low")
    return te.compute(shape, lambda *i: (high(*i) << work.digit_shift) + low(*i), name=name)


def packed_weight(
    weight: np.ndarray, work: Conv2dWorkload, grouping: Grouping, config: VTAConfig
) -> np.ndarray:
    """The weight (O, I/groups, KH, KW) in the shape of `weight_shape`.

    It is int8, or integers of two int8 digits.
    """
    if not work.digit_shift:
        return pack_grouped(weight, work.groups, grouping, config)
    digits = split(weight, work.digit_shift)
    packed = [pack_grouped(digit, work.groups, grouping, config) for digit in digits]
    return np.ascontiguousarray(np.stack(packed, axis=1))


CONV2D = Conv2d()
