"""Workloads: what a strategy needs to know of an operator, in numbers.

Sizes are those before packing.  Every workload gives ``in_shapes`` and ``out_shape`` as
(N, C, H, W) and its ``epilogue``; `texts` writes and reads it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, TypeVar

from vta_byoc.workload.attention import AttentionWorkload
from vta_byoc.workload.copy_region import CopyRegion, Ints, read_box
from vta_byoc.workload.norm_workloads import GroupNormWorkload, NormWorkload
from vta_byoc.workload.softmax import SoftmaxWorkload
from vta_byoc.workload.steps import (
    CHANNEL,
    FULL,
    INT8_RANGE,
    MAP,
    Epilogue,
    Pads,
    Shape,
    Step,
)

__all__ = [
    "CHANNEL",
    "FULL",
    "INT8_RANGE",
    "MAP",
    "AttentionWorkload",
    "ConcatWorkload",
    "Conv2dWorkload",
    "ConvTransposeWorkload",
    "ConvWorkload",
    "ElementwiseWorkload",
    "Epilogue",
    "GroupNormWorkload",
    "Kind",
    "MoveWorkload",
    "NormWorkload",
    "Pads",
    "PoolWorkload",
    "Prologue",
    "Shape",
    "SoftmaxWorkload",
    "Step",
    "Workload",
]


@dataclass(frozen=True)
class ConvWorkload(ABC):
    """What convolutions of both directions have: ``groups`` of channels that do not mix.

    ``digit_shift``: weights are integers of two int8 digits, ``(high << digit_shift) + low``, whose
    sums are accumulated apart and then joined; 0: they are int8.  ``bias``: a bias for each channel
    is part of the accumulators, as a product of the GEMM core with a constant vector.
    """

    batch: int
    in_channels: int
    out_channels: int
    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: Pads = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    epilogue: Epilogue = Epilogue()
    digit_shift: int = 0
    bias: bool = False

    @property
    def digits(self) -> int:
        """Number of int8 digits of a weight."""
        return 2 if self.digit_shift else 1

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns that the dilated kernel spans."""
        return (
            (self.kernel[0] - 1) * self.dilation[0] + 1,
            (self.kernel[1] - 1) * self.dilation[1] + 1,
        )

    @property
    def out_height(self) -> int:
        """Rows of the result."""
        return self._out(0, self.height)

    @property
    def out_width(self) -> int:
        """Columns of the result."""
        return self._out(1, self.width)

    @abstractmethod
    def _out(self, axis: int, size: int) -> int:
        """Rows (axis 0) or columns of the result of an input of ``size``."""

    @property
    def in_shapes(self) -> tuple[Shape, ...]:
        """The shape of the data."""
        return ((self.batch, self.in_channels, self.height, self.width),)

    @property
    def out_shape(self) -> Shape:
        """The shape of the result."""
        return (self.batch, self.out_channels, self.out_height, self.out_width)


@dataclass(frozen=True)
class Conv2dWorkload(ConvWorkload):
    """A convolution, correlation form.

    A padding may be negative: that many rows or columns of the input are not read.  conv1d is the
    case of one row, a dense layer that of one pixel.

    ``weight_by_input``: blocks of weights lie in DRAM by input, then output channel.

    Attributes:
        borders: whether values by channel are added in each box of the result beside a border
            (`workload.borders`), an argument behind the weights and the bias.
        filled: rectangles of blocks, [first, end) of filters and [first, end) of channels, beside
            which all weights are zero; nothing where groups alone say so.  They belong to one
            geometry of the machine.
    """

    weight_by_input: ClassVar[bool] = False
    borders: bool = False
    filled: tuple[tuple[int, int, int, int], ...] = ()

    def _out(self, axis: int, size: int) -> int:
        padded = size + self.padding[axis] + self.padding[axis + 2]
        return (padded - self.extent[axis]) // self.strides[axis] + 1

    @property
    def macs(self) -> int:
        """Multiplications of the unpacked operator."""
        taps = self.in_channels // self.groups * self.kernel[0] * self.kernel[1]
        return self.batch * self.out_channels * self.out_height * self.out_width * taps


@dataclass(frozen=True)
class ConvTransposeWorkload(ConvWorkload):
    """A transposed convolution: to output position stride * input + dilation * tap - padding."""

    output_padding: tuple[int, int] = (0, 0)

    def _out(self, axis: int, size: int) -> int:
        pads = self.padding[axis] + self.padding[axis + 2]
        behind = self.output_padding[axis] - pads
        return (size - 1) * self.strides[axis] + self.extent[axis] + behind

    @property
    def macs(self) -> int:
        """Multiplications by data (none by inserted zeros), borders not subtracted."""
        taps = self.out_channels // self.groups * self.kernel[0] * self.kernel[1]
        return self.batch * self.in_channels * self.height * self.width * taps


