"""`vta-byoc report` and `vta-byoc trace`: pictures of a compiled model's time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say
from vta_byoc.cli.program_files import holds_program, load_or_compile

if TYPE_CHECKING:
    import tvm

    from vta_byoc.cli.progress import Steps
    from vta_byoc.hw.program.program import Program
    from vta_byoc.pipeline import Compiled
    from vta_byoc.reports.run.against import Numbers
    from vta_byoc.reports.run.layers import ModelFacts
    from vta_byoc.reports.run.trace import Event


def _write(path: Path, text: str) -> None:
    from vta_byoc.cli import files

    with files.replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _written(path: Path) -> str:
    from vta_byoc.reports.chart_text import quantity

    return f"{path} written: {quantity(path.stat().st_size, 'B')}"


# ---------------------------------------------------------------- report
@click.command(short_help="Write one HTML page: placement, cycles, DRAM bytes, roofline.")
@click.argument("model")
@click.option("-o", "--output", required=True, metavar="FILE.html", help="The page to write.")
@commands.config_option
@commands.build_option
@commands.shape_option
@commands.calibration_option
@click.option("--json", "as_json", is_flag=True, help="Print the page's numbers as one object.")
@click.option("--csv", "table", metavar="FILE.csv", help="Write the table of layers, too.")
@click.option(
    "--against",
    metavar="BEFORE.json",
    help="What --json printed for an older compilation: say what changed since.",
)
@commands.debug_option
def report(
    model: str,
    output: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    as_json: bool,
    table: str | None,
    against: str | None,
) -> None:
    """Compile MODEL (or take a program file), simulate its time on VTA and draw where it goes.

    The page needs no network: it can be mailed, archived and opened anywhere.

    \b
    Examples:
      vta-byoc report resnet18.onnx -o resnet18.html --config pynq
      vta-byoc report resnet18.onnx -o resnet18.html --json > resnet18.json
      vta-byoc report resnet18.onnx -o new.html --against resnet18.json
    """
    from vta_byoc.cli import files

    path = Path(output)
    before = None if against is None else _before(against)
    if table is not None:
        files.check_writable(Path(table), ".csv")
    facts, config, steps = _simulated(model, config, shapes, calibration, path)
    numbers = _numbers(facts)
    with steps.step("draw", f"drawing {path}"):
        from vta_byoc.reports.html.layers_csv import layers_csv
        from vta_byoc.reports.html.report import html_report
        from vta_byoc.reports.run.against import compare_reports

        changed = None
        if before is not None and against is not None:
            changed = compare_reports(before, numbers, against)
        _write(path, html_report(facts, model, config, changed))
        if table is not None:
            _write(Path(table), layers_csv(facts))
    if as_json:
        found = {} if changed is None else {"against": changed.to_json()}
        say(json.dumps({"model": model, "report": output, **numbers, **found}, indent=2))
        return
    say(f"{facts.cycles:,} cycles on VTA, {facts.milliseconds:,.3f} ms")
    if changed is not None:
        cycles = changed.totals[0]
        say(f"before {cycles.before:,} cycles ({cycles.change}). {changed.first}")
    for written in (path, *([] if table is None else [Path(table)])):
        say(_written(written))


def _simulated(
    model: str, config: str, shapes: tuple[str, ...], calibration: str | None, path: Path
) -> tuple[ModelFacts, str, Steps]:
    """The facts of a model or a program file, and the machine by name."""
    from vta_byoc.cli.progress import Steps

    steps = Steps()
    if holds_program(model):
        programs = load_or_compile(model, config, shapes, calibration, path, ".html")
        (program,) = programs.values()
        with steps.step("simulate", "simulating the time"):
            return _facts_of_program(program, model), program.config.target, steps
    qmod, machine, steps = commands.quantize_dry(model, config, shapes, calibration, path, ".html")
    compiled = commands.compile_for(qmod, machine, "null", steps)
    with steps.step("simulate", "simulating the time"):
        return _facts(compiled, qmod), config, steps


def _numbers(facts: ModelFacts) -> Numbers:
    from vta_byoc.reports.run.changes import changes

    return {**facts.to_json(), "changes": [change.to_json() for change in changes(facts)]}


def _before(path: str) -> Numbers:
    from vta_byoc.reports.run.against import read_report

    return read_report(path)


def _facts(compiled: Compiled, qmod: tvm.IRModule) -> ModelFacts:
    from vta_byoc.reports.run.graph import operator_edges
    from vta_byoc.reports.run.layers import model_facts

    return model_facts(
        compiled.config,
        compiled.programs,
        compiled.placement,
        compiled.sharing,
        operator_edges(qmod),
    )


def _facts_of_program(program: Program, file: str) -> ModelFacts:
    from vta_byoc.reports.run.layers import model_facts
    from vta_byoc.reports.run.program_placement import program_placement

    path = Path(file)
    by = f"the program file {path.name}"
    placement = program_placement(program, "vta.program", by)
    return model_facts(program.config, {path.stem: program}, placement)


# ---------------------------------------------------------------- trace
@click.command(short_help="Write a timeline for the Perfetto and Chrome trace viewers.")
@click.argument("model")
@click.option("-o", "--output", required=True, metavar="FILE.json", help="The trace to write.")
@commands.config_option
@commands.build_option
@commands.shape_option
@commands.calibration_option
@click.option("--layer", metavar="NAME", help="Only the instructions of one operator.")
@commands.debug_option
def trace(
    model: str,
    output: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    layer: str | None,
) -> None:
    """Compile MODEL (or take a program file), simulate its time, write it as a timeline.

    Every instruction is in it: a row for each queue and the memory port, arrows for tokens. Open it
    in the Perfetto viewer or in chrome://tracing; one microsecond there is one cycle. The times are
    those of the whole model, also with --layer.

    \b
    Examples:
      vta-byoc trace resnet18.onnx -o resnet18.json --config pynq
      vta-byoc trace resnet18.onnx -o conv1.json --layer layer1_0_conv1
    """
    from vta_byoc.cli.progress import Steps

    path = Path(output)
    programs = load_or_compile(model, config, shapes, calibration, path, ".json")
    steps = Steps()
    with steps.step("simulate", "simulating the time"):
        document = _timeline(programs, layer)
    with steps.step("write", f"writing {path}"):
        _write(path, json.dumps(document, separators=(",", ":")) + "\n")
    say(_written(path))


def _timeline(programs: Mapping[str, Program], layer: str | None) -> Event:
    from vta_byoc.reports.run.trace import trace_programs
    from vta_byoc.reports.run.trace_layer import trace_layer

    if layer is not None:
        return trace_layer(programs, layer)
    return trace_programs(programs)
