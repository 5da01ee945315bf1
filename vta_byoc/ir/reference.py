"""Run a module on this machine's CPU, fast enough to be the reference of every test.

TVM's default pipeline computes convolutions as seven plain loops (0.8 s for an integer
ResNet-18), and a matmul along the rows of its weights (0.8 s for 25088 x 4096).  Here each conv2d
and matmul with constant weights gets a schedule: the same sum of products, with output channels
as vector lanes, a few columns in registers, and the rest over all cores.  Everything else is the
default pipeline.  Nothing of the accelerator's flow is shared.

A quantized module may hold float operators, which round the same way here as in an executable:
multiplications and additions are never contracted, and where LLVM's optimizations could change a
bit (`vta_byoc.ir.optimization`) they are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax, te, tirx

from vta_byoc.hw.sim.target import X86, arch, exact_target, native_target, unoptimized_target
from vta_byoc.ir.bindings import is_constant, op_name, static_shape
from vta_byoc.ir.float_modules import computes_floats, computes_integers
from vta_byoc.ir.host_loops import TIR_PIPELINE, without_asserts
from vta_byoc.ir.machine_code import linked
from vta_byoc.ir.optimization import Worth, worth
from vta_byoc.ir.plain_schedule import PlainSchedule

LANES = 16
COLUMNS = 8
"""At most this many output columns are accumulated at a time."""
CACHE_LINE = 64


def build_reference(mod: tvm.IRModule, runs: float = 1) -> relax.VMExecutable:
    """Build a float or integer module for the host CPU.

    Args:
        mod: a module with one straight-line `main`.
        runs: about how often it will run; LLVM's optimizations are left out where they would take
            longer than they save. No integer depends on it.

    Returns:
        relax.VMExecutable; `relax.VirtualMachine(exe, tvm.cpu())["main"]` takes the inputs in
        order.
    """
    return _built(mod, runs >= worth_of(mod).runs)


class ReferenceMachine:
    """A module on the host CPU: built quickly, and with LLVM's optimizations once these pay.

    Both builds give the same bits.  As nobody knows beforehand how many samples there will be, the
    second is made when the runs so far have lost about as much time as it takes.  A float module is
    built once, as on processors that contract products and sums its last bits may depend on that.

    Args:
        mod: a module with one straight-line `main`.
        floats: for how many runs a module is built whose bits may depend on the build.
    """

    def __init__(self, mod: tvm.IRModule, floats: float = math.inf) -> None:
        found = worth_of(mod)
        self._mod, self._enough, self._runs = mod, found.runs, 0
        if found.settled:
            self._enough = 0 if floats >= found.runs else math.inf
        self._machine: relax.VirtualMachine | None = None

    def for_next_run(self) -> relax.VirtualMachine:
        """The machine for one more run; compiles the module where that is due."""
        before, self._runs = self._runs >= self._enough, self._runs + 1
        optimized = self._runs >= self._enough
        if self._machine is None or optimized != before:
            self._machine = None  # its constants go before they come again
            self._machine = relax.VirtualMachine(_built(self._mod, optimized), tvm.cpu())
        return self._machine


def worth_of(mod: tvm.IRModule) -> Worth:
    """How many runs of a module LLVM's optimizations are worth on this machine."""
    return worth(mod, is_scheduled, contracts_all=arch(native_target()) not in X86)


def _target(mod: tvm.IRModule, optimized: bool) -> tvm.target.Target:
    target = native_target() if optimized else unoptimized_target()
    return exact_target(target) if computes_integers(mod) and computes_floats(mod) else target


def _built(mod: tvm.IRModule, optimized: bool) -> relax.VMExecutable:
    target = _target(mod, optimized)
    with target:
        mod = relax.transform.LegalizeOps(LEGALIZATIONS)(mod)
    with without_asserts():
        return linked(relax.build(mod, target, tir_pipeline=TIR_PIPELINE))


def is_scheduled(call: relax.Expr) -> bool:
    """Whether a convolution or a matrix product gets a schedule here."""
    if op_name(call) == "relax.nn.conv2d":
        attrs = call.attrs
        layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
        whole = attrs.groups == 1 and is_constant(call.args[1])
        return bool(layouts == ("NCHW", "OIHW", "NCHW") and whole)
    if op_name(call) == "relax.matmul":
        return _matmul_lanes(call.args[1]) is not None and call.args[0].ty.ndim >= 2
    return False


def legalize_conv2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """conv2d NCHW x constant OIHW as a scheduled PrimFunc; other forms as TVM legalizes them."""
    if not is_scheduled(call):
        return tvm.ir.Op.get("relax.nn.conv2d").get_attr("FLegalize")(builder, call)
    weight = call.args[1].value.numpy()
    columns = _columns(static_shape(call)[3])
    function = _scheduled(_conv2d(call, weight.shape, columns), columns)
    packed = relax.const(_packed_weight(weight))
    return relax.call_tir(
        builder.add_func(function, "conv2d"), [call.args[0], packed], out_ty=call.ty
    )


