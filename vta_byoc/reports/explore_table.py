"""The numbers of an exploration: columns that the console and the page show, and the CSV file."""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable, Sequence

from vta_byoc.explore.point import Point
from vta_byoc.hw.rtl.mapping import NAMES
from vta_byoc.hw.rtl.parts import PARTS

TITLES = {
    "cycles": "cycles",
    "milliseconds": "ms",
    "dram_bytes": "DRAM bytes",
    "sram_bytes": "SRAM bytes",
    "macs": "MACs a cycle",
    "lut": "LUT",
    "ff": "FF",
    "dsp": "DSP",
    "bram": "BRAM",
}
"""How axes are called."""
TIMES = ("cycles", "milliseconds")
"""Axes that say how long a network takes."""
Show = Callable[[Point], str]
CSV_COLUMNS = (
    *("model", "machine", "cycles", "milliseconds", "dram_bytes", "sram_bytes", "macs"),
    *("utilisation", "part", *NAMES, "fits", "not_beaten", "error"),
)
"""The columns of the CSV file; those of `hardware` are empty where it was not asked."""


def cost_columns() -> dict[str, Show]:
    """Titles of columns, and what a point shows there."""
    columns: dict[str, Show] = {
        TITLES[axis]: functools.partial(_cost, axis)
        for axis in ("cycles", "milliseconds", "dram_bytes", "sram_bytes", "macs")
    }
    columns[TITLES["milliseconds"]] = lambda p: f"{p.milliseconds:,.3f}"
    columns["used"] = lambda p: f"{p.utilisation:.1f} %"
    return columns


def hardware_columns() -> dict[str, Show]:
    """Titles of columns, and what a point that has `hardware` shows there."""
    columns: dict[str, Show] = {TITLES[n]: functools.partial(_taken, n) for n in NAMES}
    columns["fits"] = lambda p: "yes" if p.hardware is not None and p.hardware.fits else "no"
    return columns


def has_row(part: str) -> list[str]:
    """What a part has, as text in the order of NAMES."""
    return [_number(getattr(PARTS[part].has, name)) for name in NAMES]


def csv_text(points: Sequence[Point], front: Sequence[Point]) -> str:
    """CSV_COLUMNS of every point, those without a machine included, in the order of `points`."""
    best, out = {point.key for point in front}, io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for point in points:
        facts = point.to_json()
        hardware = facts.pop("hardware", {})
        error = point.error or hardware.pop("error", "")
        row = {**hardware, **facts, "not_beaten": point.key in best, "error": error}
        writer.writerow(row)
    return out.getvalue()


def _cost(axis: str, point: Point) -> str:
    return _number(point.cost(axis))


def _taken(name: str, point: Point) -> str:
    hardware = point.hardware
    return "" if hardware is None or hardware.error else _number(getattr(hardware, name))


def _number(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")
