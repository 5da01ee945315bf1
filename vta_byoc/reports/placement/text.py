"""Placement as text: the tables of `vta-byoc run` and `vta-byoc place`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.text import Text

from vta_byoc.base.quantities import count, megabytes, millions
from vta_byoc.hw.counters import COUNTER_NAMES, count_stream, dram_bytes
from vta_byoc.hw.program.program import Program
from vta_byoc.ir.names import operators_of
from vta_byoc.partitioning.placement import VTA, Placement
from vta_byoc.reports.chart_text import distinct, short
from vta_byoc.reports.placement.summary import (
    PLAIN,
    PlaceReport,
    alu_share,
    how,
    kind,
    macs_share,
    next_step,
    of_any_kind,
    pattern,
    remark,
)
from vta_byoc.reports.tables import Notes, plain_table, print_lines

if TYPE_CHECKING:
    from vta_byoc.hw.timing.result import TimingResult

LEAST_NAME, LEAST_KIND = 24, 8
"""Columns that a name gets before the kind gets more than its least; where even 20 are not left
for the name, there is no kind."""
GAP = 2
"""Columns between two others."""
WORK = ("MACs\n(M)", "ALU\n(M)")
FOLDED = "folded"
"""How an operator is computed whose operand the host folds; the rest is below the table."""


# ---------------------------------------------------------------- one table
def print_operators(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: range,
    console: Console,
    *,
    wrap: bool = False,
) -> None:
    """The operators with name and kind in the first columns; those of ``numbers`` stand right.

    The name gets the width that is left; a longer one loses its middle, or goes on in the next
    line with ``wrap``.  A last column of text has so long lines as leave the others their width.
    """
    rows = _with_short_lines(head, rows, numbers, console.width)
    name_width, kind_width = _widths([head, *rows], console.width)
    table = plain_table()
    table.padding = (0, GAP - 1, 0, 0)
    table.add_column(head[0], width=name_width, no_wrap=not wrap, overflow="fold")
    for column, title in enumerate(head[1:], start=1):
        if column != 1 or kind_width:
            table.add_column(title, justify=_side(column in numbers), no_wrap=True)
    names = [row[0] for row in rows]
    shown = names if wrap else distinct(names, name_width)
    for name, (_, sort, *others) in zip(shown, rows, strict=True):
        sorts = [short(sort, kind_width)] if kind_width else []
        table.add_row(Text(name), *map(_cell, [*sorts, *others]))
    console.print(table)
    console.print()


def _side(number: bool) -> Literal["left", "right"]:
    return "right" if number else "left"


def _with_short_lines(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers: range, width: int
) -> list[Sequence[str]]:
    """``rows`` with the text of their last column in lines that leave room for the others."""
    last = len(head) - 1
    if last in numbers or last < 2:
        return list(rows)
    widths = _natural([head, *rows])
    others = sum(w + GAP for w in widths[2:last]) + min(widths[0], LEAST_NAME) + GAP
    most = max(width - others - LEAST_KIND - GAP, LEAST_NAME)
    return [(*row[:last], "\n".join(textwrap.wrap(row[last], most))) for row in rows]


def _natural(cells: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column, as its longest line has it."""
    lines = [[max(map(len, cell.split("\n"))) for cell in row] for row in cells]
    return [max(column) for column in zip(*lines, strict=True)]


def _widths(cells: Sequence[Sequence[str]], width: int) -> tuple[int, int]:
    """Columns for the name and for the kind, 0: none."""
    widths = _natural(cells)
    left = width - sum(w + GAP for w in widths[2:]) - GAP
    kind_width = max(min(widths[1], left - LEAST_NAME), LEAST_KIND)
    if left - kind_width < min(widths[0], 20):
        left, kind_width = left + GAP, 0
    return max(min(widths[0], left - kind_width), LEAST_KIND), kind_width


def _cell(text: str) -> Text:
    """A device in its colour."""
    return Text(text, {"vta": "green", "cpu": "yellow"}.get(text[:3], ""))


# ---------------------------------------------------------------- run
def layer_counters(programs: Mapping[str, Program]) -> dict[str, dict[str, int]]:
    """The seven counters of every operator on VTA, by decoding.

    Those of a fused schedule are all the first operator's.
    """
    found: dict[str, dict[str, int]] = {}
    for program in programs.values():
        for layer in program.layers:
            counters = count_stream(program.config, program.insns[layer.begin : layer.end])
            name = operators_of(layer.name)[0]
            total = found.setdefault(name, dict.fromkeys(COUNTER_NAMES, 0))
            for counter in COUNTER_NAMES:
                total[counter] += counters[counter]
    return found


def print_placement(
    placement: Sequence[Placement],
    programs: Mapping[str, Program],
    console: Console,
    timings: Mapping[str, TimingResult] | None = None,
) -> None:
    """One row for each operator, and the reasons below: each is written once.

    With `timings` of the regions, each operator's cycles too.
    """
    costs = layer_counters(programs)
    notes: Notes[str] = Notes()
    cycles: dict[str, int] = {}
    for timing in (timings or {}).values():
        for layer in timing.layers:
            name = operators_of(layer.name)[0]
            cycles[name] = cycles.get(name, 0) + layer.cycles
    measured = ["cycles"] if cycles else []
    head = ["operator", "kind", "runs on", *WORK, "GEMM\nmicro-ops", "DRAM\n(kB)"]
    rows = []
    for op in placement:
        time = [f"{cycles[op.name]:,}" if op.name in cycles else ""] if cycles else []
        rows.append([*_placement_row(op, costs.get(op.name)), *time, notes_of(op, notes)])
    head += [*measured, "note"]
    print_operators(head, rows, range(3, len(head)), console)
    if notes:
        print_lines(((f"[{i}]", text) for i, text in enumerate(notes, start=1)), console)
        console.print()


