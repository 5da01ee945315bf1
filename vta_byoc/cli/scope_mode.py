"""The option that says where tensors between layers may live, for every command that compiles."""

from __future__ import annotations

import click

CHOSEN = "vta_byoc.scopes"
"""Key of the click context's `meta`."""
MODES = ("on", "dram", "off")


def _remember(ctx: click.Context, _param: click.Parameter, mode: str) -> None:
    ctx.meta[CHOSEN] = mode


scopes_option = click.option(
    "--scopes",
    type=click.Choice(MODES),
    default=MODES[0],
    show_default=True,
    expose_value=False,
    callback=_remember,
    help="Where tensors between layers live: on: where their consumers want them; dram: as on, but "
    "none on chip; off: plain, the host packs and unpacks for every layer.",
)


def chosen() -> str:
    """The mode of the running command."""
    return str(click.get_current_context().meta[CHOSEN])
