"""Plug-ins on the command line: `--plugin` and `vta-byoc plugins`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say
from vta_byoc.hw.errors import VTAWarning
from vta_byoc.hw.plugins import load_installed, load_named

Command = TypeVar("Command", bound=Callable[..., object])
ASKED = "vta_byoc.plugins"
"""Key of the click context's `meta`: the plug-ins that were asked for by name."""


def _load_asked(ctx: click.Context, _param: click.Parameter, names: Sequence[str]) -> None:
    if ctx.parent is None:
        ctx.meta[ASKED] = tuple(names)  # loaded where errors have become lines: `load`
        return
    for name in names:
        load_named(name)


def option() -> Callable[[Command], Command]:
    """The option --plugin, for the application and for each command."""
    return click.option(
        "--plugin",
        metavar="MODULE",
        multiple=True,
        is_eager=True,  # before options whose values plug-ins add to
        expose_value=False,
        callback=_load_asked,
        help="Load a plug-in first: a module, module:function, or a .py file; repeat for more.",
    )


def load(ctx: click.Context) -> None:
    """Load the plug-ins that are installed, and those that stood before the command.

    Raises:
        VTAError: one that was asked for by name cannot be loaded.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", VTAWarning)
        load_installed()
    for each in caught:
        say(f"warning: {each.message}", err=True)
    for name in ctx.meta.get(ASKED, ()):
        load_named(name)


@click.command(short_help="What plug-ins have registered.")
@click.option("--all", "everything", is_flag=True, help="List what is built in, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
def plugins(everything: bool, as_json: bool) -> None:
    """List what plug-ins have registered: kind, name, and the distribution or module it is from.

    Installed plug-ins are those of the entry-point group vta_byoc.plugins.

    \b
    Examples:
      vta-byoc plugins
      vta-byoc plugins --plugin my_ops.py --json
    """
    from vta_byoc.extend.tables import rows, table

    if as_json:
        found = rows(builtin=everything)
        keys = ("kind", "name", "by")
        listed = [dict(zip(keys, row, strict=True)) for row in found]
        say(json.dumps({"registered": listed}, indent=2))
        return
    say(table(builtin=everything) or "nothing is registered by plug-ins\n", nl=False)
