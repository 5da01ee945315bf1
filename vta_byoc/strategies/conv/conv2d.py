"""conv2d: any convolution; conv1d and dense layers are cases of it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from tvm import te, tirx
from tvm.tirx import Expr, Var

from vta_byoc.base.int8_digits import split
from vta_byoc.cost.search import Choice, best, keeps_weights
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.strategies.conv.grouping import Grouping, groupings, pack_grouped
from vta_byoc.strategies.conv.schedule import ConvVariant, conv_function, conv_schedule
from vta_byoc.strategies.conv.tile_space import conv_space, gemm_work, operands_at_sets
from vta_byoc.strategies.fused.consumer import Tail
from vta_byoc.strategies.fused.schedule import Roles, with_tails
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
from vta_byoc.workload.workloads import Conv2dWorkload

ROLES = Roles((1, 2), (3, 4))
"""Dimensions of the result: images, sets, channel blocks, rows, columns."""


@functools.lru_cache(maxsize=4096)
def choose(
    work: Conv2dWorkload,
    config: VTAConfig,
    out_strides: tuple[int, int] | None = None,
    tails: tuple[Tail, ...] = (),
    calls: int = 1,
) -> tuple[Grouping, Choice]:
    """How groups are joined and the tile, by estimate; VTAError where nothing fits.

    ``out_strides``: elements between rows and columns of a result that is part of a larger one;
    ``tails``: consumers that share the tiles; ``calls``: calls in a row that have their weights in
    common (with either, groups are joined, and weights packed, as without).
    """
    if tails or calls > 1:
        grouping, _ = choose(work, config, out_strides)
        space = conv_space(work, grouping, config, out_strides, tails, calls)
        return grouping, best(space, config)
    found: tuple[Grouping, Choice] | None = None
    refused: VTAError | None = None
    ways = groupings(work, config)
    for grouping in sorted(ways, key=lambda way: gemm_work(work, way, config)):
        if found and found[1].cycles <= gemm_work(work, grouping, config):
            break
        try:
            choice = best(conv_space(work, grouping, config, out_strides), config)
        except VTAError as err:
            refused = refused or err
            continue
        if found is None or choice.cycles < found[1].cycles:
            found = grouping, choice
    if found is None:
        assert refused is not None
        raise refused
    return found


def chosen(
    work: Conv2dWorkload, config: VTAConfig, tails: tuple[Tail, ...] = (), calls: int = 1
) -> Kernels:
    """The only kernel, by estimate."""
    grouping, choice = choose(work, config, tails=tails, calls=calls)
    return (Kernel(choice, grouping),)


def spaces(
    work: Conv2dWorkload, config: VTAConfig, tails: tuple[Tail, ...] = (), calls: int = 1
) -> tuple[KernelSpace, ...]:
    """What the kernel could be."""
    return (kernel_space(work, config, None, tails, calls),)


def kernel_space(
    work: Conv2dWorkload,
    config: VTAConfig,
    out_strides: tuple[int, int] | None,
    tails: tuple[Tail, ...],
    calls: int = 1,
) -> KernelSpace:
    """What a kernel could be; arguments as of :func:`choose`."""
    together = bool(tails) or calls > 1
    ways = [choose(work, config, out_strides)[0]] if together else groupings(work, config)
    spaces = [conv_space(work, way, config, out_strides, tails, calls) for way in ways]
    return KernelSpace(tuple(zip(ways, spaces, strict=True)))


def grouping_of(kernel: Kernel) -> Grouping:
    """How ``kernel`` joins groups."""
    assert kernel.grouping is not None
    return kernel.grouping


def compute(
    work: Conv2dWorkload, config: VTAConfig, kernels: Kernels | None = None
) -> tirx.PrimFunc:
    """The convolution of packed tensors: data, weight (sets * co, ci, KH, KW, k, k), operands.

    A weight of two digits is (sets * co, 2, ci, KH, KW, k, k), the upper digit first.
    """
    grouping = grouping_of((kernels or chosen(work, config))[0])
    data = te.placeholder(packed_shape(work.in_shapes[0], config), "int8", name="data")
    weight = te.placeholder(weight_shape(work, grouping, config), "int8", name="weight")
    operands = epilogue_operands(work.epilogue.tensors, work.out_shape, config)
    acc = definition(work, data, weight, grouping)
    value, _ = apply_steps(acc, work.epilogue.steps, operands, "step")
    out = stored(value, work.epilogue)
    return te.create_prim_func([data, weight, *operands, out])


def weight_shape(
    work: Conv2dWorkload, grouping: Grouping, config: VTAConfig
) -> tuple[int, ...]:
    """Shape of the packed weight."""
    k = config.block
    digits = (work.digits,) if work.digit_shift else ()
    return (grouping.sets * grouping.co, *digits, grouping.ci, *work.kernel, k, k)


def definition(
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

    shape = (n, grouping.sets * grouping.co, work.out_height, work.out_width, b, k)
    if not work.digit_shift:
        return te.compute(shape, lambda *i: mac((), i), name=name)
    high = te.compute(shape, lambda *i: mac((0,), i), name=f"{name}_high")
    low = te.compute(shape, lambda *i: mac((1,), i), name=f"{name}_low")
    return te.compute(shape, lambda *i: (high(*i) << work.digit_shift) + low(*i), name=name)


def scheduled(
    work: Conv2dWorkload, config: VTAConfig, grouping: Grouping, choice: Choice
) -> tirx.PrimFunc:
    """The convolution tiled as ``choice`` says: data, weight, operands, result."""
    func = conv_function(work, grouping, config, ConvVariant.parse(choice.variant))
    at_sets = operands_at_sets(work.epilogue, grouping, config)
    return conv_schedule(func, work, choice, at_sets)


def parts_for(
    work: Conv2dWorkload, config: VTAConfig, grouping: Grouping, choice: Choice
) -> list[Part]:
    """One PrimFunc, tiled as ``choice`` says."""
    func = scheduled(work, config, grouping, choice)
    return [Part(func, (*range(len(func.params) - 1), -1))]


def parts(
    work: Conv2dWorkload, config: VTAConfig, kernels: Kernels | None = None
) -> list[Part]:
    """One PrimFunc, with the best tile where no kernels are given."""
    (kernel,) = kernels or chosen(work, config)
    return parts_for(work, config, grouping_of(kernel), kernel.choice)


def scopes(work: Conv2dWorkload) -> tuple[str, ...]:
    """Data, weight and the operands of the epilogue."""
    return (DRAM_INP, DRAM_WGT, *(DRAM_ACC for _ in work.epilogue.tensors))


def constants(
    work: Conv2dWorkload,
    given: Mapping[str, np.ndarray],
    config: VTAConfig,
    kernels: Kernels | None = None,
) -> list[np.ndarray]:
    """Packed weight and operands of "weight" (O, I/groups, KH, KW), "operand0", ..."""
    grouping = grouping_of((kernels or chosen(work, config))[0])
    weight = packed_weight(given["weight"], work, grouping, config)
    return [weight, *epilogue_constants(work.epilogue.tensors, given, config)]


def packed_weight(
    weight: np.ndarray, work: Conv2dWorkload, grouping: Grouping, config: VTAConfig
) -> np.ndarray:
    """(O, I/groups, KH, KW) int8, or integers of two digits, in the shape of
    :func:`weight_shape`."""
    if not work.digit_shift:
        return pack_grouped(weight, work.groups, grouping, config)
    digits = split(weight, work.digit_shift)
    packed = [pack_grouped(digit, work.groups, grouping, config) for digit in digits]
    return np.ascontiguousarray(np.stack(packed, axis=1))


def estimate(
    work: Conv2dWorkload, config: VTAConfig, kernels: Kernels | None = None
) -> float:
    """Cycles of the chosen tile; VTAError where none fits."""
    return (kernels or chosen(work, config))[0].choice.cycles


def shared(
    work: Conv2dWorkload,
    tails: tuple[Tail, ...],
    config: VTAConfig,
    kernels: Kernels | None = None,
) -> Shared:
    """With consumers in its tiles."""
    return repeated(work, tails, 1, config, kernels)


def repeated(
    work: Conv2dWorkload,
    tails: tuple[Tail, ...],
    calls: int,
    config: VTAConfig,
    kernels: Kernels | None = None,
) -> Shared:
    """As one of ``calls`` calls in a row that have their weights in common."""
    (kernel,) = kernels or chosen(work, config, tails, calls)
    grouping, choice = grouping_of(kernel), kernel.choice
    space = conv_space(work, grouping, config, tails=tails, calls=calls)

    def parts() -> list[Part]:
        func = scheduled(work, config, grouping, choice)
        if tails:
            func = with_tails(func, tails, ROLES, config)
        return [Part(func, (*range(len(func.params) - 1), -1))]

    return Shared(choice.cycles, parts, choice if keeps_weights(space, choice) else None)


CONV2D = Strategy(
    "conv2d",
    Conv2dWorkload,
    compute,
    parts,
    scopes,
    constants,
    estimate,
    chosen,
    spaces,
    shared=shared,
    repeated=repeated,
)
