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
from vta_byoc.strategies.elementwise.elementwise import diagonals
from vta_byoc.strategies.pooling.max import scheduled_max
from vta_byoc.strategies.pooling.sum import choose_sum, digits_of, scheduled_sum, sum_space
from vta_byoc.strategies.pooling.tile_space import choose_max, max_space
from vta_byoc.strategies.te.base import (
    Part,
    Strategy,
    apply_steps,
    epilogue_constants,
    epilogue_operands,
    stored,
)
from vta_byoc.strategies.te.kernel import Kernel, Kernels, KernelSpace
from vta_byoc.strategies.te.window import Window, windows_of
from vta_byoc.workload.memory import DRAM_ACC, DRAM_INP, DRAM_WGT
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.workloads import PoolWorkload

INT8_LOW = -128


def compute(
    work: PoolWorkload, config: VTAConfig, _kernels: Kernels | None = None
) -> tirx.PrimFunc:
    """The pool of packed tensors: data, identity weight (unused here), operands of the epilogue."""
    data = te.placeholder(packed_shape(work.in_shapes[0], config), "int8", name="data")
    digits = (len(digits_of(work.factor)), 1, 1, 1, config.block, config.block)
    identity = te.placeholder(digits, "int8", name="identity")
    operands = epilogue_operands(work.epilogue.tensors, work.out_shape, config)
    value, _ = apply_steps(_definition(work, data, config), work.epilogue.steps, operands, "step")
    return te.create_prim_func([data, identity, *operands, stored(value, work.epilogue)])


def _definition(work: PoolWorkload, data: te.Tensor, config: VTAConfig) -> te.Tensor:
    rows, cols = windows_of(work.window)
    kh, kw = te.reduce_axis((0, rows.taps), "kh"), te.reduce_axis((0, cols.taps), "kw")
    low = INT8_LOW if work.kind == "max" else 0

    def position(window: Window, out: Var, tap: tirx.IterVar) -> Expr:
        return out * window.step + tap * window.dilation - window.before

    def pooled(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        y, x = position(rows, h, kh), position(cols, w, kw)
        inside = tirx.all(y >= 0, y < rows.size, x >= 0, x < cols.size)
        value = data[n, c, y, x, b, k].astype("int32")
        value = tirx.if_then_else(inside, value, tirx.const(low, "int32"))
        return (te.max if work.kind == "max" else te.sum)(value, axis=[kh, kw])

    shape = packed_shape(work.out_shape, config)
    value = te.compute(shape, pooled, name="pooled")
    if work.factor == 1:
        return value
    return te.compute(shape, lambda *i: value[i] * work.factor, name="scaled")


def chosen(work: PoolWorkload, config: VTAConfig, _tails: object = (), _calls: int = 1) -> Kernels:
    """The only kernel, by estimate."""
    choose = choose_max if work.kind == "max" else choose_sum
    return (Kernel(choose(work, config)),)


def spaces(
    work: PoolWorkload, config: VTAConfig, _tails: object = (), _calls: int = 1
) -> tuple[KernelSpace, ...]:
    """What the kernel could be."""
    space = max_space if work.kind == "max" else sum_space
    return (KernelSpace(((None, space(work, config)),)),)


def parts(
    work: PoolWorkload, config: VTAConfig, kernels: Kernels | None = None
) -> list[Part]:
    """One PrimFunc."""
    (kernel,) = kernels or chosen(work, config)
    scheduled = scheduled_max if work.kind == "max" else scheduled_sum
    func = scheduled(work, config, kernel.choice)
    return [Part(func, (*range(len(func.params) - 1), -1))]


def scopes(work: PoolWorkload) -> tuple[str, ...]:
    """Data, the identity, the operands of the epilogue."""
    return (DRAM_INP, DRAM_WGT, *(DRAM_ACC for _ in work.epilogue.tensors))


def constants(
    work: PoolWorkload,
    given: Mapping[str, np.ndarray],
    config: VTAConfig,
    _kernels: Kernels | None = None,
) -> list[np.ndarray]:
    """The identity times each digit (digits, 1, 1, 1, k, k), and "operand0", "operand1", ..."""
    digits = [digit for digit, _ in digits_of(work.factor)]
    return [diagonals(digits, config), *epilogue_constants(work.epilogue.tensors, given, config)]


def estimate(work: PoolWorkload, config: VTAConfig, kernels: Kernels | None = None) -> float:
    """Cycles of the chosen tile; VTAError where none fits."""
    return (kernels or chosen(work, config))[0].choice.cycles


POOL = Strategy(
    "pool", PoolWorkload, compute, parts, scopes, constants, estimate, chosen, spaces
)
