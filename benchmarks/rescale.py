"""What each form of rescaling costs: cycles of one output vector behind a layer's GEMM.

The layer is a 3x3 convolution of 64 channels on 56 x 56 pixels, padded, with bias, quantized in
every form that the integer dialect has; timing of sim. `digits` (weights of two digits), `shifts`
(sums of shifts) and `approximate` (weights of one digit) need no MUL and run on sim without it.
`alu` are cycles of the ALU for each vector (1 with an immediate, 2 with a tensor operand), `all`
those of the whole region beyond one GEMM pass, one reset and everything that overlaps them: the
second pass of `digits` counts. The baseline is one shift for all channels.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_bytes
from vta_byoc.hw.isa import ISA, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing import engine as timing
from vta_byoc.hw.timing.work import jobs_of
from vta_byoc.pipeline import compile_module
from vta_byoc.quantize import quantize

CHANNELS, SIZE = 64, 56
TAPS = 9


@dataclass(frozen=True)
class Mode:
    """A form of rescaling: options of `quantize`, and the zero point of the input."""

    name: str
    scales: str
    per_channel: bool
    zero: int = 0
    rescale: str | None = None

    def machine(self, config: VTAConfig) -> VTAConfig:
        """`config`, without MUL for a form that needs none."""
        if self.rescale is None:
            return config
        capabilities = dataclasses.replace(config.capabilities, mul=False)
        return dataclasses.replace(config, capabilities=capabilities)


MODES = (
    Mode("pow2", "pow2", False),
    Mode("pow2_per_channel", "pow2", True),
    Mode("mul", "mul", False),
    Mode("mul_per_channel", "mul", True),
    Mode("mul_per_channel_zero_points", "mul", True, zero=-128),
    Mode("digits", "mul", True, rescale="digits"),
    Mode("digits_zero_points", "mul", True, zero=-128, rescale="digits"),
    Mode("shifts", "mul", False, rescale="shifts"),
    Mode("shifts_per_channel", "mul", True, rescale="shifts"),
    Mode("approximate", "mul", True, rescale="approximate"),
)


def layer(mode: Mode) -> tvm.IRModule:
    """The layer in the integer dialect. A zero point comes from a model that states it."""
    rng = np.random.default_rng(0)
    spread = np.exp(rng.uniform(-1, 1, (CHANNELS, 1, 1, 1)))
    weight = rng.standard_normal((CHANNELS, CHANNELS, 3, 3)) * spread / 24
    stated = bool(mode.zero)
    shape = (1, CHANNELS, SIZE, SIZE)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "int8" if stated else "float32"))
    step, zero = relax.const(np.float32(0.03)), relax.const(np.int8(mode.zero))
    with builder.function("main", [x]):
        with builder.dataflow():
            data = builder.emit(relax.op.dequantize(x, step, zero)) if stated else x
            bias = relax.const(rng.standard_normal((1, CHANNELS, 1, 1)).astype("float32"))
            kernel = relax.const(weight.astype("float32"))
            y = builder.emit(relax.op.nn.conv2d(data, kernel, padding=1))
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(y, bias))))
            if stated:
                y = builder.emit(relax.op.quantize(y, relax.const(np.float32(0.05)), zero))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    samples = None if stated else [rng.standard_normal(shape).astype("float32")]
    return quantize(
        builder.get(),
        calibration=samples,
        scales=mode.scales,
        per_channel=mode.per_channel,
        rescale=mode.rescale,
    )


def program_of(mod: tvm.IRModule, config: VTAConfig) -> Program:
    """The one region of the layer."""
    (program,) = compile_module(mod, config, "null").programs.values()
    return program


def alu_cycles(program: Program) -> int:
    """Cycles that the ALU takes for its vectors, pipeline fills left out."""
    isa = ISA.of(program.config)
    jobs = jobs_of(program.config, program.insns, program.config.timing)
    opcodes = (isa.decode(*words).opcode for words in program.insns.tolist())
    return sum(
        job.work.before - job.work.startup
        for job, opcode in zip(jobs, opcodes, strict=True)
        if opcode is Opcode.ALU
    )


def cost(mode: Mode, config: VTAConfig) -> tuple[float, float, Program]:
    """(ALU cycles, all cycles beyond GEMM and reset) of an output vector."""
    program = program_of(layer(mode), mode.machine(config))
    vectors = CHANNELS // config.block * SIZE * SIZE
    gemm = vectors * (TAPS * CHANNELS // config.block + 1)
    total = timing.simulate(program).cycles
    return alu_cycles(program) / vectors, (total - gemm) / vectors, program


def main() -> int:
    options = arguments("Cycles of an output vector for each form of rescaling.").parse_args()
    config = VTAConfig.preset("sim")
    figures: list[Figure] = []
    for mode in MODES:
        alu, total, program = cost(mode, config)
        nbytes = dram_bytes(program.counters()) / 1e6
        rows = (("alu", alu, "cycles"), ("all", total, "cycles"), ("dram", nbytes, "MB"))
        for number, (name, value, unit) in enumerate(rows):
            base = figures[number].value if len(figures) >= len(rows) else None
            named = "" if base is None else MODES[0].name
            figures.append(Figure(f"{mode.name}_{name}", value, unit, base, named))
    return report("rescale", figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
