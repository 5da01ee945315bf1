"""What `vta-byoc` prints: tables for people, one object for programs."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES, count_stream, dram_bytes
from vta_byoc.hw.isa import Queue
from vta_byoc.hw.program import Program

if TYPE_CHECKING:
    from vta_byoc.check import TensorCheck
    from vta_byoc.cli.inputs import Input
    from vta_byoc.hw.timing_result import TimingResult
    from vta_byoc.partition import Placement
    from vta_byoc.pipeline import Compiled
    from vta_byoc.runtime import Profile

STEPS = ("import", "quantize", "compile", "run", "reference")
TOP = 5
SHOWN_DIFFERENCES = 8
PLAIN_REASON = "pattern "
"""A placement on VTA whose reason is only this and a pattern's name needs no note."""


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
    """

    model: str
    config: str
    compiled: Compiled
    inputs: Mapping[str, Input]
    outputs: Mapping[str, np.ndarray]
    profile: Profile
    seconds: Mapping[str, float]
    checks: Sequence[TensorCheck] | None = None

    @property
    def regions(self) -> list[tuple[str, dict[str, int]]]:
        """Each region's counters; the null device counts nothing: decoded from the program."""
        if self.compiled.device == "null":
            return [(name, program.counters()) for name, program in self.compiled.programs.items()]
        return [(region.name, region.counters) for region in self.profile.regions]

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
        if self.compiled.device != "tsim":
            return {}
        from vta_byoc.timing_report import time_programs

        return time_programs(self.compiled.programs)

    def to_json(self) -> dict[str, Any]:
        """The object of `--json`; docs/cli.md explains its keys, which do not change."""
        seconds = {step: self.seconds.get(step) for step in STEPS}
        timing = {"timing": timing_json(self.timings)} if self.timings else {}
        return {
            **timing,
            "model": self.model,
            "config": self.config,
            "device": self.compiled.device,
            "inputs": {
                name: {
                    "shape": list(value.array.shape),
                    "dtype": str(value.array.dtype),
                    "source": value.source,
                }
                for name, value in self.inputs.items()
            },
            "bit_exact": self.bit_exact,
            "counters": self.counters,
            "placement": placement_json(self.compiled.placement),
            "seconds": {s: None if v is None else round(v, 3) for s, v in seconds.items()},
        }


def timing_json(timings: Mapping[str, TimingResult]) -> dict[str, Any]:
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


def placement_json(placement: Sequence[Placement]) -> dict[str, Any]:
    """Where every operator of the model runs, with totals."""
    return {
        "macs_total": sum(op.macs for op in placement),
        "macs_offloaded": sum(op.macs for op in placement if op.device == "vta"),
        "ops": [
            {"name": o.name, "op": o.op, "device": o.device, "reason": o.reason, "macs": o.macs}
            for o in placement
        ],
    }


