"""Tensors whose tokens are columns: views of packed ones, operators that follow their operands."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import op_name, static_shape
from vta_byoc.partitioning.entry import Match, Parsed
from vta_byoc.workload.layout import NCHW, canonical, is_tokens, token_places, tokens
from vta_byoc.workload.products import ProductWorkload
from vta_byoc.workload.workloads import AttentionWorkload, ElementwiseWorkload

PERMUTE = "relax.permute_dims"


def is_view(shape: Sequence[int], packed: str, moves: Sequence[relax.Call], layout: str) -> bool:
    """Whether a packed tensor is, byte by byte, what reshapes and permutations make of it.

    Args:
        shape: of the tensor before it was packed.
        packed: its layout.
        moves: the operators on it, first to last.
        layout: of their result.
    """
    if not is_tokens(packed):
        return False
    elements = np.arange(math.prod(shape)).reshape(tuple(shape))
    places = token_places(elements, packed)
    for call in moves:
        if op_name(call) == PERMUTE:
            elements = elements.transpose(_axes(call))
        else:
            elements = elements.reshape(static_shape(call))
    return np.array_equal(token_places(elements, layout).reshape(-1), places.reshape(-1))


def _axes(call: relax.Call) -> list[int]:
    """The axes of a permutation; all in reverse where it names none."""
    if call.attrs.axes is None:
        return list(range(call.ty.ndim))[::-1]
    return [int(axis) for axis in call.attrs.axes]


def with_tokens(match: Match, shape: Sequence[int], config: VTAConfig) -> Match | None:
    """An elementwise operator on a tensor of ``shape`` whose tokens are columns.

    None where the operator is another one, operands of it broadcast, or a constant of it differs
    between the elements.
    """
    parsed, layout = match.parsed, tokens(config.block)
    view = canonical(shape, layout)
    if not isinstance(parsed.work, ElementwiseWorkload) or parsed.layout != NCHW or view is None:
        return None
    if parsed.work.shapes or any(c.min() != c.max() for c in parsed.constants.values()):
        return None
    batch, channels, height, width = view
    work = dataclasses.replace(
        parsed.work, batch=batch, channels=channels, height=height, width=width
    )
    constants = {
        name: np.full(channels, values.flat[0], values.dtype)
        for name, values in parsed.constants.items()
    }
    changed = Parsed(work, parsed.operands, constants, layout)
    return Match(match.entry, changed, match.entry.plan(changed, config))


def wants_zero_lanes(parsed: Parsed, config: VTAConfig) -> bool:
    """Whether lanes behind the summed channels of a product must be zero in one operand.

    Tensors that VTA stored have any value there.
    """
    if not isinstance(parsed.work, ProductWorkload | AttentionWorkload):
        return False
    return bool(static_shape(parsed.operands[0])[-1] % config.block)
