"""What the user asks of the compiler, in one value that travels through the pipeline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm

from vta_byoc.base.rewrites import check_rewrites, without
from vta_byoc.cost.objective import DEFAULT, Objective, aiming, objective_of
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.devices import driver as driver_of
from vta_byoc.hw.sim.target import scope_config
from vta_byoc.ir.selection import Selectors, as_selectors
from vta_byoc.ir.stage import Stage
from vta_byoc.passes.demands import Demands
from vta_byoc.passes.lower_regions import LoweredRegions
from vta_byoc.tuning.schedules import Schedules

ON, DRAM_ONLY, OFF = SCOPE_MODES = ("on", "dram", "off")
"""Where tensors between layers may live: in any scope, tiles on chip too; in the DRAM scopes of
regions; or in ``global``, plain, each layer a region of its own between host copies."""
MOST_TIMED = 1000
"""Tilings of a layer that are timed at the most."""


@dataclass(frozen=True)
class BuildOptions:
    """How a module is compiled.

    Attributes:
        config: the machine; when not given that of the target in scope, as of
            `with tvm.target.Target("vta/pynq"):`, or the preset `sim`.
        device: "sim" (functional simulator), "tsim" (with the timing model's cycles) or "null"
            (dry run: zeros, no execution).
        target: the host's TVM target; None for this machine's CPU.
        scopes: one of SCOPE_MODES.
        demands: (consumer, tensor) -> scope, besides what strategies demand; with "on" only.
        schedules: a tuning log and pins of layers, besides what strategies choose.
        only: selectors (`vta_byoc.ir.selection`) of the operators that VTA may compute, as a
            sequence or a text with commas; all of them when empty.
        exclude: selectors of those that it may not.
        check_forms: every stage checks the form of what it gives, too.
        print_after: stages after which the module is printed: ``NAME`` on stderr, ``NAME=FILE``
            into a file.
        without_rewrites: exact rewrites (`vta_byoc.base.rewrites.REWRITES`) that are not done, to
            find the one that is at fault.
        objective: what the choice of tiles makes small: "cycles", "dram-bytes" or "both", or an
            `Objective` with the share of DRAM bytes.
        exact_choice: so many tilings of each layer, those that cost least by estimate, are timed by
            the timing simulator, and the best by the objective is taken; 0: estimates choose.

    Raises:
        VTAError: no such device, mode, rewrite or objective, demands in a mode that does not read
            them, a number of tilings that cannot be timed, or schedules of another machine.
    """

    config: VTAConfig = field(default_factory=scope_config)
    device: str = "sim"
    target: tvm.target.Target | None = None
    scopes: str = ON
    demands: Demands = field(default_factory=dict)
    schedules: Schedules | None = None
    only: Selectors = ()
    exclude: Selectors = ()
    check_forms: bool = False
    print_after: tuple[str, ...] = ()
    without_rewrites: tuple[str, ...] = ()
    objective: Objective | str = DEFAULT
    exact_choice: int = 0

    def __post_init__(self) -> None:
        driver_of(self.device)
        check_scopes(self.scopes, self.demands)
        check_rewrites(self.without_rewrites)
        object.__setattr__(self, "objective", objective_of(self.objective))
        check_exact_choice(self.exact_choice)
        for name in ("only", "exclude"):
            object.__setattr__(self, name, as_selectors(getattr(self, name)))
        if self.schedules is not None:
            self.schedules.check(self.config)

    @property
    def sets(self) -> bool:
        """Whether `settings` are others than those of a compilation without options."""
        return bool(self.without_rewrites) or self.objective != DEFAULT

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """What stages, strategies and estimates ask without being told: rewrites, objective."""
        with without(self.without_rewrites), aiming(objective_of(self.objective)):
            yield


def check_exact_choice(count: int) -> None:
    """Refuse a number of tilings that cannot be timed."""
    if not 0 <= count <= MOST_TIMED:
        raise VTAError(
            f"{count} tilings of a layer to time; 0 to {MOST_TIMED} are taken; give another number"
        )


def check_scopes(scopes: str, demands: Demands | None = None) -> None:
    """Refuse a mode that does not exist, and demands in a mode that does not read them."""
    if scopes not in SCOPE_MODES:
        raise VTAError(
            f"scopes {scopes!r} is no scope mode; known: {', '.join(SCOPE_MODES)}; choose one"
        )
    if demands and scopes != ON:
        consumer, tensor = next(iter(demands))
        raise VTAError(
            f"a demand of {consumer!r} for {tensor!r} with scopes {scopes!r}; demands are read "
            f"with scopes {ON!r}; leave one of the two out"
        )


def build_options(options: BuildOptions | None, keywords: Mapping[str, Any]) -> BuildOptions:
    """The options of a public function that takes them as one value or as keywords.

    Args:
        options: the one value, or None.
        keywords: fields of BuildOptions; None where the default is meant.

    Raises:
        VTAError: both are given, or a value that BuildOptions refuses.
    """
    default = BuildOptions()
    given = {
        name: value
        for name, value in keywords.items()
        if value is not None and value != getattr(default, name)
    }
    if options is None:
        return BuildOptions(**given)
    if given:
        raise VTAError(
            f"options and {', '.join(given)} are given; need one of the two; put "
            f"{'it' if len(given) == 1 else 'them'} into BuildOptions"
        )
    return options


@dataclass(frozen=True)
class When:
    """With which options a stage runs, in words and as a function of them."""

    says: str
    holds: Callable[[BuildOptions], bool]


ALWAYS = When("always", lambda _options: True)
WITH_SCHEDULES = When("with schedules", lambda options: options.schedules is not None)
SHARING_ON = When('scopes "on"', lambda options: options.scopes == ON)


@dataclass(frozen=True)
class Planned:
    """A stage of the pipeline: how options make its pass, and when it runs.

    What ``make`` compiles goes into the record that it is given.
    """

    stage: Stage
    make: Callable[[BuildOptions, LoweredRegions], tvm.transform.Pass]
    when: When = ALWAYS

    @property
    def name(self) -> str:
        """The name of the stage."""
        return self.stage.name