@dataclass(frozen=True)
class Prologue:
    """What is done to an operand of an elementwise operator before it meets the other.

    Argument number ``operand`` is widened to int32, then there are ``steps``.
    """

    operand: int
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class ElementwiseWorkload:
    """``epilogue(prologue0 op prologue1)`` on int8 tensors; on one if ``op`` is None.

    Two prologues may read the same operand.  The tensor operands of all steps are arguments after
    the int8 operands: those of the prologues first, then those of the epilogue.  ``ranges`` are the
    least and the largest value that each int8 operand can hold; none are known where it is empty.
    ``shapes`` are those of the int8 operands, (N, C, H, W), of which some are 1 where the result is
    longer: these are repeated; empty where all are that of the result.
    """

    batch: int
    channels: int
    height: int
    width: int
    prologues: tuple[Prologue, ...]
    op: str | None = None
    epilogue: Epilogue = Epilogue()
    ranges: tuple[tuple[int, int], ...] = ()
    shapes: tuple[Shape, ...] = ()

    @property
    def operands(self) -> int:
        """Number of int8 operands."""
        return 1 + max(prologue.operand for prologue in self.prologues)

    def range_of(self, operand: int) -> tuple[int, int]:
        """The least and the largest value of an int8 operand."""
        return self.ranges[operand] if self.ranges else INT8_RANGE

    @property
    def in_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the int8 operands."""
        return self.shapes or (self.out_shape,) * self.operands

    def repeated(self, operand: int) -> str:
        """The axes, of "nchw", along which an int8 operand of size 1 meets a longer result."""
        own = self.in_shapes[operand]
        return "".join(
            axis
            for axis, size, whole in zip("nchw", own, self.out_shape, strict=True)
            if size < whole
        )

    @property
    def out_shape(self) -> Shape:
        """The shape of the result."""
        return (self.batch, self.channels, self.height, self.width)


@dataclass(frozen=True)
class PoolWorkload:
    """Max or sum pooling over windows.

    ``kind`` "max": padding never wins; "sum": padding counts as zero.  ``low``: the least value
    that the input can hold (0 after a relu: then zero padding is harmless).  ``factor``: what the
    GEMM core multiplies a sum by before the epilogue, 1 to 32767, for machines without MUL.
    ``factors``: those of each box of positions that see the same taps (`workload.borders`), rows
    first, where they differ: padding that does not count leaves fewer values to a mean.
    """

    kind: str
    batch: int
    channels: int
    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: Pads = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    low: int = -128
    epilogue: Epilogue = Epilogue()
    factor: int = 1
    factors: tuple[int, ...] = ()

    @property
    def window(self) -> Conv2dWorkload:
        """The depthwise convolution that slides the same window."""
        return Conv2dWorkload(
            self.batch,
            self.channels,
            self.channels,
            self.height,
            self.width,
            self.kernel,
            self.strides,
            self.padding,
            self.dilation,
            self.channels,
        )

    @property
    def in_shapes(self) -> tuple[Shape, ...]:
        """The shape of the data."""
        return self.window.in_shapes

    @property
    def out_shape(self) -> Shape:
        """The shape of the result."""
        return self.window.out_shape


@dataclass(frozen=True)
class ConcatWorkload:
    """int8 tensors joined along the channels; all but the last fill their blocks."""

    batch: int
    channels: tuple[int, ...]
    height: int
    width: int
    epilogue: Epilogue = Epilogue()

    @property
    def in_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the operands, which differ by their channels."""
        return tuple((self.batch, c, self.height, self.width) for c in self.channels)

    @property
    def out_shape(self) -> Shape:
        """The shape of the result."""
        return (self.batch, sum(self.channels), self.height, self.width)


@dataclass(frozen=True)
class MoveWorkload:
    """A result made of ``boxes``, which are disjoint; vectors are numbered in packed order.

    Shapes are (N, C, H, W) before packing; the boxes belong to one geometry of the machine.
    """

    in_shapes: tuple[Shape, ...]
    out_shape: Shape
    boxes: tuple[CopyRegion, ...]

    def __post_init__(self) -> None:
        """Boxes and shapes may be given as JSON reads them."""
        object.__setattr__(self, "in_shapes", tuple(tuple(s) for s in self.in_shapes))
        object.__setattr__(self, "out_shape", tuple(self.out_shape))
        object.__setattr__(self, "boxes", tuple(read_box(b) for b in self.boxes))

    @property
    def epilogue(self) -> Epilogue:
        """None."""
        return Epilogue()

    @property
    def lanes(self) -> tuple[Ints, ...]:
        """The different movements of lanes, in order."""
        found = dict.fromkeys(s.lanes for box in self.boxes for s in box.sources)
        return tuple(found) or ((),)


Workload: TypeAlias = (
    Conv2dWorkload
    | ConvTransposeWorkload
    | ElementwiseWorkload
    | PoolWorkload
    | NormWorkload
    | GroupNormWorkload
    | AttentionWorkload
    | SoftmaxWorkload
    | ConcatWorkload
    | MoveWorkload
)
Kind = TypeVar("Kind", bound=Workload)
"""One of the classes of workloads."""
