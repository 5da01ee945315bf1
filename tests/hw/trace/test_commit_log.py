"""Commit logs are equal across implementations, and what is wrong is found where it is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from cli_runs import cli, quantize_once, refused, small_model
from hand_programs import Hand, changed, inputs, product
from integer_models import IntegerNet, residual_net
from simulator_cases import MACHINES, dots, streams

from vta_byoc.base.rewrites import without
from vta_byoc.cli import commands
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, AluOp, Instruction, Opcode, Queue
from vta_byoc.hw.program.file import save
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.reference import numpy_model
from vta_byoc.hw.reference.interleaving import POLICIES
from vta_byoc.hw.reference.numpy_model import NumpyModel
from vta_byoc.hw.sim.lane_digest import digest_of, mix
from vta_byoc.hw.testing.random_safe import random_safe_program
from vta_byoc.hw.trace.commit_log import CommitLog, first_difference, stream_program
from vta_byoc.hw.trace.implementations import (
    IMPLEMENTATIONS,
    Implementation,
    NumpyLog,
    OrderLog,
    SimulatorLog,
    implementation,
)
from vta_byoc.pipeline import DRAM_ONLY, Compiled, compile_module
from vta_byoc.validation.divergence import compare_models, compare_runs, compare_with_reference

CONFIG = MACHINES["sim"]
SIM, NUMPY = SimulatorLog(), NumpyLog()


def with_byte(program: Program, symbol: str, at: int) -> Program:
    """``program`` with one bit of constant ``symbol`` flipped."""
    image = program.image.copy()
    image[program.symbol(symbol).offset - program.input_bytes + at] ^= 1
    return dataclasses.replace(program, image=image)


# ---------------------------------------------------------------- the digest
def test_digest_of_a_lane_is_what_the_document_says() -> None:
    lanes = np.array([0, 1, 70000]), np.array([0, -1, 2**31 - 1])
    assert [f"{x:016x}" for x in mix("acc", *lanes).tolist()] == GOLDEN_LANES
    assert digest_of("acc", *lanes) == int(np.bitwise_xor.reduce(mix("acc", *lanes)))
    assert digest_of("acc", lanes[0][:0], lanes[1][:0]) == 0


GOLDEN_LANES = ["5fa2c21521ef4e1c", "737858da0a24bcd1", "8e785e6639d17a63"]


def test_digest_tells_memories_places_and_values_apart() -> None:
    index, value = np.meshgrid(np.arange(256), np.arange(-128, 128))
    every = [mix(s, index.ravel(), value.ravel()) for s in ("uop", "inp", "wgt", "acc", "dram")]
    assert len(np.unique(np.concatenate(every))) == 5 * 256 * 256


# ---------------------------------------------------------------- equal logs
@pytest.mark.parametrize(
    ("name", "way"),
    [("sim", 0), ("sim", -1), ("tophub_4x8", -1), ("2x16", 0), ("1x32", -1), ("tiny 1x16", 0)],
)
def test_simulator_and_numpy_model_write_the_same_log(name: str, way: int) -> None:
    """``way``: the first or the last of the ways to multiply."""
    config = MACHINES[name]
    dot = dots(config)[way]
    for insns, arena in streams(config, 8):
        program = stream_program(config, insns, arena)
        wanted = NUMPY.run(program, {})
        assert wanted.log.executed.all() and not wanted.log.stopped
        found = SimulatorLog(dot).run(program, {})
        assert first_difference(found.log, wanted.log) is None
        run = numpy_model.run_stream(config, insns, arena)
        assert found.result.counters == run.counters
        np.testing.assert_array_equal(found.result.arena, run.arena)
        assert all(np.array_equal(found.result.sram[k], run.sram[k]) for k in run.sram)


def test_every_order_writes_the_same_log() -> None:
    rng = np.random.default_rng(3)
    for name in ("sim", "tophub_4x8", "2x16", "1x32"):
        program, values = random_safe_program(VTAConfig.preset(name), rng)
        wanted = SIM.run(program, values).log
        for policy in POLICIES:
            log = OrderLog(policy, 1).run(program, values).log
            assert first_difference(log, wanted) is None, policy


def test_an_effect_covers_whatever_changed() -> None:
    """A digest is of all that an instruction may write: nothing else changes."""
    for insns, arena in streams(MACHINES["2x16"], 8)[:4]:
        program = stream_program(MACHINES["2x16"], insns, arena)
        before = NumpyModel(program.config, arena).result()
        for index in range(len(insns)):
            run = NUMPY.run(program, {}, until=index)
            effect, after = run.effect(index), run.result
            assert effect.digest == int(run.log.digests[index])
            for space in ("uop", "inp", "wgt", "acc", "dram"):
                old, new = (x.arena if space == "dram" else x.sram[space] for x in (before, after))
                lanes = np.flatnonzero(old.reshape(-1) != new.reshape(-1))
                assert not len(lanes) or effect.space == space
                assert set(lanes.tolist()) <= set(effect.index.tolist())
            before = after


def test_what_writes_nothing_has_digest_0() -> None:
    program = product().done()
    log = SIM.run(program, inputs(program)).log
    assert [r.digest == 0 for r in log.records()] == [False] * 7 + [True, True]
    assert str(log.record(8)) == "instruction 8 of layer conv (FINISH)"


@pytest.mark.parametrize("run", [SIM, NUMPY, OrderLog("program")], ids=lambda r: r.name)
def test_a_log_ends_at_a_fault(run: Implementation) -> None:
    program = changed(product().done(), 5, uop_end=0, uop_bgn=1)
    log = run.run(program, inputs(program)).log
    assert log.executed.tolist() == [True] * 5 + [False] * 4
    assert log.stopped.startswith("instruction 5 of layer conv (ALU MIN uop 1-0 ")
    assert first_difference(log, NUMPY.run(program, inputs(program)).log) is None


@pytest.mark.parametrize("run", [SIM, NUMPY, OrderLog("program")], ids=lambda r: r.name)
def test_faults_at_the_end_are_alike(run: Implementation) -> None:
    unfinished = product(finish=False).done()
    log = run.run(unfinished, inputs(unfinished)).log
    assert log.executed.all()
    assert log.stopped == (
        "program of 7 instructions: the stream ends without FINISH; FINISH must come last; the "
        "stream is corrupt: compile the program again"
    )
    hand = product()
    hand.lines[6].set(push_next=0)
    hand.lines[7].set(pop_next=0)
    left = hand.done()
    log = run.run(left, inputs(left)).log
    assert log.executed.tolist() == [True] * 8 + [False]
    assert "1 tokens are left at FINISH" in log.stopped


# ---------------------------------------------------------------- injected faults
class WrongShift(NumpyModel):
    """Shifts right without the sign."""

    def alu(self, insn: Instruction) -> None:
        before = self.acc.copy()
        super().alu(insn)
        if insn["alu_opcode"] == AluOp.SHR and insn["use_imm"] and insn["imm"] > 0:
            logical = (before.view(np.uint32) >> np.uint32(insn["imm"])).view(np.int32)
            self.acc = np.where(self.acc != before, logical, self.acc)


class WrongStore(NumpyModel):
    """Saturates instead of truncating."""

    def store(self, insn: Instruction) -> None:
        kept = self.acc
        self.acc = np.clip(kept, -128, 127)
        super().store(insn)
        self.acc = kept


def shifted() -> Program:
    """7 LOAD and GEMM, 5 ALU SHR, 6 STORE: sums of products that need bounding, unbounded."""
    hand = product()
    hand.lines[5].set(alu_opcode=int(AluOp.SHR), imm=3)
    return hand.done()


@pytest.mark.parametrize(("model", "index"), [(WrongShift, 5), (WrongStore, 6)])
def test_wrong_semantics_are_named(model: type[NumpyModel], index: int) -> None:
    program = shifted()
    found = compare_runs(program, inputs(program), NumpyLog(model, "wrong"), SIM)
    assert found is not None
    assert (found.index, found.layer) == (index, "conv")
    assert found.cause.startswith("wrong wrote ") and "; sim wrote " in found.cause
    assert " in wrong, " in found.detail and " in sim; " in found.detail


@pytest.mark.parametrize(
    ("index", "fields"),
    [
        (0, {"dram_base": 1}),
        (1, {"dram_base": 1}),
        (2, {"sram_base": 1}),
        (2, {"x_pad_0": 1}),
        (4, {"src_factor_in": 0}),
        (5, {"imm": 3}),
        (6, {"x_stride": 0, "y_size": 2, "x_size": 2}),
    ],
)
def test_a_changed_instruction_is_named(index: int, fields: dict[str, int]) -> None:
    program = product(Hand(uops=((0, 0, 0), (1, 1, 0)))).done()
    variant = changed(program, index, **fields)
    if "dram_base" in fields:
        insn = ISA.of(program.config).decode(*program.insns[index].tolist())
        variant = changed(program, index, dram_base=insn["dram_base"] + 1)
    found = compare_runs(program, inputs(program), SIM, SIM, variant=variant)
    assert found is not None and found.index == index
    assert "left wrote" in found.cause and "right wrote" in found.cause
    assert "on the right it is" in found.cause


@pytest.mark.parametrize(("symbol", "at", "index"), [("w", 5, 1), ("u", 0, 0)])
def test_a_changed_constant_is_named_by_its_load(symbol: str, at: int, index: int) -> None:
    program = product().done()
    found = compare_runs(program, inputs(program), SIM, SIM, variant=with_byte(program, symbol, at))
    assert found is not None and found.index == index
    assert found.symbol == f"{symbol}+0"


def mutants(count: int) -> Iterator[tuple[Program, Program, dict[str, np.ndarray], int]]:
    """Random correct programs, each with one field of one instruction changed."""
    rng = np.random.default_rng(11)
    names = {
        Opcode.LOAD: ["sram_base", "dram_base", "y_size", "x_size", "x_stride", "x_pad_0"],
        Opcode.STORE: ["sram_base", "dram_base", "y_size", "x_size", "x_stride"],
        Opcode.GEMM: ["uop_bgn", "iter_in", "dst_factor_in", "src_factor_out", "wgt_factor_in"],
        Opcode.ALU: ["uop_end", "iter_out", "dst_factor_out", "alu_opcode", "imm"],
    }
    while count:
        program, values = random_safe_program(CONFIG, rng, 12)
        index = int(rng.integers(len(program.insns)))
        insn = ISA.of(CONFIG).decode(*program.insns[index].tolist())
        if insn.opcode in names:
            name = names[insn.opcode][rng.integers(len(names[insn.opcode]))]
            value = min(insn[name] + 1, ISA.of(CONFIG).limit(insn.opcode, name))
            yield program, changed(program, index, **{name: value}), values, index
            count -= 1


def test_a_mutant_with_another_result_is_found_at_the_mutated_instruction() -> None:
    different = 0
    for program, mutant, values, index in mutants(60):
        one, two = SIM.run(program, values), SIM.run(mutant, values)
        found = first_difference(one.log, two.log, variants=True)
        same = np.array_equal(one.result.arena, two.result.arena) and all(
            np.array_equal(one.result.sram[k], two.result.sram[k]) for k in one.result.sram
        )
        assert same or found is not None
        different += not same
        assert found is None or found.index == index
    assert different > 20


def test_a_race_is_named_at_what_it_spoils() -> None:
    """GEMM does not wait for its input, the ALU does: late loads leave GEMM zeros."""
    hand = product()
    hand.lines[4].set(pop_prev=0)
    hand.lines[5].set(pop_prev=1)
    program = hand.done()
    values = inputs(program)
    found = compare_runs(program, values, OrderLog("load-late"), OrderLog("program"))
    assert found is not None and found.index == 4
    assert found.text.startswith("GEMM MAC")


def test_a_run_that_stops_is_a_difference() -> None:
    program = product().done()
    variant = changed(program, 6, sram_base=CONFIG.acc_depth - 1)
    found = compare_runs(program, inputs(program), SIM, NUMPY, variant=variant)
    assert found is not None and found.index == 6
    assert "numpy did not execute it: instruction 6 of layer conv (STORE" in found.cause


# ---------------------------------------------------------------- the reference
Model = tuple[IntegerNet, tvm.IRModule, Compiled]


@pytest.fixture(scope="module")
def model() -> Model:
    """Layers conv_a, conv_b and join, all in region0, each with a tensor of its own."""
    net = residual_net()
    mod = net.module(net.result)
    # With the bias as a step of the ALU: sums of products have an end of their own.
    with without(["bias_gemm"]):
        return net, mod, compile_module(mod, VTAConfig(), scopes=DRAM_ONLY)


def find(program: Program, opcode: Opcode, layer: str, nth: int = 0, **fields: int) -> int:
    """The nth instruction of an opcode with these fields in a layer."""
    where = next(x for x in program.layers if x.name == layer)
    insns = [ISA.of(program.config).decode(*w) for w in program.insns.tolist()]
    fits = [
        i
        for i in range(where.begin, where.end)
        if insns[i].opcode == opcode and all(insns[i][k] == v for k, v in fields.items())
    ]
    return fits[nth]


SHR = {"alu_opcode": int(AluOp.SHR)}
CHANGES: dict[str, tuple[Opcode, dict[str, int], dict[str, int], str]] = {
    "shift": (Opcode.ALU, SHR, {"imm": 8}, "conv_b__shift is not"),
    "bias": (
        Opcode.ALU,
        {"alu_opcode": int(AluOp.ADD)},
        {"src_factor_in": 1},
        "conv_b__bias is not",
    ),
    "bound": (Opcode.ALU, {"alu_opcode": int(AluOp.MIN)}, {"imm": 3}, "conv_b__min is not"),
    "product": (Opcode.GEMM, {"reset": 0}, {"wgt_factor_out": 0}, "the sum of products is wrong"),
    "store": (Opcode.STORE, {}, {"sram_base": 3}, "if it began at ACC element {sram_base}"),
}


def test_right_runs_have_no_difference(model: Model) -> None:
    net, mod, compiled = model
    for name in ("sim", "numpy", "order-store-late"):
        run = implementation(name)
        assert compare_with_reference(mod, compiled, net.inputs(), run) is None
    assert compare_models(compiled, net.inputs(), SIM, NUMPY) is None


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_program_is_named_against_the_reference(model: Model, change: str) -> None:
    net, mod, compiled = model
    opcode, fits, fields, _ = CHANGES[change]
    program = compiled.programs["region0"]
    index = find(program, opcode, "conv_b", **fits)
    given = {"region0": changed(program, index, **fields)}
    found = compare_with_reference(mod, compiled, net.inputs(), SIM, given)
    assert found is not None
    assert (found.region, found.layer, found.index) == ("region0", "conv_b", index)
    assert found.tensor is not None and found.tensor.name == "conv_b"
    assert found.evidence == "compared with the program as compiled now"
    assert str(found).startswith("first tensor that differs: region0 conv_b: ")


@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_compiler_is_caught_by_the_reference_alone(model: Model, change: str) -> None:
    """Every implementation agrees and nothing else was compiled: values tell the instruction."""
    net, mod, compiled = model
    opcode, fits, fields, cause = CHANGES[change]
    program = compiled.programs["region0"]
    index = find(program, opcode, "conv_b", **fits)
    wrong = dataclasses.replace(compiled, programs={"region0": changed(program, index, **fields)})
    found = compare_with_reference(mod, wrong, net.inputs(), SIM)
    assert found is not None and found.layer == "conv_b"
    last_gemm = find(program, Opcode.GEMM, "conv_b", nth=-1, reset=0)
    assert found.index == (last_gemm if change == "product" else index)
    right = ISA.of(program.config).decode(*program.insns[index].tolist())
    assert cause.format_map(right.fields) in found.cause
    assert found.evidence.startswith("path of the value: ")


def test_an_instruction_that_misses_an_element_is_told(model: Model) -> None:
    net, mod, compiled = model
    program = compiled.programs["region0"]
    index = find(program, Opcode.ALU, "conv_b", **SHR)
    wrong = dataclasses.replace(compiled, programs={"region0": changed(program, index, iter_in=60)})
    found = compare_with_reference(mod, wrong, net.inputs(), SIM)
    assert found is not None and found.index == index + 1
    assert found.cause == "no instruction before it computes conv_b__shift"


@pytest.mark.parametrize(
    ("fault", "opcode"), [(WrongShift, Opcode.ALU), (WrongStore, Opcode.STORE)]
)
def test_wrong_semantics_are_named_against_the_reference(
    model: Model, fault: type[NumpyModel], opcode: Opcode
) -> None:
    net, mod, compiled = model
    found = compare_with_reference(mod, compiled, net.inputs(), NumpyLog(fault, "wrong"))
    if fault is WrongStore:
        assert found is None  # everything is bounded before it is stored
        return
    program = compiled.programs["region0"]
    assert found is not None
    assert (found.layer, found.index) == ("conv_a", find(program, opcode, "conv_a", **SHR))
    assert found.evidence == "wrong and sim disagree on this program"


def test_a_program_that_stops_is_named_against_the_reference(model: Model) -> None:
    net, mod, compiled = model
    program = compiled.programs["region0"]
    index = find(program, Opcode.GEMM, "conv_b", nth=1, reset=0)
    given = {"region0": changed(program, index, uop_bgn=30, uop_end=20)}
    found = compare_with_reference(mod, compiled, net.inputs(), SIM, given)
    assert found is not None and found.index == index
    assert found.cause.startswith(f"sim stopped: instruction {index} of layer conv_b (GEMM MAC")


# ---------------------------------------------------------------- bad input
def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(VTAError) as caught:
        action()
    return str(caught.value)


def test_unknown_implementation() -> None:
    assert refusal(lambda: implementation("fpga")) == (
        f"unknown implementation 'fpga'; known: {', '.join(IMPLEMENTATIONS)}; choose one"
    )


def test_logs_that_cannot_be_compared() -> None:
    one, two = product().done(), shifted()
    longer = product(vectors=2, hand=Hand()).done()
    log = {p: SIM.run(p, inputs(p)).log for p in (one, two, longer)}
    names = [p.digest()[:12] for p in (one, two)]
    assert refusal(lambda: first_difference(log[one], log[two])) == (
        f"commit logs of program {names[0]}, not {names[1]}; only runs of the same can be "
        "compared; run both again"
    )
    other = SIM.run(one, inputs(one, seed=1)).log
    assert "commit logs of inputs " in refusal(lambda: first_difference(log[one], other))
    hand = Hand()
    hand.no_op(Queue.COMPUTE)
    product(hand)
    more = hand.done()
    log[more] = SIM.run(more, inputs(more)).log
    assert refusal(lambda: first_difference(log[one], log[more], variants=True)) == (
        "commit logs of 9 and 10 instructions; variants of a program have equally many; compare "
        "what they store instead"
    )
    layered = dataclasses.replace(one, layers=())
    log[layered] = SIM.run(layered, inputs(layered)).log
    assert refusal(lambda: first_difference(log[one], log[layered], variants=True)) == (
        "commit logs of programs with other layers; variants of a program have the same; compare "
        "what they store instead"
    )
    machine = dataclasses.replace(CONFIG, log_acc_buff_size=16, log_inp_buff_size=14)
    assert "commit logs of machines 1x16 (" in refusal(
        lambda: first_difference(
            log[one],
            dataclasses.replace(log[one], program=dataclasses.replace(one, config=machine)),
            variants=True,
        )
    )
    empty = dataclasses.replace(log[one], digests=log[one].digests[:0])
    assert refusal(lambda: first_difference(empty, log[one])) == (
        "the log of sim is empty; a log has an entry for each instruction; run a program of at "
        "least one"
    )


@pytest.mark.parametrize("run", [SIM, NUMPY, OrderLog()], ids=lambda r: r.name)
def test_programs_that_cannot_run(run: Implementation) -> None:
    empty = stream_program(CONFIG, np.zeros((0, 2), np.uint64), np.zeros(64, np.int8))
    assert refusal(lambda: run.run(empty, {})) == (
        "program has 0 instructions; the shortest is FINISH alone; compile the program again"
    )
    program = product().done()
    assert refusal(lambda: run.run(program, {})) == (
        "inputs none given; the program takes x; give exactly these"
    )


def test_programs_that_are_not_of_the_model(model: Model) -> None:
    net, _, compiled = model
    given = {"region7": product().done()}
    assert refusal(lambda: compare_models(compiled, net.inputs(), SIM, NUMPY, given)) == (
        "no region 'region7' in the model; it has region0; use one of these names"
    )
    given = {"region0": product().done()}
    assert refusal(lambda: compare_models(compiled, net.inputs(), SIM, NUMPY, given)) == (
        "the program given for region0 has other symbols or another machine than the model "
        "compiled now; only a version of the same program can replace it; compile it from the "
        "same model and calibration"
    )


# ---------------------------------------------------------------- text
def test_a_log_is_text_and_back() -> None:
    program = changed(product().done(), 5, uop_end=0, uop_bgn=1)
    log = SIM.run(program, inputs(program)).log
    back = CommitLog.from_text(log.to_text(), program)
    assert first_difference(log, back) is None
    assert (back.source, back.stopped, back.inputs) == (log.source, log.stopped, log.inputs)
    np.testing.assert_array_equal(back.executed, log.executed)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: "", "commit log begins with ''; its first line must be 'vta commit log 1'"),
        (lambda t: t.replace("log 1", "log 2", 1), "commit log begins with 'vta commit log 2'"),
        (lambda t: t.replace("source sim\n", ""), "commit log has no line 'source'"),
        (lambda t: t.replace("program ", "program 0", 1), "commit log of program 0"),
        (lambda t: t.rsplit("\n", 2)[0] + "\n", "commit log has 8 instructions; the program has 9"),
        (lambda t: t.replace("\n3 ", "\n4 "), "commit log line '4 "),
        (lambda t: t[:-2] + "x\n", "; instruction 8 must read '8 "),
    ],
)
def test_a_spoilt_log_is_refused(edit: Callable[[str], str], message: str) -> None:
    program = product().done()
    text = SIM.run(program, inputs(program)).log.to_text()
    assert message in refusal(lambda: CommitLog.from_text(edit(text), program))


# ---------------------------------------------------------------- the command
def test_diff_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "quantize", quantize_once)
    path = small_model(tmp_path / "net.onnx")
    for right in ("reference", "numpy"):
        done = cli("diff", path, "--right", right)
        assert (done.exit_code, done.stdout) == (0, "no difference\n"), done.output


def test_diff_of_program_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one.vta", tmp_path / "two.vta"
    save(product().done(), one)
    save(changed(product().done(), 5, imm=3), two)
    assert cli("diff", one).stdout == "no difference\n"
    done = cli("diff", one, two)
    assert done.exit_code == 1
    assert done.stdout.startswith("first difference: layer conv, instruction 5\n  ALU MIN")
    assert '"index": 5' in cli("diff", one, two, "--json").stdout


def test_diff_refuses(tmp_path: Path) -> None:
    one = tmp_path / "one.vta"
    save(product().done(), one)
    known = ", ".join(IMPLEMENTATIONS)
    assert refused("diff", one, "--left", "fpga") == (
        f"unknown implementation 'fpga'; known: {known}; choose one"
    )
    assert refused("diff", one, "--right", "reference") == (
        "--right reference with a program file; the reference is the integer model; give the "
        "model and --program REGION=FILE"
    )
    assert refused("diff", one, "--program", "region0=x.vta") == (
        "--program with a program file; it is for models; compare two program files with each "
        "other instead"
    )
    assert refused("diff", "net.onnx", one) == (
        '"net.onnx" is no program file; only two program files can be compared with each other; '
        f"use --program REGION={one} to run it inside the model"
    )
    assert refused("diff", "net.onnx", "--program", "mine.vta") == (
        '--program "mine.vta" is not REGION=FILE; the left side runs FILE instead of that '
        "region's program; write for example --program region0=mine.vta"
    )
