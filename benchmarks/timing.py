"""Cycles by the timing simulator: `timing.py [--json]`; the rules are in docs/timing.md.

The tutorial convolution under three ways to overlap loading and computing, then ResNet-18's 19
convolutions beside what a Pynq board measured, under both published ALU rates. Weights are zeros:
time does not depend on data.
"""

from __future__ import annotations

import csv
import dataclasses
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from tvm import tirx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from benchmarks._tutorials import convolution_opt
from vta_byoc.codegen import BEST, TUTORIALS, LoopCompression, ProgramBuilder
from vta_byoc.cost.lower_bound import bound
from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import Queue
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.hw.timing.result import STALLS, TimingResult
from vta_byoc.hw.timing_parameters import ALU_RATES
from vta_byoc.strategies.base import LayerSchedule, LayerWork
from vta_byoc.strategies.conv.conv2d import CONV2D
from vta_byoc.strategies.conv.grouping import groupings
from vta_byoc.strategies.elementwise.elementwise import ELEMENTWISE
from vta_byoc.strategies.te.kernel import Kernel
from vta_byoc.strategies.te.program_builder import program_builder
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.workloads import (
    Conv2dWorkload,
    ElementwiseWorkload,
    Epilogue,
    Prologue,
    Step,
)

BOARD = Path(__file__).parent / "reference" / "tophub_vta_pynq.csv"
BOARD_NAME = "Pynq board, TopHub"
TWO_SLOTS_TARGET = 480_000
SECONDS_TARGET = 5.0
CLAMP = (Step("max", 0), Step("min", 127))
LAYER = Epilogue((Step("add", "channel"), Step("shr", 9), *CLAMP))
"""Bias, shift and relu of all layers here."""
TUTORIAL = Conv2dWorkload(1, 256, 256, 14, 14, (3, 3), (1, 1), (1, 1, 1, 1), epilogue=LAYER)
BATCH = 4
"""Images whose cycles are compared with those of one."""
ONE_SLOT, TWO_SLOTS = (1, 1, 1), (2, 2, 2)


# ---------------------------------------------------------------- programs
def program_of(
    func: tirx.PrimFunc,
    constants: dict[int, str],
    config: VTAConfig,
    compression: LoopCompression = BEST,
) -> Program:
    """A scheduled PrimFunc alone in a Program; ``constants`` are parameters by position.

    As in networks, what is in its place in SRAM already is not loaded again, and loads come early;
    the tutorials do neither.
    """
    builder, names = program_builder(config), []
    if compression != BEST:
        builder = ProgramBuilder(config, compression)
    for position, param in enumerate(func.params):
        shape, dtype = [int(s) for s in param.shape], str(param.dtype)
        name = constants.get(position, str(param.name))
        if position in constants:
            builder.constant(name, np.zeros(shape, dtype))
        else:
            last = position == len(func.params) - 1
            builder.symbol(name, "output" if last else "input", shape, dtype)
        names.append(name)
    builder.layer("layer", func, names)
    return builder.finish()


def conv_program(
    work: Conv2dWorkload, config: VTAConfig, slots: tuple[int, int, int] | None = None
) -> Program:
    """One convolution with the compiler's tile, or with the tutorial's and these ``slots``."""
    (kernel,) = CONV2D.choose(LayerWork(work), config).kernels
    if slots is not None:
        tile = {"n": 1, "g": 1, "co": 8, "oh": 7, "ow": 14, "ci": 1, "kh": 3, "kw": 3}
        (grouping,) = groupings(work, config)
        kernel = Kernel(Choice(tile, "weights", slots), grouping)
    func = CONV2D.scheduled(LayerSchedule(work, kernels=(kernel,)), config)
    names = {1: "weight", 2: "bias", 3: "bias_weight"}
    constants = {n: name for n, name in names.items() if n < len(func.params) - 1}
    return program_of(func, constants, config)


def as_in_networks(work: Conv2dWorkload, config: VTAConfig) -> Conv2dWorkload:
    """``work`` with its bias where the compiler puts it: on the GEMM core if that costs less."""
    bias = {"operand0": np.zeros(work.out_channels, np.int32)}
    forms = [work, *(form for form, _ in CONV2D.bias_forms(work, bias, config))]

    def cycles(form: Conv2dWorkload) -> float:
        return CONV2D.estimate(CONV2D.choose(LayerWork(form), config), config)

    return min(forms, key=cycles)


def utilization(program: Program, result: TimingResult) -> float:
    """Percent of the cycles in which the GEMM core could have multiplied that it did."""
    return 100 * program.counters()["gemm_counter"] / result.cycles


