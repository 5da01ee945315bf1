"""Functions of one real number by name, and their tables for given scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from vta_byoc.ir.chains import INT8_HIGH, INT8_LOW
from vta_byoc.unary.program import VALUES

Real = Callable[[np.ndarray], np.ndarray]
"""A function of float64 values, element by element."""
ERF = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def gelu(x: np.ndarray) -> np.ndarray:
    """X times the normal distribution at x."""
    return 0.5 * x * (1.0 + ERF(x / math.sqrt(2.0)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """GELU by the hyperbolic tangent."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


FUNCTIONS: Mapping[str, Real] = {
    "relu6": lambda x: np.clip(x, 0.0, 6.0),
    "hard_sigmoid": lambda x: np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "hard_swish": lambda x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "tanh": np.tanh,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "softplus": lambda x: np.logaddexp(0.0, x),
    "exp": np.exp,
    "erf": ERF,
    "leaky": lambda x: np.where(x > 0, x, 0.1 * x),
}
"""The functions that have a name here."""


def table_of(
    function: Real,
    step: float,
    zero: int,
    out_step: float,
    out_zero: int,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> np.ndarray:
    """The exact table of `function`: the nearest int8 result of each int8 value, int64 [256].

    A half rounds to even; what is not a number is 0.

    Args:
        function: of real values.
        step: the real value of one step of the operand.
        zero: the operand's integer for 0.
        out_step: the real value of one step of the result.
        out_zero: the result's integer for 0.
        low: the least result.
        high: the largest result.
    """
    with np.errstate(all="ignore"):
        real = np.asarray(function((VALUES - zero) * step), np.float64) / out_step
    real = np.nan_to_num(real, nan=0.0, posinf=1e9, neginf=-1e9)
    return np.clip(np.rint(np.clip(real, -1e9, 1e9)) + out_zero, low, high).astype(np.int64)
