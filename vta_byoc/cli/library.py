"""`vta-byoc compile`: a model as a library for TVM's runtime, or as a bundle for the C runtime."""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from vta_byoc.cli import commands
from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    import tvm

    from vta_byoc.pipeline import Compiled

X86 = platform.machine().lower() in ("x86_64", "amd64")
LIBRARY, BUNDLE = FORMATS = ("library", "bundle")
TARGETS = ("x86-64-v3", "native") if X86 else ("generic", "native")


@click.command("compile", short_help="Export a model as a library or a bundle.")
@click.argument("model")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE.so|FOLDER",
    help="The library to write; the folder of a bundle.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default=LIBRARY,
    show_default=True,
    help="library: for TVM's runtime, with the simulator in it; bundle: a folder for the C "
    "runtime, without TVM.",
)
@commands.config_option
@commands.build_option
@commands.shape_option
@commands.calibration_option
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    default=TARGETS[0],
    show_default=True,
    help="Processor of the library: x86-64-v3 is every x86-64 since 2015, native this one.",
)
@commands.debug_option
def compile_library(
    model: str,
    output: str,
    kind: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    target: str,
) -> None:
    """Quantize and compile MODEL (.onnx, .tflite, .pt2) to a shared library with the simulator.

    It runs where TVM's runtime is: tvm.runtime.load_module, relax.VirtualMachine. With --format
    bundle the result is a folder that the runtime in C99 runs on a board or any PC, without TVM.

    \b
    Examples:
      vta-byoc compile resnet18.onnx -o resnet18.so
      vta-byoc compile resnet18.onnx -o resnet18.so --config pynq --calibration images.npz
      vta-byoc compile resnet18.onnx -o resnet18-bundle --format bundle --config pynq
    """
    if kind == BUNDLE:
        _write_bundle(model, Path(output), config, shapes, calibration)
        return
    from vta_byoc.cli import files
    from vta_byoc.cli.inputs import parse_shapes
    from vta_byoc.cli.machines import read_config
    from vta_byoc.cli.progress import Steps, stdout_console
    from vta_byoc.reports.run.run import print_compiled

    path = Path(output)
    machine, wanted, steps = read_config(config), parse_shapes(shapes), Steps()
    files.check_writable(path, ".so")
    compiler = files.find_compiler()
    mod = commands.import_model(model, wanted, steps)
    qmod = commands.quantize(mod, calibration, steps, machine)
    compiled = commands.compile_for(qmod, machine, "sim", steps, _host_target(target))
    with steps.step("export", f"linking {path}"), files.replacing(path) as temporary:
        _export(compiled, temporary, compiler)
    console = stdout_console()
    print_compiled(compiled, steps.seconds, console)
    console.print(f"{path} written: {path.stat().st_size / 1e6:,.1f} MB", markup=False)


def _write_bundle(
    model: str, folder: Path, config: str, shapes: tuple[str, ...], calibration: str | None
) -> None:
    from vta_byoc.bundle.write import check_folder, write_bundle
    from vta_byoc.cli import stages
    from vta_byoc.cli.progress import stdout_console

    if click.get_current_context().get_parameter_source("target") is ParameterSource.COMMANDLINE:
        raise VTAError(
            "--target with --format bundle; a bundle holds no code for a processor; leave --target "
            "out, or compile a library"
        )
    check_folder(folder)
    qmod, machine, steps = commands.quantize_dry(model, config, shapes, calibration)
    with steps.step("compile", f"compiling for VTA {machine.name}"):
        write_bundle(qmod, folder, options=stages.chosen(machine))
    files = sorted(folder.iterdir())
    size = sum(file.stat().st_size for file in files) / 1e6
    stdout_console().print(f"{folder} written: {len(files)} files, {size:,.1f} MB", markup=False)


def _host_target(name: str) -> tvm.target.Target:
    from vta_byoc.hw.sim.target import export_target, native_target

    return native_target() if name == "native" else export_target()


def _export(compiled: Compiled, path: Path, compiler: str) -> None:
    from vta_byoc.cli import files

    module = compiled.exe.mod
    objects = [f"lib{number}.o" for number in range(_modules(module))]
    try:
        # LLVM ends the process where a disk is full
        with files.workspace() as folder, files.in_memory(Path(folder), [*objects, "devc.o"]):
            compiled.exe.export_library(str(path), workspace_dir=folder, cc=compiler)
    except (OSError, RuntimeError) as error:
        full = next((text for text in map(os.strerror, files.NO_ROOM) if text in str(error)), None)
        if full is not None:
            raise VTAError(
                f'linking with "{compiler}" failed: {full}; nothing has been changed; make room in '
                f'"{path.parent}" and in "{tempfile.gettempdir()}", or write elsewhere and set '
                "TMPDIR"
            ) from error
        if isinstance(error, OSError):
            raise
        lines = str(error).strip().splitlines() or ["no message"]
        raise VTAError(
            f'linking with "{compiler}" failed: {" ".join(lines[:4])}; a C compiler that links '
            "shared libraries is needed; set CC to one"
        ) from error


def _modules(module: tvm.runtime.Module) -> int:
    """How many modules a module has, with those that it imports."""
    return 1 + sum(map(_modules, module.imports))
