"""The walk that turns float Relax into the integer dialect, operator by operator.

The conversions of `ops` write the integer forms. An operator without one, or one whose conversion
declines, becomes a float region: its inputs are dequantized, and its result is quantized only if an
integer operator reads it.
"""

from __future__ import annotations

from tvm import relax
from tvm.ir import GenericConst, Tuple, TupleGetItem

from vta_byoc.base.boundary import at
from vta_byoc.ir.bindings import op_name, sanitized, source_name
from vta_byoc.quantization import quantizer
from vta_byoc.quantization.active_ranges import active_ranges
from vta_byoc.quantization.float_tail import float_tail
from vta_byoc.quantization.ops.attention import in_order
from vta_byoc.quantization.ops.table import OPERATORS
from vta_byoc.quantization.ops.unary import convert_group
from vta_byoc.quantization.own_ops import converted
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.quantization.scales import Unscalable
from vta_byoc.quantization.value import Value
from vta_byoc.quantization.zero_points import left_symmetric, zero_pointed


def rewritten(q: Quantizer, *, tail: bool = False) -> relax.Function:
    """`main` of `q` in the integer dialect; what it notes on the way is in `q.record`.

    Args:
        q: before anything is converted.
        tail: whether the float tail stays float.
    """
    assert OPERATORS, "no conversion is registered"
    if tail:
        q.keep(float_tail(q))
    active = active_ranges(q)
    q.narrow(active)
    q.spans = zero_pointed(q)
    symmetric = left_symmetric(q)
    for param in q.main.params:
        q.write.names.fresh(param.name)
        span = q.spans.get(param)
        q.values[param] = Value(
            sanitized(param.name), q.ranges.get(param), param, is_input=True, span=span
        )
    for binding in in_order(q):
        if binding.var not in q.absorbed:
            at(f'operator "{source_name(binding.var)}"')
            _convert(q, binding)
    at("")
    integers = {str(v.name): v for v, value in q.values.items() if value.int8 is not None}
    q.record.active_ranges = {n: active[v] for n, v in integers.items() if v in active}
    q.record.symmetric = {n: symmetric[v] for n, v in integers.items() if v in symmetric}
    return q.write.finish(q.main, q.plain(q.main.body.body))


def _convert(q: Quantizer, binding: relax.VarBinding) -> None:
    var, expr = binding.var, binding.value
    if isinstance(expr, relax.Var | Tuple | GenericConst):
        q.values[var] = q.value(expr)
    elif isinstance(expr, TupleGetItem):
        _take_element(q, var, expr)
    elif not _became_integer(q, binding):
        _set_plain(q, var, _with_plain_args(q, expr))


def _became_integer(q: Quantizer, binding: relax.VarBinding) -> bool:
    entry = q.entry(binding)
    try:
        if convert_group(q, binding):
            return True
        if entry is None:
            _note_refusal(q, binding)
            return False
        if quantizer.OPERATORS.is_built_in(op_name(binding.value)):
            return entry.convert(q, binding)
        return converted(q, binding, entry)
    except Unscalable as error:
        q.record.note_float(source_name(binding.var), error.refusal)
        return False


def _note_refusal(q: Quantizer, binding: relax.VarBinding) -> None:
    """Note why what integers read has no integer form, where no other reason is known."""
    known, name = quantizer.OPERATORS.get(op_name(binding.value)), source_name(binding.var)
    if known is None or known.refuses is None or binding.var in q.keep_float:
        return
    refusal = known.refuses(q, binding)
    if refusal is None or name in q.record.float_regions or q.leaves_as_float(binding.var):
        return
    q.record.note_float(name, refusal)


def _take_element(q: Quantizer, var: relax.Var, expr: TupleGetItem) -> None:
    whole = q.value(expr.tuple_value)
    if whole.fields is not None:
        q.values[var] = whole.fields[expr.index]
    elif whole.int8 is not None:
        out = q.write.emit(relax.TupleGetItem(whole.int8, expr.index), var.name)
        q.set_int8(var, out, whole.scale)
    else:
        _set_plain(q, var, relax.TupleGetItem(whole.plain, expr.index))


def _set_plain(q: Quantizer, var: relax.Var, expr: relax.Expr) -> None:
    out = q.write.emit(expr, var.name)
    q.values[var] = Value(source_name(var), q.ranges.get(var), out, span=q.spans.get(var))


def _with_plain_args(q: Quantizer, expr: relax.Expr) -> relax.Expr:
    if not isinstance(expr, relax.Call):
        return expr
    args = [q.plain(arg) for arg in expr.args]
    return relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span)
