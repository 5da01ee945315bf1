"""The option `-v`: what the stages of the compiler log, on stderr."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import click

from vta_byoc.cli.consoles import say

LOGGER = "vta_byoc"
LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
"""Without `-v`, with one, with two or more."""
_GIVEN = "vta_byoc.verbose"
"""Key of the click context's `meta`: how often `-v` was given."""
Command = TypeVar("Command", bound=Callable[..., object])


class _Lines(logging.Handler):
    """Prints each record as a line on stderr: where it comes from, and what it says."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(f"{record.name.removeprefix(f'{LOGGER}.')}: {record.getMessage()}", err=True)
        except Exception:
            self.handleError(record)


def _listen(ctx: click.Context, _param: click.Parameter, count: int) -> None:
    """Show records while the command runs; `-v` before and behind the command's name add up."""
    total = ctx.meta[_GIVEN] = ctx.meta.get(_GIVEN, 0) + count
    if not count:
        return
    logger, handler = logging.getLogger(LOGGER), _Lines()
    for known in logger.handlers:
        if isinstance(known, _Lines):
            handler = known
    before = logger.level
    logger.setLevel(LEVELS[min(total, len(LEVELS) - 1)])
    if handler not in logger.handlers:
        logger.addHandler(handler)
        ctx.call_on_close(lambda: logger.removeHandler(handler))
    ctx.call_on_close(lambda: logger.setLevel(before))


def verbose_option(command: Command) -> Command:
    """Add `-v` to a command."""
    return click.option(
        "-v",
        "--verbose",
        count=True,
        expose_value=False,
        callback=_listen,
        help="Tell on stderr how long every stage took; -vv: and every decision in it.",
    )(command)
