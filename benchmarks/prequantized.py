"""Models that come quantized, against the runtime they come from: `prequantized.py [--json]`.

Operators: one row for each operator of each format. Both sides get the same integers. *Import*
is the imported module itself, float operators between quantize and dequantize on LLVM; *integer* is
what `quantize` makes of it, on LLVM too. A unit is one step of the 8-bit output.

Networks: the three of `models/quantized_networks.py` in each format: differences of the last
integers, agreement of the largest, the share of multiply-accumulates on VTA, and whether the
simulator's results are those of the integer module. On three machines and forms: `sim`, which
multiplies; `pynq`, which has no MUL, with the factors of layers in weights of two digits or as sums
of shifts (*no_mul*), and with weights of one digit (*approximate*). Cycles stand beside `sim`'s.

Operators on `pynq` are quantized for it, too: *no_mul* is how far their results are from the
source runtime's.

Curves: of the same networks every 8-bit tensor, in order: the share of values that are equal to the
source runtime's, both computing on their own results, and the signal over the noise of the rest.

Exact: the networks as TFLite and as QDQ with `exact_rescale` on `sim`: the share of all stored
integers that are the runtime's, and the cycles beside those of the default.

Transformers: `models/quantized_transformers.py` by pt2e, with the share of the linear layers'
multiply-accumulates that runs on VTA.

PyTorch rows need torch and torchao; without them they are left out and said to be.
TFLite's inputs and results are in tests/fixtures/tflite, so TensorFlow is not needed.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._curves import DEPTHS, at_depths, curve
from benchmarks._exact import exact_figures, exact_rows
from benchmarks._figures import Figure, arguments, report
from models import quantized_transformers as transformers
from models.quantized_networks import NETWORKS, Network, quantized_onnx, quantized_torch
from models.quantized_ops import OP_CASES, SCHEMES, qdq, qoperator, session
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.timing import engine as timing
from vta_byoc.importers.load import load_model
from vta_byoc.ir.quantization_record import factor_forms
from vta_byoc.partitioning.placement import VTA
from vta_byoc.pipeline import compile_module
from vta_byoc.quantization.tensor_pairs import paired, real, tensor_pairs
from vta_byoc.quantize import quantize
from vta_byoc.reports.placement.summary import macs_share
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_layers

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "tflite"
PLAIN = tvm.target.Target({"kind": "llvm", "opt-level": 0})
UNITS_TARGET, EQUAL_TARGET, MACS_TARGET = 1, 99.8, 99.0
NO_MUL_TARGET = 99.5
IMAGES = 8
WITH_MUL, NO_MUL, APPROXIMATE = "mul", "no_mul", "approximate"
FORMS: dict[str, tuple[str, str | None]] = {
    WITH_MUL: ("sim", None),
    NO_MUL: ("pynq", None),
    APPROXIMATE: ("pynq", "approximate"),
}
"""Form -> preset, and `rescale` of `quantize`."""
MORE_FEEDS = 7
SYMMETRIC, ASYMMETRIC = SCHEMES[0], SCHEMES[2]
FLOAT_TFLITE = ("net_float", "net_float_io", "net_dynamic", "net_int16", "unsupported")
Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model, integers (or floats) to feed it with, and the source runtime's results; `unit` is
    the size of a step of float results."""

    format: str
    name: str
    model: Any
    feeds: Sequence[Arrays]
    expected: Sequence[Arrays]
    unit: float = 1.0


# ---------------------------------------------------------------- cases
def onnx_operators(folder: Path) -> Iterator[Case]:
    """QDQ symmetric per tensor and asymmetric per channel, and the integer operators."""
    for case in OP_CASES:
        forms = [
            ("QDQ int8 per tensor", qdq(case, SYMMETRIC)),
            ("QDQ uint8 per channel", qdq(case, ASYMMETRIC)),
        ]
        if case.integer:
            forms.append(("QOperator uint8", qoperator(case, ASYMMETRIC)))
        for form, built in forms:
            path = folder / "operator.onnx"
            onnx.save(built.model, str(path))
            runtime, feeds = session(built.model), [built.feed, *_more(built.feed)]
            expected = [runtime.run(None, feed) for feed in feeds]
            yield Case(form, case.name, path, [list(f.values()) for f in feeds], expected)


