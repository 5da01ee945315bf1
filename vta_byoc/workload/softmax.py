"""Softmax along an axis of positions, as a strategy needs to know of it."""

from __future__ import annotations

from dataclasses import dataclass

from vta_byoc.ir.softmax import Softmax
from vta_byoc.workload.steps import Epilogue, SameShape


@dataclass(frozen=True)
class SoftmaxWorkload(SameShape):
    """Rows or columns of (N, C, H, W) int8, each with a sum of its own.

    Attributes:
        batch: N.
        channels: C.
        height: H.
        width: W.
        axis: along which a sum is: 2 or 3.
        keys: how many positions along it have scores; the others, which fill a block of tokens,
            become 0.
        numbers: of `ir.attention.Attention`, in order, from `shift` on.
        epilogue: no steps: they are those of `ir.softmax`.
    """

    axis: int
    keys: int
    numbers: tuple[int, ...]
    epilogue: Epilogue = Epilogue()

    @property
    def softmax(self) -> Softmax:
        """What is computed."""
        return Softmax(self.keys, self.numbers)

    @property
    def places(self) -> int:
        """All positions along the axis."""
        return self.out_shape[self.axis]
