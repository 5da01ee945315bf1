"""Boards behind registers: every program as the simulator runs it, every fault an error or nothing.

The simulated register file has the functional simulator behind it; faults are injected between the
driver and the file.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pytest
from core_extra import with_core_marked
from core_machines import machine_of

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.driver.execution import Limits, Runner
from vta_byoc.hw.driver.protocol import DeviceDriver, DeviceError, Flush, check_machine
from vta_byoc.hw.driver.register_driver import RegisterDriver
from vta_byoc.hw.driver.register_map import CHISEL, HLS, RegisterMap
from vta_byoc.hw.driver.self_test import checked_runner
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.sim.devices import DRIVERS, open_device
from vta_byoc.hw.sim.simulated_registers import SimulatedRegisters
from vta_byoc.hw.testing import register_faults as faults
from vta_byoc.hw.testing.random_safe import random_safe_program

PYNQ = VTAConfig.preset("pynq")
QUICK = Limits(timeout=0.05, attempts=3)
BOTH = pytest.mark.parametrize("registers", [HLS, CHISEL], ids=lambda each: each.interface)


class Case(NamedTuple):
    """A program, its inputs as the head of the arena, and what must come out."""

    program: Program
    head: np.ndarray
    arena: np.ndarray
    counters: dict[str, int]

    def run(self, runner: Runner) -> tuple[np.ndarray, dict[str, int]]:
        program = self.program
        given = (program.insns, self.head, program.image)
        return runner.run(program.config, *given, program.arena_bytes)

    def check(self, runner: Runner) -> None:
        arena, counters = self.run(runner)
        np.testing.assert_array_equal(arena, self.arena)
        assert counters == self.counters


def case_of(config: VTAConfig, seed: int) -> Case:
    program, inputs = random_safe_program(config, np.random.default_rng(seed))
    result = simulator.run(program, inputs)
    head = simulator.pack_inputs(program, inputs)
    return Case(program, head, result.arena, result.counters)


@pytest.fixture(scope="module")
def case() -> Case:
    return case_of(PYNQ, 0)


def board(registers: RegisterMap, kind: str, times: int) -> tuple[Runner, faults.FaultyTransport]:
    transport = faults.FaultyTransport(SimulatedRegisters(registers, PYNQ), registers, kind, times)
    return Runner(RegisterDriver("board", registers, PYNQ, transport), QUICK), transport


# ---------------------------------------------------------------- programs
@pytest.mark.parametrize("device", with_core_marked(DRIVERS))
def test_every_device_answers_the_protocol(device: str) -> None:
    machine = machine_of(device, PYNQ)
    driver = open_device(device, machine)
    assert isinstance(driver, DeviceDriver)
    assert driver.version().device == device and driver.capabilities().key == machine.key
    buffer = driver.allocate(100, 64)
    data = np.arange(60, dtype=np.uint8)
    driver.copy_to(buffer, data, 40)
    driver.flush(buffer, Flush.FOR_DEVICE)
    np.testing.assert_array_equal(driver.copy_from(buffer, 60, 40), data)
    np.testing.assert_array_equal(driver.map(buffer)[40:100], data)
    assert buffer.address % 64 == 0
    driver.free(buffer)
    if DRIVERS[device].computes:
        case_of(machine, 0).check(Runner(driver))
    driver.reset()
    driver.close()


@BOTH
@pytest.mark.parametrize("preset", ["sim", "chisel", "2x16", "1x32", "tophub_4x8"])
def test_programs_of_every_machine_equal_the_simulator(registers: RegisterMap, preset: str) -> None:
    config = VTAConfig.preset(preset)
    transport = SimulatedRegisters(registers, config)
    runner = checked_runner(RegisterDriver("board", registers, config, transport))
    for seed in range(4):
        case_of(config, seed).check(runner)
    assert transport.runs == 5 and runner.repeated == 0


def test_the_registers_are_those_of_the_published_drivers(case: Case) -> None:
    """HLS: fetch, load, compute, store at 0, 0x1000, 0x2000, 0x3000; Chisel: one block."""
    written: dict[str, list[tuple[int, int]]] = {}
    for registers in (HLS, CHISEL):
        transport = SimulatedRegisters(registers, PYNQ)
        writes = written.setdefault(registers.interface, [])
        plain = transport.write32

        def noted(offset: int, value: int, plain=plain, writes=writes) -> None:  # type: ignore[no-untyped-def]
            writes.append((offset, value))
            plain(offset, value)

        transport.write32 = noted  # type: ignore[method-assign]
        case.check(Runner(RegisterDriver("board", registers, PYNQ, transport)))
    count = len(case.program.insns)
    assert sorted(written["hls"][:7]) == sorted(
        [(0x10, count), (0x18, written["hls"][5][1])]
        + [(offset, 0) for offset in (0x1010, 0x1018, 0x2020, 0x2028, 0x3010)]
    )
    assert written["hls"][7:] == [(0, 1), (0x1000, 0x81), (0x2000, 0x81), (0x3000, 0x81)]
    assert dict(written["chisel"]) | {0x0C: 0} == {
        0x08: count,
        **dict.fromkeys((0x0C, 0x10, 0x14, 0x18, 0x1C, 0x20), 0),
        0x00: 1,
    }


# ---------------------------------------------------------------- faults
NEVER_RIGHT = {
    faults.NO_MEMORY: "board has no 12,288 bytes of contiguous memory (Cannot allocate memory); "
    "free some, or give the board more (a larger udmabuf or CMA)",
    faults.HIGH_MEMORY: "board has memory at 0x110000000, 12,288 bytes; it takes multiples of 4096 "
    "below 0x100000000; place the board's memory there",
    faults.WRONG_VERSION: 'board has the design "2x16_i8w8a32_15_15_18_18"; the machine pynq is '
    "1x16_i8w8a32_15_15_18_17; load that design, or name the machine of this one",
}
"""Kinds that no second attempt repairs."""
HARMLESS = (faults.LOST_INTERRUPT, faults.SPURIOUS_INTERRUPT)
"""Kinds that no run depends on."""
THRICE = "board gave no result in 3 attempts; the last one: "
FOR_EVER = {
    faults.HANG: THRICE + "board did not finish within 0.05 s (register done reads 0x0); the "
    "program must end by itself; reset the device, and allow more time if the program needs it",
    faults.STALE_DONE: THRICE + "board says that it has finished, but after 0.05 s what the "
    "program stores last was not there; reset the device, and allow more time if the program "
    "needs it",
    faults.SHORT_COPY: THRICE + "board: a copy of 9,472 bytes to 0x10000000 left 1,711 of them as "
    "they were, 3 times; all must arrive; check the memory that the board's description names",
    faults.FAILED_FLUSH: THRICE + "board could not be flushed: Input/output error; a device "
    "answers; check that it is there and that this user may open it",
    faults.DEAD_BUS: "board: register uop at {uop:#x} reads 0xffffffff, as a bus does where "
    "nothing answers; load the design, switch its clock on, and check the base address",
    faults.LOST_WRITE: THRICE + "board: register insn at {insn:#x} reads 0x0 after 0x10003000 was "
    "written 3 times; it must read what was written; check the interface ({name}) and the base "
    "address",
}
"""What is said of a fault that stays."""


@BOTH
@pytest.mark.parametrize("kind", faults.KINDS)
@pytest.mark.parametrize("skip", [0, 1])
def test_a_fault_that_happens_once_is_repaired_or_said(
    registers: RegisterMap, kind: str, skip: int, case: Case
) -> None:
    if kind in NEVER_RIGHT:
        with pytest.raises(DeviceError, match=f"^{re.escape(NEVER_RIGHT[kind])}$"):
            case.run(board(registers, kind, 1)[0])
        return
    runner, transport = board(registers, kind, 1)
    transport.skip = skip
    case.check(runner)
    case.check(runner)
    assert transport.happened == 1


@BOTH
@pytest.mark.parametrize("kind", [k for k in faults.KINDS if k not in NEVER_RIGHT])
def test_a_fault_that_stays_is_an_error_and_never_a_wrong_result(
    registers: RegisterMap, kind: str, case: Case
) -> None:
    runner, transport = board(registers, kind, faults.FOR_EVER)
    if kind in (*HARMLESS, faults.EARLY_DONE):
        case.check(runner)
        return
    with pytest.raises(DeviceError) as err:
        case.run(runner)
    names = {name: registers.registers[name] for name in ("uop", "insn")}
    wanted = FOR_EVER.get(kind)
    if wanted is not None:
        assert str(err.value) == wanted.format(**names, name=registers.interface)
    assert transport.happened > 0


@pytest.mark.parametrize("seed", range(30))
def test_drawn_faults_never_give_a_wrong_result(seed: int, case: Case) -> None:
    """Some times, from some use on; in a run of three either the right bytes or an error."""
    rng = np.random.default_rng(seed)
    registers = (HLS, CHISEL)[seed % 2]
    kinds = [k for k in faults.KINDS if k not in NEVER_RIGHT]
    runner, transport = board(registers, kinds[int(rng.integers(len(kinds)))], 0)
    transport.times, transport.skip = int(rng.integers(1, 6)), int(rng.integers(4))
    for _ in range(3):
        try:
            case.check(runner)
        except DeviceError:
            continue


SMALLER = VTAConfig.from_dict({**PYNQ.to_dict(), "LOG_INP_BUFF_SIZE": 14, "LOG_ACC_BUFF_SIZE": 16})
SIM = VTAConfig.preset("sim")


@pytest.mark.parametrize(
    ("named", "inside"),
    [
        (PYNQ, SMALLER),
        (SIM, VTAConfig.preset("2x16")),
        (SIM, VTAConfig.preset("1x32")),
    ],
    ids=("buffers", "batch", "block"),
)
def test_another_machine_in_the_board_fails_the_self_test(
    named: VTAConfig, inside: VTAConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BATCH and BLOCK with the presets, whose interpreters other tests have."""
    monkeypatch.setattr("vta_byoc.hw.driver.self_test.Runner", lambda d: Runner(d, QUICK))
    driver = RegisterDriver("board", HLS, named, SimulatedRegisters(HLS, inside))
    with pytest.raises(DeviceError, match="^board did not pass its self-test: "):
        checked_runner(driver)


