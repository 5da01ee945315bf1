"""Two compilations beside each other: the numbers of `report --json`, before and after."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vta_byoc.base.json_types import JsonObject
from vta_byoc.hw.errors import VTAError

Numbers = Mapping[str, Any]
"""An object of `report --json`."""
NEEDED = ("cycles", "dram_bytes", "layers", "placement", "macs_offloaded", "alu_ops_offloaded")
ABSENT = "–"


@dataclass(frozen=True)
class Difference:
    """One quantity before and after; None where one of them does not have it."""

    name: str
    before: int | None
    after: int | None

    @property
    def change(self) -> str:
        """In percent of what it was; "new", "gone" or "" where that says nothing."""
        if self.before is None or self.after is None:
            return "gone" if self.after is None else "new"
        if self.before == self.after:
            return "="
        return f"{100 * (self.after - self.before) / self.before:+.1f} %" if self.before else "new"


@dataclass(frozen=True)
class LayerDifference:
    """A layer before and after: its compute queue's cycles and its bytes from and to DRAM."""

    name: str
    cycles: Difference
    dram_bytes: Difference

    @property
    def differs(self) -> bool:
        """Whether any of the numbers changed."""
        pairs = (self.cycles, self.dram_bytes)
        return any(pair.before != pair.after for pair in pairs)


@dataclass(frozen=True)
class Comparison:
    """What changed from the report in the file ``before`` to this one.

    ``moved`` are operators with their devices before and after, in the order of the model.
    """

    before: str
    totals: tuple[Difference, ...]
    layers: tuple[LayerDifference, ...]
    moved: tuple[tuple[str, str, str], ...]

    @property
    def first(self) -> str:
        """What changed first, in the order of the model: a sentence."""
        if self.moved:
            name, old, new = self.moved[0]
            return f"{name} is the first operator that runs elsewhere: on {new}, before on {old}."
        for layer in self.layers:
            if layer.differs:
                old, new = (_text(n) for n in (layer.cycles.before, layer.cycles.after))
                return f"{layer.name} is the first layer that differs: {new} cycles, before {old}."
        return "No layer and no operator differs."

    def to_json(self) -> JsonObject:
        """The object `against` of `report --json`; docs/report.md explains its keys."""
        return {
            "report": self.before,
            "first": self.first,
            "totals": {d.name: [d.before, d.after] for d in self.totals},
            "layers": [
                {
                    "name": layer.name,
                    "cycles": [layer.cycles.before, layer.cycles.after],
                    "dram_bytes": [layer.dram_bytes.before, layer.dram_bytes.after],
                }
                for layer in self.layers
                if layer.differs
            ],
            "moved": [{"name": n, "before": old, "after": new} for n, old, new in self.moved],
        }


def _text(value: int | None) -> str:
    return ABSENT if value is None else f"{value:,}"


def read_report(path: str) -> Numbers:
    """The object that `report --json` printed into ``path``.

    Raises:
        VTAError: no such file, or what is in it is no such object.
    """
    step = "write one with `vta-byoc report MODEL -o FILE.html --json > BEFORE.json`"
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise VTAError(f'report "{path}" cannot be read: {reason}; {step}') from None
    missing = [key for key in NEEDED if not isinstance(found, dict) or key not in found]
    if missing:
        raise VTAError(f'report "{path}" has no {missing[0]!r}; it is no report; {step}')
    return dict(found)


def compare_reports(before: Numbers, after: Numbers, path: str) -> Comparison:
    """What changed between two objects of `report --json`.

    Args:
        before: the older one.
        after: the newer one.
        path: the file of the older one, for the report.
    """
    old, new = _by_name(before["layers"]), _by_name(after["layers"])
    layers = [_layer(name, old.get(name), new.get(name)) for name in dict.fromkeys([*new, *old])]
    return Comparison(path, tuple(_totals(before, after)), tuple(layers), _moved(before, after))


def _totals(before: Numbers, after: Numbers) -> Iterable[Difference]:
    for name in ("cycles", "macs_offloaded", "alu_ops_offloaded"):
        yield Difference(name, before[name], after[name])
    yield Difference("dram_bytes", *(sum(x["dram_bytes"].values()) for x in (before, after)))
    yield Difference("layers", len(before["layers"]), len(after["layers"]))


def _by_name(layers: Iterable[Numbers]) -> dict[str, Numbers]:
    """Layers by region and name; a name that comes twice gets a number."""
    found: dict[str, Numbers] = {}
    for layer in layers:
        name, again = layer["name"], 2
        while name in found:
            name, again = f"{layer['name']} #{again}", again + 1
        found[name] = layer
    return found


def _layer(name: str, old: Numbers | None, new: Numbers | None) -> LayerDifference:
    def pair(title: str) -> Difference:
        values = []
        for layer in (old, new):
            value = None if layer is None else layer[title]
            values.append(sum(value.values()) if isinstance(value, dict) else value)
        return Difference(title, *values)

    return LayerDifference(name, pair("cycles"), pair("dram_bytes"))


def _moved(before: Numbers, after: Numbers) -> tuple[tuple[str, str, str], ...]:
    """Operators whose device changed; one that is new or gone has no other device."""
    old, new = (
        {op["name"]: op["device"] for op in numbers["placement"]["ops"]}
        for numbers in (before, after)
    )
    return tuple(
        (name, old.get(name, ABSENT), new.get(name, ABSENT))
        for name in dict.fromkeys([*new, *old])
        if old.get(name) != new.get(name)
    )
