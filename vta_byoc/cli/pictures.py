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
    from vta_byoc.hw.program.program import Program
    from vta_byoc.pipeline import Compiled
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
@commands.debug_option
def report(
    model: str,
    output: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    as_json: bool,
) -> None:
    """Compile MODEL (or take a program file), simulate its time on VTA and draw where it goes.

    The page needs no network: it can be mailed, archived and opened anywhere.

    \b
    Examples:
      vta-byoc report resnet18.onnx -o resnet18.html --config pynq
      vta-byoc report resnet18.onnx -o resnet18.html --json > resnet18.json
    """
    from vta_byoc.cli.progress import Steps

    path = Path(output)
    steps = Steps()
    if holds_program(model):
        programs = load_or_compile(model, config, shapes, calibration, path, ".html")
        (program,) = programs.values()
        config = program.config.target
        with steps.step("simulate", "simulating the time"):
            facts = _facts_of_program(program, model)
    else:
        compiled, steps = commands.compile_dry(model, config, shapes, calibration, path, ".html")
        with steps.step("simulate", "simulating the time"):
            facts = _facts(compiled)
    with steps.step("draw", f"drawing {path}"):
        from vta_byoc.reports.html.report import html_report

        _write(path, html_report(facts, model, config))
    if as_json:
        say(json.dumps({"model": model, "report": output, **facts.to_json()}, indent=2))
    else:
        say(f"{facts.cycles:,} cycles on VTA, {facts.milliseconds:,.3f} ms")
        say(_written(path))


def _facts(compiled: Compiled) -> ModelFacts:
    from vta_byoc.reports.run.layers import model_facts

    return model_facts(compiled.config, compiled.programs, compiled.placement, compiled.sharing)


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
