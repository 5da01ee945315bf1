"""A small program and the placement of its model, for the tests of reports."""

from __future__ import annotations

import dataclasses
import functools
import itertools

from conv_cases import NetBuilder, add_work, conv_tile, rescale

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal
from vta_byoc.hw.program.program import Program
from vta_byoc.partition import Placement
from vta_byoc.partitioning.entry import Candidate
from vta_byoc.partitioning.placement import Taken
from vta_byoc.passes.fuse_tiles import DEARER, HINTED, READ_BY_OTHERS, SHARED, Sharing
from vta_byoc.reports.run.layers import ModelFacts, model_facts
from vta_byoc.strategy import DRAM_INP
from vta_byoc.workload.memory import ACC
from vta_byoc.workload.workloads import Conv2dWorkload

SIM = VTAConfig.preset("sim")
LANES = Refusal("3 of 16 input lanes would work", remedy="at least a quarter must")
WORK = Conv2dWorkload(1, 32, 32, 8, 8, (3, 3), (1, 1), (1, 1, 1, 1), epilogue=rescale(9))


@functools.cache
def net() -> Program:
    """Two convolutions, the first tiled, and an addition."""
    builder = NetBuilder(SIM)
    builder.input("x", 1, 32, 8, 8)
    builder.conv("conv1", "x", WORK, conv_tile(WORK, 1, 4, 8, 1))
    builder.conv("conv2", "conv1", WORK)
    builder.add("sum", "conv2", "x", add_work((1, 32, 8, 8)), kind="output")
    return builder.finish("sum").program


FOLD = Candidate("windows of 2x2 folded into 4 channels", 9, (Candidate("packed GEMM", 99),))
PLACEMENT = (
    Placement("stem", "relax.nn.conv2d", "cpu", LANES, 200_000, 8_192),
    Placement(
        "conv1",
        "relax.nn.conv2d",
        "vta",
        Taken("vta.conv2d"),
        WORK.macs,
        8_192,
        (FOLD,),
        2_007_040,
        131_712,
    ),
    Placement(
        "conv2",
        "relax.nn.conv2d",
        "vta",
        Taken("vta.conv2d"),
        WORK.macs,
        8_192,
        (Candidate("packed GEMM"),),
    ),
    Placement("sum", "relax.add", "vta", Taken("vta.binary", remarks=("75 % idle",)), 0, 4_099),
    *(
        Placement(f"cpu{i}", "relax.exp", "cpu", Refusal("no pattern takes", "relax.exp"), 0)
        for i in range(8)
    ),
)


SHARING = (
    Sharing("conv2", "sum", ACC, SHARED, 2_048, 4_096, 30_000.0, 29_000.0),
    Sharing(
        "conv1",
        "sum",
        DRAM_INP,
        'need "sum" as its only reader, have conv2 too',
        2_048,
        kind=READ_BY_OTHERS,
    ),
    Sharing(
        "a", "b", DRAM_INP, "together 11 cycles by estimate, apart 10", 1_000, 0, 10.0, 11.0, DEARER
    ),
    Sharing(
        "c", "d", DRAM_INP, "together 31 cycles by estimate, apart 20", 2_000, 0, 20.0, 31.0, DEARER
    ),
    Sharing("e", "f", ACC, HINTED, 2_048, 4_096, 20.0, 31.0),
)


@functools.cache
def facts() -> ModelFacts:
    return model_facts(SIM, {"region0": net(), "region1": net()}, PLACEMENT, SHARING)


def many(count: int, name: str = "backbone_stage{}_block_spatial_convolution") -> ModelFacts:
    """A model of ``count`` layers in three regions."""
    source = itertools.islice(itertools.cycle(facts().layers), count)
    layers = [
        dataclasses.replace(layer, name=name.format(i), region=f"region{3 * i // count}")
        for i, layer in enumerate(source)
    ]
    return dataclasses.replace(facts(), layers=layers)
