"""Partitioned modules run piece by piece: regions on the simulator, everything else in numpy.

Ten times as fast as building the host's part with LLVM, and nothing of it is the compiler's: packs,
unpacks and folds are numpy models here.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from dialect_numpy import run as dialect
from dialect_numpy import value_of
from tvm import relax
from tvm.ir import TupleGetItem

from vta_byoc.base.rewrites import without
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim import simulator
from vta_byoc.ir.bindings import is_constant, op_name, static_shape, straight_bindings
from vta_byoc.partition import Placement, placements
from vta_byoc.partitioning.composite import composite_source, composites
from vta_byoc.partitioning.entry import Plan
from vta_byoc.partitioning.kept_match import match_of
from vta_byoc.partitioning.packed_forms import FOLD, PACK, UNPACK
from vta_byoc.partitioning.region import Region, region_functions
from vta_byoc.passes.demands import Demands
from vta_byoc.passes.lower_regions import compile_region
from vta_byoc.pipeline import ON, partition_passes
from vta_byoc.validation.bit_exact import same_bits, same_packed, stored_tensors, values_of
from vta_byoc.workload.im2col import Im2col
from vta_byoc.workload.layout import TOKENS, TURNED
from vta_byoc.workload.packing import PLANES, pack_activation, unpack_activation

SMALLER = 2
"""Logarithm of what the small machine's SRAM is smaller by."""


def machines() -> dict[str, VTAConfig]:
    """The geometries of the tests by name."""
    sim = VTAConfig.preset("sim")
    small = dataclasses.replace(
        sim,
        log_inp_buff_size=sim.log_inp_buff_size - SMALLER,
        log_wgt_buff_size=sim.log_wgt_buff_size - SMALLER,
        log_acc_buff_size=sim.log_acc_buff_size - SMALLER,
    )
    presets = {"1x16": "sim", "4x8": "tophub_4x8", "2x16": "2x16", "1x32": "1x32"}
    return {**{n: VTAConfig.preset(p) for n, p in presets.items()}, "quarter": small}


@dataclass
class Run:
    """One module on one machine.

    ``plans`` by source name; ``programs`` by the name of the region's last tensor; ``stored`` are
    the packed tensors that regions stored, by name; ``seconds`` of processor time from the dialect
    to programs.
    """

    module: tvm.IRModule
    placement: dict[str, Placement]
    plans: dict[str, Plan]
    programs: dict[str, Program] = field(default_factory=dict)
    outputs: list[np.ndarray] = field(default_factory=list)
    stored: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0


def partitioned(
    mod: tvm.IRModule,
    config: VTAConfig,
    *,
    hosted: bool = True,
    planned: bool = True,
    scopes: str = ON,
    demands: Demands | None = None,
) -> Run:
    """``mod`` partitioned, with the plan of each composite (``hosted``: of an operand from the
    host) if it is to be ``planned``."""
    told, clean, mark, *rest = partition_passes(config, scopes=scopes, demands=demands)
    marked = mark(clean(told(mod)))
    plans = {}
    for func in composites(marked).values() if planned else ():
        plans[composite_source(func)] = match_of(func).planned(config, hosted)
    packed = tvm.transform.Sequential(rest)(marked)
    return Run(packed, {p.name: p for p in placements(packed)}, plans)


def run_module(
    mod: tvm.IRModule,
    config: VTAConfig,
    inputs: Sequence[np.ndarray],
    *,
    planned: bool = True,
    scopes: str = ON,
    demands: Demands | None = None,
    stored: bool = False,
    simulated: VTAConfig | None = None,
) -> Run:
    """Partition, compile and run ``mod``; its plans are right where composites read parameters of
    ``main``.  Every tensor that a region stores is kept if wanted (``stored``).  Programs run on
    ``simulated`` if given, a machine that can more, whose simulator is there already."""
    start = time.process_time()
    run = partitioned(mod, config, planned=planned, scopes=scopes, demands=demands)
    run.seconds = time.process_time() - start
    main = run.module["main"]
    evaluator = _Evaluator(run, config, stored, simulated or config)
    env: dict[Any, Any] = dict(zip(main.params, inputs, strict=True))
    for binding in straight_bindings(main):
        env[binding.var] = evaluator.value(binding, env)
    body = main.body.body
    results = body.fields if isinstance(body, tvm.ir.Tuple) else [body]
    run.outputs = [env[r] for r in results]
    return run


def equal_run(
    mod: tvm.IRModule,
    config: VTAConfig,
    inputs: Sequence[np.ndarray],
    off: Sequence[str] = (),
    scopes: str = ON,
) -> Run:
    """`run_module` without the rewrites ``off``: every result, and every tensor that a region
    stores, is the dialect's in numpy."""
    with without(off):
        run = run_module(mod, config, inputs, planned=False, scopes=scopes, stored=True)
    values = dialect(mod, *inputs)
    wanted = values["result"] if isinstance(values["result"], list) else [values["result"]]
    pairs = zip(run.outputs, wanted, strict=True)
    checks = [same_bits("a result", "main", got, want) for got, want in pairs]
    for name, packed in run.stored.items():
        checks.append(same_packed(name, "a region", packed, values_of(values, name)))
    assert run.stored and all(check.equal for check in checks), list(map(str, checks))
    return run


