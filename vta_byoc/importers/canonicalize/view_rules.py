"""Chains of reshapes and permutations in the fewest operators that do the same."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from vta_byoc.ir.bindings import SEPARATOR
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import RESHAPE, VIEWS, View, chain_of, view_of


def chain_of_views(rewriter: Rewriter, value: relax.Expr) -> tuple[relax.Expr, list[relax.Call]]:
    """What a chain of moves begins with, and the moves, first to last."""
    return chain_of(rewriter.producer, value)


def moved(rewriter: Rewriter, source: relax.Expr, view: View, name: str) -> relax.Expr:
    """`source` behind the moves of `view`; all but the last are bound to variables."""
    value = source
    for number, (kind, numbers) in enumerate(moves := view.moves()):
        move = relax.op.reshape if kind == RESHAPE else relax.op.permute_dims
        value = move(value, list(numbers))
        if number + 1 < len(moves):
            value = rewriter.as_variable(value, f"{name}{SEPARATOR}view{number}")
    return value


def shorter_chain(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A chain of two moves or more as fewer."""
    source, chain = chain_of_views(rewriter, call.args[0])
    chain = [*chain, call]
    view = view_of(source, chain) if len(chain) > 1 else None
    if view is None or len(view.moves()) >= len(chain):
        return None
    return moved(rewriter, source, view, str(rewriter.name))


VIEW_RULES: dict[str, Sequence[Rule]] = {name: (shorter_chain,) for name in VIEWS}
"""Operator -> its rules; they come behind those that merge two moves of a kind."""
