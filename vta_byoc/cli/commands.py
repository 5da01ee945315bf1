"""The commands of `vta-byoc`.  TVM is imported by the commands that need it, not by `--help`."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from vta_byoc.base import limits
from vta_byoc.base.printable import printable
from vta_byoc.cli import quantization, relay_options, stages
from vta_byoc.cli.consoles import say
from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    import numpy as np
    import tvm

    from vta_byoc.cli.progress import Steps
    from vta_byoc.hw.config import VTAConfig
    from vta_byoc.hw.program.program import Program
    from vta_byoc.pipeline import Compiled
    from vta_byoc.runtime.execute import Profile
    from vta_byoc.validation.bit_exact import TensorCheck

DEBUG = "vta_byoc.debug"
"""Key of the click context's `meta`: show tracebacks."""
DEFAULT_CONFIG = "sim"
CHECK_FAILED = 1
X86 = platform.machine().lower() in ("x86_64", "amd64")
Command = TypeVar("Command", bound=Callable[..., object])
TARGETS = ("x86-64-v3", "native") if X86 else ("generic", "native")


def _set_debug(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    ctx.meta[DEBUG] = wanted or ctx.meta.get(DEBUG, False)


def _set_memory_limit(ctx: click.Context, _param: click.Parameter, gib: float | None) -> None:
    if gib is not None:
        ctx.with_resource(limits.memory_limit(int(gib * limits.GIB)))


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_set_debug,
    help="Show the traceback of an error.",
)
config_option = click.option(
    "--config",
    default=DEFAULT_CONFIG,
    metavar="PRESET|FILE",
    help=f"The machine: a preset (see `vta-byoc configs`) or a JSON file. Default: "
    f"{DEFAULT_CONFIG}.",
)
build_option = stages.build_option
partition_option = stages.partition_option
calibration_option = quantization.quantization_options
_memory_option = click.option(
    "--memory-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="GIB",
    expose_value=False,
    callback=_set_memory_limit,
    help="What the tensors of a model, or the arrays of a file, may take together. Default: "
    f"{limits.MEMORY_LIMIT // limits.GIB}.",
)
_shapes = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1,3,224,224",
    help="Shape of an input whose dimensions the model leaves open; repeat for more inputs.",
)


def shape_option(command: Command) -> Command:
    """Options of every command that loads a model: --shape, those of Relay models, and
    --memory-limit, which holds while the command runs."""
    return _shapes(relay_options.options(_memory_option(command)))


def _import_model(model: str, shapes: Mapping[str, tuple[int, ...]], steps: Steps) -> tvm.IRModule:
    stages.check_files()
    with steps.step("import", f"importing {model}"):
        from vta_byoc.importers.load import load_model

        return load_model(model, shapes=shapes, **relay_options.chosen())


def _quantize(
    mod: tvm.IRModule, calibration: str | None, steps: Steps, machine: VTAConfig | None = None
) -> tvm.IRModule:
    return quantization.quantize_model(mod, calibration, steps, machine)


def _compile(
    qmod: tvm.IRModule,
    config: VTAConfig,
    device: str,
    steps: Steps,
    target: tvm.target.Target | None = None,
) -> Compiled:
    with steps.step("compile", f"compiling for VTA {config.name}"):
        from vta_byoc.pipeline import compile_module

        return compile_module(qmod, options=stages.chosen(config, device, target))


