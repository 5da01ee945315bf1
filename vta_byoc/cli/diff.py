"""`vta-byoc diff`: the first instruction and layer where two runs part."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from vta_byoc.cli import commands, files
from vta_byoc.cli.consoles import say
from vta_byoc.cli.program_files import is_program_file, refuse_model_options
from vta_byoc.cli.run_program import noise
from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    from vta_byoc.hw.program.program import Program
    from vta_byoc.hw.trace.implementations import Implementation
    from vta_byoc.validation.divergence import Divergence

REFERENCE = "reference"
CORE = "rtl"
"""The implementation that writes waveforms."""


@click.command(short_help="Find the first instruction and layer where two runs differ.")
@click.argument("model")
@click.argument("other", required=False)
@click.option(
    "--left", default="sim", show_default=True, metavar="NAME", help="The implementation to check."
)
@click.option(
    "--right",
    metavar="NAME",
    help="What it is held against: an implementation, or `reference`, the integer model. "
    "Default: reference; for program files, numpy, or for two of them the same as --left.",
)
@click.option(
    "--device",
    metavar="NAME",
    help="A device to hold against the functional simulator, instruction by instruction: `rtl`, "
    "the core. The same as --left NAME --right sim.",
)
@click.option(
    "--wave",
    metavar="LAYER[=FILE.vcd]",
    help="With `rtl`: write waveforms of the cycles of a layer. Default: LAYER.vcd.",
)
@click.option(
    "--program",
    "replaced",
    multiple=True,
    metavar="REGION=FILE",
    help="A program file that the left side runs instead of a region's program; repeat for more.",
)
@commands.config_option
@commands.build_option
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE.npy",
    help="Array for an input of the model. Default: noise.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of noise.")
@commands.shape_option
@commands.calibration_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
@click.pass_context
def diff(
    ctx: click.Context,
    model: str,
    other: str | None,
    left: str,
    right: str | None,
    device: str | None,
    wave: str | None,
    replaced: tuple[str, ...],
    config: str,
    inputs: tuple[str, ...],
    seed: int,
    shapes: tuple[str, ...],
    calibration: str | None,
    as_json: bool,
) -> None:
    """Run MODEL (.onnx, or a program file) on two implementations, and say where they part.

    The first instruction whose effect differs is named; against the reference, the first layer
    whose stored tensor differs, too. With OTHER, a second program file, the two programs are
    compared. Exit code 1 when something differs.

    \b
    Examples:
      vta-byoc diff resnet18.onnx                             the simulator, the integer reference
      vta-byoc diff resnet18.onnx --left sim --right numpy    two implementations
      vta-byoc diff resnet18.onnx --program region0=mine.vta  a program of yours, the reference
      vta-byoc diff one.vta two.vta                           two variants of a program
      vta-byoc diff one.vta --device rtl --wave conv1         the core in lockstep, and waveforms
    """
    left, right = _sides(ctx, left, right, device)
    if wave is not None and left != CORE:
        raise VTAError(f"--wave with --left {left}; waveforms are of the core; add --device rtl")
    if is_program_file(model):
        _only_for_models(replaced, inputs)
        refuse_model_options()
        found = _diff_files(model, other, left, right, seed, wave)
    elif other is not None:
        raise VTAError(
            f'"{model}" is no program file; only two program files can be compared with each '
            f"other; use --program REGION={other} to run it inside the model"
        )
    else:
        found = _diff_model(
            model,
            (left, right or REFERENCE, wave),
            replaced,
            config,
            inputs,
            seed,
            shapes,
            calibration,
        )
    _print(found, as_json)
    if found is not None:
        ctx.exit(commands.CHECK_FAILED)


def _sides(
    ctx: click.Context, left: str, right: str | None, device: str | None
) -> tuple[str, str | None]:
    """The implementations to compare.

    Raises:
        VTAError: one is unknown, or --device and --left or --right are given.
    """
    from vta_byoc.hw.trace.implementations import implementation

    if device is not None:
        for name in ("left", "right"):
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise VTAError(
                    f"--device {device} with --{name}; it names both sides; leave one of them out"
                )
        left, right = device, "sim"
    implementation(left)
    if right not in (None, REFERENCE):
        implementation(right)
    return left, right


def _chosen(left: str, wave: str | None, programs: Mapping[str, Program]) -> Implementation:
    """The left implementation, which writes waveforms of a layer where that is asked for.

    Raises:
        VTAError: no program has the layer, or the file cannot be written.
    """
    from vta_byoc.hw.trace.implementations import CoreLog, implementation

    if wave is None:
        return implementation(left)
    layer, _, file = wave.partition("=")
    known = [each.name for program in programs.values() for each in program.layers]
    if layer not in known:
        raise VTAError(
            f'--wave "{layer}" is no layer of the program; layers are '
            f"{', '.join(known) or 'none'}; choose one"
        )
    path = Path(file or f"{layer}.vcd")
    files.check_writable(path, ".vcd")
    return CoreLog((layer, str(path)))


def _print(found: Divergence | None, as_json: bool) -> None:
    if as_json:
        say(json.dumps({"difference": None if found is None else found.to_json()}, indent=2))
    else:
        say("no difference" if found is None else str(found))


# ---------------------------------------------------------------- program files
def _only_for_models(replaced: Sequence[str], inputs: Sequence[str]) -> None:
    for option, values in (("--program", replaced), ("--input", inputs)):
        if values:
            raise VTAError(
                f"{option} with a program file; it is for models; compare two program files with "
                "each other instead"
            )


def _diff_files(
    path: str, other: str | None, left: str, right: str | None, seed: int, wave: str | None
) -> Divergence | None:
    from vta_byoc.hw.program.file import load
    from vta_byoc.hw.trace.implementations import implementation
    from vta_byoc.validation.divergence import compare_runs

    if right == REFERENCE:
        raise VTAError(
            "--right reference with a program file; the reference is the integer model; give the "
            "model and --program REGION=FILE"
        )
    program = load(path)
    variant = None if other is None else load(other)
    second = right or (left if variant is not None else "numpy")
    return compare_runs(
        program,
        noise(program, seed),
        _chosen(left, wave, {path: program}),
        implementation(second),
        variant=variant,
    )


# ---------------------------------------------------------------- models
def _diff_model(
    model: str,
    sides: tuple[str, str, str | None],
    replaced: Sequence[str],
    config: str,
    inputs: tuple[str, ...],
    seed: int,
    shapes: tuple[str, ...],
    calibration: str | None,
) -> Divergence | None:
    from vta_byoc.cli.inputs import parse_shapes, read_arrays
    from vta_byoc.cli.machines import read_config
    from vta_byoc.cli.progress import Steps

    left, right, wave = sides
    machine, steps = read_config(config), Steps()
    given, wanted, programs = read_arrays(inputs), parse_shapes(shapes), _programs(replaced)
    mod = commands.import_model(model, wanted, steps)
    bound = commands.bound_inputs(mod, given, seed)
    arrays = {name: value.array for name, value in bound.items()}
    qmod = commands.quantize(mod, calibration, steps, machine)
    compiled = commands.compile_for(qmod, machine, "sim", steps)
    with steps.step("diff", f"comparing {left} with {right}"):
        from vta_byoc.hw.trace.implementations import implementation
        from vta_byoc.validation.divergence import compare_models, compare_with_reference

        one = _chosen(left, wave, compiled.programs)
        if right == REFERENCE:
            return compare_with_reference(qmod, compiled, arrays, one, programs)
        return compare_models(compiled, arrays, one, implementation(right), programs)


def _programs(values: Sequence[str]) -> Mapping[str, Program]:
    from vta_byoc.hw.program.file import load

    programs: dict[str, Program] = {}
    for value in values:
        name, _, path = value.partition("=")
        if not name or not path:
            raise VTAError(
                f'--program "{value}" is not REGION=FILE; the left side runs FILE instead of that '
                "region's program; write for example --program region0=mine.vta"
            )
        if name in programs:
            raise VTAError(f'--program names "{name}" twice; give one file for each region')
        programs[name] = load(Path(path))
    return programs
