"""`vta-byoc explore`: machines by models, and which machine no other one beats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say
from vta_byoc.cli.jobs import job_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vta_byoc.explore.point import Point
    from vta_byoc.explore.space import Space

TITLES = ("cycles", "ms", "DRAM bytes", "SRAM bytes", "MACs", "used", "")


@click.command(short_help="Machines by models: cycles, bytes and MACs, and which are not beaten.")
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
@click.option("--picture", metavar="FILE.html", help="A page with the results as charts.")
@job_options("one a processor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
def explore(
    models: tuple[str, ...],
    space: str,
    output: str,
    picture: str | None,
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
      vta-byoc explore a.onnx b.onnx --space space.json -o results.jsonl --scheduler tcp://h:8786
    """
    from vta_byoc.cli import files
    from vta_byoc.cli.progress import Steps, stdout_console
    from vta_byoc.explore.explore import explore as measure_all
    from vta_byoc.explore.explore import jobs_of, pareto
    from vta_byoc.explore.result_log import ResultLog
    from vta_byoc.explore.space import read_space

    path = Path(output)
    files.check_writable(path)
    if picture is not None:
        files.check_writable(Path(picture), ".html")
    found, steps = read_space(space), Steps()
    count = len(jobs_of(found, models))
    log = ResultLog(path)
    text = f"compiling {len(models)} models for {len(found.machines)} machines"
    with steps.counted("explore", text, count) as progress:
        points = measure_all(
            found, models, log, scheduler=scheduler, workers=workers, progress=progress
        )
    front = pareto(points)
    if picture is not None:
        from vta_byoc.reports.explore_picture import explore_page

        with files.replacing(Path(picture)) as temporary:
            temporary.write_text(explore_page(points, front), encoding="utf-8")
    if as_json:
        best = {point.key for point in front}
        rows = [{**p.to_json(), "pareto": p.key in best} for p in points]
        say(json.dumps({"points": rows, "refused": found.refused, "log": output}, indent=2))
        return
    _print(points, front, found, stdout_console())


def _print(points: Sequence[Point], front: Sequence[Point], space: Space, console: object) -> None:
    from rich.console import Console
    from rich.text import Text

    from vta_byoc.reports.tables import plain_table

    assert isinstance(console, Console)
    best = {point.key for point in front}
    for model in dict.fromkeys(point.model for point in points):
        table = plain_table()
        table.add_column(model, overflow="fold")
        for title in TITLES:
            table.add_column(title, justify="right")
        mine = [p for p in points if p.model == model and not p.error]
        for p in sorted(mine, key=lambda p: p.cycles):
            values = [f"{p.cycles:,}", f"{p.milliseconds:,.3f}", f"{p.dram_bytes:,}"]
            values += [f"{p.sram_bytes:,}", f"{p.macs:,}", f"{p.utilisation:.1f} %"]
            table.add_row(Text(p.machine), *values, "not beaten" if p.key in best else "")
        console.print(table)
    for point in points:
        if point.error:
            line = f"{point.machine}, {point.model}: {point.error}"
            console.print(Text(line), soft_wrap=True)
    for name, why in space.refused.items():
        console.print(Text(f"{name}: {why}"), soft_wrap=True)
