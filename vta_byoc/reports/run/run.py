"""What `vta-byoc` prints: tables for people, one object for programs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from vta_byoc.base.json_types import JsonObject
from vta_byoc.base.quantities import count, megabytes
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES, dram_bytes
from vta_byoc.hw.isa import Queue
from vta_byoc.hw.sim.devices import driver
from vta_byoc.reports.placement.summary import placement_json
from vta_byoc.reports.placement.text import print_placement, share_lines
from vta_byoc.reports.quantization.text import FAIR, error_text, verdict
from vta_byoc.reports.run.inputs import Input, shape_text
from vta_byoc.reports.run.memory import MemoryFacts
from vta_byoc.reports.tables import plain_table, print_lines

if TYPE_CHECKING:
    from vta_byoc.hw.timing.result import TimingResult
    from vta_byoc.pipeline import Compiled
    from vta_byoc.runtime.profile import Profile
    from vta_byoc.validation.bit_exact import TensorCheck

STEPS = ("import", "quantize", "compile", "run", "reference", "float")
TOP = 5
SHOWN_DIFFERENCES = 8
ADVICE = "vta-byoc quantize-report shows which layers lose it and what helps"


@dataclass(frozen=True)
class RunReport:
    """Everything `vta-byoc run` knows when it is done.

    Attributes:
        model: the model file as given.
        config: the preset or file as given.
        inputs: in the model's order.
        outputs: name -> array, in the model's order.
        seconds: of each of STEPS that ran.
        checks: every tensor that was compared, in order of execution; None without --check.
        sqnr: of each float output in dB, against the float model; None without --check, and for a
            model that was quantized before.
    """

    model: str
    config: str
    compiled: Compiled
    inputs: Mapping[str, Input]
    outputs: Mapping[str, np.ndarray]
    profile: Profile
    seconds: Mapping[str, float]
    checks: Sequence[TensorCheck] | None = None
    sqnr: Mapping[str, float] | None = None

    @property
    def regions(self) -> list[tuple[str, dict[str, int]]]:
        """Each region's counters; the null device counts nothing: decoded from the program."""
        programs, runs = self.compiled.programs, self.profile.by_region
        if not driver(self.compiled.device).computes:
            return [(name, program.counters()) for name, program in programs.items()]
        return [(name, runs[name].counters) for name in programs]

    @property
    def counters(self) -> dict[str, int]:
        """The seven counters, over all regions."""
        return {name: sum(c[name] for _, c in self.regions) for name in COUNTER_NAMES}

    @property
    def bit_exact(self) -> bool | None:
        """Whether every compared tensor is equal; None if none was compared."""
        return None if self.checks is None else all(check.equal for check in self.checks)

    @cached_property
    def timings(self) -> dict[str, TimingResult]:
        """Cycles of each region; empty unless the device models time."""
        if not driver(self.compiled.device).timed:
            return {}
        from vta_byoc.reports.run.timing import time_programs

        return time_programs(self.compiled.programs)

    def to_json(self) -> JsonObject:
        """The object of `--json`; docs/cli.md explains its keys, which do not change."""
        seconds = {step: self.seconds.get(step) for step in STEPS}
        timing = {"timing": timing_json(self.timings)} if self.timings else {}
        return {
            **timing,
            "model": self.model,
            "config": self.config,
            "device": self.compiled.device,
            "inputs": {name: value.to_json() for name, value in self.inputs.items()},
            "bit_exact": self.bit_exact,
            "sqnr": None if self.sqnr is None else {n: _finite(v) for n, v in self.sqnr.items()},
            "counters": self.counters,
            "placement": placement_json(self.compiled.placement),
            "seconds": {s: None if v is None else round(v, 3) for s, v in seconds.items()},
        }


