"""The float tail: what stays float between the last layers and the results of a model.

A detector ends by decoding boxes: softmax or sigmoid, anchors added, strides multiplied,
coordinates joined with class scores.  In int8 the join has one step for all of it, which a
coordinate of 640 makes larger than every score.  Nothing behind reads int8: the host gets what the
last layers compute and has it in float anyway.  So an operator that only results of the model
follow stays float where it reads what is float already, and where a step of its result would hide
what it reads.
"""

from __future__ import annotations

from tvm import relax
from tvm.ir import Call

from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.bindings import is_constant, is_float32, op_name, vars_in
from vta_byoc.ir.operator_work import LAYERS, layer_work
from vta_byoc.quantization.ops.movement import COPIES
from vta_byoc.quantization.quantizer import OPERATORS, Quantizer

CONCAT = "relax.concat"
SHIFTS = ("relax.add", "relax.subtract")
"""Operators that give their data another place on the number line where the other operand is
constant: its errors stay as large as they are."""
SMALL = 1e-3
"""A layer of constant weights with at most this share of the MACs may be in the tail."""
COARSE = 2.0
"""A result may have steps so many times as large as those of what it reads: one bit is lost."""
READS_FLOAT = Refusal(
    "it reads what the CPU has in float, and only results of the model follow",
    remedy="quantize(float_tail=False), or --no-float-tail, takes it as int8",
)


def float_tail(q: Quantizer) -> dict[relax.Var, Refusal]:
    """The operators of the float tail of `q`, before anything is converted, and why each is one."""
    tail = _tail(q)
    found: dict[relax.Var, Refusal] = {}
    floats: set[relax.Var] = set()
    for binding in q.bindings:
        var, expr = binding.var, binding.value
        reads_float = any(operand in floats for operand in vars_in(expr))
        if not isinstance(expr, Call) or op_name(expr) in COPIES:
            if reads_float and var in tail:
                floats.add(var)
        elif q.stays_float(binding):
            if is_float32(var):
                floats.add(var)
        elif var in tail:
            reason = READS_FLOAT if reads_float else None
            if reason is None and not tail[var]:
                reason = _too_coarse(q, binding)
            if reason is not None:
                found[var] = reason
                floats.add(var)
    return found


def _tail(q: Quantizer) -> dict[relax.Var, bool]:
    """What is read by results of the model alone, at once or through operators that are so.

    Each with whether a small layer follows.
    """
    macs = {b.var: layer_work(b.value).macs for b in q.bindings if op_name(b.value) in LAYERS}
    most = SMALL * sum(macs.values())
    tail: dict[relax.Var, bool] = {}
    for binding in reversed(q.bindings):
        users = [user.var for user in q.users.get(binding.var, []) if user is not None]
        is_light = _is_light(binding, macs.get(binding.var, 0), most)
        if is_light and all(user in tail for user in users):
            tail[binding.var] = any(user in macs or tail[user] for user in users)
    return tail


def _is_light(binding: relax.VarBinding, macs: int, most: float) -> bool:
    """Whether the CPU may compute it without a part of the network going there."""
    name = op_name(binding.value)
    if name in LAYERS:
        return macs <= most and any(is_constant(arg) for arg in binding.value.args)
    return OPERATORS.get(name) is None or OPERATORS.is_built_in(name)


def _too_coarse(q: Quantizer, binding: relax.VarBinding) -> Refusal | None:
    """Why a join, or a sum with a constant, would hide what it reads in steps of its result."""
    expr, name = binding.value, op_name(binding.value)
    if name not in (CONCAT, *SHIFTS):
        return None
    if name in SHIFTS and not _shifts_a_result(q, expr):
        return None
    own, reaches = _reach(q, binding.var), [_reach(q, data) for data in vars_in(expr)]
    known = [reach for reach in reaches if reach]
    if not own or len(known) < len(reaches) or own <= COARSE * min(known):
        return None
    return Refusal(
        "only results of the model follow, and a step of its result is",
        f"{own / min(known):.3g} times one of what it reads",
        f"{COARSE:g} times is taken",
        "quantize(float_tail=False), or --no-float-tail, takes it as int8",
    )


def _shifts_a_result(q: Quantizer, call: relax.Call) -> bool:
    """Whether a sum has a constant; the bias of a layer is added to what is exact still."""
    made = [q.produced(var) for var in vars_in(call)]
    is_bias = any(each is not None and op_name(each) in LAYERS for each in made)
    return any(is_constant(arg) for arg in call.args) and not is_bias


def _reach(q: Quantizer, var: relax.Var) -> float | None:
    """How far apart the values of a tensor are in calibration, and zero; None if not known."""
    if var in q.intervals:
        low, high = q.intervals[var]
        return max(high, 0.0) - min(low, 0.0)
    return 2 * q.ranges[var] if var in q.ranges else None
