"""`vta-byoc scopes`: where every tensor of a model lives, who wants it there, and why."""

from __future__ import annotations

import json

import click

from vta_byoc.cli import commands, stages
from vta_byoc.cli.consoles import say


@click.command(short_help="Where every tensor lives, what its consumers demand, and why.")
@click.argument("model")
@commands.config_option
@commands.partition_option
@commands.shape_option
@commands.calibration_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
def scopes(
    model: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    as_json: bool,
) -> None:
    """Import, quantize and partition MODEL and show the memory scope of every tensor.

    Each tensor has its consumers' demands, the scope that was decided and the rule, its bytes as
    laid out, what one run of VTA moves of it, and what it would move of a tensor that stays on
    chip; then come the copies that the host makes at the borders of regions.

    \b
    Examples:
      vta-byoc scopes resnet18.onnx --config pynq
      vta-byoc scopes resnet18.onnx --json > scopes.json
      vta-byoc scopes resnet18.onnx --demand layer1_0_add:layer1_0_conv2=global.vta.inp
    """
    qmod, machine, steps = commands.quantize_dry(model, config, shapes, calibration)
    with steps.step("scopes", f"deciding scopes for VTA {machine.name}, counting bytes"):
        from vta_byoc.pipeline import partition_for_vta
        from vta_byoc.reports.placement.scopes import ScopeReport

        mod = partition_for_vta(qmod, options=stages.chosen(machine))
        report = ScopeReport.of(mod, model, config, machine)
    if as_json:
        say(json.dumps(report.to_json(), indent=2))
        return
    from vta_byoc.cli.progress import stdout_console
    from vta_byoc.reports.placement.scopes import print_scopes

    print_scopes(report, machine.name, stdout_console())