# ---------------------------------------------------------------- run
@click.command(short_help="Quantize, compile and run a model; report what ran where.")
@click.argument("model")
@config_option
@build_option
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE.npy",
    help="Array for an input, in the model's order unless named; repeat for more inputs. "
    "Default: standard normal noise; of integers, random rows of the tables that they pick from, "
    "and ones.",
)
@shape_option
@calibration_option
@click.option(
    "--device",
    type=click.Choice(["sim", "tsim", "null"]),
    default="sim",
    show_default=True,
    help="sim: the functional simulator; tsim: the same with cycles from the timing model; "
    "null: a dry run that computes nothing.",
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
@debug_option
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
    """Import, quantize, compile and run MODEL (.onnx, float32), and report what ran where, why,
    and what it cost.

    \b
    Examples:
      vta-byoc run resnet18.onnx --check
      vta-byoc run resnet18.onnx --config pynq --input image.npy --output logits.npz
      vta-byoc run two_inputs.onnx --input a=a.npy --input b=b.npy --json > report.json
    """
    from vta_byoc.cli import files
    from vta_byoc.cli.inputs import bind_inputs, parse_shapes, read_arrays, read_config
    from vta_byoc.cli.progress import Steps, stdout_console
    from vta_byoc.reports.run.run import RunReport, check_text, print_run

    if check and device == "null":
        raise VTAError('--check with --device null; it computes nothing; use "--device sim"')
    machine, steps = read_config(config), Steps()
    given, wanted = read_arrays(inputs), parse_shapes(shapes)
    if output is not None:
        files.check_writable(Path(output), ".npz")
    mod = _import_model(model, wanted, steps)
    bound = bind_inputs(_input_shapes(mod), given, seed, _input_dtypes(mod), _table_rows(mod))
    qmod = _quantize(mod, calibration, steps, machine)
    compiled = _compile(qmod, machine, device, steps)
    arrays = {name: value.array for name, value in bound.items()}
    profile = _execute(compiled, arrays, check, steps)
    outputs = dict(zip(_output_names(mod), profile.outputs, strict=True))
    checks = _check(qmod, compiled, arrays, outputs, profile, steps) if check else None
    if output is not None:
        _save(Path(output), outputs)
    report = RunReport(model, config, compiled, bound, outputs, profile, steps.seconds, checks)
    if as_json:
        say(json.dumps(report.to_json(), indent=2))
        if report.bit_exact is False:
            say(check_text(report.checks or ()), err=True)
    else:
        print_run(report, stdout_console())
    if report.bit_exact is False:
        ctx.exit(CHECK_FAILED)


def _input_shapes(mod: tvm.IRModule) -> dict[str, tuple[int, ...]]:
    from vta_byoc.ir.bindings import static_shape

    return {str(param.name): static_shape(param) for param in mod["main"].params}


def _input_dtypes(mod: tvm.IRModule) -> dict[str, str]:
    from vta_byoc.quantization.calibration.model_samples import input_dtypes

    return input_dtypes(mod)


def _table_rows(mod: tvm.IRModule) -> dict[str, int]:
    from vta_byoc.quantization.calibration.random_inputs import table_rows

    return table_rows(mod)


def _output_names(mod: tvm.IRModule) -> list[str]:
    from vta_byoc.importers.load import output_names

    return output_names(mod)


def _execute(
    compiled: Compiled, arrays: Mapping[str, np.ndarray], arenas: bool, steps: Steps
) -> Profile:
    with steps.step("run", f"running on device {compiled.device}"):
        from vta_byoc.runtime.execute import profile

        return profile(compiled.exe, arrays, arenas=arenas)


def _check(
    qmod: tvm.IRModule,
    compiled: Compiled,
    arrays: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    profile: Profile,
    steps: Steps,
) -> list[TensorCheck]:
    with steps.step("reference", "running the integer reference"):
        from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

        reference = reference_runner(qmod, compiled.programs)(arrays)
    stored = compare_stored(profile, compiled.programs, reference)
    return stored + compare_outputs(list(outputs), list(outputs.values()), reference)


def _save(path: Path, outputs: Mapping[str, np.ndarray]) -> None:
    from vta_byoc.base.arrays import save_named
    from vta_byoc.cli import files

    with files.replacing(path) as temporary:
        save_named(temporary, outputs)


# ---------------------------------------------------------------- compile
@click.command("compile", short_help="Export a model as a library that TVM's runtime loads.")
@click.argument("model")
@click.option("-o", "--output", required=True, metavar="FILE.so", help="The library to write.")
@config_option
@build_option
@shape_option
@calibration_option
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    default=TARGETS[0],
    show_default=True,
    help="Processor of the library: x86-64-v3 is every x86-64 since 2015, native this one.",
)
@debug_option
def compile_library(
    model: str,
    output: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    target: str,
) -> None:
    """Quantize and compile MODEL (.onnx, float32) to a shared library with the simulator in it.

    It runs where TVM's runtime is: tvm.runtime.load_module, relax.VirtualMachine.

    \b
    Examples:
      vta-byoc compile resnet18.onnx -o resnet18.so
      vta-byoc compile resnet18.onnx -o resnet18.so --config pynq --calibration images.npz
    """
    from vta_byoc.cli import files
    from vta_byoc.cli.inputs import parse_shapes, read_config
    from vta_byoc.cli.progress import Steps, stdout_console
    from vta_byoc.reports.run.run import print_compiled

    path = Path(output)
    machine, wanted, steps = read_config(config), parse_shapes(shapes), Steps()
    files.check_writable(path, ".so")
    compiler = files.find_compiler()
    mod = _import_model(model, wanted, steps)
    qmod = _quantize(mod, calibration, steps, machine)
    compiled = _compile(qmod, machine, "sim", steps, _host_target(target))
    with steps.step("export", f"linking {path}"), files.replacing(path) as temporary:
        _export(compiled, temporary, compiler)
    console = stdout_console()
    print_compiled(compiled, steps.seconds, console)
    console.print(f"{path} written: {path.stat().st_size / 1e6:,.1f} MB", markup=False)


