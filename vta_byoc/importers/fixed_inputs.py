"""Inputs of a model's file that are constants of the module, and their values, as it keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import tvm

FIXED_INPUTS = "vta.fixed_inputs"
"""Module attribute: input name -> text of its dtype, shape and value, as in "int64 [] 16000"."""


def with_fixed_inputs(mod: tvm.IRModule, values: Mapping[str, np.ndarray]) -> tvm.IRModule:
    """The module with a note of `values`: input name -> array of one element."""
    if not values:
        return mod
    texts = {
        name: f"{array.dtype} {list(array.shape)} {json.dumps(array.item())}"
        for name, array in values.items()
    }
    return mod.with_attr(FIXED_INPUTS, texts)


def fixed_inputs(mod: tvm.IRModule) -> dict[str, np.ndarray]:
    """The inputs that `load_model` was given a value for, in the shape and dtype of the file."""
    found = mod.get_attr(FIXED_INPUTS) or {}
    return {str(name): _array(str(text)) for name, text in found.items()}


def _array(text: str) -> np.ndarray:
    dtype, rest = text.split(" ", 1)
    shape, value = rest.rsplit(" ", 1)
    return np.full(json.loads(shape), json.loads(value), dtype)
