"""The bias of a convolution as one more product on the GEMM core, where its values allow that.

The ALU adds a tensor operand in two cycles a vector, the GEMM core multiplies in one.  A vector of
the input buffer that holds 127 in all lanes but a 1 in the last, times a block of weights for each
block of output channels, makes any sum of 127 times (block - 1) int8 values and one more: at 16
lanes every bias up to 242,062.  The products of the convolution are added to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from tvm import te, tirx
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import Var
from tvm_ffi import structural_map, structural_walk

from vta_byoc.base.rewrites import is_on
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.te.tir_builder import sequence
from vta_byoc.workload.im2col import LARGE
from vta_byoc.workload.memory import DRAM_INP, DRAM_WGT
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import CHANNEL, Conv2dWorkload, ConvWorkload, Epilogue

Convolution = TypeVar("Convolution", bound=ConvWorkload)
BIAS_GEMM = "bias_gemm"
BIAS = "bias"
"""Name of the constant array, and of the stage that computes it in the accumulators."""
BIASED = "biased"
"""The stage that adds bias and products."""


def reach(lanes: int) -> int:
    """The largest magnitude of a bias that ``lanes`` constant lanes make."""
    return LARGE * LARGE * (lanes - 1) + LARGE


def constant_lanes(lanes: int) -> np.ndarray:
    """The constant vector, (lanes,) int8."""
    return np.array([LARGE] * (lanes - 1) + [1], np.int8)


def bias_lanes(bias: np.ndarray, lanes: int) -> np.ndarray:
    """Weights (channels, lanes) int8 whose products with `constant_lanes` add up to ``bias``."""
    most = LARGE * (lanes - 1)
    rest = np.clip(np.rint(bias / LARGE).astype(np.int64), -most, most)
    found = np.zeros((len(bias), lanes), np.int8)
    found[:, -1] = bias - LARGE * rest
    for lane in range(lanes - 1):
        found[:, lane] = np.clip(rest, -LARGE, LARGE)
        rest = rest - found[:, lane]
    return found


def packed_bias(bias: np.ndarray, config: VTAConfig) -> list[np.ndarray]:
    """The constant vector (1, b, k) and the weights (O/k, k, k) of a bias (O,)."""
    k = config.block
    ones = np.broadcast_to(constant_lanes(k), (1, config.batch, k))
    full = np.zeros((blocks(len(bias), k) * k, k), np.int8)
    full[: len(bias)] = bias_lanes(bias, k)
    return [np.ascontiguousarray(ones), full.reshape(-1, k, k)]


# ---------------------------------------------------------------- choosing
def biased(
    work: Convolution, constants: Mapping[str, np.ndarray], lanes: int
) -> tuple[Convolution, dict[str, np.ndarray]] | None:
    """``work`` with its bias as a product of ``lanes`` lanes, and its constants.

    None where there is no bias, a value is too large or the rewrite is switched off.
    """
    steps = work.epilogue.steps
    if not is_on(BIAS_GEMM) or work.digit_shift or work.bias or lanes < 1:
        return None
    at = next((n for n, step in enumerate(steps) if step.operand == CHANNEL), None)
    # sums wrap, so that the order of additions is free
    if at is None or any(step.op != "add" or step.is_kept for step in steps[: at + 1]):
        return None
    number = sum(step.is_tensor for step in steps[:at])
    given = dict(constants)
    bias = given.pop(f"operand{number}")
    if int(np.abs(bias.astype(np.int64)).max()) > reach(lanes):
        return None
    for later in range(number + 1, len(work.epilogue.tensors)):
        given[f"operand{later - 1}"] = given.pop(f"operand{later}")
    epilogue = Epilogue((*steps[:at], *steps[at + 1 :]), work.epilogue.dtype)
    return dataclasses.replace(work, epilogue=epilogue, bias=True), {**given, BIAS: bias}


def in_idle_lanes(
    work: Conv2dWorkload, constants: Mapping[str, np.ndarray], block: int
) -> tuple[Conv2dWorkload, dict[str, np.ndarray], int] | None:
    """``work`` with the bias as products of channels that hold constants, and their number.

    They are the idle lanes of the last block of input channels; None where they are too few.
    """
    lanes = -work.in_channels % block
    found = biased(work, constants, lanes) if work.groups == 1 and not any(work.padding) else None
    if found is None:
        return None
    work, given = found
    weight, bias = given["weight"], given.pop(BIAS)
    more = np.zeros((len(weight), lanes, *weight.shape[2:]), weight.dtype)
    more[:, :, 0, 0] = bias_lanes(bias, lanes)
    given["weight"] = np.concatenate([weight, more], axis=1)
    channels = work.in_channels + lanes
    return dataclasses.replace(work, in_channels=channels, bias=False), given, lanes


# ---------------------------------------------------------------- what is computed
def bias_operands(channels: Sequence[int], config: VTAConfig) -> list[te.Tensor]:
    """Placeholders of the constant vector and of the weights of that many channel blocks."""
    k = config.block
    return [
        te.placeholder((1, config.batch, k), "int8", name="constant"),
        te.placeholder((*channels, k, k), "int8", name="bias_weight"),
    ]


def with_bias(acc: te.Tensor, constant: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """``acc`` (n, c, h, w, b, k) and the bias."""
    rk = te.reduce_axis((0, int(constant.shape[-1])), "rk_bias")

    def product(o: Var, bi: Var, bo: Var) -> Expr:
        left, right = constant[0, bi, rk].astype("int32"), weight[o, bo, rk].astype("int32")
        return te.sum(left * right, axis=rk)

    _, channels, _, _, b, k = acc.shape
    bias = te.compute((channels, b, k), product, name=BIAS)

    def biased(n: Var, c: Var, h: Var, w: Var, bi: Var, bo: Var) -> Expr:
        return acc[n, c, h, w, bi, bo] + bias[c, bi, bo]

    return te.compute(acc.shape, biased, name=BIASED)


# ---------------------------------------------------------------- how it is computed
def bias_scopes(work: ConvWorkload) -> tuple[str, ...]:
    """The DRAM scopes of the constant vector and of the weights, where there is a bias."""
    return (DRAM_INP, DRAM_WGT) if work.bias else ()


def bias_stage(shape: Sequence[int], constant: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The bias at every output (n, groups, co, h, w, b, k), which begins their sums."""
    rk = te.reduce_axis((0, int(constant.shape[-1])), "rk_bias")

    def product(_n: Var, g: Var, o: Var, _h: Var, _w: Var, bi: Var, bo: Var) -> Expr:
        left, right = constant[0, bi, rk].astype("int32"), weight[g, o, bo, rk].astype("int32")
        return te.sum(left * right, axis=rk)

    return te.compute(shape, product, name=BIAS)


