"""What a board sees of the core: its ports, the bases of transfers, and the cycles of its steps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="needs the extra rtl")

from core_board import Board
from core_extra import needs_core
from core_machines import SMALL

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import ISA, AluOp, MemType, Opcode
from vta_byoc.hw.rtl.delivery import c_header
from vta_byoc.hw.rtl.parameters import CoreParameters
from vta_byoc.hw.rtl.registers import FINISH, OFFSETS, SERIAL
from vta_byoc.hw.rtl.simulation import run_core
from vta_byoc.hw.rtl.verilog import axi_verilog, core_verilog
from vta_byoc.hw.sim.simulator import run_stream

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
LITE = "awaddr 8, awprot 3, awvalid, awready, wdata 32, wstrb 4, wvalid, wready, bresp 2, bvalid, "
LITE += "bready, araddr 8, arprot 3, arvalid, arready, rdata 32, rresp 2, rvalid, rready"
REQUEST = "addr 32, len 8, size 3, burst 2, lock, cache 4, prot 3, qos 4, valid, ready"
CONSTANT = {"size": "3'h3", "burst": "2'h1", "cache": "4'h3"}
CONSTANT |= {"lock": "1'h0", "prot": "3'h0", "qos": "4'h0"}
"""INCR bursts of beats of 8 bytes to memory that may be buffered."""
ANSWERS = "wdata 64, wstrb 8, wlast, wvalid, wready, bresp 2, bvalid, bready, rdata 64, rresp 2, "
ANSWERS += "rlast, rvalid, rready"
CORE = "clk, rst, reg_address 8, reg_write, reg_write_data 32, reg_read_data 32, ar_valid, "
CORE += "ar_ready, ar_address 32, ar_beats 7, r_valid, r_ready, r_data 64, r_resp 2, aw_valid, "
CORE += "aw_ready, aw_address 32, aw_beats 7, w_valid, w_ready, w_data 64, w_strobe 8, w_last, "
CORE += "b_valid, b_ready, b_resp 2, running, stepping, handed 32, overflow 4"
QUEUES = "level 4, busy, waits, done, start"


# ---------------------------------------------------------------- ports
def widths(names: str, begin: str = "", end: str = "") -> dict[str, int]:
    """Ports and their bits, written as `name bits`, one bit where none are given."""
    pairs = (item.split() for item in names.split(", "))
    return {f"{begin}{name}{end}": int(bits[0]) if bits else 1 for name, *bits in pairs}


def ports_of(verilog: str, module: str) -> dict[str, int]:
    """The ports of a module of Verilog, and their bits."""
    (text,) = re.findall(rf"^module {module}\(.*?^endmodule", verilog, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^  (?:input|output) (?:\[(\d+):0\] )?(\w+);", text, re.MULTILINE)
    return {name: int(high or 0) + 1 for high, name in found}


def test_the_ports_of_the_core_have_the_widths_of_its_page() -> None:
    wanted = widths(CORE)
    for queue in ("load", "compute", "store"):
        wanted |= widths(QUEUES, end=f"_{queue}")
    wanted |= {f"tokens_{n}": SMALL.capabilities.max_tokens.bit_length() for n in range(4)}
    assert ports_of(core_verilog(SMALL), "vta_core") == wanted


def test_the_ports_of_the_buses_have_the_widths_of_axi_and_are_joined() -> None:
    text = axi_verilog(SMALL)
    buses = widths(LITE, "s_axi_") | widths(ANSWERS, "m_axi_")
    buses |= widths(REQUEST, "m_axi_aw") | widths(REQUEST, "m_axi_ar")
    assert ports_of(text, "vta_axi") == {**buses, "aclk": 1, "aresetn": 1}
    constant = {"s_axi_rresp": "2'h0"}  # reads of registers do not fail
    for channel in ("m_axi_aw", "m_axi_ar"):
        constant |= {f"{channel}{name}": value for name, value in CONSTANT.items()}
    for name, value in constant.items():
        assert f"  assign {name} = {value};\n" in text
    for name in buses.keys() - constant.keys():
        inner = rf"\\{name}\$\d+ "
        assert re.search(rf"assign ({name} = {inner}|{inner} = {name});", text), name
    assert "assign clk = aclk;" in text and "assign rst = ~ aresetn;" in text


def test_the_header_has_the_bits_of_the_control_register() -> None:
    header = c_header(CoreParameters.of(SMALL))
    found = dict(re.findall(r"#define VTA_(CONTROL_\w+|MODE_\w+) +(0x\d)u", header))
    assert found == {
        "CONTROL_LAUNCH": "0x1",
        "CONTROL_RUNNING": "0x1",
        "CONTROL_FINISHED": "0x2",
        "CONTROL_READ_FAILED": "0x4",
        "CONTROL_WRITE_FAILED": "0x8",
        "MODE_SERIAL": "0x1",
    }


# ---------------------------------------------------------------- bases
PAGE = 4096
BASES = {"uop": 1, "inp": 2, "wgt": 3, "acc": 4, "out": 5}
"""The page at which each base register points."""


def moved(config: VTAConfig, pages: dict[str, int]) -> np.ndarray:
    """Loads of all types, a product and a store; each counts from a page of its own."""
    isa = ISA.of(config)

    def transfer(name: str, mem: MemType, y: int, x: int) -> dict[str, int]:
        place = pages[name] * PAGE // dram_elem_bytes(config, mem)
        return {"mem_type": mem, "dram_base": place, "y_size": y, "x_size": x, "x_stride": x + 1}

    loops = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 4}
    factors = {"dst_factor_in": 1, "src_factor_in": 1, "wgt_factor_in": 1}
    insns = [
        isa.encode(Opcode.LOAD, **transfer("uop", MemType.UOP, 1, 1)),
        isa.encode(Opcode.LOAD, **transfer("inp", MemType.INP, 2, 3)),
        isa.encode(Opcode.LOAD, **transfer("wgt", MemType.WGT, 2, 3)),
        isa.encode(Opcode.LOAD, **transfer("acc", MemType.ACC, 2, 3)),
        isa.encode(Opcode.GEMM, **loops, **factors),
        isa.encode(Opcode.STORE, **transfer("out", MemType.OUT, 2, 3)),
        isa.encode(Opcode.FINISH),
    ]
    return np.array(insns, np.uint64)


def test_every_memory_type_counts_from_its_own_base() -> None:
    config = SMALL
    rng = np.random.default_rng(6)
    arena = rng.integers(-128, 128, 6 * PAGE, np.int16).astype(np.int8)
    arena[PAGE : PAGE + 64] = 0  # micro-ops: the first elements
    wanted = run_stream(config, moved(config, BASES), arena).arena
    assert not np.array_equal(wanted, arena)
    board = Board(4, "either", arena.size + PAGE, config)

    async def bench(ctx: Any) -> None:
        for name, page in BASES.items():
            assert await board.master.write(ctx, OFFSETS[name], page * PAGE) == 0
        assert await board.master.write(ctx, OFFSETS["mode"], SERIAL) == 0
        insns = moved(config, dict.fromkeys(BASES, 0))
        assert await board.launch(ctx, insns, arena) == FINISH
        assert np.array_equal(board.memory.data[: arena.size].view(np.int8), wanted)

    board.run(bench)


# ---------------------------------------------------------------- cycles
@needs_core
@pytest.mark.parametrize(
    "opcode, fields, cycles",
    (
        (Opcode.GEMM, {}, 1),
        (Opcode.GEMM, {"reset": 1}, 1),
        (Opcode.ALU, {"alu_opcode": AluOp.ADD, "use_imm": 1, "imm": 3}, 1),
        (Opcode.ALU, {"alu_opcode": AluOp.MAX}, 2),
    ),
    ids=("gemm", "reset", "immediate", "tensor"),
)
def test_steps_take_the_cycles_that_the_page_gives(
    opcode: Opcode, fields: dict[str, int], cycles: int
) -> None:
    isa = ISA.of(SMALL)

    def taken(steps: int) -> int:
        trips = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": steps}
        insns = [isa.encode(opcode, **trips, **fields), isa.encode(Opcode.FINISH)]
        found = run_core(SMALL, np.array(insns, np.uint64), np.zeros(64, np.int8))
        return int(found.spans[0, 1] - found.spans[0, 0])

    assert taken(300) - taken(100) == 200 * cycles
