"""`vta-byoc compile`: a model as a shared library that TVM's runtime loads."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands
from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    import tvm

    from vta_byoc.pipeline import Compiled

X86 = platform.machine().lower() in ("x86_64", "amd64")
TARGETS = ("x86-64-v3", "native") if X86 else ("generic", "native")


@click.command("compile", short_help="Export a model as a library that TVM's runtime loads.")
@click.argument("model")
@click.option("-o", "--output", required=True, metavar="FILE.so", help="The library to write.")
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
