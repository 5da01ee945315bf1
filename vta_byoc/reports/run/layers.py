"""What there is to show about a compiled model, layer by layer: time, traffic, buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vta_byoc.base.json_types import JsonObject
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES, count_stream
from vta_byoc.hw.isa import INSN_BYTES, ISA, Instruction, Opcode, Queue
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.result import STALLS, InsnTime, LayerTime, TimingResult
from vta_byoc.hw.timing_parameters import Timing
from vta_byoc.ir.names import operators_of
from vta_byoc.partitioning.placement import Placement
from vta_byoc.passes.fuse_tiles import Sharing
from vta_byoc.reports.placement.summary import how, placement_json
from vta_byoc.reports.run.buffers import SRAMS, Buffers, Lifetimes, SramUse
from vta_byoc.reports.run.memory import MemoryFacts
from vta_byoc.reports.run.timing import time_programs

BUSY = ("GEMM", "ALU", "reset", "transfer", "no-op", "startup")
"""What a queue is busy with; ``startup`` is pipeline fill and DMA latency of all the others."""
ACTIVITIES = (*BUSY, *STALLS)
"""Every cycle of a queue between its first and last instruction is one of these."""
DRAM = ("wgt", "inp", "acc", "out", "uop", "insn")
"""Kinds of DRAM traffic; ``insn`` is what fetch reads."""
_BYTES = {"out": "out_store_nbytes", **{kind: f"{kind}_load_nbytes" for kind in SRAMS}}


@dataclass(frozen=True)
class LayerFacts:
    """One layer on VTA.

    ``macs`` and ``alu_ops`` are those of the model's operator, whatever the instructions compute
    (0 where the layer does none); ``how`` says how they are computed, "" where there was no
    choice; ``breakdown`` are the cycles of each queue by ACTIVITIES; ``dram`` bytes by DRAM.
    """

    region: str
    name: str
    macs: int
    alu_ops: int
    how: str
    time: LayerTime
    counters: dict[str, int]
    breakdown: dict[Queue, dict[str, int]]
    dram: dict[str, int]
    sram: dict[str, SramUse]

    @property
    def cycles(self) -> int:
        """The compute queue's, busy and stalled."""
        return self.time.cycles

    @property
    def dram_bytes(self) -> int:
        """The bytes of all kinds that it moves between DRAM and SRAM."""
        return sum(self.dram.values())

    @property
    def intensity(self) -> float:
        """MACs for each byte of DRAM traffic."""
        return self.macs / self.dram_bytes if self.dram_bytes else 0.0

    @property
    def achieved(self) -> float:
        """MACs a cycle."""
        return self.macs / self.cycles if self.cycles else 0.0

    def to_json(self) -> JsonObject:
        """The layer in `report --json`; docs/report.md explains the keys."""
        return {
            "region": self.region,
            "name": self.name,
            "macs": self.macs,
            "alu_ops": self.alu_ops,
            "how": self.how,
            "cycles": self.cycles,
            "instructions": self.time.end - self.time.begin,
            "queues": {q.name.lower(): self.breakdown[q] for q in Queue},
            "dram_bytes": self.dram,
            "sram_elements": {name: use.used for name, use in self.sram.items()},
            "counters": self.counters,
        }


@dataclass(frozen=True)
class ModelFacts:
    """A compiled model under one timing.

    ``layers`` and ``regions`` are in the order of the regions' numbers; ``memory`` has no time.
    ``programs`` and ``live`` (which instructions fill and free elements of the buffers) are by
    region; ``edges`` are pairs of operators, the second of which reads a result of the first.
    """

    config: VTAConfig
    timing: Timing
    placement: Sequence[Placement]
    regions: Mapping[str, TimingResult]
    layers: Sequence[LayerFacts]
    memory: MemoryFacts
    programs: Mapping[str, Program] = field(default_factory=dict)
    live: Mapping[str, Mapping[str, Lifetimes]] = field(default_factory=dict)
    edges: Sequence[tuple[str, str]] = ()

    @property
    def cycles(self) -> int:
        """Of all regions, one after the other; the CPU's time in between is not known."""
        return sum(result.cycles for result in self.regions.values())

    @property
    def milliseconds(self) -> float:
        """The cycles at the clock of the machine."""
        return self.cycles / (self.timing.clock_mhz * 1000)

    @property
    def peak(self) -> int:
        """MACs that the GEMM core does in a cycle."""
        return self.config.batch * self.config.block**2

    @property
    def macs(self) -> int:
        """On VTA."""
        return sum(op.on_vta.macs for op in self.placement)

    @property
    def macs_total(self) -> int:
        """Multiply-accumulates of the whole model, on VTA and on the CPU."""
        return sum(op.macs for op in self.placement)

    @property
    def alu_ops(self) -> int:
        """On VTA."""
        return sum(op.on_vta.alu_ops for op in self.placement)

    @property
    def alu_ops_total(self) -> int:
        """ALU operations of the whole model, on VTA and on the CPU."""
        return sum(op.alu_ops for op in self.placement)

    @property
    def host_bytes(self) -> int:
        """What the host writes to fold operands."""
        return sum(op.host_bytes for op in self.placement)

    @property
    def dram(self) -> dict[str, int]:
        """Bytes by kind, over all layers."""
        return {kind: sum(layer.dram[kind] for layer in self.layers) for kind in DRAM}

    @property
    def counters(self) -> dict[str, int]:
        """The seven counters, summed over all layers."""
        return {n: sum(layer.counters[n] for layer in self.layers) for n in COUNTER_NAMES}

    @property
    def port_busy(self) -> int:
        """Cycles in which the memory port moves data."""
        return sum(sum(result.port.values()) for result in self.regions.values())

    def queue(self, queue: Queue) -> dict[str, int]:
        """Cycles of one queue by ACTIVITIES, and ``drained``; they add up to ``cycles``."""
        total = {what: sum(x.breakdown[queue][what] for x in self.layers) for what in ACTIVITIES}
        drained = sum(result.queues[queue].drained for result in self.regions.values())
        return {**total, "drained": drained}

    def to_json(self) -> JsonObject:
        """What the page shows; docs/report.md explains the keys."""
        return {
            "cycles": self.cycles,
            "milliseconds": self.milliseconds,
            "macs_total": self.macs_total,
            "macs_offloaded": self.macs,
            "alu_ops_total": self.alu_ops_total,
            "alu_ops_offloaded": self.alu_ops,
            "host_bytes": self.host_bytes,
            "peak_macs_per_cycle": self.peak,
            "port_busy_cycles": self.port_busy,
            "queues": {q.name.lower(): self.queue(q) for q in Queue},
            "dram_bytes": self.dram,
            "counters": self.counters,
            "regions": {name: result.cycles for name, result in self.regions.items()},
            "layers": [layer.to_json() for layer in self.layers],
            "memory": self.memory.to_json(),
            "placement": placement_json(self.placement),
            "config": self.config.to_dict(),
        }


