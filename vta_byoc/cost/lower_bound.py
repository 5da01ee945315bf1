"""The machine bound of a layer, from its shape alone: what no schedule can beat by much.

The larger of compute cycles and port cycles.  Compute: one cycle a GEMM step, none for a tap that
reads padding; for each output vector one for its reset, one for its bias and the ALU's cycles for
the other steps of its epilogue (a tensor operand 2, an immediate 1, as the timing parameters say).
Where lanes of the last block of input channels are idle the bias is free.  Port: every tensor once
over the memory port, of rows and columns that a kernel of one skips only what it sees.  Channels
and taps of a layer whose channels leave lanes idle fill the lanes together, as if all were folded;
a depthwise layer is one step a tap; max pooling as separable, one tensor operation a tap; one
operand of an elementwise operator as left on chip by the layer before, each other one as a step of
the GEMM core that adds it; one that is repeated is widened before it meets the result's vectors.
The ALU writes over its first operand: of two functions of one operand, the second has a copy.
What lies around counts (:class:`Around`): behind a pool of maxima an epilogue has the vectors that
the pool leaves, a sum implies the clamps before it, and a gate is known after all that it scales.
Instruction start-up, latencies, halos and partial tiles are not counted.

In a network a layer can find some of what it reads on chip: what the port moved while layers before
computed (:class:`Ahead`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vta_byoc.base.int8_digits import join_cycles
from vta_byoc.cost.program_bounds import (
    GEMM_CYCLES,
    RESET_CYCLES,
    attention_bound,
    nbytes_of,
    norm_bound,
    softmax_bound,
    vectors_of,
)
from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.packing import PLANES, blocks
from vta_byoc.workload.products import ProductWorkload, TransposeWorkload
from vta_byoc.workload.receptive import products_inside
from vta_byoc.workload.workloads import (
    CHANNEL,
    AttentionWorkload,
    ConcatWorkload,
    Conv2dWorkload,
    ConvTransposeWorkload,
    ElementwiseWorkload,
    Epilogue,
    GroupNormWorkload,
    MoveWorkload,
    NormWorkload,
    PoolWorkload,
    Shape,
    SoftmaxWorkload,
    Step,
    Workload,
)

CLAMPS = ("max", "min")
LINEAR = ("add", "mul", "shl")


@dataclass(frozen=True)
class Around:
    """The layers around one: the only one that reads its result on chip, those of its operands.

    Attributes:
        on_chip: the result need not visit DRAM.
        pooled: shape of what a pool of maxima makes of it, at once or behind operators of one
            operand; None where there is no pool.
        sums: the reader adds the result to another tensor.
        loads: no operand can be left on chip: another one, which is computed from all of it, is
            known later.
    """

    on_chip: bool = False
    pooled: Shape | None = None
    sums: bool = False
    loads: bool = False


NOTHING = Around()


@dataclass(frozen=True)
class Cycles:
    """Cycles of one layer at least: those of computing, and those of the memory port."""

    compute: int
    port: int

    @property
    def alone(self) -> int:
        """Cycles of the layer where nothing is loaded before it begins."""
        return max(self.compute, self.port)


class Ahead:
    """What the port can have moved ahead, over the layers of a network in their order.

    While a layer computes longer than it needs the port, weights and inputs of later ones can be
    loaded, as many as the SRAM of both holds.  A layer that waits for the port has so much less to
    wait for.
    """

    def __init__(self, config: VTAConfig):
        nbytes = config.wgt_depth * config.wgt_elem_bytes + config.inp_depth * config.inp_elem_bytes
        self._most = nbytes // config.timing.port_bytes
        self._moved = 0

    def bound(self, layer: Cycles) -> int:
        """Cycles of the next layer at least."""
        idle = layer.compute - layer.port
        moved = min(max(self._moved + idle, 0), self._most)
        spent, self._moved = max(self._moved - moved, 0), moved
        return layer.alone - spent


def bound(work: Workload, config: VTAConfig, around: Around = NOTHING) -> int:
    """Cycles that a layer of ``work`` takes at least on a machine of ``config``, alone."""
    return cycles(work, config, around).alone


def cycles(work: Workload, config: VTAConfig, around: Around = NOTHING) -> Cycles:
    """Cycles of computing a layer of ``work`` and of the port at least."""
    compute, nbytes = _BOUNDS[type(work)](work, config, around)
    return Cycles(compute, -(-nbytes // config.timing.port_bytes))


def _open_end(epilogue: Epilogue, around: Around) -> Epilogue:
    """``epilogue`` without the closing clamps that a sum can imply."""
    steps = epilogue.steps
    while around.sums and steps and steps[-1].op in CLAMPS:
        steps = steps[:-1]
    return dataclasses.replace(epilogue, steps=steps)


def _behind(work: Workload, config: VTAConfig, around: Around) -> int:
    """Vectors that the steps behind the sums have at least."""
    return vectors_of(around.pooled or work.out_shape, config)


def _steps(steps: tuple[Step, ...], config: VTAConfig) -> int:
    """ALU cycles a vector."""
    time = config.timing
    tensors = sum(isinstance(step.operand, str) for step in steps)
    return tensors * time.alu_tensor_cycles + (len(steps) - tensors) * time.alu_imm_cycles


def _epilogue(epilogue: Epilogue, config: VTAConfig) -> int:
    """Cycles a vector behind the sums; four byte planes of an int32 result take three shifts."""
    planes = (PLANES - 1) * config.timing.alu_imm_cycles if epilogue.dtype == "int32" else 0
    return _steps(epilogue.steps, config) + planes


def _operands(epilogue: Epilogue, channels: int, config: VTAConfig) -> int:
    """Bytes of per-channel operands (those per position are counted per channel too)."""
    return len(epilogue.tensors) * blocks(channels, config.block) * config.acc_elem_bytes


def _stored(work: Workload, config: VTAConfig, around: Around) -> int:
    if around.on_chip:
        return 0
    return nbytes_of(work.out_shape, config) * (PLANES if work.epilogue.dtype == "int32" else 1)


def _conv2d(work: Conv2dWorkload, config: VTAConfig, around: Around) -> tuple[int, int]:
    k, taps = config.block, math.prod(work.kernel)
    inputs, outputs = work.in_channels // work.groups, work.out_channels // work.groups
    together = max(1, k // outputs) if work.groups > 1 else 1
    steps = blocks(inputs * together, k)
    products, weights = steps * _products(work), steps * taps
    idle = work.groups == 1 and work.in_channels % k != 0
    if idle:
        folded = blocks(work.in_channels * taps, k)
        products = min(products, folded * work.out_height * work.out_width)
        weights = min(weights, folded)
    weights *= work.digits * blocks(work.out_channels, k)
    planes = blocks(work.batch, config.batch) * blocks(work.out_channels, k)
    seen = nbytes_of(_seen(work), config)
    if idle:  # the host can fold positions into the lanes that channels leave
        seen = blocks(work.batch, config.batch) * config.batch * math.prod(_seen(work)[1:])
    nbytes = seen + weights * config.wgt_elem_bytes
    nbytes += _operands(work.epilogue, work.out_channels, config) + _stored(work, config, around)
    each = _epilogue(_open_end(work.epilogue, around), config) + _bias(work, config, idle=idle)
    sums = planes * work.digits * products + _resets(work, config)
    return sums + _behind(work, config, around) * each, nbytes


def _product(work: ProductWorkload, config: VTAConfig, around: Around) -> tuple[int, int]:
    """Both operands are tensors."""
    vectors = vectors_of(work.out_shape, config)
    sums = blocks(work.in_channels // work.groups, config.block)
    nbytes = sum(nbytes_of(shape, config) for shape in work.in_shapes)
    nbytes += _operands(work.epilogue, work.out_channels, config) + _stored(work, config, around)
    each = _epilogue(_open_end(work.epilogue, around), config)
    compute = vectors * (sums * GEMM_CYCLES + RESET_CYCLES)
    return compute + _behind(work, config, around) * each, nbytes


def _transpose(work: TransposeWorkload, config: VTAConfig, around: Around) -> tuple[int, int]:
    """A product with the identity for each vector."""
    vectors = vectors_of(work.out_shape, config)
    reads = sum(nbytes_of(shape, config) for shape in work.in_shapes)
    nbytes = reads + _stored(work, config, around)
    return vectors * (GEMM_CYCLES + RESET_CYCLES), nbytes


def _resets(work: Conv2dWorkload | ConvTransposeWorkload, config: VTAConfig) -> int:
    """Cycles of clearing the accumulators, and of joining the sums of two digits."""
    return vectors_of(work.out_shape, config) * (RESET_CYCLES + _join(work, config))


def _products(work: Conv2dWorkload) -> int:
    """Pairs of an output position and a tap that read the input, over one plane."""
    rows = (work.out_height, work.height, work.kernel[0], work.strides[0], work.dilation[0])
    cols = (work.out_width, work.width, work.kernel[1], work.strides[1], work.dilation[1])
    top, left, _, _ = work.padding
    return products_inside(*rows, top) * products_inside(*cols, left)


def _bias(
    work: Conv2dWorkload | ConvTransposeWorkload, config: VTAConfig, *, idle: bool = False
) -> int:
    """What a bias costs less on the GEMM core than as the tensor operand that it is counted as."""
    least = 0 if idle else GEMM_CYCLES
    if work.bias:
        return least
    steps = work.epilogue.steps
    adds = itertools.takewhile(lambda step: step.op == "add", steps)
    if work.digit_shift or not any(step.operand == CHANNEL for step in adds):
        return 0
    return least - config.timing.alu_tensor_cycles


def _join(work: Conv2dWorkload | ConvTransposeWorkload, config: VTAConfig) -> int:
    """Cycles a vector of the reset of a second digit's sums and of joining both."""
    return RESET_CYCLES + join_cycles(config)[0] if work.digit_shift else 0


