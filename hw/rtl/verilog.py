"""Verilog of the core."""

from __future__ import annotations

import re

from amaranth.back import verilog

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.rtl.axi_core import AxiTop
from vta_byoc.hw.rtl.core import Core
from vta_byoc.hw.rtl.parameters import AXI_TOP, TOP

_INITIAL = re.compile(r"  initial begin\n((?:    (\w+)\[\d+\] = (\d+)'[dh]0+;\n)+)  end\n")
_NUMBERED = re.compile(r"(dump_module\$)\d+")
_MODULE = re.compile(
    r"^(?:\(\*.*?\*\)\n)*module (\S+?) ?\(.*?^endmodule\n", re.MULTILINE | re.DOTALL
)


def core_verilog(
    config: VTAConfig, name: str = TOP, *, packed: bool = True, cleared: bool = True
) -> str:
    """The core of a machine as Verilog of one clock `clk` with a synchronous reset `rst`.

    With `packed` the GEMM array makes two products with each multiplication. With `cleared`
    memories start with zeros, as those of an FPGA do; yosys takes minutes to read of it.
    """
    core = Core(config, packed=packed)
    text: str = verilog.convert(core, name=name, emit_src=False, strip_internal_attrs=True)
    return _merged(_INITIAL.sub(_loop if cleared else "", text))


def axi_verilog(config: VTAConfig) -> str:
    """The module AXI_TOP around that of `core_verilog`: AXI4, AXI4-Lite, `aclk` and `aresetn`."""
    top = AxiTop(config)
    text: str = verilog.convert(top, name=AXI_TOP, emit_src=False, strip_internal_attrs=True)
    return text


def _merged(text: str) -> str:
    """The text with one module of those that differ in nothing but their names.

    The writer gives each lane a module of its own. Simulation and synthesis take the time of one.
    """
    while equal := _equal_modules(text):
        text = _without(text, equal)
    return text


def _equal_modules(text: str) -> dict[str, str]:
    """Modules that are as an earlier one, and its name."""
    first: dict[str, str] = {}
    equal: dict[str, str] = {}
    for found in _MODULE.finditer(text):
        body = _NUMBERED.sub(r"\1", found[0].replace(found[1], "", 1))
        if body in first:
            equal[found[1]] = first[body]
        first.setdefault(body, found[1])
    return equal


def _without(text: str, equal: dict[str, str]) -> str:
    """The text with the other module in the place of each of `equal`."""
    left = _MODULE.sub(lambda found: "" if found[1] in equal else found[0], text)
    names = "|".join(re.escape(name) for name in equal)
    return re.sub(rf"(?<!\S)({names})(?=\s)", lambda found: equal[found[1]], left)


def _loop(found: re.Match[str]) -> str:
    """Memories start with zeros: one loop, where the writer gives a line an element."""
    depth, memory, bits = found[1].count("\n"), found[2], found[3]
    return (
        f"  integer i_{memory};\n  initial begin\n    for (i_{memory} = 0; i_{memory} < {depth}; "
        f"i_{memory} = i_{memory} + 1)\n      {memory}[i_{memory}] = {bits}'d0;\n  end\n"
    )
