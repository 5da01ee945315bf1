"""`vta-byoc passes`: the stages of the compiler, and the forms of the IR between them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say

if TYPE_CHECKING:
    from rich.console import Console


def to_json() -> dict[str, list[dict[str, str]]]:
    """The object that --json prints."""
    from vta_byoc.ir.legality import FORMS
    from vta_byoc.pipeline import STAGES

    stages = [
        {
            "name": planned.name,
            "pass": planned.stage.title,
            "from": planned.stage.takes.name,
            "to": planned.stage.gives.name,
            "does": planned.stage.does,
            "when": planned.when.says,
        }
        for planned in STAGES
    ]
    return {"stages": stages, "forms": [{"name": f.name, "says": f.says} for f in FORMS]}


@click.command(short_help="The stages of the compiler, and the form of the IR between them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
def passes(as_json: bool) -> None:
    """List the stages of the compiler in the order in which they run.

    Each has the form of the IR that it takes and gives, what it does, and with which options it
    runs. The forms are explained below the table. A stage called X is the TVM pass vta.X; the
    option --print-after X of other commands shows the module behind it.

    \b
    Examples:
      vta-byoc passes
      vta-byoc passes --json > passes.json
    """
    found = to_json()
    if as_json:
        say(json.dumps(found, indent=2))
        return
    from vta_byoc.cli.progress import stdout_console

    print_passes(found, stdout_console())


def print_passes(found: dict[str, list[dict[str, str]]], console: Console) -> None:
    """The stages as a table and the forms as lines."""
    from vta_byoc.reports.tables import plain_table, print_lines

    table = plain_table()
    for title in ("stage", "from", "to"):
        table.add_column(title, no_wrap=True)
    table.add_column("what it does")
    table.add_column("when")
    for stage in found["stages"]:
        table.add_row(*(stage[key] for key in ("name", "from", "to", "does", "when")))
    console.print(table)
    console.print()
    print_lines([(form["name"], form["says"]) for form in found["forms"]], console)
