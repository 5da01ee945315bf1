"""Names of layers and of the operators in them."""

from __future__ import annotations

from tvm import relax

from vta_byoc.ir.bindings import SEPARATOR

JOINT = "+"
"""Stands between the operators of a fused schedule."""
POOLED = f"{SEPARATOR}pooled"
"""Ends the name of a tensor that the model does not have: the maxima of what a pool's operand is
computed of."""

ROUTED = f"{SEPARATOR}routed"
"""In the name of a tensor that the model has in another order of its channels, or of several."""
COPIED = f"{SEPARATOR}copied"
"""Ends the name of a tensor that a region holds in another layout, too."""
CHANNELS = f"{SEPARATOR}channels_"
"""Stands before the first and the last channel in the name of a part of a tensor."""
SCRATCH = f"{SEPARATOR}scratch"
"""Stands, with a number behind it, at the end of the name of a tensor that kernels of one layer
hand each other."""


STEP, CELL = f"{SEPARATOR}step_", f"{SEPARATOR}cell_"
"""Stand before the number of a step at the end of the name of what a recurrent layer has then: its
result, and the state of its cells."""


def is_step(var: relax.Var) -> bool:
    """Whether a variable is what a recurrent layer hands from a step to the next."""
    return STEP in var.name or CELL in var.name


def of_channels(name: str, first: int, last: int) -> str:
    """The name of the channels of tensor ``name`` from ``first`` to before ``last``."""
    return f"{name}{CHANNELS}{first}_{last - 1}"


def channels_in(name: str) -> tuple[str, slice]:
    """The tensor of the model that ``name`` is of, whole, and which of its channels: axis 1."""
    whole, _, numbers = name.partition(COPIED)[0].partition(CHANNELS)
    if not numbers:
        return whole, slice(None)
    first, last = map(int, numbers.split("_"))
    return whole, slice(first, last + 1)


def operators_of(layer: str) -> list[str]:
    """The operators that a layer of a program computes.

    A second layer of ``x`` is called ``x__2``, and ``x+y`` has ``y`` fused into ``x``.
    """
    return [name.split(SEPARATOR)[0] for name in layer.split(JOINT)]
