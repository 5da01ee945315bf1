"""ONNX's STFT as a convolution: its filters are waves of the frequencies, times the window."""

from __future__ import annotations

import numpy as np
from tvm import relax

from vta_byoc.importers.onnx.node import NodeAttributes
from vta_byoc.importers.waves import waves
from vta_byoc.ir.bindings import is_constant, static_shape

Inputs = list[relax.Expr]


def stft(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    """(batch, frames, frequencies, 2): real and imaginary parts of each frame of a real signal.

    Args:
        builder: emits what the node needs.
        inputs: signal (batch, length) or (batch, length, 1), step, window, frame length; None for
            one that is left out.
        attrs: `onesided`, 1 by default: frequencies up to half of the frame.

    Raises:
        ValueError: a complex signal, a step, window or length that is computed, a frame of another
            length than its window.
    """
    signal, step, window, length = (inputs[place] for place in range(4))
    shape = static_shape(signal)
    if len(shape) not in (2, 3) or shape[2:] not in ((), (1,)):
        raise ValueError(f"its signal has the shape {shape}; (batch, length, 1) is taken")
    weights = None if window is None else _known(window, "window").astype("float64")
    frame = _frame(weights, length)
    filters = _filters(frame, weights, bool(attrs.get("onesided", 1)))
    rows = builder.emit(relax.op.reshape(signal, (shape[0], 1, shape[1])))
    stride = int(_known(step, "frame step").reshape(-1)[0])
    parts = builder.emit(relax.op.nn.conv1d(rows, relax.const(filters), strides=stride))
    _, count, frames = static_shape(parts)
    pairs = builder.emit(relax.op.reshape(parts, (shape[0], 2, count // 2, frames)))
    return relax.op.permute_dims(pairs, [0, 3, 2, 1])


def _frame(weights: np.ndarray | None, length: relax.Expr | None) -> int:
    if length is None:
        if weights is None:
            raise ValueError("it has neither a window nor a frame length")
        return len(weights)
    stated = int(_known(length, "frame length").reshape(-1)[0])
    if weights is not None and stated != len(weights):
        raise ValueError(f"its window has {len(weights)} values and a frame {stated}")
    return stated


def _filters(frame: int, weights: np.ndarray | None, is_onesided: bool) -> np.ndarray:
    """(2 * frequencies, 1, frame): those of the real parts, then of the imaginary parts."""
    count = frame // 2 + 1 if is_onesided else frame
    cosines, sines = waves(frame, count)
    filters = np.concatenate([cosines.T, -sines.T])
    if weights is not None:
        filters = filters * weights
    return np.ascontiguousarray(filters[:, None], "float32")


def _known(value: relax.Expr, what: str) -> np.ndarray:
    if not is_constant(value):
        raise ValueError(f"its {what} is computed while the model runs; it must be a constant")
    return np.asarray(value.value.numpy())
