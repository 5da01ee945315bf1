"""From a TensorIR schedule of your own to results on VTA.

    import vta_byoc.schedule as vs

    sch = s_tir.Schedule(te.create_prim_func([data, weight, out]))
    ...                                       # set_scope, split, compute_at, decompose_reduction
    vs.dma_copy(sch, "data_local.inp_buffer")  # state what each nest is
    kernel = vs.kernel(sch, config=cfg)        # a verified program
    result = kernel(data, weight)

docs/own-schedules.md walks through it.
"""

from __future__ import annotations

from vta_byoc.schedule.annotate import alu, dma_copy, gemm
from vta_byoc.schedule.build import kernel
from vta_byoc.schedule.compiled import Kernel
from vta_byoc.schedule.explanation import BlockFacts, Explanation, explain
from vta_byoc.schedule.nests import ScheduleError
from vta_byoc.schedule.reference import random_inputs, reference
from vta_byoc.workload.memory import ACC, DRAM_ACC, DRAM_INP, DRAM_WGT, INP, WGT

__all__ = [
    "ACC",
    "DRAM_ACC",
    "DRAM_INP",
    "DRAM_WGT",
    "INP",
    "WGT",
    "BlockFacts",
    "Explanation",
    "Kernel",
    "ScheduleError",
    "alu",
    "dma_copy",
    "explain",
    "gemm",
    "kernel",
    "random_inputs",
    "reference",
]