def _seen(work: Conv2dWorkload) -> Shape:
    """The part of the input that the kernel sees."""
    n, c, height, width = work.in_shapes[0]
    rows = work.out_height if work.kernel[0] == 1 else height
    cols = work.out_width if work.kernel[1] == 1 else width
    return n, c, min(rows, height), min(cols, width)


def _conv_transpose(
    work: ConvTransposeWorkload, config: VTAConfig, around: Around
) -> tuple[int, int]:
    k = config.block
    outputs = work.out_channels // work.groups
    together = max(1, k // outputs) if work.groups > 1 else 1
    inputs = blocks(work.in_channels // work.groups * together, k) * work.digits
    taps, products = math.prod(work.kernel), 1
    for axis, size in enumerate((work.height, work.width)):
        stride, dilation, pad = work.strides[axis], work.dilation[axis], work.padding[axis]
        out = work.out_shape[2 + axis]
        products *= products_inside(size, out, work.kernel[axis], stride, dilation, pad)
    planes = blocks(work.batch, config.batch) * blocks(work.out_channels, k)
    gemm = planes * inputs * products
    weights = inputs * blocks(work.out_channels, k) * taps * config.wgt_elem_bytes
    nbytes = nbytes_of(work.in_shapes[0], config) + weights + _stored(work, config, around)
    nbytes += _operands(work.epilogue, work.out_channels, config)
    each = _epilogue(_open_end(work.epilogue, around), config) + _bias(work, config)
    return gemm + _resets(work, config) + _behind(work, config, around) * each, nbytes


def _elementwise(work: ElementwiseWorkload, config: VTAConfig, around: Around) -> tuple[int, int]:
    """A sum costs no more than the products that add the other operands.

    Their factors are in the weights of these products; in front of anything else they are steps,
    and so they are where both sides are functions of one operand that is left on chip.
    """
    time, others = config.timing, work.operands - 1
    steps = _open_end(work.epilogue, around).steps
    joined = 0
    of_one = len({side.operand for side in work.prologues}) < len(work.prologues)
    if work.op != "add" or of_one:
        whole = [side for side in work.prologues if not work.repeated(side.operand)]
        steps = (*(s for side in whole for s in side.steps), *steps)
        joined = 0 if work.op is None else time.alu_tensor_cycles
        others = min(others, max(len({side.operand for side in whole}) - 1, 0))
        joined += _copy(work, config) if of_one else 0
    each = others * GEMM_CYCLES + _steps(steps, config) + joined
    loaded = sorted(nbytes_of(shape, config) for shape in work.in_shapes)
    if around.loads:
        each += RESET_CYCLES + GEMM_CYCLES
    else:
        loaded.pop()
    if of_one and work.op == "add":
        each = min([each, *_with_line(work, steps, config)])
    nbytes = sum(loaded) + _stored(work, config, around)
    return _behind(work, config, around) * each, nbytes


def _with_line(
    work: ElementwiseWorkload, steps: tuple[Step, ...], config: VTAConfig
) -> Iterator[int]:
    """Cycles a vector of sums in which a side is a straight line: one more product of the operand.

    The operand is loaded; `steps` are those of all sides and of the epilogue.
    """
    products = RESET_CYCLES + 2 * GEMM_CYCLES
    for side in work.prologues:
        if all(step.op in LINEAR and not isinstance(step.operand, str) for step in side.steps):
            yield products + _steps(steps, config) - _steps(side.steps, config)


def _copy(work: ElementwiseWorkload, config: VTAConfig) -> int:
    """Cycles a vector of a second copy of an operand: cleared and added.

    A clamp at 0 that comes first copies and clamps in one.
    """
    firsts = [side.steps[0] for side in work.prologues if side.steps]
    clamps = any(step.op in CLAMPS and step.operand == 0 for step in firsts)
    return RESET_CYCLES + config.timing.alu_tensor_cycles - clamps * config.timing.alu_imm_cycles


def _pool(work: PoolWorkload, config: VTAConfig, around: Around) -> tuple[int, int]:
    inputs, outputs = work.in_shapes[0], work.out_shape
    vectors = vectors_of(outputs, config)
    nbytes = _stored(work, config, around)
    if work.kind == "sum":
        # the digits of the factor, a shift between
        again = 2 if max(work.factor, *work.factors, 1) > 1 else 1
        taps = again * math.prod(work.kernel) + (again - 1) * config.timing.alu_imm_cycles
        each = RESET_CYCLES + taps + _epilogue(work.epilogue, config)
        return vectors * each, nbytes
    n, c, _, width = outputs
    rows = vectors_of((n, c, inputs[2], width), config) * (work.kernel[1] - 1)
    columns = vectors * (work.kernel[0] - 1)
    return (rows + columns) * config.timing.alu_tensor_cycles, nbytes


def _concat(work: ConcatWorkload, config: VTAConfig, around: Around) -> tuple[int, int]:
    """Nothing: the operands can be stored side by side."""
    return 0, 0


def _move(work: MoveWorkload, config: VTAConfig, around: Around) -> tuple[int, int]:
    """The port alone: what is copied is read and written."""
    reads = sum(nbytes_of(shape, config) for shape in work.in_shapes)
    return 0, reads + nbytes_of(work.out_shape, config)


_BOUNDS: dict[type[Workload], Callable[..., tuple[int, int]]] = {
    Conv2dWorkload: _conv2d,
    ProductWorkload: _product,
    TransposeWorkload: _transpose,
    ConvTransposeWorkload: _conv_transpose,
    ElementwiseWorkload: _elementwise,
    PoolWorkload: _pool,
    NormWorkload: norm_bound,
    GroupNormWorkload: norm_bound,
    SoftmaxWorkload: softmax_bound,
    AttentionWorkload: attention_bound,
    ConcatWorkload: _concat,
    MoveWorkload: _move,
}
