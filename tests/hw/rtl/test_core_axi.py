"""The core behind AXI4 and AXI4-Lite: memories with back-pressure on all channels, and errors."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="needs the extra rtl")

from amaranth.sim import Simulator
from axi_memory import DECERR, ORDERS, SLVERR, AxiLiteMaster
from core_board import Board
from core_extra import needs_core
from core_machines import SMALL

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, MemType, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.rtl.axi_lite import AxiLite
from vta_byoc.hw.rtl.build import verilator_root
from vta_byoc.hw.rtl.registers import FINISH, MAGIC, OFFSETS, READ_FAILED, WRITE_FAILED
from vta_byoc.hw.rtl.verilog import axi_verilog, core_verilog
from vta_byoc.hw.sim.simulator import run_stream
from vta_byoc.hw.testing.random_safe import random_safe_program

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


# ---------------------------------------------------------------- AXI4-Lite
def test_registers_behind_axi_lite_are_written_once_and_read() -> None:
    lite, kept, writes = AxiLite(), {}, []
    rng = np.random.default_rng(1)
    master = AxiLiteMaster(lite, rng, prefix="")

    async def registers(ctx: Any) -> None:
        while True:
            address = int(ctx.get(lite.address))
            ctx.set(lite.read_data, kept.get(address, 0))
            if ctx.get(lite.write):
                kept[address] = int(ctx.get(lite.write_data))
                writes.append(address)
            await ctx.tick()

    async def bench(ctx: Any) -> None:
        wanted: dict[int, int] = {}
        for number in range(120):
            address, value = int(rng.integers(64)) * 4, int(rng.integers(1 << 32))
            strobes = (15, 15, 15, 0, 6, 15, 7, 8)[number % 8]
            if rng.random() < 0.5:
                assert await master.read(ctx, address | number % 4) == wanted.get(address, 0)
                continue
            before = len(writes)
            answer = await master.write(ctx, address, value, strobes)
            assert answer == (SLVERR if strobes in (6, 7, 8) else 0)
            assert len(writes) == before + (strobes == 15)
            if strobes == 15:
                wanted[address] = value
        assert kept == wanted and len(writes) > 20

    simulator = Simulator(lite)
    simulator.add_clock(1e-6)
    simulator.add_testbench(registers, background=True)
    simulator.add_testbench(bench)
    simulator.run()


# ---------------------------------------------------------------- the whole core
def small_program(seed: int, config: VTAConfig = SMALL) -> tuple[Program, np.ndarray]:
    """The first short program of drawn ones, and its arena."""
    rng = np.random.default_rng(seed)
    while True:
        program, inputs = random_safe_program(config, rng)
        stored = sum(ISA.of(config).decode(*w).queue == 2 for w in program.insns.tolist())
        if len(program.insns) < 40 and stored:
            return program, program.new_arena(inputs)


def run_program(seed: int, order: str, config: VTAConfig) -> None:
    """A small program on a board must leave what the functional simulator does."""
    program, arena = small_program(seed, config)
    wanted = run_stream(config, program.insns, arena)
    board = Board(seed, order, arena.size + (1 << 16), config)

    async def bench(ctx: Any) -> None:
        assert await board.master.read(ctx, OFFSETS["identity"]) == MAGIC
        assert await board.launch(ctx, program.insns, arena) == FINISH
        found = board.memory.data[: arena.size].view(np.int8)
        assert np.array_equal(found, wanted.arena)
        assert board.memory.writes and not board.memory.owed

    board.run(bench)


@pytest.mark.parametrize("order", ORDERS)
def test_programs_run_on_memories_that_take_address_and_data_in_any_order(order: str) -> None:
    run_program(ORDERS.index(order), order, SMALL)


@pytest.mark.parametrize("port", (4, 16, 32, 64))
def test_programs_run_with_memory_ports_of_all_widths(port: int) -> None:
    timing = dataclasses.replace(SMALL.timing, port_bytes=port, fetch_burst=8)
    for seed, order in enumerate(ORDERS[:3]):
        run_program(port + seed, order, dataclasses.replace(SMALL, timing=timing))


@pytest.mark.parametrize("what, answer", (("read", SLVERR), ("read", DECERR), ("write", SLVERR)))
def test_an_error_of_memory_ends_the_run_and_the_next_one_is_clean(what: str, answer: int) -> None:
    program, arena = small_program(5)
    wanted = run_stream(SMALL, program.insns, arena)
    board = Board(3, "either", arena.size + (1 << 16))
    isa = ISA.of(SMALL)
    bad = 1 << 14
    load = {"mem_type": MemType.INP, "dram_base": bad // 4, "y_size": 1, "x_size": 8, "x_stride": 8}
    store = {**load, "mem_type": MemType.OUT}
    first = ("LOAD", load) if what == "read" else ("STORE", store)
    failing = [isa.encode(Opcode[first[0]], **first[1])]
    # Behind it: instructions that wait, tokens that nobody takes, and more than a burst of fetch.
    failing += [isa.encode(Opcode.LOAD, mem_type=MemType.INP, push_next=1)] * 3
    failing += [isa.encode(Opcode.LOAD, mem_type=MemType.UOP, pop_next=1)] * 30
    failing += [isa.encode(Opcode.FINISH)]
    flag = READ_FAILED if what == "read" else WRITE_FAILED

    async def bench(ctx: Any) -> None:
        for place in range(bad, bad + 32, 8):
            board.memory.errors[place] = answer
        found = await board.launch(ctx, np.array(failing, np.uint64), np.zeros(64, np.int8))
        assert found == FINISH | flag
        board.memory.errors.clear()
        assert await board.launch(ctx, program.insns, arena) == FINISH
        found = board.memory.data[: arena.size].view(np.int8)
        assert np.array_equal(found, wanted.arena)

    board.run(bench)


# ---------------------------------------------------------------- Verilog
@needs_core
def test_the_module_for_boards_joins_the_core_in_verilog(tmp_path: Path) -> None:
    for name, text in (("vta_axi", axi_verilog(SMALL)), ("vta_core", core_verilog(SMALL))):
        (tmp_path / f"{name}.v").write_text(text)
    ports = (tmp_path / "vta_axi.v").read_text()
    for port in ("input aclk;", "input aresetn;", "input [7:0] s_axi_awaddr;"):
        assert f"  {port}\n" in ports
    for port in ("output [31:0] m_axi_awaddr;", "output [7:0] m_axi_arlen;", "input m_axi_rlast;"):
        assert f"  {port}\n" in ports
    root = verilator_root()
    quiet = ("-Wno-WIDTH", "-Wno-UNUSED", "-Wno-DECLFILENAME", "-Wno-style", "-Wno-lint")
    command = [str(root / "bin" / "verilator_bin"), "--lint-only", *quiet, "-Werror-PINMISSING"]
    done = subprocess.run(
        [*command, "-Werror-PINNOTFOUND", "--top-module", "vta_axi", "vta_axi.v", "vta_core.v"],
        cwd=tmp_path,
        env={"VERILATOR_ROOT": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
