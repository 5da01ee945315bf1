"""Tensors whose tokens are columns: views of packed ones, operators that follow their operands."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import static_shape
from vta_byoc.ir.chains import Binding
from vta_byoc.partitioning.entry import Match, Parsed
from vta_byoc.partitioning.moved import moved_numbers
from vta_byoc.partitioning.movement import check_size
from vta_byoc.strategies.movement.gather import ZERO, gathered_by
from vta_byoc.workload.layout import NCHW, by_channel, canonical, is_tokens, token_places
from vta_byoc.workload.products import ProductWorkload
from vta_byoc.workload.workloads import (
    CHANNEL,
    FULL,
    MAP,
    AttentionWorkload,
    ElementwiseWorkload,
    MoveWorkload,
    Step,
)


def is_view(shape: Sequence[int], packed: str, moves: Sequence[Binding], layout: str) -> bool:
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
    found = token_places(_moved(elements, moves), layout)
    return np.array_equal(found.reshape(-1), places.reshape(-1))


def token_copy(
    shape: Sequence[int],
    packed: str,
    moves: Sequence[Binding],
    layout: str,
    config: VTAConfig,
    zeros: bool = False,
) -> MoveWorkload:
    """The copy from one packed tensor to what moves make of it, where one has tokens as columns.

    A copy that leaves all vectors where they are, as heads that are joined in groups may, is none.

    Args:
        shape: of the tensor before it was packed.
        packed: its layout.
        moves: the operators on it, first to last.
        layout: of their result.
        config: the machine.
        zeros: lanes behind the channels are zero; else they have any value.

    Raises:
        VTAError: it is no small number of boxes, or too large to be followed.
    """
    check_size(math.prod(shape))
    elements = np.arange(math.prod(shape)).reshape(tuple(shape))
    moved = _moved(elements, moves)
    before, after = canonical(shape, packed), canonical(moved.shape, layout)
    assert before is not None and after is not None, "both are layouts of such tensors"
    place = np.full(elements.size + 1, ZERO if zeros else -1)  # the last is of lanes without one
    channels = _in_channels(elements, packed)
    place[channels[channels >= 0]] = np.flatnonzero(channels >= 0)
    found = place[_in_channels(moved, layout)]
    return gathered_by([before], found.reshape(after), config)


def _in_channels(elements: np.ndarray, layout: str) -> np.ndarray:
    """``elements`` in the order of the (N, C, H, W) that a layout sees, -1 where there is none."""
    return by_channel(token_places(elements, layout)) if is_tokens(layout) else elements.reshape(-1)


def _moved(elements: np.ndarray, moves: Sequence[Binding]) -> np.ndarray:
    for binding in moves:
        elements = moved_numbers(binding, elements)
    return elements


def with_layout(match: Match, shape: Sequence[int], layout: str, config: VTAConfig) -> Match | None:
    """An elementwise operator on a tensor of ``shape`` whose channels are last, not second.

    None where the operator is another one, operands of it broadcast, or a constant differs between
    rows that are images.
    """
    parsed = match.parsed
    view = canonical(shape, layout)
    if not isinstance(parsed.work, ElementwiseWorkload) or parsed.layout != NCHW or view is None:
        return None
    if parsed.work.shapes:
        return None
    moved = _Constants(parsed, shape, layout)
    prologues = tuple(
        dataclasses.replace(side, steps=moved.steps(side.steps)) for side in parsed.work.prologues
    )
    epilogue = dataclasses.replace(
        parsed.work.epilogue, steps=moved.steps(parsed.work.epilogue.steps)
    )
    if not moved.known:
        return None
    batch, channels, height, width = view
    work = dataclasses.replace(
        parsed.work,
        batch=batch,
        channels=channels,
        height=height,
        width=width,
        prologues=prologues,
        epilogue=epilogue,
    )
    changed = Parsed(work, parsed.operands, moved.constants, layout)
    return Match(match.entry, changed, match.entry.plan(changed, config))


class _Constants:
    """The constants of steps on a tensor, as its tokens or rows have them.

    What differs between channels there may differ between positions here, and the other way round.
    Not ``known`` are those that differ between rows.
    """

    def __init__(self, parsed: Parsed, shape: Sequence[int], layout: str) -> None:
        work = parsed.work
        self._shape, self._layout = tuple(shape), layout
        self._nchw = work.batch, work.channels, work.height, work.width
        self._given = iter(parsed.constants.items())
        self.constants: dict[str, np.ndarray] = {}
        self.known = True

    def steps(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """`steps`, whose tensor operands are the next constants."""
        return tuple(self._step(step) if step.is_tensor else step for step in steps)

    def _step(self, step: Step) -> Step:
        name, values = next(self._given)
        if step.operand == CHANNEL:
            values = values.reshape(-1, 1, 1)
        whole = np.broadcast_to(values, self._nchw).reshape(-1)
        places = _in_channels(np.arange(whole.size).reshape(self._shape), self._layout)
        view = canonical(self._shape, self._layout)
        assert view is not None, "it has been asked before"
        # Lanes that do not exist have a value that others have, so that bounds hold.
        images = whole[np.maximum(places, 0)].reshape(view[0], view[1], 1, -1)
        self.known &= bool((images == images[:1]).all())
        packed = images[0]
        kind = FULL
        if (packed == packed[:, :, :1]).all():
            kind, packed = CHANNEL, packed[:, 0, 0]
        elif (packed == packed[:1]).all():
            kind, packed = MAP, packed[0]
        self.constants[name] = np.ascontiguousarray(packed)
        return dataclasses.replace(step, operand=kind)


def wants_zero_lanes(parsed: Parsed, config: VTAConfig) -> bool:
    """Whether lanes behind the summed channels of a product must be zero in one operand.

    Tensors that VTA stored have any value there.
    """
    if not isinstance(parsed.work, ProductWorkload | AttentionWorkload):
        return False
    return bool(static_shape(parsed.operands[0])[-1] % config.block)
