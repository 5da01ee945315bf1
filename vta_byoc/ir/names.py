"""Names of layers and of the operators in them."""

from __future__ import annotations

from vta_byoc.ir.bindings import SEPARATOR

JOINT = "+"
"""Stands between the operators of a fused schedule."""
POOLED = f"{SEPARATOR}pooled"
"""Ends the name of a tensor that the model does not have: the maxima of what a pool's operand is
computed of."""

SCRATCH = f"{SEPARATOR}scratch"
"""Stands, with a number behind it, at the end of the name of a tensor that kernels of one layer
hand each other."""


def operators_of(layer: str) -> list[str]:
    """The operators that a layer of a program computes.

    A second layer of ``x`` is called ``x__2``, and ``x+y`` has ``y`` fused into ``x``.
    """
    return [name.split(SEPARATOR)[0] for name in layer.split(JOINT)]