def layer_counters(programs: Mapping[str, Program]) -> dict[str, dict[str, int]]:
    """The seven counters of every layer, by decoding; by the name of the operator."""
    return {
        layer.name: count_stream(program.config, program.insns[layer.begin : layer.end])
        for program in programs.values()
        for layer in program.layers
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
    _print_lines(_run_lines(report), console)


def _print_title(report: RunReport, console: Console) -> None:
    config, device = report.compiled.config, report.compiled.device
    console.print(
        f"{report.model} on {report.config} ({config.name}), device {device}",
        style="bold",
        markup=False,
        soft_wrap=True,
    )
    for name, value in report.inputs.items():
        shape = _shape(value.array)
        console.print(f"input {name} {shape}: {value.source}", markup=False, soft_wrap=True)
    if device == "null":
        console.print("dry run: VTA's results are zero, counters are decoded from the programs")
    console.print()


def print_placement(
    placement: Sequence[Placement],
    programs: Mapping[str, Program],
    console: Console,
    timings: Mapping[str, TimingResult] | None = None,
) -> None:
    """One row for each operator, and the reasons below: each is written once.

    With `timings` of the regions, each layer's cycles too.
    """
    costs, notes = layer_counters(programs), Notes()
    cycles = {x.name: x.cycles for t in (timings or {}).values() for x in t.layers}
    table = _table()
    table.add_column("operator", no_wrap=True, overflow="ellipsis", min_width=10)
    table.add_column("kind", no_wrap=True, overflow="ellipsis", min_width=6)
    table.add_column("runs on", no_wrap=True)
    measured = ("cycles",) if cycles else ()
    for title in ("MACs (M)", "GEMM micro-ops", "DRAM (kB)", *measured, "note"):
        table.add_column(title, justify="right", no_wrap=True)
    for op in placement:
        *row, note = _placement_row(op, costs.get(op.name), notes)
        time = (f"{cycles[op.name]:,}" if op.name in cycles else "",) if cycles else ()
        table.add_row(*row, *time, note)
    console.print(table)
    console.print()
    if notes:
        _print_lines(((f"[{i}]", text) for i, text in enumerate(notes, start=1)), console)
        console.print()


def _placement_row(
    op: Placement, cost: Mapping[str, int] | None, notes: Notes
) -> Iterable[str | Text]:
    on_vta = op.device == "vta"
    yield op.name
    yield op.op.removeprefix("relax.").removeprefix("nn.")
    yield Text(op.device, "green" if on_vta else "yellow")
    yield _millions(op.macs) if op.macs else ""
    yield f"{cost['gemm_counter']:,}" if cost and cost["gemm_counter"] else ""
    yield f"{dram_bytes(dict(cost)) / 1e3:,.1f}" if cost else ""
    yield notes.number(_note(op))


def _note(op: Placement) -> str:
    """What there is to say about a placement: for VTA only what is unusual.

    A reason that names the kind of its operator is the same text for every kind: one note.
    """
    if op.device != "vta":
        return op.reason.removesuffix(f" {op.op}") + (
            " this kind" if op.reason.endswith(f" {op.op}") else ""
        )
    return "; ".join(p for p in op.reason.split("; ") if not p.startswith(PLAIN_REASON))


class Notes(list[str]):
    """Texts that rows refer to by number."""

    def number(self, text: str) -> str:
        """The reference to `text`, "" for no text."""
        if not text:
            return ""
        if text not in self:
            self.append(text)
        return f"[{self.index(text) + 1}]"


def _regions_table(report: RunReport) -> Table:
    table = _table()
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
        yield "DRAM", f"{_megabytes(dram_bytes(report.counters))} moved by VTA"
    for name, timing in report.timings.items():
        yield "cycles", f"{name}: {timing_text(timing)}"
    yield "seconds", _seconds(report.seconds)
    for name, array in report.outputs.items():
        yield "output", f"{name} {_shape(array)}: {_values(array)}"
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
    """How much of the model runs on VTA."""
    totals = placement_json(compiled.placement)
    done, total = totals["macs_offloaded"], totals["macs_total"]
    share = f" ({100 * done / total:.1f} %)" if total else ""
    count = sum(op.device == "vta" for op in compiled.placement)
    yield "MACs", f"{total:,}, on VTA {done:,}{share}"
    regions = _count(len(compiled.programs), "region")
    yield "operators", f"{len(compiled.placement)}, on VTA {count} in {regions}"


def check_text(checks: Sequence[TensorCheck]) -> str:
    """The verdict of `--check`, with the first differences."""
    outputs = sum(check.where == "output" for check in checks)
    compared = (
        f"{_count(outputs, 'output')} and {_count(len(checks) - outputs, 'tensor')} stored by "
        "regions"
    )
    wrong = [check for check in checks if not check.equal]
    if not wrong:
        return f"bit-exact: {compared} equal the integer reference"
    lines = [f"NOT bit-exact: of {compared}, {len(wrong)} differ from the integer reference"]
    lines += [f"  {check}" for check in wrong[:SHOWN_DIFFERENCES]]
    if len(wrong) > SHOWN_DIFFERENCES:
        lines.append(f"  and {len(wrong) - SHOWN_DIFFERENCES} more")
    return "\n".join(lines)


# ---------------------------------------------------------------- compile, configs
def print_compiled(compiled: Compiled, seconds: Mapping[str, float], console: Console) -> None:
    """What `vta-byoc compile` made."""
    lines = list(summary_lines(compiled))
    for name, program in compiled.programs.items():
        size = program.image.size + program.insns.nbytes
        lines.append(
            (
                name,
                f"{_count(len(program.layers), 'layer')}, {len(program.insns):,} instructions, "
                f"{_megabytes(size)} with weights, {_megabytes(program.arena_bytes)} of DRAM",
            )
        )
    lines.append(("seconds", _seconds(seconds)))
    _print_lines(lines, console)


def print_configs(configs: Mapping[str, VTAConfig], console: Console) -> None:
    """The presets: geometry, buffers, clock."""
    table = _table()
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
def _table() -> Table:
    return Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), header_style="bold"
    )


def _print_lines(lines: Iterable[tuple[str, str]], console: Console) -> None:
    """Aligned `title  text` lines; a long text goes on below its beginning."""
    pairs = list(lines)
    indent = max(len(title) for title, _ in pairs) + 2
    width = max(console.width - indent, 20)
    for title, text in pairs:
        parts = [p for line in text.splitlines() for p in textwrap.wrap(line, width) or [""]]
        for i, part in enumerate(parts):
            head = (title if i == 0 else "").ljust(indent)
            console.print(Text.assemble((head, "bold"), part), soft_wrap=True)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _millions(number: int) -> str:
    return f"{number / 1e6:,.2f}" if number >= 5000 else "< 0.01"


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.2f} MB" if number >= 1e6 else f"{number / 1e3:,.1f} kB"


def _seconds(seconds: Mapping[str, float]) -> str:
    parts = [f"{step} {value:.2f}" for step, value in seconds.items()]
    return f"{', '.join(parts)}; together {sum(seconds.values()):.1f}"


def _shape(array: np.ndarray) -> str:
    return f"({', '.join(map(str, array.shape))}) {array.dtype}"


def _values(array: np.ndarray) -> str:
    """The largest values of a vector, the range of anything else."""
    flat = array.reshape(-1)
    if not flat.size:
        return "empty"
    if flat.size != array.shape[-1]:
        return f"from {flat.min():.4g} to {flat.max():.4g}, mean {flat.mean():.4g}"
    best = np.argsort(-flat, kind="stable")[:TOP]
    return "largest " + ", ".join(f"[{i}] {flat[i]:.4g}" for i in best)