def timing_json(timings: Mapping[str, TimingResult]) -> JsonObject:
    """Cycles of all regions and of each, with what every queue spent them on."""
    return {
        "cycles": sum(t.cycles for t in timings.values()),
        "milliseconds": sum(t.milliseconds for t in timings.values()),
        "parameters": dataclasses.asdict(next(iter(timings.values())).timing),
        "regions": {
            name: {
                "cycles": t.cycles,
                "queues": {
                    queue.name.lower(): {"busy": spent.busy, "stalls": dict(spent.stalls)}
                    for queue, spent in t.queues.items()
                },
                "layers": {layer.name: layer.cycles for layer in t.layers},
            }
            for name, t in timings.items()
        },
    }


# ---------------------------------------------------------------- run
def print_run(report: RunReport, console: Console) -> None:
    """What ran where and what it cost."""
    compiled = report.compiled
    _print_title(report, console)
    print_placement(compiled.placement, compiled.programs, console, report.timings)
    if compiled.programs:
        console.print(_regions_table(report))
        console.print()
    print_lines(_run_lines(report), console)


def _print_title(report: RunReport, console: Console) -> None:
    config, device = report.compiled.config, report.compiled.device
    console.print(
        f"{report.model} on {report.config} ({config.name}), device {device}",
        style="bold",
        markup=False,
        soft_wrap=True,
    )
    for name, value in report.inputs.items():
        console.print(value.line(name), markup=False, soft_wrap=True)
    if not driver(device).computes:
        console.print("dry run: VTA's results are zero, counters are decoded from the programs")
    console.print()


def _regions_table(report: RunReport) -> Table:
    table = plain_table()
    table.add_column("region", no_wrap=True)
    for name in COUNTER_NAMES:
        # The unit is in the name: what remains of it fits the column.
        table.add_column(name.replace("_nbytes", "\nbytes").replace("_counter", "\ncount"))
        table.columns[-1].justify = "right"
    rows = report.regions
    total = [("all", report.counters)] if len(rows) > 1 else []
    for title, counters in rows + total:
        table.add_row(title, *(f"{counters[name]:,}" for name in COUNTER_NAMES))
    return table


def _run_lines(report: RunReport) -> Iterable[tuple[str, str]]:
    yield from summary_lines(report.compiled)
    if report.regions:
        yield "DRAM", f"{megabytes(dram_bytes(report.counters))} moved by VTA"
    for name, timing in report.timings.items():
        yield "cycles", f"{name}: {timing_text(timing)}"
    yield "seconds", _seconds(report.seconds)
    for name, array in report.outputs.items():
        yield "output", f"{name} {shape_text(array)}: {_values(array)}"
    yield from sqnr_lines(report.sqnr or {})
    if report.checks is not None:
        yield "check", check_text(report.checks)


def timing_text(timing: TimingResult) -> str:
    """Total cycles, and what the compute queue spent them on."""
    compute = timing.queues[Queue.COMPUTE]
    spent = {"busy": compute.busy, **compute.stalls, "drained": compute.drained}
    shares = {what: 100 * count / timing.cycles for what, count in spent.items()}
    parts = [f"{share:.1f} % {what}" for what, share in shares.items() if share >= 0.05]
    clock = f"{timing.milliseconds:,.2f} ms at {timing.timing.clock_mhz} MHz"
    return f"{timing.cycles:,}, {clock}; compute queue {', '.join(parts)}"


def summary_lines(compiled: Compiled) -> Iterable[tuple[str, str]]:
    """How much of the model runs on VTA, what stays on chip, and what the host does for it."""
    yield from share_lines(compiled.placement, len(compiled.programs))
    folds = [op for op in compiled.placement if op.host_bytes]
    if folds:
        nbytes = sum(op.host_bytes for op in folds)
        yield "host", f"folds {count(len(folds), 'operand')}, {megabytes(nbytes)} written"
    yield from MemoryFacts.of(compiled.programs, compiled.sharing).lines()


