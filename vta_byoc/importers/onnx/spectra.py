"""ONNX's spectra as layers: STFT is a convolution with waves of the frequencies, DFT a product."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import helper
from tvm import relax

from vta_byoc.importers.onnx.node import NodeAttributes, all_nodes, attributes_of, known_values
from vta_byoc.importers.waves import complex_waves, real_waves, waves
from vta_byoc.ir.bindings import static_shape

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
    weights = None if window is None else known_values(window, "window").astype("float64")
    frame = _frame(weights, length)
    filters = _filters(frame, weights, bool(attrs.get("onesided", 1)))
    rows = builder.emit(relax.op.reshape(signal, (shape[0], 1, shape[1])))
    stride = int(known_values(step, "frame step").reshape(-1)[0])
    parts = builder.emit(relax.op.nn.conv1d(rows, relax.const(filters), strides=stride))
    _, count, frames = static_shape(parts)
    pairs = builder.emit(relax.op.reshape(parts, (shape[0], 2, count // 2, frames)))
    return relax.op.permute_dims(pairs, [0, 3, 2, 1])


def _frame(weights: np.ndarray | None, length: relax.Expr | None) -> int:
    if length is None:
        if weights is None:
            raise ValueError("it has neither a window nor a frame length")
        return len(weights)
    stated = int(known_values(length, "frame length").reshape(-1)[0])
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


# ---------------------------------------------------------------- the whole signal
def state_axes(model: onnx.ModelProto, opset: int) -> None:
    """Write down the axis of every DFT that states none: another one is meant below opset 20."""
    if opset >= AXIS_OPERAND:
        return
    for node in all_nodes(model.graph):
        if (node.op_type, node.domain) == ("DFT", "") and "axis" not in attributes_of(node):
            node.attribute.append(helper.make_attribute("axis", 1))


AXIS_OPERAND = 20
"""The opset from which the axis of DFT is an operand, and the last one where none is given."""


def dft(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    """The discrete Fourier transform along one axis, as a product with a matrix of waves.

    Args:
        builder: emits what the node needs.
        inputs: signal (..., 1) of real or (..., 2) of complex numbers; length, that of the signal
            when None: it is cut or continued with zeros; axis, as an operand from opset 20 on.
        attrs: `axis` before; `inverse`; `onesided`: frequencies up to half of the length, those of
            a real signal, which is the result with `inverse`.

    Raises:
        ValueError: an axis or a length that is computed, `onesided` of a complex signal.
    """
    signal, length, place = (inputs[at] for at in range(3))
    shape = static_shape(signal)
    stated = (
        attrs.get("axis", -2) if place is None else int(known_values(place, "axis").reshape(-1)[0])
    )
    rank, axis = len(shape), stated % len(shape)
    is_inverse, is_onesided = bool(attrs.get("inverse", 0)), bool(attrs.get("onesided", 0))
    is_real = is_inverse and is_onesided
    if is_onesided and not is_inverse and shape[-1] != 1:
        raise ValueError("onesided is 1 and its signal is complex; a real one, (..., 1), is taken")
    size = 2 * (shape[axis] - 1) if is_real else shape[axis]
    if length is not None:
        size = int(known_values(length, "length").reshape(-1)[0])
    if is_real:
        matrix = real_waves(shape[axis], size)
    else:
        matrix = complex_waves(shape[axis], size, is_onesided, is_inverse)
    matrix = matrix[: shape[-1]]
    others = [at for at in range(rank - 1) if at != axis]
    order = [*others, rank - 1, axis]
    rows = [shape[at] for at in others]
    parts, count = matrix.shape[2:]
    columns = shape[-1] * shape[axis]
    product = relax.op.matmul(
        relax.op.reshape(relax.op.permute_dims(signal, order), (math.prod(rows), columns)),
        relax.const(np.ascontiguousarray(matrix.reshape(columns, parts * count), "float32")),
    )
    return relax.op.permute_dims(
        relax.op.reshape(product, (*rows, parts, count)), np.argsort(order).tolist()
    )
