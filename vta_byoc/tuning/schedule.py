"""The schedule of a layer as a value: what is computed, and the kernels chosen for it.

Example:
    schedules = schedules_of(pmod)                     # of a partitioned module, by layer
    mine = schedules["conv1"].changed(oh=4, ow=8)      # another tile of the same layer
    pmod = partition_for_vta(qmod, config, schedules=Schedules(pins={"conv1": mine}))
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import tvm

from vta_byoc.base.rewrites import switched_off
from vta_byoc.cost.search import Choice, Space
from vta_byoc.cost.usage import depths, needs
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.partitioning.region import Region, RegionStep, region_calls
from vta_byoc.strategies.fused.consumer import ConsumerWork, FusedConsumer
from vta_byoc.strategies.te.kernel import ESTIMATE, Chosen, Kernel, Kernels, KernelSpace
from vta_byoc.strategy import STRATEGIES, Computation, LayerWork
from vta_byoc.workload.memory import MEMORIES
from vta_byoc.workload.texts import from_json, to_json
from vta_byoc.workload.workloads import Workload

MOST_SLOTS = 2


@dataclass(frozen=True)
class Schedule:
    """How one layer is computed.

    Attributes:
        strategy: key of the table of strategies.
        work: its workload (shapes, epilogue).
        kernels: the loop nests in their order: tile, loop order, slots, groups, estimated cycles.
        fused: operators fused into it.
        without_rewrites: rewrites that were switched off when it was found, sorted.
    """

    strategy: str
    work: Workload
    kernels: Kernels
    fused: tuple[FusedConsumer, ...] = ()
    without_rewrites: tuple[str, ...] = ()

    @classmethod
    def of(cls, computation: Computation, config: VTAConfig) -> Schedule:
        """The schedule of a computation."""
        kernels = computation.kernels(config)
        off = switched_off()
        return cls(computation.strategy.name, computation.work, kernels, computation.fused, off)

    @property
    def key(self) -> str:
        """Canonical text of what is computed: equal keys can take each other's kernels."""
        return json.dumps(self.computed(), sort_keys=True)

    def computed(self) -> dict[str, object]:
        """What is computed, as JSON has it."""
        off = {"without_rewrites": list(self.without_rewrites)} if self.without_rewrites else {}
        return {
            **off,
            "strategy": self.strategy,
            "workload": json.loads(to_json(self.work)),
            "fused": [
                {
                    "strategy": each.strategy,
                    "workload": json.loads(to_json(each.work)),
                    "operand": each.operand,
                }
                for each in self.fused
            ],
        }

    def to_json(self) -> dict[str, object]:
        """The schedule as JSON has it."""
        return {**self.computed(), "kernels": [kernel.to_json() for kernel in self.kernels]}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Schedule:
        """The schedule that :meth:`to_json` wrote."""
        fields: Mapping[str, Any] = value
        strategy = str(fields["strategy"])
        work = _workload(strategy, fields["workload"])
        consumers = tuple(
            FusedConsumer(
                cast(ConsumerWork, _workload(fused["strategy"], fused["workload"])),
                int(fused["operand"]),
            )
            for fused in fields["fused"]
        )
        kernels = tuple(Kernel.from_json(kernel) for kernel in fields["kernels"])
        off = tuple(str(name) for name in fields.get("without_rewrites", ()))
        return cls(strategy, work, kernels, consumers, off)

    @property
    def cycles(self) -> float:
        """Estimated cycles of all kernels."""
        return sum(kernel.choice.cycles for kernel in self.kernels)

    @property
    def text(self) -> str:
        """The schedule in one line."""
        kernels = "; ".join(kernel.text for kernel in self.kernels)
        return f"{self.layer_text}, {kernels}, {self.cycles:,.0f} cycles by estimate"

    @property
    def layer_text(self) -> str:
        """What is computed, in short."""
        fused = "".join(f"+{each.strategy}" for each in self.fused)
        shapes = ["x".join(map(str, shape)) for shape in self.work.in_shapes]
        out = "x".join(map(str, self.work.out_shape))
        return f"{self.strategy}{fused} {', '.join(shapes)} to {out}"

    def changed(
        self,
        kernel: int = 0,
        *,
        order: str | None = None,
        slots: tuple[int, int, int] | None = None,
        **sizes: int,
    ) -> Schedule:
        """With another loop order, slots or tile sizes of kernel number ``kernel``."""
        old = self.kernels[kernel].choice
        choice = Choice({**old.tile, **sizes}, order or old.variant, slots or old.slots, old.cycles)
        return self.with_kernel(kernel, dataclasses.replace(self.kernels[kernel], choice=choice))

    def with_kernel(self, number: int, kernel: Kernel) -> Schedule:
        """With another kernel number ``number``."""
        kernels = (*self.kernels[:number], kernel, *self.kernels[number + 1 :])
        return dataclasses.replace(self, kernels=kernels)

    def computation(self, origin: str = ESTIMATE) -> Computation:
        """What is computed, with these kernels."""
        chosen = Chosen(self.kernels, origin)
        return Computation(STRATEGIES[self.strategy], self.work, self.fused, chosen=chosen)

    def spaces(self, config: VTAConfig) -> tuple[KernelSpace, ...]:
        """What each kernel could be; VTAError where the machine cannot compute the layer so."""
        return STRATEGIES[self.strategy].spaces(LayerWork(self.work, self.fused), config)

    def check(self, config: VTAConfig, what: str) -> None:
        """Refuse kernels that the tile space does not have, or that do not fit SRAM.

        Raises:
            VTAError: beginning with ``what``; value, limit, next step.
        """
        spaces = self.spaces(config)
        if len(spaces) != len(self.kernels):
            raise VTAError(
                f"{what} has {len(self.kernels)} kernels; {self.layer_text} has {len(spaces)}; "
                "take all of them from one schedule of this layer"
            )
        for number, (kernel, space) in enumerate(zip(self.kernels, spaces, strict=True)):
            where = f"{what}, kernel {number}" if len(spaces) > 1 else what
            _check_kernel(kernel, space, config, where)


