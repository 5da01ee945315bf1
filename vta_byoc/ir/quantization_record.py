"""What quantization writes on a module, for later stages."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import tvm

from vta_byoc.base.choices import APPROXIMATE, DIGITS, SHIFTS
from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.records import as_record, text_of

WORDS = {
    DIGITS: "factor in weights of two digits",
    SHIFTS: "factor as shifts and sums",
    APPROXIMATE: "factor in weights of one digit (approximate)",
}
"""Form -> what placement and report call it."""

QUANTIZATION = "vta.quantization"
"""Module attribute: the `ir.records.as_record` of a `QuantizationRecord`."""


TFLITE, ONNXRUNTIME = "tflite", "onnxruntime"
CAME_FROM = "vta.came_from"
"""Module attribute: the runtime whose file the model came in, `TFLITE` or `ONNXRUNTIME`."""
CAME_INTEGER = "vta.came_integer"
"""Module attribute: what wrote the integers that the model came in, which are the dialect's."""
EMPTY_RECORD = json.dumps({"tensors": {}, "accumulators": {}, "sources": {}})
"""The record of a module that quantization did not write."""


class _Step(TypedDict):
    """Of a tensor: its step, the largest of them, and its largest float magnitude."""

    scale: float
    amax: float


class TensorEntry(_Step, total=False):
    """What the record says of a tensor.

    `zero` is there only where it is not 0, `scales` only of weights whose channels differ.
    """

    zero: int
    scales: list[float]


class FactorEntry(TypedDict):
    """The form of a layer's factor without a multiplier, and its largest error."""

    form: str
    error: float


class FunctionEntry(TypedDict):
    """The program of a function of one operand.

    `error` is its largest error in steps of the result and `exact` the share of exact results, both
    over all 256 values; `cycles` those of a vector in an operator of its own.
    """

    error: int
    exact: float
    cycles: int
    program: str


class QuantizationRecord(TypedDict):
    """The keys that the record always has."""

    tensors: dict[str, TensorEntry]
    accumulators: dict[str, dict[str, int]]
    sources: dict[str, list[str]]


def float_regions(mod: tvm.IRModule) -> dict[str, Refusal]:
    """Operators that quantization had to leave float, and why."""
    found = _part(mod, "float_regions")
    refusals = {name: Refusal(**parts) for name, parts in found.items()}
    return {
        name: dataclasses.replace(refusal, what=f"stays float: {refusal.what}")
        for name, refusal in refusals.items()
    }


def factor_forms(mod: tvm.IRModule) -> dict[str, str]:
    """Layers that need no multiplier for their factor: name -> one of `FORMS`."""
    return {name: entry["form"] for name, entry in _part(mod, "factors").items()}


def functions(mod: tvm.IRModule) -> dict[str, FunctionEntry]:
    """Functions of one operand that are programs of the ALU, by the name of their result."""
    return dict(_part(mod, "functions"))


def exact_reasons(mod: tvm.IRModule) -> dict[str, str]:
    """Layers of a module with an exact rescale: why each is not its runtime's to the bit, or ""."""
    return dict(_part(mod, "exact"))


def exact_text(reason: str) -> str:
    """What placement and reports say of a layer of such a module."""
    return f"not its runtime's to the bit: {reason}" if reason else "its runtime's to the bit"


def function_text(entry: FunctionEntry) -> str:
    """What placement and reports say of a function that is a program."""
    exact = f"{100 * entry['exact']:.0f} % of the 256 values exact"
    near = f"others at most {entry['error']} off" if entry["error"] else "proven"
    return f"a program of {entry['cycles']} cycles a vector, {exact}, {near}"


def results(mod: tvm.IRModule) -> dict[str, str]:
    """Layers that compute a part of an operator alone: name -> the source variable they make."""
    return dict(_part(mod, "results"))


def symmetric(mod: tvm.IRModule) -> dict[str, float]:
    """Tensors that `zero_points="all"` gives a zero point, and how many times it narrows a step."""
    return dict(_part(mod, "symmetric"))


def active_ranges(mod: tvm.IRModule) -> dict[str, tuple[float, float]]:
    """Source variables -> from where to where their readers tell values apart, if not all."""
    found = _part(mod, "active_ranges")
    return {name: (float(low), float(high)) for name, (low, high) in found.items()}


def group_factors(mod: tvm.IRModule) -> dict[str, tuple[float, ...]]:
    """Layers in front of group normalizations: what the channels of their results are times."""
    return {name: tuple(found) for name, found in _part(mod, "group_factors").items()}


def with_group_factors(mod: tvm.IRModule, factors: Mapping[str, Sequence[float]]) -> tvm.IRModule:
    """`mod` with these in its record."""
    record = json.loads(text_of(mod.get_attr(QUANTIZATION)))
    record["group_factors"] = {name: list(each) for name, each in factors.items()}
    return mod.with_attr(QUANTIZATION, as_record(json.dumps(record)))


def absorbed(mod: tvm.IRModule) -> dict[str, tuple[str, str]]:
    """Operators that quantization computes inside of another one: (its name, their kind)."""
    found = _part(mod, "absorbed")
    return {name: (layer, kind) for name, (layer, kind) in found.items()}


def _part(mod: tvm.IRModule, key: str) -> dict[str, Any]:
    """What the record of a module has under `key`; {} where it has nothing."""
    attribute = mod.get_attr(QUANTIZATION)
    found: dict[str, Any] = {} if attribute is None else json.loads(text_of(attribute))
    return found.get(key) or {}


def computed_in(mod: tvm.IRModule) -> dict[str, str]:
    """Operators of the float model that are computed inside of another one, and that one."""
    return {name: layer for name, (layer, _) in absorbed(mod).items()}
