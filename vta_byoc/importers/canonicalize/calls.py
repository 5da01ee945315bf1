"""What rules ask of a call: its shape, the order of its axes, its attributes."""

from __future__ import annotations

from tvm import relax

from vta_byoc.ir.bindings import known_shape


def same_type(left: relax.Expr, right: relax.Expr) -> bool:
    """Whether both are tensors of one dtype and of one shape that is known."""
    shape = shape_of(left)
    return shape is not None and shape == shape_of(right) and left.ty.dtype == right.ty.dtype


def shape_of(expr: relax.Expr) -> tuple[int, ...] | None:
    """The shape of a tensor; None if it is not known before the model runs."""
    return known_shape(expr.ty)


def attributes(call: relax.Call, *names: str) -> dict[str, object]:
    """Attributes of a call under their names, to make another call that keeps them."""
    return {name: getattr(call.attrs, name) for name in names}
