"""Whole programs: layers with hazards through DRAM, residual adds, edges, equal bytes."""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conv_cases import (
    Case,
    NetBuilder,
    add_case,
    add_work,
    conv_case,
    conv_tile,
    random_tile,
    rescale,
)
from draws import draws
from strict_machine import Machine
from without_torch import WITHOUT_TORCH

from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.isa import ISA, MemType, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim import simulator
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import Conv2dWorkload, ElementwiseWorkload, Prologue, Step

HERE = Path(__file__).resolve().parent
PATHS = os.pathsep.join(map(str, (HERE, HERE.parent / "support")))
PRESETS = ("sim", "tophub_4x8", "2x16", "1x32")


def run_everywhere(case: Case, seed: int = 0) -> None:
    """The simulator, program order with hazard check, and two random legal orders agree."""
    case.check(simulator.run(case.program, case.inputs).arena)
    case.check(Machine(case.program, case.inputs, seed).run())
    for k in (1, 2):
        machine = Machine(case.program, case.inputs, seed + k)
        case.check(machine.run(np.random.default_rng(seed + k)))


def add_tile(vectors: int, acc_slots: int = 2) -> Choice:
    """A tile of a sum: so many vectors of the packed tensor."""
    return Choice({"n": 1, "c": 1, "p": vectors}, "tiles", (2, 2, acc_slots))


