"""What to change first: what a compiled model loses against its bounds, and the known reasons."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from vta_byoc.base.json_types import JsonObject
from vta_byoc.base.quantities import count
from vta_byoc.hw.isa import Queue
from vta_byoc.hw.timing.result import FETCH, FULL, PORT, STALLS, TOKEN
from vta_byoc.ir.names import operators_of
from vta_byoc.partitioning.placement import VTA
from vta_byoc.passes.fuse_tiles import HINTED, READ_BY_OTHERS
from vta_byoc.reports.chart_text import quantity
from vta_byoc.reports.html.chart_style import DRAM_TITLES
from vta_byoc.reports.placement.summary import next_step, of_any_kind
from vta_byoc.reports.run.layers import ACTIVITIES, LayerFacts, ModelFacts, shared

LISTED = 12
"""Changes on the page and in `report --json`."""
SMALLEST = 0.002
"""A change that gains less than this share of all cycles is not listed."""
_DMA = (
    "move fewer bytes or keep more of them on chip: `vta-byoc tune`, larger buffers, a wider port"
)
STEPS = {
    TOKEN[Queue.LOAD]: _DMA,
    PORT: _DMA,
    TOKEN[Queue.STORE]: "store less at a time or fuse the consumer: `vta-byoc scopes` says what is "
    "not fused",
    TOKEN[Queue.COMPUTE]: "`vta-byoc tune`: another tile overlaps the queues better",
    FETCH: "fewer, longer instructions: larger tiles, `vta-byoc tune`",
    FULL: "a deeper queue (`queue_depth`), or fewer instructions in a row for one queue",
    "startup": "fewer, longer instructions: larger tiles, `vta-byoc tune`",
    "transfer": "fewer biases, residuals and micro-ops to load: `vta-byoc tune`, fused consumers",
    "reset": "`vta-byoc tune`: a tile that resets fewer vectors",
    "no-op": "`vta-byoc tune`: fewer tiles need fewer instructions that only pass tokens",
    "GEMM": "channels that fill the lanes (`vta-byoc place` says how many are idle), another BLOCK",
    "ALU": "fewer elementwise steps, or a machine with a faster ALU (`alu_tensor_cycles`)",
}
"""What to try, by what takes the most cycles of the compute queue (`_main`)."""
ALONE = "let one consumer alone read it"
WHAT_IT_NEEDS = "what the reason asks for; `vta-byoc scopes` has the decision on every tensor"


@dataclass(frozen=True)
class Change:
    """One thing to change.

    Attributes:
        name: the layer, tensor or operators that it is about.
        gain: the most cycles on VTA that it can gain; None where VTA's time does not hold them.
        why: what was computed, in a sentence.
        step: what to try.
    """

    name: str
    gain: int | None
    why: str
    step: str

    def to_json(self) -> JsonObject:
        """The change in `report --json`."""
        return dataclasses.asdict(self)


def changes(facts: ModelFacts) -> list[Change]:
    """Those with the most cycles to gain first, then what the CPU computes, the most work first."""
    counted = [*_layers(facts), *_tensors(facts)]
    worth = [c for c in counted if c.gain is not None and c.gain >= SMALLEST * facts.cycles]
    worth.sort(key=lambda change: -(change.gain or 0))
    return [*worth[:LISTED], *list(_on_cpu(facts))[:LISTED]]


def bounds(facts: ModelFacts) -> list[int]:
    """The roofline lower bound of every layer in cycles; 0 where its operators have none."""
    of_op: dict[str, list[int]] = {}
    for number, layer in enumerate(facts.layers):
        for name in dict.fromkeys(operators_of(layer.name)):
            of_op.setdefault(name, []).append(number)
    found = [0] * len(facts.layers)
    for op in facts.placement:
        numbers = of_op.get(op.name, [])
        parts = shared(op.bound, [facts.layers[i].cycles for i in numbers])
        for number, part in zip(numbers, parts, strict=True):
            found[number] += part
    return found


def _layers(facts: ModelFacts) -> Iterator[Change]:
    for layer, bound in zip(facts.layers, bounds(facts), strict=True):
        if bound:
            main = _main(layer)
            yield Change(layer.name, layer.cycles - bound, _why(layer, bound, main), STEPS[main])


def _main(layer: LayerFacts) -> str:
    """What the compute queue spends the most cycles on beside GEMM and ALU, or these."""
    spent = layer.breakdown[Queue.COMPUTE]
    overhead = [name for name in ACTIVITIES if name not in ("GEMM", "ALU")]
    most = max(overhead, key=lambda name: spent[name])
    work = max(("GEMM", "ALU"), key=lambda name: spent[name])
    return most if 4 * spent[most] >= layer.cycles else work


def _why(layer: LayerFacts, bound: int, main: str) -> str:
    spent = layer.breakdown[Queue.COMPUTE]
    text = f"{layer.cycles:,} cycles, {layer.cycles / bound:.2f} times its bound of {bound:,}; "
    share = f"{100 * spent[main] / layer.cycles:.0f} %"
    if main in (TOKEN[Queue.LOAD], PORT):
        kind = max(layer.dram, key=lambda name: layer.dram[name])
        return text + (
            f"DMA-bound: the compute queue waits {share} of them for the {main}, and of "
            f"{quantity(layer.dram_bytes, 'B')} from and to DRAM the most are "
            f"{quantity(layer.dram[kind], 'B')} of {DRAM_TITLES[kind]}"
        )
    verb = "waits {} of them for" if main in STALLS else "spends {} of them on"
    return f"{text}the compute queue {verb.format(share)}: {main}"


def _tensors(facts: ModelFacts) -> Iterator[Change]:
    """Tensors that are stored and loaded again, and demands that cost more than they save."""
    port = facts.timing.port_bytes
    for item in facts.memory.unmet:
        if not item.together > item.apart:
            why = (
                f"not fused: stored and loaded again for {item.consumer}, {2 * item.nbytes:,} B at "
                f"{port} B a cycle of the port; {item.rule}"
            )
            step = ALONE if item.kind == READ_BY_OTHERS else WHAT_IT_NEEDS
            yield Change(item.tensor, 2 * item.nbytes // port, why, step)
    for item in facts.memory.met:
        if item.rule == HINTED and item.together > item.apart:
            why = (
                f"demanded on chip for {item.consumer}: {item.together:,.0f} cycles by estimate, "
                f"{item.apart:,.0f} without the demand"
            )
            gain = round(item.together - item.apart)
            yield Change(item.tensor, gain, why, "drop the demand")


def _on_cpu(facts: ModelFacts) -> Iterator[Change]:
    """What the CPU computes, by reason; its time is not simulated."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, op in enumerate(facts.placement):
        if op.device != VTA and (op.macs or op.alu_ops):
            key = (of_any_kind(op).rule, next_step(op))
            groups.setdefault(key, []).append(number)

    def work(key: tuple[str, str]) -> tuple[int, int]:
        ops = [facts.placement[number] for number in groups[key]]
        return sum(op.on_cpu.macs for op in ops), sum(op.on_cpu.alu_ops for op in ops)

    for key in sorted(groups, key=lambda key: tuple(-amount for amount in work(key))):
        macs, alu_ops = work(key)
        names = [facts.placement[number].name for number in groups[key]]
        why = f"{count(len(names), 'operator')} on the CPU with {macs:,} MACs"
        if macs:
            why += f", {-(-macs // facts.peak):,} cycles at VTA's peak,"
        why += f" and {alu_ops:,} ALU operations: {key[0]}"
        yield Change(names[0] + (" ..." if len(names) > 1 else ""), None, why, key[1])
