"""What a board's project takes of the core: Verilog, the registers for C, constraints."""

from __future__ import annotations

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.rtl.build import need_packages
from vta_byoc.hw.rtl.parameters import AXI_TOP, BURST_BEATS, TOP, CoreParameters
from vta_byoc.hw.rtl.parts import Part

HEADER = """\
/* Registers of the VTA core {machine}: offsets in bytes, 32 bits each, and what they hold. */
#ifndef VTA_CORE_H
#define VTA_CORE_H

{lines}

#endif
"""
XDC = """\
# The clock of the core {machine}. Ports of the memory bus and of the registers are inside the
# device where a processor drives them: they need no pins. Where they have pins, give their places
# (PACKAGE_PIN, IOSTANDARD) and times (set_input_delay, set_output_delay) here.
create_clock -name clk -period {period:.3f} [get_ports clk]
"""
LPF = """\
# The clock of the core {machine}. Places (LOCATE COMP) and kinds (IOBUF PORT) of pins belong here.
FREQUENCY PORT "clk" {clock} MHZ;
"""


def core_files(config: VTAConfig, part: Part) -> dict[str, str]:
    """The text of each file that a project for a part takes.

    Raises:
        VTAError: Amaranth is not installed, or the core cannot be built for the machine.
    """
    need_packages(("amaranth",), "the core in Verilog")
    from vta_byoc.hw.rtl.verilog import axi_verilog, core_verilog

    core = CoreParameters.of(config)
    clock = config.timing.clock_mhz
    facts = {"machine": config.name, "clock": clock, "period": 1000 / clock}
    constraints = LPF if part.name.startswith("lfe5") else XDC
    suffix = ".lpf" if constraints is LPF else ".xdc"
    return {
        f"{TOP}.v": core_verilog(config, packed=part.packed),
        f"{AXI_TOP}.v": axi_verilog(config),
        f"{TOP}.h": c_header(core),
        f"{TOP}{suffix}": constraints.format(**facts),
    }


def c_header(core: CoreParameters) -> str:
    """The registers as macros of C: offsets, bits, and what the registers of this core hold."""
    from vta_byoc.hw.rtl.registers import (
        FINISH,
        LAUNCH,
        MAGIC,
        OFFSETS,
        READ_FAILED,
        SERIAL,
        WRITE_FAILED,
    )

    values = {f"VTA_REG_{name.upper()}": f"0x{at:02X}u" for name, at in OFFSETS.items()}
    values |= {
        "VTA_CONTROL_LAUNCH": f"0x{LAUNCH:X}u",
        "VTA_CONTROL_RUNNING": "0x1u",
        "VTA_CONTROL_FINISHED": f"0x{FINISH:X}u",
        "VTA_CONTROL_READ_FAILED": f"0x{READ_FAILED:X}u",
        "VTA_CONTROL_WRITE_FAILED": f"0x{WRITE_FAILED:X}u",
        "VTA_MODE_SERIAL": f"0x{SERIAL:X}u",
        "VTA_IDENTITY": f"0x{MAGIC:08X}u",
        "VTA_GEOMETRY": f"0x{core.geometry_word:04X}u",
        "VTA_DEPTHS": f"0x{core.depth_word:08X}u",
        "VTA_CAPABILITIES": f"0x{core.capability_word:08X}u",
        "VTA_PORT_BYTES": f"{core.port_bytes}u",
        "VTA_BURST_BEATS": f"{BURST_BEATS}u",
    }
    width = max(map(len, values))
    lines = "\n".join(f"#define {name.ljust(width)} {value}" for name, value in values.items())
    return HEADER.format(machine=core.config.name, lines=lines)
