"""The table of layers as comma-separated values."""

from __future__ import annotations

import csv
import io
from urllib.parse import quote

from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.isa import Queue
from vta_byoc.reports.run.buffers import SRAMS
from vta_byoc.reports.run.changes import bounds
from vta_byoc.reports.run.layers import ACTIVITIES, DRAM, ModelFacts

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A text that begins so is a formula to a spreadsheet."""


def layers_csv(facts: ModelFacts) -> str:
    """One line of titles and one a layer, with plain numbers.

    Cycles of activities are those of the compute queue. A name that a spreadsheet would compute has
    an apostrophe before it.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["region", "layer", "cycles", "bound", "macs", "alu_ops", "instructions"]
    parts = [f"cycles {name}" for name in ACTIVITIES]
    parts += [f"bytes {name}" for name in DRAM] + [f"elements {name}" for name in SRAMS]
    writer.writerow([*head, *parts, *COUNTER_NAMES])
    for layer, bound in zip(facts.layers, bounds(facts), strict=True):
        name = f"'{layer.name}" if layer.name.startswith(FORMULA) else layer.name
        spent = layer.breakdown[Queue.COMPUTE]
        row = [layer.region, name, layer.cycles, bound, layer.macs, layer.alu_ops]
        row += [layer.time.end - layer.time.begin, *(spent[name] for name in ACTIVITIES)]
        row += [layer.dram[name] for name in DRAM] + [layer.sram[name].used for name in SRAMS]
        writer.writerow([*row, *(layer.counters[name] for name in COUNTER_NAMES)])
    return text.getvalue()


def csv_address(text: str) -> str:
    """A `data:` address of the text, for a link that needs no network."""
    return f"data:text/csv;charset=utf-8,{quote(text)}"
