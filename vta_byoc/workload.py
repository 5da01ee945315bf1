"""Workloads: what a strategy needs to know of an operator, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Conv2dWorkload:
    """A conv2d with bias, shift and clamp; sizes before packing, ``padding`` top left bottom right.

    ``shift`` > 0 shifts right, < 0 left.
    """

    batch: int
    in_channels: int
    out_channels: int
    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    shift: int = 0
    low: int = -128
    high: int = 127

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns that the dilated kernel spans."""
        return (
            (self.kernel[0] - 1) * self.dilation[0] + 1,
            (self.kernel[1] - 1) * self.dilation[1] + 1,
        )

    @property
    def out_height(self) -> int:
        padded = self.height + self.padding[0] + self.padding[2]
        return (padded - self.reach[0]) // self.strides[0] + 1

    @property
    def out_width(self) -> int:
        padded = self.width + self.padding[1] + self.padding[3]
        return (padded - self.reach[1]) // self.strides[1] + 1

    @property
    def skips_rows(self) -> bool:
        """Whether rows that the stride skips need not be loaded (a kernel of one row)."""
        return self.kernel[0] == 1 and self.strides[0] > 1

    @property
    def macs(self) -> int:
        """Multiplications of the unpacked operator."""
        taps = self.in_channels * self.kernel[0] * self.kernel[1]
        return self.batch * self.out_channels * self.out_height * self.out_width * taps


@dataclass(frozen=True)
class AddWorkload:
    """``((lhs << left_lhs) + (rhs << left_rhs) + rounding) >> shift`` clamped; int8 in and out.

    A negative left shift is a right shift that rounds half up.
    """

    batch: int
    channels: int
    height: int
    width: int
    left_lhs: int = 0
    left_rhs: int = 0
    rounding: int = 0
    shift: int = 0
    low: int = -128
    high: int = 127
