"""The core in Verilator beside the functional simulator; what it says where it cannot be built."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from core_extra import needs_core
from core_machines import PLAIN, SMALL

from vta_byoc.hw.cache import CACHE_VARIABLE
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError, VTAWarning
from vta_byoc.hw.isa import ISA, MemType, Opcode
from vta_byoc.hw.rtl import build
from vta_byoc.hw.rtl.simulation import MemoryModel, run_core
from vta_byoc.hw.sim.devices import driver
from vta_byoc.hw.sim.interpreter import call, symbol
from vta_byoc.hw.sim.simulator import pack_inputs, run, run_stream
from vta_byoc.hw.testing.random_programs import random_stream
from vta_byoc.hw.testing.random_safe import random_safe_program

MEMORIES = (
    MemoryModel(1),
    MemoryModel(32, 9, 5, 1, 20, 3),
    MemoryModel(200, 60, 40, 2, 10, 7),
    MemoryModel(16, 0, 0, 3, 50, 9),
    MemoryModel(8, 4, 6, 1, 30, 11, data_first=True),
)
"""No latency, the usual one, a far memory that answers unevenly, a slow one that stalls, and one
that takes data before their address."""


@needs_core
@pytest.mark.parametrize("config", (SMALL, PLAIN), ids=("all", "plain"))
def test_random_streams_one_instruction_at_a_time(config: VTAConfig) -> None:
    for seed in range(24):
        insns, arena = random_stream(config, np.random.default_rng(seed))
        wanted = run_stream(config, insns, arena)
        memory = dataclasses.replace(MEMORIES[seed % len(MEMORIES)], seed=seed)
        found = run_core(config, insns, arena, memory, serial=True)
        assert np.array_equal(found.arena, wanted.arena), seed
        assert found.counters == wanted.counters, seed
        for name, value in wanted.sram.items():
            assert np.array_equal(found.sram[name], value), (seed, name)


@needs_core
@pytest.mark.parametrize("config", (SMALL, PLAIN), ids=("all", "plain"))
def test_correct_programs_with_queues_side_by_side(config: VTAConfig) -> None:
    for seed in range(24):
        program, inputs = random_safe_program(config, np.random.default_rng(seed))
        wanted, memory = run(program, inputs), MEMORIES[seed % len(MEMORIES)]
        found = run_core(config, program.insns, program.new_arena(inputs), memory)
        assert np.array_equal(found.arena, wanted.arena), seed
        assert found.counters == wanted.counters, seed
        assert (found.spans[:, 1] > found.spans[:, 0]).all()
        assert found.cycles >= found.spans.max()


@needs_core
def test_the_device_runs_programs_with_the_same_counters() -> None:
    program, inputs = random_safe_program(SMALL, np.random.default_rng(7))
    wanted, found = run(program, inputs), run(program, inputs, device="rtl")
    assert found.counters == wanted.counters
    assert np.array_equal(found.outputs["y"], wanted.outputs["y"])
    assert found.cycles is not None and found.cycles > len(program.insns)
    module = driver("rtl").module(SMALL)
    assert module[symbol(SMALL)] is not None
    packed = pack_inputs(program, inputs)
    arena, _, _ = call(SMALL, module, program.insns, packed, program.image, program.arena_bytes)
    assert np.array_equal(arena, wanted.arena)


@needs_core
def test_a_memory_that_falls_silent_is_told_with_every_queue() -> None:
    isa = ISA.of(SMALL)
    load = {"mem_type": MemType.INP, "y_size": 1, "x_size": 4, "x_stride": 4}
    insns = [
        isa.encode(Opcode.LOAD, **load, push_next=1),
        isa.encode(Opcode.LOAD, mem_type=MemType.UOP, pop_prev=1),
        isa.encode(Opcode.FINISH),
    ]
    silent = MemoryModel(answers=6, idle_limit=500)
    with pytest.raises(VTAError) as caught:
        run_core(SMALL, np.array(insns, np.uint64), np.zeros(64, np.int8), silent)
    text = str(caught.value)
    assert text.startswith("the core makes no progress in 500 cycles, up to cycle ")
    assert text.split(": ", 1)[1] == (
        "fetch handed on 3 of 3 instructions, memory answered 6 beats; load runs instruction 0 "
        "(LOAD INP sram 0 dram 0x0 y 1 x 4 stride 4 [push_next]), 0 behind it; compute waits for a "
        "token at instruction 1 (LOAD UOP sram 0 dram 0x0 y 0 x 0 stride 0 [pop_prev]); store is "
        "empty; tokens load->compute 0, compute->load 0, compute->store 0, store->compute 0; let "
        "memory answer, or check the tokens with vta-byoc verify"
    )


@needs_core
def test_an_error_of_memory_ends_a_run_wherever_it_comes() -> None:
    program, inputs = random_safe_program(SMALL, np.random.default_rng(3))
    arena, reads, writes = program.new_arena(inputs), 0, 0
    text = re.compile(
        r"memory answered a (read|write) of the core at byte 0x[0-9a-f]+ with an error, which "
        rf"ended the run in cycle \d+: fetch had handed on \d+ of {len(program.insns)} "
        "instructions; let memory serve all addresses of the program"
    )
    for number in range(10_000):
        try:
            run_core(SMALL, program.insns, arena, MemoryModel(8, read_fails=number))
            break
        except VTAError as err:
            found = text.fullmatch(str(err))
            assert found is not None and found[1] == "read", err
            reads += 1
    for number in range(10_000):
        try:
            run_core(SMALL, program.insns, arena, MemoryModel(8, write_fails=number))
            break
        except VTAError as err:
            found = text.fullmatch(str(err))
            assert found is not None and found[1] == "write", err
            writes += 1
    assert reads > 50 and writes > 3


@needs_core
def test_reads_beyond_the_arena_are_refused() -> None:
    isa = ISA.of(SMALL)
    load = {"mem_type": MemType.INP, "dram_base": 1 << 20, "y_size": 1, "x_size": 4}
    insns = [isa.encode(Opcode.LOAD, **load), isa.encode(Opcode.FINISH)]
    with pytest.raises(VTAError) as caught:
        run_core(SMALL, np.array(insns, np.uint64), np.zeros(64, np.int8))
    assert str(caught.value) == (
        "the core reads or writes byte 0x400000 of DRAM; the arena has 0x40 bytes; check the "
        "program with vta-byoc verify"
    )


def test_without_the_extra_the_device_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PACKAGES", ("amaranth_that_is_nowhere",))
    with pytest.raises(VTAError) as caught:
        build.need_tools()
    assert str(caught.value) == (
        "device rtl needs amaranth_that_is_nowhere, not installed; it has the packages of the "
        "extra rtl; pip install vta_byoc[rtl]"
    )


@needs_core
def test_without_a_compiler_the_device_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(VTAError) as caught:
        build.need_tools()
    assert str(caught.value) == (
        "device rtl needs a C++ compiler; 'no-such-compiler' is not found; install g++, or name "
        "one in CXX"
    )


@needs_core
def test_a_full_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(build, "_build", full)
    other = dataclasses.replace(SMALL, log_uop_buff_size=8)
    with pytest.raises(VTAError) as caught:
        build.core_library(other)
    assert str(caught.value) == (
        f"the core of 1x4 cannot be built in {str(tmp_path)!r}: No space left on device; make room "
        "there, or name another folder with VTA_BYOC_CACHE"
    )


class Built:
    """In the place of `build._build`: a small library, and how often it was asked for."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, _config: VTAConfig, _waves: bool, room: Path) -> Path:
        self.times += 1
        source, library = room / "seven.cpp", room / "core.so"
        source.write_text('extern "C" int seven() { return 7; }')
        subprocess.run(
            [build.need_tools(), "-shared", "-fPIC", str(source), "-o", str(library)], check=True
        )
        return library


@needs_core
def test_a_library_is_built_once_and_when_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = Built()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(build, "_build", built)
    library_of = build._library.__wrapped__  # as a process that has none
    assert [library_of(SMALL, False).seven() for _ in range(2)] == [7, 7]
    assert built.times == 1
    (kept,) = tmp_path.iterdir()
    assert kept.name.endswith(".rtl.so")
    text = kept.read_bytes()
    kept.unlink()  # the loader has mapped it
    kept.write_bytes(text[:-1] + bytes([text[-1] ^ 1]))
    assert library_of(SMALL, False).seven() == 7
    assert built.times == 2 and kept.read_bytes() == text


@needs_core
def test_a_library_that_cannot_be_kept_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(build, "_build", Built())
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(VTAWarning, match="No space left on device"):
        assert build._library.__wrapped__(SMALL, False).seven() == 7
    assert not list(tmp_path.iterdir())
