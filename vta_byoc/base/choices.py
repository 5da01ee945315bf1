"""The names that options of quantization take, for those who list them without the quantizer."""

from __future__ import annotations

MINMAX, PERCENTILE, MSE, KL = "minmax", "percentile", "mse", "kl"
METHODS = (MINMAX, PERCENTILE, MSE, KL)
"""Methods of calibration; plug-ins add others (`vta_byoc.extend.register_calibrator`)."""
POW2, MUL = "pow2", "mul"
SCALES = (POW2, MUL)
"""What the factor between two steps may be: a power of two, or any."""
NONE, CHEAP, ALL = "none", "cheap", "all"
ZERO_POINTS = (NONE, CHEAP, ALL)
"""Which tensors get a zero point: none, those whose readers take it at little cost, or any."""
MULTIPLY, DIGITS, SHIFTS, APPROXIMATE = "multiply", "digits", "shifts", "approximate"
RESCALES = (MULTIPLY, DIGITS, SHIFTS, APPROXIMATE)
"""Forms in which a layer has its factor."""
FUNCTION_WORTH = 12.0
"""So many cycles a vector are paid for half the noise of a function's result, if nothing is said.

The noise is that of rounding and that of results which differ from the table
(`docs/design/038-near-functions.md`, `docs/design/049-ramp-and-bump.md`).
"""
