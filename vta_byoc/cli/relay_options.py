"""Options of Relay models, whose weights may lie in a file of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, TypeVar

import click

PARAMS, SEED = "vta_byoc.params", "vta_byoc.random_params"
"""Keys of the click context's `meta`."""
Command = TypeVar("Command", bound=Callable[..., object])


class Chosen(TypedDict):
    """What `load_model` takes besides the model and its shapes."""

    params: str | None
    random_params: int | None


def _remember(key: str) -> Callable[..., None]:
    def remember(ctx: click.Context, _param: click.Parameter, value: object) -> None:
        ctx.meta[key] = value

    return remember


_params = click.option(
    "--params",
    metavar="FILE",
    expose_value=False,
    callback=_remember(PARAMS),
    help="Parameters of a Relay model, as save_param_dict writes them.",
)
_random = click.option(
    "--random-params",
    type=int,
    metavar="SEED",
    expose_value=False,
    callback=_remember(SEED),
    help="Draw the weights that a Relay model lacks: for placement, cycles and tests.",
)


def options(command: Command) -> Command:
    """--params and --random-params."""
    return _params(_random(command))


def chosen() -> Chosen:
    """What the running command was given."""
    meta = click.get_current_context().meta
    return {"params": meta.get(PARAMS), "random_params": meta.get(SEED)}
