"""What slices, concatenations and shuffles do to channels: which one comes from where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tvm import relax

from vta_byoc.ir.bindings import static_shape, straight_bindings
from vta_byoc.ir.chains import Binding
from vta_byoc.partitioning.movement import CHANNELS, shuffle_order, slice_ranges

Channel = tuple[relax.Var, int]
"""A tensor and one of its channels."""


def _concatenated(bindings: Sequence[Binding]) -> list[Channel] | None:
    call = bindings[0].value
    if int(call.attrs.axis) % len(static_shape(call)) != CHANNELS:
        return None
    parts = call.args[0].fields
    return [(part, c) for part in parts for c in range(static_shape(part)[CHANNELS])]


def _sliced(bindings: Sequence[Binding]) -> list[Channel] | None:
    call = bindings[0].value
    shape = static_shape(call.args[0])
    taken = [range(size) for size in shape]
    for axis, *ends in slice_ranges(call):
        taken[axis % len(shape)] = taken[axis % len(shape)][slice(*ends)]
    whole = (taken[i] == range(size) for i, size in enumerate(shape) if i != CHANNELS)
    return [(call.args[0], c) for c in taken[CHANNELS]] if all(whole) else None


def _shuffled(bindings: Sequence[Binding]) -> list[Channel] | None:
    return [(bindings[0].value.args[0], c) for c in shuffle_order(bindings)]


MOVES: Mapping[str, Callable[[Sequence[Binding]], list[Channel] | None]] = {
    "vta.concat": _concatenated,
    "vta.slice": _sliced,
    "vta.channel_shuffle": _shuffled,
}
"""What each row of the partition table that can move whole channels does to them."""


def moved_channels(composite: relax.Function) -> list[Channel] | None:
    """The parameter of ``composite``, and its channel, that each channel of the result is.

    None where it does anything else than move whole channels of (N, C, H, W) tensors.
    """
    read = MOVES.get(str(composite.attrs["Composite"]))
    if read is None or len(static_shape(composite.body.body)) != 4:
        return None
    return read(straight_bindings(composite))
