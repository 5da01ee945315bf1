"""ResNet-18 at 224x224, from the ONNX file to bit-exact results, with the figures it must reach."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from models import resnet18
from models._build import calibration_inputs, sample_inputs
from vta_byoc import VTAConfig, load_model, quantize
from vta_byoc.graph_pack import pack_counts
from vta_byoc.hw.counters import count_stream, dram_bytes
from vta_byoc.hw.disassembly import format_instruction
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import (
    DEP_FIELDS,
    ISA,
    AluOp,
    Instruction,
    MemType,
    Opcode,
)
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.verify.access import Transfer
from vta_byoc.importers.load import output_names
from vta_byoc.ir.names import operators_of
from vta_byoc.passes.fuse_tiles import Sharing
from vta_byoc.passes.lower_regions import LoweredRegions, lower_regions
from vta_byoc.pipeline import Compiled, compile_module, partition_for_vta
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner, stored
from vta_byoc.workload.memory import ACC

SIZE = 224
CONFIG = VTAConfig.preset("pynq")


@pytest.fixture(scope="module")
def qmod() -> tvm.IRModule:
    mod = load_model(resnet18.cached(size=SIZE))
    return quantize(mod, calibration=list(calibration_inputs(SIZE)[:, None]), config=CONFIG)


@pytest.fixture(scope="module")
def pmod(qmod: tvm.IRModule) -> tvm.IRModule:
    return partition_for_vta(qmod, CONFIG)


@pytest.fixture(scope="module")
def compiled(pmod: tvm.IRModule) -> Compiled:
    return compile_module(pmod, CONFIG)


@pytest.fixture(scope="module")
def program(compiled: Compiled) -> Program:
    (program,) = compiled.programs.values()
    return program


def on_chip(compiled: Compiled) -> list[Sharing]:
    """Tensors that are neither stored nor loaded."""
    return [item for item in compiled.sharing if item.scope == ACC]


def images() -> Iterator[tuple[str, np.ndarray]]:
    """8 random images, all zeros, all at the largest and all at the smallest value."""
    for i, image in enumerate(sample_inputs(8, 99, SIZE)):
        yield f"image{i}", image[None]
    for name, value in (("zero", 0.0), ("max", 1e3), ("min", -1e3)):
        yield name, np.full((1, 3, SIZE, SIZE), value, "float32")


def test_every_tensor_equals_the_reference(
    qmod: tvm.IRModule, compiled: Compiled, program: Program
) -> None:
    """Logits and all 22 tensors that the region stores, over 11 inputs; 9 more stay on chip.

    These are the stem's, which is pooled in its tiles, and those that are added to another.
    """
    assert len(on_chip(compiled)) == 9
    reference_of = reference_runner(qmod, compiled.programs)
    seen = set()
    for name, image in images():
        reference = reference_of(image)
        run = profile(compiled.exe, image, arenas=True)
        checks = compare_outputs(output_names(qmod), run.outputs, reference)
        checks += compare_stored(run, compiled.programs, reference)
        assert len(checks) == 1 + 31 - 9
        assert all(c.equal for c in checks), f"{name}: {[str(c) for c in checks if not c.equal]}"
        seen.add(run.outputs[0].tobytes())
    assert len(seen) == 11, "different inputs give different logits"


def test_placement(compiled: Compiled) -> None:
    """All of it in one region: only the input is quantized on the CPU."""
    vta = [p for p in compiled.placement if p.device == "vta"]
    assert [p.op for p in vta].count("relax.nn.conv2d") == 20
    assert [p.op for p in vta].count("relax.add") == 8
    cpu = {p.name: p.op for p in compiled.placement if p.device == "cpu"}
    assert cpu == {"data": "relax.quantize"}
    assert len(compiled.programs) == 1


def inside(size: int, stride: int) -> int:
    """Positions and taps of a 3x3 window along one axis that read no padding."""
    return sum(0 <= stride * i + tap - 1 < size for i in range(size // stride) for tap in range(3))


BLOCKS = [(4, 56), (8, 28), (16, 14), (32, 7)]
"""Blocks of channels, and size, of the four stages."""
INSIDE = sum(
    (4 if n == 0 else 3) * blocks**2 * inside(size, 1) ** 2
    + (blocks // 2 * blocks * (inside(2 * size, 2) ** 2 + size**2) if n else 0)
    for n, (blocks, size) in enumerate(BLOCKS)
)
"""Products of the 19 convolutions that read the input."""
BIASES = sum((4 if n == 0 else 5) * blocks * size**2 for n, (blocks, size) in enumerate(BLOCKS))
"""A step for each vector that they give."""


def test_counters(compiled: Compiled, program: Program) -> None:
    """Steps of all, and what the 19 published convolutions and residual additions take of them:
    every addition is fused into a convolution and adds its other operand by GEMM."""
    image = next(images())[1]
    assert profile(compiled.exe, image).counters == program.counters()
    kinds = {p.name: p.op for p in compiled.placement}
    layers = {
        layer.name: count_stream(CONFIG, program.insns[layer.begin : layer.end])
        for layer in program.layers
    }
    first = {n: [kinds[op] for op in operators_of(n)] for n in layers}
    (stem,) = (n for n in layers if "conv1" in operators_of(n))
    convs = [n for n, ops in first.items() if ops[0] == "relax.nn.conv2d" and n != stem]
    adds = [n for n, ops in first.items() if ops == ["relax.nn.conv2d", "relax.add"]]
    assert (len(convs), len(adds)) == (19, 8) and set(adds) < set(convs)
    summed = [item.nbytes for item in on_chip(compiled) if item.tensor != "conv1"]
    added = sum(summed) // CONFIG.out_elem_bytes
    found = sum(layers[n]["gemm_counter"] for n in convs) - added
    # Taps that read padding are left out where that pays, which is in most of the layers, and most
    # biases are products.
    assert INSIDE + BIASES // 2 < found < INSIDE + BIASES + 0.3 * (6_623_232 - INSIDE)
    assert layers[stem]["gemm_counter"] <= 850_000
    assert sum(dram_bytes(layers[n]) for n in convs) <= 18_400_000


def test_tensors_share_the_arena(compiled: Compiled, program: Program) -> None:
    """No more than the first convolution's result and what pooling makes of it, side by side."""
    assert program.peak_bytes <= (112 * 112 + 56 * 56) * 64
    kept = sum(item.nbytes for item in on_chip(compiled))
    assert program.unshared_bytes + kept >= 3 * program.peak_bytes