def _workload(strategy: str, value: object) -> Workload:
    return from_json(STRATEGIES[strategy].workload, json.dumps(value))


def _check_kernel(kernel: Kernel, spaces: KernelSpace, config: VTAConfig, what: str) -> None:
    space, choice = spaces.of(kernel), kernel.choice
    if space is None:
        joined = [str(group.joined) for group, _ in spaces.candidates if group is not None]
        mine = kernel.grouping.joined if kernel.grouping else "no"
        raise VTAError(
            f"{what} joins {mine} groups; this layer can join {', '.join(joined) or 'none'}; "
            "choose one"
        )
    if set(choice.tile) != set(space.axes):
        raise VTAError(
            f"{what} has sizes of {', '.join(choice.tile)}; the axes of {space.what} are "
            f"{', '.join(space.axes)}; give a size for each of them"
        )
    for axis, size in choice.tile.items():
        if size not in space.axes[axis]:
            raise VTAError(
                f"{what} has {axis}={size}; the sizes of {axis} are "
                f"{', '.join(map(str, space.axes[axis]))}; choose one"
            )
    if choice.variant not in space.variants:
        raise VTAError(
            f"{what} has the order {choice.variant!r}; orders of {space.what} are "
            f"{', '.join(space.variants)}; choose one"
        )
    for memory, slots in zip(MEMORIES, choice.slots, strict=True):
        if not 1 <= slots <= MOST_SLOTS:
            raise VTAError(
                f"{what} has {slots} slots of {memory.upper()}; a tile has 1 to {MOST_SLOTS}; "
                "choose 1 or 2"
            )
    _check_fits(choice, space, config, what)


def _check_fits(choice: Choice, space: Space, config: VTAConfig, what: str) -> None:
    tile = {name: np.array([size]) for name, size in choice.tile.items()}
    used = needs(space.demand(tile, choice.variant), choice.slots)
    for memory, need, have in zip(MEMORIES, used, depths(config), strict=True):
        count = int(np.max(need))
        if count > have:
            raise VTAError(
                f"{what} needs {count} {memory.upper()} elements; machine {config.name} has "
                f"{have}; choose a smaller tile or fewer slots"
            )
    if not np.all(space.legal(tile, choice.variant)):
        sizes = " ".join(f"{axis}={size}" for axis, size in choice.tile.items())
        raise VTAError(
            f"{what} has {choice.variant}: {sizes}; {space.what} does not allow these sizes "
            "together; choose among the candidates of `vta_byoc.tune.candidates`"
        )


# ---------------------------------------------------------------- of a module
def layer_steps(mod: tvm.IRModule) -> dict[str, tuple[str, RegionStep]]:
    """Region and step of each layer of a partitioned module, by the layer's name in reports.

    Layers of one name in several regions have their results as names.
    """
    steps = [
        (region.layer_name(step), call.name, step)
        for call in region_calls(mod).values()
        for region in [Region.of(call.func)]
        for step in region.steps
    ]
    count = Counter(name for name, _, _ in steps)
    return {
        name if count[name] == 1 else step.output: (region, step) for name, region, step in steps
    }


def schedules_of(mod: tvm.IRModule, config: VTAConfig) -> dict[str, Schedule]:
    """The schedules of a partitioned module, by layer."""
    steps = {name: step for name, (_, step) in layer_steps(mod).items()}
    return {name: Schedule.of(step.computation(mod), config) for name, step in steps.items()}


def same_layer(first: Schedule, second: Schedule) -> str:
    """How what two schedules compute differs, "" where it is the same."""
    return _difference(first.computed(), second.computed())


def _difference(mine: object, other: object, path: Sequence[str] = ()) -> str:
    if isinstance(mine, dict) and isinstance(other, dict):
        for name in dict.fromkeys([*mine, *other]):
            found = _difference(mine.get(name), other.get(name), (*path, name))
            if found:
                return found
        return ""
    if mine == other:
        return ""
    words = [word for word in path if word != "workload"]
    return f"{'.'.join(words)} {_short(mine)}, not {_short(other)}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
