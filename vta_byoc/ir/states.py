"""Inputs that stand for variables of a model, and what they begin with."""

from __future__ import annotations

import numpy as np
import tvm

INITIAL_STATES = "vta.initial_states"
"""Module attribute: what the inputs begin with that stand for a model's own variables."""


def initial_states(mod: tvm.IRModule) -> dict[str, np.ndarray]:
    """What the inputs begin with that stand for a model's own variables, by their names.

    Such an input, `name`, is followed by an output `name_next` (`output_names`) for the next call.

    Returns:
        Arrays of the shape and dtype of the inputs; empty where the model has no variables.
    """
    found = mod.get_attr(INITIAL_STATES)
    return {str(name): array.numpy() for name, array in found.items()} if found else {}
