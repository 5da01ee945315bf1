"""FPGAs that the resource report knows: what a part has, and what cells of yosys take of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from vta_byoc.hw.errors import VTAError


@dataclass(frozen=True)
class Resources:
    """What a design takes, or a part has, in the units of the part's family.

    Attributes:
        lut: look-up tables, those that hold memories included.
        ff: flip-flops.
        dsp: multipliers (DSP48; MULT18X18D on ECP5).
        bram: block memories of 36 kbit, of which half ones count 0.5; of 18 kbit on ECP5.
    """

    lut: float = 0
    ff: float = 0
    dsp: float = 0
    bram: float = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.lut + other.lut, self.ff + other.ff, self.dsp + other.dsp, self.bram + other.bram
        )

    def scaled(self, factor: float) -> Resources:
        """As much `factor` times."""
        return Resources(*(factor * value for value in (self.lut, self.ff, self.dsp, self.bram)))


_LUT, _FF, _DSP, _BRAM = (
    Resources(lut=1),
    Resources(ff=1),
    Resources(dsp=1),
    Resources(bram=1),
)
_XILINX = {
    **{f"LUT{inputs}": _LUT for inputs in range(1, 7)},
    **{name: _LUT for name in ("SRL16E", "SRLC32E")},
    **{name: _LUT.scaled(2) for name in ("RAM32X1D", "RAM64X1D")},
    **{name: _LUT.scaled(4) for name in ("RAM32M", "RAM64M", "RAM128X1D", "RAM256X1S")},
    **{name: _LUT.scaled(8) for name in ("RAM32M16", "RAM64M8")},
    **{name: _FF for name in ("FDRE", "FDSE", "FDCE", "FDPE")},
    **{name: _DSP for name in ("DSP48E1", "DSP48E2")},
    **{name: _BRAM for name in ("RAMB36E1", "RAMB36E2")},
    **{name: _BRAM.scaled(0.5) for name in ("RAMB18E1", "RAMB18E2")},
}
_ECP5 = {
    "LUT4": _LUT,
    "CCU2C": _LUT.scaled(2),
    "TRELLIS_DPR16X4": _LUT.scaled(4),
    "TRELLIS_FF": _FF,
    "MULT18X18D": _DSP,
    "DP16KD": _BRAM,
}


@dataclass(frozen=True)
class Part:
    """An FPGA.

    Attributes:
        name: of the part.
        board: one that has it.
        synthesis: the command of yosys, without the name of the module.
        has: its resources.
        cells: what each cell of the family takes; cells that are not named are wires, inverters
            and carries, which come with what is counted.
        packed: whether its multipliers are wide enough for two int8 products.
    """

    name: str
    board: str
    synthesis: str
    has: Resources
    cells: Mapping[str, Resources]
    packed: bool

    def taken(self, cells: Mapping[str, int]) -> Resources:
        """What so many of each cell take."""
        counted = Counter({name: count for name, count in cells.items() if name in self.cells})
        return sum((self.cells[name].scaled(n) for name, n in counted.items()), Resources())


_XC7 = "synth_xilinx -family xc7 -noiopad -noclkbuf"
_XCUP = "synth_xilinx -family xcup -noiopad -noclkbuf"
PARTS: Mapping[str, Part] = {
    part.name: part
    for part in (
        Part("xc7z020", "PYNQ-Z1", _XC7, Resources(53_200, 106_400, 220, 140), _XILINX, True),
        Part("xczu3eg", "Ultra96", _XCUP, Resources(70_560, 141_120, 360, 216), _XILINX, True),
        Part("xczu7ev", "ZCU104", _XCUP, Resources(230_400, 460_800, 1728, 312), _XILINX, True),
        Part(
            "lfe5u-85f",
            "ECP5 Evaluation",
            "synth_ecp5 -noflatten -noiopad",
            Resources(83_640, 83_640, 156, 208),
            _ECP5,
            False,
        ),
    )
}
"""Parts by name."""
BOARDS: Mapping[str, str] = {"ultra96": "xczu3eg", "zcu104": "xczu7ev"}
"""The parts of machines for boards; the others take that of the PYNQ-Z1."""


def part_named(name: str) -> Part:
    """The part `name`.

    Raises:
        VTAError: there is none.
    """
    if name not in PARTS:
        raise VTAError(f"unknown part {name!r}; known: {', '.join(PARTS)}; choose one")
    return PARTS[name]
