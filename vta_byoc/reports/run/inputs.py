"""Inputs of a run, as reports name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import tvm

from vta_byoc.base.json_types import Json
from vta_byoc.ir.bindings import is_constant, op_name, straight_bindings

TOLD = 0.001
"""From this share of cut values on a report tells of them: some calibrators cut rare ones."""


@dataclass(frozen=True)
class Reach:
    """The real values that an input's integers reach from and to, and the length of a step."""

    low: float
    high: float
    step: float

    def cuts(self, array: np.ndarray) -> float:
        """The share of an array's values that are beyond, by more than they would be rounded."""
        beyond = (array < self.low - 0.5 * self.step) | (array > self.high + 0.5 * self.step)
        return float(beyond.mean()) if array.size else 0.0


@dataclass(frozen=True)
class Input:
    """One input of a run: its array, where it came from, and what its integers hold of it."""

    array: np.ndarray
    source: str
    reach: Reach | None = None

    @property
    def cut(self) -> float:
        """The share of the values that are cut off when they become integers, 0 to 1."""
        return 0.0 if self.reach is None else self.reach.cuts(self.array)

    def line(self, name: str) -> str:
        """What a report prints of the input `name`."""
        told = f"input {name} {shape_text(self.array)}: {self.source}"
        cut = self.cut
        if self.reach is None or cut < TOLD:
            return told
        return (
            f"{told}\n  {100 * cut:.1f} % of its values are cut off: they lie outside of "
            f"{self.reach.low:.4g} to {self.reach.high:.4g}, which its int8 scale holds; prepare "
            "inputs as those that chose the scale were, or calibrate with inputs like these"
        )

    def to_json(self) -> Mapping[str, Json]:
        """What a report's JSON object says of it; `cut` where there are values that are."""
        array, cut = self.array, self.cut
        facts: dict[str, Json] = {"shape": list(array.shape), "dtype": str(array.dtype)}
        return {**facts, "source": self.source, **({"cut": cut} if cut else {})}


def with_reach(inputs: Mapping[str, Input], qmod: tvm.IRModule) -> dict[str, Input]:
    """The inputs, with what integers hold of those that a quantized module makes integers of."""
    reaches = reaches_of(qmod)
    return {name: replace(each, reach=reaches.get(name)) for name, each in inputs.items()}


def reaches_of(qmod: tvm.IRModule) -> dict[str, Reach]:
    """What integers hold of each input that a module quantizes with one scale, by its name.

    An input that is quantized more than once reaches as far as all of its integers.
    """
    params, found = set(qmod["main"].params), dict[str, Reach]()
    for binding in straight_bindings(qmod["main"]):
        if op_name(binding.value) != "relax.quantize" or binding.value.args[0] not in params:
            continue
        data, scale, zero = binding.value.args
        if not is_constant(scale) or not is_constant(zero) or scale.value.numpy().size != 1:
            continue
        step, middle = float(scale.value.numpy().item()), int(zero.value.numpy().flat[0])
        ends = np.iinfo(str(binding.var.ty.dtype))
        low, high = ((int(end) - middle) * step for end in (ends.min, ends.max))
        name = str(data.name)
        if name in found:
            low, high = min(low, found[name].low), max(high, found[name].high)
        found[name] = Reach(low, high, step)
    return found


def shape_text(array: np.ndarray) -> str:
    """Shape and dtype of an array as reports print them."""
    return f"({', '.join(map(str, array.shape))}) {array.dtype}"
