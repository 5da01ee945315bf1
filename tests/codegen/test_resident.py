"""LOADs of what SRAM holds already are left out, and only those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from script_nests import (
    GEMM_LOOPS,
    LOAD_D,
    MAC,
    X8,
    A,
    X,
    Y,
    function,
    load,
    nest,
    parse,
    store,
)
from small_models import Net
from strict_machine import Machine

from vta_byoc import load_model, quantize
from vta_byoc.base.rewrites import without
from vta_byoc.codegen import ProgramBuilder
from vta_byoc.codegen.resident import Residency
from vta_byoc.codegen.stream import Insn
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, Instruction, MemType, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.reference.interleaving import POLICIES, run_interleaved
from vta_byoc.hw.reference.numpy_model import NumpyModel
from vta_byoc.hw.testing.random_programs import random_stream
from vta_byoc.hw.verify.access import Loops, Transfer, decode_uops
from vta_byoc.hw.verify.verifier import check
from vta_byoc.ir.bindings import is_constant, straight_bindings
from vta_byoc.partitioning.region import region_functions
from vta_byoc.passes.lower_regions import weight_runs_of
from vta_byoc.passes.reuse_weights import WeightRun
from vta_byoc.pipeline import compile_module, partition_for_vta
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_stored, reference_runner

CONFIG = VTAConfig()
ALL_WEIGHTS = ["bias_gemm", "skip_padding"]
"""Without these rewrites all that is loaded as weights are the layer's, and all taps read them."""
WEIGHTS = 16 * 16
"""Bytes of the weights of a layer of these tests."""
VECTORS = 4 * 16
"""Bytes of an int8 tensor of these tests; an int32 one has four times as many."""


def multiplied(load_d: str = LOAD_D, x: str = X8) -> str:
    """x times the weights f, shifted."""
    return function(
        f"{x} f:int8:1,16,16 {Y}",
        f"d:inp:4,1,16 w:wgt:1,16,16 {A}",
        load_d,
        nest("load_w", "dma_copy", "o:16 k:16", "w[0, o, k] = f[0, o, k]"),
        nest("clear", "gemm", "i:4 k:16", "a[i, 0, k] = 0"),
        nest("mac", "gemm", GEMM_LOOPS, MAC),
        store("a[i, 0, k] >> 7"),
    )


MULTIPLIED = multiplied()
PLUS_ONE = function(f"{X} {Y}", A, load(), store("a[i, 0, k] + 1"))
WITH_BIAS = function(
    f"{X} c:int32:4,1,16 {Y}",
    f"{A} b:acc:4,1,16",
    load(),
    nest("load_b", "dma_copy", "i:4 k:16", "b[i, 0, k] = c[i, 0, k]"),
    store("a[i, 0, k] + b[i, 0, k]"),
)


