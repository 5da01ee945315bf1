"""Concats of very many tensors, as concats of concats.

TVM makes one expression of a concat, with a condition for each operand inside of the next.  The
passes that visit it call themselves for each, and some thousand exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import relax

MOST_JOINED = 64
"""Operands of one concat."""


def few(
    parts: Sequence[relax.Expr], join: Callable[[Sequence[relax.Expr]], relax.Expr]
) -> Sequence[relax.Expr]:
    """At most `MOST_JOINED` tensors whose concat is that of `parts`; `join` binds one of some."""
    while len(parts) > MOST_JOINED:
        places = range(0, len(parts), MOST_JOINED)
        parts = [join(parts[first : first + MOST_JOINED]) for first in places]
    return parts