def _placement_row(op: Placement, cost: Mapping[str, int] | None) -> Iterable[str]:
    yield op.name
    yield kind(op)
    yield op.device
    yield millions(op.macs)
    yield millions(op.alu_ops)
    yield f"{cost['gemm_counter']:,}" if cost and cost["gemm_counter"] else ""
    yield f"{dram_bytes(dict(cost)) / 1e3:,.1f}" if cost else ""


def notes_of(op: Placement, notes: Notes[str]) -> str:
    """References to what there is to say about a placement: for VTA only what is unusual.

    A reason that names the kind of its operator is the same text for every kind: one note.
    """
    if op.device != VTA:
        texts = [of_any_kind(op).text]
    else:
        rule = "" if pattern(op) else op.why.rule
        by = "" if how(op) in PLAIN else how(op)
        if op.host_bytes:
            by = f"{by}; the host writes {megabytes(op.host_bytes)}"
        texts = [text for text in (rule, remark(op), by) if text]
    return "".join(notes.number(text) for text in texts)


# ---------------------------------------------------------------- place
def print_place(report: PlaceReport, machine: str, console: Console) -> None:
    """Every operator, the rules that keep some on the CPU, the host's part, totals."""
    console.print(
        f"{report.model} on {report.config} ({machine})",
        style="bold",
        markup=False,
        soft_wrap=True,
    )
    console.print()
    notes: Notes[str | _Rule] = Notes()
    head = ["operator", "kind", "runs as", *WORK, "cycles", "computed by"]
    rows = [[*_place_row(op, notes)] for op in report.placement]
    print_operators(head, rows, range(3, 6), console, wrap=True)
    _print_rules(report.placement, notes, console)
    print_lines([*_remark_lines(report.placement, notes), *_total_lines(report)], console)


def _place_row(op: Placement, notes: Notes[str | _Rule]) -> Iterable[str]:
    yield op.name
    yield kind(op)
    yield pattern(op) or f"{op.device} {notes.number(_rule(op))}"
    yield millions(op.macs)
    yield millions(op.alu_ops)
    yield f"{op.cycles:,}" if op.device == VTA and op.cycles else ""
    by = FOLDED if op.host_bytes else how(op)
    yield " ".join(x for x in (by, notes.number(remark(op))) if x)


@dataclass(frozen=True)
class _Rule:
    """A rule, and what would let an operator in: operators with both in common share a note."""

    text: str
    next_step: str


def _rule(op: Placement) -> _Rule:
    return _Rule(of_any_kind(op).rule, next_step(op))


def _print_rules(
    placement: Sequence[Placement], notes: Notes[str | _Rule], console: Console
) -> None:
    """Each rule that keeps operators on the CPU, what would let them in, and what they cost."""
    refused: dict[_Rule, list[Placement]] = {}
    for op in placement:
        if op.device != VTA:
            refused.setdefault(_rule(op), []).append(op)
    if not refused:
        return
    table = plain_table()
    table.expand = True
    table.add_column("", no_wrap=True)
    table.add_column("why on the CPU", ratio=3)
    table.add_column("what would let it in", ratio=2)
    for title in ("ops", *WORK):
        table.add_column(title, justify="right", no_wrap=True)
    for rule, ops in refused.items():
        work = (sum(op.on_cpu.macs for op in ops), sum(op.on_cpu.alu_ops for op in ops))
        said = (notes.number(rule), rule.text, rule.next_step)
        table.add_row(*map(Text, (*said, str(len(ops)), *map(millions, work))))
    console.print(table)
    console.print()


def _remark_lines(
    placement: Sequence[Placement], notes: Notes[str | _Rule]
) -> Iterable[tuple[str, str]]:
    refused = {_rule(op) for op in placement if op.device != VTA}
    for number, note in enumerate(notes, start=1):
        if note not in refused:
            yield f"[{number}]", note.text if isinstance(note, _Rule) else note
    for op in placement:
        if op.host_bytes:
            yield FOLDED, f"{op.name}: {how(op)}; the host writes {megabytes(op.host_bytes)}"


def _total_lines(report: PlaceReport) -> Iterable[tuple[str, str]]:
    yield from share_lines(report.placement, len(report.regions))
    cycles = sum(op.cycles for op in report.placement)
    least = sum(op.bound for op in report.placement)
    if cycles:
        beside = f"; the roofline lower bound of these layers is {least:,}" if least else ""
        yield "cycles", f"{cycles:,} by estimate, host copies included{beside}"
    copies = [
        f"{count(c.count, name.removesuffix('s'))} of {megabytes(c.nbytes)}"
        for name, c in report.copies.items()
        if c.count
    ]
    if copies:
        yield "the host writes", ", ".join(copies)
    if report.least is not None:
        yield f"at least {report.least:g} %", "\n".join(report.shortfalls) or "reached"


def share_lines(placement: Sequence[Placement], regions: int) -> Iterable[tuple[str, str]]:
    """How much of the model runs on VTA."""
    for share in (macs_share(placement), alu_share(placement)):
        yield share.what, share.text
    on_vta = sum(op.device == VTA for op in placement)
    yield "operators", f"{len(placement)}, on VTA {on_vta} in {count(regions, 'region')}"
