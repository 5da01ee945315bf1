"""The option --fix: the value of an input that is known when a model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from vta_byoc.hw.errors import VTAError

FIXED = "vta_byoc.fixed"
"""Key of the click context's `meta`: input name -> text of its value."""
Command = TypeVar("Command", bound=Callable[..., object])


def _remember(ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> None:
    ctx.meta[FIXED] = parse_fixed(values)


fix_option = click.option(
    "--fix",
    "fixed",
    multiple=True,
    metavar="NAME=VALUE",
    expose_value=False,
    callback=_remember,
    help="Value of an ONNX input of one number, which becomes a constant; repeat for more inputs.",
)


def parse_fixed(values: Sequence[str]) -> dict[str, str]:
    """`NAME=16000`, repeated, as input name -> text of its value.

    Raises:
        VTAError: no such text, or a name that is given twice.
    """
    fixed: dict[str, str] = {}
    for value in values:
        name, _, text = value.rpartition("=")
        if not name or not text.strip():
            raise VTAError(
                f'--fix "{value}" is not NAME=VALUE; values are numbers, true or false; '
                "write for example --fix rate=16000"
            )
        if name in fixed:
            raise VTAError(f'--fix names "{name}" twice; give every input one value')
        fixed[name] = text
    return fixed


def chosen() -> dict[str, str]:
    """What the running command was given."""
    found: dict[str, str] = click.get_current_context().meta.get(FIXED, {})
    return found
