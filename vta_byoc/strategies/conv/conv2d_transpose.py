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
from vta_byoc.strategies.conv import conv2d
from vta_byoc.strategies.conv.schedule import has_taps
from vta_byoc.strategies.fused.consumer import RESULT, Tail, refuse_pools, tail_kinds
from vta_byoc.strategies.fused.schedule import with_tails
from vta_byoc.strategies.te.base import (
    Part,
    Shared,
    Strategy,
    apply_steps,
    epilogue_constants,
    epilogue_operands,
    stored,
)
from vta_byoc.strategies.te.kernel import Kernel, Kernels, KernelSpace
from vta_byoc.workload.memory import DRAM_ACC, DRAM_INP, DRAM_WGT
from vta_byoc.workload.packing import packed_shape
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


def _phase_work(
    work: ConvTransposeWorkload, rows: AxisPhase, cols: AxisPhase
) -> Conv2dWorkload:
    def behind(phase: AxisPhase, size: int) -> int:
        reach = (len(phase.taps) - 1) * phase.dilation + 1
        return phase.count - 1 + reach - size - phase.before

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
    )


def _out_strides(work: ConvTransposeWorkload) -> tuple[int, int]:
    row, col = work.strides
    return row * work.out_width, col


def chosen(
    work: ConvTransposeWorkload,
    config: VTAConfig,
    tails: tuple[Tail, ...] = (),
    _calls: int = 1,
) -> Kernels:
    """A kernel for each phase, by estimate."""
    found, strides = [], _out_strides(work)
    for phase in phases_of(work):
        grouping, choice = conv2d.choose(phase.work, config, strides, tails)
        found.append(Kernel(choice, grouping))
    return tuple(found)


def spaces(
    work: ConvTransposeWorkload,
    config: VTAConfig,
    tails: tuple[Tail, ...] = (),
    _calls: int = 1,
) -> tuple[KernelSpace, ...]:
    """What the kernel of each phase could be."""
    strides = _out_strides(work)
    return tuple(
        conv2d.kernel_space(phase.work, config, strides, tails) for phase in phases_of(work)
    )


