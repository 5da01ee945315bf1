"""`vta-byoc explore`: machines by models, and which machine no other one beats."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say
from vta_byoc.cli.jobs import job_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from vta_byoc.cli.progress import Steps
    from vta_byoc.explore.point import Point
    from vta_byoc.explore.space import Space


@click.command(short_help="Machines by models: what each costs, and which are not beaten.")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--space",
    required=True,
    metavar="FILE.json",
    help='The machines: {"machines": [PRESET or FILE, ...], "base": PRESET, "vary": {KEY: [...]}}.',
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="LOG.jsonl",
    help="Results, a line each; those that it holds already are not measured again.",
)
@click.option(
    "--resources",
    metavar="PART",
    help="Synthesize each machine's core for an FPGA and report LUT, FF, DSP and BRAM: xc7z020, "
    "xczu3eg, xczu7ev or lfe5u-85f. Minutes a machine, once. Needs the extra rtl.",
)
@click.option(
    "--pareto",
    "named",
    metavar="AXIS,...",
    help="What is to be small: cycles, milliseconds, dram_bytes, sram_bytes, macs, and with "
    "--resources lut, ff, dsp, bram.",
)
@click.option("--picture", metavar="FILE.html", help="A page with the results as charts.")
@click.option("--csv", "table", metavar="FILE.csv", help="A file with the results as a table.")
@job_options("one a processor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
def explore(
    models: tuple[str, ...],
    space: str,
    output: str,
    resources: str | None,
    named: str | None,
    picture: str | None,
    table: str | None,
    scheduler: str | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Compile every MODEL for every machine of a space, and compare what the machines cost.

    Nothing is run: cycles are the timing model's, bytes those of the programs. An exploration that
    was interrupted goes on where it was when it is called again.

    \b
    Examples:
      vta-byoc explore resnet18.onnx --space space.json -o results.jsonl --picture machines.html
      vta-byoc explore resnet18.onnx --space space.json -o results.jsonl --resources xc7z020
      vta-byoc explore a.onnx b.onnx --space space.json -o results.jsonl --scheduler tcp://h:8786
    """
    from vta_byoc.cli import files
    from vta_byoc.cli.progress import Steps, stdout_console
    from vta_byoc.explore.explore import costs_of, jobs_of, pareto
    from vta_byoc.explore.explore import explore as measure_all
    from vta_byoc.explore.result_log import ResultLog
    from vta_byoc.explore.space import read_space

    path = Path(output)
    files.check_writable(path)
    for name, suffix in ((picture, ".html"), (table, ".csv")):
        if name is not None:
            files.check_writable(Path(name), suffix)
    axes = costs_of(named, hardware=resources is not None)
    _check_part(resources)
    found, steps = read_space(space), Steps()
    count = len(jobs_of(found, models))
    log = ResultLog(path)
    text = f"compiling {len(models)} models for {len(found.machines)} machines"
    with steps.counted("explore", text, count) as progress:
        points = measure_all(
            found, models, log, scheduler=scheduler, workers=workers, progress=progress
        )
    if resources is not None:
        points = _with_hardware(points, found, resources, steps, scheduler, workers)
    front = pareto(points, axes)
    _write(points, front, axes, picture, table)
    if as_json:
        best = {point.key for point in front}
        rows = [{**p.to_json(), "pareto": p.key in best} for p in points]
        facts = {"points": rows, "refused": found.refused, "axes": axes, "log": output}
        say(json.dumps({**facts, "part": _part_facts(resources)}, indent=2))
        return
    _print(points, front, found, stdout_console())


def _check_part(name: str | None) -> None:
    """Refuse before the long work what would be refused after it."""
    if name is not None:
        from vta_byoc.hw.rtl.build import need_packages
        from vta_byoc.hw.rtl.parts import part_named
        from vta_byoc.hw.rtl.resources import PACKAGES

        part_named(name)
        need_packages(PACKAGES, "--resources")


def _part_facts(name: str | None) -> dict[str, object] | None:
    from vta_byoc.hw.rtl.parts import part_named

    if name is None:
        return None
    part = part_named(name)
    return {"name": part.name, "board": part.board, **dataclasses.asdict(part.has)}


def _with_hardware(
    points: list[Point],
    space: Space,
    part: str,
    steps: Steps,
    scheduler: str | None,
    workers: int | None,
) -> list[Point]:
    from vta_byoc.explore.hardware import hardware_of, with_hardware

    text = f"mapping the cores of {len(space.machines)} machines to {part} with yosys"
    with steps.counted("resources", text, len(space.machines)) as progress:
        found = hardware_of(
            space.machines, part, scheduler=scheduler, workers=workers, progress=progress
        )
    return with_hardware(points, found)


def _write(
    points: list[Point],
    front: list[Point],
    axes: tuple[str, ...],
    picture: str | None,
    table: str | None,
) -> None:
    """The page and the table, where they are asked."""
    from vta_byoc.cli import files

    if picture is not None:
        from vta_byoc.reports.explore_picture import explore_page

        with files.replacing(Path(picture)) as temporary:
            temporary.write_text(explore_page(points, front, axes), encoding="utf-8")
    if table is not None:
        from vta_byoc.reports.explore_table import csv_text

        with files.replacing(Path(table)) as temporary:
            temporary.write_text(csv_text(points, front), encoding="utf-8")


def _print(points: Sequence[Point], front: Sequence[Point], space: Space, console: Console) -> None:
    from rich.text import Text

    from vta_byoc.reports.explore_table import cost_columns
    from vta_byoc.reports.tables import plain_table

    best = {point.key for point in front}
    for model in dict.fromkeys(point.model for point in points):
        table, columns = plain_table(), cost_columns()
        table.add_column(model, overflow="fold")
        for title in (*columns, ""):
            table.add_column(title, justify="right")
        mine = [p for p in points if p.model == model and not p.error]
        for p in sorted(mine, key=lambda p: p.cycles):
            values = [show(p) for show in columns.values()]
            table.add_row(Text(p.machine), *values, "not beaten" if p.key in best else "")
        console.print(table)
    _print_hardware(points, console)
    for point in points:
        why = point.error or (point.hardware.error if point.hardware is not None else "")
        if why:
            line = f"{point.machine}, {point.model}: {why}"
            console.print(Text(line), soft_wrap=True)
    for name, why in space.refused.items():
        console.print(Text(f"{name}: {why}"), soft_wrap=True)


def _print_hardware(points: Sequence[Point], console: Console) -> None:
    """What the machines take, each once, and what the part has."""
    from rich.text import Text

    from vta_byoc.reports.explore_table import hardware_columns, has_row
    from vta_byoc.reports.tables import plain_table

    machines = {p.machine: p for p in points if p.hardware is not None}
    part = next((p.hardware.part for p in machines.values() if p.hardware is not None), None)
    if part is None:
        return
    table, columns = plain_table(), hardware_columns()
    table.add_column(part, overflow="fold")
    for title in columns:
        table.add_column(title, justify="right")
    for name, point in machines.items():
        table.add_row(Text(name), *(show(point) for show in columns.values()))
    table.add_row("the part has", *has_row(part), "")
    console.print(table)
