"""Normalizations: of every position over its channels, or of groups of channels over the plane."""

from __future__ import annotations

from dataclasses import dataclass

from vta_byoc.workload.steps import CHANNEL, Epilogue, SameShape


@dataclass(frozen=True)
class NormWorkload(SameShape):
    """Every position of (N, C, H, W) int8 normalized over its channels by itself.

    Attributes:
        batch: N.
        channels: C.
        height: H.
        width: W.
        summed: how many of the channels belong to a token; the others fill its last block.
        centred: whether the mean is taken off.
        epsilon: in squared steps, summed over the channels.
        factor: what all normalized values are multiplied by; None: each channel has its own, in
            a tensor operand.
        offset: what is added to the products; None as for `factor`.
        shift: the right shift behind that.
        low: the least result.
        high: the largest result.
        epilogue: no steps: they are those of `norms.element_steps`.
    """

    summed: int
    centred: bool
    epsilon: int
    factor: int | None
    offset: int | None
    shift: int
    low: int
    high: int
    epilogue: Epilogue = Epilogue()

    @property
    def tensors(self) -> tuple[str, ...]:
        """Kinds of the tensor operands: the factors, then the offsets."""
        return tuple(CHANNEL for value in (self.factor, self.offset) if value is None)

    @property
    def numbers(self) -> dict[str, int]:
        """The factor and the offset, where they are one for all channels."""
        given = {"factor": self.factor, "offset": self.offset}
        return {name: value for name, value in given.items() if value is not None}

    def sums(self, batch: int, block: int) -> int:
        """How many vectors of (batch, block) lanes the sums of all positions are."""
        return -(-self.batch // batch) * self.height * self.width


@dataclass(frozen=True)
class GroupNormWorkload(NormWorkload):
    """Every group of channels of every image of (N, C, H, W) int8 normalized by itself.

    ``summed`` is how many elements a group has: those of all its channels and positions.

    Attributes:
        groups: how many groups the channels are, in order.
    """

    groups: int = 1

    @property
    def group_channels(self) -> int:
        """How many channels a group has."""
        return self.channels // self.groups

    def blocks_of_sum(self, block: int) -> int:
        """How many blocks of channels a vector of sums is of: one, or all of a group."""
        inside = self.channels if self.groups == 1 else self.group_channels
        return -(-inside // block)

    def sums(self, batch: int, block: int) -> int:
        """How many vectors of (batch, block) lanes the sums of all groups are."""
        return -(-self.batch // batch) * (-(-self.channels // block) // self.blocks_of_sum(block))
