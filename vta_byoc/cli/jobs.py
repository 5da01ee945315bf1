"""Options of the commands whose work is many independent jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])
MOST_WORKERS = 256


def job_options(default: str) -> Callable[[Command], Command]:
    """Add --scheduler and --workers; `default` says what is without them."""
    scheduler = click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="A Dask scheduler whose workers do it (extra dask), such as tcp://10.0.0.1:8786.",
    )
    workers = click.option(
        "--workers",
        type=click.IntRange(1, MOST_WORKERS),
        metavar="N",
        help=f"Processes of this computer. Default: {default}.",
    )
    return lambda command: scheduler(workers(command))
