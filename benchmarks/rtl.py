"""The core in Verilator beside the simulators: `rtl.py [--json] [--programs N] [--networks ...]`.

Random programs (half of them any valid stream, one instruction at a time; half correct programs
with the queues side by side) on four machines and four memory models, layers of every kind and
whole networks: final DRAM, on-chip memories and counters must be the functional simulator's. The
cycles of layers on all machines, and of networks on the first, are compared with the timing
simulator's, profile `core`, at the memory latency that it knows; on each other machine networks run
with another memory model, for their results. `--clocks` places and routes machines on ECP5 instead,
minutes each: the default geometry has more products than that part has multipliers. Needs the extra
`rtl`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import operator
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from benchmarks._layers import Layer, compiled
from benchmarks.simulator import IMAGES, region_of
from models import vit_tiny
from vta_byoc import load_model, quantize
from vta_byoc.hw.cache import CACHE_VARIABLE
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.rtl.build import core_library
from vta_byoc.hw.rtl.clock import core_clock
from vta_byoc.hw.rtl.parts import PARTS
from vta_byoc.hw.rtl.simulation import CoreRun, MemoryModel, run_core
from vta_byoc.hw.sim.simulator import run_stream
from vta_byoc.hw.testing.random_programs import random_stream
from vta_byoc.hw.testing.random_safe import random_safe_program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.hw.timing_parameters import Timing
from vta_byoc.pipeline import compile_module

PRESETS = ("core", "tophub_4x8", "2x16", "chisel")
"""Machines: 1x16 with all capabilities, other geometries, 1x16 without MUL and ACC_8BIT."""
MEMORIES = (
    MemoryModel(1),
    MemoryModel(32, 9, 5, 1, 20),
    MemoryModel(200, 60, 40, 2, 10),
    MemoryModel(16, 0, 0, 3, 50, data_first=True),
)
"""None to speak of; the usual one with jitter and stalls; far and narrow; slow, stalls at half and
takes data before their address."""
SAME = (1, 1, 1, 1)
"""Padding that keeps the size under a kernel of 3x3."""
LAYERS = (
    Layer("conv2d", 1, 64, 64, (28, 28), (3, 3), (1, 1), SAME),
    Layer("conv2d", 1, 64, 128, (28, 28), (3, 3), (2, 2), SAME),
    Layer("conv2d", 1, 64, 128, (28, 28)),
    Layer("conv2d", 1, 3, 32, (56, 56), (7, 7), (2, 2), (3, 3, 3, 3)),
    Layer("conv2d", 1, 64, 64, (28, 28), (3, 3), (1, 1), SAME, groups=64),
    Layer("conv2d_transpose", 1, 64, 32, (14, 14), (4, 4), (2, 2), SAME),
    Layer("dense", 1, 512, 256),
    Layer("dense", 16, 256, 256),
)
BLOCK = "transformer_block"
"""The encoder block of ViT-Tiny with its patches and its head: several programs."""
NETWORKS = ("resnet18", "mobilenet_v2", BLOCK)
CYCLES_TARGET = 300_000
BUILD_TARGET = 90


def machine(preset: str) -> VTAConfig:
    """A preset whose time is the core's."""
    config = VTAConfig.preset(preset)
    timing = Timing.of("core", port_bytes=config.timing.port_bytes)
    return dataclasses.replace(config, timing=timing)


def differs(config: VTAConfig, insns: np.ndarray, arena: np.ndarray, found: CoreRun) -> bool:
    """Whether DRAM, counters or on-chip memories are not the functional simulator's."""
    wanted = run_stream(config, insns, arena)
    same = np.array_equal(found.arena, wanted.arena) and found.counters == wanted.counters
    return not same or any(
        not np.array_equal(found.sram[name], value) for name, value in wanted.sram.items()
    )


def drawn(config: VTAConfig, seeds: range) -> int:
    """Programs of a machine that differ, two for each seed."""
    wrong = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        memory = dataclasses.replace(MEMORIES[seed % len(MEMORIES)], seed=seed)
        insns, arena = random_stream(config, rng)
        found = run_core(config, insns, arena, memory, serial=True)
        wrong += differs(config, insns, arena, found)
        program, inputs = random_safe_program(config, rng)
        arena = program.new_arena(inputs)
        found = run_core(config, program.insns, arena, memory)
        wrong += differs(config, program.insns, arena, found)
    return wrong


@dataclasses.dataclass(frozen=True)
class Timed:
    """A program on the core: its cycles, the timing simulator's, and how long it took."""

    cycles: int
    expected: int
    seconds: float
    wrong: int

    @property
    def error(self) -> float:
        """How far the timing simulator is from the core, in percent."""
        return abs(self.expected / self.cycles - 1) * 100

    def __add__(self, other: Timed) -> Timed:
        return Timed(
            self.cycles + other.cycles,
            self.expected + other.expected,
            self.seconds + other.seconds,
            self.wrong + other.wrong,
        )


def timed(program: Program, memory: MemoryModel | None = None) -> Timed:
    """Run a program on noise, without `memory` at the latency of its machine, and time it."""
    rng = np.random.default_rng(0)
    inputs = {
        s.name: np.frombuffer(rng.bytes(s.nbytes), s.dtype).reshape(s.shape)
        for s in program.of_kind("input")
    }
    arena, start = program.new_arena(inputs), time.process_time()
    found = run_core(program.config, program.insns, arena, memory)
    seconds = time.process_time() - start
    wrong = differs(program.config, program.insns, arena, found)
    return Timed(found.cycles, simulate(program).cycles, seconds, int(wrong))


