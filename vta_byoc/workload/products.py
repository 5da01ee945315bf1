"""Products of two computed tensors, as a strategy needs to know of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vta_byoc.workload.workloads import Conv2dWorkload, Shape


@dataclass(frozen=True)
class ProductWorkload(Conv2dWorkload):
    """A product of two computed tensors for each group, as a 1 x 1 convolution of one image.

    Tokens are columns. The second operand, (1, in_channels, 1, out_channels / groups), is the
    weight: one output channel for each of its columns. Groups fill whole blocks.
    """

    weight_by_input: ClassVar[bool] = True

    @property
    def in_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the data and of the tensor that is the weight."""
        columns = self.out_channels // self.groups
        return (*super().in_shapes, (1, self.in_channels, 1, columns))


@dataclass(frozen=True)
class TransposeWorkload(ProductWorkload):
    """Matrices whose rows and columns are exchanged: products of the identity and them."""

    @property
    def in_shapes(self) -> tuple[Shape, ...]:
        """The shape of the tensor that is the weight."""
        return super().in_shapes[1:]
