"""`vta-byoc eval`: accuracy of the quantized model on a labelled dataset, beside the float one."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say
from vta_byoc.cli.jobs import job_options
from vta_byoc.cli.names import DeviceName
from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    from vta_byoc.validation.accuracy import Evaluation

FLOAT, ONNXRUNTIME = "float", "onnxruntime"
MOST_DEVICES = 256


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
    type=DeviceName("reference", pools=True),
    default="sim",
    show_default=True,
    help="As of vta-byoc run; reference: the integer dialect on the host, the same bits without a "
    "machine; pool:ADDRESS,ADDRESS: servers that share the samples, as all of a tracker's do.",
)
@click.option(
    "--devices",
    type=click.IntRange(1, MOST_DEVICES),
    metavar="N",
    help="Share the samples between N servers of --device, started here; or N of a pool's.",
)
@job_options("this one alone")
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
    devices: int | None,
    scheduler: str | None,
    workers: int | None,
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
      vta-byoc eval resnet8.onnx --data held-out.npz --devices 4
      vta-byoc eval resnet8.onnx --data held-out.npz --scheduler tcp://10.0.0.1:8786
      vta-byoc eval resnet8.onnx --data held-out.npz --device tracker://127.0.0.1:9190/pynq
    """
    from vta_byoc.cli.inputs import parse_shapes
    from vta_byoc.cli.machines import read_config
    from vta_byoc.cli.progress import Steps

    machine, wanted, steps = read_config(config), parse_shapes(shapes), Steps()
    mod = commands.import_model(model, wanted, steps)
    from vta_byoc.importers.fixed_inputs import fixed_inputs
    from vta_byoc.validation import accuracy
    from vta_byoc.validation.labelled_dataset import LabelledData
    from vta_byoc.validation.sharded_accuracy import in_workers

    in_parts = _in_parts(devices, scheduler, workers)
    accuracy.check_device(device, pooled=devices is not None)
    samples = LabelledData(data, accuracy.signature(mod), limit)
    beside = Path(model) if against == ONNXRUNTIME else mod
    other = None if beside is mod else accuracy.onnxruntime_runner(model, fixed_inputs(mod))
    qmod = commands.quantize(mod, calibration, steps, machine)
    with steps.step("compile", f"compiling for device {device}"):
        if in_parts:
            run = in_workers(qmod, beside, machine, device, scheduler, workers)
        else:
            other = other or accuracy.host_runner(mod)
            run = functools.partial(accuracy.prepared(qmod, machine, device, devices), other)
    where = device if devices is None else f"{device}, {devices} of it,"
    text = f"running {len(samples)} samples on device {where} and in {against}"
    with steps.counted("evaluate", text, len(samples)) as show:
        result = run(samples, lambda done, _total: show(done))
    about = {"model": model, "config": config, "device": device, "data": data}
    if as_json:
        compared = {"compared_with": against, "calibration": calibration}
        report = {**about, **compared, **result.to_json(), "seconds": steps.seconds}
        say(json.dumps(report, indent=2))
    else:
        print_evaluation(result, about, against)


def _in_parts(devices: int | None, scheduler: str | None, workers: int | None) -> bool:
    """Whether workers share the samples.

    Raises:
        VTAError: devices are to share them too.
    """
    in_parts = scheduler is not None or workers is not None
    if in_parts and devices is not None:
        raise VTAError(
            f"--devices {devices} with --scheduler or --workers; devices share the samples of this "
            "process, and workers have a device each; leave one of the options out"
        )
    return in_parts


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
