"""Clamps behind a concat, in front of it: the layers that are joined end in them.

A layer that ends in a clamp costs what it costs without one.  Behind the concat the clamp is an
operator of its own, which reads and writes all that was joined.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax
from tvm.ir import Tuple

from vta_byoc.importers.canonicalize.calls import same_type
from vta_byoc.ir.bindings import SEPARATOR, op_name
from vta_byoc.ir.clamps import interval_of_call
from vta_byoc.ir.rewriter import Rewriter, Rule

ENDING = frozenset(
    f"relax.{name}"
    for name in ("nn.conv2d", "nn.conv1d", "nn.conv2d_transpose", "matmul", "add", "nn.avg_pool2d")
)
"""Operators that end in a clamp as a part of them."""


def clamp_before_concat(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """relu(concat((x, y))) is concat((relu(x), relu(y))), where nothing else reads any of them."""
    data = call.args[0]
    joined = rewriter.producer_of(data, "relax.concat")
    if joined is None or interval_of_call(call) is None or not same_type(call, data):
        return None
    if rewriter.is_shared(data) or not isinstance(joined.args[0], Tuple):
        return None
    parts = joined.args[0].fields
    if not all(_ends(rewriter, part) for part in parts):
        return None
    clamped = [
        rewriter.as_variable(
            relax.Call(call.op, [part, *call.args[1:]], call.attrs, call.ty_args),
            f"{part.name}{SEPARATOR}clamped",
        )
        for part in parts
    ]
    return relax.op.concat(Tuple(clamped), int(joined.attrs.axis))


def _ends(rewriter: Rewriter, part: relax.Expr) -> bool:
    """Whether a part is of an operator that can end in a clamp, and nothing else reads it."""
    made = rewriter.producer(part)
    return made is not None and op_name(made) in ENDING and not rewriter.is_shared(part)


CLAMP_RULES: dict[str, Sequence[Rule]] = {
    f"relax.{name}": (clamp_before_concat,)
    for name in ("nn.relu", "nn.relu6", "clip", "maximum", "minimum")
}
"""Operator -> its rules, in the order in which they are tried."""
