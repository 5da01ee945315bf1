"""`vta-byoc eval`: accuracy of the quantized model on a labelled dataset, beside the float one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say

if TYPE_CHECKING:
    from vta_byoc.validation.accuracy import Evaluation

FLOAT, ONNXRUNTIME = "float", "onnxruntime"


@click.command("eval", short_help="Accuracy on a labelled dataset, beside the float model's.")
@click.argument("model")
@click.option(
    "--data",
    required=True,
    metavar="FILE.npz",
    help="Samples: one array (n, ...) per input, under its name, and n class numbers, `labels`.",
)
@click.option(
    "--against",
    type=click.Choice([FLOAT, ONNXRUNTIME]),
    default=FLOAT,
    show_default=True,
    help="What the quantized model is compared with: the float model on the host, or the file in "
    "ONNX Runtime.",
)
@commands.config_option
@commands.shape_option
@commands.calibration_option
@click.option(
    "--device",
    type=click.Choice(["sim", "reference"]),
    default="sim",
    show_default=True,
    help="sim: compile for VTA and simulate; reference: the integer dialect on the host, the same "
    "bits without a machine.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N samples.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
def evaluate(
    model: str,
    data: str,
    against: str,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    device: str,
    limit: int | None,
    as_json: bool,
) -> None:
    """Quantize MODEL (.onnx, a classifier), run it on a labelled dataset, and count what is right.

    The same is counted of the model in float. One batch of samples is in memory at a time.

    \b
    Examples:
      vta-byoc eval resnet8.onnx --data held-out.npz --calibration samples.npz
      vta-byoc eval resnet8.onnx --data held-out.npz --against onnxruntime --limit 100
      vta-byoc eval resnet8.onnx --data held-out.npz --device reference --json
    """
    from vta_byoc.cli.inputs import parse_shapes
    from vta_byoc.cli.machines import read_config
    from vta_byoc.cli.progress import Steps

    machine, wanted, steps = read_config(config), parse_shapes(shapes), Steps()
    mod = commands.import_model(model, wanted, steps)
    from vta_byoc.validation import accuracy
    from vta_byoc.validation.labelled_dataset import LabelledData

    samples = LabelledData(data, accuracy.signature(mod), limit)
    other = accuracy.onnxruntime_runner(model) if against == ONNXRUNTIME else None
    qmod = commands.quantize(mod, calibration, steps, machine)
    with steps.step("compile", f"compiling for device {device}"):
        quantized = accuracy.runner(qmod, machine, device)
        other = other or accuracy.host_runner(mod)
    text = f"running {len(samples)} samples on device {device} and in {against}"
    with steps.counted("evaluate", text, len(samples)) as show:
        result = accuracy.measure(quantized, other, samples, lambda done, _total: show(done))
    about = {"model": model, "config": config, "device": device, "data": data}
    if as_json:
        compared = {"compared_with": against, "calibration": calibration}
        report = {**about, **compared, **result.to_json(), "seconds": steps.seconds}
        say(json.dumps(report, indent=2))
    else:
        print_evaluation(result, about, against)


def print_evaluation(result: Evaluation, about: Mapping[str, str], against: str) -> None:
    """Print the result as a table and a few lines."""
    from vta_byoc.cli.progress import stdout_console
    from vta_byoc.reports.tables import plain_table, print_lines

    console = stdout_console()
    table = plain_table()
    for title in ("", "right", "accuracy", "samples/s"):
        table.add_column(title, justify="right" if title else "left")
    rows = (
        (f"quantized, {about['device']}", result.correct, result.seconds),
        (against, result.against_correct, result.against_seconds),
    )
    for name, correct, seconds in rows:
        rate = f"{result.samples / seconds:,.0f}"
        table.add_row(name, f"{correct:,}", f"{result.share(correct):.2f} %", rate)
    console.print(table)
    console.print()
    print_lines(
        [
            ("samples", f"{result.samples:,} of {about['data']}"),
            ("agreement", f"{result.agreeing:,} predictions equal, {_share(result)}"),
            ("right to wrong", f"{result.lost:,}{_listed(result, lost=True)}"),
            ("wrong to right", f"{result.gained:,}{_listed(result, lost=False)}"),
            ("net loss", f"{result.net_loss:,} samples, {result.drop_points:.2f} points"),
        ],
        console,
    )


def _share(result: Evaluation) -> str:
    return f"{result.share(result.agreeing):.2f} %"


def _listed(result: Evaluation, *, lost: bool) -> str:
    """The first samples that changed this way, with label and predictions."""
    found = [c for c in result.changes if (c.against == c.label) == lost]
    texts = [f"sample {c.sample} (a {c.label}: {c.against} became {c.quantized})" for c in found]
    return f": {', '.join(texts)}" if texts else ""
