"""Smooth activations: sigmoid, SiLU, GELU and their hard forms, as PyTorch exports them.

Their values are computed in float64 and rounded to the grid of activations, which is 2**38 times
coarser than the last bits in which machines differ.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models._activations import Activation
from models._exact import F32, F64, on_grid

GATE_PEAK = 3.8
"""Largest magnitude in front of a gate: sigmoids from 0.02 to 0.98."""


def sigmoid(x: npt.NDArray[np.float64]) -> F64:
    """The logistic function in float64."""
    return np.asarray(1 / (1 + np.exp(-x)))


def erf(x: npt.NDArray[np.float64]) -> F64:
    """The error function to 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    terms = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    series = np.polyval([*reversed(terms), 0.0], t)
    return np.asarray(np.sign(x) * (1 - series * np.exp(-(x**2))))


def _sigmoid(x: F32) -> F32:
    return on_grid(sigmoid(x.astype(np.float64))).astype(np.float32)


def _silu(x: F32) -> F32:
    return on_grid(x * sigmoid(x.astype(np.float64)))


def _gelu(x: F32) -> F32:
    return on_grid(0.5 * x * (1 + erf(x / np.sqrt(np.float64(2)))))


def _hard_sigmoid(x: F32) -> F32:
    return on_grid(np.clip(x.astype(np.float64) / 6 + 0.5, 0, 1))


def _hard_swish(x: F32) -> F32:
    return on_grid(x * np.clip(x.astype(np.float64) / 6 + 0.5, 0, 1))


SIGMOID = Activation("Sigmoid", _sigmoid, GATE_PEAK, signed=True)
HARD_SIGMOID = Activation(
    "HardSigmoid", _hard_sigmoid, GATE_PEAK, signed=True, attrs=(("alpha", 1 / 6), ("beta", 0.5))
)
HARD_SWISH = Activation("HardSwish", _hard_swish)
SILU = Activation("Silu", _silu)
"""ONNX has no such operator: `BlockBuilder` writes a sigmoid and a product."""
GELU = Activation("Gelu", _gelu)
"""The opset has no such operator: `BlockBuilder` writes the five operators that PyTorch does."""
