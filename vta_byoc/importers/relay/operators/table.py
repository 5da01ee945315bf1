"""Every operator of Relay that is read."""

from __future__ import annotations

from vta_byoc.importers.relay.operators import (
    elementwise,
    layers,
    movement,
    qnn,
    reduction,
    selection,
)
from vta_byoc.importers.relay.operators.entry import IGNORED, Operator, Ref

OPERATORS: dict[str, Operator] = {
    **elementwise.OPERATORS,
    **layers.OPERATORS,
    **movement.OPERATORS,
    **reduction.OPERATORS,
    **qnn.OPERATORS,
    **selection.OPERATORS,
}
"""Relay's name -> how it becomes Relax."""


def refers(op: str, attribute: str) -> bool | None:
    """Whether an attribute is a node in a JSON graph; None where no operator has it."""
    entry = OPERATORS.get(op)
    if entry is None or attribute in IGNORED or attribute not in entry.attrs:
        return None
    return isinstance(entry.attrs[attribute], Ref)
