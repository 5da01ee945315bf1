"""One network: exported, imported, quantized, compiled, run and compared, in each style."""

from __future__ import annotations

import contextlib
import math
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax

from benchmarks._int8_baseline import onnxruntime_int8
from vta_byoc import load_model, quantize
from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.load import output_names
from vta_byoc.ir.reference import build_reference
from vta_byoc.partition import Placement
from vta_byoc.pipeline import Compiled, compile_module
from vta_byoc.reports.placement.summary import alu_share, macs_share
from vta_byoc.reports.run.timing import time_programs
from vta_byoc.runtime.execute import profile, run_vm
from vta_byoc.validation.bit_exact import (
    Reference,
    compare_outputs,
    compare_stored,
    reference_runner,
)

from .counting import multiply_accumulates
from .exports import TORCHSCRIPT, export, exported
from .table import Network
from .weights import prepare

PRESET = "sim"
OPTIONS: dict[str, Any] = {"scales": "mul", "per_channel": True}
"""Of `quantize`: any scale, which needs the machine's MUL."""
STATISTICS, INPUTS = 16, 4
"""Inputs that batch normalization sees and that calibrate, and others that are compared."""
CHECKED = 2
"""Inputs on which every stored tensor is compared with the reference."""
FLOAT_DB = 60.0
"""An imported float model must be as close as this to PyTorch."""
Arrays = list[np.ndarray]


@dataclass
class Style:
    """What became of one export of a network; fields stay None from the stage on that failed.

    Attributes:
        seconds: of processor time for each stage, the one that failed left out.
        error: the stage where it ended and why; "" for neither.
        export_error: why the exporter writes no such file; then there is nothing to measure.
        float_db: signal to difference, in dB, of the imported float module and PyTorch.
        sqnr_db: the same of the quantized results.
        cpu: operators on the CPU by the rule that kept them there.
    """

    name: str
    export_error: str = ""
    error: str = ""
    float_db: float | None = None
    sqnr_db: float | None = None
    macs: int | None = None
    macs_on_vta: int | None = None
    operators: int | None = None
    operators_on_vta: int | None = None
    alu_ops: int | None = None
    alu_ops_on_vta: int | None = None
    regions: int | None = None
    cycles: int | None = None
    tensors: int | None = None
    different: int | None = None
    first_difference: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, list[str]] = field(default_factory=dict)
    stage: str = ""

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """The processor time of a stage."""
        self.stage, start = stage, time.process_time()
        yield
        self.seconds[stage] = time.process_time() - start

    @property
    def imported(self) -> bool:
        """Whether the file loads and computes what PyTorch does."""
        return self.float_db is not None and self.float_db >= FLOAT_DB

    def to_json(self) -> dict[str, Any]:
        """The fields and what follows from them."""
        return asdict(self) | {"imported": self.imported, "bit_exact": self.bit_exact}

    @property
    def bit_exact(self) -> bool:
        """Whether every result and every stored tensor equals the integer reference."""
        return self.different == 0


@dataclass(frozen=True)
class Data:
    """A network with weights and its program; arrays to calibrate with and others to compare on,
    what PyTorch computes of these, and its multiply-accumulates."""

    module: Any
    program: Any
    example: tuple[Any, ...]
    calibration: list[Arrays]
    samples: list[Arrays]
    expected: list[Arrays]
    macs: int