def test_a_machine_that_claims_to_multiply_fails_the_self_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vta_byoc.hw.driver.self_test.Runner", lambda d: Runner(d, QUICK))
    driver = RegisterDriver("board", HLS, SIM, SimulatedRegisters(HLS, PYNQ))
    with pytest.raises(
        DeviceError, match="^board did not pass its self-test: board gave no result"
    ):
        checked_runner(driver)


# ---------------------------------------------------------------- refusals
def test_programs_of_other_machines_are_refused(case: Case) -> None:
    driver = open_device("hls-registers", VTAConfig.preset("1x32"))
    with pytest.raises(
        DeviceError,
        match=re.escape(
            f"the program is for machine {PYNQ.key} (1x16); hls-registers is "
            f"{driver.capabilities().key} (1x32); compile it for that machine"
        ),
    ):
        case.run(Runner(driver))
    with pytest.raises(
        DeviceError,
        match=re.escape(
            "the program is for a machine of other capabilities than hls-registers: mul is True, "
            "there False; acc_8bit is True, there False; compile it with the CAPABILITIES of that "
            "device"
        ),
    ):
        check_machine(open_device("hls-registers", PYNQ), SIM)


def test_an_arena_that_is_too_small_is_refused(case: Case) -> None:
    program = case.program
    size = len(case.head) + program.image.size
    with pytest.raises(VTAError, match=f"^inputs and image are {size:,} bytes; the arena has 8; "):
        Runner(open_device("sim", PYNQ)).run(PYNQ, program.insns, case.head, program.image, 8)


def test_a_count_beyond_the_buffer_is_refused() -> None:
    driver = open_device("chisel-registers", PYNQ)
    buffer = driver.allocate(64, 64)
    with pytest.raises(DeviceError, match="^5 instructions of a buffer of 4; a run has 1 to 4; "):
        driver.start(buffer, 5)