def programs_of(network: str, config: VTAConfig) -> list[Program]:
    """The programs that VTA runs of a network of `models/`, or of BLOCK."""
    if network != BLOCK:
        return [region_of(importlib.import_module(f"models.{network}"), config)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "block.onnx"
        onnx.save(vit_tiny.build(depth=1), path)
        mod = load_model(path)
    calibration = [x[None] for x in vit_tiny.calibration_inputs(IMAGES)]
    qmod = quantize(mod, calibration=calibration, config=config)
    return list(compile_module(qmod, config, device="null").programs.values())


def network_runs(
    networks: tuple[str, ...], machines: list[VTAConfig], end: float
) -> list[dict[str, Timed]]:
    """Every network on every machine, each machine with a memory model of its own.

    What is not begun at the time `end` is told and left out.
    """
    runs: list[dict[str, Timed]] = []
    for number, config in enumerate(machines):
        memory = MEMORIES[number] if number else None
        runs.append({})
        for name in networks:
            if time.monotonic() > end:
                print(f"{name} on {PRESETS[number]} is left out", file=sys.stderr)
                continue
            programs = programs_of(name, config)
            found = functools.reduce(operator.add, (timed(p, memory) for p in programs))
            print(f"{name} on {PRESETS[number]}: {found}", file=sys.stderr)
            runs[-1][name] = found
    return runs


def clocked() -> list[VTAConfig]:
    """The machines whose cores are placed on ECP5: 1x4 and 1x8 with buffers that fit."""
    small = {"log_uop_buff_size": 12, "log_inp_buff_size": 12, "log_wgt_buff_size": 14}
    large = {"log_uop_buff_size": 14, "log_inp_buff_size": 14, "log_wgt_buff_size": 16}
    return [
        dataclasses.replace(machine("core"), log_block=2, log_acc_buff_size=14, **small),
        dataclasses.replace(machine("core"), log_block=3, log_acc_buff_size=16, **large),
    ]


def clocks(names: Sequence[str]) -> Iterator[Figure]:
    """The clock that cores reach on ECP5 by nextpnr: those with the names, or all."""
    for config in clocked():
        if names and config.name not in names:
            continue
        found = core_clock(config, PARTS["lfe5u-85f"])
        print(f"{config.name}: {found}", file=sys.stderr)
        yield Figure(f"{config.name}.clock_mhz", found.mhz, "MHz")


def build_seconds(config: VTAConfig) -> float:
    """CPU time of the tools that build a core of which nothing is kept."""
    kept, before = os.environ.get(CACHE_VARIABLE), os.times()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE_VARIABLE] = folder
        core_library(config)
    del os.environ[CACHE_VARIABLE]
    if kept is not None:
        os.environ[CACHE_VARIABLE] = kept
    return sum(os.times()[:4]) - sum(before[:4])


def measured(seeds: int, networks: tuple[str, ...], seconds: int) -> Iterator[Figure]:
    """All figures; networks are begun for so many seconds."""
    end = time.monotonic() + seconds
    machines, wrong = [machine(preset) for preset in PRESETS], 0
    build = build_seconds(machines[0])
    for config in machines:
        wrong += drawn(config, range(seeds))
    layers = [timed(compiled(layer, config).program) for config in machines for layer in LAYERS]
    runs = network_runs(networks, machines, end)
    everything = [*layers, *(item for found in runs for item in found.values())]
    count = 2 * seeds * len(machines) + len(everything)
    wrong += sum(item.wrong for item in everything)
    compared = {"baseline": count, "baseline_name": "programs"}
    yield Figure.at_most("programs_different", wrong, "", 0, **compared)
    yield from figures_of(layers, runs[0])
    speed = sum(i.cycles for i in everything) / sum(i.seconds for i in everything)
    yield Figure("cycles_a_second", speed, "1/s", target=CYCLES_TARGET, ok=speed >= CYCLES_TARGET)
    yield Figure.at_most("build_seconds", build, "s", BUILD_TARGET)


def figures_of(layers: list[Timed], networks: dict[str, Timed]) -> Iterator[Figure]:
    """How far the timing simulator is from the core."""
    worst = max(item.error for item in layers)
    yield Figure.at_most("timing_error_percent_layers", worst, "%", 5)
    if networks:
        worst = max(item.error for item in networks.values())
        yield Figure.at_most("timing_error_percent", worst, "%", 1)
    for name, item in networks.items():
        beside = {"baseline": item.expected, "baseline_name": "timing simulator"}
        limit = round(item.expected * 1.01)
        yield Figure.at_most(f"{name}_cycles", item.cycles, "cycles", limit, **beside)


def main() -> int:
    parser = arguments(__doc__ or "")
    parser.add_argument("--programs", type=int, default=512, help="random programs")
    parser.add_argument("--networks", nargs="*", default=NETWORKS, help="of models/")
    parser.add_argument(
        "--seconds", type=int, default=1500, help="no network is begun later than this"
    )
    parser.add_argument(
        "--clocks", nargs="*", metavar="MACHINE", help="nothing but clocks on ECP5 (1x4, 1x8)"
    )
    options = parser.parse_args()
    if options.clocks is not None:
        return report("rtl", list(clocks(options.clocks)), options.json)
    seeds = -(-options.programs // (2 * len(PRESETS)))
    figures = list(measured(seeds, tuple(options.networks), options.seconds))
    return report("rtl", figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
