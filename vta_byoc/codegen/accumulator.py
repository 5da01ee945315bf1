"""What the accumulator's vectors hold while a layer is emitted.

Two things are known of each vector: whether GEMM or ALU wrote it last (a STORE may read nothing
else) and which block, if any, overwrote its value in place (nobody may read that value again).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .linear import CodegenError
from .uops import LoopDim


def elements(dims: Sequence[LoopDim], operand: int, base: int) -> np.ndarray:
    """SRAM elements that operand number ``operand`` of a nest touches, from ``base``."""
    at = np.array([base])
    for d in dims:
        if d.strides[operand]:
            at = (at[:, None] + np.arange(d.extent) * d.strides[operand]).reshape(-1)
    return at


class Accumulator:
    """State of every vector of the ACC buffer; indices are arrays of SRAM elements."""

    def __init__(self, depth: int):
        self._computed = np.zeros(depth, bool)
        self._spender = np.zeros(depth, np.int64)
        self._names = [""]

    def cleared(self, at: np.ndarray) -> None:
        """A load or a reset wrote ``at``."""
        self._computed[at] = False
        self._spender[at] = 0

    def computed(self, at: np.ndarray) -> None:
        """GEMM or ALU wrote ``at``, as the value of its own block."""
        self._computed[at] = True

    def spent(self, at: np.ndarray, name: str) -> None:
        """Block ``name`` overwrote the values ``at`` on the way to its own."""
        self._computed[at] = True
        self._spender[at] = len(self._names)
        self._names.append(name)

    def storable(self, at: np.ndarray) -> bool:
        """Whether GEMM or ALU wrote all of ``at`` last."""
        return bool(self._computed[at].all())

    def refuse_spent(self, at: np.ndarray, name: str, buffer: str) -> None:
        """Refuse block ``name`` to read ``at`` of ``buffer`` after a block spent it."""
        spender = int(self._spender[at].max(initial=0))
        if spender:
            raise CodegenError(
                f"block {name} reads {buffer} after block {self._names[spender]} changed it in "
                "place; the ALU overwrites its first operand; stage a second copy"
            )
