"""The activations of the model zoo: how ONNX writes them, what they compute, how high they go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from models._exact import F32, on_grid
from models._fit import AMAX

SLOPE = 0.1
"""Of leaky relu, as in Darknet."""
RELU6_PEAK = 7.0
"""Largest input of a relu6: a little is clipped, as in trained networks."""


@dataclass(frozen=True)
class Activation:
    """An elementwise operator.

    Attributes:
        op: its ONNX name.
        apply: float32 to float32, exact.
        peak: where its largest input is to lie.
        signed: whether inputs below zero count as well.
        attrs: ONNX attributes.
        constants: further ONNX inputs, scalars by name.
    """

    op: str
    apply: Callable[[F32], F32]
    peak: float = AMAX
    signed: bool = False
    attrs: tuple[tuple[str, float], ...] = ()
    constants: tuple[tuple[str, float], ...] = ()


def _relu(x: F32) -> F32:
    return np.maximum(x, 0)


def _relu6(x: F32) -> F32:
    return np.clip(x, 0, 6)


def _leaky_relu(x: F32) -> F32:
    return on_grid(np.where(x >= 0, x, x * np.float32(SLOPE)))


def _tanh(x: F32) -> F32:
    return np.asarray(np.tanh(x))


RELU = Activation("Relu", _relu)
RELU6 = Activation("Clip", _relu6, RELU6_PEAK, constants=(("relu6.min", 0.0), ("relu6.max", 6.0)))
LEAKY_RELU = Activation("LeakyRelu", _leaky_relu, signed=True, attrs=(("alpha", SLOPE),))
TANH = Activation("Tanh", _tanh, signed=True)
"""Only for outputs: the last bits of tanh differ between machines."""
