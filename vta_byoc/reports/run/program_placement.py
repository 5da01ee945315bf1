"""A program that comes without a model: what its layers would be in a placement record."""

from __future__ import annotations

from collections.abc import Iterator

from vta_byoc.hw.counters import count_stream
from vta_byoc.hw.program.program import Layer, Program
from vta_byoc.ir.names import operators_of
from vta_byoc.partitioning.placement import VTA, Placement, Placements, Taken


def program_placement(program: Program, op: str, by: str) -> Placements:
    """The operators of a program's layers, with the work that their instructions do.

    Args:
        program: the program.
        op: the kind that all of them get.
        by: what computes them, in words.
    """
    return Placements(
        each for layer in program.layers for each in _of_layer(program, layer, op, by)
    )


def _of_layer(program: Program, layer: Layer, op: str, by: str) -> Iterator[Placement]:
    """Of a fused layer the first operator has the work; the others are computed in it."""
    config = program.config
    counters = count_stream(config, program.insns[layer.begin : layer.end])
    macs = counters["gemm_counter"] * config.batch * config.block**2
    alu_ops = counters["alu_counter"] * config.batch * config.block
    first, *others = operators_of(layer.name)
    yield Placement(first, op, VTA, Taken(kernel=by), macs, alu_ops)
    for name in others:
        yield Placement(name, op, VTA, Taken(within=first), 0)
