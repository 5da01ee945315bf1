"""What a compiled model needs of DRAM, and which tensors never visit it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vta_byoc.base.json_types import JsonObject
from vta_byoc.base.quantities import count, megabytes
from vta_byoc.hw.program.program import Program
from vta_byoc.passes.fuse_tiles import Sharing
from vta_byoc.workload.memory import ACC


@dataclass(frozen=True)
class ArenaUse:
    """Bytes of a region's arena.

    Attributes:
        inputs: what the host hands over; ``outputs``: what it is handed back.
        constants: weights, biases and micro-ops.
        peak: temporaries and outputs; ``apart``: the same with a place for each.
    """

    inputs: int
    outputs: int
    constants: int
    peak: int
    apart: int

    @classmethod
    def of(cls, program: Program) -> ArenaUse:
        """That of a linked program."""
        outputs = sum(symbol.nbytes for symbol in program.of_kind("output"))
        image = int(program.image.size)
        return cls(program.input_bytes, outputs, image, program.peak_bytes, program.unshared_bytes)

    def to_json(self) -> dict[str, int]:
        """The bytes of each part of the arena, as `report --json` has them."""
        return {
            "inputs": self.inputs,
            "outputs": self.outputs,
            "constants": self.constants,
            "peak": self.peak,
            "apart": self.apart,
        }


@dataclass(frozen=True)
class MemoryFacts:
    """The arena of each region, and every demand for the accumulator buffer."""

    arenas: Mapping[str, ArenaUse]
    sharing: Sequence[Sharing]

    @classmethod
    def of(cls, programs: Mapping[str, Program], sharing: Sequence[Sharing]) -> MemoryFacts:
        """The memory of all regions' programs.

        The record is that of :func:`vta_byoc.passes.fuse_tiles.sharing_record`.
        """
        return cls({name: ArenaUse.of(program) for name, program in programs.items()}, sharing)

    @property
    def met(self) -> list[Sharing]:
        """Tensors that stay on chip."""
        return [item for item in self.sharing if item.scope == ACC]

    @property
    def unmet(self) -> list[Sharing]:
        """Demands for tensors that are in DRAM."""
        return [item for item in self.sharing if item.scope != ACC]

    @property
    def saved(self) -> int:
        """Bytes that are not moved."""
        return sum(item.saved for item in self.met)

    @property
    def largest(self) -> ArenaUse:
        """The region that stores the most at a time; regions run one after the other."""
        return max(self.arenas.values(), key=lambda arena: arena.peak)

    def reasons(self) -> dict[str, list[Sharing]]:
        """Demands that were not met by the kind of their reason, the most bytes first."""
        groups: dict[str, list[Sharing]] = {}
        for item in self.unmet:
            groups.setdefault(item.kind or item.rule, []).append(item)
        return dict(sorted(groups.items(), key=lambda group: -_nbytes(group[1])))

    def lines(self) -> Iterable[tuple[str, str]]:
        """Title and text: what stays on chip, and the most that stored tensors take in DRAM."""
        if self.met:
            yield "on chip", f"{count(len(self.met), 'tensor')}, {megabytes(self.saved)} not moved"
        if self.arenas:
            most = self.largest
            text = f"{megabytes(most.peak)} of stored tensors"
            if most.peak < most.apart:
                text += f", {megabytes(most.apart)} with a place for each"
            yield "DRAM peak", text

    def to_json(self) -> JsonObject:
        """The object `memory` of `report --json`; docs/report.md explains its keys."""
        return {
            "saved_bytes": self.saved,
            "on_chip": [
                {
                    "tensor": item.tensor,
                    "consumer": item.consumer,
                    "met": item.scope == ACC,
                    "rule": item.rule,
                    "bytes": item.nbytes,
                    "saved": item.saved,
                    "cycles_apart": item.apart,
                    "cycles_together": item.together,
                }
                for item in self.sharing
            ],
            "arenas": {name: arena.to_json() for name, arena in self.arenas.items()},
        }


def _nbytes(items: Iterable[Sharing]) -> int:
    return sum(item.nbytes for item in items)
