"""concat: int8 tensors joined along the channels.

Packed, a range of channels is a range of the result, so an operand that a layer of the same region
stores can be stored right there: :func:`homes` says where.  What cannot (an input of the region, a
tensor that several concats hold) is copied by the GEMM core, as an elementwise operator without
steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import te, tirx

from vta_byoc.codegen import View, with_views
from vta_byoc.codegen.linear import row_major
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.elementwise.elementwise import choose, diagonals, scheduled, tile_space
from vta_byoc.strategies.te.base import Part, Strategy
from vta_byoc.strategies.te.kernel import Kernel, Kernels, KernelSpace
from vta_byoc.workload.memory import DRAM_INP, DRAM_WGT
from vta_byoc.workload.packing import blocks, packed_shape
from vta_byoc.workload.workloads import ConcatWorkload, ElementwiseWorkload, Side


def compute(
    work: ConcatWorkload, config: VTAConfig, _kernels: Kernels | None = None
) -> tirx.PrimFunc:
    """The operands side by side; the weights of the copies are not used here."""
    data = [
        te.placeholder(packed_shape(shape, config), "int8", name=f"data{i}")
        for i, shape in enumerate(work.in_shapes)
    ]
    k = config.block
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


def _firsts(work: ConcatWorkload, config: VTAConfig) -> list[int]:
    """First channel block of each operand in the result."""
    counts = [blocks(c, config.block) for c in work.channels]
    return [sum(counts[:i]) for i in range(len(counts))]


def homes(work: ConcatWorkload, config: VTAConfig) -> list[int | None]:
    """Scalar offset of each operand in the result, where it is one range of it."""
    if blocks(work.batch, config.batch) > 1:
        return [None] * len(work.channels)
    return [first * _plane(work, config) for first in _firsts(work, config)]


def _plane(work: ConcatWorkload, config: VTAConfig) -> int:
    """Scalars of one channel block."""
    return work.height * work.width * config.batch * config.block


def _copy(work: ConcatWorkload, index: int, config: VTAConfig) -> ElementwiseWorkload:
    """One operand of one block of images as an elementwise operator without steps."""
    channels = work.channels[index]
    return ElementwiseWorkload(config.batch, channels, work.height, work.width, (Side(0),))


def chosen(
    work: ConcatWorkload, config: VTAConfig, _tails: object = (), _calls: int = 1
) -> Kernels:
    """A kernel for the copy of each operand, by estimate."""
    copies = (_copy(work, i, config) for i in range(len(work.channels)))
    return tuple(Kernel(choose(copy, config)) for copy in copies)


def spaces(
    work: ConcatWorkload, config: VTAConfig, _tails: object = (), _calls: int = 1
) -> tuple[KernelSpace, ...]:
    """What the kernel of each copy could be."""
    copies = (_copy(work, i, config) for i in range(len(work.channels)))
    return tuple(KernelSpace(((None, tile_space(copy, config)),)) for copy in copies)


def parts(
    work: ConcatWorkload, config: VTAConfig, kernels: Kernels | None = None
) -> list[Part]:
    """A copy of each operand, block of images by block of images."""
    plane, scales = _plane(work, config), len(work.channels)
    total = blocks(sum(work.channels), config.block) * plane
    found, taken = [], kernels or chosen(work, config)
    for i, (first, kernel) in enumerate(zip(_firsts(work, config), taken, strict=True)):
        func = scheduled(_copy(work, i, config), config, kernel.choice)
        size = blocks(work.channels[i], config.block) * plane
        steps = [tuple(row_major([int(d) for d in func.params[p].shape])) for p in (0, 2)]
        for n in range(blocks(work.batch, config.batch)):
            views = {
                0: View(n * size, steps[0]),
                2: View(n * total + first * plane, steps[1]),
            }
            found.append(Part(with_views(func, views), (i, scales, -1)))
    return found


def scopes(work: ConcatWorkload) -> tuple[str, ...]:
    """The operands and the unit weight of the copies."""
    return (DRAM_INP,) * len(work.channels) + (DRAM_WGT,)


def constants(
    work: ConcatWorkload,
    given: Mapping[str, np.ndarray],
    config: VTAConfig,
    _kernels: Kernels | None = None,
) -> list[np.ndarray]:
    """The unit weight."""
    return [diagonals((1,), config)]


def estimate(work: ConcatWorkload, config: VTAConfig, kernels: Kernels | None = None) -> float:
    """Cycles of copying all operands; those at home cost nothing."""
    images = blocks(work.batch, config.batch)
    taken = kernels or chosen(work, config)
    return float(images * sum(kernel.choice.cycles for kernel in taken))


CONCAT = Strategy(
    "concat",
    ConcatWorkload,
    compute,
    parts,
    scopes,
    constants,
    estimate,
    chosen,
    spaces,
    homes,
)
