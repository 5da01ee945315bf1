"""What the Chisel core does differently: verified programs do not see it, others do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hand_programs import Hand, inputs, product
from integer_models import IntegerNet, residual_net
from verifier_cases import stored_after, tensor_shift

from benchmarks.machines import breaches, unrestricted
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, AluOp, MemType, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.reference import numpy_model
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.verify.verifier import verify
from vta_byoc.importers.load import output_names
from vta_byoc.pipeline import compile_module, compile_programs
from vta_byoc.reports.run.timing import time_programs
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

CHISEL = VTAConfig.preset("chisel")
FREE = unrestricted(CHISEL)


def on(config: VTAConfig, program: Program) -> bytes:
    """The outputs of a program, the same from both simulators."""
    program = dataclasses.replace(program, config=config)
    given = inputs(program)
    found = simulator.run(program, given)
    model = numpy_model.run_stream(config, program.insns, program.new_arena(given))
    assert np.array_equal(found.arena, model.arena)
    y = program.symbol("y")
    return found.arena[y.offset : y.offset + y.nbytes].tobytes()


# ---------------------------------------------------------------- streams that can tell
def immediate(src_factor: int) -> Program:
    hand = product(Hand(CHISEL))
    hand.lines[5].set(alu_opcode=int(AluOp.SHR), imm=7, src_factor_in=src_factor)
    return hand.done()


def test_immediates_read_src() -> None:
    """Equal factors mean the same everywhere; others something else on each, and are flagged."""
    good, bad = immediate(1), immediate(0)
    assert not verify(good)
    assert on(CHISEL, good) == on(FREE, good) == on(FREE, bad) != on(CHISEL, bad)
    assert [v.rule for v in verify(bad)] == ["imm-source"]


@pytest.mark.parametrize(("opcode", "vector"), [(Opcode.LOAD, 3), (Opcode.GEMM, 0)])
def test_store_reads_results_only(opcode: Opcode, vector: int) -> None:
    """What LOAD or reset wrote last is in ACC, and not where the core's STORE reads."""
    stale = stored_after(opcode, vector)
    assert on(CHISEL, stale) == on(CHISEL, stored_after(opcode, 4)) != on(FREE, stale)


def shifted(*amounts: int) -> Program:
    """Four vectors of constants shifted by a tensor and stored."""
    program = tensor_shift(*amounts)
    isa, insns = ISA.of(program.config), program.insns.tolist()
    transfer = {"mem_type": MemType.OUT, "y_size": 1, "x_size": 4, "x_stride": 4}
    first = program.symbol("y").offset // program.config.out_elem_bytes
    shift = insns[2][0] | isa.encode(Opcode.LOAD, push_next=1)[0]
    lines = [*insns[:2], (shift, insns[2][1])]
    lines += [isa.encode(Opcode.STORE, dram_base=first, pop_prev=1, push_prev=1, **transfer)]
    lines += [isa.encode(Opcode.LOAD, mem_type=MemType.UOP, pop_next=1), insns[3]]
    return dataclasses.replace(program, insns=np.array(lines, np.uint64))


def test_tensor_shifts_ignore_the_sign() -> None:
    assert on(CHISEL, shifted(0, 3, 15)) == on(FREE, shifted(0, 3, 15))
    assert on(CHISEL, shifted(-29)) == on(FREE, shifted(3)) != on(FREE, shifted(-29))


# ---------------------------------------------------------------- compiled networks
def light_net() -> IntegerNet:
    """A depthwise layer between others, which a machine with MUL computes on the ALU."""
    net = IntegerNet(x=(1, 32, 12, 12))
    a = net.conv(net.params[0], 32, 1, name="expand")
    b = net.conv(a, 32, groups=32, name="depthwise")
    c = net.conv(b, 48, 1, relu=False, name="project")
    net.result = net.residual(c, net.conv(b, 48, 1, relu=False, name="other"), name="join")
    return net


def total(programs: dict[str, Program]) -> int:
    return sum(t.cycles for t in time_programs(programs).values())


@pytest.mark.parametrize("build", [residual_net, light_net])
def test_networks_need_nothing_the_core_has_not(build: object) -> None:
    """Bit-exact, verified, only the core's instructions; with 128 micro-ops kernels come back."""
    net = build()  # type: ignore[operator]
    mod, given = net.module(net.result), net.inputs()
    small = dataclasses.replace(CHISEL, log_uop_buff_size=9)
    fits = compile_module(mod, CHISEL)
    for compiled in (fits, compile_module(mod, small)):
        run = profile(compiled.exe, given, arenas=True)
        reference = reference_runner(mod, compiled.programs)(given)
        checks = compare_outputs(output_names(mod), run.outputs, reference)
        checks += compare_stored(run, compiled.programs, reference)
        assert checks and all(check.equal for check in checks)
        assert all(op.device == "vta" for op in compiled.placement if op.macs)
        for program in compiled.programs.values():
            assert not verify(program)
            assert not any(breaches(program).values())
    assert total(fits.programs) <= 1.02 * total(compile_programs(mod, FREE))