def measure(name: str, network: Network, styles: Sequence[str]) -> dict[str, Any]:
    """Everything about one network as a JSON object; failures are part of it."""
    torch.set_num_threads(1)
    start = time.process_time()
    data = prepared(network)
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure_style(style, data, Path(folder)) for style in styles]
        ort, ort_error = onnxruntime_sqnr(data, Path(folder))
    return {
        "name": name,
        "reduced": network.reduced,
        "macs": data.macs,
        "styles": [row.to_json() for row in rows],
        "onnxruntime_db": ort,
        "onnxruntime_error": ort_error,
        "seconds": time.process_time() - start,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def prepared(network: Network, seed: int = 0) -> Data:
    """The network with weights, and its inputs."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    total = STATISTICS + INPUTS
    batch = tuple(make(generator, total) for make in network.inputs)
    seen = tuple(x[:STATISTICS] for x in batch)
    module = prepare(network.build(), seen, seed)
    rows = [tuple(x[i : i + 1] for x in batch) for i in range(total)]
    with torch.no_grad():
        expected = [arrays(module(*row)) for row in rows[STATISTICS:]]
    samples = [arrays(row) for row in rows]
    return Data(
        module,
        exported(module, rows[0]),
        rows[0],
        samples[:STATISTICS],
        samples[STATISTICS:],
        expected,
        multiply_accumulates(module, rows[0]),
    )


def arrays(tensors: Any) -> Arrays:
    """A tensor or a tuple of them as arrays."""
    listed = tensors if isinstance(tensors, tuple | list) else (tensors,)
    return [np.ascontiguousarray(t.numpy()) for t in listed]


# ---------------------------------------------------------------- one style
def measure_style(style: str, data: Data, folder: Path) -> Style:
    """The boundary of the benchmark: any failure becomes the row's error."""
    row = Style(style)
    try:
        path = export(style, data.module, data.program, data.example, folder)
    except Exception as error:
        row.export_error = first_line(error)
        return row
    try:
        whole_way(row, lambda: load_model(path), lambda mod: data)
    except Exception as error:
        row.error = f"{row.stage}: {first_line(error)}"
    return row


def whole_way(
    row: Style, load: Callable[[], tvm.IRModule], data_of: Callable[[tvm.IRModule], Data]
) -> list[Arrays]:
    """Import, quantize, compile, run and compare; what was measured stands in `row`.

    Returns the integer reference's results of each sample.

    Of a model whose own variables are outputs behind the others, these are compared with the
    integer reference alone.
    """
    config = VTAConfig.preset(PRESET)
    with row.timed("import"):
        mod = load()
    data = data_of(mod)
    with row.timed("float"):
        machine = relax.VirtualMachine(build_reference(mod), tvm.cpu())
        row.float_db = decibels([run_vm(machine, x) for x in data.samples], data.expected)
    with row.timed("quantize"):
        samples = [tuple(x) for x in data.calibration]
        qmod = quantize(mod, calibration=samples, config=config, **OPTIONS)
    with row.timed("compile"):
        compiled = compile_module(qmod, config)
        _place(row, compiled.placement)
        row.regions = len(compiled.programs)
        row.cycles = sum(t.cycles for t in time_programs(compiled.programs).values())
    with row.timed("reference"):
        reference_of = reference_runner(qmod, compiled.programs)
        references = [reference_of(x) for x in data.samples]
        row.sqnr_db = decibels([r.outputs for r in references], data.expected)
    with row.timed("check"):
        _check(row, qmod, compiled, list(zip(data.samples, references, strict=True))[:CHECKED])
    return [reference.outputs for reference in references]


def _check(
    row: Style, qmod: Any, compiled: Compiled, pairs: list[tuple[Arrays, Reference]]
) -> None:
    checks = []
    for sample, reference in pairs:
        run = profile(compiled.exe, sample, arenas=True)
        checks += compare_outputs(output_names(qmod), run.outputs, reference)
        checks += compare_stored(run, compiled.programs, reference)
    wrong = [check for check in checks if not check.equal]
    row.tensors, row.different = len(checks), len(wrong)
    row.first_difference = str(wrong[0]) if wrong else ""


def _place(row: Style, placement: Sequence[Placement]) -> None:
    macs, alu = macs_share(placement), alu_share(placement)
    row.macs, row.macs_on_vta = macs.total, macs.on_vta
    row.alu_ops, row.alu_ops_on_vta = alu.total, alu.on_vta
    row.operators = len(placement)
    row.operators_on_vta = sum(op.device == "vta" for op in placement)
    for op in placement:
        if op.device == "cpu":
            row.cpu.setdefault(op.why.rule, []).append(op.name)


def decibels(got: Sequence[Arrays], expected: Sequence[Arrays]) -> float:
    """Power of the expected values over that of the difference; 200 where they are equal.

    Where only zeros are expected, and not got, there is no power to compare: 0.
    """
    pairs = [pair for g, e in zip(got, expected, strict=True) for pair in zip(g, e, strict=False)]
    signal = sum(float(np.square(e, dtype=np.float64).sum()) for _, e in pairs)
    noise = sum(float(np.square(g.astype(np.float64) - e).sum()) for g, e in pairs)
    if not signal or not noise:
        return 0.0 if noise else 200.0
    return min(200.0, 10 * math.log10(signal / noise))


def first_line(error: Exception) -> str:
    """Kind and first line of an error."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


# ---------------------------------------------------------------- the baseline
def onnxruntime_sqnr(data: Data, folder: Path) -> tuple[float | None, str]:
    """ONNX Runtime's static quantization of the exported file on the same inputs."""
    path = folder / f"{TORCHSCRIPT}.onnx"
    try:
        if not path.is_file():
            path = export(TORCHSCRIPT, data.module, data.program, data.example, folder)
        got = onnxruntime_int8(path, data.calibration, data.samples)
    except Exception as error:
        return None, first_line(error)
    return decibels(got, data.expected), ""
