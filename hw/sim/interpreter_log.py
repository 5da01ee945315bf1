"""The functional simulator with a commit log: a digest after each instruction.

It is the function of ``hw/sim/instructions.py``, with the log as one output more.
"""

from __future__ import annotations

import functools

import numpy as np
import tvm
from tvm.target import Target

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.faults import COUNTER_SLOTS
from vta_byoc.hw.sim.dot import DOTS
from vta_byoc.hw.sim.instructions import vta_run
from vta_byoc.hw.sim.interpreter import (
    NO_REGION,
    _lanes,
    code_facts,
    multiplies,
    seen_by_programs,
    sram_shapes,
    vnni_lanes,
)
from vta_byoc.hw.sim.interpreter import build_interpreter as _build_interpreter
from vta_byoc.hw.sim.kept_code import kept_library
from vta_byoc.hw.sim.sram import Machine
from vta_byoc.hw.sim.target import as_target, device_code, runs_here

SYMBOL = "vta_log"


@functools.cache
def _build(config: VTAConfig, target_json: str, dot: str) -> tvm.runtime.Module:
    target = Target(target_json)
    lanes = _lanes(config, target, dot)

    def build() -> tvm.runtime.Module:
        function = vta_run.specialize(m=Machine(config, DOTS[dot](lanes)), name=SYMBOL)
        module = tvm.IRModule({SYMBOL: function})
        return device_code(module, target)

    return kept_library(code_facts(config, target, dot, log=True), build)


@functools.cache
def _chosen(config: VTAConfig, target_json: str, dot: str) -> str:
    """The way of multiplying that "auto" means in ``interpreter.build_interpreter``."""
    if dot != "auto":
        return dot
    target = Target(target_json)
    if not vnni_lanes(config, target) or not runs_here(target):
        return "portable"
    module = _build_interpreter(config, target, "vnni", probe=True)
    return "vnni" if multiplies(config, module, probe=True) else "portable"


def run_logged_stream(
    config: VTAConfig, insns: np.ndarray, arena: np.ndarray, dot: str = "auto"
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Run a stream (n, 2) uint64 on a copy of ``arena`` int8, whatever faults it has.

    Returns (arena, counters with the fault (``hw/faults.py``), SRAM by name, digests (n,) uint64:
    0 where no instruction was executed).
    """
    machine, target = seen_by_programs(config), str(as_target(None))
    module = _build(machine, target, _chosen(machine, target, dot))
    arrays = insns, arena, np.zeros(0, np.int8)
    given = [tvm.runtime.tensor(np.ascontiguousarray(x)) for x in arrays]
    out = tvm.runtime.empty((arena.size,), "int8")
    counters = tvm.runtime.empty((COUNTER_SLOTS,), "int64")
    log = tvm.runtime.empty((len(insns),), "uint64")
    sram = {name: tvm.runtime.empty(*shape) for name, shape in sram_shapes(config).items()}
    module[SYMBOL](*given, NO_REGION, out, counters, *sram.values(), log)
    return out.numpy(), counters.numpy(), {k: x.numpy() for k, x in sram.items()}, log.numpy()
