"""A progress bar where somebody looks: in a terminal and in a notebook, and nowhere else."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[int, "int | None"], None]
"""Called with what is done, and of how much where that is known."""


@contextlib.contextmanager
def shown(
    given: Progress | None, text: str, console: Console | None = None
) -> Iterator[Progress | None]:
    """The progress of a block: `given`, or where that is None a bar if somebody looks.

    Args:
        given: what the caller of a public function wants to be called.
        text: what the bar says; it goes away with the block.
        console: where the bar is; stderr when None.

    Yields:
        What to call; None where nobody is to be told.
    """
    from rich import progress as rich
    from rich.console import Console

    place = console or Console(stderr=True)
    if given is not None or not (place.is_terminal or _has_widgets(place)):
        yield given
        return
    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=place, transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _has_widgets(place: Console) -> bool:
    """Whether `place` is a notebook with ipywidgets; Rich warns in every other instead of a bar."""
    return place.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
