"""Layers alone, cycles by the timing simulator: `layers.py [--json]`.

Every distinct workload of the TopHub table (conv2d, grouped and transposed convolution, dense;
1x16 and 4x8) as a one-layer module with bias, shift and clip: compiled, run on the functional
simulator and compared with numpy, then timed. Beside it the machine bound of its shape and what the
Pynq board measured (plausible rows only). Then the layers that need more than a plain convolution:
the stem with each way to fold it, depthwise and transposed convolutions, a dense layer of 102
million weights.
"""

from __future__ import annotations

import csv
import dataclasses
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from benchmarks._layers import (
    Layer,
    Result,
    compiled,
    geometric_mean,
    program_of,
    useful_gemm,
)
from vta_byoc.cost.lower_bound import bound
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import Queue
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.reports.placement.summary import how
from vta_byoc.reports.run.layers import model_facts
from vta_byoc.workload.im2col import folded, folds
from vta_byoc.workload.workloads import Conv2dWorkload, ConvTransposeWorkload, Epilogue, Step

BOARD = Path(__file__).parent / "reference" / "tophub_vta_pynq.csv"
BOARD_NAME = "Pynq board, TopHub"
PRESETS = {"1x16": "sim", "4x8": "tophub_4x8"}
STEM_TARGET = 850_000
DEPTHWISE_TARGET = 10
TRANSPOSED_TARGET = 1.15
SECONDS_TARGET = 2.0
STEM = Layer("conv2d", 1, 3, 64, (224, 224), (7, 7), (2, 2), (3, 3, 3, 3))
LARGE_DENSE = Layer("dense", 1, 25_088, 4_096)
EPILOGUE = Epilogue((Step("add", "channel"), Step("shr", 9), Step("max", -128), Step("min", 127)))


# ---------------------------------------------------------------- the table
@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table; ``board``: the cycles measured, None where they are not plausible."""

    network: str
    geometry: str
    layer: Layer
    board: int | None

    @property
    def key(self) -> tuple[str, Layer]:
        return self.geometry, self.layer


def table_rows() -> list[Row]:
    """All lines of the table, in order."""
    with BOARD.open(encoding="utf-8", newline="") as file:
        return [_row(line) for line in csv.DictReader(file)]


def _row(line: dict[str, str]) -> Row:
    op = line["op"].removeprefix("group_")
    config = VTAConfig.preset(PRESETS[line["geometry"]])
    numbers = {k: int(line[k]) for k in ("n", "h", "w", "ci", "co", "kh", "kw", "sh", "sw")}
    top, left, bottom, right = map(int, line["pad"].split("/"))
    layer = Layer(
        op,
        numbers["n"],
        numbers["ci"],
        numbers["co"],
        (numbers["h"], numbers["w"]),
        (numbers["kh"], numbers["kw"]),
        (numbers["sh"], numbers["sw"]),
        (top, left, bottom, right),
    )
    if line["op"].startswith("group_"):
        layer = dataclasses.replace(layer, groups=_groups(layer, int(line["gemm_ops"]), config))
    board = int(line["cycles_at_100MHz"]) if line["plausible"] == "1" else None
    return Row(line["network"].split(" ")[0], line["geometry"], layer, board)


def _groups(layer: Layer, gemm: int, config: VTAConfig) -> int:
    """Groups of a grouped convolution: the table gives its GEMM micro-ops, not its groups.

    Each output vector takes as many of them as the kernel has taps and a group has input blocks.
    """
    n, co, rows, cols = work_of(layer).out_shape
    vectors = -(-n // config.batch) * -(-co // config.block) * rows * cols
    per_vector = gemm // vectors
    taps = layer.kernel[0] * layer.kernel[1]
    assert gemm == vectors * per_vector and per_vector % taps == 0, "not a table of whole blocks"
    return layer.in_channels // (per_vector // taps * config.block)


def work_of(layer: Layer) -> Conv2dWorkload | ConvTransposeWorkload:
    """The workload of a layer, epilogue included."""
    kind = ConvTransposeWorkload if layer.op == "conv2d_transpose" else Conv2dWorkload
    return kind(
        layer.batch,
        layer.in_channels,
        layer.out_channels,
        *layer.size,
        kernel=layer.kernel,
        strides=layer.strides,
        padding=layer.padding,
        groups=layer.groups,
        epilogue=EPILOGUE,
    )


def measured(rows: Sequence[Row]) -> dict[tuple[str, Layer], dict[str, Any]]:
    """One record for each distinct workload."""
    found: dict[tuple[str, Layer], dict[str, Any]] = {}
    for row in rows:
        if row.key not in found:
            config = VTAConfig.preset(PRESETS[row.geometry])
            found[row.key] = record(row.layer, config, compiled(row.layer, config))
    return found


def record(layer: Layer, config: VTAConfig, result: Result) -> dict[str, Any]:
    """What is known of a compiled layer."""
    cycles = result.cycles(config.timing)
    return {
        "geometry": config.name,
        "op": layer.op,
        "shape": layer.text,
        "on": result.placement.device,
        "mapping": how(result.placement) or result.placement.reason,
        "host_bytes": result.placement.host_bytes,
        "exact": result.exact,
        "compile_seconds": result.seconds,
        "gemm": result.gemm,
        "cycles": cycles,
        "bound": bound(work_of(layer), config),
        "estimate": result.placement.cycles,
    }


def table_figures(
    rows: Sequence[Row], records: dict[tuple[str, Layer], dict[str, Any]]
) -> Iterator[Figure]:
    """Exactness, compile time, ratios, and each network's sum."""
    every = list(records.values())
    inexact = sum(not r["exact"] for r in every)
    yield Figure.at_most("workloads_not_bit_exact", inexact, f"of {len(every)}", 0)
    seconds = statistics.median(r["compile_seconds"] for r in every)
    yield Figure.at_most("median_compile_seconds", seconds, "s", SECONDS_TARGET)
    of_bound = geometric_mean([r["bound"] / r["cycles"] for r in every])
    yield Figure("bound_over_cycles", of_bound, "geometric mean")
    known = [row for row in rows if row.board is not None]
    ratios = [row.board / records[row.key]["cycles"] for row in known if row.board]
    yield Figure("board_over_cycles", geometric_mean(ratios), "geometric mean")
    slower = [r for r in ratios if r < 1]
    yield Figure("workloads_slower_than_the_board", len(slower), f"of {len(ratios)}")
    for network, geometry in dict.fromkeys((row.network, row.geometry) for row in known):
        some = [row for row in known if (row.network, row.geometry) == (network, geometry)]
        board = sum(row.board or 0 for row in some)
        totals = {k: sum(records[row.key][k] for row in some) for k in ("cycles", "bound")}
        base = {"baseline": board, "baseline_name": BOARD_NAME, "bound": totals["bound"]}
        name = f"{network.lower().replace('-', '')}_{geometry}_workloads_cycles"
        yield Figure(name, totals["cycles"], "cycles", **base)


