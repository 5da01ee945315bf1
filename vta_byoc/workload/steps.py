"""Shapes, and the steps that follow an accumulator."""

from __future__ import annotations

from dataclasses import dataclass

from vta_byoc.ir.chains import KEPT, OTHER, SELF

Shape = tuple[int, int, int, int]
Pads = tuple[int, int, int, int]
"""Top, left, bottom, right."""

INT8_RANGE = (-(1 << 7), (1 << 7) - 1)
CHANNEL, MAP, FULL = "channel", "map", "full"
"""Tensor operands of a step: one value per channel, per position, or per channel and position."""


@dataclass(frozen=True)
class Step:
    """One int32 operation on every element: ``value = value op operand``.

    ``op`` is add, mul, shr, shl, max or min; ``operand`` an integer that an ALU immediate holds, or
    the kind of a tensor operand: CHANNEL, MAP or FULL.  ``keep`` copies the value on chip, and add
    of KEPT adds the copy; mul of SELF squares the value; add of OTHER, behind the operator that
    joins two values, adds the right one once more.
    """

    op: str
    operand: int | str

    @property
    def is_tensor(self) -> bool:
        """Whether the operand is a tensor that is loaded into the accumulator buffer."""
        return isinstance(self.operand, str) and self.operand not in (KEPT, SELF, OTHER)

    @property
    def is_kept(self) -> bool:
        """Whether the operand is the copy of an earlier value."""
        return self.operand == KEPT

    @property
    def is_square(self) -> bool:
        """Whether the value is multiplied by itself."""
        return self.operand == SELF

    @property
    def is_other(self) -> bool:
        """Whether the operand is the right one of the joining operator."""
        return self.operand == OTHER


@dataclass(frozen=True)
class Epilogue:
    """What happens to an int32 accumulator before it is stored as ``dtype`` (int8 or int32).

    The tensor operands of ``steps`` are arguments of the composite, in order.
    """

    steps: tuple[Step, ...] = ()
    dtype: str = "int8"

    @property
    def tensors(self) -> tuple[str, ...]:
        """Kinds of the tensor operands, in order."""
        return tuple(str(s.operand) for s in self.steps if s.is_tensor)


@dataclass(frozen=True)
class SameShape:
    """What has one operand, and a result of its shape: (N, C, H, W)."""

    batch: int
    channels: int
    height: int
    width: int

    @property
    def in_shapes(self) -> tuple[Shape, ...]:
        """The shape of the data."""
        return (self.out_shape,)

    @property
    def out_shape(self) -> Shape:
        """The shape of the result."""
        return (self.batch, self.channels, self.height, self.width)
