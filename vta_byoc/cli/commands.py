"""What the commands of `vta-byoc` share: options, and the stages from a file to programs.

TVM is imported by the commands that need it, not by `--help`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from vta_byoc.base import limits
from vta_byoc.cli import fix_option, machines, quantization, relay_options, stages, verbosity

if TYPE_CHECKING:
    import numpy as np
    import tvm

    from vta_byoc.cli.progress import Steps
    from vta_byoc.hw.config import VTAConfig
    from vta_byoc.pipeline import Compiled
    from vta_byoc.reports.run.inputs import Input

DEBUG = "vta_byoc.debug"
"""Key of the click context's `meta`: show tracebacks."""
CHECK_FAILED = 1
Command = TypeVar("Command", bound=Callable[..., object])


def _set_debug(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    ctx.meta[DEBUG] = wanted or ctx.meta.get(DEBUG, False)


def _set_memory_limit(ctx: click.Context, _param: click.Parameter, gib: float | None) -> None:
    if gib is not None:
        ctx.with_resource(limits.memory_limit(int(gib * limits.GIB)))


_debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_set_debug,
    help="Show the traceback of an error.",
)


def debug_option(command: Command) -> Command:
    """Add the options that look into a command: -v and --debug."""
    return verbosity.verbose_option(_debug(command))


config_option = machines.config_option
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
    """Add the options of every command that loads a model.

    They are --shape, --fix, those of Relay models, and --memory-limit, which holds while the
    command runs.
    """
    return _shapes(fix_option.fix_option(relay_options.options(_memory_option(command))))


def import_model(model: str, shapes: Mapping[str, tuple[int, ...]], steps: Steps) -> tvm.IRModule:
    """The module of a model file, with ``shapes`` for what it leaves open and values of --fix."""
    stages.check_files()
    with steps.step("import", f"importing {model}"):
        from vta_byoc.importers.load import load_model

        fixed = fix_option.chosen()
        return load_model(model, shapes=shapes, fixed=fixed, **relay_options.chosen())


def quantize(
    mod: tvm.IRModule,
    calibration: str | None,
    steps: Steps,
    machine: VTAConfig | None = None,
    kept: Sequence[np.ndarray] | None = None,
) -> tvm.IRModule:
    """``mod`` in the integer dialect, with the options of quantization of this command.

    Without --calibration samples that the model's file keeps are taken, and noise where it keeps
    none.
    """
    return quantization.quantize_model(mod, calibration, steps, machine, kept)


def compile_for(
    qmod: tvm.IRModule,
    config: VTAConfig,
    device: str,
    steps: Steps,
    target: tvm.target.Target | None = None,
) -> Compiled:
    """``qmod`` compiled for ``device``, with the options of compilation of this command."""
    with steps.step("compile", f"compiling for VTA {config.name}"):
        from vta_byoc.pipeline import compile_module

        return compile_module(qmod, options=stages.chosen(config, device, target))


def bound_inputs(
    mod: tvm.IRModule, given: Sequence[tuple[str, str, np.ndarray]], seed: int
) -> dict[str, Input]:
    """An array for every input of ``mod``: those that are given, noise of ``seed`` for others."""
    from vta_byoc.cli.inputs import bind_inputs
    from vta_byoc.importers.load import initial_states
    from vta_byoc.ir.bindings import static_shape
    from vta_byoc.quantization.calibration.random_inputs import table_rows
    from vta_byoc.quantization.calibration.samples import input_dtypes

    shapes = {str(param.name): static_shape(param) for param in mod["main"].params}
    states = initial_states(mod)
    return bind_inputs(shapes, given, seed, input_dtypes(mod), table_rows(mod), states)


def quantize_dry(
    model: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    output: Path | None = None,
    suffix: str = "",
) -> tuple[tvm.IRModule, VTAConfig, Steps]:
    """The quantized model and the machine.

    What is wrong with the options is found out before the long work.
    """
    from vta_byoc.cli import files
    from vta_byoc.cli.inputs import parse_shapes
    from vta_byoc.cli.machines import read_config
    from vta_byoc.cli.progress import Steps

    machine, wanted, steps = read_config(config), parse_shapes(shapes), Steps()
    if output is not None:
        files.check_writable(output, suffix)
    mod = import_model(model, wanted, steps)
    return quantize(mod, calibration, steps, machine), machine, steps


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
    return compile_for(qmod, machine, "null", steps), steps