def model_facts(
    config: VTAConfig,
    programs: Mapping[str, Program],
    placement: Sequence[Placement],
    sharing: Sequence[Sharing] = (),
    edges: Sequence[tuple[str, str]] = (),
) -> ModelFacts:
    """Simulate the time of ``programs`` and collect what their streams say.

    Args:
        config: the machine.
        programs: of all regions by name, in the order of their numbers.
        placement: where every operator runs.
        sharing: which tensors stay on chip, :attr:`vta_byoc.pipeline.Compiled.sharing`.
        edges: of the model, :func:`vta_byoc.reports.run.graph.operator_edges`.
    """
    regions = time_programs(programs)
    layers: list[LayerFacts] = []
    live: dict[str, Mapping[str, Lifetimes]] = {}
    for name, program in programs.items():
        insns = [ISA.of(program.config).decode(*words) for words in program.insns.tolist()]
        buffers = Buffers(program, insns)
        layers += _layers(name, program, regions[name], insns, buffers)
        live[name] = buffers.lifetimes()
    layers = _with_work(layers, placement)
    memory = MemoryFacts.of(programs, sharing)
    return ModelFacts(
        config, config.timing, placement, regions, layers, memory, programs, live, edges
    )


def _layers(
    region: str,
    program: Program,
    result: TimingResult,
    insns: Sequence[Instruction],
    buffers: Buffers,
) -> Iterator[LayerFacts]:
    """The layers of a region, without what the model says of them."""
    for layer in result.layers:
        part = slice(layer.begin, layer.end)
        counters = count_stream(program.config, program.insns[part])
        breakdown = _breakdown(insns[part], result.instructions[part])
        dram = {kind: counters[name] for kind, name in _BYTES.items()}
        dram["insn"] = (layer.end - layer.begin) * INSN_BYTES
        yield LayerFacts(
            region,
            layer.name,
            0,
            0,
            "",
            layer,
            counters,
            breakdown,
            {kind: dram[kind] for kind in DRAM},
            buffers.layer(layer.begin, layer.end),
        )


def _with_work(layers: Sequence[LayerFacts], ops: Iterable[Placement]) -> list[LayerFacts]:
    """``layers`` with the work of their operators.

    Layers of one operator share it as they share its GEMM and ALU micro-ops.
    """
    of_op: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        for name in operators_of(layer.name):
            of_op.setdefault(name, []).append(number)
    found = list(layers)
    computed: list[dict[str, None]] = [{} for _ in layers]
    for op in ops:
        numbers = of_op.get(op.name, [])
        parts = [found[i].counters for i in numbers]
        macs = shared(op.on_vta.macs, [part["gemm_counter"] for part in parts])
        alu_ops = shared(op.on_vta.alu_ops, [part["alu_counter"] for part in parts])
        for i, mac, alu in zip(numbers, macs, alu_ops, strict=True):
            layer = found[i]
            found[i] = dataclasses.replace(
                layer, macs=layer.macs + mac, alu_ops=layer.alu_ops + alu
            )
            computed[i][how(op)] = None
    return [
        dataclasses.replace(layer, how="; ".join(filter(None, words)))
        for layer, words in zip(found, computed, strict=True)
    ]


def shared(amount: int, weights: Sequence[int]) -> list[int]:
    """``amount`` in parts as large as ``weights`` say; equal ones where all are 0."""
    if not any(weights):
        weights = [1] * len(weights)
    ends = [amount * sum(weights[:i]) // sum(weights) for i in range(1, len(weights) + 1)]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


# ---------------------------------------------------------------- time
def _breakdown(
    insns: Sequence[Instruction], times: Sequence[InsnTime]
) -> dict[Queue, dict[str, int]]:
    breakdown = {q: dict.fromkeys(ACTIVITIES, 0) for q in Queue}
    for insn, time in zip(insns, times, strict=True):
        mine = breakdown[time.queue]
        mine["startup"] += time.startup
        mine[activity(insn)] += time.busy - time.startup
        for reason, count in time.stalls.items():
            mine[reason] += count
    return breakdown


def activity(insn: Instruction) -> str:
    """What a queue does while ``insn`` runs, one of BUSY."""
    if insn.opcode in (Opcode.LOAD, Opcode.STORE):
        return "transfer" if insn["x_size"] and insn["y_size"] else "no-op"
    if insn.opcode == Opcode.GEMM:
        return "reset" if insn["reset"] else "GEMM"
    return "ALU" if insn.opcode == Opcode.ALU else "no-op"
