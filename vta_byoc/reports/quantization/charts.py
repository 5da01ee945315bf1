"""The charts of the quantization page, as data in Plotly's schema; the page adds its colours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vta_byoc.base.json_types import JsonObject
from vta_byoc.quantization.scales import INT8_LOW
from vta_byoc.reports.chart_text import NAME_LENGTH, Chart, distinct, plain
from vta_byoc.reports.quantization.operator_noise import Operator
from vta_byoc.reports.quantization.text import (
    decibel_text,
    saturation_text,
    scale_text,
    share_text,
    weight_text,
)
from vta_byoc.validation.noise import BINS, LEVELS

TOTAL, OWN, BEYOND = "#2f6fb5", "#e08e3c", "#c8453f"
ROW, TICK_WIDTH = 21, 7.2
"""Pixels of an operator's row, and of a letter of its name."""
DIGITS = 4


def sqnr_chart(operators: Sequence[Operator]) -> Chart:
    """A row for each operator, the first on top, with the SQNR of its result.

    Beside it is what that would be if the operator alone were quantized. Equal tensors have no
    point.
    """
    names = distinct([op.name for op in operators], NAME_LENGTH)
    rows = list(range(len(operators)))
    width = max((len(name) for name in names), default=1)
    hover = [
        f"<b>{plain(op.name)}</b><br>SQNR {decibel_text(op.measures.sqnr)} dB, on its own "
        f"{decibel_text(op.measures.own_sqnr)} dB<br>{share_text(op.harm)} % of all noise"
        for op in operators
    ]
    lines = [
        _points("on its own", [op.measures.own_sqnr for op in operators], rows, hover, OWN, "open"),
        _points("SQNR", [op.measures.sqnr for op in operators], rows, hover, TOTAL, ""),
    ]
    return {
        "data": lines,
        "layout": {
            "height": ROW * len(operators) + 48,
            "margin": {"l": int(width * TICK_WIDTH) + 12, "r": 12, "t": 4, "b": 40},
            "showlegend": False,
            "hovermode": "closest",
            "xaxis": {"title": {"text": "dB"}, "rangemode": "tozero", "fixedrange": True},
            "yaxis": {
                "range": [len(operators) - 0.5, -0.5],
                "tickvals": rows,
                "ticktext": [plain(name) for name in names],
                "fixedrange": True,
                "zeroline": False,
            },
        },
    }


def _points(
    name: str, values: list[float], rows: list[int], hover: list[str], color: str, symbol: str
) -> Chart:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [round(value, 2) if math.isfinite(value) else None for value in values],
        "y": rows,
        "text": hover,
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "color": color,
            "size": 9,
            "symbol": f"circle-{symbol}" if symbol else "circle",
        },
    }


def details(operators: Sequence[Operator]) -> list[JsonObject]:
    """For each operator what the page shows when it is chosen.

    These are facts, and histograms as shares of the values over the levels of int8.
    """
    return [_detail(op) for op in operators]


def _detail(op: Operator) -> JsonObject:
    levels = op.measures.levels
    return {
        "name": op.name,
        "facts": [
            ["operators", ", ".join(op.operators)],
            ["result", f"{' x '.join(map(str, op.shape))}, scale {scale_text(op)}"],
            [
                "SQNR",
                f"{decibel_text(op.measures.sqnr)} dB, on its own "
                f"{decibel_text(op.measures.own_sqnr)} dB",
            ],
            ["saturated", f"{saturation_text(op)} %"],
            ["weights", _weights(op)],
            *[[each.rule, f"{each.cause}: {each.step}"] for each in op.advice],
        ],
        "scale": op.scale,
        "zero": op.zero_point,
        "source": None if levels is None else _rounded(levels.source),
        "int8": None if levels is None else _rounded(levels.int8),
        "weights": None if op.weights is None else _rounded(op.weights.histogram),
        "step": None if op.weights is None else op.weights.steps[1],
    }


def _weights(op: Operator) -> str:
    found = op.weights
    if found is None:
        return "none"
    one, each = decibel_text(found.per_tensor_sqnr), decibel_text(found.per_channel_sqnr)
    return f"{weight_text(op)} dB; one scale gives {one} dB, one for each channel {each} dB"


def _rounded(shares: Sequence[float]) -> list[float]:
    return [float(f"{share:.{DIGITS}g}") for share in shares]


def bin_axis() -> dict[str, int]:
    """How the page turns a bin into levels."""
    return {"low": INT8_LOW, "width": LEVELS // BINS, "bins": BINS}
