"""Integer operators of plug-ins: what their rules write is checked."""

from __future__ import annotations

from tvm import relax

from vta_byoc.base.boundary import first_line
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import known_shape, op_name, source_name
from vta_byoc.quantization.quantizer import OPERATORS, IntegerOp, Quantizer
from vta_byoc.quantization.scales import Unscalable


def converted(q: Quantizer, binding: relax.VarBinding, entry: IntegerOp) -> bool:
    """What a rule says, once its result has been seen to be what it replaces.

    Raises:
        VTAError: the rule fails, stores no value, or one of another dtype or shape.
    """
    operator = op_name(binding.value)
    whose = (
        f'integer operator "{operator}" of {OPERATORS.by(operator)}, at '
        f'"{source_name(binding.var)}",'
    )
    before = set(q.values)
    try:
        is_integer = entry.convert(q, binding)
    except (VTAError, Unscalable):
        raise
    except Exception as err:
        raise VTAError(
            f"{whose} fails with {first_line(err)}; return False where the rule does not hold, "
            "and repair it"
        ) from err
    if not is_integer:
        return False
    made = [var for var in q.values if var not in before]
    if not made:
        raise VTAError(
            f"{whose} returned True and stored no value; the result is stored by close, "
            "close_group or set_int8; return False to leave it float"
        )
    for var in made:
        _check(q, var, whose)
    return True


def _check(q: Quantizer, var: relax.Var, whose: str) -> None:
    """Refuse a value of another dtype or shape than the variable that it stands for."""
    value = q.values[var]
    found, dtype = (value.plain, "float32") if value.int8 is None else (value.int8, "int8")
    if found is None or not isinstance(var.ty, relax.TensorType):
        return
    have = f"{getattr(found.ty, 'dtype', 'no tensor')} {known_shape(found.ty)}"
    want = f"{dtype} {known_shape(var.ty)}"
    if have != want:
        raise VTAError(
            f"{whose} gives a result of {have}; it stands for one of {want}; convert it in the rule"
        )