# ---------------------------------------------------------------- the tutorial convolution
def tutorial_figures(config: VTAConfig) -> list[Figure]:
    """The tutorial's tiles with one slot, with two, by virtual threads; and the compiler's tile.

    The compiler's schedule adds a bias, two cycles a vector, which the tutorial has not.
    """
    published = program_of(convolution_opt(config), {1: "weight"}, config, TUTORIALS)
    cycles = simulate(published).cycles
    least = bound(TUTORIAL, config)
    found = {
        f"convolution_opt_{name}_cycles": simulate(conv_program(TUTORIAL, config, slots)).cycles
        for name, slots in (
            ("one_slot", ONE_SLOT),
            ("two_slots", TWO_SLOTS),
            ("chosen_tile", None),
        )
    }
    base = {"baseline": cycles, "baseline_name": "two virtual threads", "bound": least}
    figures = [Figure("convolution_opt_published_cycles", cycles, "cycles")]
    for name, value in found.items():
        if "one" in name:
            figures.append(Figure(name, value, "cycles", **base))
        else:
            figures.append(Figure.at_most(name, value, "cycles", TWO_SLOTS_TARGET, **base))
    return figures


# ---------------------------------------------------------------- ResNet-18
@dataclass(frozen=True)
class Shape:
    """One shape of ResNet-18's 3×3 and 1×1 convolutions, as often as the network has it."""

    work: Conv2dWorkload
    count: int

    @property
    def name(self) -> str:
        w = self.work
        return f"{w.in_channels}_{w.out_channels}_{w.height}_{w.kernel[0]}x{w.kernel[1]}"


