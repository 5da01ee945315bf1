"""From cells of yosys to resources of an FPGA's family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NAMES = ("lut", "ff", "dsp", "bram")
"""Resources, in the order of reports."""


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
XILINX: Mapping[str, Resources] = {
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
"""Cells of `synth_xilinx`, 7 series and UltraScale+."""
ECP5: Mapping[str, Resources] = {
    "LUT4": _LUT,
    "CCU2C": _LUT.scaled(2),
    "TRELLIS_DPR16X4": _LUT.scaled(4),
    "TRELLIS_FF": _FF,
    "MULT18X18D": _DSP,
    "DP16KD": _BRAM,
}
"""Cells of `synth_ecp5`."""


def taken(cells: Mapping[str, int], family: Mapping[str, Resources]) -> Resources:
    """What so many of each cell take of a family.

    Cells that the family does not name are wires, inverters and carries, which come with what is
    counted.
    """
    known = (family[name].scaled(count) for name, count in cells.items() if name in family)
    return sum(known, Resources())