# ---------------------------------------------------------------- definition
def compute(
    work: ConvTransposeWorkload, config: VTAConfig, kernels: Kernels | None = None
) -> tirx.PrimFunc:
    """The packed result: data, a weight for each phase with taps, operands of the epilogue."""
    data = te.placeholder(packed_shape(work.in_shapes[0], config), "int8", name="data")
    weights: list[te.Tensor] = []
    planes: list[te.Tensor | None] = []
    kernels = kernels or chosen(work, config)
    for number, (phase, kernel) in enumerate(zip(phases_of(work), kernels, strict=True)):
        if phase.is_empty:
            planes.append(None)
            continue
        grouping = conv2d.grouping_of(kernel)
        shape = conv2d.weight_shape(phase.work, grouping, config)
        weights.append(te.placeholder(shape, "int8", name=f"weight{number}"))
        planes.append(conv2d.definition(phase.work, data, weights[-1], grouping, f"acc{number}"))
    operands = epilogue_operands(work.epilogue.tensors, work.out_shape, config)
    row, col = work.strides
    columns = len(axis_phases(work, 1))

    def interleaved(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        value: Expr = tirx.const(0, "int32")
        for number, plane in enumerate(planes):
            if plane is not None:
                at_row, at_col = divmod(number, columns)
                here = tirx.all(h % row == at_row, w % col == at_col)
                value = tirx.if_then_else(here, plane[n, c, h // row, w // col, b, k], value)
        return value

    shape = packed_shape(work.out_shape, config)
    value, _ = apply_steps(
        te.compute(shape, interleaved, name="acc"), work.epilogue.steps, operands, "step"
    )
    out = stored(value, work.epilogue)
    return te.create_prim_func([data, *weights, *operands, out])


def parts(
    work: ConvTransposeWorkload,
    config: VTAConfig,
    kernels: Kernels | None = None,
    tails: tuple[Tail, ...] = (),
) -> list[Part]:
    """One PrimFunc for each phase, which writes its rows and columns of the result."""
    phases = phases_of(work)
    weights = sum(not phase.is_empty for phase in phases)
    count = len(work.epilogue.tensors) + len(tail_kinds(tails))
    operands = tuple(range(1 + weights, 1 + weights + count))
    found, weight = [], 0
    for phase, kernel in zip(phases, kernels or chosen(work, config, tails), strict=True):
        grouping = conv2d.grouping_of(kernel)
        func = conv2d.scheduled(phase.work, config, grouping, kernel.choice)
        if tails:
            func = with_tails(func, tails, conv2d.ROLES, config)
        inputs: tuple[int, ...] = ()
        if not phase.is_empty:
            weight += 1
            inputs = (0, weight)
        kinds = [*work.epilogue.tensors, *tail_kinds(tails), RESULT]
        views = _views(work, phase, config, func, len(inputs), kinds)
        found.append(Part(with_views(func, views), (*inputs, *operands, -1)))
    return found


def _views(
    work: ConvTransposeWorkload,
    phase: Phase,
    config: VTAConfig,
    func: tirx.PrimFunc,
    first_operand: int,
    kinds: Sequence[str],
) -> dict[int, View]:
    """The result, and operands that differ by position, as the phase's rows and columns;
    ``kinds`` of all parameters from ``first_operand`` on."""
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


def scopes(work: ConvTransposeWorkload) -> tuple[str, ...]:
    """Data, the phases' weights and the operands of the epilogue."""
    weights = sum(not phase.is_empty for phase in phases_of(work))
    return (DRAM_INP, *[DRAM_WGT] * weights, *[DRAM_ACC] * len(work.epilogue.tensors))


def constants(
    work: ConvTransposeWorkload,
    given: Mapping[str, np.ndarray],
    config: VTAConfig,
    kernels: Kernels | None = None,
) -> list[np.ndarray]:
    """Weights by phase, of "weight" (I, O/groups, KH, KW) int8, and operands of "operand0" ..."""
    weight = given["weight"]
    i, o, kh, kw = weight.shape
    split = weight.reshape(work.groups, i // work.groups, o, kh, kw).swapaxes(1, 2)
    swapped = split.reshape(work.groups * o, i // work.groups, kh, kw)
    packed = []
    for phase, kernel in zip(phases_of(work), kernels or chosen(work, config), strict=True):
        if not phase.is_empty:
            part = swapped[:, :, list(phase.rows.taps)][:, :, :, list(phase.cols.taps)]
            grouping = conv2d.grouping_of(kernel)
            packed.append(conv2d.packed_weight(part, phase.work, grouping, config))
    return [*packed, *epilogue_constants(work.epilogue.tensors, given, config)]


def estimate(
    work: ConvTransposeWorkload, config: VTAConfig, kernels: Kernels | None = None
) -> float:
    """Cycles of all phases; VTAError where a tile does not fit."""
    return sum(kernel.choice.cycles for kernel in kernels or chosen(work, config))


def shared(
    work: ConvTransposeWorkload,
    tails: tuple[Tail, ...],
    config: VTAConfig,
    kernels: Kernels | None = None,
) -> Shared:
    """With consumers in the tiles of all phases."""
    refuse_pools(tails, "conv2d_transpose")
    taken = kernels or chosen(work, config, tails)
    cycles = sum(kernel.choice.cycles for kernel in taken)
    return Shared(cycles, lambda: parts(work, config, taken, tails))


CONV2D_TRANSPOSE = Strategy(
    "conv2d_transpose",
    ConvTransposeWorkload,
    compute,
    parts,
    scopes,
    constants,
    estimate,
    chosen,
    spaces,
    shared=shared,
)
