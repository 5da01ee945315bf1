"""One self-contained HTML page about a compiled model: placement, time, traffic, buffers.

Equal input gives equal bytes; the page loads nothing from anywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

import vta_byoc
from vta_byoc.base.quantities import count, percent
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import Queue
from vta_byoc.hw.timing.result import STALLS
from vta_byoc.partitioning.placement import Placement
from vta_byoc.passes.fuse_tiles import Sharing
from vta_byoc.reports.chart_text import ON_CPU, ON_VTA, quantity
from vta_byoc.reports.html.chart_style import (
    ACTIVITY_COLORS,
    DRAINED,
    DRAM_COLORS,
    DRAM_TITLES,
    QUEUE_COLORS,
)
from vta_byoc.reports.html.charts import charts
from vta_byoc.reports.html.layers_chart import name_width
from vta_byoc.reports.html.page import script_json, template
from vta_byoc.reports.html.sections import section_data, sections, timeline_text
from vta_byoc.reports.placement.summary import (
    alu_share,
    kind,
    macs_share,
    next_step,
    of_any_kind,
    remark,
)
from vta_byoc.reports.run.against import Comparison
from vta_byoc.reports.run.layers import ACTIVITIES, BUSY, DRAM, LayerFacts, ModelFacts

Rows = list[tuple[str, str]]
LAYER_COLUMNS = (
    "layer",
    "cycles",
    "busy",
    "waits",
    "mostly for",
    "MACs",
    "peak",
    "ALU ops",
    "GEMM",
    "ALU",
    "DRAM bytes",
    "MAC/B",
    "INP",
    "WGT",
    "ACC",
    "UOP",
)
NAMED = 6
"""Operators or tensors named beside a reason."""


def html_report(
    facts: ModelFacts, model: str, config: str, against: Comparison | None = None
) -> str:
    """The page.

    Args:
        facts: of the compiled model.
        model: the model file; its name is the title.
        config: the preset or file that names the machine.
        against: what changed from an older report; the page begins with it.
    """
    made = charts(facts)
    return template("report.html").render(
        title=f"{PurePath(model).name} on VTA {config}",
        model=PurePath(model).name,
        config_name=config,
        geometry=f"BATCH {facts.config.batch}, BLOCK {facts.config.block}",
        version=vta_byoc.__version__,
        facts=facts,
        charts=made,
        data_json=script_json({"charts": made, **section_data(facts)}),
        **sections(facts, against),
        timeline_text=timeline_text(facts),
        name_width=name_width(facts.layers),
        plotly_js=get_plotlyjs(),
        headline=list(_headline(facts)),
        placement_text=_placement_text(facts),
        reasons=_reasons(facts),
        operator_rows=[_operator_row(op) for op in facts.placement],
        time_text=_time_text(facts),
        roofline_text=_roofline_text(facts),
        memory_text=_memory_text(facts),
        on_chip_rows=[_on_chip_row(item) for item in facts.memory.met],
        unmet_rows=[_unmet_row(*group) for group in facts.memory.reasons().items()],
        arena_rows=_arena_rows(facts),
        on_vta=ON_VTA,
        on_cpu=ON_CPU,
        queue_legend=_legend(facts, QUEUE_COLORS),
        activity_legend=_legend(facts, ACTIVITY_COLORS),
        dram_legend=[(DRAM_TITLES[k], DRAM_COLORS[k]) for k in DRAM if facts.dram[k]],
        layer_columns=LAYER_COLUMNS,
        layer_rows=[_layer_row(layer, facts.peak) for layer in facts.layers],
        layer_total=_total_row(facts),
        machine=_machine(facts),
    )


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


# ---------------------------------------------------------------- sentences
def _headline(facts: ModelFacts) -> Iterable[tuple[str, str]]:
    for share in (macs_share(facts.placement), alu_share(facts.placement)):
        if share.total:
            yield f"of the {share.what} on VTA", percent(share.on_vta, share.total)
    if not facts.layers:
        return
    yield "cycles on VTA", f"{facts.cycles:,}"
    yield f"at {facts.timing.clock_mhz} MHz", f"{facts.milliseconds:,.3g} ms"
    yield f"of the peak, {facts.peak} MAC/cycle", _percent(facts.macs, facts.cycles * facts.peak)
    yield "DRAM traffic", quantity(sum(facts.dram.values()), "B")
    if facts.memory.met:
        yield "kept on chip", quantity(facts.memory.saved, "B")
    yield "of the time the port is busy", _percent(facts.port_busy, facts.cycles)
    yield "layers on VTA", str(len(facts.layers))


def _placement_text(facts: ModelFacts) -> str:
    on_vta = sum(op.device == "vta" for op in facts.placement)
    regions = f" in {count(len(facts.regions), 'region')}" if facts.regions else ""
    text = (
        f"<b>{on_vta}</b> of {count(len(facts.placement), 'operator')} run on VTA{regions}: "
        f"<b>{facts.macs:,}</b> of {facts.macs_total:,} MACs and <b>{facts.alu_ops:,}</b> of "
        f"{facts.alu_ops_total:,} ALU operations."
    )
    if facts.host_bytes:
        folds = sum(op.host_bytes > 0 for op in facts.placement)
        text += (
            f" The host folds {count(folds, 'operand')} and writes "
            f"{quantity(facts.host_bytes, 'B')} for it."
        )
    if not on_vta:
        return f"{text} There is no time on VTA to show."
    return f"{text} A piece of a bar is an operator, as wide as its work."


def _time_text(facts: ModelFacts) -> str:
    """What the compute queue does, in one sentence."""
    if not facts.layers:
        return ""
    breakdown = facts.queue(Queue.COMPUTE)
    waits = sum(breakdown[reason] for reason in STALLS)
    other = sum(breakdown[activity] for activity in BUSY if activity != "GEMM")
    text = (
        f"Of {facts.cycles:,} cycles the compute queue spends "
        f"<b>{_percent(breakdown['GEMM'], facts.cycles)}</b> in GEMM, "
        f"{_percent(other, facts.cycles)} on everything else "
        f"and waits for <b>{_percent(waits, facts.cycles)}</b>"
    )
    reason = _main_reason(breakdown)
    return f"{text}, mostly for: {reason}." if reason else f"{text}."


def _main_reason(breakdown: dict[str, int]) -> str:
    """The stall reason with the most cycles, "" when there is no stall."""
    reason = max(STALLS, key=lambda name: breakdown[name])
    return reason if breakdown[reason] else ""


def _roofline_text(facts: ModelFacts) -> str:
    without = sum(not layer.macs for layer in facts.layers)
    text = "Each point is a layer, its area the cycles. The lines are what the machine allows."
    if without == 1:
        text += " One layer multiplies nothing and is not on it."
    elif without:
        text += f" {without} layers multiply nothing and are not on it."
    return text


def _memory_text(facts: ModelFacts) -> str:
    """What stays on chip, and what the stored tensors take."""
    if not facts.layers:
        return ""
    memory, most = facts.memory, facts.memory.largest
    text = ""
    if memory.sharing:
        text = (
            f"Of {count(len(memory.sharing), 'demand')} for a consumer fused into its producer "
            f"<b>{len(memory.met)}</b> {'is' if len(memory.met) == 1 else 'are'} met: "
            f"<b>{quantity(memory.saved, 'B')}</b> are not moved. "
        )
    text += f"At the most, stored tensors take <b>{quantity(most.peak, 'B')}</b> of DRAM"
    if most.peak < most.apart:
        text += f"; with a place for each it would be {quantity(most.apart, 'B')}"
    return f"{text}."


# ---------------------------------------------------------------- tables
@dataclasses.dataclass(frozen=True)
class Reason:
    """Why some operators run on the CPU."""

    text: str
    next_step: str
    names: str
    macs: str
    alu_ops: str


def _reasons(facts: ModelFacts) -> list[Reason]:
    """Every reason once, those that cost the most MACs first, then the most ALU operations."""
    by_text: dict[tuple[str, str], list[Placement]] = {}
    for op in facts.placement:
        if op.device != "vta":
            by_text.setdefault((of_any_kind(op).rule, next_step(op)), []).append(op)
    found = []
    for (text, step), ops in sorted(by_text.items(), key=lambda item: _cost(item[1])):
        names = _named([op.name for op in ops])
        macs, alu_ops = (_number(-amount) for amount in _cost(ops))
        found.append(Reason(text, step, names, macs, alu_ops))
    return found


def _named(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _cost(ops: Iterable[Placement]) -> tuple[int, int]:
    """MACs and ALU operations, negative: the largest sorts first."""
    listed = list(ops)
    return -sum(op.macs for op in listed), -sum(op.alu_ops for op in listed)


def _number(value: int) -> str:
    return f"{value:,}" if value else ""


def _on_chip_row(item: Sharing) -> Sequence[str]:
    """A row of the tensors on chip.

    It has the tensor, who takes it from the tiles, by which rule, its bytes, the bytes that are
    not moved, and the cycles of both operators by estimate, apart and together.
    """
    cycles = (f"{item.apart:,.0f}", f"{item.together:,.0f}")
    return [item.tensor, item.consumer, item.rule, f"{item.nbytes:,}", f"{item.saved:,}", *cycles]


def _unmet_row(reason: str, items: Sequence[Sharing]) -> Sequence[str]:
    """Why, for which tensors and consumers, bytes of the tensors."""
    names = _named([f"{item.tensor} for {item.consumer}" for item in items])
    return [reason, names, f"{sum(item.nbytes for item in items):,}"]


def _arena_rows(facts: ModelFacts) -> list[Sequence[str]]:
    """A row for each region's arena, in bytes.

    It has the region, what the host hands over and is handed back, weights and micro-ops, stored
    tensors, the same without buffer sharing, and all of it.
    """
    return [
        [name, *(f"{n:,}" for n in (a.inputs, a.outputs, a.constants, a.peak, a.apart))]
        for name, a in facts.memory.arenas.items()
    ]


def _operator_row(op: Placement) -> Sequence[str]:
    """A row of the operators.

    It has name, kind, device, MACs, ALU operations, estimate, rule, how VTA computes it or what
    would let it in, and what the host writes.
    """
    rule = "; ".join(text for text in (op.why.rule, remark(op)) if text)
    numbers = (op.macs, op.alu_ops, op.cycles)
    how = op.note if op.device == "vta" else next_step(op)
    host = quantity(op.host_bytes, "B") if op.host_bytes else ""
    return [op.name, kind(op), op.device, *map(_number, numbers), rule, how, host]


def _legend(facts: ModelFacts, colors: dict[str, str]) -> Rows:
    """The entries that some queue has cycles for."""
    breakdown = [facts.queue(queue) for queue in Queue]
    return [(name, color) for name, color in colors.items() if any(s[name] for s in breakdown)]


def _layer_row(layer: LayerFacts, peak: int) -> Sequence[str]:
    breakdown = layer.breakdown[Queue.COMPUTE]
    return [
        layer.name,
        f"{layer.cycles:,}",
        *_shares(breakdown, layer.cycles),
        _number(layer.macs),
        _percent(layer.achieved, peak) if layer.macs else "",
        _number(layer.alu_ops),
        *(f"{layer.counters[name]:,}" for name in ("gemm_counter", "alu_counter")),
        f"{layer.dram_bytes:,}",
        f"{layer.intensity:,.1f}" if layer.macs else "",
        *(f"{use.used:,}" for use in layer.sram.values()),
    ]


def _shares(breakdown: dict[str, int], cycles: int) -> list[str]:
    """Busy, waiting, main reason of a compute queue."""
    busy = sum(breakdown[what] for what in BUSY)
    waits = sum(breakdown[reason] for reason in STALLS)
    return [_percent(busy, cycles), _percent(waits, cycles), _main_reason(breakdown)]


def _total_row(facts: ModelFacts) -> Sequence[str]:
    counters, breakdown = facts.counters, facts.queue(Queue.COMPUTE)
    cycles = sum(breakdown[what] for what in ACTIVITIES)
    dram = sum(facts.dram.values())
    return [
        "all layers",
        f"{cycles:,}",
        *_shares(breakdown, cycles),
        f"{sum(layer.macs for layer in facts.layers):,}",
        _percent(facts.macs, cycles * facts.peak),
        f"{sum(layer.alu_ops for layer in facts.layers):,}",
        *(f"{counters[name]:,}" for name in ("gemm_counter", "alu_counter")),
        f"{dram:,}",
        f"{facts.macs / dram:,.1f}" if dram else "",
        *[""] * 4,
    ]


def _machine(facts: ModelFacts) -> list[tuple[str, Rows]]:
    config, timing = facts.config, facts.timing
    sizes = ("inp", "wgt", "acc", "uop")
    geometry = [
        ("BATCH", f"{config.batch}"),
        ("BLOCK", f"{config.block}"),
        *((f"{n.upper()} buffer", _buffer(config, n)) for n in sizes),
        *((name, _value(v)) for name, v in dataclasses.asdict(config.capabilities).items()),
    ]
    parameters = [(name, _value(value)) for name, value in dataclasses.asdict(timing).items()]
    counted = [(name, f"{value:,}") for name, value in facts.counters.items()]
    counted += [(f"cycles of {name}", f"{r.cycles:,}") for name, r in facts.regions.items()]
    counted += [(f"port cycles for {name}", f"{n:,}") for name, n in _port(facts).items()]
    tables = [("configuration", geometry), ("timing parameters", parameters)]
    return [*tables, ("counters", counted)] if facts.layers else tables


def _value(value: int | str) -> str:
    if isinstance(value, str):
        return value
    return ("no", "yes")[value] if isinstance(value, bool) else f"{value:,}"


def _port(facts: ModelFacts) -> dict[str, int]:
    total: dict[str, int] = {}
    for result in facts.regions.values():
        for name, cycles in result.port.items():
            total[name] = total.get(name, 0) + cycles
    return total


def _buffer(config: VTAConfig, name: str) -> str:
    size, depth = getattr(config, f"log_{name}_buff_size"), getattr(config, f"{name}_depth")
    return f"{depth:,} elements, {(1 << size) // 1024} KiB"


assert set(QUEUE_COLORS) == {*ACTIVITIES, DRAINED}
