"""Convolutions and elementwise operators in numpy, for the tests.

The references work on unpacked tensors in int64 and know nothing of tiles, groups of blocks or
phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vta_byoc.workload.workloads import (
    CHANNEL,
    FULL,
    MAP,
    Conv2dWorkload,
    ConvTransposeWorkload,
    ElementwiseWorkload,
    Epilogue,
    Step,
)

Rng = np.random.Generator
ConvWork = Conv2dWorkload | ConvTransposeWorkload


# ---------------------------------------------------------------- steps
def rescale(shift: int = 0, low: int = -128, high: int = 127, *, bias: bool = True) -> Epilogue:
    """A bias by channel, a shift (left when negative) and a clamp."""
    steps = [Step("add", CHANNEL)] if bias else []
    if shift:
        steps.append(Step("shr", shift) if shift > 0 else Step("shl", -shift))
    return Epilogue((*steps, Step("max", low), Step("min", high)))


def numpy_steps(
    value: np.ndarray, steps: Sequence[Step], operands: Sequence[np.ndarray]
) -> np.ndarray:
    """int64 (n, c, h, w) after ``steps``; every value must fit int32."""
    waiting = list(operands)
    for step in steps:
        operand = _wide(waiting.pop(0), step) if step.is_tensor else step.operand
        value = NUMPY[step.op](value, operand)
        assert abs(value).max(initial=0) < 2**31
    return value


NUMPY = {
    "add": np.add,
    "mul": np.multiply,
    "shr": np.right_shift,
    "shl": np.left_shift,
    "max": np.maximum,
    "min": np.minimum,
}


def _wide(operand: np.ndarray, step: Step) -> np.ndarray:
    """A tensor operand as it broadcasts over (n, c, h, w)."""
    wide = operand.astype(np.int64)
    return wide[None, :, None, None] if step.operand == CHANNEL else wide[None]


def operand_shape(kind: str, work: Any) -> tuple[int, ...]:
    """Unpacked shape of a tensor operand."""
    _, c, h, w = work.out_shape
    return {CHANNEL: (c,), MAP: (h, w), FULL: (c, h, w)}[kind]


# ---------------------------------------------------------------- numpy references
def numpy_conv(
    work: Conv2dWorkload, x: np.ndarray, weight: np.ndarray, *operands: np.ndarray
) -> np.ndarray:
    """Direct convolution of NCHW ``x`` and OIHW ``weight``, with the epilogue."""
    pads = [(max(0, work.padding[k]), max(0, work.padding[k + 2])) for k in (0, 1)]
    wide = np.pad(x.astype(np.int64), ((0, 0), (0, 0), *pads))
    top, left, bottom, right = (max(0, -p) for p in work.padding)
    wide = wide[:, :, top : wide.shape[2] - bottom, left : wide.shape[3] - right]
    (sh, sw), (dh, dw) = work.strides, work.dilation
    oh = (wide.shape[2] - (work.kernel[0] - 1) * dh - 1) // sh + 1
    ow = (wide.shape[3] - (work.kernel[1] - 1) * dw - 1) // sw + 1
    acc = np.zeros((x.shape[0], weight.shape[0], oh, ow), np.int64)
    for group_in, group_out in _groups(work):
        for kh, kw in np.ndindex(*work.kernel):
            rows = wide[:, group_in, kh * dh : kh * dh + (oh - 1) * sh + 1 : sh]
            seen = rows[:, :, :, kw * dw : kw * dw + (ow - 1) * sw + 1 : sw]
            taps = weight[group_out, :, kh, kw].astype(np.int64)
            acc[:, group_out] += np.einsum("nihw,oi->nohw", seen, taps)
    return finished(acc, work.epilogue, operands)


def numpy_conv_transpose(
    work: ConvTransposeWorkload, x: np.ndarray, weight: np.ndarray, *operands: np.ndarray
) -> np.ndarray:
    """Every input pixel times the kernel, added up; weight (I, O/groups, KH, KW)."""
    (sh, sw), (dh, dw) = work.strides, work.dilation
    n, _, h, w = x.shape
    top, left, _, _ = work.padding
    reach = [(work.kernel[k] - 1) * work.dilation[k] + 1 for k in (0, 1)]
    height = max((h - 1) * sh + reach[0], top + work.out_height)
    width = max((w - 1) * sw + reach[1], left + work.out_width)
    acc = np.zeros((n, work.out_channels, height, width), np.int64)
    for group_in, group_out in _groups(work):
        for kh, kw in np.ndindex(*work.kernel):
            taps = weight[group_in, :, kh, kw].astype(np.int64)
            value = np.einsum("nihw,io->nohw", x[:, group_in].astype(np.int64), taps)
            rows = slice(kh * dh, kh * dh + (h - 1) * sh + 1, sh)
            columns = slice(kw * dw, kw * dw + (w - 1) * sw + 1, sw)
            acc[:, group_out, rows, columns] += value
    kept = acc[:, :, top : top + work.out_height, left : left + work.out_width]
    return finished(kept, work.epilogue, operands)


def _groups(work: ConvWork) -> list[tuple[slice, slice]]:
    """Input and output channels of each group."""
    i, o = work.in_channels // work.groups, work.out_channels // work.groups
    return [(slice(g * i, g * i + i), slice(g * o, g * o + o)) for g in range(work.groups)]


def numpy_elementwise(
    work: ElementwiseWorkload, inputs: Sequence[np.ndarray], *operands: np.ndarray
) -> np.ndarray:
    """Sides, the operator between them and the epilogue, in int64."""
    values, waiting = [], list(operands)
    for side in work.prologues:
        count = sum(step.is_tensor for step in side.steps)
        wide = inputs[side.operand].astype(np.int64)
        values.append(numpy_steps(wide, side.steps, waiting[:count]))
        waiting = waiting[count:]
    if work.op is not None:
        values = [{**NUMPY, "sub": np.subtract}[work.op](*values)]
    return finished(values[0], work.epilogue, waiting)


def finished(acc: np.ndarray, epilogue: Epilogue, operands: Sequence[np.ndarray]) -> np.ndarray:
    """Accumulators after the epilogue; int8 keeps the low byte, as STORE does."""
    assert abs(acc).max(initial=0) < 2**31
    return numpy_steps(acc, epilogue.steps, operands).astype(epilogue.dtype)


def random_int8(rng: Rng, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape, dtype=np.int8)