def _host_target(name: str) -> tvm.target.Target:
    from vta_byoc.hw.sim.target import export_target, native_target

    return native_target() if name == "native" else export_target()


def _export(compiled: Compiled, path: Path, compiler: str) -> None:
    from vta_byoc.cli import files

    try:
        with files.workspace() as folder:
            compiled.exe.export_library(str(path), workspace_dir=folder, cc=compiler)
    except RuntimeError as error:
        lines = str(error).strip().splitlines() or ["no message"]
        raise VTAError(
            f'linking with "{compiler}" failed: {" ".join(lines[:4])}; a C compiler that links '
            "shared libraries is needed; set CC to one"
        ) from error


# ---------------------------------------------------------------- disasm
@click.command(short_help="Print the instructions that a model becomes.")
@click.argument("model")
@config_option
@build_option
@shape_option
@calibration_option
@click.option("--layer", metavar="NAME", help="Only the instructions of one operator.")
@click.option("-o", "--output", metavar="FILE", help="Write to a file instead of stdout.")
@debug_option
def disasm(
    model: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    layer: str | None,
    output: str | None,
) -> None:
    """Print the disassembly of every region of MODEL: symbols, then instructions by layer.

    \b
    Examples:
      vta-byoc disasm resnet18.onnx -o resnet18.txt
      vta-byoc disasm resnet18.onnx --layer layer1_0_conv1 | less
    """
    from vta_byoc.cli import files

    path = None if output is None else Path(output)
    compiled, _ = compile_dry(model, config, shapes, calibration, path)
    text = printable(_listing(compiled.programs, layer))
    if output is None:
        say(text, nl=False)
        return
    with files.replacing(Path(output)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def quantize_dry(
    model: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    output: Path | None = None,
    suffix: str = "",
) -> tuple[tvm.IRModule, VTAConfig, Steps]:
    """The quantized model and the machine; what is wrong with the options is found out before the
    long work."""
    from vta_byoc.cli import files
    from vta_byoc.cli.inputs import parse_shapes, read_config
    from vta_byoc.cli.progress import Steps

    machine, wanted, steps = read_config(config), parse_shapes(shapes), Steps()
    if output is not None:
        files.check_writable(output, suffix)
    mod = _import_model(model, wanted, steps)
    return _quantize(mod, calibration, steps, machine), machine, steps


def compile_dry(
    model: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    output: Path | None = None,
    suffix: str = "",
) -> tuple[Compiled, Steps]:
    """The compiled model; what is wrong with the options is found out before the long work."""
    qmod, machine, steps = quantize_dry(model, config, shapes, calibration, output, suffix)
    return _compile(qmod, machine, "null", steps), steps


def _listing(programs: Mapping[str, Program], layer: str | None) -> str:
    from vta_byoc.reports.run.listing import layer_listing, listing

    return listing(programs) if layer is None else layer_listing(programs, layer)


# ---------------------------------------------------------------- configs
@click.command(short_help="List the machines that have a name.")
@debug_option
def configs() -> None:
    """List the presets that --config takes: geometry, buffers, clock, memory port."""
    from vta_byoc.cli.progress import stdout_console
    from vta_byoc.hw.config import VTAConfig
    from vta_byoc.reports.run.run import print_configs

    presets = {name: VTAConfig.preset(name) for name in VTAConfig.presets()}
    print_configs(presets, stdout_console())
