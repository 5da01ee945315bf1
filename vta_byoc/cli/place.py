"""`vta-byoc place`: where every operator of a model would run, and why."""

from __future__ import annotations

import json

import click

from vta_byoc.cli import commands, stages
from vta_byoc.cli.consoles import say
from vta_byoc.hw.errors import VTAError


@click.command(short_help="Where every operator runs, why, and what would change it.")
@click.argument("model")
@commands.config_option
@commands.partition_option
@commands.shape_option
@commands.calibration_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.option(
    "--fail-under",
    "least",
    type=float,
    metavar="PCT",
    help="Exit with 1 when less than PCT percent of the MACs or of the ALU operations are on VTA.",
)
@commands.debug_option
@click.pass_context
def place(
    ctx: click.Context,
    model: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    as_json: bool,
    least: float | None,
) -> None:
    """Import and quantize MODEL (.onnx, .tflite, .pt2) and decide where every operator of it runs.

    No instruction is generated: it is the quick way to see what a machine takes of a model. Cycles
    are the compiler's estimates; `vta-byoc report` simulates them.

    \b
    Examples:
      vta-byoc place resnet18.onnx --config pynq
      vta-byoc place resnet18.onnx --fail-under 99
      vta-byoc place resnet18.onnx --json > placement.json
    """
    if least is not None and not 0 <= least <= 100:
        raise VTAError(f"--fail-under {least:g}; a share is 0 to 100 percent; for example 99")
    qmod, machine, steps = commands.quantize_dry(model, config, shapes, calibration)
    with steps.step("place", f"placing on VTA {machine.name}"):
        from vta_byoc.pipeline import partition_for_vta
        from vta_byoc.reports.placement.summary import PlaceReport

        mod = partition_for_vta(qmod, options=stages.chosen(machine))
        report = PlaceReport.of(mod, model, config, least)
    if as_json:
        say(json.dumps(report.to_json(), indent=2))
        for line in report.shortfalls:
            say(line, err=True)
    else:
        from vta_byoc.cli.progress import stdout_console
        from vta_byoc.reports.placement.text import print_place

        print_place(report, machine.name, stdout_console())
    if report.shortfalls:
        ctx.exit(commands.CHECK_FAILED)
