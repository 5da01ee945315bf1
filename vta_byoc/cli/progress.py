"""Timed steps, shown on stderr while they run; the console of the result."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.status import Status
from rich.text import Text

from vta_byoc.cli.consoles import console, stdout_console
from vta_byoc.hw.printable import printable

__all__ = ["Steps", "stdout_console"]


class Steps:
    """Runs named steps one after the other; stdout stays free for the result.

    On a terminal the step that runs is a line with a spinner, which disappears; otherwise it is
    one plain line per step.

    Attributes:
        seconds: wall-clock time of every step that is done, by name.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._console = console(stderr=True)
        self._status: Status | None = None

    @contextlib.contextmanager
    def step(self, name: str, text: str) -> Iterator[None]:
        """Time the block as `name` and show `text` while it runs."""
        # TVM and its importers print now and then.
        with self._shown(text), contextlib.redirect_stdout(sys.stderr):
            begin = time.perf_counter()
            yield
            self.seconds[name] = time.perf_counter() - begin

    @contextlib.contextmanager
    def counted(self, name: str, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """As `step`, with a bar on a terminal; the block calls its target with what is done."""
        text = printable(text)
        columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
        hidden = not self._console.is_terminal
        if hidden:
            self._console.print(text, soft_wrap=True)
        bar = Progress(
            *columns, TimeRemainingColumn(), console=self._console, transient=True, disable=hidden
        )
        task = bar.add_task(text, total=total)
        with bar, contextlib.redirect_stdout(sys.stderr):
            begin = time.perf_counter()
            yield lambda done: bar.update(task, completed=done)
            self.seconds[name] = time.perf_counter() - begin

    def detail(self, text: str) -> None:
        """Say more about the step that runs; a terminal only."""
        if self._status is not None:
            self._status.update(Text(printable(text)))

    @contextlib.contextmanager
    def _shown(self, text: str) -> Iterator[None]:
        if not self._console.is_terminal:
            self._console.print(text, soft_wrap=True)
            yield
            return
        with self._console.status(Text(printable(text))) as self._status:
            yield
        self._status = None