def continued(func: tirx.PrimFunc, first: str, then: str) -> tirx.PrimFunc:
    """``func`` whose stage ``then`` adds to the accumulators of stage ``first``.

    Both are staged at one place, ``first`` before ``then``, and only their sum is read: ``then``
    is not cleared, and has no accumulators of its own.
    """
    found: dict[str, tirx.Buffer] = {}
    for name, buffer in written_by(func.body):
        found[name] = buffer
    kept, gone = found[f"{first}_update"], found[f"{then}_update"]

    def same(value: object, buffer: tirx.Buffer) -> bool:
        return isinstance(value, TensorLoad) and bool(value.source.same_as(buffer))

    def summed(value: tirx.Add) -> Expr:
        if same(value.a, gone) and same(value.b, kept):
            return value.b
        return value

    def without_clear(stmt: tirx.SeqStmt) -> tirx.Stmt:
        return sequence([part for part in stmt.seq if _block_of(part) != f"{then}_init"])

    def one_buffer(block: SBlock) -> SBlock:
        return without_buffer(block, gone)

    body = structural_map(func.body, (tirx.Add, summed))
    body = structural_map(body, (tirx.SeqStmt, without_clear))
    body = structural_map(body, (SBlock, one_buffer))
    body = structural_map(body, (tirx.Var, lambda var: kept if var.same_as(gone) else var))
    return func.with_body(body)


def without_buffer(block: SBlock, gone: tirx.Buffer) -> SBlock:
    """``block`` without the allocation of ``gone``."""
    buffers = [each for each in block.alloc_buffers if not each.same_as(gone)]
    return SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        block.body,
        block.init,
        buffers,
        block.match_buffers,
        block.annotations,
    )


def written_by(stmt: tirx.Stmt) -> list[tuple[str, tirx.Buffer]]:
    """Block and buffer of every store."""
    found: list[tuple[str, tirx.Buffer]] = []

    def visit(block: SBlock) -> None:
        if isinstance(block.body, tirx.BufferStore):
            found.append((str(block.name_hint), block.body.buffer))

    structural_walk(stmt, (SBlock, visit))
    return found


def _block_of(stmt: tirx.Stmt) -> str:
    """The name of the block that a nest is around, "" where it is none."""
    while isinstance(stmt, tirx.For):
        stmt = stmt.body
    return str(stmt.block.name_hint) if isinstance(stmt, SBlockRealize) else ""