# ---------------------------------------------------------------- particular layers
def stem_forms(layer: Layer, config: VTAConfig) -> list[dict[str, Any]]:
    """A stem unfolded and with each fold that the compiler considers, every one compiled."""
    work = work_of(layer)
    assert isinstance(work, Conv2dWorkload)
    forms = [("no fold", work, 0)]
    forms += [(f.text, folded(work, f), f.nbytes(config)) for f in folds(work, config)]
    records = []
    for name, inner, host in forms:
        program = program_of("conv2d", inner, config)
        gemm, cycles = program.counters()["gemm_counter"], simulate(program).cycles
        records.append({"form": name, "gemm": gemm, "cycles": cycles, "host_bytes": host})
    return records


def stem_figures(forms: Sequence[dict[str, Any]], config: VTAConfig) -> list[Figure]:
    """GEMM micro-ops of the form that the compiler chose; the unfolded one is the baseline."""
    chosen = compiled(STEM, config)
    padded = {"baseline": forms[0]["gemm"], "baseline_name": "channels padded to a block"}
    least = -(-3 * 49 // config.block) * vectors(STEM, config)
    cycles = chosen.cycles(config.timing)
    base = {"baseline": forms[0]["cycles"], "baseline_name": padded["baseline_name"]}
    host = chosen.placement.host_bytes
    return [
        Figure.at_most(
            "stem_gemm_ops", chosen.gemm, "micro-ops", STEM_TARGET, bound=least, **padded
        ),
        Figure("stem_cycles", cycles, "cycles", **base),
        Figure("stem_host_bytes", host, "bytes copied by the host"),
        Figure("stem_not_bit_exact", int(not chosen.exact), "of 1", target=0, ok=chosen.exact),
    ]


def vectors(layer: Layer, config: VTAConfig) -> int:
    """Output vectors of a layer."""
    n, co, rows, cols = work_of(layer).out_shape
    return -(-n // config.batch) * -(-co // config.block) * rows * cols


def depthwise_records(rows: Sequence[Row], config: VTAConfig) -> list[dict[str, Any]]:
    """The table's grouped 3x3 shapes as depthwise convolutions."""
    records = []
    for row in rows:
        if row.layer.groups > 1 and row.geometry == config.name:
            layer = dataclasses.replace(row.layer, groups=row.layer.in_channels)
            result = compiled(layer, config)
            cycles = compute_before_epilogue(result, config) / vectors(layer, config)
            forms = {
                f"{name}_cycles": simulate(program_of(name, work_of(layer), config)).cycles
                for name in ("conv2d", "depthwise")
            }
            records.append({**record(layer, config, result), **forms, "cycles_per_vector": cycles})
    return records


def compute_before_epilogue(result: Result, config: VTAConfig) -> int:
    """GEMM, reset and ALU cycles of a layer, less what the steps of its epilogue take."""
    facts = model_facts(config, {"region": result.program}, [])
    breakdown = facts.queue(Queue.COMPUTE)
    stored = result.program.counters()["out_store_nbytes"] // config.out_elem_bytes
    time = config.timing
    steps = sum(
        time.alu_tensor_cycles if step.is_tensor else time.alu_imm_cycles for step in EPILOGUE.steps
    )
    return breakdown["GEMM"] + breakdown["reset"] + breakdown["ALU"] - stored * steps


def depthwise_figures(records: Sequence[dict[str, Any]]) -> Iterator[Figure]:
    """The worst of the shapes; nine products and a reset are the least that GEMM can do."""
    worst = max(r["cycles_per_vector"] for r in records)
    yield Figure.at_most("depthwise_cycles_per_vector", worst, "cycles", DEPTHWISE_TARGET)
    inexact = sum(not r["exact"] for r in records)
    yield Figure.at_most("depthwise_not_bit_exact", inexact, f"of {len(records)}", 0)


def transposed_figures(
    records: dict[tuple[str, Layer], dict[str, Any]],
) -> Iterator[Figure]:
    """GEMM micro-ops over those that do not multiply by an inserted zero: the worst row."""
    ratios = []
    for (geometry, layer), found in records.items():
        if layer.op == "conv2d_transpose":
            useful = useful_gemm(layer, VTAConfig.preset(PRESETS[geometry]))
            ratios.append(found["gemm"] / useful)
    yield Figure.at_most("transposed_over_useful", max(ratios), "ratio", TRANSPOSED_TARGET)


def dense_figures(config: VTAConfig) -> Iterator[Figure]:
    """Weights of the large dense layer are loaded once."""
    result = compiled(LARGE_DENSE, config)
    weights = LARGE_DENSE.in_channels * LARGE_DENSE.out_channels
    loaded = result.program.counters()["wgt_load_nbytes"] / weights
    yield Figure.at_most("dense_25088x4096_weights_loaded", loaded, "times", 1)
    cycles = result.cycles(config.timing)
    least = bound(work_of(LARGE_DENSE), config)
    yield Figure("dense_25088x4096_cycles", cycles, "cycles", bound=least)
    exact = int(not result.exact)
    yield Figure.at_most("dense_25088x4096_not_bit_exact", exact, "of 1", 0)


# ---------------------------------------------------------------- output
def layer_table(rows: Sequence[Row], records: dict[tuple[str, Layer], dict[str, Any]]) -> Table:
    """Every line of the TopHub table."""
    table = Table(title="layers alone: cycles (timing simulator), bound of the shape, measured")
    for name in ("network", "machine", "layer", "GEMM", "cycles", "bound", "of bound", "board"):
        table.add_column(name, justify="left" if name in ("network", "layer") else "right")
    table.add_column("mapping")
    for row in rows:
        r = records[row.key]
        board = f"{row.board:,}" if row.board is not None else "–"
        share = f"{100 * r['bound'] / r['cycles']:.0f} %"
        numbers = [f"{r[k]:,}" for k in ("gemm", "cycles", "bound")]
        layer = f"{r['shape']}{' transposed' if r['op'] == 'conv2d_transpose' else ''}"
        table.add_row(row.network, row.geometry, layer, *numbers, share, board, r["mapping"])
    return table


def form_table(forms: Sequence[dict[str, Any]]) -> Table:
    """The ways to fold the stem."""
    table = Table(title=f"the stem {STEM.text}: what each fold saves and what the host copies")
    for name in ("form", "gemm", "cycles", "host_bytes"):
        table.add_column(name.replace("_", " "), justify="left" if name == "form" else "right")
    for form in forms:
        table.add_row(form["form"], *(f"{form[k]:,}" for k in ("gemm", "cycles", "host_bytes")))
    return table


def depthwise_table(records: Sequence[dict[str, Any]]) -> Table:
    """Both mappings of depthwise convolutions."""
    table = Table(title="depthwise: cycles of both mappings, and the one that is chosen")
    for name in ("layer", "block-diagonal GEMM", "vector ALU", "bound", "chosen"):
        table.add_column(name, justify="left" if name in ("layer", "chosen") else "right")
    for r in records:
        numbers = [f"{r[k]:,}" for k in ("conv2d_cycles", "depthwise_cycles", "bound")]
        table.add_row(r["shape"], *numbers, r["mapping"])
    return table


def main() -> int:
    options = arguments(str(__doc__).splitlines()[0]).parse_args()
    config = VTAConfig.preset(PRESETS["1x16"])
    for preset in PRESETS.values():  # the simulators are built once
        compiled(Layer("dense", 1, 16, 16), VTAConfig.preset(preset))
    rows = table_rows()
    records = measured(rows)
    forms, depthwise = stem_forms(STEM, config), depthwise_records(rows, config)
    figures = [
        *stem_figures(forms, config),
        *depthwise_figures(depthwise),
        *transposed_figures(records),
        *dense_figures(config),
        *table_figures(rows, records),
    ]
    if not options.json:
        console = Console(file=sys.stdout, width=max(160, Console().width))
        console.print(layer_table(rows, records), form_table(forms))
        console.print(depthwise_table(depthwise))
    workloads = list(records.values())
    more = {"workloads": workloads, "stem": forms, "depthwise": depthwise}
    return report("layers", figures, options.json, **more)


if __name__ == "__main__":
    sys.exit(main())
