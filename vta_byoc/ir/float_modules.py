"""Modules that compute nothing in integers: all of them stays on the CPU, and somebody says so."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import tvm
from tvm import relax

from vta_byoc.base.quantities import count
from vta_byoc.hw.errors import VTAWarning
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.ir.legality import INTEGER
from vta_byoc.ir.operator_work import CONVERSIONS, CONVOLUTIONS, MOVES, TRANSPOSED
from vta_byoc.ir.quantization_record import QUANTIZATION
from vta_byoc.ir.stage import Stage

INT8 = "int8"
BORDERS = frozenset(("", "relax.quantize", "relax.dequantize"))
"""Bindings that are no operator, and the edges of float values."""
TELL_OF_FLOATS = Stage("TellOfFloats", INTEGER, INTEGER, "warns of a model that nobody quantized")


def computes_integers(mod: tvm.IRModule) -> bool:
    """Whether :func:`vta_byoc.quantize` made ``mod``, or an operator of it takes or makes int8."""
    return mod.get_attr(QUANTIZATION) is not None or any(
        INT8 in map(_dtype, (b.var, *getattr(b.value, "args", ())))
        for b in straight_bindings(mod["main"])
        if op_name(b.value) not in MOVES | BORDERS
    )


def computes_floats(mod: tvm.IRModule) -> bool:
    """Whether ``mod`` has more float work than quantization, dequantization and movement."""
    return bool(float_operators(mod))


def float_operators(mod: tvm.IRModule) -> list[str]:
    """The operators of ``mod`` that compute floats; tuples count as floats."""
    return [op_name(b.value) for b in _computing(mod) if _dtype(b.var)[:5] in ("", "float")]


def _dtype(expr: relax.Expr) -> str:
    return str(getattr(expr.ty, "dtype", ""))


def _computing(mod: tvm.IRModule) -> Sequence[relax.VarBinding]:
    idle = MOVES | CONVERSIONS | {""}
    return [b for b in straight_bindings(mod["main"]) if op_name(b.value) not in idle]


@TELL_OF_FLOATS
def tell_of_floats(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
    """Warn (VTAWarning) of a module in which nothing is integer, and leave it as it is."""
    if not computes_integers(mod) and computes_floats(mod):
        warnings.warn(_message(mod), VTAWarning, stacklevel=2)
    return mod


def _message(mod: tvm.IRModule) -> str:
    kinds = [op_name(b.value) for b in _computing(mod)]
    convolutions = sum(kind in CONVOLUTIONS | TRANSPOSED for kind in kinds)
    products = kinds.count("relax.matmul")
    layers = [(convolutions, "convolution"), (products, "matrix product")]
    named = " and ".join(count(number, what) for number, what in layers if number)
    return (
        f"nothing runs on VTA: {named or count(len(kinds), 'operator')} of the module compute "
        "float32 and stay on the CPU; VTA computes int8; quantize first (vta_byoc.quantize)"
    )
