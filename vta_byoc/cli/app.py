"""The `vta-byoc` application: its commands, and how errors become one line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import click

import vta_byoc
from vta_byoc import _interrupt
from vta_byoc.base.torch_later import import_torch_later
from vta_byoc.cli import (
    commands,
    compare,
    device_server,
    diff,
    eval,
    explore,
    generate,
    inspect,
    library,
    listings,
    passes,
    pictures,
    place,
    plugins,
    program_files,
    quantization_report,
    rtl,
    run,
    scopes,
    tune,
)
from vta_byoc.cli.consoles import say
from vta_byoc.cli.files import NO_ROOM
from vta_byoc.hw.errors import VTAError

OK, CHECK_FAILED, USER_ERROR, BUG, INTERRUPTED = 0, 1, 2, 3, _interrupt.INTERRUPTED
"""Exit codes; `commands` raises CHECK_FAILED through `click.Context.exit`."""
ExitCode = int | str | None
"""What `sys.exit` takes."""
READER_GONE = 141
"""What a shell says of a program that SIGPIPE ended, as in `vta-byoc ... | head`."""


class Application(click.Group):
    """A group whose commands end in one line on stderr instead of a traceback."""

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = "vta-byoc",
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and exit; `standalone_mode=False` raises usage errors and returns the code."""
        if not standalone_mode:
            return super().main(args, prog_name, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, standalone_mode=False, **extra)
        except click.Abort:
            code = _failed("interrupted", INTERRUPTED)
        except click.ClickException as error:
            code = _failed(_usage_line(error), USER_ERROR)
        except SystemExit:  # click's answer to a closed pipe
            code = READER_GONE
        except OSError as error:  # of a page of help, which no command writes
            code = _report(error)
        sys.exit(_flushed(code))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error of ours is one line on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            if _is_closed_pipe(error):
                raise click.exceptions.Exit(READER_GONE) from None
            if ctx.meta.get(commands.DEBUG):
                say(traceback.format_exc(), err=True, nl=False)
            raise click.exceptions.Exit(_report(error)) from None


def _report(error: Exception) -> int:
    """Print one line about a failed command and return its exit code."""
    if isinstance(error, VTAError):
        return _failed(str(error), USER_ERROR)
    if isinstance(error, OSError):
        return _failed(_refusal(error), USER_ERROR)
    first_line = next(iter(str(error).strip().splitlines()), "no message")
    return _failed(
        f"this is a bug in vta-byoc: {type(error).__name__}: {first_line}; "
        "please report the traceback that --debug shows",
        BUG,
    )


def _refusal(error: OSError) -> str:
    """What the system refuses, of which file, and where room is missing what to do."""
    where, why = f'"{error.filename}": ' if error.filename else "", error.strerror or str(error)
    if error.errno not in NO_ROOM:
        return f"{where}{why}"
    return (
        f"{where or 'what is written finds no room: '}{why}; make room where the output goes, or "
        f'write elsewhere (temporary files go to "{tempfile.gettempdir()}", or where TMPDIR says)'
    )


def _failed(message: str, code: int) -> int:
    say(f"error: {' '.join(message.split())}", err=True)
    return code


def _is_closed_pipe(error: BaseException) -> bool:
    return isinstance(error, BrokenPipeError) or getattr(error, "errno", None) == errno.EPIPE


def _flushed(code: ExitCode) -> ExitCode:
    """`code`, or why stdout did not take the rest."""
    try:
        sys.stdout.flush()
    except OSError as error:
        code = READER_GONE if _is_closed_pipe(error) else _report(error)
    if code == READER_GONE:
        with contextlib.suppress(OSError):  # a stream of a test has no descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in (sys.stdout, sys.stderr):
                os.dup2(nowhere, stream.fileno())
    return code


def _usage_line(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    ctx = getattr(error, "ctx", None)
    return f"{message}; see {ctx.command_path} --help" if ctx else message


def _show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        python = ".".join(map(str, sys.version_info[:3]))
        tvm = version("apache-tvm")
        click.echo(f"vta-byoc {vta_byoc.__version__} (apache-tvm {tvm}, Python {python})")
        ctx.exit()


HELP = """Run ONNX, TFLite and PyTorch models on the VTA accelerator, bit for bit, without a board.

\b
Examples:
  vta-byoc run resnet18.onnx --check          import, quantize, compile, simulate, compare
  vta-byoc run resnet18.onnx --config pynq --input image.npy --json
  vta-byoc compile resnet18.onnx -o resnet18.so
  vta-byoc compile resnet18.onnx -o bundle --format bundle
  vta-byoc inspect resnet18.so
  vta-byoc place resnet18.onnx --fail-under 99
  vta-byoc scopes resnet18.onnx
  vta-byoc tune resnet18.onnx -o resnet18.jsonl
  vta-byoc eval digits.onnx --data labelled.npz
  vta-byoc generate characters.onnx --prompt "You may " --tokens 200
  vta-byoc quantize-report resnet18.onnx --calibration samples.npz -o report.html
  vta-byoc compare resnet18.onnx --against onnxruntime
  vta-byoc report resnet18.onnx -o report.html
  vta-byoc trace resnet18.onnx -o trace.json  for ui.perfetto.dev
  vta-byoc disasm resnet18.onnx --layer layer1_0_conv1
  vta-byoc verify resnet18.onnx
  vta-byoc diff resnet18.onnx
  vta-byoc --plugin my_ops.py place resnet18.onnx

Exit codes: 0 done, 1 a check found something, 2 something to put right, 3 a bug in vta-byoc,
130 interrupted, 141 the reader of the output has gone.
"""


@click.command(
    cls=Application,
    name="vta-byoc",
    help=HELP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the versions and exit.",
)
@plugins.option()
@commands.debug_option
@click.pass_context
def app(ctx: click.Context) -> None:
    """Print the help when no command is given."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        return
    plugins.load(ctx)


_COMMANDS: tuple[click.Command, ...] = (
    run.run,
    library.compile_library,
    inspect.inspect,
    listings.disasm,
    place.place,
    scopes.scopes,
    tune.tune,
    explore.explore,
    eval.evaluate,
    generate.generate,
    quantization_report.quantize_report,
    compare.compare,
    listings.configs,
    passes.passes,
    plugins.plugins,
    pictures.report,
    pictures.trace,
    program_files.programs,
    program_files.verify,
    diff.diff,
    device_server.device_server,
    rtl.rtl,
)
for _command in _COMMANDS:
    assert isinstance(_command, click.Command)
    app.add_command(plugins.option()(_command))


def main() -> None:
    """The console script."""
    _interrupt.install()
    import_torch_later()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8
    app.main()