def legalize_matmul(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A matmul with constant weights [K, M] as a scheduled PrimFunc; other forms as TVM does it."""
    data, weight = call.args
    lanes = _matmul_lanes(weight)
    if lanes is None or not is_scheduled(call):
        return tvm.ir.Op.get("relax.matmul").get_attr("FLegalize")(builder, call)
    function = _scheduled_matmul(_matmul(call), lanes)
    return relax.call_tir(builder.add_func(function, "matmul"), [data, weight], out_ty=call.ty)


LEGALIZATIONS = {"relax.nn.conv2d": legalize_conv2d, "relax.matmul": legalize_matmul}
"""For `LegalizeOps`: operators that deserve better than TVM's plain loops on a CPU."""


def _packed_weight(weight: np.ndarray) -> np.ndarray:
    """[O, I, KH, KW] -> [O/16, I, KH, KW, 16], filled with zero channels."""
    missing = -weight.shape[0] % LANES
    padded = np.pad(weight, [(0, missing)] + [(0, 0)] * 3)
    groups = padded.reshape(-1, LANES, *weight.shape[1:])
    return np.ascontiguousarray(groups.transpose(0, 2, 3, 4, 1))


def _columns(width: int) -> int:
    """How many columns to accumulate at a time: least waste, then most."""
    return min(range(1, COLUMNS + 1), key=lambda size: (-(-width // size) * size, -size))


def _conv2d(call: relax.Call, kernel: tuple[int, ...], columns: int) -> tirx.PrimFunc:
    """PrimFunc (data, packed weight) -> result; the width is filled to a multiple of `columns`."""
    batch, outputs, rows, width = static_shape(call)
    (sh, sw), (dh, dw) = (map(int, pair) for pair in (call.attrs.strides, call.attrs.dilation))
    channels, kh, kw = kernel[1:]
    groups, wide = -(-outputs // LANES), -(-width // columns) * columns
    dtype, acc = str(call.args[0].ty.dtype), str(call.ty.dtype)

    data = te.placeholder(static_shape(call.args[0]), dtype, "data")
    weight = te.placeholder((groups, channels, kh, kw, LANES), dtype, "weight")
    read = ((rows - 1) * sh + (kh - 1) * dh + 1, (wide - 1) * sw + (kw - 1) * dw + 1)
    padded = _padded(data, read, call.attrs.padding)
    c, r, s = te.reduce_axis((0, channels)), te.reduce_axis((0, kh)), te.reduce_axis((0, kw))
    product = te.compute(
        (batch, groups, rows, wide, LANES),
        lambda n, o, y, x, lane: te.sum(
            padded[n, c, y * sh + r * dh, x * sw + s * dw].astype(acc)
            * weight[o, c, r, s, lane].astype(acc),
            axis=[c, r, s],
        ),
        name="product",
    )
    result = te.compute(
        (batch, outputs, rows, width),
        lambda n, o, y, x: product[n, o // LANES, y, x, o % LANES],
        name="result",
    )
    return te.create_prim_func([data, weight, result])


def _padded(data: te.Tensor, size: tuple[int, int], padding: Sequence[int]) -> te.Tensor:
    """The window (height, width) that is read of `data` padded with zeros."""
    batch, channels, height, width = data.shape
    top, left = int(padding[0]), int(padding[1])
    return te.compute(
        (batch, channels, *size),
        lambda n, c, y, x: tvm.tirx.if_then_else(
            tvm.tirx.all(y >= top, y - top < height, x >= left, x - left < width),
            data[n, c, y - top, x - left],
            tvm.tirx.const(0, data.dtype),
        ),
        name="padded",
    )


def _scheduled(function: tirx.PrimFunc, columns: int) -> tirx.PrimFunc:
    """Rows of 16 output channels over the cores; `columns` of them in vector registers."""
    # Opaque (8): fused with what follows, the product would be scheduled as plain loops again.
    sch = PlainSchedule(function.with_attr("op_pattern", 8))
    product = sch.get_sblock("product")
    n, o, y, x, lane, c, r, s = sch.get_loops(product)
    xo, xi = sch.split(x, [None, columns])
    sch.reorder(n, o, y, xo, c, r, s, xi, lane)
    sch.parallel(sch.fuse(n, o, y))
    sch.unroll(xi)
    sch.vectorize(lane)
    registers = sch.cache_write(product, 0, "local")
    sch.reverse_compute_at(registers, xo)
    sch.decompose_reduction(product, c)
    return sch.mod["main"].without_attr("global_symbol")


def _matmul_lanes(weight: relax.Expr) -> int | None:
    """Columns of the weights in one vector: at most a cache line of int8; None if too few."""
    if not is_constant(weight) or len(weight.value.shape) != 2:
        return None
    columns = weight.value.shape[1]
    lanes = max(size for size in range(1, CACHE_LINE + 1) if columns % size == 0)
    return lanes if lanes >= COLUMNS else None


def _matmul(call: relax.Call) -> tirx.PrimFunc:
    """PrimFunc (data [..., K], weight [K, M]) -> [..., M]."""
    (shape, kernel), acc = (static_shape(arg) for arg in call.args), str(call.ty.dtype)
    dtype = str(call.args[0].ty.dtype)
    data = te.placeholder(shape, dtype, "data")
    weight = te.placeholder(kernel, dtype, "weight")
    k = te.reduce_axis((0, kernel[0]), "k")
    result = te.compute(
        (*shape[:-1], kernel[1]),
        lambda *index: te.sum(
            data[(*index[:-1], k)].astype(acc) * weight[k, index[-1]].astype(acc), axis=k
        ),
        name="product",
    )
    return te.create_prim_func([data, weight, result])


def _scheduled_matmul(function: tirx.PrimFunc, lanes: int) -> tirx.PrimFunc:
    """Columns over the cores, `lanes` of them in registers while the rows of weights stream."""
    # Opaque, as in `_scheduled`.
    sch = PlainSchedule(function.with_attr("op_pattern", 8))
    product = sch.get_sblock("product")
    *rows, column, k = sch.get_loops(product)
    outer, inner = sch.split(column, [None, lanes])
    sch.reorder(outer, *rows, k, inner)
    sch.parallel(outer)
    sch.vectorize(inner)
    registers = sch.cache_write(product, 0, "local")
    sch.reverse_compute_at(registers, rows[-1])
    sch.decompose_reduction(product, k)
    return sch.mod["main"].without_attr("global_symbol")
