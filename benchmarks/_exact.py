"""Networks that came quantized, with `exact_rescale`: every stored integer against its runtime's.

The runtime is the TFLite interpreter with its reference kernels, or ONNX Runtime with its integer
kernels (int8 allowed on x86 too, where tensors of int8 are else computed as floats wherever two
operators read them).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from benchmarks._curves import curve
from benchmarks._figures import Figure
from models.quantized_networks import NETWORKS, quantized_onnx
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.timing import engine as timing
from vta_byoc.importers.load import load_model
from vta_byoc.ir.quantization_record import exact_reasons
from vta_byoc.pipeline import compile_module
from vta_byoc.quantize import quantize
from vta_byoc.reports.placement.summary import macs_share
from vta_byoc.runtime.execute import profile

TFLITE, QDQ_INT8, QDQ_UINT8 = "TFLite int8", "QDQ int8 per tensor", "QDQ uint8 per channel"
ASKED = (TFLITE, QDQ_INT8)
"""The formats whose networks are asked to be equal in every integer."""
PRESET, IMAGES = "sim", 8
Feeds = Sequence[Sequence[np.ndarray]]


def exact_rows(fixtures: Path, formats: dict[str, dict[str, Any]], wanted: str) -> list[Any]:
    """A row for each network and format; `formats` are options of ONNX Runtime's quantizer."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            _row(form, name, path, feeds)
            for form, name, path, feeds in _cases(fixtures, Path(folder), formats)
            if wanted in name
        ]


def _cases(
    fixtures: Path, folder: Path, formats: dict[str, dict[str, Any]]
) -> Iterator[tuple[str, str, Path, Feeds]]:
    for network in NETWORKS.values():
        path = fixtures / f"network_{network.name}.tflite"
        with np.load(path.with_suffix(".npz")) as arrays:
            yield TFLITE, network.name, path, [[image[None]] for image in arrays["x0"]]
        feeds = [[image[None]] for image in network.images(IMAGES, 5)]
        for form in (QDQ_INT8, QDQ_UINT8):
            source = quantized_onnx(network, folder / f"{network.name}.onnx", **formats[form])
            yield form, network.name, source, feeds


def _row(form: str, name: str, path: Path, feeds: Feeds) -> dict[str, Any]:
    mod, machine = load_model(path), VTAConfig.preset(PRESET)
    default = quantize(mod, config=machine)
    exact = quantize(mod, config=machine, exact_rescale=True)
    tensors = curve(mod, path, feeds, exact, reference=True)
    shares = [tensor.equal for tensor in tensors if tensor.equal is not None]
    compiled = compile_module(exact, machine)
    (results,) = _on_llvm(exact, feeds[:1])
    simulated = profile(compiled.exe, list(feeds[0])).outputs
    macs = macs_share(compiled.placement)
    return {
        "format": form,
        "network": name,
        "tensors": len(shares),
        "equal": 100 * float(np.mean(shares)),
        "tensors_equal": sum(share == 1 for share in shares),
        "not_exact": {layer: why for layer, why in exact_reasons(exact).items() if why},
        "bit_exact": all(map(np.array_equal, simulated, results)),
        "macs_on_vta": 100 * macs.on_vta / macs.total,
        "cycles": _cycles(compiled),
        "default_cycles": _cycles(compile_module(default, machine)),
    }


def _cycles(compiled: Any) -> int:
    return sum(timing.simulate(program).cycles for program in compiled.programs.values())


def _on_llvm(mod: tvm.IRModule, feeds: Feeds) -> list[list[np.ndarray]]:
    from benchmarks.prequantized import on_llvm

    return on_llvm(mod, feeds)


def exact_figures(rows: Sequence[dict[str, Any]]) -> list[Figure]:
    """The least share of equal integers of the networks that are asked for, and each network's.

    A network's share is the mean of its tensors' shares.
    """
    figures = []
    asked = [row for row in rows if row["format"] in ASKED]
    if asked:
        share = min(row["equal"] for row in asked)
        figures.append(_at_least("exact_networks_equal_share", share, 100.0))
    for row in rows:
        name = f"{row['network']}_{row['format'].replace(' ', '_')}_exact"
        figures.append(Figure(f"{name}_equal_share", row["equal"], "%"))
        figures.append(Figure(f"{name}_layers_not_exact", len(row["not_exact"]), "layers"))
        figures.append(_at_least(f"{name}_bit_exact", 100.0 * row["bit_exact"], 100.0))
        cycles, base = row["cycles"], row["default_cycles"]
        figures.append(Figure(f"{name}_cycles", cycles, "cycles", base, "default"))
    return figures


def _at_least(name: str, value: float, target: float) -> Figure:
    return Figure(name, value, "%", target=target, ok=value >= target)
