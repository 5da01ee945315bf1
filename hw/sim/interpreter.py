"""The functional simulator as a TVM runtime module, built for a configuration and a target.

The module holds one packed function, :func:`symbol`, with the signature every device shares:
``(insn (n, 2) uint64, inputs (i,) int8, image (m,) int8, region int64, arena (a,) int8,
counters (16,) int64)``, of which arena and counters are outputs that may be uninitialised.  The
region is the number of the program in its model (:data:`NO_REGION` for a program by itself): a call
carries it for whoever observes calls, and devices do nothing with it.  The module can be attached
to a Relax module (attribute ``external_mods``) and called with ``relax.call_dps_packed``.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm.target import Target

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import COUNTER_SLOTS, STATUS_SLOT
from vta_byoc.hw.isa import ISA, SRAMS, AluOp, MemType, Opcode
from vta_byoc.hw.sim.dot import DOTS
from vta_byoc.hw.sim.instructions import vta_run
from vta_byoc.hw.sim.kept_code import kept, kept_library
from vta_byoc.hw.sim.sram import Machine
from vta_byoc.hw.sim.target import as_target, device_code, features, runs_here

MAX_LANES = 16
SRAM_ARGUMENTS = ("uop_h", "inp_h", "wgt_h", "acc_h")


SYMBOL_PREFIX = "vta_run_"
"""Every driver function starts with it."""


NO_REGION = -1
"""The region of a program that belongs to no model."""
REGION_ARGUMENT = 3
"""Where the region stands among the arguments of a driver function."""


def symbol(config: VTAConfig) -> str:
    """Name of the packed function: configurations that behave differently differ in it."""
    caps = config.capabilities
    suffix = "".join(
        (
            "" if caps.mul else "_nomul",
            "" if caps.acc_8bit else "_noacc8",
            "_immsrc" if caps.imm_reads_src else "",
            "_shrmod" if caps.shift_modulo else "",
            "_out" if caps.out_sram else "",
            "" if caps.max_tokens == Capabilities().max_tokens else f"_t{caps.max_tokens}",
        )
    )
    return f"{SYMBOL_PREFIX}{config.key}{suffix}"


def build_interpreter(
    config: VTAConfig,
    target: Target | Mapping[str, Any] | None = None,
    dot: str = "auto",
    *,
    probe: bool = False,
) -> tvm.runtime.Module:
    """Compile the interpreter, or return the one that was compiled before, here or on disk.

    ``target`` is LLVM's, by default this machine's.  ``dot`` names how GEMM multiplies: "auto",
    "portable" or "vnni".  With ``probe`` the function takes four more outputs, the SRAM contents,
    and leaves a fault in the counters instead of raising.
    """
    return _build(seen_by_programs(config), str(as_target(target)), dot, probe)


_SEEN = ("capabilities", "field_widths")


@functools.cache
def seen_by_programs(config: VTAConfig) -> VTAConfig:
    """What a program can tell apart: the geometry and the capabilities, not name or timing."""
    fields = [f.name for f in dataclasses.fields(config)]
    seen = [n for n in fields if n.startswith("log_") or n in _SEEN]
    return dataclasses.replace(VTAConfig(), **{n: getattr(config, n) for n in seen})


@functools.cache
def _build(config: VTAConfig, target_json: str, dot: str, probe: bool) -> tvm.runtime.Module:
    target = Target(target_json)
    if dot != "auto":
        return _compile(config, target, dot, probe)
    if not vnni_lanes(config, target) or not runs_here(target):
        return _build(config, target_json, "portable", probe)
    module = _build(config, target_json, "vnni", probe)
    if multiplies(config, module, probe=probe):
        return module
    warnings.warn(
        "vpdpbusd gives wrong products on this processor; using portable code", stacklevel=3
    )
    return _build(config, target_json, "portable", probe)


def _compile(config: VTAConfig, target: Target, dot: str, probe: bool) -> tvm.runtime.Module:
    lanes = _lanes(config, target, dot)

    def build() -> tvm.runtime.Module:
        absent = dict.fromkeys(("log_h",) if probe else (*SRAM_ARGUMENTS, "log_h"))
        name = symbol(config)
        function = vta_run.specialize(m=Machine(config, DOTS[dot](lanes)), name=name, **absent)
        module = tvm.IRModule({name: function})
        return device_code(module, target)

    # A probe is called here; the other becomes a part of executables, which are exported.
    keep = kept_library if probe and runs_here(target) else kept
    return keep(code_facts(config, target, dot, probe=probe), build)


def code_facts(
    config: VTAConfig, target: Target, dot: str, *, probe: bool = False, log: bool = False
) -> dict[str, object]:
    """What the code of an interpreter depends on beside its source, as :func:`kept` takes it."""
    machine = dataclasses.asdict(config)
    facts: dict[str, object] = {"machine": machine, "target": str(target), "dot": dot}
    return {**facts, "lanes": _lanes(config, target, dot), "probe": probe, "log": log}


def _lanes(config: VTAConfig, target: Target, dot: str) -> int:
    """int32 lanes of the vectors to compute with."""
    if dot not in DOTS:
        raise VTAError(f"unknown dot {dot!r}; known: auto, {', '.join(DOTS)}; choose one")
    if dot == "portable":
        return min(config.block, MAX_LANES)
    lanes = vnni_lanes(config, target)
    if not lanes:
        raise VTAError(
            f"dot 'vnni' on block {config.block} and target {target}; it needs a block of 8 or "
            "more and a processor with avx512vnni or avxvnni; use dot 'portable'"
        )
    return lanes


def vnni_lanes(config: VTAConfig, target: Target) -> int:
    """Lanes of the widest vpdpbusd that fits; 0 where there is none."""
    have = features(target)
    if config.block >= 16 and "avx512vnni" in have:
        return 16
    narrow = "avxvnni" in have or {"avx512vnni", "avx512vl"} <= have
    return 8 if config.block >= 8 and narrow else 0


# ---------------------------------------------------------------- calling
def sram_shapes(config: VTAConfig) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of each on-chip memory, in the order of the probe's outputs."""
    return {
        name: ((config.depths[name], *config.element_shape(name)), memory.dtype)
        for name, memory in SRAMS.items()
    }


