"""Copies of a tensor along axes of one element that an operator would make by itself."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from vta_byoc.importers.canonicalize.calls import same_type, shape_of
from vta_byoc.ir.rewriter import Rewriter, Rule

BROADCAST = "relax.broadcast_to"
OF_TWO = tuple(
    f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
)


def broadcast_anyway(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A sum x + broadcast_to(y) is x + y where x has the shape that y is given."""
    for place, other in ((0, 1), (1, 0)):
        copied = rewriter.producer_of(call.args[place], BROADCAST)
        if copied is None or not same_type(call, call.args[other]):
            continue
        source = shape_of(copied.args[0])
        if source is None or len(source) != call.ty.ndim:
            continue
        args = list(call.args)
        args[place] = copied.args[0]
        return relax.Call(call.op, args, call.attrs, call.ty_args)
    return None


BROADCAST_RULES: dict[str, Sequence[Rule]] = {name: (broadcast_anyway,) for name in OF_TWO}
"""Operator -> its rules, in the order in which they are tried."""
