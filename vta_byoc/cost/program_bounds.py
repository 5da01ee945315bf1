"""The bounds of layers that are programs of steps: normalizations, softmax and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.attention import result_steps, score_steps, share_steps
from vta_byoc.ir.programs import Instructions
from vta_byoc.workload.norms import element_steps, token_steps
from vta_byoc.workload.packing import blocks, packed_shape
from vta_byoc.workload.workloads import AttentionWorkload, NormWorkload, Shape, SoftmaxWorkload

RESET_CYCLES = GEMM_CYCLES = 1
"""Cycles a vector of clearing an accumulator and of a product: micro-ops of the GEMM core
(docs/timing.md)."""


def vectors_of(shape: Shape, config: VTAConfig) -> int:
    """How many vectors a tensor of ``shape`` has."""
    n, c, h, w = shape
    return blocks(n, config.batch) * blocks(c, config.block) * h * w


def nbytes_of(shape: Shape, config: VTAConfig) -> int:
    """Bytes of a packed tensor of ``shape``."""
    return math.prod(packed_shape(shape, config))


def norm_bound(work: NormWorkload, config: VTAConfig, _around: object) -> tuple[int, int]:
    """Two readings of the data: for the sums, the squares added up, and for the result."""
    time, vectors = config.timing, vectors_of(work.out_shape, config)
    sums = work.sums(config.batch, config.block)
    reads = GEMM_CYCLES * (2 + work.centred) + 2 * RESET_CYCLES
    squares = 2 * time.alu_tensor_cycles
    cycles = vectors * (reads + squares + _program(element_steps(work), work.numbers, config))
    nbytes = 2 * nbytes_of(work.out_shape, config)
    return cycles + sums * _program(token_steps(work), {}, config), nbytes


def attention_bound(
    work: AttentionWorkload, config: VTAConfig, _around: object
) -> tuple[int, int]:
    """Both products, the steps of scores that are seen and of results, each operand once."""
    time, k, numbers = config.timing, work.block, work.attention
    seen = [(min(work.keys, count * k), count) for _, count in work.seen_together(1)]
    scores = work.groups * sum(keys for keys, _ in seen)
    mixed = work.groups * work.query_blocks * work.width
    products = work.groups * sum(count for _, count in seen) * work.width
    each = RESET_CYCLES + GEMM_CYCLES * (work.depth // k) + time.alu_tensor_cycles
    each += _program((*score_steps(numbers), *share_steps(numbers)), {}, config)
    each += (GEMM_CYCLES + time.alu_imm_cycles) * bool(work.hiding)
    last = RESET_CYCLES + _program(result_steps(numbers), {}, config)
    nbytes = sum(nbytes_of(shape, config) for shape in (*work.in_shapes, work.out_shape))
    return scores * each + products * GEMM_CYCLES + mixed * last, nbytes


def softmax_bound(work: SoftmaxWorkload, config: VTAConfig, _around: object) -> tuple[int, int]:
    """Scores widened, the largest, the steps of shares, their sum, and those of results."""
    time, softmax, (n, c, h, w) = config.timing, work.softmax, work.out_shape
    places = {2: (n, c, 1, w), 3: (n, c, h, 1)}[work.axis]
    sums = vectors_of(places, config)
    each = RESET_CYCLES + GEMM_CYCLES + 2 * time.alu_tensor_cycles
    each += _program((*softmax.share, *softmax.result), {}, config)
    once = _program((*softmax.room, *softmax.rate), {}, config)
    return sums * (work.keys * each + once), 2 * nbytes_of(work.out_shape, config)


def _program(steps: Instructions, numbers: Mapping[str, int], config: VTAConfig) -> int:
    """Cycles a vector of a program's instructions; those of `numbers` are immediates."""
    time = config.timing
    immediate = [isinstance(each.right, int) or each.right in numbers for each in steps]
    return sum(time.alu_imm_cycles if one else time.alu_tensor_cycles for one in immediate)
