"""Options of every command that compiles: where tensors may live, how layers are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, TypeVar

import click

from vta_byoc.base.rewrites import check_rewrites
from vta_byoc.cost.objective import (
    BOTH,
    CYCLES,
    DEFAULT,
    NAMED,
    OBJECTIVES,
    TOLERANCE,
    Objective,
)

if TYPE_CHECKING:
    from vta_byoc.tuning.schedules import Schedules

MODE, DEMANDS, SCHEDULES = "vta_byoc.scopes", "vta_byoc.demands", "vta_byoc.schedules"
REWRITES, EXACT_CHOICE = "vta_byoc.without_rewrites", "vta_byoc.exact_choice"
OBJECTIVE, BYTES_WEIGHT = "vta_byoc.objective", "vta_byoc.bytes_weight"
CYCLES_LIMIT = "vta_byoc.cycles_limit"
"""Keys of the click context's `meta`."""
ONLY, EXCLUDE = "vta_byoc.only", "vta_byoc.exclude"
MODES = ("on", "dram", "off")
MOST_TIMED = 1000
"""Tilings of a layer for --exact-choice."""
Command = TypeVar("Command", bound=Callable[..., object])


def _remember_mode(ctx: click.Context, _param: click.Parameter, mode: str) -> None:
    ctx.meta[MODE] = mode


def _remember_demands(ctx: click.Context, _param: click.Parameter, texts: Sequence[str]) -> None:
    ctx.meta[DEMANDS] = parse_demands(texts)


def _remember_schedules(ctx: click.Context, _param: click.Parameter, path: str | None) -> None:
    ctx.meta[SCHEDULES] = path


def _remember_rewrites(ctx: click.Context, _param: click.Parameter, names: Sequence[str]) -> None:
    check_rewrites(names)
    ctx.meta[REWRITES] = tuple(names)


def _remember_selectors(key: str) -> Callable[..., None]:
    """A callback that keeps the selectors of --only or --exclude."""

    def remember(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> None:
        from vta_byoc.ir.selection import parse_selectors

        found = tuple(each for text in texts for each in parse_selectors(text))
        if texts and not found:
            raise click.BadParameter(
                f"{', '.join(map(repr, texts))} selects no operator; give names with commas "
                "between them",
                param=param,
            )
        ctx.meta[key] = found

    return remember


def parse_demands(texts: Sequence[str]) -> dict[tuple[str, str], str]:
    """(consumer, tensor) -> scope of texts CONSUMER:TENSOR=SCOPE.

    Raises:
        click.BadParameter: another form, or two scopes for one tensor of one consumer.
    """
    found: dict[tuple[str, str], str] = {}
    for text in texts:
        who, _, scope = text.partition("=")
        consumer, _, tensor = who.partition(":")
        if not (consumer and tensor and scope):
            raise click.BadParameter(
                f"{text!r} is not CONSUMER:TENSOR=SCOPE; write two results as `vta-byoc scopes` "
                "lists them and a scope, as in add:conv2=global.vta.inp"
            )
        before = found.setdefault((consumer, tensor), scope)
        if before != scope:
            raise click.BadParameter(
                f'"{consumer}" is to have "{tensor}" in {before} and in {scope}; need one scope, '
                "have two; drop one of the demands"
            )
    return found


_scopes = click.option(
    "--scopes",
    type=click.Choice(MODES),
    default=MODES[0],
    show_default=True,
    expose_value=False,
    callback=_remember_mode,
    help="Where tensors between layers live: on: where their consumers want them; dram: as on, but "
    "none on chip; off: plain, the host packs and unpacks for every layer.",
)
_demand = click.option(
    "--demand",
    "demands",
    metavar="CONSUMER:TENSOR=SCOPE",
    multiple=True,
    expose_value=False,
    callback=_remember_demands,
    help="Where an operator is to have an operand, whatever it costs: local.acc_buffer (in its "
    "producer's tiles) or the DRAM scope that `vta-byoc scopes` names. Repeat for others.",
)


_schedules = click.option(
    "--schedules",
    metavar="LOG",
    expose_value=False,
    callback=_remember_schedules,
    help="A tuning log that `vta-byoc tune` wrote: the tiles of layers that it has are taken from "
    "there.",
)


_rewrites = click.option(
    "--without-rewrite",
    "without_rewrites",
    metavar="NAME",
    multiple=True,
    expose_value=False,
    callback=_remember_rewrites,
    help="Compile without an exact rewrite, to find the one that is at fault: the results are the "
    "same in more cycles. Repeat for others.",
)


def _remembered(key: str) -> Callable[..., None]:
    """A callback that keeps the value of an option."""

    def remember(ctx: click.Context, _param: click.Parameter, value: object) -> None:
        ctx.meta[key] = value

    return remember


_objective = click.option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    expose_value=False,
    callback=_remembered(OBJECTIVE),
    default=DEFAULT.name,
    show_default=True,
    help="What the choice of tiles makes small: cycles (and of tiles within "
    f"{TOLERANCE:.0%} of the fewest the fewest DRAM bytes), DRAM bytes, or both by --bytes-weight.",
)
_bytes_weight = click.option(
    "--bytes-weight",
    type=click.FloatRange(0, 1),
    expose_value=False,
    callback=_remembered(BYTES_WEIGHT),
    help=f"The share of DRAM bytes in --objective both; cycles have the rest. "
    f"[default: {NAMED[BOTH].bytes_weight}]",
)
_cycles_limit = click.option(
    "--cycles-limit",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    expose_value=False,
    callback=_remembered(CYCLES_LIMIT),
    help="With --objective both or dram-bytes: only tiles that take at most that much more cycles "
    f"than the fewest. [default: {NAMED[BOTH].cycles_limit:.0%} with both, none with dram-bytes]",
)
_exact_choice = click.option(
    "--exact-choice",
    metavar="N",
    type=click.IntRange(0, MOST_TIMED),
    default=0,
    show_default=True,
    expose_value=False,
    callback=_remembered(EXACT_CHOICE),
    help="Time so many tilings of each layer by the timing simulator, cheapest by estimate first, "
    "and take the best by the objective.",
)