def test_one_fold_and_one_unpack(pmod: tvm.IRModule) -> None:
    assert pack_counts(pmod) == {"vta_pack": 0, "vta_unpack": 1, "vta_fold": 1}


def test_device_module_computes_no_convolution(pmod: tvm.IRModule) -> None:
    passes = tvm.transform.Sequential(
        [
            lower_regions(CONFIG, LoweredRegions()),
            relax.get_pipeline("zero"),
        ]
    )
    mod = passes(pmod)
    functions = [gv.name_hint for gv, f in mod.functions.items() if isinstance(f, tirx.PrimFunc)]
    assert not [name for name in functions if "conv2d" in name or "compute" in name]


def test_compiling_twice_gives_the_same_bytes(pmod: tvm.IRModule, program: Program) -> None:
    (again,) = compile_module(pmod, CONFIG).programs.values()
    assert again.to_bytes() == program.to_bytes()


# ---------------------------------------------------------------- the program is what computes
def flipped(program: Program, **arrays: np.ndarray) -> Program:
    return dataclasses.replace(program, **arrays)


def outcome(program: Program, inputs: dict[str, np.ndarray]) -> bytes | str:
    """What a run leaves in the tensors it stores, or the fault that stopped it."""
    try:
        result = simulator.run(program, inputs)
    except VTAError as err:
        return str(err)
    return b"".join(program.view(result.arena, name).tobytes() for name in stored(program))


@pytest.fixture(scope="module")
def apart(program: Program) -> Program:
    """The same instructions; all tensors are there when it has run."""
    return program.without_sharing()


@pytest.fixture(scope="module")
def region_inputs(compiled: Compiled, program: Program) -> dict[str, np.ndarray]:
    """What the region gets for a real image."""
    (run,) = profile(compiled.exe, next(images())[1], arenas=True).regions
    assert run.arena is not None
    return {s.name: program.view(run.arena, s.name).copy() for s in program.of_kind("input")}


def test_a_flipped_weight_changes_the_result(
    apart: Program, region_inputs: dict[str, np.ndarray]
) -> None:
    want = outcome(apart, region_inputs)
    rng = np.random.default_rng(4)
    weights = [s for s in apart.of_kind("const") if s.dtype == "int8" and len(s.shape) == 6]
    assert len(weights) >= 21
    loaded, spare = loaded_bytes(apart), 0
    for symbol in weights:
        image = apart.image.copy()
        values = image[symbol.offset - apart.input_bytes :][: symbol.nbytes]
        read = loaded[symbol.offset :][: symbol.nbytes]
        spare += int((~read).sum())
        at = int(rng.choice(np.flatnonzero(values * read)))  # lanes that do not exist hold zeros
        values[at] ^= -128
        assert outcome(flipped(apart, image=image), region_inputs) != want, symbol.name
    # an addition needs no weight for the operand that is in the tiles
    assert spare == CONFIG.wgt_elem_bytes


