"""Integers as int8 digits, which the GEMM core multiplies by."""

from __future__ import annotations

import numpy as np

from vta_byoc.hw.config import VTAConfig

DIGIT_SHIFT = 8
"""Bits of a lower digit."""
INT8_LOW, INT8_HIGH = -(1 << 7), (1 << 7) - 1
MOST_OF_TWO = (INT8_HIGH << DIGIT_SHIFT) + INT8_HIGH
"""The largest number of two digits."""


def split(values: np.ndarray, shift: int = DIGIT_SHIFT) -> tuple[np.ndarray, np.ndarray]:
    """Integers as ``(high << shift) + low``, ``low`` from -2**(shift - 1) to 2**(shift - 1) - 1."""
    values = np.asarray(values, np.int64)
    high = (values + (1 << (shift - 1))) >> shift
    return high, values - (high << shift)


def is_int8(values: np.ndarray) -> bool:
    """Whether one digit holds all of them."""
    return bool(values.min(initial=0) >= INT8_LOW and values.max(initial=0) <= INT8_HIGH)


def magnitude(values: np.ndarray) -> np.ndarray:
    """What each number adds at most to the magnitude of sums of its digits, int64.

    That is more than the number where one digit does not hold them all: its upper digit may exceed
    it.
    """
    wide = np.asarray(values, np.int64)
    if is_int8(wide):
        return np.abs(wide)
    high, low = split(wide)
    return (np.abs(high) << DIGIT_SHIFT) + np.abs(low)


def horner(value: int) -> tuple[int, ...]:
    """The int8 digits of ``value``, the upper one first: ``(first << 8) + second``, and so on."""
    if INT8_LOW <= value <= INT8_HIGH:
        return (value,)
    high, low = split(np.array(value))
    return (*horner(int(high)), int(low))


def join_cycles(config: VTAConfig) -> tuple[int, int]:
    """(cycles a vector, instructions a tile) of joining the sums of two digits: a shift, a sum."""
    return config.timing.alu_imm_cycles + config.timing.alu_tensor_cycles, 2
