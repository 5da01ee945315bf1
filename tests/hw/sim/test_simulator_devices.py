"""Programs on devices: the Python interface, the build, and a Relax executable."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from core_extra import with_core_marked
from core_machines import machine_of
from simulator_cases import MACHINES, SIM
from tvm import relax
from without_torch import WITHOUT_TORCH

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import COUNTER_SLOTS
from vta_byoc.hw.isa import MemType, Opcode
from vta_byoc.hw.program.program import Program, Relocation, Symbol, link
from vta_byoc.hw.result import RunResult
from vta_byoc.hw.sim import devices, interpreter, simulator
from vta_byoc.hw.sim import target as targets


# ---------------------------------------------------------------- programs and devices
def matmul_program(config: VTAConfig = SIM) -> Program:
    """y (1, n) int8 = low bytes of x (1, n) times w (n, n) transposed; n is BLOCK."""
    n = config.block
    symbols = [
        Symbol("x", "input", (1, n), "int8", n),
        Symbol("w", "const", (n, n), "int8", n * n),
        Symbol("u", "uop", (1,), "uint32", 4),
        Symbol("y", "output", (1, n), "int8", n),
    ]
    one = {"y_size": 1, "x_size": 1, "x_stride": 1}
    loops = {"uop_end": 1, "iter_out": 1, "iter_in": 1}
    insns = [
        (Opcode.LOAD, {"mem_type": MemType.UOP, **one}),
        (Opcode.LOAD, {"mem_type": MemType.INP, **one}),
        (Opcode.LOAD, {"mem_type": MemType.WGT, "push_next": 1, **one}),
        (Opcode.GEMM, {"reset": 1, "pop_prev": 1, **loops}),
        (Opcode.GEMM, {"push_next": 1, **loops}),
        (Opcode.STORE, {"mem_type": MemType.OUT, "pop_prev": 1, "push_prev": 1, **one}),
        (Opcode.LOAD, {"mem_type": MemType.UOP, "pop_next": 1}),
        (Opcode.FINISH, {}),
    ]
    places = ((0, "u"), (1, "x"), (2, "w"), (5, "y"))
    relocations = [Relocation(i, name, 0) for i, name in places]
    constants: dict[str, np.ndarray] = {
        "w": np.arange(n * n, dtype=np.uint8).view(np.int8).reshape(n, n),
        "u": np.zeros(1, np.uint32),
    }
    return link(config, insns, symbols, constants, relocations, [])


X = np.arange(-8, 8, dtype=np.int8).reshape(1, 16)


def test_run_a_program() -> None:
    program = matmul_program()
    result = simulator.run(program, {"x": X})
    w = program.view(program.new_arena({"x": X}), "w")
    np.testing.assert_array_equal(result.outputs["y"], (X @ w.T.astype(np.int32)).astype(np.int8))
    assert result.counters == program.counters()
    assert result.counters["gemm_counter"] == 1


def test_null_device_counts_and_computes_nothing() -> None:
    program = matmul_program()
    result = simulator.run(program, {"x": X}, device="null")
    assert result.counters == program.counters()
    assert not result.outputs["y"].any() and not result.sram


@pytest.mark.parametrize("name", with_core_marked(devices.DRIVERS))
def test_every_driver_has_the_same_signature(name: str) -> None:
    program = matmul_program(machine_of(name, SIM))
    x = X[:, : program.config.block]
    module = devices.driver(name).module(program.config)
    head = simulator.pack_inputs(program, {"x": x})
    arena, counters, _ = interpreter.call(
        program.config, module, program.insns, head, program.image, program.arena_bytes
    )
    sim = simulator.run(program, {"x": x})
    nothing = RunResult(np.zeros_like(arena), dict.fromkeys(sim.counters, 0))
    wanted = sim if devices.driver(name).computes else nothing
    np.testing.assert_array_equal(arena, wanted.arena)
    assert simulator.named_counters(counters) == wanted.counters


@pytest.mark.parametrize(
    ("inputs", "device", "message"),
    [
        (
            {"z": X},
            "sim",
            "inputs z given; the program takes x; give exactly these",
        ),
        ({}, "sim", "inputs none given; the program takes x; give exactly these"),
        (
            {"x": X.astype(np.int32)},
            "sim",
            "input 'x' is int32 (1, 16); the program takes int8 (1, 16); convert it",
        ),
        ({"x": X[0]}, "sim", "input 'x' is int8 (16,); the program takes int8 (1, 16); convert it"),
        (
            {"x": X},
            "fpga",
            "unknown device 'fpga'; known: sim, tsim, null, rtl, hls-registers, chisel-registers, "
            "board:..., pool:..., rpc:..., tracker:...; choose one",
        ),
    ],
)
def test_bad_arguments(inputs: dict[str, np.ndarray], device: str, message: str) -> None:
    with pytest.raises(VTAError, match=f"^{re.escape(message)}$"):
        simulator.run(matmul_program(), inputs, device=device)


@pytest.mark.parametrize(
    ("insns", "arena", "message"),
    [
        (
            np.zeros((1, 2), np.int64),
            np.zeros(1, np.int8),
            "instructions are int64 (1, 2); they must be uint64 (n, 2); encode them with "
            "ISA.encode",
        ),
        (
            np.zeros((1, 2), np.uint64),
            np.zeros(1, np.uint8),
            "the arena is uint8 (1,); it must be int8 of one dimension; view its bytes as int8",
        ),
    ],
)
def test_bad_streams(insns: np.ndarray, arena: np.ndarray, message: str) -> None:
    with pytest.raises(VTAError, match=f"^{re.escape(message)}$"):
        simulator.run_stream(SIM, insns, arena)


# ---------------------------------------------------------------- building
def test_dot_choices() -> None:
    with pytest.raises(
        VTAError, match="^unknown dot 'fast'; known: auto, portable, vnni; choose one$"
    ):
        interpreter.build_interpreter(SIM, dot="fast")
    text = "^dot 'vnni' on block 16 and target .*x86-64-v3.*; it needs a block of 8 or more and a "
    with pytest.raises(VTAError, match=text):
        interpreter.build_interpreter(SIM, {"kind": "llvm", "mcpu": "x86-64-v3"}, dot="vnni")


def test_wrong_products_fall_back_to_portable_code(monkeypatch: pytest.MonkeyPatch) -> None:
    config = VTAConfig(capabilities=Capabilities(max_tokens=17))
    if not interpreter.vnni_lanes(config, targets.native_target()):
        pytest.skip("this processor has no vpdpbusd")
    monkeypatch.setattr(interpreter, "multiplies", lambda *a, **k: False)
    with pytest.warns(UserWarning, match="vpdpbusd gives wrong products"):
        found = interpreter.build_interpreter(config)
    assert found is interpreter.build_interpreter(config, dot="portable")


def test_self_check_notices_a_wrong_machine() -> None:
    module = devices.NullDevice().module(SIM)
    assert not interpreter.multiplies(SIM, module)
    assert interpreter.multiplies(SIM, interpreter.build_interpreter(SIM))


def test_modules_are_shared_by_machines_that_programs_cannot_tell_apart() -> None:
    pynq = interpreter.build_interpreter(VTAConfig.preset("pynq"))
    assert pynq is interpreter.build_interpreter(VTAConfig.preset("ultra96"))
    assert interpreter.symbol(SIM) == "vta_run_b0_k4_u15_i15_w18_a17"
    assert interpreter.symbol(MACHINES["plain 1x16"]).endswith("_a17_nomul_t2")


def test_hidden_instructions_are_switched_off() -> None:
    wanted = frozenset({"avx2", "avx512vnni", "sse2", "fma"})
    assert targets._hidden(wanted, frozenset({"avx2"})) == ["-avx512vnni", "-fma"]
    assert targets._hidden(wanted, None) == []


# ---------------------------------------------------------------- inside a Relax executable
def relax_module(program: Program, target: tvm.target.Target) -> tvm.IRModule:
    """main(x: int8 (i,)) -> (arena, counters): the program called like any packed function."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((program.input_bytes,), "int8"))
    given = (relax.const(program.insns, "uint64"), x, relax.const(program.image, "int8"))
    region = relax.prim_value(interpreter.NO_REGION)
    out = [relax.TensorType((program.arena_bytes,), "int8")]
    out += [relax.TensorType((COUNTER_SLOTS,), "int64")]
    name = interpreter.symbol(program.config)
    with builder.function("main", [x]):
        result = builder.emit(relax.call_dps_packed(name, (*given, region), out))
        builder.emit_func_output(result)
    external = [interpreter.build_interpreter(program.config, target)]
    return builder.get().with_attr("external_mods", external)