def _selection(option: str, key: str, says: str) -> Callable[[Command], Command]:
    return click.option(
        option,
        multiple=True,
        metavar="NAME,...",
        expose_value=False,
        callback=_remember_selectors(key),
        help=f"{says}: names, patterns (*, ?), ranges (FIRST..LAST) or kinds (@conv2d); repeat or "
        "separate by commas.",
    )


_only = _selection("--only", ONLY, "Operators that VTA may compute, instead of all")
_exclude = _selection("--exclude", EXCLUDE, "Operators that the CPU is to compute")


def _aimed(command: Command) -> Command:
    """The options of how tiles are chosen."""
    return _objective(_bytes_weight(_cycles_limit(_exact_choice(command))))


def placement_options(command: Command) -> Command:
    """--scopes, --demand, --only, --exclude and --without-rewrite."""
    return _scopes(_demand(_only(_exclude(_rewrites(command)))))


def scopes_option(command: Command) -> Command:
    """What `placement_options` adds, --schedules and how tiles are chosen."""
    return placement_options(_schedules(_aimed(command)))


class PlacementOptions(TypedDict):
    """Fields of :class:`vta_byoc.options.BuildOptions`."""

    scopes: str
    demands: dict[tuple[str, str], str]
    schedules: Schedules | None
    without_rewrites: tuple[str, ...]
    only: tuple[str, ...]
    exclude: tuple[str, ...]
    objective: Objective
    exact_choice: int


def _chosen_objective(name: str, weight: float | None, limit: float | None) -> Objective:
    """The objective of --objective, --bytes-weight and --cycles-limit.

    Raises:
        click.UsageError: a weight or a limit that the objective does not read.
    """
    if weight is not None and name != BOTH:
        raise click.UsageError(
            f"--bytes-weight {weight} with --objective {name}; it is read with --objective {BOTH}; "
            "give that or leave the weight out"
        )
    if limit is not None and name == CYCLES:
        raise click.UsageError(
            f"--cycles-limit {limit} with --objective {name}; it is read with another one; give "
            "that or leave the limit out"
        )
    aim = NAMED[name]
    return replace(
        aim,
        bytes_weight=aim.bytes_weight if weight is None else weight,
        cycles_limit=aim.cycles_limit if limit is None else limit / 100,
    )


def chosen() -> PlacementOptions:
    """What the running command was given, as fields of `BuildOptions`."""
    from vta_byoc.tuning.schedules import Schedules

    meta = click.get_current_context().meta
    path = meta.get(SCHEDULES)
    schedules = None if path is None else Schedules.read(path)
    return {
        "scopes": meta[MODE],
        "demands": meta[DEMANDS],
        "schedules": schedules,
        "without_rewrites": meta[REWRITES],
        "only": meta[ONLY],
        "exclude": meta[EXCLUDE],
        "objective": _chosen_objective(
            meta.get(OBJECTIVE, DEFAULT.name), meta.get(BYTES_WEIGHT), meta.get(CYCLES_LIMIT)
        ),
        "exact_choice": meta.get(EXACT_CHOICE, 0),
    }
