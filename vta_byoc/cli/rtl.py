"""`vta-byoc rtl`: the core as Verilog, with what a board's project takes beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say
from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    from vta_byoc.cli.progress import Steps
    from vta_byoc.hw.config import VTAConfig
    from vta_byoc.hw.rtl.clock import Clock
    from vta_byoc.hw.rtl.parts import Part
    from vta_byoc.hw.rtl.synthesis import Report

_CLOCK = ("clock.txt", "clock.json")
_RESOURCES = ("resources.txt", "resources.json")


@click.command(short_help="Write the core as Verilog, with a resource report.")
@click.option(
    "-o", "--output", required=True, metavar="FOLDER", help="Where to; it is made where it is not."
)
@commands.config_option
@click.option(
    "--part",
    metavar="NAME",
    help="The FPGA: xc7z020 (PYNQ-Z1), xczu3eg (Ultra96), xczu7ev (ZCU104) or lfe5u-85f (ECP5). "
    "Default: that of the machine's board, else xc7z020.",
)
@click.option(
    "--report", is_flag=True, help="Synthesize with yosys and say what the core takes: minutes."
)
@click.option(
    "--clock",
    is_flag=True,
    help="Place and route with nextpnr and say what clock the core reaches: minutes. ECP5 alone.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
@click.pass_context
def rtl(
    ctx: click.Context,
    output: str,
    config: str,
    part: str | None,
    report: bool,
    clock: bool,
    as_json: bool,
) -> None:
    """Write the core of a machine into FOLDER: Verilog, its registers for C, constraints.

    With --report also resources.txt and resources.json: what each module takes of the FPGA, and
    whether the core fits; exit code 1 when it does not. With --clock also clock.txt and clock.json:
    the clock it reaches, and the path that holds it. Needs the extra rtl.

    \b
    Examples:
      vta-byoc rtl -o core --config core
      vta-byoc rtl -o core --config core --report
      vta-byoc rtl -o core --config ultra96 --part xczu3eg --report --json
      vta-byoc rtl -o core --config small.json --part lfe5u-85f --report --clock
    """
    from vta_byoc.cli.machines import read_config
    from vta_byoc.cli.progress import Steps
    from vta_byoc.hw.rtl.delivery import core_files
    from vta_byoc.hw.rtl.parts import BOARDS, part_named

    machine, folder, steps = read_config(config), Path(output), Steps()
    chosen = part_named(part or BOARDS.get(machine.target, "xc7z020"))
    _make(folder)
    with steps.step("rtl", f"writing the core {machine.name} for {chosen.name}"):
        files = core_files(machine, chosen)
        _write(folder, files)
    estimate = _clock(machine, chosen, folder, steps) if clock else None
    found = _report(machine, chosen, folder, steps) if report else None
    names = [*files, *(_CLOCK if estimate else ()), *(_RESOURCES if found else ())]
    _print(folder, names, found, estimate, as_json)
    if found is not None and not found.fits:
        ctx.exit(commands.CHECK_FAILED)


def _clock(machine: VTAConfig, part: Part, folder: Path, steps: Steps) -> Clock:
    """The clock of a core, written into the folder."""
    from vta_byoc.hw.rtl.clock import core_clock

    with steps.step("clock", f"placing and routing the core on {part.name} with nextpnr"):
        estimate = core_clock(machine, part)
    texts = (estimate.to_text(), json.dumps(estimate.to_json(), indent=2) + "\n")
    _write(folder, dict(zip(_CLOCK, texts, strict=True)))
    return estimate


def _report(machine: VTAConfig, part: Part, folder: Path, steps: Steps) -> Report:
    """What a core takes of a part, written into the folder."""
    from vta_byoc.hw.rtl.resources import core_report

    with steps.step("report", f"mapping the core to {part.name} with yosys"):
        found = core_report(machine, part)
    texts = (found.to_text(), json.dumps(found.to_json(), indent=2) + "\n")
    _write(folder, dict(zip(_RESOURCES, texts, strict=True)))
    return found


def _make(folder: Path) -> None:
    """Make the folder where its parent is there.

    Raises:
        VTAError: it is a file, or cannot be made.
    """
    if folder.exists() and not folder.is_dir():
        raise VTAError(f'output "{folder}" is a file; a folder is written; choose another path')
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise _unwritten(folder, error) from error


def _write(folder: Path, files: dict[str, str]) -> None:
    try:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritten(folder, error) from error


def _unwritten(folder: Path, error: OSError) -> VTAError:
    return VTAError(
        f'output "{folder}" cannot be written: {error.strerror}; choose a folder you may write to, '
        "in one that exists"
    )


def _print(
    folder: Path, names: list[str], found: Report | None, estimate: Clock | None, as_json: bool
) -> None:
    if as_json:
        resources = None if found is None else found.to_json()
        clock = None if estimate is None else estimate.to_json()
        facts = {"folder": str(folder), "files": names, "resources": resources, "clock": clock}
        say(json.dumps(facts, indent=2))
        return
    for name in names:
        say(f"wrote {folder / name}")
    for each in (found, estimate):
        if each is not None:
            say(each.to_text(), nl=False)
