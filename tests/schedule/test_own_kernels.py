"""Kernels of one's own schedules: results, numbers, pictures, modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from own_schedules import Layer, Recipe, right
from script_nests import A, X, Y, function, load, nest, parse, store
from tvm import relax, s_tir, te, tirx
from without_torch import WITHOUT_TORCH

import vta_byoc.schedule as vs
from vta_byoc import extend
from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.reference.interleaving import POLICIES, run_interleaved
from vta_byoc.hw.sim.target import export_target
from vta_byoc.runtime.execute import profile

Arrays = list[np.ndarray]
LAYER = Layer(inputs=8, outputs=8)


@pytest.fixture(scope="module")
def inputs() -> Arrays:
    return vs.random_inputs(LAYER.definition(), seed=3)


@pytest.fixture(scope="module")
def expected(inputs: Arrays) -> np.ndarray:
    return vs.reference(LAYER.definition(), *inputs)


def made(**options: object) -> vs.Kernel:
    return vs.kernel(right(LAYER).sch, name="layer", **options)  # type: ignore[arg-type]


# ---------------------------------------------------------------- results
@pytest.mark.parametrize("device", ["sim", "tsim"])
def test_a_call_gives_the_output(inputs: Arrays, expected: np.ndarray, device: str) -> None:
    assert np.array_equal(made()(*inputs, device=device), expected)


def test_the_null_device_computes_nothing(inputs: Arrays) -> None:
    assert not made()(*inputs, device="null").any()


@pytest.mark.parametrize("slots", [1, 2, {vs.INP: 1}, {vs.WGT: 3, vs.ACC: 1}], ids=str)
@pytest.mark.parametrize("tile", [1, 2, 4, 8])
def test_any_tile_and_slots(
    inputs: Arrays, expected: np.ndarray, tile: int, slots: int | dict[str, int]
) -> None:
    sch = Recipe(LAYER, tile).stage().inline().tiles().state().sch
    assert np.array_equal(vs.kernel(sch, slots=slots)(*inputs), expected)


def test_every_order_of_the_queues(inputs: Arrays, expected: np.ndarray) -> None:
    kernel = made()
    values = dict(zip(("data", "weight"), inputs, strict=True))
    for policy in POLICIES:
        arena = run_interleaved(kernel.program, values, policy).arena
        assert np.array_equal(kernel.program.view(arena, "out"), expected)


def test_constants_are_part_of_the_program(inputs: Arrays, expected: np.ndarray) -> None:
    data, weight = inputs
    kernel = made(constants={"weight": weight})
    assert [tensor.name for tensor in kernel.inputs] == ["data"]
    assert np.array_equal(kernel(data), expected)


@pytest.mark.parametrize("preset", ["pynq", "ultra96", "de10nano"])
def test_machines_of_one_geometry(inputs: Arrays, expected: np.ndarray, preset: str) -> None:
    config = VTAConfig.preset(preset)
    assert np.array_equal(made(config=config)(*inputs), expected)


def test_a_scheduled_function_is_taken_as_its_schedule_is(inputs: Arrays) -> None:
    sch = right(LAYER).sch
    assert vs.kernel(sch.mod["main"]).program == vs.kernel(sch).program


def test_a_scope_of_a_parameter_is_kept() -> None:
    text = function(f"{X} {Y}", A, load(), store("T.min(T.max(a[i, 0, k], -128), 127)"))
    text = text.replace('x: T.Buffer((4,1,16,), "int32")', 'x: T.Buffer((4,1,16,), "int32", '
                        f'scope="{vs.DRAM_ACC}")')  # fmt: skip
    kernel = vs.kernel(parse(text))
    assert kernel.inputs[0].scope == vs.DRAM_ACC
    x = np.arange(64, dtype=np.int32).reshape(4, 1, 16)
    assert np.array_equal(kernel(x), x.astype(np.int8))


def test_equal_schedules_give_equal_bytes() -> None:
    assert made().program.to_bytes() == made().program.to_bytes()


# ---------------------------------------------------------------- whole elements
def test_a_loop_over_many_lanes_is_split() -> None:
    """64 channels in one loop are four elements of 16 lanes."""
    a, b = (te.placeholder((8, 64), "int8", name=n) for n in "ab")
    aa = te.compute(a.shape, lambda *i: a(*i).astype("int32"), "aa")
    bb = te.compute(b.shape, lambda *i: b(*i).astype("int32"), "bb")
    out = te.compute(a.shape, lambda *i: tirx.Max(aa(*i), bb(*i)).astype("int8"), name="out")
    definition = te.create_prim_func([a, b, out])
    sch = s_tir.Schedule(definition)
    rows, _ = sch.split(sch.get_loops("out")[0], [None, 4])
    for name in ("aa", "bb"):
        sch.set_scope(name, 0, vs.ACC)
        sch.compute_at(name, rows)
        vs.dma_copy(sch, name)
    vs.alu(sch, "out")
    vs.dma_copy(sch, "out")
    arrays = vs.random_inputs(definition)
    kernel = vs.kernel(sch)
    assert np.array_equal(kernel(*arrays), np.maximum(*arrays))
    assert kernel.counters["alu_counter"] == 8 * 4


# ---------------------------------------------------------------- numbers and pictures
def test_counters_are_those_of_a_run(inputs: Arrays) -> None:
    kernel = made()
    assert kernel.counters == profile(kernel.module(), inputs).counters
    assert kernel.counters["gemm_counter"] == 8 * 8


def test_every_instruction_has_its_block() -> None:
    kernel = made()
    assert len(kernel.blocks) == len(kernel.program.insns)
    assert set(kernel.blocks) == {
        "", "acc_init", "acc_update", "data_local.inp_buffer", "weight_local.wgt_buffer", "out"
    }  # fmt: skip


def test_repr_is_short() -> None:
    assert repr(made()) == "<Kernel layer: 95 instructions, 3,440 cycles on sim (1x16)>"


def test_html_names_everything() -> None:
    page = made()._repr_html_()
    for text in ("layer", "data int8 (1, 8, 1, 16)", "3,440", "gemm_counter", "sim (1x16)"):
        assert text in page


def test_disassembly() -> None:
    text = made().disassemble()
    assert "; input  data 1x8x1x16 int8" in text and "layer:" in text and "FINISH" in text


def test_timing_is_of_the_program() -> None:
    kernel = made()
    assert kernel.timing.cycles == 3440 and kernel.timing is kernel.timing


def test_trace_and_report(tmp_path: Path) -> None:
    kernel, trace, page = made(), tmp_path / "trace.json", tmp_path / "report.html"
    kernel.trace(trace)
    kernel.report(page)
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert "layer" in names
    text = page.read_text(encoding="utf-8")
    assert "layer on VTA sim" in text and "16,384" in text


# ---------------------------------------------------------------- modules
def test_a_module_runs_in_the_virtual_machine(inputs: Arrays, expected: np.ndarray) -> None:
    module = made().module()
    assert isinstance(module, tvm.runtime.Module)
    main = relax.VirtualMachine(module, tvm.cpu())["main"]
    assert np.array_equal(main(*map(tvm.runtime.tensor, inputs)).numpy(), expected)


def test_int32_inputs_reach_the_machine_byte_by_byte() -> None:
    kernel = vs.kernel(
        parse(
            function(f"{X} {Y}", A, load(), nest("store", "alu,dma_copy", "i:4 k:16",
                     'y[i, 0, k] = T.Cast("int8", T.min(T.max(T.shift_right(a[i, 0, k], 24), '
                     "-128), 127))"))
        )
    )  # fmt: skip
    x = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, (4, 1, 16)).astype(np.int32)
    assert np.array_equal(kernel(x), (x >> 24).astype(np.int8))
    assert np.array_equal(profile(kernel.module(), [x]).outputs[0], kernel(x))


_LOAD_AND_RUN = """
import sys
import numpy as np, tvm
from tvm import relax
arrays = np.load(sys.argv[2])
vm = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
np.save(sys.argv[3], vm["main"](*(tvm.runtime.tensor(arrays[n]) for n in arrays)).numpy())
assert not [name for name in sys.modules if name.startswith("vta_byoc.schedule")]
import vta_byoc.schedule
print([name for name in sys.argv[4:] if name in sys.modules])
"""
HEAVY = ("plotly", "jinja2", "onnx", "vta_byoc.importers", "vta_byoc.pipeline")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "layer.so"
    made().module(export_target()).export_library(str(path))
    return path


@pytest.fixture(scope="module")
def elsewhere(library: Path, inputs: Arrays) -> tuple[np.ndarray, str]:
    """What the library gives in a process of its own, and which of HEAVY is imported there when the
    package has been imported as well."""
    given, result = (library.with_name(n) for n in ("x.npz", "y.npy"))
    np.savez(given, *inputs)
    program = WITHOUT_TORCH + _LOAD_AND_RUN
    command = [sys.executable, "-c", program, str(library), str(given), str(result), *HEAVY]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return np.load(result), done.stdout.strip()


def test_an_exported_library_runs_elsewhere(
    elsewhere: tuple[np.ndarray, str], expected: np.ndarray
) -> None:
    assert np.array_equal(elsewhere[0], expected)


def test_a_kernel_runs_on_a_server(library: Path, inputs: Arrays, expected: np.ndarray) -> None:
    """A stock RPC server: it needs the library alone."""
    from tvm import rpc

    server = rpc.Server(port=9311, port_end=9399)
    try:
        session = rpc.connect("127.0.0.1", server.port)
        session.upload(str(library))
        machine = relax.VirtualMachine(session.load_module("layer.so"), session.cpu())
        given = [tvm.runtime.tensor(x, session.cpu()) for x in inputs]
        assert np.array_equal(machine["main"](*given).numpy(), expected)
    finally:
        server.terminate()


# ---------------------------------------------------------------- the package
def test_machines_without_capabilities() -> None:
    """A schedule without MUL and int8 loads into ACC runs on a machine that has neither."""
    config = VTAConfig(capabilities=Capabilities(mul=False, acc_8bit=False))
    kernel = made(config=config)
    assert np.array_equal(
        kernel(*vs.random_inputs(LAYER.definition())),
        vs.reference(LAYER.definition(), *vs.random_inputs(LAYER.definition())),
    )


def test_every_public_name_is_documented() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    own, plugins = docs / "own-schedules.md", docs / "how-to" / "plug-ins.md"
    for package, pages in ((vs, [own]), (extend, [own, plugins])):
        text = "".join(page.read_text(encoding="utf-8") for page in pages)
        for name in package.__all__:
            assert f"`{name}" in text or f"vs.{name}" in text, name
            value = getattr(package, name)
            assert isinstance(value, str) or value.__doc__, name


def test_the_package_is_light(elsewhere: tuple[np.ndarray, str]) -> None:
    """It does not read what draws and imports models."""
    assert elsewhere[1] == "[]"
