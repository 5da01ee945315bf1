"""What compiling a model gives: the executable, and all that is known of what is in it."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.html_table import first_rows, html_table
from vta_byoc.hw.program.program import Program
from vta_byoc.partitioning.placement import Placements
from vta_byoc.passes.fuse_tiles import Sharing


@dataclass(repr=False)
class Compiled:
    """An executable with what was compiled into it.

    `vta_byoc.profile` runs it and adds times and placement to what it counts.

    Attributes:
        exe: what the Relax virtual machine runs.
        config: the machine.
        device: the device that executes the programs.
        programs: the regions' programs by name, in the order of their numbers.
        placement: where every operator of the model runs, and why.
        sharing: which tensors stay on chip.
    """

    exe: relax.VMExecutable
    config: VTAConfig
    device: str
    programs: dict[str, Program]
    placement: Placements
    sharing: list[Sharing]

    def __repr__(self) -> str:
        insns = sum(len(program.insns) for program in self.programs.values())
        return (
            f"<Compiled for {self.config.target} ({self.config.name}), device {self.device}: "
            f"regions: {len(self.programs)}, instructions: {insns:,}; {self.placement.summary}>"
        )

    def _repr_html_(self) -> str:
        rows = [
            (
                name,
                f"{len(program.layers):,}",
                f"{len(program.insns):,}",
                f"{program.image.size:,}",
                f"{program.arena_bytes:,}",
            )
            for name, program in self.programs.items()
        ]
        titles = ("region", "layers", "instructions", "constant bytes", "arena bytes")
        title = f"{self.config.target} ({self.config.name}), device {self.device}"
        return html_table(title, titles, first_rows(rows)) + self.placement._repr_html_()
