"""What quantization writes on a module, for later stages."""

from __future__ import annotations

import json

import tvm

DIGITS, SHIFTS, APPROXIMATE, MULTIPLY = "digits", "shifts", "approximate", "multiply"
FORMS = (MULTIPLY, DIGITS, SHIFTS, APPROXIMATE)
WORDS = {
    DIGITS: "factor in weights of two digits",
    SHIFTS: "factor as shifts and sums",
    APPROXIMATE: "factor in weights of one digit (approximate)",
}
"""Form -> what placement and report call it."""

QUANTIZATION = "vta.quantization"
"""Module attribute: JSON of `rewriter.Record`."""


def islands(mod: tvm.IRModule) -> dict[str, str]:
    """Operators that quantization had to leave float, and why."""
    record = mod.get_attr(QUANTIZATION)
    return dict(json.loads(record).get("islands", {})) if record is not None else {}


def factor_forms(mod: tvm.IRModule) -> dict[str, str]:
    """Layers that need no multiplier for their factor: name -> one of
    `quantization_record.FORMS`."""
    text = mod.get_attr(QUANTIZATION)
    factors = json.loads(text).get("factors", {}) if text is not None else {}
    return {name: entry["form"] for name, entry in factors.items()}


def absorbed(mod: tvm.IRModule) -> dict[str, tuple[str, str]]:
    """Operators that quantization computes inside of another one: (its name, their kind)."""
    record = mod.get_attr(QUANTIZATION)
    found = {} if record is None else json.loads(record).get("absorbed", {})
    return {name: (layer, kind) for name, (layer, kind) in found.items()}
