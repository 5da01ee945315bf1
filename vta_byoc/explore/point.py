"""One machine and one model: compiled, not run; what it costs."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_bytes
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.importers.load import load_model
from vta_byoc.pipeline import compile_programs
from vta_byoc.quantization.calibration.random_inputs import random_sample
from vta_byoc.quantization.qdq import is_quantized
from vta_byoc.quantize import quantize, quantized_alike

SRAMS = ("uop", "inp", "wgt", "acc")
"""The memories on chip whose sizes a configuration gives."""


@dataclass(frozen=True)
class Job:
    """What a worker is asked: all that the result depends on.

    Attributes:
        model: path of the file.
        digest: SHA-256 of the file.
        machine: the machine's name in the space.
        config: the machine, as `VTAConfig.to_dict` gives it.
    """

    model: str
    digest: str
    machine: str
    config: dict[str, Any]

    @functools.cached_property
    def key(self) -> str:
        """Names the result in the log: equal for equal files and machines."""
        config = json.dumps(self.config, sort_keys=True)
        return hashlib.sha256(f"{self.digest} {config}".encode()).hexdigest()


@dataclass(frozen=True)
class Hardware:
    """What the core of a machine takes of an FPGA, as yosys counts it before placement.

    Attributes:
        part: the name of the FPGA.
        lut: look-up tables.
        ff: flip-flops.
        dsp: multipliers.
        bram: block memories, of 36 kbit on parts of Xilinx and of 18 kbit on ECP5.
        fits: whether the part has as many of all of them.
        error: why there is no such core; "" where there is.
    """

    part: str
    lut: float = 0
    ff: float = 0
    dsp: float = 0
    bram: float = 0
    fits: bool = False
    error: str = ""


@dataclass(frozen=True)
class Point:
    """What one machine costs for one model.

    Attributes:
        key: that of the job.
        model: the name of the file.
        machine: the machine's name in the space.
        cycles: of all regions, by the timing model.
        milliseconds: at the machine's clock.
        dram_bytes: read and written by the machine.
        sram_bytes: its memories on chip.
        macs: multiply-accumulates that it makes a cycle.
        utilisation: share of them that was used, of all cycles, in percent.
        error: why the model does not compile for it; "" where it does.
        hardware: what its core takes of an FPGA, where that was asked; it is not in the log.
    """

    key: str
    model: str
    machine: str
    cycles: int = 0
    milliseconds: float = 0.0
    dram_bytes: int = 0
    sram_bytes: int = 0
    macs: int = 0
    utilisation: float = 0.0
    error: str = ""
    hardware: Hardware | None = None

    def to_json(self) -> dict[str, Any]:
        """Every attribute by its name; `hardware` where there is one."""
        found = asdict(self)
        if self.hardware is None:
            del found["hardware"]
        return found

    def cost(self, axis: str) -> float:
        """What it costs on an axis: an attribute of its own, or one of `hardware`."""
        own = hasattr(self, axis)
        value: float = getattr(self if own else self.hardware, axis)
        return value


def measure(job: Job) -> Point:
    """Quantize on noise, compile, and time the programs; a refusal is a result too."""
    config = VTAConfig.from_dict(job.config)
    name = Path(job.model).name
    sram = sum(1 << getattr(config, f"log_{memory}_buff_size") for memory in SRAMS)
    macs = config.batch * config.block * config.block
    fixed = {"sram_bytes": sram, "macs": macs}
    try:
        programs = compile_programs(_quantized(job.model, job.digest, config), config).values()
    except ValueError as err:  # VTAError is one, and so are TVM's refusals of a model
        return Point(job.key, name, job.machine, **fixed, error=" ".join(str(err).split()))
    timed = [simulate(program) for program in programs]
    counters = [program.counters() for program in programs]
    cycles = sum(each.cycles for each in timed)
    used = sum(each["gemm_counter"] for each in counters)
    return Point(
        job.key,
        name,
        job.machine,
        cycles,
        sum(each.milliseconds for each in timed),
        sum(map(dram_bytes, counters)),
        **fixed,
        utilisation=100 * used / cycles if cycles else 0.0,
    )


@functools.lru_cache(maxsize=2)
def _model(path: str, digest: str) -> tvm.IRModule:
    """The model of a file, read once a worker; the digest tells changed files apart."""
    return load_model(path)


_MODULES: dict[Hashable, tvm.IRModule] = {}
"""Modules that this worker has quantized, the latest last."""
MOST_MODULES = 4


def _quantized(path: str, digest: str, config: VTAConfig) -> tvm.IRModule:
    """The model quantized for a machine: once a worker for all machines that it is alike for."""
    mod = _model(path, digest)
    key = (path, digest, quantized_alike(mod, config))
    if key not in _MODULES:
        while len(_MODULES) >= MOST_MODULES:
            del _MODULES[next(iter(_MODULES))]
        _MODULES[key] = quantize(mod, calibration=_noise(mod), config=config)
    return _MODULES[key]


def _noise(mod: tvm.IRModule) -> list[dict[str, np.ndarray]] | None:
    """One sample of noise, always the same: costs do not depend on values."""
    return None if is_quantized(mod) else [random_sample(mod, np.random.default_rng(0))]
