"""The kernels of a schedule: every loop nest of a composite with the tiling chosen for it.

A strategy says with ``choose`` which kernels it would take by estimate, and with ``spaces`` which
it could take.  What is chosen is a value: it is written on the composite as text, and every later
stage reads it there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vta_byoc.cost.search import Choice, Space
from vta_byoc.workload.memory import MEMORIES

SCHEDULE_ATTR = "vta.schedule"
"""Of a packed composite: the text of its :class:`Chosen`."""
ESTIMATE, LOG, PIN = "estimate", "log", "pin"
"""Who chose a schedule: the tile chooser, a tuning log, or a user for a layer by its name."""


WRITTEN = ("join", "sets", "ci", "co")
"""The numbers of a :class:`Grouping` as tuning logs name them, in order."""


@dataclass(frozen=True)
class Grouping:
    """Block-diagonal groups: the groups of a convolution in whole blocks of channels.

    Attributes:
        joined: groups of the convolution in each.
        count: how many there are; channels of two do not mix.
        ci: blocks of input channels of each.
        co: blocks of output channels of each.
    """

    joined: int
    count: int
    ci: int
    co: int

    @property
    def fields(self) -> dict[str, int]:
        """The numbers under the names that tuning logs give them."""
        return dict(zip(WRITTEN, dataclasses.astuple(self), strict=True))

    @classmethod
    def of_fields(cls, fields: Mapping[str, int]) -> Grouping:
        """The groups that ``fields`` say."""
        return cls(*(fields[name] for name in WRITTEN))


@dataclass(frozen=True)
class Kernel:
    """One loop nest: its tiling, and how its groups are put in blocks where it has groups."""

    choice: Choice
    grouping: Grouping | None = None

    @property
    def text(self) -> str:
        """The kernel in one line."""
        choice = self.choice
        tile = " ".join(f"{axis}={size}" for axis, size in choice.tile.items())
        slots = "/".join(map(str, choice.slots))
        groups = ""
        if self.grouping is not None and self.grouping.count > 1:
            groups = f", {self.grouping.count} block-diagonal groups of {self.grouping.joined}"
        return f"{choice.variant}: {tile}, slots {slots}{groups}"

    def to_json(self) -> dict[str, object]:
        """The kernel as JSON has it."""
        choice = self.choice
        found: dict[str, object] = {
            "tile": dict(choice.tile),
            "order": choice.variant,
            "slots": dict(zip(MEMORIES, choice.slots, strict=True)),
            "estimated_cycles": choice.cycles,
        }
        if self.grouping is not None:
            found["grouping"] = self.grouping.fields
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Kernel:
        """The kernel that :meth:`to_json` wrote."""
        fields: Mapping[str, Any] = value
        slots = fields["slots"]
        choice = Choice(
            {str(axis): int(size) for axis, size in fields["tile"].items()},
            str(fields["order"]),
            (int(slots["inp"]), int(slots["wgt"]), int(slots["acc"])),
            float(fields["estimated_cycles"]),
        )
        grouping = fields.get("grouping")
        return cls(choice, None if grouping is None else Grouping.of_fields(grouping))

    def to_text(self) -> str:
        """The kernel in one line that :meth:`from_text` reads, without loss."""
        choice = self.choice
        slots = dict(zip(MEMORIES, choice.slots, strict=True))
        parts = [choice.variant, f"tile {_sizes(choice.tile)}", f"slots {_sizes(slots)}"]
        parts.append(f"cycles {float(choice.cycles)!r}")
        if self.grouping is not None:
            parts.append(f"grouping {_sizes(self.grouping.fields)}")
        return "; ".join(parts)

    @classmethod
    def from_text(cls, text: str) -> Kernel:
        """The kernel that :meth:`to_text` wrote."""
        order, *parts = text.split("; ")
        fields: dict[str, Any] = {"order": order}
        for name, _, value in (part.partition(" ") for part in parts):
            if name == "cycles":
                fields["estimated_cycles"] = value
            else:
                pairs = (size.split("=") for size in value.split())
                fields[name] = {axis: int(size) for axis, size in pairs}
        return cls.from_json(fields)


def _sizes(values: Mapping[str, int]) -> str:
    """`n=1 co=4`."""
    return " ".join(f"{name}={value}" for name, value in values.items())


Kernels = tuple[Kernel, ...]


@dataclass(frozen=True)
class KernelSpace:
    """What one kernel could be: a space of tilings for each grouping that it could have.

    The only grouping is None where the layer has no groups.
    """

    candidates: tuple[tuple[Grouping | None, Space], ...]

    @classmethod
    def of_tiles(cls, space: Space) -> KernelSpace:
        """Of a kernel without groups."""
        return cls(((None, space),))

    def of(self, kernel: Kernel) -> Space | None:
        """The space of the grouping that ``kernel`` has, None where there is none."""
        return next((tiles for group, tiles in self.candidates if group == kernel.grouping), None)


@dataclass(frozen=True)
class Chosen:
    """The kernels of a composite, and who chose them: ESTIMATE, LOG or PIN."""

    kernels: Kernels
    origin: str = ESTIMATE

    def to_text(self) -> str:
        """Canonical text, as the attribute SCHEDULE_ATTR holds it."""
        return " | ".join([self.origin, *(kernel.to_text() for kernel in self.kernels)])

    @classmethod
    def from_text(cls, text: str) -> Chosen:
        """What :meth:`to_text` wrote."""
        origin, *kernels = text.split(" | ")
        return cls(tuple(map(Kernel.from_text, kernels)), origin)
