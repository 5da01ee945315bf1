"""`vta-byoc run`: quantize, compile and run a model; what ran where, why, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say
from vta_byoc.cli.names import DeviceName
from vta_byoc.cli.run_library import is_compiled, run_library
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.devices import DRIVERS, driver

if TYPE_CHECKING:
    import numpy as np
    import tvm

    from vta_byoc.cli.progress import Steps
    from vta_byoc.pipeline import Compiled
    from vta_byoc.reports.run.inputs import Input
    from vta_byoc.reports.run.run import RunReport
    from vta_byoc.runtime.profile import Profile
    from vta_byoc.validation.bit_exact import TensorCheck


@click.command(short_help="Quantize, compile and run a model; report what ran where.")
@click.argument("model")
@commands.config_option
@commands.build_option
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE.npy",
    help="Array for an input, in the model's order unless named; repeat for more inputs. "
    "Default: standard normal noise; of integers, random rows of the tables that they pick from, "
    "and ones; of a model's own variables, what they begin with.",
)
@commands.shape_option
@commands.calibration_option
@click.option(
    "--device",
    type=DeviceName(),
    default="sim",
    show_default=True,
    help="; ".join(f"{name}: {device.about}" for name, device in DRIVERS.items())
    + "; board:FILE.json: a board; rpc://HOST:PORT[/KEY], tracker://HOST:PORT/KEY: a server.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Run the integer reference too and compare every output and every tensor that VTA "
    "stores, bit for bit; exit code 1 if one differs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.option("--output", metavar="FILE.npz", help="Save the outputs by name.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the noise that replaces missing inputs.",
)
@commands.debug_option
@click.pass_context
def run(
    ctx: click.Context,
    model: str,
    config: str,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    calibration: str | None,
    device: str,
    check: bool,
    as_json: bool,
    output: str | None,
    seed: int,
) -> None:
    """Import, quantize, compile and run MODEL (.onnx, .tflite, .pt2), or what is compiled.

    What is compiled is a program file (.vta) or a library of `vta-byoc compile` (.so).

    The report says what ran where, why, and what it cost.

    \b
    Examples:
      vta-byoc run resnet18.onnx --check
      vta-byoc run resnet18.onnx --config pynq --input image.npy --output logits.npz
      vta-byoc run two_inputs.onnx --input a=a.npy --input b=b.npy --json > report.json
      vta-byoc run region0.vta --check
      vta-byoc run resnet18.so --input image.npy
    """
    from vta_byoc.cli import files
    from vta_byoc.cli.inputs import parse_shapes, read_arrays
    from vta_byoc.cli.machines import read_config
    from vta_byoc.cli.program_files import holds_program, refuse_model_options
    from vta_byoc.cli.progress import Steps
    from vta_byoc.cli.run_program import run_program
    from vta_byoc.reports.run.run import RunReport

    if is_compiled(model):
        run_library(model, inputs, as_json, output, seed)
        return
    if check and not driver(device).computes:
        raise VTAError(f'--check with --device {device}; it computes nothing; use "--device sim"')
    if holds_program(model):
        refuse_model_options()
        if not run_program(model, inputs, device, check, as_json, output, seed):
            ctx.exit(commands.CHECK_FAILED)
        return
    machine, steps = read_config(config), Steps()
    given, wanted = read_arrays(inputs), parse_shapes(shapes)
    if output is not None:
        files.check_writable(Path(output), ".npz")
    mod = commands.import_model(model, wanted, steps)
    bound = commands.bound_inputs(mod, given, seed)
    qmod = commands.quantize(mod, calibration, steps, machine)
    compiled = commands.compile_for(qmod, machine, device, steps)
    arrays = {name: value.array for name, value in bound.items()}
    profile = _execute(compiled, arrays, check, steps)
    outputs = dict(zip(_output_names(mod), profile.outputs, strict=True))
    found = _checked(mod, qmod, compiled, arrays, outputs, profile, steps) if check else ()
    if output is not None:
        _save(Path(output), outputs)
    reached = _with_reach(bound, qmod)
    report = RunReport(model, config, compiled, reached, outputs, profile, steps.seconds, *found)
    _print(report, as_json)
    if report.bit_exact is False:
        ctx.exit(commands.CHECK_FAILED)


def _print(report: RunReport, as_json: bool) -> None:
    from vta_byoc.cli.progress import stdout_console
    from vta_byoc.reports.run.run import check_text, print_run

    if not as_json:
        print_run(report, stdout_console())
        return
    say(json.dumps(report.to_json(), indent=2))
    if report.bit_exact is False:
        say(check_text(report.checks or ()), err=True)


def _with_reach(inputs: Mapping[str, Input], qmod: tvm.IRModule) -> dict[str, Input]:
    from vta_byoc.reports.run.inputs import with_reach

    return with_reach(inputs, qmod)


def _output_names(mod: tvm.IRModule) -> list[str]:
    from vta_byoc.importers.load import output_names

    return output_names(mod)


def _execute(
    compiled: Compiled, arrays: Mapping[str, np.ndarray], arenas: bool, steps: Steps
) -> Profile:
    with steps.step("run", f"running on device {compiled.device}"):
        from vta_byoc.runtime.execute import profile

        return profile(compiled.exe, arrays, arenas=arenas)


def _checked(
    mod: tvm.IRModule,
    qmod: tvm.IRModule,
    compiled: Compiled,
    arrays: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    profile: Profile,
    steps: Steps,
) -> tuple[list[TensorCheck], dict[str, float] | None]:
    """What differs from the integer reference, and the SQNR against the float model."""
    with steps.step("reference", "running the integer reference"):
        from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

        reference = reference_runner(qmod, compiled.programs)(arrays)
    stored = compare_stored(profile, compiled.programs, reference)
    checks = stored + compare_outputs(list(outputs), list(outputs.values()), reference)
    return checks, _sqnr(mod, arrays, outputs, steps)


def _sqnr(
    mod: tvm.IRModule,
    arrays: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    steps: Steps,
) -> dict[str, float] | None:
    from vta_byoc.validation.against_float import is_float_model, output_sqnr

    if not is_float_model(mod):
        return None
    with steps.step("float", "running the float model"):
        return output_sqnr(mod, arrays, outputs)


def _save(path: Path, outputs: Mapping[str, np.ndarray]) -> None:
    from vta_byoc.base.arrays import save_named
    from vta_byoc.cli import files

    with files.replacing(path) as temporary:
        save_named(temporary, outputs)
