"""One execution of a leaf: its accesses as SRAM elements and as loops over elements.

A loop either runs over whole elements or over the lanes of one; every nest is checked to be so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import tirx

from vta_byoc.hw.config import VTAConfig

from .accumulator import elements
from .alu import Access
from .leaf import WGT, Leaf, element_scalars
from .linear import CodegenError, clip_box
from .uops import LoopDim
from .walk import SramMap

Box = list[tuple[int, int]]


@dataclass(frozen=True)
class Execution:
    """``leaf`` with the outer loop values ``env``, over ``box`` of its own loops."""

    config: VTAConfig
    leaf: Leaf
    env: Mapping[int, int]
    sram: SramMap
    box: Box

    @classmethod
    def of(
        cls, config: VTAConfig, leaf: Leaf, env: Mapping[int, int], sram: SramMap
    ) -> Execution | None:
        """The execution that the leaf's predicate leaves, or None where it leaves nothing."""
        box = clip_box(leaf.where, env, leaf.loops)
        return None if box is None else cls(config, leaf, env, sram, box)

    def unit(self, access: Access) -> int:
        """Scalars of one element of ``access``."""
        return element_scalars(self.config, access.scope)

    def ranges(self) -> list[tuple[int, int, int]]:
        """(variable, low, high) of each loop."""
        return [(v, *r) for (v, _), r in zip(self.leaf.loops, self.box, strict=True)]

    def at(self, access: Access) -> int:
        """SRAM element of ``access`` at the corner of the box."""
        corner = {**self.env, **{var: low for var, low, _ in self.ranges()}}
        element, lane = divmod(access.flat.at(corner), self.unit(access))
        if lane:
            raise CodegenError(
                f"block {self.leaf.name}: {access.buffer.name} starts at lane {lane} of an element "
                f"of {self.unit(access)}; start at whole elements"
            )
        return element + self.sram.base(access.buffer)

    def elements(self, access: Access) -> np.ndarray:
        """Every SRAM element of ``access``."""
        return elements(self.dims(access), 0, self.at(access))

    def dims(self, *accesses: Access, lanes_alike: bool = False) -> list[LoopDim]:
        """Loops over SRAM elements with the strides of up to three accesses, in elements."""
        units = [self.unit(a) for a in accesses]
        dims = []
        for var, low, high in self.ranges():
            strides = [a.flat.coef(var) for a in accesses]
            if high - low == 1:
                continue
            if inside(strides, units):
                if lanes_alike and len(set(strides)) > 1:
                    raise CodegenError(
                        f"block {self.leaf.name}: a lane loop steps {strides}; the ALU works lane "
                        "by lane; give every operand the same lanes"
                    )
                continue
            if any(s % u for s, u in zip(strides, units, strict=True)):
                raise CodegenError(
                    f"block {self.leaf.name}: a loop steps {strides} scalars, elements hold "
                    f"{units}; keep the batch and channel lanes innermost and whole"
                )
            parts = [s // u for s, u in zip(strides, units, strict=True)]
            dst, src, wgt = (*parts, 0, 0)[:3]
            dims.append(LoopDim(high - low, (dst, src, wgt)))
        return dims

    def check_lanes(self, access: Access) -> None:
        """The lane loops of ``access`` must cover whole elements."""
        unit = self.unit(access)
        lanes: dict[int, int] = {}
        for var, low, high in self.ranges():
            stride = access.flat.coef(var)
            if 0 < stride < unit:
                lanes[stride] = lanes.get(stride, 1) * (high - low)
        total = 1
        for stride in sorted(lanes):
            if stride != total:
                break
            total *= lanes[stride]
        if total != unit:
            rows = self.config.block if access.scope == WGT else self.config.batch
            raise CodegenError(
                f"block {self.leaf.name}: lane loops cover {total} scalars; an element of "
                f"{access.scope} has {unit} ({rows}x{self.config.block}); split the loops at whole "
                "elements"
            )

    def check_gemm_lanes(self, dst: Access, src: Access, wgt: Access) -> None:
        """acc[b, o] += inp[b, k] * wgt[o, k]: anything else is not a GEMM."""
        block = self.config.block
        allowed = {(block, block, 0), (1, 0, block), (0, 1, 1)}
        units = [self.unit(a) for a in (dst, src, wgt)]
        for var, extent in self.leaf.loops:
            lanes = tuple(a.flat.coef(var) for a in (dst, src, wgt))
            if extent > 1 and inside(lanes, units) and lanes not in allowed:
                raise CodegenError(
                    f"block {self.leaf.name}: a lane loop steps {lanes} in acc, inp, wgt; GEMM "
                    "computes acc[b, o] += inp[b, k] * wgt[o, k]; transpose the weights when "
                    "packing"
                )

    def instance(self, buffer: tirx.Var) -> tuple[tirx.Var, int, int]:
        """Which instance of ``buffer`` this execution touches."""
        return buffer, self.sram.base(buffer), self.sram.generation.get(buffer, 0)


def inside(strides: Sequence[int], units: Sequence[int]) -> bool:
    """Whether a loop runs over the lanes of an element."""
    return any(strides) and all(abs(s) < u for s, u in zip(strides, units, strict=True))