def conv(channels: int, out: int, size: int, kernel: int, stride: int) -> Conv2dWorkload:
    pads = (kernel // 2,) * 4
    sizes = (1, channels, out, size, size, (kernel, kernel), (stride, stride))
    return Conv2dWorkload(*sizes, pads, epilogue=LAYER)


def resnet18_shapes() -> list[Shape]:
    """The ten shapes of the 19 convolutions that VTA runs."""
    shapes = [Shape(conv(64, 64, 56, 3, 1), 4)]
    for before, size in ((64, 56), (128, 28), (256, 14)):
        after = 2 * before
        shapes.append(Shape(conv(before, after, size, 3, 2), 1))
        shapes.append(Shape(conv(after, after, size // 2, 3, 1), 3))
        shapes.append(Shape(conv(before, after, size, 1, 2), 1))
    return shapes


def board_milliseconds(config: VTAConfig) -> dict[tuple[int, ...], float]:
    """ResNet-18's measurements by (channels in, out, size, kernel, stride)."""
    with BOARD.open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["network"] == "Resnet-18"]
    keys = ("ci", "co", "h", "kh", "sh")
    return {
        tuple(int(r[k]) for k in keys): float(r["measured_ms"])
        for r in rows
        if r["geometry"] == config.name and r["plausible"] == "1"
    }


def measured_layers(config: VTAConfig) -> Iterator[dict[str, Any]]:
    """Each shape alone: the board's time, cycles and stalls under both ALU rates."""
    board = board_milliseconds(config)
    for shape in resnet18_shapes():
        w = as_in_networks(shape.work, config)
        program = conv_program(w, config)
        key = (w.in_channels, w.out_channels, w.height, w.kernel[0], w.strides[0])
        row: dict[str, Any] = {"layer": shape.name, "count": shape.count, "board_ms": board[key]}
        gemm = program.counters()["gemm_counter"]
        row["board_utilization"] = gemm / (board[key] * config.timing.clock_mhz * 10)
        for core in ALU_RATES:
            timing = config.timing.with_alu(core)
            result = simulate(program, timing)
            stalls = result.queues[Queue.COMPUTE].stalls
            row[core] = {
                "cycles": result.cycles,
                "ms": result.milliseconds,
                "utilization": utilization(program, result),
                "bound": bound(w, dataclasses.replace(config, timing=timing)),
                "compute_stalls": {reason: stalls[reason] for reason in STALLS if stalls[reason]},
            }
        yield row


def resnet18_figures(rows: Sequence[dict[str, Any]], clock_mhz: int) -> list[Figure]:
    """Sums over the 19 convolutions, then every shape; the board is the baseline."""
    board = sum(r["count"] * r["board_ms"] for r in rows)
    board_used = sum(r["count"] * r["board_ms"] * r["board_utilization"] for r in rows) / board
    figures = []
    for core in ALU_RATES:
        total = sum(r["count"] * r[core]["cycles"] for r in rows)
        bound = sum(r["count"] * r[core]["bound"] for r in rows)
        gemm = sum(r["count"] * r[core]["cycles"] * r[core]["utilization"] for r in rows)
        scale = 1 / (clock_mhz * 1000)
        name = f"resnet18_19_convs_{core}"
        base = {"baseline": board, "baseline_name": BOARD_NAME, "bound": bound * scale}
        figures.append(Figure(f"{name}_ms", total * scale, "ms", **base))
        used = {"baseline": board_used, "baseline_name": BOARD_NAME}
        figures.append(Figure(f"{name}_utilization", gemm / total, "%", **used))
    for row in rows:
        base = {"baseline": row["board_ms"], "baseline_name": BOARD_NAME}
        for core in ALU_RATES:
            bound = row[core]["bound"] / (clock_mhz * 1000)
            name = f"conv_{row['layer']}_{core}_ms"
            figures.append(Figure(name, row[core]["ms"], "ms", bound=bound, **base))
    return figures


def batch_figure(rows: Sequence[dict[str, Any]], config: VTAConfig) -> Figure:
    """Cycles of an image in a batch over those of one alone, the worst of all shapes."""
    alone = {row["layer"]: row["chisel"]["cycles"] for row in rows}
    timing = config.timing.with_alu("chisel")
    worst = 0.0
    for shape in resnet18_shapes():
        together = as_in_networks(dataclasses.replace(shape.work, batch=BATCH), config)
        cycles = simulate(conv_program(together, config), timing).cycles
        worst = max(worst, cycles / BATCH / alone[shape.name])
    return Figure.at_most(f"conv_batch{BATCH}_over_batch1_worst", worst, "x", 1.0)


def layer_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The layers for a human reader."""
    table = Table(title="ResNet-18's convolutions, each alone: cycles, utilization, bound / cycles")
    names = ["in out size kernel", "times", "board", "used"]
    names += [text for core in ALU_RATES for text in (core, "used", "of bound")]
    for name in names:
        table.add_column(name, justify="left" if name == names[0] else "right", no_wrap=True)
    for row in rows:
        cells = [row["layer"].replace("_", " "), str(row["count"])]
        cells.append(f"{row['board_ms'] * 1e5:,.0f}")
        cells.append(f"{row['board_utilization']:.1f} %")
        for core in ALU_RATES:
            cycles, bound = row[core]["cycles"], row[core]["bound"]
            used = row[core]["utilization"]
            cells += [f"{cycles:,}", f"{used:.1f} %", f"{100 * bound / cycles:.1f} %"]
        table.add_row(*cells)
    return table


# ---------------------------------------------------------------- the whole region
class _Region:
    """ResNet-18's 19 convolutions and 8 additions in one Program."""

    def __init__(self, config: VTAConfig):
        self.config = config
        self.builder = program_builder(config)
        self.count = 0

    def tensor(self, channels: int, size: int, kind: str) -> str:
        self.count += 1
        shape = packed_shape((1, channels, size, size), self.config)
        return self.builder.symbol(f"t{self.count}", kind, shape, "int8")

    def conv(self, x: str, work: Conv2dWorkload) -> str:
        work = as_in_networks(work, self.config)
        (kernel,) = CONV2D.functions(CONV2D.choose(LayerWork(work), self.config), self.config)
        y = self.tensor(work.out_channels, work.out_height, "temp")
        self.layer(kernel.func, [x], y)
        return y

    def add(self, lhs: str, rhs: str, channels: int, size: int, kind: str) -> str:
        sides, end = (Prologue(0), Prologue(1)), Epilogue((Step("add", 1), Step("shr", 1), *CLAMP))
        work = ElementwiseWorkload(1, channels, size, size, sides, "add", end)
        schedule = ELEMENTWISE.choose(LayerWork(work), self.config)
        (kernel,) = ELEMENTWISE.functions(schedule, self.config)
        y = self.tensor(channels, size, kind)
        self.layer(kernel.func, [lhs, rhs], y)
        return y

    def layer(self, func: tirx.PrimFunc, operands: list[str], result: str) -> None:
        """A layer whose arguments between operands and result are constants."""
        names = []
        for number, param in enumerate(func.params[len(operands) : -1]):
            shape = [int(s) for s in param.shape]
            zeros = np.zeros(shape, str(param.dtype))
            names.append(self.builder.constant(f"{result}_{number}", zeros))
        self.builder.layer(result, func, [*operands, *names, result])


def resnet18_region(config: VTAConfig) -> Program:
    """The part of ResNet-18 that VTA runs, from the first block to the last."""
    region = _Region(config)
    x, channels, size = region.tensor(64, 56, "input"), 64, 56
    for block in range(8):
        stride = 2 if block in (2, 4, 6) else 1
        out = channels * stride
        y = region.conv(x, conv(channels, out, size, 3, stride))
        y = region.conv(y, conv(out, out, size // stride, 3, 1))
        if stride == 2:
            x = region.conv(x, conv(channels, out, size, 1, stride))
        channels, size = out, size // stride
        x = region.add(y, x, channels, size, "output" if block == 7 else "temp")
    return region.builder.finish()


def region_figures(config: VTAConfig) -> list[Figure]:
    """Cycles of the whole region, and how long it takes to find them out."""
    program = resnet18_region(config)
    figures = []
    for core in ALU_RATES:
        start = time.perf_counter()
        result = simulate(program, config.timing.with_alu(core))
        seconds = time.perf_counter() - start
        figures.append(Figure(f"resnet18_region_{core}_ms", result.milliseconds, "ms"))
    slow = Figure.at_most("resnet18_region_simulation_seconds", seconds, "s", SECONDS_TARGET)
    return [*figures, slow]


def main() -> int:
    options = arguments(str(__doc__).splitlines()[0]).parse_args()
    config = VTAConfig.preset("pynq")
    rows = list(measured_layers(config))
    figures = tutorial_figures(config) + resnet18_figures(rows, config.timing.clock_mhz)
    figures += [batch_figure(rows, config), *region_figures(config)]
    if not options.json:
        Console(file=sys.stdout, width=max(120, Console().width)).print(layer_table(rows))
    return report("timing", figures, options.json, layers=rows)


if __name__ == "__main__":
    sys.exit(main())
