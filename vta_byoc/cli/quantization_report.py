"""`vta-byoc quantize-report`: what int8 costs, operator by operator, and what to try."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands, quantization
from vta_byoc.cli.consoles import say

if TYPE_CHECKING:
    import tvm

    from vta_byoc.cli.progress import Steps
    from vta_byoc.quantization.calibration.samples import Sample
    from vta_byoc.reports.quantization.report import QuantizationReport

DATA_SEED = 2
DATA_COUNT = 4

data_option = click.option(
    "--data",
    metavar="FILE.npz|FOLDER",
    help="Samples to compare on, as --calibration takes them. Default: those of --calibration, or "
    f"{DATA_COUNT} samples of noise.",
)


@click.command("quantize-report", short_help="What int8 costs, layer by layer; what to try.")
@click.argument("model")
@commands.shape_option
@commands.calibration_option
@data_option
@click.option("-o", "--output", metavar="FILE.html", help="Write a page with histograms.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
def quantize_report(
    model: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    data: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Quantize MODEL, run it beside what was quantized, and rank its operators by their noise.

    With each comes what to try against the measured cause. A float model is compared with itself in
    float; a model that came quantized with its own float operators between quantize and dequantize.
    No machine is involved.

    \b
    Examples:
      vta-byoc quantize-report resnet8.onnx --calibration samples.npz
      vta-byoc quantize-report resnet8.onnx --calibration samples.npz --scales mul -o report.html
      vta-byoc quantize-report resnet8_qdq.onnx --data samples.npz --json
    """
    from vta_byoc.cli import files
    from vta_byoc.cli.inputs import parse_shapes
    from vta_byoc.cli.progress import Steps

    wanted, steps = parse_shapes(shapes), Steps()
    options = quantization.chosen()
    options.arguments()
    path = None if output is None else Path(output)
    if path is not None:
        files.check_writable(path, ".html")
    mod, qmod, samples = quantized_beside(model, wanted, calibration, data, steps)
    report = _compared(mod, qmod, samples, steps)
    if path is not None:
        with steps.step("draw", f"drawing {path}"), files.replacing(path) as temporary:
            from vta_byoc.reports.quantization.html import quantization_html

            page = quantization_html(report, model, options.text())
            temporary.write_text(page, encoding="utf-8")
    if as_json:
        about = {"model": model, "quantization": options.arguments(), "calibration": calibration}
        say(json.dumps({**about, "data": data, **report.to_json()}, indent=2))
    else:
        _print(report, path)


def _compared(
    mod: tvm.IRModule, qmod: tvm.IRModule, samples: Iterable[Sample], steps: Steps
) -> QuantizationReport:
    with steps.step("compare", "comparing tensor by tensor"):
        from vta_byoc.reports.quantization.report import quantization_report

        def progress(done: int, total: int | None) -> None:
            steps.detail(f"comparing tensor by tensor: sample {done} of {total or 'many'}")

        return quantization_report(mod, qmod, samples, progress)


def _print(report: QuantizationReport, path: Path | None) -> None:
    """Print ``report``, and where the page of it is."""
    from vta_byoc.cli.progress import stdout_console
    from vta_byoc.reports.quantization.text import print_report

    print_report(report, stdout_console())
    if path is not None:
        say(f"{path} written: {path.stat().st_size / 1e6:,.1f} MB")


def quantized_beside(
    model: str,
    shapes: dict[str, tuple[int, ...]],
    calibration: str | None,
    data: str | None,
    steps: Steps,
) -> tuple[tvm.IRModule, tvm.IRModule, Iterable[Sample]]:
    """The source module, the quantized one, and the samples to compare them on.

    With --equalize the source is the equalized float module, whose tensors are those that are
    quantized.
    """
    mod = commands.import_model(model, shapes, steps)
    samples = _samples(mod, calibration, data)
    qmod = commands.quantize(mod, calibration, steps)
    if quantization.chosen().equalize:
        with steps.step("equalize", "equalizing the float model"):
            from vta_byoc.quantization.equalize import equalize

            mod = equalize(mod, _calibration(mod, calibration))
    return mod, qmod, samples


def _calibration(mod: tvm.IRModule, calibration: str | None) -> Iterable[Sample]:
    found = quantization.calibration_samples(mod, calibration)
    assert found is not None
    return found


def _samples(mod: tvm.IRModule, calibration: str | None, data: str | None) -> Iterable[Sample]:
    from vta_byoc.cli.calibration import read_calibration
    from vta_byoc.quantization.calibration.samples import default_calibration

    source = data or calibration
    if source is None:
        return default_calibration(mod, DATA_COUNT, DATA_SEED)
    return read_calibration(source, mod)