class Chain:
    """Layers over tensors of four vectors as two Programs: with reuse, and without by default."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.builders = ProgramBuilder(CONFIG, reuse_resident=True), ProgramBuilder(CONFIG)
        self.values: dict[str, np.ndarray] = {}
        self.count = 0

    def inputs(self, dtype: str, *names: str, rows: int = 4) -> Chain:
        for name in names:
            self.values[name] = self.rng.integers(-60, 60, (rows, 1, 16)).astype(dtype)
            for builder in self.builders:
                builder.symbol(name, "input", (rows, 1, 16), dtype)
        return self

    def weights(self, *names: str) -> Chain:
        for name in names:
            value = self.rng.integers(-9, 9, (1, 16, 16)).astype("int8")
            for builder in self.builders:
                builder.constant(name, value)
        return self

    def results(self, *names: str, inside: str = "") -> Chain:
        """int8 results, the parts of tensor ``inside`` if there is one."""
        for builder in self.builders:
            for number, name in enumerate(names):
                home = (inside, number * VECTORS) if inside else None
                builder.symbol(name, "output", (4, 1, 16), "int8", inside=home)
        return self

    def layer(self, text: str, *args: str) -> Chain:
        self.count += 1
        for builder in self.builders:
            builder.layer(f"layer{self.count}", parse(text), list(args))
        return self

    def finish(self) -> tuple[dict[str, int], dict[str, int]]:
        """Counters with reuse and without; both programs are sound and give the same bytes."""
        reuse, plain = (builder.finish() for builder in self.builders)
        expected = run_interleaved(plain, self.values)
        for program in (reuse, plain):
            check(program)
        Machine(reuse, self.values).run()
        for policy in POLICIES:
            found = run_interleaved(reuse, self.values, policy)
            for name, value in expected.outputs.items():
                np.testing.assert_array_equal(found.outputs[name], value, policy)
        return reuse.counters(), plain.counters()


# ---------------------------------------------------------------- layers that share
def test_shared_weights_are_loaded_once() -> None:
    chain = Chain().inputs("int8", "x").weights("f").results("t", "u", "y")
    for source, target in (("x", "t"), ("t", "u"), ("u", "y")):
        chain.layer(MULTIPLIED, source, "f", target)
    reuse, plain = chain.finish()
    assert (reuse["wgt_load_nbytes"], plain["wgt_load_nbytes"]) == (WEIGHTS, 3 * WEIGHTS)
    same = reuse.keys() - {"wgt_load_nbytes"}
    assert {k: reuse[k] for k in same} == {k: plain[k] for k in same}


def test_other_weights_in_their_place_are_loaded() -> None:
    chain = Chain().inputs("int8", "x").weights("f", "g").results("t", "u", "y")
    for source, weights, target in (("x", "f", "t"), ("t", "g", "u"), ("u", "f", "y")):
        chain.layer(MULTIPLIED, source, weights, target)
    reuse, _ = chain.finish()
    assert reuse["wgt_load_nbytes"] == 3 * WEIGHTS


def test_layers_of_one_input_load_it_once() -> None:
    chain = Chain().inputs("int8", "x").weights("f", "g").results("t", "y")
    chain.layer(MULTIPLIED, "x", "f", "t").layer(MULTIPLIED, "x", "g", "y")
    reuse, plain = chain.finish()
    assert (reuse["inp_load_nbytes"], plain["inp_load_nbytes"]) == (VECTORS, 2 * VECTORS)


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_stored_tensor_is_loaded_again(rewritten: bool) -> None:
    """Its copy in SRAM is in its place, but of what was stored before."""
    chain = Chain().inputs("int32", "z", "other").weights("f").results("t", "u", "y")
    chain.layer(PLUS_ONE, "z", "t").layer(MULTIPLIED, "t", "f", "u")
    if rewritten:
        chain.layer(PLUS_ONE, "other", "t")
    reuse, _ = chain.layer(MULTIPLIED, "t", "f", "y").finish()
    assert reuse["inp_load_nbytes"] == (2 if rewritten else 1) * VECTORS


@pytest.mark.parametrize(("part", "loads"), [("low", 2), ("high", 1)])
def test_a_store_to_a_part_spoils_what_was_read_of_the_whole(part: str, loads: int) -> None:
    """Of tensor ``both``, its first half is read through the name of that part."""
    chain = Chain().inputs("int32", "z", "other").weights("f")
    for builder in chain.builders:
        builder.symbol("both", "output", (8, 1, 16), "int8")
    chain.results("low", "high", inside="both").results("u", "y")
    chain.layer(PLUS_ONE, "z", "low").layer(PLUS_ONE, "z", "high")
    chain.layer(MULTIPLIED, "low", "f", "u").layer(PLUS_ONE, "other", part)
    reuse, _ = chain.layer(MULTIPLIED, "low", "f", "y").finish()
    assert reuse["inp_load_nbytes"] == loads * VECTORS


def test_what_the_alu_only_reads_stays_and_what_it_changes_does_not() -> None:
    chain = Chain().inputs("int32", "x", "bias").results("t", "y")
    chain.layer(WITH_BIAS, "x", "bias", "t").layer(WITH_BIAS, "x", "bias", "y")
    reuse, plain = chain.finish()
    assert (reuse["acc_load_nbytes"], plain["acc_load_nbytes"]) == (3 * 256, 4 * 256)


def test_a_copy_that_nothing_changed_is_made_storable_again() -> None:
    """A STORE may read only what the ALU wrote: the copy passes through it, which spoils it."""
    copied = function(f"{X} {Y}", A, load(), store("a[i, 0, k]", "dma_copy"))
    chain = Chain().inputs("int32", "x").results("t", "y")
    reuse, _ = chain.layer(copied, "x", "t").layer(copied, "x", "y").finish()
    assert reuse["acc_load_nbytes"] == 2 * 256


def test_padding_is_part_of_what_is_there() -> None:
    """The same data with a row of zeros before it, with two, and with two again."""
    chain = Chain().inputs("int8", "x", rows=2).weights("f").results("t", "u", "y")
    for rows, target in ((1, "t"), (2, "u"), (2, "y")):
        inside = f"i >= {rows} and i < {rows + 2}"
        value = f"T.if_then_else({inside}, x[i - {rows}, 0, k], T.int8(0))"
        loads = nest("load_d", "dma_copy", "i:4 k:16", f"d[i, 0, k] = {value}")
        chain.layer(multiplied(loads, "x:int8:2,1,16"), "x", "f", target)
    reuse, plain = chain.finish()
    assert (reuse["inp_load_nbytes"], plain["inp_load_nbytes"]) == (VECTORS, 3 * VECTORS // 2)


# ---------------------------------------------------------------- any stream
def insn_of(model: NumpyModel, insn: Instruction) -> Insn:
    """An instruction as code generation describes it; all of DRAM is one tensor."""
    found = Insn(insn.opcode, insn.queue, dict(insn.fields))
    if insn.opcode in (Opcode.LOAD, Opcode.STORE):
        transfer = Transfer.of(model.config, insn)
        if transfer.empty or transfer.mem == MemType.UOP:
            return found
        names = {MemType.INP: "inp", MemType.WGT: "wgt"}
        chip = (names.get(transfer.mem, "acc"), transfer.sram.start, transfer.sram.stop)
        outer = ("dram.all", *transfer.dram_range)
        stores = insn.opcode == Opcode.STORE
        found.reads, found.writes = ([chip], [outer]) if stores else ([outer], [chip])
    elif insn.opcode in (Opcode.GEMM, Opcode.ALU):
        words = model.uop[insn["uop_bgn"] : insn["uop_end"]]
        loops = Loops(insn, decode_uops(model.config, words))
        if loops.steps:
            touched = loops.touched("dst", model.config.acc_depth)
            found.writes = [("acc", int(touched[0]), int(touched[-1]) + 1)]
    return found


@pytest.mark.parametrize("config", [VTAConfig(), VTAConfig.preset("pynq")], ids=lambda c: c.name)
def test_any_stream_leaves_the_same_memory(config: VTAConfig) -> None:
    """Random instructions, each several times: with reuse DRAM and SRAM end up the same."""
    left_out = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        words, arena = random_stream(config, rng, 14)
        pool = [ISA.of(config).decode(*w) for w in words.tolist()]
        plain, reuse = NumpyModel(config, arena), NumpyModel(config, arena)
        residency = Residency(config)
        for number in rng.integers(len(pool), size=80).tolist():
            insn = pool[number]
            needed = residency.needs(insn_of(plain, insn))
            plain.execute(insn)
            if needed:
                reuse.execute(insn)
            left_out += not needed
        for space, value in plain.result().sram.items():
            np.testing.assert_array_equal(reuse.result().sram[space], value, f"{space} {seed}")
        np.testing.assert_array_equal(reuse.arena, plain.arena, str(seed))
    assert left_out >= 100


# ---------------------------------------------------------------- the compiler
def shared_initializer(tmp_path: Path, *, between: bool = False) -> Program:
    """Two convolutions of one weight tensor, checked; another convolution ``between`` them."""
    net = Net(x=[1, 16, 8, 8])
    weight, bias = net.normal(16, 16, 1, 1, scale=0.2), net.normal(16, scale=0.1)
    value = net.node("Relu", net.node("Conv", "x", weight, bias))
    if between:
        value = net.node("Relu", net.conv(value, 16, 16, 1))
    value = net.node("Relu", net.node("Conv", value, weight, bias))
    path = tmp_path / "shared.onnx"
    onnx.save(net.model(value), path)
    samples = np.random.default_rng(0).standard_normal((2, 1, 16, 8, 8)).astype("float32")
    qmod = quantize(load_model(path), calibration=[*samples], config=CONFIG)
    with without(ALL_WEIGHTS):
        compiled = compile_module(qmod, CONFIG)
    run = profile(compiled.exe, samples[0], arenas=True)
    reference = reference_runner(qmod, compiled.programs)(samples[0])
    checks = compare_stored(run, compiled.programs, reference)
    assert checks and all(c.equal for c in checks)
    (program,) = compiled.programs.values()
    return program


def calls_in_a_row(tmp_path: Path, channels: int, calls: int) -> tuple[Program, list[WeightRun]]:
    """3x3 convolutions of one weight tensor on the machine pynq, checked."""
    net, config = Net(x=[1, channels, 14, 14]), VTAConfig.preset("pynq")
    weight = net.normal(channels, channels, 3, 3, scale=(2 / (9 * channels)) ** 0.5)
    bias, value = net.normal(channels, scale=0.1), "x"
    for _ in range(calls):
        value = net.node("Relu", net.node("Conv", value, weight, bias, pads=[1] * 4))
    path = tmp_path / "calls.onnx"
    onnx.save(net.model(value), path)
    shape = (2, 1, channels, 14, 14)
    samples = np.random.default_rng(0).standard_normal(shape).astype("float32")
    qmod = quantize(load_model(path), calibration=[*samples], config=config)
    with without(ALL_WEIGHTS):
        mod = partition_for_vta(qmod, config)
        compiled = compile_module(mod, config)
    run = profile(compiled.exe, samples[0], arenas=True)
    reference = reference_runner(qmod, compiled.programs)(samples[0])
    checks = compare_stored(run, compiled.programs, reference)
    assert checks and all(c.equal for c in checks)
    ((func, call),) = (
        (mod[binding.value.op], binding.value)
        for binding in straight_bindings(mod["main"])
        if getattr(binding.value, "op", None) in region_functions(mod)
    )
    constants = {i: a.value.numpy() for i, a in enumerate(call.args) if is_constant(a)}
    (program,) = compiled.programs.values()
    return program, weight_runs_of(mod, func, constants, config)


@pytest.mark.parametrize("channels, calls", [(16, 2), (32, 3)])
def test_tile_that_keeps_the_weights_of_all_calls(
    tmp_path: Path, channels: int, calls: int
) -> None:
    """Alone, each of these layers is best with a tile that loads its weights for every place."""
    program, (run,) = calls_in_a_row(tmp_path, channels, calls)
    packed = 9 * channels**2
    assert weights_of(program) == [packed]
    assert program.counters()["wgt_load_nbytes"] == packed
    assert (run.calls, len(set(run.results))) == (calls, calls)
    assert program.symbol(run.weights).nbytes == packed


def test_weights_that_each_tile_keeps_by_itself(tmp_path: Path) -> None:
    """Alone, the layer is best with a tile that leaves all weights where the next wants them."""
    program, runs = calls_in_a_row(tmp_path, 64, 3)
    assert runs == []
    assert weights_of(program) == [9 * 64**2]
    assert program.counters()["wgt_load_nbytes"] == 9 * 64**2


def test_a_single_call_is_no_run(tmp_path: Path) -> None:
    program, runs = calls_in_a_row(tmp_path, 64, 1)
    assert runs == []
    assert program.counters()["wgt_load_nbytes"] >= 9 * 64**2


def test_weights_that_would_cost_too_much_to_keep(tmp_path: Path) -> None:
    """Of 147,456 bytes, a tile that keeps them is slower than one that streams them."""
    program, runs = calls_in_a_row(tmp_path, 128, 2)
    assert runs == []
    assert program.counters()["wgt_load_nbytes"] == 2 * 9 * 128**2


def weights_of(program: Program) -> list[int]:
    return [s.nbytes for s in program.of_kind("const") if len(s.shape) == 6]


def test_shared_initializer_is_one_constant_loaded_once(tmp_path: Path) -> None:
    program = shared_initializer(tmp_path)
    assert weights_of(program) == [WEIGHTS]
    assert program.counters()["wgt_load_nbytes"] == WEIGHTS


def test_shared_initializer_around_another_layer(tmp_path: Path) -> None:
    program = shared_initializer(tmp_path, between=True)
    assert weights_of(program) == [WEIGHTS, WEIGHTS]
    assert program.counters()["wgt_load_nbytes"] == 3 * WEIGHTS
