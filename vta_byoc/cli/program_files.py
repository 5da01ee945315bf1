"""`vta-byoc programs` and `vta-byoc verify`: programs as files, and proofs about them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say
from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    from vta_byoc.hw.program.program import Program
    from vta_byoc.hw.verify.verifier import Violation

SHOWN = 20
OF_MODELS = {
    "config": "--config",
    "shapes": "--shape",
    "fixed": "--fix",
    "calibration": "--calibration",
}
"""Parameters of commands that say how to compile a model, and their options."""


def is_program_file(path: str) -> bool:
    """Whether the file starts as a program file does; False where it cannot be read."""
    from vta_byoc.hw.program.file import MAGIC

    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False  # what reads the model says why


def holds_program(path: str) -> bool:
    """Whether a command is given a program file, also one that is damaged."""
    return is_program_file(path) or Path(path).suffix == ".vta"


def refuse_model_options() -> None:
    """Refuse options that say how to compile a model, for a program that is compiled already.

    Raises:
        VTAError: the first of them on the command line.
    """
    context = click.get_current_context()
    for name, option in OF_MODELS.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise VTAError(
                f"{option} with a program file; it holds the machine and the compiled program; "
                f"leave {option} out, or give the model"
            )


def load_or_compile(
    file: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    output: Path | None = None,
    suffix: str = "",
) -> dict[str, Program]:
    """The programs of a program file, or of a model; options are those of `compile_dry`."""
    from vta_byoc.cli import files
    from vta_byoc.hw.program.file import load

    if not holds_program(file):
        return commands.compile_dry(file, config, shapes, calibration, output, suffix)[0].programs
    refuse_model_options()
    if output is not None:
        files.check_writable(output, suffix)
    return {Path(file).stem: load(file)}


@click.command(short_help="Save the program of every region of a model.")
@click.argument("model")
@click.option("-o", "--output", required=True, metavar="DIR", help="Existing directory to fill.")
@commands.config_option
@commands.build_option
@commands.shape_option
@commands.calibration_option
@commands.debug_option
def programs(
    model: str, output: str, config: str, shapes: tuple[str, ...], calibration: str | None
) -> None:
    """Compile MODEL and write one program file, REGION.vta, for each region into DIR.

    \b
    Example:
      vta-byoc programs resnet18.onnx -o build && vta-byoc verify build/region0.vta
    """
    from vta_byoc.hw.program.file import save

    folder = Path(output)
    if not folder.is_dir():
        raise VTAError(
            f'"{output}" is not a directory; program files are written into one; make it'
        )
    compiled, _ = commands.compile_dry(model, config, shapes, calibration)
    for name, program in compiled.programs.items():
        path = folder / f"{name}.vta"
        save(program, path)
        layers = "1 layer" if len(program.layers) == 1 else f"{len(program.layers)} layers"
        say(f"{path}: {layers}, {len(program.insns):,} instructions")


@click.command(short_help="Prove a program safe, or list what is wrong with it.")
@click.argument("file")
@commands.config_option
@commands.build_option
@commands.shape_option
@commands.calibration_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
@click.pass_context
def verify(
    ctx: click.Context,
    file: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    as_json: bool,
) -> None:
    """Check FILE, a program file or a model (.onnx), against every rule of docs/verifier.md.

    Exit code 1 when a rule is broken.

    \b
    Examples:
      vta-byoc verify region0.vta
      vta-byoc verify resnet18.onnx --config pynq
    """
    from vta_byoc.hw.program.file import load
    from vta_byoc.hw.verify.verifier import verify as violations_of

    if holds_program(file):
        refuse_model_options()
        found = {file: load(file)}
    else:
        found = commands.compile_dry(file, config, shapes, calibration)[0].programs
    results = {name: violations_of(program) for name, program in found.items()}
    if as_json:
        say(json.dumps(_json(found, results), indent=2))
    else:
        for name, program in found.items():
            _print(name, program, results[name])
    if any(results.values()):
        ctx.exit(commands.CHECK_FAILED)


def _json(
    found: Mapping[str, Program], results: Mapping[str, Sequence[Violation]]
) -> dict[str, object]:
    return {
        "programs": {
            name: {
                "instructions": len(found[name].insns),
                "violations": [dataclasses.asdict(v) for v in violations],
            }
            for name, violations in results.items()
        }
    }


def _print(name: str, program: Program, violations: Sequence[Violation]) -> None:
    from vta_byoc.hw.verify.rules import RULES

    if not violations:
        count = f"{len(program.insns):,} instructions"
        say(f"{name}: {count}, no violation of {len(RULES)} rules")
        return
    for violation in violations[:SHOWN]:
        say(str(violation))
    rest = len(violations) - SHOWN
    more = f"; {rest} more not shown, --json has them" if rest > 0 else ""
    say(f"{name}: {len(violations)} violations{more}")