class _Evaluator:
    """Values of the bindings of a partitioned ``main``."""

    def __init__(self, run: Run, config: VTAConfig, stored: bool, simulated: VTAConfig) -> None:
        self._run = run
        self._config = config
        self._simulated = simulated
        self._stored = stored
        self._regions = {gv.name_hint: f for gv, f in region_functions(run.module).items()}

    def value(self, binding: relax.VarBinding, env: dict[Any, Any]) -> Any:
        call = binding.value
        if isinstance(call, TupleGetItem):
            element = env[call.tuple_value][call.index]
            return np.asarray(element).astype(str(binding.var.ty.dtype))
        if not isinstance(call, relax.Call):
            return env[call]
        name = getattr(call.op, "name_hint", "")
        if name in self._regions:
            return self._region(self._regions[name], call, env)
        if op_name(call) == "relax.call_tir":
            return self._host(call, binding, env)
        value = value_of(call, env)
        if not isinstance(binding.var.ty, relax.TensorType):
            return value
        return np.asarray(value).astype(str(binding.var.ty.dtype))

    def _region(self, func: relax.Function, call: relax.Call, env: dict[Any, Any]) -> Any:
        region = Region.of(func)
        known = {i: a.value.numpy() for i, a in enumerate(call.args) if is_constant(a)}
        start = time.process_time()
        program = compile_region(self._run.module, func, known, self._config)
        self._run.seconds += time.process_time() - start
        self._run.programs[region.outputs[-1]] = program
        names = zip(region.params, call.args, strict=True)
        inputs = {n: env[a] for n, a in names if not is_constant(a)}
        if program.config != self._simulated:
            program = dataclasses.replace(program, config=self._simulated)
        arena = simulator.run(program, inputs).arena
        if self._stored:
            self._run.stored.update(stored_tensors(program, arena))
        results = [program.view(arena, name).copy() for name in region.outputs]
        return results[0] if len(results) == 1 else results

    def _host(self, call: relax.Call, binding: relax.VarBinding, env: dict[Any, Any]) -> Any:
        kind, value = str(call.args[0].name_hint), env[call.args[1].fields[0]]
        shape, dtype = static_shape(binding.var), str(binding.var.ty.dtype)
        if kind.startswith((f"{PACK}_{TOKENS}", f"{PACK}_{TURNED}")):
            is_turned = kind.startswith(f"{PACK}_{TURNED}")
            return packed_tokens(np.swapaxes(value, 1, 2) if is_turned else value, self._config)
        if kind.startswith(PACK):
            return pack_activation(value, self._config)
        if kind.startswith(f"{UNPACK}_{TOKENS}"):
            return unpacked_tokens(value, shape, dtype)
        if kind.startswith(UNPACK):
            return unpacked(value, shape, dtype)
        assert kind.startswith(FOLD)
        fold = Im2col.of(self._run.module[call.args[0]])
        return pack_activation(folded_image(value, fold), self._config)


# ---------------------------------------------------------------- numpy models of host functions
def unpacked(x: np.ndarray, shape: Sequence[int], dtype: str) -> np.ndarray:
    """(N, C, H, W) of a packed tensor; int32 is four byte planes, the least significant first."""
    n, c = shape[:2]
    if dtype == "int8":
        return unpack_activation(x, n, c)
    assert len(x) == PLANES
    planes = [unpack_activation(plane, n, c).view("uint8").astype("uint32") for plane in x]
    word = sum(plane << np.uint32(8 * i) for i, plane in enumerate(planes))
    return np.asarray(word, "uint32").view("int32")


def packed_tokens(x: np.ndarray, config: VTAConfig) -> np.ndarray:
    """(G, T, C) to (1, G * C/k, 1, T, 1, k), tokens and channels in whole blocks of k."""
    groups, rows, channels = x.shape
    whole = [-(-size // config.block) * config.block for size in (rows, channels)]
    full = np.zeros((groups, *whole), x.dtype)
    full[:, :rows, :channels] = x
    columns = full.transpose(0, 2, 1).reshape(1, groups * whole[1], 1, whole[0])
    return pack_activation(columns, config)


def unpacked_tokens(x: np.ndarray, shape: Sequence[int], dtype: str) -> np.ndarray:
    """(G, T, C) of what `packed_tokens` made, or of its int32 as byte planes."""
    groups, rows, channels = shape
    *_, blocks, _, columns, _, lanes = x.shape
    values = unpacked(x, (1, blocks * lanes), dtype).reshape(groups, -1, columns)
    return np.ascontiguousarray(values.transpose(0, 2, 1)[:, :rows, :channels])


def folded_image(x: np.ndarray, fold: Im2col) -> np.ndarray:
    """The gathered windows of ``x`` (N, C, H, W) as channels, before packing."""
    n, c, height, width = x.shape
    _, _, rows, cols = fold.shape
    out = np.zeros((n, fold.window[0] * fold.window[1], c, rows, cols), x.dtype)
    for tap in range(out.shape[1]):
        dy, dx = divmod(tap, fold.window[1])
        for r in range(rows):
            for s in range(cols):
                y = r * fold.grid[0] + dy * fold.dilation[0] - fold.offset[0]
                z = s * fold.grid[1] + dx * fold.dilation[1] - fold.offset[1]
                if 0 <= y < height and 0 <= z < width:
                    out[:, tap, :, r, s] = x[:, :, y, z]
    lanes = [127] * (fold.constants - 1) + [1] if fold.constants else []
    constants = np.broadcast_to(np.reshape(lanes, (-1, 1, 1)), (n, len(lanes), rows, cols))
    gathered = out.reshape(n, -1, rows, cols)
    return np.concatenate([gathered, constants.astype(x.dtype)], axis=1).reshape(fold.shape)
