"""conv2d_transpose: one convolution of stride 1 for each phase of the output, no inserted zeros.

With stride s, outputs y = s * q + phase see only the taps t with dilation * t = phase + pad
(mod s), and those in steps of whole input pixels: a convolution of stride 1 with a part of the
kernel, whose result goes to every s-th row (column) of the output.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx
from tvm.tirx import Expr, Var

from vta_byoc.codegen import View, with_views
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.base import KernelFunction, LayerSchedule, LayerWork, Strategy
from vta_byoc.strategies.conv.bias import (
    BIAS,
    bias_operands,
    bias_scopes,
    biased,
    packed_bias,
    with_bias,
)
from vta_byoc.strategies.conv.conv2d import (
    CONV2D,
    ROLES,
    accumulators,
    cheapest_kernel,
    grouping_of,
    kernel_space,
    packed_weight,
    weight_shape,
)
from vta_byoc.strategies.conv.grouping import groupings
from vta_byoc.strategies.conv.schedule import has_taps
from vta_byoc.strategies.fused.consumer import RESULT, parameter_kinds
from vta_byoc.strategies.fused.implied import without_implied_clamps
from vta_byoc.strategies.fused.schedule import with_fused
from vta_byoc.strategies.te.definition import packed_operands, with_epilogue
from vta_byoc.strategies.te.kernel import Kernel, Kernels, KernelSpace
from vta_byoc.workload.memory import DRAM_WGT
from vta_byoc.workload.packing import blocks, packed_shape
from vta_byoc.workload.workloads import MAP, Conv2dWorkload, ConvTransposeWorkload


@dataclass(frozen=True)
class AxisPhase:
    """Outputs ``start``, ``start + stride``, ... (``count`` of them) along one axis.

    Output number q sees input q + m * dilation - before through tap ``taps[m]``.
    """

    start: int
    count: int
    taps: tuple[int, ...]
    dilation: int
    before: int


@dataclass(frozen=True)
class Phase:
    """A phase of the output: its rows, its columns and the convolution that computes them."""

    rows: AxisPhase
    cols: AxisPhase
    work: Conv2dWorkload

    @property
    def is_empty(self) -> bool:
        """Whether no tap reaches it: every output is the epilogue of 0."""
        return not has_taps(self.work)


def axis_phases(work: ConvTransposeWorkload, axis: int) -> list[AxisPhase]:
    """The phases of the rows (0) or columns (1) that have any output."""
    stride, dilation, pad = work.strides[axis], work.dilation[axis], work.padding[axis]
    out = work.out_shape[2 + axis]
    common = math.gcd(stride, dilation)
    phases = []
    for start in range(min(stride, out)):
        taps = [t for t in range(work.kernel[axis]) if (start + pad - dilation * t) % stride == 0]
        taps.reverse()
        first = (start + pad - dilation * taps[0]) // stride if taps else 0
        count = -(-(out - start) // stride)
        phases.append(AxisPhase(start, count, tuple(taps), dilation // common, -first))
    return phases


@functools.lru_cache(maxsize=1024)
def phases_of(work: ConvTransposeWorkload) -> tuple[Phase, ...]:
    """All phases, rows first."""
    pairs = itertools.product(axis_phases(work, 0), axis_phases(work, 1))
    return tuple(Phase(rows, cols, _phase_work(work, rows, cols)) for rows, cols in pairs)


def _phase_work(work: ConvTransposeWorkload, rows: AxisPhase, cols: AxisPhase) -> Conv2dWorkload:
    def behind(phase: AxisPhase, size: int) -> int:
        extent = (len(phase.taps) - 1) * phase.dilation + 1
        return phase.count - 1 + extent - size - phase.before

    return Conv2dWorkload(
        work.batch,
        work.in_channels,
        work.out_channels,
        work.height,
        work.width,
        (len(rows.taps), len(cols.taps)),
        (1, 1),
        (rows.before, cols.before, behind(rows, work.height), behind(cols, work.width)),
        (rows.dilation, cols.dilation),
        work.groups,
        work.epilogue,
        work.digit_shift,
        work.bias,
    )


class Conv2dTranspose(Strategy[ConvTransposeWorkload]):
    """A transposed convolution: a kernel for each phase of the output."""

    name = "conv2d_transpose"
    workload = ConvTransposeWorkload
    fuses = True

    def kernel_spaces(
        self, layer: LayerWork[ConvTransposeWorkload], config: VTAConfig
    ) -> tuple[KernelSpace, ...]:
        """One space a phase; fused consumers leave groups, and weights, as without."""
        work, fused = layer.work, layer.fused
        strides, phases = _out_strides(work), phases_of(work)
        found = [groupings(phase.work, config) for phase in phases]
        if fused:
            alone = self.choose(LayerWork(work), config).kernels
            found = [[grouping_of(kernel)] for kernel in alone]
        return tuple(
            kernel_space(LayerWork(phase.work, fused), config, each, strides)
            for phase, each in zip(phases, found, strict=True)
        )

    def cheapest(self, layer: LayerWork[ConvTransposeWorkload], config: VTAConfig) -> Kernels:
        """A kernel for each phase; equal phases have equal ones."""
        phases = phases_of(layer.work)
        spaces = self.spaces(layer, config)
        found: dict[Conv2dWorkload, Kernel] = {}
        for phase, space in zip(phases, spaces, strict=True):
            if phase.work not in found:
                found[phase.work] = cheapest_kernel(phase.work, space, config)
        return tuple(found[phase.work] for phase in phases)

    def definition(
        self, schedule: LayerSchedule[ConvTransposeWorkload], config: VTAConfig
    ) -> tirx.PrimFunc:
        """The packed result: data, a weight for each phase with taps, operands of the epilogue."""
        work = schedule.work
        (data,) = packed_operands(work, config)
        weights: list[te.Tensor] = []
        planes: list[te.Tensor | None] = []
        for number, (phase, kernel) in enumerate(_phases(schedule)):
            if phase.is_empty:
                planes.append(None)
                continue
            grouping = grouping_of(kernel)
            shape = weight_shape(phase.work, grouping, config)
            weights.append(te.placeholder(shape, "int8", name=f"weight{number}"))
            planes.append(accumulators(phase.work, data, weights[-1], grouping, f"acc{number}"))
        acc, inputs = _interleaved(work, planes, config), [data, *weights]
        if work.bias:
            inputs += bias_operands((blocks(work.out_channels, config.block),), config)
            acc = with_bias(acc, *inputs[-2:])
        return with_epilogue(inputs, acc, work, config)

    def weight_scopes(self, work: ConvTransposeWorkload) -> tuple[str, ...]:
        """A weight for each phase with taps; what makes a bias, for all of them."""
        return (DRAM_WGT,) * _weight_count(work) + bias_scopes(work)

    def bias_forms(
        self, work: ConvTransposeWorkload, given: Mapping[str, np.ndarray], config: VTAConfig
    ) -> list[tuple[ConvTransposeWorkload, dict[str, np.ndarray]]]:
        """With the constant vector."""
        found = biased(work, given, config.block)
        return [] if found is None else [found]

    def weights(
        self,
        schedule: LayerSchedule[ConvTransposeWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """Weights by phase, of "weight" (I, O/groups, KH, KW) int8, and what makes "bias" (O,)."""
        weight, groups = given["weight"], schedule.work.groups
        i, o, kh, kw = weight.shape
        split = weight.reshape(groups, i // groups, o, kh, kw).swapaxes(1, 2)
        swapped = split.reshape(groups * o, i // groups, kh, kw)
        packed = []
        for phase, kernel in _phases(schedule):
            if not phase.is_empty:
                part = swapped[:, :, list(phase.rows.taps)][:, :, :, list(phase.cols.taps)]
                packed.append(packed_weight(part, phase.work, grouping_of(kernel), config))
        return [*packed, *(packed_bias(given[BIAS], config) if schedule.work.bias else [])]

    def functions(
        self, schedule: LayerSchedule[ConvTransposeWorkload], config: VTAConfig
    ) -> list[KernelFunction]:
        """One PrimFunc for each phase, which writes its rows and columns of the result."""
        work, fused = schedule.work, schedule.fused
        bias = range(1 + _weight_count(work), 1 + len(self.weight_scopes(work)))
        first = 1 + len(self.weight_scopes(work))
        kinds = [*work.epilogue.tensors, *parameter_kinds(fused)]
        operands = tuple(range(first, first + len(kinds)))
        found, weight = [], 0
        for phase, kernel in _phases(schedule):
            own = without_implied_clamps(phase.work, fused)
            func = CONV2D.scheduled(LayerSchedule(own, kernels=(kernel,)), config)
            if fused:
                func = with_fused(func, fused, ROLES, config)
            inputs: tuple[int, ...] = ()
            if not phase.is_empty:
                weight += 1
                inputs = (0, weight)
            inputs += (*bias,)
            views = _views(work, phase, config, func, len(inputs), [*kinds, RESULT])
            args = (*inputs, *operands, -1)
            found.append(KernelFunction(with_views(func, views), args))
        return found


def _out_strides(work: ConvTransposeWorkload) -> tuple[int, int]:
    row, col = work.strides
    return row * work.out_width, col


def _weight_count(work: ConvTransposeWorkload) -> int:
    return sum(not phase.is_empty for phase in phases_of(work))


def _phases(
    schedule: LayerSchedule[ConvTransposeWorkload],
) -> list[tuple[Phase, Kernel]]:
    """The phases and their kernels."""
    return list(zip(phases_of(schedule.work), schedule.kernels, strict=True))


def _interleaved(
    work: ConvTransposeWorkload, planes: Sequence[te.Tensor | None], config: VTAConfig
) -> te.Tensor:
    """The accumulators of all phases, each at its rows and columns; 0 where a phase is empty."""
    row, col = work.strides
    columns = len(axis_phases(work, 1))

    def at(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        value: Expr = tirx.const(0, "int32")
        for number, plane in enumerate(planes):
            if plane is not None:
                at_row, at_col = divmod(number, columns)
                here = tirx.all(h % row == at_row, w % col == at_col)
                value = tirx.if_then_else(here, plane[n, c, h // row, w // col, b, k], value)
        return value

    return te.compute(packed_shape(work.out_shape, config), at, name="acc")


def _views(
    work: ConvTransposeWorkload,
    phase: Phase,
    config: VTAConfig,
    func: tirx.PrimFunc,
    first_operand: int,
    kinds: Sequence[str],
) -> dict[int, View]:
    """The result, and operands that differ by position, as the phase's rows and columns.

    ``kinds`` are those of all parameters from ``first_operand`` on.
    """
    width, (row, col) = work.out_width, work.strides
    unit = config.batch * config.block
    plane = work.out_height * width * unit
    offset = (phase.rows.start * width + phase.cols.start) * unit
    inner = (row * width * unit, col * unit, config.block, 1)
    views = {}
    for index, kind in enumerate(kinds, first_operand):
        shape = [int(d) for d in func.params[index].shape]
        outer = shape[:-4]
        if kind == MAP or len(shape) > 4:
            strides = [plane * math.prod(outer[i + 1 :]) for i in range(len(outer))]
            views[index] = View(offset, (*strides, *inner))
    return views


CONV2D_TRANSPOSE = Conv2dTranspose()
