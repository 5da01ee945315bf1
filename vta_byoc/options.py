"""What the user asks of the compiler, in one value that travels through the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm

from vta_byoc.base.rewrites import check_rewrites
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.devices import driver as driver_of
from vta_byoc.hw.sim.target import scope_config
from vta_byoc.ir.selection import Selectors, as_selectors
from vta_byoc.passes.demands import Demands
from vta_byoc.tuning.schedules import Schedules

ON, DRAM_ONLY, OFF = SCOPE_MODES = ("on", "dram", "off")
"""Where tensors between layers may live: in any scope, tiles on chip too; in the DRAM scopes of
regions; or in ``global``, plain, each layer a region of its own between host copies."""


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

    Raises:
        VTAError: no such device, mode or rewrite, demands in a mode that does not read them, or
            schedules of another machine.
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

    def __post_init__(self) -> None:
        driver_of(self.device)
        check_scopes(self.scopes, self.demands)
        check_rewrites(self.without_rewrites)
        for name in ("only", "exclude"):
            object.__setattr__(self, name, as_selectors(getattr(self, name)))
        if self.schedules is not None:
            self.schedules.check(self.config)


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