def check_text(checks: Sequence[TensorCheck]) -> str:
    """The verdict of `--check`, with the first differences."""
    outputs = sum(check.where == "output" for check in checks)
    compared = (
        f"{count(outputs, 'output')} and {count(len(checks) - outputs, 'tensor')} stored by regions"
    )
    wrong = [check for check in checks if not check.equal]
    if not wrong:
        return f"bit-exact: {compared} equal the integer reference"
    lines = [f"NOT bit-exact: of {compared}, {len(wrong)} differ from the integer reference"]
    lines += [f"  {check}" for check in wrong[:SHOWN_DIFFERENCES]]
    if len(wrong) > SHOWN_DIFFERENCES:
        lines.append(f"  and {len(wrong) - SHOWN_DIFFERENCES} more")
    return "\n".join(lines)


def sqnr_lines(sqnr: Mapping[str, float]) -> Iterable[tuple[str, str]]:
    """A line for each output; where to look is said once, behind the last that is not fair."""
    low = [name for name, value in sqnr.items() if value < FAIR]
    for name, value in sqnr.items():
        yield "SQNR", sqnr_text(name, value, name in low[-1:])


def sqnr_text(name: str, value: float, advised: bool = True) -> str:
    """How near an output is to the float model's, if that is good, and where to look if not."""
    advice = f"; {ADVICE}" if advised and value < FAIR else ""
    if value == -math.inf:
        return f"{name}: NaN or infinite elsewhere than the float model's on these inputs{advice}"
    if not math.isfinite(value):
        what = "the float model gives zeros" if math.isnan(value) else "equal to the float model's"
        return f"{name}: {what} on these inputs"
    return (
        f"{name}: {value:.1f} dB against the float model on these inputs, {verdict(value).word}: "
        f"the error is {error_text(value)}{advice}"
    )


def _finite(value: float) -> float | None:
    return round(value, 2) if math.isfinite(value) else None


# ---------------------------------------------------------------- compile, configs
def print_compiled(compiled: Compiled, seconds: Mapping[str, float], console: Console) -> None:
    """What `vta-byoc compile` made."""
    lines = list(summary_lines(compiled))
    for name, program in compiled.programs.items():
        size = program.image.size + program.insns.nbytes
        lines.append(
            (
                name,
                f"{count(len(program.layers), 'layer')}, {len(program.insns):,} instructions, "
                f"{megabytes(size)} with weights, {megabytes(program.arena_bytes)} of DRAM",
            )
        )
    lines.append(("seconds", _seconds(seconds)))
    print_lines(lines, console)


def print_configs(configs: Mapping[str, VTAConfig], console: Console) -> None:
    """The presets: geometry, buffers, clock."""
    table = plain_table()
    table.add_column("preset", no_wrap=True)
    titles = ("BATCH x BLOCK", "INP", "WGT", "ACC", "UOP", "clock", "port", "peak")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for name, config in configs.items():
        table.add_row(name, *_config_row(config))
    console.print(table)


def _config_row(config: VTAConfig) -> Iterable[str]:
    yield f"{config.batch} x {config.block}"
    for buffer in ("inp", "wgt", "acc", "uop"):
        yield f"{(1 << getattr(config, f'log_{buffer}_buff_size')) // 1024} KiB"
    timing = config.timing
    yield f"{timing.clock_mhz} MHz"
    yield f"{timing.port_bytes} B"
    yield f"{config.batch * config.block**2 * timing.clock_mhz / 1e3:,.1f} GMAC/s"


# ---------------------------------------------------------------- parts
def _seconds(seconds: Mapping[str, float]) -> str:
    parts = [f"{step} {value:.2f}" for step, value in seconds.items()]
    return f"{', '.join(parts)}; together {sum(seconds.values()):.1f}"


def _values(array: np.ndarray) -> str:
    """The largest values of a vector, the range of anything else."""
    flat = array.reshape(-1)
    if not flat.size:
        return "empty"
    if (flat.size,) != array.shape[-1:]:
        return f"from {flat.min():.4g} to {flat.max():.4g}, mean {flat.mean():.4g}"
    best = np.argsort(-flat, kind="stable")[:TOP]
    return "largest " + ", ".join(f"[{i}] {flat[i]:.4g}" for i in best)