# ---------------------------------------------------------------- several layers
def residual_block(seed: int, config: VTAConfig) -> Case:
    """conv, conv, add the input, conv, add the first conv: layers read what others stored."""
    rng = np.random.default_rng(seed)
    net = NetBuilder(config, seed)
    n, c, h, w = (int(rng.integers(*r)) for r in ((1, 3), (5, 50), (3, 13), (3, 13)))

    def conv(name: str, x: str) -> str:
        k = int(rng.choice([1, 3]))
        end = rescale(9, low=0)
        work = Conv2dWorkload(n, c, c, h, w, (k, k), padding=(k // 2,) * 4, epilogue=end)
        tile = random_tile(rng, work, config) if rng.random() < 0.7 else None
        return net.conv(name, x, work, tile)

    def add(name: str, lhs: str, rhs: str, kind: str = "temp") -> str:
        work = add_work((n, c, h, w), int(rng.integers(0, 3)), 0, 4, 3)
        vectors = blocks(n, config.batch) * blocks(c, config.block) * h * w
        most = min(vectors, config.acc_depth // 2, config.inp_depth // 4)
        tile = add_tile(int(rng.integers(1, most + 1)), int(rng.integers(1, 3)))
        return net.add(name, lhs, rhs, work, tile if rng.random() < 0.7 else None, kind)

    x = net.input("x", n, c, h, w)
    first = conv("conv1", x)
    second = add("add1", conv("conv2", first), x)
    return net.finish(add("add2", conv("conv3", second), first, "output"))


@pytest.mark.parametrize("seed", range(draws(8, 12)))
def test_layers_that_read_one_another(seed: int) -> None:
    run_everywhere(residual_block(seed, VTAConfig.preset(PRESETS[seed % 4])), seed)


def test_layer_map() -> None:
    program = network()
    assert [layer.name for layer in program.layers] == ["conv1", "conv2", "add1", "conv3", "add2"]
    assert [layer.output for layer in program.layers] == [layer.name for layer in program.layers]


@functools.cache
def four_layers() -> Case:
    return residual_block(4, VTAConfig())


@pytest.mark.parametrize("pair", [(0, 1), (1, 0), (1, 2), (2, 1)], ids=str)
def test_every_token_is_needed(pair: tuple[int, int]) -> None:
    """Without any one of the tokens some hazard is open."""
    case = four_layers()
    total = len(_token_places(case.program, *pair)[0])
    assert total > 3
    for number in range(0, total, max(1, total // draws(6, 12))):
        broken = dataclasses.replace(case, program=_without_token(case.program, *pair, number))
        with pytest.raises(AssertionError, match=r"does not wait for"):
            Machine(broken.program, case.inputs).run()


def _token_places(program: Program, source: int, target: int) -> tuple[list[int], list[int]]:
    """Instructions that push to, and that pop from, a pair of queues."""
    push, pop = ("push_next", "pop_prev") if target > source else ("push_prev", "pop_next")
    isa = ISA.of(program.config)
    insns = [isa.decode(*words) for words in program.insns.tolist()]
    pushes = [i for i, n in enumerate(insns) if n.queue == source and n[push]]
    return pushes, [i for i, n in enumerate(insns) if n.queue == target and n[pop]]


def _without_token(program: Program, source: int, target: int, number: int) -> Program:
    """The program with push and pop number ``number`` of a pair of queues left out."""
    isa = ISA.of(program.config)
    names = ("push_next", "pop_prev") if target > source else ("push_prev", "pop_next")
    words = program.insns.copy()
    for name, places in zip(names, _token_places(program, source, target), strict=True):
        insn = isa.decode(*words[places[number]].tolist())
        fields = {k: v for k, v in insn.fields.items() if k != "opcode"} | {name: 0}
        words[places[number]] = isa.encode(insn.opcode, **fields)
    return dataclasses.replace(program, insns=words)


def test_one_store_read_by_two_layers_at_once() -> None:
    """A layer that needs the stored tensor in the load queue and in the compute queue."""
    config = VTAConfig()
    net = NetBuilder(config)
    x = net.input("x", 1, 16, 6, 6)
    work = Conv2dWorkload(1, 16, 16, 6, 6, (1, 1), epilogue=rescale(9))
    first = net.conv("first", x, work, conv_tile(work, 1, 2, 3, 1))
    second = net.conv("second", first, work, conv_tile(work, 1, 3, 2, 1))
    total = add_work((1, 16, 6, 6), shift=1)
    run_everywhere(net.finish(net.add("sum", second, first, total, add_tile(4), "output")))


# ---------------------------------------------------------------- adds
def random_add(seed: int) -> tuple[ElementwiseWorkload, VTAConfig, Choice | None]:
    rng = np.random.default_rng(seed)
    config = VTAConfig.preset(PRESETS[seed % 4])
    shape = tuple(int(rng.integers(1, most)) for most in (5, 70, 20, 20))
    work = add_work(shape, *(int(rng.integers(0, most)) for most in (5, 5, 9, 6)))
    if seed % 2:
        aligned = Prologue(1, (Step("add", 2), Step("shr", int(rng.integers(1, 4)))))
        work = dataclasses.replace(work, prologues=(work.prologues[0], aligned))
    vectors = blocks(shape[0], config.batch) * blocks(shape[1], config.block) * shape[2] * shape[3]
    most = min(vectors, config.acc_depth // 4, config.inp_depth // 4)
    tile = add_tile(int(rng.integers(max(1, most // 9), most + 1)), int(rng.integers(1, 3)))
    return work, config, tile if seed % 3 else None


@pytest.mark.parametrize("start", range(0, 80, 10))
def test_adds(start: int) -> None:
    for seed in range(start, start + 10):
        work, config, tile = random_add(seed)
        case = add_case(work, config, tile, seed)
        case.check(simulator.run(case.program, case.inputs).arena)
        case.check(Machine(case.program, case.inputs, seed).run())


@pytest.mark.parametrize(
    "shape", [(1, 64, 56, 56), (1, 512, 7, 7), (1, 16, 1, 5000), (4, 8, 40, 41)]
)
def test_large_adds(shape: tuple[int, int, int, int]) -> None:
    work = add_work(shape, left=1, rounding=2, shift=2)
    for preset in PRESETS[:2]:
        case = add_case(work, VTAConfig.preset(preset))
        case.check(simulator.run(case.program, case.inputs).arena)


# ---------------------------------------------------------------- special convolutions
def conv(shift: int, *sizes: Any, **others: Any) -> Conv2dWorkload:
    return dataclasses.replace(Conv2dWorkload(*sizes, **others), epilogue=rescale(shift))


def test_batch_one_on_a_machine_of_batch_four() -> None:
    """Three of four rows are idle, and stay out of the result."""
    config = VTAConfig.preset("tophub_4x8")
    work = conv(8, 1, 20, 12, 9, 9, (3, 3), padding=(1, 1, 1, 1))
    case = conv_case(work, config)
    assert case.inputs["x"].shape == (1, 3, 9, 9, 4, 8)
    run_everywhere(case)


@pytest.mark.parametrize(
    "work",
    [
        conv(6, 1, 16, 16, 1, 1, (1, 1)),
        conv(9, 1, 300, 40, 1, 1, (1, 1)),
        conv(9, 1, 16, 16, 7, 7, (7, 7)),
        conv(7, 1, 16, 16, 1, 9, (1, 3), strides=(3, 1), padding=(2, 1, 2, 1)),
        conv(7, 1, 16, 16, 1, 9, (1, 3), strides=(3, 3), padding=(1, 0, 3, 0)),
        conv(8, 1, 3, 16, 40, 40, (7, 7), strides=(2, 2), padding=(3, 3, 3, 3)),
        conv(7, 1, 16, 16, 2, 2, (3, 3), padding=(20, 18, 17, 16)),
        conv(6, 1, 16, 16, 5, 5, (1, 1), strides=(3, 3), padding=(4, 4, 4, 4)),
        conv(7, 1, 16, 16, 9, 9, (3, 3), dilation=(4, 3)),
        conv(31, 1, 16, 32, 8, 8, (3, 3), padding=(1, 1, 1, 1)),
        conv(-3, 1, 16, 32, 8, 8, (3, 3), padding=(1, 1, 1, 1)),
    ],
    ids=str,
)
@pytest.mark.parametrize("single", [False, True], ids=["chosen", "one-element tile"])
def test_edges(work: Conv2dWorkload, single: bool) -> None:
    """One pixel, rows never read, tiles that lie in the padding, long shifts."""
    tile = conv_tile(work, 1, 1, 1, 1, "inputs held") if single else None
    case = conv_case(work, VTAConfig(), tile)
    case.check(simulator.run(case.program, case.inputs).arena)
    case.check(Machine(case.program, case.inputs).run())


def test_no_shift_over_what_a_core_can() -> None:
    """A machine whose shifter reaches 7 gets a long shift in parts."""
    config = dataclasses.replace(VTAConfig(), capabilities=Capabilities(max_shift=7))
    case = conv_case(conv(17, 1, 16, 16, 4, 4, (1, 1)), config)
    isa = ISA.of(config)
    shifts = [
        i["imm"]
        for i in (isa.decode(*words) for words in case.program.insns.tolist())
        if i.opcode == Opcode.ALU and i["alu_opcode"] == 3
    ]
    assert shifts == [7, 7, 3]
    case.check(simulator.run(case.program, case.inputs).arena)


@pytest.mark.parametrize("preset", ["pynq", "tophub_4x8"])
def test_immediates_read_what_they_write(preset: str) -> None:
    """Some cores compute acc[src] op imm: micro-ops and factors of src are those of dst."""
    program = residual_block(3, VTAConfig.preset(preset)).program
    isa = ISA.of(program.config)
    uops = program.image[program.symbol("vta.uops").offset - program.input_bytes :].view(np.uint32)
    held: dict[int, int] = {}
    factors = set()
    for words in program.insns.tolist():
        insn = isa.decode(*words)
        if insn.opcode == Opcode.LOAD and insn["mem_type"] == MemType.UOP and insn["x_size"]:
            first = insn["dram_base"] - program.symbol("vta.uops").offset // 4
            held |= {insn["sram_base"] + k: int(uops[first + k]) for k in range(insn["x_size"])}
        if insn.opcode == Opcode.ALU and insn["use_imm"]:
            for loop in ("out", "in"):
                assert insn[f"src_factor_{loop}"] == insn[f"dst_factor_{loop}"]
            factors.add(insn["dst_factor_in"])
            used = [isa.decode_uop(held[k]) for k in range(insn["uop_bgn"], insn["uop_end"])]
            assert all(uop["src"] == uop["dst"] for uop in used)
    assert factors - {0}


# ---------------------------------------------------------------- determinism and text
def small_conv() -> Program:
    end = rescale(8, low=0)
    work = Conv2dWorkload(1, 16, 32, 5, 6, (3, 3), padding=(1, 1, 1, 1), epilogue=end)
    return conv_case(work, VTAConfig(), conv_tile(work, 2, 3, 6, 1)).program


def small_add() -> Program:
    return add_case(add_work((1, 32, 4, 6), 1, 0, 4, 3), VTAConfig(), add_tile(24)).program


def network() -> Program:
    return residual_block(3, VTAConfig()).program


@pytest.mark.parametrize("build", [small_conv, small_add, network])
def test_same_bytes_twice(build: Callable[[], Program]) -> None:
    assert build() == build()


def test_same_bytes_in_another_process() -> None:
    code = "import test_codegen_programs as t; print(t.network().digest())"
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"  # another one than here
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": PATHS}
    command = [sys.executable, "-c", WITHOUT_TORCH + code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == network().digest()


def test_disassembly(golden: Callable[[str, str], None]) -> None:
    golden("conv.txt", small_conv().disassemble())
    golden("add.txt", small_add().disassemble())
