"""FPGAs that the resource report knows, and what each has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.rtl.mapping import ECP5, XILINX, Resources, taken


@dataclass(frozen=True)
class Part:
    """An FPGA.

    Attributes:
        name: of the part.
        board: one that has it.
        synthesis: the command of yosys, without the name of the module.
        has: its resources.
        cells: what each cell of the family takes.
        packed: whether its multipliers are wide enough for two int8 products.
        routed: how nextpnr names it; () where nextpnr does not know it.
    """

    name: str
    board: str
    synthesis: str
    has: Resources
    cells: Mapping[str, Resources]
    packed: bool
    routed: tuple[str, ...] = ()

    def taken(self, cells: Mapping[str, int]) -> Resources:
        """What so many of each cell take."""
        return taken(cells, self.cells)


_XC7 = "synth_xilinx -family xc7 -noiopad -noclkbuf"
_XCUP = "synth_xilinx -family xcup -noiopad -noclkbuf"
PARTS: Mapping[str, Part] = {
    part.name: part
    for part in (
        Part("xc7z020", "PYNQ-Z1", _XC7, Resources(53_200, 106_400, 220, 140), XILINX, True),
        Part("xczu3eg", "Ultra96", _XCUP, Resources(70_560, 141_120, 360, 216), XILINX, True),
        Part("xczu7ev", "ZCU104", _XCUP, Resources(230_400, 460_800, 1728, 312), XILINX, True),
        Part(
            "lfe5u-85f",
            "ECP5 Evaluation",
            "synth_ecp5 -noflatten -noiopad",
            Resources(83_640, 83_640, 156, 208),
            ECP5,
            False,
            ("--85k", "--package", "CABGA756"),
        ),
    )
}
"""Parts by name."""
BOARDS: Mapping[str, str] = {"ultra96": "xczu3eg", "zcu104": "xczu7ev"}
"""The parts of machines for boards; the others take that of the PYNQ-Z1."""


ALIASES: Mapping[str, str] = {
    "zu3eg": "xczu3eg",
    "zu7ev": "xczu7ev",
    "ecp5-85k": "lfe5u-85f",
}
"""Other names of parts."""


def part_named(name: str) -> Part:
    """The part `name`, or the one that has this other name.

    Raises:
        VTAError: there is none.
    """
    found = PARTS.get(ALIASES.get(name, name))
    if found is None:
        raise VTAError(f"unknown part {name!r}; known: {', '.join(PARTS)}; choose one")
    return found