def _more(feed: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Random values for the same inputs, so that a share says more than one value."""
    rng = np.random.default_rng(0)
    return [{name: _random(rng, v) for name, v in feed.items()} for _ in range(MORE_FEEDS)]


def _random(rng: np.random.Generator, like: np.ndarray) -> np.ndarray:
    if like.dtype.kind == "f":
        return (like.std() * rng.standard_normal(like.shape)).astype(like.dtype)
    ends = np.iinfo(like.dtype)
    return rng.integers(ends.min, ends.max + 1, like.shape).astype(like.dtype)


def tflite_operators() -> Iterator[Case]:
    for path in sorted(FIXTURES.glob("*.tflite")):
        if path.stem not in FLOAT_TFLITE and not path.stem.startswith("network_"):
            feed, expected = _recorded(path)
            yield Case("TFLite int8", path.stem, path, [feed], [expected])


def _recorded(path: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    with np.load(path.with_suffix(".npz")) as arrays:
        feed = [arrays[key] for key in sorted(arrays) if key.startswith("x")]
        return feed, [arrays[key] for key in sorted(arrays) if key.startswith("y")]


def torch_operators() -> Iterator[Case]:
    """Modules quantized by pt2e; results are floats on the grid of the last quantize."""
    import torch
    from torch import nn

    from benchmarks._torch_operators import MODULES, converted

    for name, (module, shapes) in MODULES.items():
        generator = torch.Generator().manual_seed(7)
        data = tuple(torch.randn(shape, generator=generator) for shape in shapes)
        net: nn.Module = converted(module(), data)
        program = torch.export.export(net, data)
        expected = net(*data).detach().numpy()
        feed = [item.numpy() for item in data]
        yield Case("PyTorch pt2e", name, program, [feed], [[expected]], _step(program))


def networks(folder: Path, with_torch: bool, wanted: str) -> Iterator[Case]:
    for network in (n for n in NETWORKS.values() if wanted in n.name):
        images = network.images(IMAGES, 5)
        for form, options in _onnx_options().items():
            path = quantized_onnx(network, folder / f"{network.name}.onnx", **options)
            runtime = session(onnx.load(str(path)))
            expected = [runtime.run(None, {"data": image[None]}) for image in images]
            feeds: list[Arrays] = [[image[None]] for image in images]
            yield Case(form, network.name, path, feeds, expected, _step(path))
        path = FIXTURES / f"network_{network.name}.tflite"
        (images_of,), (results_of,) = _recorded(path)
        feeds = [[image[None]] for image in images_of]
        results = [[result[None]] for result in results_of]
        yield Case("TFLite int8", network.name, path, feeds, results)
        if with_torch:
            yield _torch_network(network, images)


def _onnx_options() -> dict[str, dict[str, Any]]:
    from onnxruntime.quantization import QuantFormat, QuantType

    symmetric = {"ActivationSymmetric": True, "WeightSymmetric": True}
    return {
        "QDQ int8 per tensor": {
            "quant_format": QuantFormat.QDQ,
            "activation_type": QuantType.QInt8,
            "extra_options": symmetric,
        },
        "QDQ uint8 per channel": {
            "quant_format": QuantFormat.QDQ,
            "activation_type": QuantType.QUInt8,
            "weight_type": QuantType.QInt8,
            "per_channel": True,
        },
        "QDQ uint8 weights": {
            "quant_format": QuantFormat.QDQ,
            "activation_type": QuantType.QUInt8,
            "weight_type": QuantType.QUInt8,
        },
        "QOperator uint8": {
            "quant_format": QuantFormat.QOperator,
            "activation_type": QuantType.QUInt8,
            "weight_type": QuantType.QInt8,
        },
    }


def _torch_network(network: Network, images: np.ndarray) -> Case:
    import torch

    net = quantized_torch(network)
    data = [torch.from_numpy(image[None]) for image in images]
    program = torch.export.export(net, (data[0],))
    expected = [[net(image).detach().numpy()] for image in data]
    feeds = [[image[None]] for image in images]
    return Case("PyTorch pt2e", network.name, program, feeds, expected, _step(program))


def _step(model: Any) -> float:
    """The scale of the last quantize of a model whose results are floats."""
    bindings = load_model(model)["main"].body.blocks[0].bindings
    scales = [b.value.args[1] for b in bindings if _operator(b.value) == "relax.quantize"]
    return float(scales[-1].value.numpy())


def _operator(value: Any) -> str:
    return str(getattr(getattr(value, "op", None), "name", ""))


# ---------------------------------------------------------------- differences
@dataclass(frozen=True)
class Differences:
    """Of all results: how many steps apart at most, and the share in per cent that is equal."""

    max_lsb: int
    equal: float
    shares: tuple[float, ...] = ()
    """In per cent: 0, 1, 2 and more steps apart."""


def differences(got: Sequence[Arrays], case: Case) -> Differences:
    steps = []
    for ours, theirs in zip(got, case.expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            delta = np.abs(a.astype("float64") - b.astype("float64")) / case.unit
            steps.append(np.rint(delta).astype("int64").reshape(-1))
    every = np.concatenate(steps)
    shares = [100 * float((every == n).mean()) for n in (0, 1)]
    shares.append(100 * float((every > 1).mean()))
    return Differences(int(every.max()), shares[0], tuple(shares))


def run(function: Callable[..., Any], feeds: Sequence[Arrays]) -> list[list[np.ndarray]]:
    return [_flat(function(*(tvm.runtime.tensor(x) for x in feed))) for feed in feeds]


def on_llvm(mod: tvm.IRModule, feeds: Sequence[Arrays]) -> list[list[np.ndarray]]:
    machine = relax.VirtualMachine(relax.build(mod, PLAIN), tvm.cpu())
    return run(machine["main"], feeds)


def _flat(result: Any) -> list[np.ndarray]:
    return [result.numpy()] if hasattr(result, "numpy") else [item.numpy() for item in result]


# ---------------------------------------------------------------- rows
def operator_row(case: Case) -> dict[str, Any]:
    mod = load_model(case.model)
    imported = differences(on_llvm(mod, case.feeds), case)
    integer = differences(on_llvm(quantize(mod), case.feeds), case)
    machine = VTAConfig.preset(FORMS[NO_MUL][0])
    no_mul = differences(on_llvm(quantize(mod, config=machine), case.feeds), case)
    return {
        "format": case.format,
        "operator": case.name,
        "import_max_lsb": imported.max_lsb,
        "import_equal": imported.equal,
        "max_lsb": integer.max_lsb,
        "equal": integer.equal,
        "no_mul_max_lsb": no_mul.max_lsb,
        "no_mul_equal": no_mul.equal,
        "values": sum(value.size for results in case.expected for value in results),
    }


def network_row(case: Case) -> dict[str, Any]:
    """The row of the machine that multiplies, with those of the others under their names."""
    mod = load_model(case.model)
    rows = {form: _form_row(case, mod, *options) for form, options in FORMS.items()}
    imported = asdict(differences(on_llvm(mod, case.feeds), case))
    about = {"format": case.format, "network": case.name, "import": imported}
    return {**about, **rows[WITH_MUL], **{form: rows[form] for form in (NO_MUL, APPROXIMATE)}}


def _form_row(case: Case, mod: tvm.IRModule, preset: str, rescale: str | None) -> dict[str, Any]:
    machine = VTAConfig.preset(preset)
    integer = quantize(mod, config=machine, rescale=rescale)
    results = on_llvm(integer, case.feeds)
    compiled = compile_module(integer, machine)
    simulated = profile(compiled.exe, list(case.feeds[0])).outputs
    pairs = zip(results, case.expected, strict=True)
    # Of a plane of classes, each place counts.
    agreed = [
        float((a[0].argmax(_axis(case)) == b[0].argmax(_axis(case))).mean()) for a, b in pairs
    ]
    macs = macs_share(compiled.placement)
    cycles = sum(timing.simulate(program).cycles for program in compiled.programs.values())
    return {
        "integer": asdict(differences(results, case)),
        "top1_agreement": 100 * float(np.mean(agreed)),
        "macs_on_vta": 100 * macs.on_vta / macs.total,
        "bit_exact": all(map(np.array_equal, simulated, results[0])),
        "cycles": cycles,
        "forms": _forms(integer),
    }


def curve_row(case: Case) -> dict[str, Any]:
    tensors = curve(load_model(case.model), case.model, case.feeds)
    return {
        "format": case.format,
        "network": case.name,
        "tensors": [tensor.to_json() for tensor in tensors],
        "depths": [tensor.to_json() for tensor in at_depths(tensors)],
    }


def transformer_row(name: str) -> dict[str, Any]:
    """Products of two activations have no constant weights and stay on the CPU."""
    import torch

    net, x = transformers.quantized(name)
    mod = load_model(torch.export.export(net, (x,)))
    machine = VTAConfig.preset("sim")
    integer = quantize(mod, config=machine)
    compiled = compile_module(integer, machine)
    rows = [row for row in compiled.placement if row.macs]
    linear = [row for row in rows if not row.name.startswith("bmm")]
    checks = compare_layers(integer, compiled, [x.numpy()])
    return {
        "network": name,
        "linear_macs": sum(row.macs for row in linear),
        "linear_macs_on_vta": sum(row.macs for row in linear if row.device == VTA),
        "macs": sum(row.macs for row in rows),
        "bit_exact": all(check.equal for check in checks),
        "max_lsb": largest_step(mod, integer, x.numpy()),
        "on_the_host": {row.name: row.reason for row in rows if row.device != VTA},
    }


def largest_step(mod: tvm.IRModule, integer: tvm.IRModule, x: np.ndarray) -> int:
    """How many steps an integer operator is off, at most, on the inputs of the imported one."""
    pairs = tensor_pairs(mod, integer)
    (values,) = on_llvm(paired(mod, integer, pairs)[0], [[x]])
    apart = [0]
    for pair, source, alone in zip(pairs, values[::3], values[2::3], strict=True):
        if pair.is_int8 and pair.is_group:
            wanted = np.rint(real(source, pair.source) / pair.scale.step) + pair.scale.zero
            apart.append(int(np.abs(wanted.clip(-128, 127) - alone).max()))
    return max(apart)


def _forms(integer: tvm.IRModule) -> dict[str, int]:
    """How many layers have their factor in each form that needs no multiplier."""
    return dict(Counter(factor_forms(integer).values()))


def _axis(case: Case) -> int:
    """Of the classes: TFLite has them last."""
    return -1 if case.format.startswith("TFLite") else 1


# ---------------------------------------------------------------- output
def curve_figures(rows: Sequence[dict[str, Any]]) -> list[Figure]:
    figures = []
    for row in rows:
        name = f"{row['network']}_{row['format'].replace(' ', '_')}"
        for depth, tensor in zip(DEPTHS, row["depths"], strict=True):
            share = 100 * tensor["equal"]
            figures.append(Figure(f"{name}_equal_share_at_{100 * depth:.0f}", share, "%"))
    return figures


def transformer_figures(rows: Sequence[dict[str, Any]]) -> list[Figure]:
    figures = []
    for row in rows:
        name, share = row["network"], 100 * row["linear_macs_on_vta"] / row["linear_macs"]
        figures.append(_at_least(f"{name}_linear_macs_on_vta", share, MACS_TARGET))
        figures.append(_at_least(f"{name}_bit_exact", 100.0 * row["bit_exact"], 100.0))
        figures.append(Figure.at_most(f"{name}_max_lsb", row["max_lsb"], "LSB", UNITS_TARGET))
    return figures


def figures_of(operators: Sequence[dict[str, Any]], nets: Sequence[dict[str, Any]]) -> list[Figure]:
    """Of each format all values, and the worst operator, of those that the runtime computes as
    the float form of the model does; and the networks."""
    figures = []
    for form in dict.fromkeys(row["format"] for row in operators):
        rows, name = [r for r in operators if r["format"] == form], form.replace(" ", "_")
        most = max(r["max_lsb"] for r in rows)
        figures.append(Figure.at_most(f"{name}_max_lsb", most, "LSB", UNITS_TARGET))
        exact = [r for r in rows if r["import_equal"] >= EQUAL_TARGET]
        least = min(r["equal"] for r in exact)
        figures.append(_at_least(f"{name}_equal_share_worst_operator", least, EQUAL_TARGET))
        share = sum(r["equal"] * r["values"] for r in exact) / sum(r["values"] for r in exact)
        figures.append(_at_least(f"{name}_equal_share", share, EQUAL_TARGET))
        most = max(r["no_mul_max_lsb"] for r in rows)
        figures.append(Figure.at_most(f"{name}_no_mul_max_lsb", most, "LSB", UNITS_TARGET))
        share = sum(r["no_mul_equal"] * r["values"] for r in exact)
        share /= sum(r["values"] for r in exact)
        figures.append(_at_least(f"{name}_no_mul_equal_share", share, NO_MUL_TARGET))
        others = len(rows) - len(exact)
        figures.append(Figure(f"{name}_runtime_differs_from_floats", others, "operators"))
    for row in nets:
        name = f"{row['network']}_{row['format'].replace(' ', '_')}"
        figures.append(Figure(f"{name}_max_lsb", row["integer"]["max_lsb"], "LSB"))
        figures.append(Figure(f"{name}_equal_share", row["integer"]["equal"], "%"))
        figures.append(Figure(f"{name}_top1_agreement", row["top1_agreement"], "%"))
        figures.append(_at_least(f"{name}_macs_on_vta", row["macs_on_vta"], MACS_TARGET))
        figures.append(_at_least(f"{name}_bit_exact", 100.0 * row["bit_exact"], 100.0))
        figures += _without_mul(name, row)
    return figures


def _without_mul(name: str, row: dict[str, Any]) -> list[Figure]:
    """The same network on the machine without MUL, its cycles beside those with."""
    figures = [Figure(f"{name}_cycles", row["cycles"], "cycles")]
    for form in (NO_MUL, APPROXIMATE):
        own, label = row[form], f"{name}_{form}"
        figures.append(Figure(f"{label}_max_lsb", own["integer"]["max_lsb"], "LSB"))
        figures.append(Figure(f"{label}_equal_share", own["integer"]["equal"], "%"))
        figures.append(Figure(f"{label}_top1_agreement", own["top1_agreement"], "%"))
        figures.append(_at_least(f"{label}_macs_on_vta", own["macs_on_vta"], MACS_TARGET))
        figures.append(_at_least(f"{label}_bit_exact", 100.0 * own["bit_exact"], 100.0))
        cycles, base = own["cycles"], row["cycles"]
        figures.append(Figure(f"{label}_cycles", cycles, "cycles", base, WITH_MUL))
    return figures


def _at_least(name: str, value: float, target: float) -> Figure:
    return Figure(name, value, "%", target=target, ok=value >= target)


def _print(operators: Sequence[dict[str, Any]]) -> None:
    table = Table(title="operators")
    for column in ("format", "operator", "import max", "import equal %", "integer max", "equal %"):
        table.add_column(column, justify="right" if "max" in column or "%" in column else "left")
    for row in operators:
        numbers = [str(row["import_max_lsb"]), f"{row['import_equal']:.2f}"]
        numbers += [str(row["max_lsb"]), f"{row['equal']:.2f}"]
        table.add_row(row["format"], row["operator"], *numbers)
    Console(width=120).print(table)


PARTS = ("operators", "networks", "curves", "transformers", "exact")


def main() -> int:
    parser = arguments("Models that come quantized, against the runtime they come from.")
    parser.add_argument("--only", choices=PARTS, action="append", help="of these parts")
    parser.add_argument("--format", default="", help="only formats that contain this text")
    parser.add_argument("--network", default="", help="only networks that contain this text")
    options = parser.parse_args()
    with_torch = all(importlib.util.find_spec(name) for name in ("torch", "torchao"))
    if not with_torch:
        print("no rows for PyTorch: torch and torchao are not installed", file=sys.stderr)
    parts = options.only or PARTS
    rows: dict[str, list[dict[str, Any]]] = {part: [] for part in PARTS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "operators" in parts:
            sources = [onnx_operators(folder), tflite_operators()]
            sources += [torch_operators()] if with_torch else []
            cases = (case for source in sources for case in source)
            rows["operators"] = [operator_row(c) for c in cases if options.format in c.format]
        if "networks" in parts or "curves" in parts:
            for case in networks(folder, with_torch, options.network):
                if options.format not in case.format:
                    continue
                rows["networks"] += [network_row(case)] if "networks" in parts else []
                rows["curves"] += [curve_row(case)] if "curves" in parts else []
        if "exact" in parts:
            rows["exact"] = exact_rows(FIXTURES, _onnx_options(), options.network)
        if "transformers" in parts and with_torch:
            wanted = (name for name in transformers.MODELS if options.network in name)
            rows["transformers"] = [transformer_row(name) for name in wanted]
    if not options.json:
        _print(rows["operators"])
    figures = figures_of(rows["operators"], rows["networks"])
    figures += curve_figures(rows["curves"]) + transformer_figures(rows["transformers"])
    figures += exact_figures(rows["exact"])
    return report("prequantized", figures, options.json, **rows)


if __name__ == "__main__":
    sys.exit(main())
