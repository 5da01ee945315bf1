"""`vta-byoc tune`: the fastest tiles of a model's layers by the timing simulator, kept in a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vta_byoc.base.json_types import JsonObject
from vta_byoc.cli import commands, scope_mode
from vta_byoc.cli.consoles import say
from vta_byoc.cli.jobs import job_options
from vta_byoc.cost.objective import OBJECTIVES, Objective

if TYPE_CHECKING:
    from collections.abc import Mapping

    import tvm
    from rich.console import Console

    from vta_byoc.cli.progress import Steps
    from vta_byoc.hw.config import VTAConfig
    from vta_byoc.tune import Tuned
    from vta_byoc.tuning.schedules import Schedules

MOST_CANDIDATES = 1000
TITLES = (
    "default: estimate",
    "simulated",
    "tuned: estimate",
    "simulated",
    "gain",
    "default: bytes",
    "tuned",
)


@click.command(short_help="Time tiles of every layer, keep the fastest in a log for --schedules.")
@click.argument("model")
@click.option("-o", "--output", required=True, metavar="LOG", help="The log to write or extend.")
@click.option(
    "--candidates",
    type=click.IntRange(0, MOST_CANDIDATES),
    default=8,
    show_default=True,
    help="How many tiles of a layer are timed besides the default one, cheapest by estimate first.",
)
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    default=OBJECTIVES[0],
    show_default=True,
    help="What is made small: simulated cycles, DRAM bytes, or both by --bytes-weight.",
)
@click.option(
    "--bytes-weight",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="The share of DRAM bytes in --objective both; cycles have the rest.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 100),
    default=0.0,
    show_default=True,
    metavar="PERCENT",
    help="Of schedules at most that much worse than the best, take that of fewest DRAM bytes.",
)
@click.option(
    "--cycles-limit",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Only schedules that take at most that much more cycles than the fewest.",
)
@job_options("this one alone")
@commands.config_option
@scope_mode.placement_options
@commands.shape_option
@commands.calibration_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
def tune(
    model: str,
    output: str,
    candidates: int,
    objective: str,
    bytes_weight: float,
    tolerance: float,
    cycles_limit: float | None,
    scheduler: str | None,
    workers: int | None,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    as_json: bool,
) -> None:
    """Quantize MODEL, time tiles of each of its layers on VTA, and keep the fastest in a log.

    Every layer is compiled alone with its default tile and with the candidates that the compiler
    expects to be fastest; the timing simulator says which is.  Lines that LOG has already stay, or
    are replaced where a layer of theirs was tuned again: never by a worse schedule.

    \b
    Examples:
      vta-byoc tune resnet18.onnx -o resnet18.jsonl --config pynq
      vta-byoc tune resnet18.onnx -o resnet18.jsonl --candidates 32 --json > tuning.json
      vta-byoc tune resnet18.onnx -o resnet18.jsonl --objective both --bytes-weight 0.3
      vta-byoc tune resnet18.onnx -o resnet18.jsonl --scheduler tcp://10.0.0.1:8786
      vta-byoc run resnet18.onnx --config pynq --schedules resnet18.jsonl --check
    """
    from vta_byoc.cli import files
    from vta_byoc.tuning.schedules import Schedules

    path = Path(output)
    files.check_writable(path)
    log = Schedules.read(path) if path.exists() else Schedules()
    qmod, machine, steps = commands.quantize_dry(model, config, shapes, calibration, path)
    log.check(machine)
    most = None if cycles_limit is None else cycles_limit / 100
    aim = Objective(objective, bytes_weight, tolerance / 100, most)
    where = {"scheduler": scheduler, "workers": workers}
    found, left = _tuned(qmod, machine, candidates, log, path, steps, aim, where)
    if as_json:
        say(json.dumps(_to_json(found, left, model, config, output), indent=2))
        return
    from vta_byoc.cli.progress import stdout_console

    _print(found, left, stdout_console())
    say(f"{path} written: --schedules {path} compiles with it")


def _tuned(
    qmod: tvm.IRModule,
    machine: VTAConfig,
    count: int,
    log: Schedules,
    path: Path,
    steps: Steps,
    aim: Objective,
    where: Mapping[str, Any],
) -> tuple[list[Tuned], list[str]]:
    """What became of each layer, and the layers left out; the log is written layer by layer."""
    from vta_byoc.options import BuildOptions
    from vta_byoc.pipeline import partition_for_vta
    from vta_byoc.tune import tunable_layers, tune
    from vta_byoc.tuning.log import update_log

    with steps.step("place", f"placing on VTA {machine.name}"):
        options = BuildOptions(machine, **scope_mode.chosen())
        mod = partition_for_vta(qmod, options=options)
        with options.settings():
            layers, left = tunable_layers(mod, machine)
    known = {entry.schedule.key: entry.schedule for entry in log.entries if not entry.layer}
    found: list[Tuned] = []
    text = f"timing {count} candidates for each of {len(layers)} layers"
    with options.settings(), steps.counted("tune", text, len(layers)) as progress:
        results = tune(
            layers, machine, count, known, lambda done, _all: progress(done), aim, **where
        )
        for tuned in results:
            update_log(path, [tuned.entry(machine)])
            found.append(tuned)
    if not found:
        update_log(path, [])
    return found, left


def _to_json(
    found: list[Tuned], left: list[str], model: str, config: str, output: str
) -> JsonObject:
    before, after = _totals(found)
    default_bytes, tuned_bytes = _bytes(found)
    return {
        "model": model,
        "config": config,
        "log": output,
        "default_cycles": before,
        "tuned_cycles": after,
        "gain": 1 - after / before if before else 0.0,
        "default_dram_bytes": default_bytes,
        "tuned_dram_bytes": tuned_bytes,
        "layers": [tuned.to_json() for tuned in found],
        "left_out": left,
    }


def _totals(found: list[Tuned]) -> tuple[int, int]:
    """Simulated cycles of all layers, each alone, by default and tuned."""
    before = sum(tuned.default_cycles * tuned.calls for tuned in found)
    return before, sum(tuned.cycles * tuned.calls for tuned in found)


def _bytes(found: list[Tuned]) -> tuple[int, int]:
    """DRAM bytes of all layers, each alone, by default and tuned."""
    before = sum(tuned.default.dram_bytes * tuned.calls for tuned in found)
    return before, sum(tuned.found.dram_bytes * tuned.calls for tuned in found)


def _print(found: list[Tuned], left: list[str], console: Console) -> None:
    from rich.text import Text

    from vta_byoc.reports.tables import plain_table

    table = plain_table()
    table.add_column("layer", overflow="fold")
    for title in TITLES:
        table.add_column(title, justify="right")
    for tuned in found:
        first, *others = tuned.layer.names
        name = f"{first} and {len(others)} more" if others else first
        old, new = tuned.layer.schedule.cycles, tuned.schedule.cycles
        values = [f"{old:,.0f}", f"{tuned.default_cycles:,}", f"{new:,.0f}", f"{tuned.cycles:,}"]
        moved = tuned.default.dram_bytes, tuned.found.dram_bytes
        table.add_row(Text(name), *values, f"{tuned.gain:.1%}", *(f"{n:,}" for n in moved))
    before, after = _totals(found)
    gain = 1 - after / before if before else 0.0
    total = [f"{before:,}", "", f"{after:,}", f"{gain:.1%}", *(f"{n:,}" for n in _bytes(found))]
    table.add_row("all, each alone", "", *total)
    console.print(table)
    if left:
        console.print(
            Text(f"not tuned, their weights stay in SRAM from call to call: {', '.join(left)}"),
            soft_wrap=True,
        )
