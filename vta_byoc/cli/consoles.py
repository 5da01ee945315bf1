"""Where commands print: text of a model is shown as it is, never obeyed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import IO, NoReturn

import click
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.segment import Segment

from vta_byoc.hw.printable import printable

PIPE_WIDTH = 110
"""Columns of a report that goes to a file or a pipe."""


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print plain text."""
    click.echo(printable(text), err=err, nl=nl)


class _Harmless:
    """A renderable whose text has no control characters left."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._content, options):
            yield Segment(text if control else printable(text), style, control)


class _Wrapping(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Harmless(each) for each in renderables]


class _Console(Console):
    """A console that leaves a closed pipe to `app`."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def console(
    *, width: int | None = None, file: IO[str] | None = None, stderr: bool = False
) -> Console:
    """A console that obeys neither markup, nor names of emoji, nor escapes in what it prints."""
    made = _Console(
        width=width, file=file, stderr=stderr, highlight=False, markup=False, emoji=False
    )
    made.push_render_hook(_Wrapping())
    return made


def stdout_console() -> Console:
    """Stdout; as wide as the terminal, or PIPE_WIDTH."""
    made = console()
    if not made.is_terminal and shutil.get_terminal_size((0, 0)).columns == 0:
        made = console(width=PIPE_WIDTH, file=sys.stdout)
    return made


__all__: Sequence[str] = ("console", "say", "stdout_console")
