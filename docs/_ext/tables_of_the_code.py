"""Reference pages written from the tables the code itself reads, so that they cannot disagree.

The directive ``{code-table} NAME`` puts the Markdown of one of ``TABLES`` into the page.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import ClassVar

import legal_nests
import messages
from docutils import nodes
from markdown_table import table
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def isa() -> str:
    """Every field of every instruction, for the configuration of the preset ``pynq``."""
    from vta_byoc.hw.config import VTAConfig
    from vta_byoc.hw.isa import ISA

    known, found = ISA.of(VTAConfig.preset("pynq")), []
    layouts = {
        **{op.name: fields for op, fields in known.instructions.items()},
        "micro-op": known.uop,
    }
    for name, fields in layouts.items():
        rows = [
            (f"`{f.name}`", str(f.word), str(f.lsb), str(f.width), f"{f.low} to {f.high}")
            for f in fields
        ]
        head = ("field", "word", "lowest bit", "bits", "values")
        found.append(f"## {name}\n\n{table(head, rows)}\n")
    return "".join(found)


def verifier() -> str:
    """The verifier's rules."""
    from vta_byoc.hw.verify.rules import RULES

    return table(("rule", "what holds"), [(f"`{name}`", text) for name, text in RULES.items()])


def configuration() -> str:
    """The keys of a machine, with what they are when they are left out."""
    from vta_byoc.hw.config import VTAConfig

    given = VTAConfig().to_dict()
    found = [_keys({key: value for key, value in given.items() if not isinstance(value, dict)})]
    found += [
        f"\n## `{key}`\n\n{_keys(group)}" for key, group in given.items() if isinstance(group, dict)
    ]
    return "".join(found)


def _keys(group: Mapping[str, object]) -> str:
    rows = [(f"`{key}`", f"`{json.dumps(value)}`") for key, value in group.items()]
    return table(("key", "when left out"), rows)


def presets() -> str:
    """The machines that come with the package."""
    from vta_byoc.hw.config import VTAConfig

    rows = []
    for name in VTAConfig.presets():
        c = VTAConfig.preset(name)
        buffers = " / ".join(
            f"{depth * size // 1024}"
            for depth, size in (
                (c.inp_depth, c.inp_elem_bytes),
                (c.wgt_depth, c.wgt_elem_bytes),
                (c.acc_depth, c.acc_elem_bytes),
                (c.uop_depth, c.uop_elem_bytes),
            )
        )
        has = ", ".join(k for k, v in dataclasses.asdict(c.capabilities).items() if v is True)
        rows.append((f"`{name}`", f"{c.batch}x{c.block}", buffers, has))
    return table(("preset", "batch x block", "INP / WGT / ACC / UOP KiB", "capabilities"), rows)


def partition_table() -> str:
    """The partition table: what the compiler looks for, in order."""
    from vta_byoc.partitioning.table import entries

    return table(("pattern", "kind"), [(f"`{e.name}`", e.kind) for e in entries()])


TABLES: Mapping[str, Callable[[], str]] = {
    "isa": isa,
    "verifier": verifier,
    "configuration": configuration,
    "presets": presets,
    "legal-nests": legal_nests.markdown,
    "messages": messages.markdown,
}


class CodeTable(SphinxDirective):
    """``{code-table} NAME``: the Markdown of a table of the code."""

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        text = TABLES[self.arguments[0]]()
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("code-table", CodeTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


__all__ = ["TABLES", "setup"]