def call(
    config: VTAConfig,
    module: tvm.runtime.Module,
    insns: np.ndarray,
    inputs: np.ndarray,
    image: np.ndarray,
    arena_bytes: int,
    *,
    probe: bool = False,
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Run a device's packed function: (arena int8, counters int64, SRAM by name or empty)."""
    given = [tvm.runtime.tensor(np.ascontiguousarray(x)) for x in (insns, inputs, image)]
    shapes = sram_shapes(config) if probe else {}
    sram = {name: tvm.runtime.empty(*shape) for name, shape in shapes.items()}
    arena, counters = call_with(config, module, given, arena_bytes, sram.values())
    return arena, counters, {name: x.numpy() for name, x in sram.items()}


def call_with(
    config: VTAConfig,
    module: tvm.runtime.Module,
    given: Sequence[tvm.runtime.Tensor],
    arena_bytes: int,
    sram: Iterable[tvm.runtime.Tensor] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """Run a device's packed function on tensors that it reads: (arena int8, counters int64)."""
    arena = tvm.runtime.empty((arena_bytes,), "int8")
    counters = tvm.runtime.empty((COUNTER_SLOTS,), "int64")
    module[symbol(config)](*given, NO_REGION, arena, counters, *sram)
    return arena.numpy(), counters.numpy()


# ---------------------------------------------------------------- self-check
def multiplies(config: VTAConfig, module: tvm.runtime.Module, *, probe: bool = False) -> bool:
    """Whether a built interpreter multiplies exactly: random blocks and blocks of -128."""
    rng = np.random.default_rng(0)
    inp = rng.integers(-128, 128, (2, config.batch, config.block), np.int8)
    wgt = rng.integers(-128, 128, (2, config.block, config.block), np.int8)
    inp[1], wgt[1] = -128, -128
    slot = max(config.acc_elem_bytes, 2 * config.wgt_elem_bytes, 2 * config.inp_elem_bytes)
    arena = np.zeros(7 * slot, np.int8)
    arena[slot : slot + inp.size] = inp.ravel()
    arena[2 * slot : 2 * slot + wgt.size] = wgt.ravel()
    insns, none = _check_stream(config, slot), np.zeros(0, np.int8)
    result, counters, _ = call(config, module, insns, arena, none, arena.size, probe=probe)
    # Element i is multiplied once by weight i and once by weight 0.
    twice = inp.astype(np.int32) @ (wgt.astype(np.int32) + wgt[0]).transpose(0, 2, 1)
    octets = [twice >> (8 * i) for i in range(4)]
    found = [result[(3 + i) * slot :][: twice.size].reshape(twice.shape) for i in range(4)]
    exact = all(np.array_equal(f, o.astype(np.int8)) for f, o in zip(found, octets, strict=True))
    return exact and counters[STATUS_SLOT] == 0


def _check_stream(config: VTAConfig, slot: int) -> np.ndarray:
    """Multiply two INP elements with moving and with fixed weights, store all four ACC bytes."""
    encode = ISA.of(config).encode

    def transfer(opcode: Opcode, mem: MemType, at: int, count: int) -> tuple[int, int]:
        base = at * slot // dram_elem_bytes(config, mem)
        return encode(opcode, mem_type=mem, dram_base=base, y_size=1, x_size=count, x_stride=count)

    loop = {"uop_end": 1, "iter_out": 2, "iter_in": 1, "dst_factor_out": 1, "src_factor_out": 1}
    stream = [
        transfer(Opcode.LOAD, MemType.UOP, 0, 1),
        transfer(Opcode.LOAD, MemType.INP, 1, 2),
        transfer(Opcode.LOAD, MemType.WGT, 2, 2),
        encode(Opcode.GEMM, **loop, reset=1),
        encode(Opcode.GEMM, **loop, wgt_factor_out=1),
        encode(Opcode.GEMM, **loop),
    ]
    for i in range(4):
        stream.append(transfer(Opcode.STORE, MemType.OUT, 3 + i, 2))
        stream.append(encode(Opcode.ALU, **loop, alu_opcode=AluOp.SHR, use_imm=1, imm=8))
    return np.array([*stream, encode(Opcode.FINISH)], np.uint64)
