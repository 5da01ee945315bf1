"""The options that look between the stages of the compiler, for every command that compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from vta_byoc.cli import scope_mode

if TYPE_CHECKING:
    import tvm

    from vta_byoc.hw.config import VTAConfig
    from vta_byoc.options import BuildOptions

CHECK, PRINT = "vta_byoc.check_forms", "vta_byoc.print_after"
"""Keys of the click context's `meta`."""
Command = TypeVar("Command", bound=Callable[..., object])


def _remember_check(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    ctx.meta[CHECK] = wanted


def _remember_print(stages: str) -> Callable[..., None]:
    """A callback that keeps what to print.

    It refuses what is none of `pipeline`'s ``stages`` before the long work.
    """

    def remember(ctx: click.Context, _param: click.Parameter, texts: Sequence[str]) -> None:
        ctx.meta[PRINT] = tuple(texts)
        if texts:
            from vta_byoc import pipeline

            pipeline.check_print_after(texts, getattr(pipeline, stages))

    return remember


_check = click.option(
    "--check-forms",
    is_flag=True,
    expose_value=False,
    callback=_remember_check,
    help="Check after every stage that the module has the form that the stage gives.",
)


def _print(stages: str) -> Callable[[Command], Command]:
    return click.option(
        "--print-after",
        metavar="STAGE[=FILE]",
        multiple=True,
        expose_value=False,
        callback=_remember_print(stages),
        help="Show the module as TVMScript after a stage of `vta-byoc passes`, on stderr or in a "
        "file. Repeat for others.",
    )


def build_option(command: Command) -> Command:
    """Options of every command that compiles: of scopes, --print-after and --check-forms."""
    return scope_mode.scopes_option(_print("STAGES")(_check(command)))


def partition_option(command: Command) -> Command:
    """The same for commands that end with partitioning."""
    return scope_mode.scopes_option(_print("PARTITION")(_check(command)))


def check_files() -> None:
    """Refuse files of --print-after that cannot be written, before the long work."""
    from vta_byoc.cli import files

    for text in click.get_current_context().meta.get(PRINT, ()):
        _, separator, file = text.partition("=")
        if separator:
            files.check_writable(Path(file))


def chosen(
    config: VTAConfig, device: str = "sim", target: tvm.target.Target | None = None
) -> BuildOptions:
    """What the running command was given, as one value."""
    from vta_byoc.options import BuildOptions

    meta = click.get_current_context().meta
    looks = {"check_forms": meta[CHECK], "print_after": meta[PRINT]}
    return BuildOptions(config, device, target, **scope_mode.chosen(), **looks)
