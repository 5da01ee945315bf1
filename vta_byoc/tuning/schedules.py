"""The schedules that a compilation is given: those of a tuning log, and pins of layers by name.

All stages that choose a schedule ask one :class:`Schedules`, which is given to them; there is none
that is global.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tvm

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.legality import PLACED
from vta_byoc.ir.names import JOINT, operators_of
from vta_byoc.ir.selection import Operators, is_plain
from vta_byoc.ir.stage import Stage
from vta_byoc.partitioning.placement import placed_operators
from vta_byoc.partitioning.region import Region, region_calls
from vta_byoc.strategies.te.kernel import ESTIMATE, LOG, PIN, Chosen
from vta_byoc.strategy import Computation
from vta_byoc.tuning.log import Entry, check_machine, read_log
from vta_byoc.tuning.schedule import Schedule, same_layer

CHECK_SCHEDULES = Stage("CheckSchedules", PLACED, PLACED, "refuses schedules that no layer took")


@dataclass(frozen=True)
class SelectedPin:
    """A pin of the layers that a selector chooses.

    Attributes:
        selector: as it was given.
        schedule: of all of them.
        operators: the operators that each part of the selector chooses; `+` stands between parts.
    """

    selector: str
    schedule: Schedule
    operators: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, selector: str, schedule: Schedule, operators: Operators) -> SelectedPin:
        """The pin of what ``selector`` chooses among ``operators``."""
        purpose = "of a pinned schedule"
        chosen = [operators.select([part], purpose) for part in selector.split(JOINT)]
        return cls(selector, schedule, tuple(map(frozenset, chosen)))

    @property
    def what(self) -> str:
        """What it is called in errors."""
        return f'pin of layers "{self.selector}"'

    def takes(self, layer: str) -> bool:
        """Whether it is of the layer of that name."""
        own = operators_of(layer)
        return len(own) == len(self.operators) and all(
            name in chosen for name, chosen in zip(own, self.operators, strict=True)
        )

    def check_met(self, layers: Mapping[str, Computation], config: VTAConfig) -> None:
        """Refuse it where no layer took it."""
        own = {name: layer for name, layer in layers.items() if self.takes(name)}
        if not own:
            raise VTAError(
                f"{self.what}: VTA computes no such layer; layers are {_listed(layers)}; select "
                "some of them, fused operators with + between them"
            )
        kernels = self.schedule.kernels
        if not any(c.is_pinned and c.chosen and c.chosen.kernels == kernels for c in own.values()):
            text = Schedule.of(next(iter(own.values())), config).layer_text
            raise VTAError(
                f"{self.what} is not met: it is of {self.schedule.layer_text}, which none of "
                f"{_listed(own)} is, the first is {text}; pin a schedule of one of these layers"
            )


def _is_name(pinned: str) -> bool:
    """Whether a pin is of one layer by its name."""
    return all(map(is_plain, pinned.split(JOINT)))


def _listed(layers: Collection[str]) -> str:
    return ", ".join(list(layers)[:8]) or "none"


@dataclass(frozen=True)
class Schedules:
    """Schedules by layer, and by what a layer computes.

    Attributes:
        entries: of a tuning log.
        pins: by the layer's name, as reports have it, or by selectors of operators with `+` between
            them where layers are fused; they overrule the log. A name overrules a selector, which
            pins those of its layers that compute the same as its schedule.
        path: of the log, for errors.
        selected: the pins by selectors, once the operators of a module are known (`in_module`).
    """

    entries: tuple[Entry, ...] = ()
    pins: Mapping[str, Schedule] = field(default_factory=dict)
    path: str = ""
    selected: tuple[SelectedPin, ...] = ()

    @classmethod
    def read(cls, path: str | Path, pins: Mapping[str, Schedule] | None = None) -> Schedules:
        """Those of a tuning log, and ``pins``.

        Raises:
            VTAError: the log cannot be read, is damaged or of another version.
        """
        return cls(read_log(path), dict(pins or {}), str(path))

    def in_module(self, mod: tvm.IRModule) -> Schedules:
        """The same, with the operators of a marked module that the pins' selectors choose.

        Raises:
            VTAError: a selector that chooses none.
        """
        patterns = {text: pin for text, pin in self.pins.items() if not _is_name(text)}
        if not patterns or self.selected:
            return self
        operators = placed_operators(mod)
        selected = tuple(
            SelectedPin.of(text, schedule, operators) for text, schedule in patterns.items()
        )
        return dataclasses.replace(self, selected=selected)

    def check(self, config: VTAConfig) -> None:
        """Refuse entries of another machine."""
        for entry in self.entries:
            check_machine(entry, config, self._line(entry))

    def find(
        self, names: Collection[str], computation: Computation, config: VTAConfig
    ) -> Chosen | None:
        """The kernels of a layer that has ``names``; None where the strategy is to choose.

        Raises:
            VTAError: they are of another layer, or illegal.
        """
        layer = Schedule.of(computation.by_estimate(config), config)
        for name in names:
            for what, pin in self._pinned(name):
                if len(pin.fused) == len(layer.fused):
                    self._check_same(pin, layer, what, name)
                    pin.check(config, what)
                    return Chosen(pin.kernels, PIN)
        for selected in self.selected:
            if any(map(selected.takes, names)) and not same_layer(selected.schedule, layer):
                selected.schedule.check(config, selected.what)
                return Chosen(selected.schedule.kernels, PIN)
        entry = self._by_key.get(layer.key)
        if entry is None:
            return None
        self._check_entry(entry, layer, config)
        return Chosen(entry.schedule.kernels, LOG)

    def names(self) -> dict[str, str]:
        """The names of pinned layers, and what pins each."""
        named = {e.layer: self._line(e) for e in self.entries if e.layer}
        return named | {name: f'pin of layer "{name}"' for name in self.pins if _is_name(name)}

    @property
    def _by_key(self) -> dict[str, Entry]:
        return {e.schedule.key: e for e in self.entries if not e.layer}

    def _pinned(self, name: str) -> list[tuple[str, Schedule]]:
        if name in self.pins:
            return [(f'pin of layer "{name}"', self.pins[name])]
        return [(self._line(e), e.schedule) for e in self.entries if e.layer == name]

    def _line(self, entry: Entry) -> str:
        whose = f' (layer "{entry.layer}")' if entry.layer else ""
        return f'tuning log "{self.path}", line {entry.number}{whose}'

    @staticmethod
    def _check_same(pin: Schedule, layer: Schedule, what: str, name: str) -> None:
        difference = same_layer(pin, layer)
        if difference:
            raise VTAError(
                f'{what} is of another layer: {difference} as layer "{name}" has; take the '
                "schedule of this layer, as `vta-byoc tune` writes it"
            )

    def _check_entry(self, entry: Entry, layer: Schedule, config: VTAConfig) -> None:
        what = self._line(entry)
        entry.schedule.check(config, what)
        for mine, default in zip(entry.schedule.kernels, layer.kernels, strict=True):
            if mine.grouping != default.grouping:
                assert mine.grouping is not None and default.grouping is not None
                raise VTAError(
                    f"{what} joins {mine.grouping.joined} groups; a line of no layer joins "
                    f"{default.grouping.joined}, as without it; name the layer"
                )


def chosen_for(
    schedules: Schedules | None,
    names: Collection[str],
    computation: Computation,
    config: VTAConfig,
) -> Computation:
    """``computation`` with its kernels: those of ``schedules``, or the best by estimate."""
    found = schedules.find(names, computation, config) if schedules else None
    if found is None:
        return computation.by_estimate(config)
    return dataclasses.replace(computation, chosen=found)


def check_schedules(schedules: Schedules, config: VTAConfig) -> tvm.transform.Pass:
    """Refuse, once all layers have schedules, pins that no layer took and logs of other networks.

    Raises:
        VTAError: a name that no layer has, a pin that was not met, or a log without any entry for
            a layer of this module.
    """

    @CHECK_SCHEDULES
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        layers: dict[str, Computation] = {}
        for call in region_calls(mod).values():
            region = Region.of(call.func)
            for step in region.steps:
                layers[step.output] = layers[region.layer_name(step)] = step.computation(mod)
        for name, what in schedules.names().items():
            if name not in layers:
                raise VTAError(
                    f"{what}: there is no such layer on VTA; layers are {_listed(layers)}; name "
                    "one as `vta-byoc tune` lists them"
                )
            if not layers[name].is_pinned:
                text = Schedule.of(layers[name], config).layer_text
                raise VTAError(
                    f"{what} is not met: the layer is {text}, which no line of this name has; "
                    "pin the layer as `vta-byoc tune` lists it, fused operators included"
                )
        for selected in schedules.in_module(mod).selected:
            selected.check_met(layers, config)
        _check_used(schedules, layers.values(), config)
        return mod

    return run


def _check_used(schedules: Schedules, layers: Collection[Computation], config: VTAConfig) -> None:
    """Refuse a log whose unnamed entries fit no layer at all."""
    free = [entry for entry in schedules.entries if not entry.layer]
    if not free or any(c.chosen and c.chosen.origin != ESTIMATE for c in layers):
        return
    entry = free[0]
    what = f'tuning log "{schedules.path}": none of its {len(free)} schedules is of a layer here'
    here = [Schedule.of(computation, config) for computation in layers]
    near = [layer for layer in here if layer.strategy == entry.schedule.strategy] or here
    if not near:
        raise VTAError(f"{what}, which has none on VTA; drop the log")
    difference = same_layer(entry.schedule, near[0])
    raise VTAError(
        f"{what}; line {entry.number} has {difference} as {near[0].layer_text} has; run `vta-byoc "
        "tune` for this model"
    )
