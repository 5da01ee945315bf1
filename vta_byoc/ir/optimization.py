"""After how many runs of a module on the host LLVM's optimizations have paid for their time.

They take 24 to 96 ms for each operator that differs from the others, and save little where loops
are scheduled.  One run of an integer MobileNet v3 takes 0.14 s without them and 0.016 s with them,
and its build 3 s instead of 16: the runs of a check never make up for that, those of an evaluation
do.  The seconds below are of fourteen integer networks on one core of a Zen 3; with them 0.3 to 2.7
times as many runs are predicted as really are worth it (of MobileNet v1 a tenth).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import tvm
from tvm import relax

from vta_byoc.ir.bindings import is_constant, known_shape, op_name, straight_bindings
from vta_byoc.ir.float_modules import computes_integers, float_operators
from vta_byoc.ir.operator_work import LAYERS, work_of

OPERATOR = 45e-3
"""Seconds that the optimizations of one operator take; equal ones are compiled once."""
SCHEDULED_MAC = 0.15e-9
PLAIN_MAC = 10e-9
"""Seconds that a multiply-accumulate takes longer without them, in scheduled loops and in plain
ones: 7 in attention, 30 in a transposed convolution."""
ELEMENT = 2.5e-9
"""Seconds that an element of the largest tensor of any operator takes longer without them."""
SMALL = 4_000_000
"""Multiplications of WEIGHTED layers up to which no float module is optimized."""
WEIGHTED = ("relax.nn.conv2d", "relax.matmul")

PLAIN = frozenset(
    f"relax.{op}"
    for op in (
        "add", "subtract", "multiply", "divide", "maximum", "minimum", "negative", "abs", "clip",
        "floor", "round", "square", "exp", "log", "sin", "cos", "tanh", "sigmoid", "erf", "sqrt",
        "rsqrt", "where", "full_like", "mean", "sum", "prod", "max", "min", "variance", "std",
        "cumsum", "matmul", "nn.conv1d", "nn.conv2d", "nn.conv1d_transpose",
        "nn.conv2d_transpose", "nn.relu", "nn.leakyrelu", "nn.prelu", "nn.silu", "nn.gelu",
        "nn.gelu_tanh", "nn.softplus", "nn.softmax", "nn.log_softmax", "nn.max_pool2d",
        "nn.avg_pool2d", "nn.adaptive_avg_pool2d", "call_dps_packed",
    )
)  # fmt: skip
"""Float operators of which LLVM's optimizations change no bit where products and sums are never
contracted: arithmetic in a fixed order and calls that it does not replace, as it does with powers
and what interpolates."""

IsScheduled = Callable[[relax.Call], bool]


class Worth(NamedTuple):
    """How many runs of a module LLVM's optimizations are worth.

    Attributes:
        runs: 0 or infinity where the module alone decides.
        settled: whether bits may depend on them, so that a module that runs must stay as it is.
    """

    runs: float
    settled: bool


def worth(mod: tvm.IRModule, is_scheduled: IsScheduled, contracts_all: bool) -> Worth:
    """After how many runs of a module LLVM's optimizations have paid.

    Args:
        mod: a float or integer module with one straight-line `main` of static shapes.
        is_scheduled: whether a convolution or a matrix product is computed by scheduled loops.
        contracts_all: whether the processor contracts products and sums wherever it computes
            floats; else it does so in modules without integers only.
    """
    floats, integers = float_operators(mod), computes_integers(mod)
    contracts = bool(floats) and (contracts_all or not integers)
    plain = all(op in PLAIN for op in floats)
    if plain and not contracts:
        return Worth(_runs(mod, is_scheduled), settled=False)
    if integers:  # it is held against executables, which are optimized
        return Worth(0, settled=True)
    small = _products(mod) < SMALL
    runs = math.inf if small else _runs(mod, is_scheduled) if plain else 0
    return Worth(runs, settled=True)


def _runs(mod: tvm.IRModule, is_scheduled: IsScheduled) -> float:
    return _gained(mod) / max(_lost(mod, is_scheduled), ELEMENT)


def _gained(mod: tvm.IRModule) -> float:
    """Seconds that the build of a module takes longer with the optimizations."""
    different = {
        (op_name(b.value), *((str(t.ty.dtype), shape) for t, shape in _tensors(b)))
        for b in straight_bindings(mod["main"])
    }
    return OPERATOR * len(different)


def _lost(mod: tvm.IRModule, is_scheduled: IsScheduled) -> float:
    """Seconds that a run of a module takes longer without the optimizations."""
    seconds = 0.0
    for binding in straight_bindings(mod["main"]):
        seconds += ELEMENT * max((math.prod(shape) for _, shape in _tensors(binding)), default=0)
        call = binding.value
        if op_name(call) in LAYERS | {"relax.call_tir"}:
            mac = SCHEDULED_MAC if is_scheduled(call) else PLAIN_MAC
            seconds += mac * work_of(call, mod).macs
    return seconds


def _products(mod: tvm.IRModule) -> int:
    """Multiplications of all layers with constant weights."""
    calls = [binding.value for binding in straight_bindings(mod["main"])]
    layers = [c for c in calls if op_name(c) in WEIGHTED and is_constant(c.args[1])]
    return sum(work_of(call, mod).macs for call in layers)


def _tensors(binding: relax.VarBinding) -> list[tuple[relax.Expr, tuple[int, ...]]]:
    """The tensors of known shape that an operator makes and takes."""
    near = (binding.var, *getattr(binding.value, "args", ()))
    shapes = [(e, known_shape(getattr(e, "ty", None))) for e in near]
    return [(e, s) for e, s in shapes if s is not None and hasattr(e.ty, "dtype")]
