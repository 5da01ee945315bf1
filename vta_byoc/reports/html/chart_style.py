"""What the charts of the HTML report have in common: colours and titles, and round ticks."""

from __future__ import annotations

import math

from vta_byoc.hw.isa import Queue
from vta_byoc.hw.timing.result import FETCH, FULL, PORT, TOKEN
from vta_byoc.reports.chart_text import PREFIXES, Chart

ACTIVITY_COLORS = {
    "GEMM": "#2f6fb5",
    "ALU": "#6fa8dc",
    "reset": "#a9cbe8",
    "transfer": "#3aa394",
    "no-op": "#7d8893",
    "startup": "#a3adb7",
    PORT: "#c8453f",
    TOKEN[Queue.LOAD]: "#e08e3c",
    TOKEN[Queue.COMPUTE]: "#f0c987",
    TOKEN[Queue.STORE]: "#b98a2f",
    FETCH: "#8a63b8",
    FULL: "#c7b2de",
}
"""Busy is blue and green, overhead grey, waiting warm or violet."""
DRAINED = "drained"
QUEUE_COLORS = {**ACTIVITY_COLORS, DRAINED: "#d5dae0"}
DRAM_COLORS = {
    "wgt": "#34567c",
    "inp": "#6fa8dc",
    "acc": "#3aa394",
    "out": "#8a63b8",
    "uop": "#e08e3c",
    "insn": "#a3adb7",
}
DRAM_TITLES = {
    "wgt": "weights",
    "inp": "inputs",
    "acc": "biases, residuals",
    "out": "results",
    "uop": "micro-ops",
    "insn": "instructions",
}


def ticks(end: float, count: int, unit: str = "") -> Chart:
    """At most ``count`` round values from 0 to ``end``."""
    step = 10.0 ** math.floor(math.log10(end / count))
    step *= next(factor for factor in (1, 2, 5, 10) if end / (factor * step) <= count)
    values = [step * number for number in range(int(end / step) + 1)]
    texts = [f"{v / _scale(end)[0]:g} {_scale(end)[1]}{unit}".rstrip() for v in values[1:]]
    return {"tickvals": values, "ticktext": ["0", *texts]}


def _scale(value: float) -> tuple[float, str]:
    return next(((f, p) for f, p in PREFIXES if value >= f), (1.0, ""))