_LOAD_AND_RUN = """
import sys
import numpy as np, tvm
from tvm import relax
x = tvm.runtime.tensor(np.load(sys.argv[2]))
vm = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
np.save(sys.argv[3], vm["main"](x)[0].numpy())
"""


def test_exported_executable_runs_in_a_fresh_process(tmp_path: Path) -> None:
    program = matmul_program()
    head = simulator.pack_inputs(program, {"x": X})
    wanted = simulator.run(program, {"x": X}).arena
    target = targets.export_target()
    executable = relax.build(relax_module(program, target), target)
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(head))
    np.testing.assert_array_equal(found[0].numpy(), wanted)
    library, given, result = (tmp_path / n for n in ("lib.so", "x.npy", "y.npy"))
    executable.export_library(str(library))
    np.save(given, head)
    program = WITHOUT_TORCH + _LOAD_AND_RUN
    command = [sys.executable, "-c", program, str(library), str(given), str(result)]
    subprocess.run(command, check=True)
    np.testing.assert_array_equal(np.load(result), wanted)


def test_a_fault_raises_inside_an_executable() -> None:
    program = matmul_program()
    program.insns[1, 0] |= np.uint64(1) << np.uint64(25)
    target = targets.native_target()
    executable = relax.build(relax_module(program, target), target)
    head = tvm.runtime.tensor(simulator.pack_inputs(program, {"x": X}))
    text = (
        "VTA stopped: SRAM element ?; the buffer has ? elements; the program's compiler must keep "
        "inside it (hw.simulator.run names the instruction)"
    )
    with pytest.raises(RuntimeError, match=re.escape(text)):
        relax.VirtualMachine(executable, tvm.cpu())["main"](head)


def test_tsim_gives_the_results_of_sim_and_its_cycles() -> None:
    from integer_models import residual_net

    from vta_byoc.hw.timing.engine import simulate as time_program
    from vta_byoc.pipeline import compile_module

    net = residual_net()
    (program,) = compile_module(net.module(net.result), VTAConfig()).programs.values()
    rng = np.random.default_rng(0)
    inputs = {
        s.name: rng.integers(-128, 128, s.shape).astype("int8") for s in program.of_kind("input")
    }
    plain, timed = (simulator.run(program, inputs, device=d) for d in ("sim", "tsim"))
    np.testing.assert_array_equal(plain.arena, timed.arena)
    assert plain.timing is None
    assert timed.timing is not None
    assert timed.timing.cycles == time_program(program).cycles > 0
