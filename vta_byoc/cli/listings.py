"""What is listed and no more: `vta-byoc disasm` and `vta-byoc configs`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands, program_files
from vta_byoc.cli.consoles import say
from vta_byoc.hw.printable import printable

if TYPE_CHECKING:
    from vta_byoc.hw.program.program import Program


@click.command(short_help="Print the instructions that a model becomes.")
@click.argument("model")
@commands.config_option
@commands.build_option
@commands.shape_option
@commands.calibration_option
@click.option("--layer", metavar="NAME", help="Only the instructions of one operator.")
@click.option("-o", "--output", metavar="FILE", help="Write to a file instead of stdout.")
@commands.debug_option
def disasm(
    model: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    layer: str | None,
    output: str | None,
) -> None:
    """Print the disassembly of MODEL, or of a program file: symbols, instructions by layer.

    \b
    Examples:
      vta-byoc disasm resnet18.onnx -o resnet18.txt
      vta-byoc disasm resnet18.onnx --layer layer1_0_conv1 | less
      vta-byoc disasm region0.vta
    """
    from vta_byoc.cli import files

    path = None if output is None else Path(output)
    programs = program_files.load_or_compile(model, config, shapes, calibration, path)
    text = printable(_listing(programs, layer))
    if output is None:
        say(text, nl=False)
        return
    with files.replacing(Path(output)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _listing(programs: Mapping[str, Program], layer: str | None) -> str:
    from vta_byoc.reports.run.listing import layer_listing, listing

    return listing(programs) if layer is None else layer_listing(programs, layer)


# ---------------------------------------------------------------- configs
@click.command(short_help="List the machines that have a name.")
@commands.debug_option
def configs() -> None:
    """List the presets that --config takes: geometry, buffers, clock, memory port."""
    from vta_byoc.cli.progress import stdout_console
    from vta_byoc.hw.config import VTAConfig
    from vta_byoc.reports.run.run import print_configs

    presets = {name: VTAConfig.preset(name) for name in VTAConfig.presets()}
    print_configs(presets, stdout_console())
