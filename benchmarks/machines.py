"""Networks on the machine of the original Chisel core: what its restrictions cost, and its rules.

Each network is built, calibrated with its own images and compiled for the preset `chisel` and for
the same machine without its restrictions (MUL, int8 loads into the accumulator, 8,192 micro-ops).
The programs for `chisel` are verified, searched for what the core has not, and their results
compared with the integer reference tensor by tensor. Each network has a process of its own.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from benchmarks.networks import images, measured
from models import FIRST
from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.isa import ISA, AluOp, MemType, Opcode
from vta_byoc.hw.program.program import Program

NETWORKS = ("resnet18", "mobilenet_v1", "mobilenet_v2")
MOST_OVER = 1.001


def unrestricted(config: VTAConfig) -> VTAConfig:
    """``config`` with every capability and a micro-op buffer as large as its fields reach."""
    log = config.index_bits["uop"] + 2
    return dataclasses.replace(config, capabilities=Capabilities(), log_uop_buff_size=log)


def breaches(program: Program) -> dict[str, int]:
    """How many instructions of a program are none of the Chisel core's."""
    found = {"mul": 0, "acc_8bit": 0, "unequal_factors": 0}
    for words in program.insns.tolist():
        insn = ISA.of(program.config).decode(*words)
        if insn.opcode == Opcode.LOAD:
            found["acc_8bit"] += insn["mem_type"] == MemType.ACC_8BIT
        if insn.opcode == Opcode.ALU:
            found["mul"] += insn["alu_opcode"] == AluOp.MUL
            same = all(insn[f"src_factor_{x}"] == insn[f"dst_factor_{x}"] for x in ("out", "in"))
            found["unequal_factors"] += bool(insn["use_imm"]) and not same
    return found


def measure(name: str) -> dict[str, Any]:
    """Compile one network for both machines and check it, in this process."""
    from vta_byoc import load_model, quantize
    from vta_byoc.hw.verify.verifier import verify
    from vta_byoc.importers.load import output_names
    from vta_byoc.pipeline import compile_module
    from vta_byoc.reports.run.timing import time_programs
    from vta_byoc.runtime.execute import profile
    from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

    given = images(name)
    chisel = VTAConfig.preset("chisel")
    qmod = quantize(load_model(given.path), calibration=given.calibration, config=chisel)
    compiled, free = (compile_module(qmod, c) for c in (chisel, unrestricted(chisel)))
    run = profile(compiled.exe, [given.samples[0]], arenas=True)
    reference = reference_runner(qmod, compiled.programs)([given.samples[0]])
    checks = compare_outputs(output_names(qmod), run.outputs, reference)
    checks += compare_stored(run, compiled.programs, reference)
    programs = compiled.programs.values()
    counts = [breaches(program) for program in programs]
    return {
        "name": name,
        "cycles": sum(t.cycles for t in time_programs(compiled.programs).values()),
        "free": sum(t.cycles for t in time_programs(free.programs).values()),
        "tensors": len(checks),
        "different": sum(not check.equal for check in checks),
        "findings": sum(len(verify(program)) for program in programs),
        "cpu_ops": sorted(op.name for op in compiled.placement if op.device == "cpu"),
        **{what: sum(count[what] for count in counts) for what in counts[0]},
    }


def figures_of(row: dict[str, Any]) -> list[Figure]:
    """The figures of one network."""
    name = row["name"]
    over = row["cycles"] / row["free"]
    exact = Figure(
        f"{name}_bit_exact", int(not row["different"]), "yes/no", target=1, ok=not row["different"]
    )
    return [
        Figure(f"{name}_chisel_cycles", row["cycles"], "cycles", row["free"], "unrestricted"),
        Figure.at_most(f"{name}_chisel_cycles_over_unrestricted", over, "ratio", MOST_OVER),
        exact,
        Figure(f"{name}_tensors_compared", row["tensors"], "tensors"),
        Figure.at_most(f"{name}_verifier_findings", row["findings"], "violations", 0),
        Figure.at_most(f"{name}_mul", row["mul"], "instructions", 0),
        Figure.at_most(f"{name}_acc_8bit", row["acc_8bit"], "instructions", 0),
        Figure.at_most(f"{name}_unequal_factors", row["unequal_factors"], "instructions", 0),
    ]


def main() -> int:
    parser = arguments("Networks on the preset chisel beside the same machine unrestricted.")
    options, rows = measured(parser, FIRST, NETWORKS, measure, __file__)
    if options.measure:
        return 0
    figures = [figure for row in rows for figure in figures_of(row)]
    cpu = {row["name"]: row["cpu_ops"] for row in rows}
    return report("machines", figures, options.json, cpu_ops=cpu)


if __name__ == "__main__":
    sys.exit(main())
