"""`vta-byoc compare`: the first layer where the integer model and another runtime part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands, quantization
from vta_byoc.cli.consoles import say
from vta_byoc.cli.quantization_report import data_option, quantized_beside
from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    from rich.console import Console

    from vta_byoc.validation.against_runtime import Compared, Comparison

RUNTIMES = ("float", "onnxruntime", "tflite")


@click.command(short_help="The first layer where int8 and another runtime differ by too much.")
@click.argument("model")
@click.option(
    "--against",
    type=click.Choice(RUNTIMES),
    default=RUNTIMES[0],
    show_default=True,
    help="float: the model itself on the host; onnxruntime, tflite: the file in that runtime.",
)
@click.option(
    "--bound",
    type=float,
    metavar="DB",
    help="A tensor diverges below this SQNR. Default: 10, and 30 for a model that came quantized.",
)
@click.option(
    "--lsb",
    type=int,
    metavar="N",
    help="Instead: a tensor diverges when an int8 value is more than N steps away.",
)
@commands.shape_option
@commands.calibration_option
@data_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
@click.pass_context
def compare(
    ctx: click.Context,
    model: str,
    against: str,
    bound: float | None,
    lsb: int | None,
    shapes: tuple[str, ...],
    calibration: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Run the integer form of MODEL and another runtime on the same inputs.

    They are compared tensor by tensor; the first layer that diverges by more than a bound is named.
    Exit code 1 when one does.

    \b
    Examples:
      vta-byoc compare resnet8.onnx --calibration samples.npz
      vta-byoc compare resnet8_qdq.onnx --against onnxruntime --lsb 2
      vta-byoc compare net.tflite --against tflite --bound 40
    """
    from vta_byoc.cli.inputs import parse_shapes
    from vta_byoc.cli.progress import Steps, stdout_console

    wanted, steps = parse_shapes(shapes), Steps()
    options = quantization.chosen()
    options.arguments()
    if options.equalize and against != RUNTIMES[0]:
        raise VTAError(
            f"--equalize with --against {against}; equalization changes the tensors between "
            "layers, which that runtime does not; compare with float"
        )
    mod, qmod, samples = quantized_beside(model, wanted, calibration, data, steps)
    with steps.step("compare", f"comparing with {against} tensor by tensor"):
        from vta_byoc.quantization.tensor_pairs import tensor_pairs
        from vta_byoc.validation.against_runtime import bound_for
        from vta_byoc.validation.against_runtime import compare as compared
        from vta_byoc.validation.runtimes import runtime

        limit = bound_for(mod, bound, lsb)
        other = runtime(against, model, mod, tensor_pairs(mod, qmod))
        result = compared(mod, qmod, samples, other, limit)
    if as_json:
        about = {"model": model, "against": against}
        say(json.dumps({**about, **result.to_json()}, indent=2))
    else:
        print_comparison(result, against, stdout_console())
    if result.first is not None:
        ctx.exit(commands.CHECK_FAILED)


def print_comparison(result: Comparison, against: str, console: Console) -> None:
    """The first divergence with what is before and after it, or that there is none."""
    from vta_byoc.base.quantities import count
    from vta_byoc.reports.tables import plain_table, print_lines

    table = plain_table()
    for title in ("", "operator", "SQNR dB", "LSB", "equal %", "operators in it"):
        table.add_column(
            title, justify="right" if title in ("SQNR dB", "LSB", "equal %") else "left"
        )
    first, (before, after) = result.first, result.neighbours
    worst = min(result.tensors, key=lambda tensor: tensor.sqnr)
    shown = [("worst", worst)] if first is None else [("diverges", first)]
    for title, tensor in [
        *(("it reads", tensor) for tensor in before),
        *shown,
        *(("reads it", tensor) for tensor in after),
    ]:
        table.add_row(title, *_cells(tensor))
    if first is None:
        console.print(f"no tensor diverges from {against} by more than {result.bound}")
    else:
        console.print(
            f"{first.name} is the first operator that diverges from {against} by more than "
            f"{result.bound}",
            markup=False,
        )
    console.print()
    console.print(table)
    console.print()
    lines = [
        ("compared", f"{count(len(result.tensors), 'tensor')}, {count(result.samples, 'sample')}")
    ]
    lines += [("not compared", f"{name}: {why}") for name, why in result.skipped.items()]
    print_lines(lines, console)


def _cells(tensor: Compared) -> tuple[str, ...]:
    from vta_byoc.reports.quantization.text import NONE, decibel_text

    return (
        tensor.name,
        decibel_text(tensor.sqnr) if tensor.sqnr > -1e9 else "no signal",
        NONE if tensor.lsb is None else str(tensor.lsb),
        NONE if tensor.equal is None else f"{100 * tensor.equal:.2f}",
        ", ".join(tensor.operators),
    )
