"""The loop nests of an attention's kernels.

Scores have keys in vectors and queries in lanes, so that the largest of a query is a maximum over
vectors, exact, and is taken off lane by lane.  A sum over keys needs them in lanes: the tiles of
shares are turned by the identity, through DRAM.  The product with the values has queries in lanes
again, so that the reciprocal of a query's sum is one vector for all channels; turned once more it
is the result.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.programs import Instructions
from vta_byoc.strategies.te.in_place import apply_program
from vta_byoc.strategies.te.tir_builder import Expr, Load, Nests
from vta_byoc.workload.attention import AttentionWorkload


class Kernel:
    """What all kernels have: the layout of tensors as vectors, and of tiles of them."""

    def __init__(self, work: AttentionWorkload, config: VTAConfig, choice: Choice) -> None:
        self.work, self.config, self.choice, self.k = work, config, choice, config.block
        self.nests = Nests(config)
        self.depth, self.width = work.depth // self.k, work.width // self.k
        self.queries, self.keys = work.query_blocks, work.key_blocks

    def seen(self, tile: Expr) -> Expr:
        """Blocks of keys that a chunk of a group may see, or more than there are."""
        chunk = self.choice.tile["t"]
        return tile * chunk + self.work.seen_first(chunk)

    def before_end(self, block: Expr, tile: Expr) -> list[Expr]:
        """Conditions of a block of keys being one that a chunk may see."""
        return [block < self.seen(tile)] if self.work.causal else []

    def finish(self) -> tirx.PrimFunc:
        """The PrimFunc."""
        return self.nests.func(self.choice.slots_attr())

    def applied(
        self,
        prefix: str,
        program: Instructions,
        extents: tuple[int, ...],
        target: Callable[..., Load],
        operands: dict[str, Callable[..., Load]],
        where: Callable[..., list[Expr]],
    ) -> None:
        """`apply_program` on the nests of this kernel."""
        apply_program(self.nests, prefix, program, extents, target, operands, where)