def loaded_bytes(program: Program) -> np.ndarray:
    """Which bytes of the arena a LOAD of weights reads."""
    loaded = np.zeros(program.arena_bytes, bool)
    weights = loaded[: loaded.size // CONFIG.wgt_elem_bytes * CONFIG.wgt_elem_bytes]
    by_element = weights.reshape(-1, CONFIG.wgt_elem_bytes)
    for words in program.insns.tolist():
        insn = ISA.of(CONFIG).decode(*words)
        if insn.opcode == Opcode.LOAD and insn["mem_type"] == MemType.WGT and insn["x_size"]:
            by_element[Transfer.of(CONFIG, insn).elements().reshape(-1)] = True
    return loaded


def test_a_flipped_micro_op_changes_the_result_or_is_reported(
    apart: Program, region_inputs: dict[str, np.ndarray]
) -> None:
    want = outcome(apart, region_inputs)
    rng = np.random.default_rng(5)
    (uops,) = apart.of_kind("uop")
    lost = 0
    for _ in range(60):
        image = apart.image.copy()
        words = image[uops.offset - apart.input_bytes :][: uops.nbytes].view(np.uint32)
        at, bit = int(rng.integers(words.size)), int(rng.integers(11))
        words[at] ^= np.uint32(1 << bit)
        lost += outcome(flipped(apart, image=image), region_inputs) == want
    # a clamp or a clear of another vector, or a maximum that loses, may change nothing
    assert lost <= 3


def dead_fields(fields: dict[str, int], opcode: Opcode) -> set[str]:
    """Fields of an instruction that cannot matter, from the definition of the instruction."""
    dead: set[str] = set()
    if opcode in (Opcode.LOAD, Opcode.STORE):
        if fields["x_size"] == 0:
            padded = fields["x_pad_0"] + fields["x_pad_1"]
            rows = set() if padded else {"y_pad_0", "y_pad_1"}
            return {"mem_type", "sram_base", "dram_base", "y_size", "x_stride"} | rows
        return {"x_stride"} if fields["y_size"] <= 1 else set()
    if opcode == Opcode.FINISH:
        return dead
    for loop in ("out", "in"):
        if fields[f"iter_{loop}"] == 1:
            dead |= {f"{name}_factor_{loop}" for name in ("dst", "src", "wgt")}
    if opcode == Opcode.GEMM and fields["reset"]:
        dead |= {f"{name}_factor_{loop}" for name in ("src", "wgt") for loop in ("out", "in")}
    if opcode == Opcode.ALU:
        operands = ("src_factor_out", "src_factor_in") if fields["use_imm"] else ("imm",)
        dead |= set(operands)
    return dead


def test_a_flipped_instruction_byte_changes_the_result_or_is_reported(
    apart: Program, region_inputs: dict[str, np.ndarray]
) -> None:
    want = outcome(apart, region_inputs)
    rng = np.random.default_rng(6)
    isa = ISA.of(apart.config)
    live = lost = 0
    while live < 150:
        at, word, bit = int(rng.integers(len(apart.insns))), *map(int, rng.integers(0, [2, 64]))
        insns = apart.insns.copy()
        insn = isa.decode(*insns[at].tolist())
        field = next(
            (
                f
                for f in isa.instructions[insn.opcode]
                if f.word == word and f.lsb <= bit < f.lsb + f.width
            ),
            None,
        )
        if field is not None and field.name in dead_fields(dict(insn.fields), insn.opcode):
            continue
        if field is not None and is_dead_bit(insn, field.name, bit - field.lsb):
            continue
        insns[at, word] ^= np.uint64(1) << np.uint64(bit)
        live += 1
        result = outcome(flipped(apart, insns=insns), region_inputs)
        lost += result == want
        if result == want:
            name = field.name if field else "reserved"
            assert can_be_lost(insn, name), (at, name, format_instruction(insn))
    print(f"{live} live bits flipped, {lost} of them without effect")
    assert lost <= live // 5


def is_dead_bit(insn: Instruction, field: str, bit: int) -> bool:
    """A right shift takes the low five bits of its amount and the sign."""
    shifts = insn.opcode == Opcode.ALU and insn["alu_opcode"] == AluOp.SHR
    return shifts and field == "imm" and 5 <= bit < 15


def can_be_lost(insn: Instruction, field: str) -> bool:
    """Whether a change of a live field may leave every stored tensor as it was.

    How much an instruction does may change unnoticed: more rows, steps or padding may fall on SRAM
    that is written again before it is read, and a clamp may find all values inside its bounds.
    Where it reads and writes, what it is and whom it waits for may not.
    """
    if field in AMOUNTS:
        return True
    clamps = insn.opcode == Opcode.ALU and insn["alu_opcode"] in (AluOp.MIN, AluOp.MAX)
    return clamps and field not in (*DEP_FIELDS, "opcode")


AMOUNTS = ("x_size", "y_size", "y_pad_1", "x_pad_1", "iter_out", "iter_in", "uop_bgn", "uop_end")
