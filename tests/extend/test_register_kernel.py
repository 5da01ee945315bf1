"""Kernels that users register: inside a network, in every record, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet
from own_kernels import NAME, SHAPE, leaky, network, schedule
from own_schedules import Layer, Recipe
from tvm import relax, s_tir, te, tirx
from tvm.script import tirx as T

import vta_byoc.schedule as vs
from vta_byoc.extend import register_kernel, registered, table, with_kernel
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.verify.verifier import verify
from vta_byoc.ir.reference import build_reference
from vta_byoc.ir.stage import checked_forms
from vta_byoc.ir.states import INITIAL_STATES
from vta_byoc.pipeline import Compiled, build, compile_module, partition_for_vta
from vta_byoc.reports.html.report import html_report
from vta_byoc.reports.run.layers import model_facts
from vta_byoc.runtime.executable import states_of
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_layers

BY = schedule.__module__


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    with registered(register_kernel, NAME, schedule), checked_forms():
        return compile_module(network())


def image(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, SHAPE).astype("int8")


def on_host(mod: tvm.IRModule, *arrays: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(build_reference(mod), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()


# ---------------------------------------------------------------- inside a network
def test_bit_exact_with_every_tensor(compiled: Compiled) -> None:
    checks = compare_layers(network(), compiled, [image()])
    assert {check.name for check in checks} == {"first", "middle", "last"}
    assert all(check.equal for check in checks)


def test_the_output_is_the_one_of_the_host(compiled: Compiled) -> None:
    for seed in range(3):
        found = profile(compiled.exe, [image(seed)]).outputs[0]
        assert np.array_equal(found, on_host(network(), image(seed)))


def test_its_region_is_verified_and_counted(compiled: Compiled) -> None:
    program = compiled.programs["region2"]
    assert verify(program) == []
    assert [layer.name for layer in program.layers] == ["middle"]
    run = profile(compiled.exe, [image()]).by_region["region2"]
    assert run.counters == program.counters()
    # a maximum and a shift of 1,024 values in vectors of 16
    assert run.counters["alu_counter"] == 2 * 1024 // 16


def test_a_row_in_the_placement_record(compiled: Compiled) -> None:
    (row,) = [op for op in compiled.placement if op.name == "middle"]
    assert (row.device, row.op, row.reason) == ("vta", "relax.own", f"kernel {NAME} of {BY}")
    assert row.cycles == 1412 and row.on_vta.alu_ops == row.alu_ops > 0
    assert all(op.device == "vta" for op in compiled.placement)


def test_in_the_report(compiled: Compiled) -> None:
    facts = model_facts(compiled.config, compiled.programs, compiled.placement, compiled.sharing)
    (layer,) = [layer for layer in facts.layers if layer.name == "middle"]
    assert layer.cycles > 0 and layer.alu_ops > 0
    assert f"kernel {NAME} of {BY}" in html_report(facts, "net.onnx", "sim")


@pytest.mark.parametrize("scopes", ["on", "dram", "off"])
def test_in_every_scope_mode(scopes: str) -> None:
    with registered(register_kernel, NAME, schedule):
        exe = build(partition_for_vta(network(), scopes=scopes))
    assert np.array_equal(profile(exe, [image()]).outputs[0], on_host(network(), image()))


def test_in_tvms_way() -> None:
    with registered(register_kernel, NAME, schedule):
        exe = relax.build(network(), "llvm", relax_pipeline="vta", tir_pipeline="vta")
    assert np.array_equal(profile(exe, [image()]).outputs[0], on_host(network(), image()))


def test_an_exported_library_has_it(compiled: Compiled, tmp_path: Path) -> None:
    compiled.exe.export_library(str(tmp_path / "net.so"))
    loaded = profile(tvm.runtime.load_module(str(tmp_path / "net.so")), [image()])
    assert loaded.by_region == profile(compiled.exe, [image()]).by_region


def test_beside_initial_states() -> None:
    """What the executable says of states is not dropped with the functions that kernels leave."""
    name = str(network()["main"].params[0].name)
    states = {name: tvm.runtime.tensor(image())}
    with registered(register_kernel, NAME, schedule):
        exe = compile_module(network().with_attr(INITIAL_STATES, states)).exe
    found = states_of(relax.VirtualMachine(exe, tvm.cpu()))
    assert list(found) == [name]
    assert np.array_equal(found[name], image())


def test_on_the_null_device() -> None:
    with registered(register_kernel, NAME, schedule):
        exe = build(partition_for_vta(network()), device="null")
    assert profile(exe, [image()]).counters["alu_counter"] == 0


def test_a_network_of_nothing_else_and_two_calls() -> None:
    net = IntegerNet(x=SHAPE)
    made = with_kernel(leaky(), NAME)
    function, out = relax.BlockBuilder().add_func(made, "own"), relax.TensorType(SHAPE, "int8")
    first = net.emit(relax.call_tir(function, [net.params[0]], out_ty=out), "first")
    mod = net.module(net.emit(relax.call_tir(function, [first], out_ty=out), "second"))
    mod.update_func(function, made)
    with registered(register_kernel, NAME, schedule), checked_forms():
        found = compile_module(mod)
    assert list(found.programs) == ["region0", "region1"]
    assert np.array_equal(profile(found.exe, [image()]).outputs[0], on_host(mod, image()))


def dense(definition: tirx.PrimFunc, _config: VTAConfig) -> s_tir.Schedule:
    """The schedule of own_schedules for any layer."""
    recipe = Recipe()
    recipe.definition, recipe.sch = definition, s_tir.Schedule(definition)
    return recipe.stage().inline().tiles().state().sch


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "given"])
def test_weights(constant: bool) -> None:
    """An argument that is a constant becomes part of the program."""
    data, weight = (1, 4, 1, 16), (4, 4, 16, 16)
    value = np.random.default_rng(1).integers(-128, 128, weight).astype("int8")
    net = IntegerNet(data=data) if constant else IntegerNet(data=data, weight=weight)
    made = with_kernel(Layer().definition(), "dense")
    function = relax.BlockBuilder().add_func(made, "dense")
    args = [net.params[0], relax.const(value) if constant else net.params[1]]
    out = relax.TensorType(data, "int8")
    mod = net.module(net.emit(relax.call_tir(function, args, out_ty=out), "y"))
    mod.update_func(function, made)
    with registered(register_kernel, "dense", dense, slots=1):
        found = compile_module(mod)
    x = np.random.default_rng(2).integers(-128, 128, data).astype("int8")
    given = [x] if constant else [x, value]
    assert np.array_equal(profile(found.exe, given).outputs[0], on_host(mod, *given))
    kinds = {s.name: s.kind for s in found.programs["region0"].symbols}
    assert kinds["y__weight"] == ("const" if constant else "input")


# ---------------------------------------------------------------- what is registered
def test_the_table_names_who() -> None:
    assert table() == ""
    with registered(register_kernel, NAME, schedule), registered(register_kernel, "dense", dense):
        assert table() == f"kernel {NAME}  {BY}\nkernel dense  {__name__}\n"
    assert table() == ""


def test_registered_ends_with_its_block() -> None:
    with pytest.raises(RuntimeError), registered(register_kernel, NAME, schedule):
        raise RuntimeError
    assert table() == ""


def refused(message: str) -> Any:
    return pytest.raises(VTAError, match=f"^{re.escape(message)}$")


def test_a_name_is_registered_once() -> None:
    text = (
        f'kernel "{NAME}" of {__name__} is registered already, by {BY}; each name stands for one '
        "kernel; give it another name"
    )
    with registered(register_kernel, NAME, schedule), refused(text):
        register_kernel(NAME, dense)


def test_a_name_is_an_identifier() -> None:
    text = (
        f"kernel 'hard swish' of {BY}; the name of a kernel stands in modules and reports; give "
        "letters, digits and underscores"
    )
    with refused(text):
        register_kernel("hard swish", schedule)


# ---------------------------------------------------------------- bad input
def test_nobody_registered_it() -> None:
    text = (
        f'kernel "{NAME}" is not registered; registered: none; register it with '
        "vta_byoc.extend.register_kernel before the module is partitioned"
    )
    with refused(text):
        partition_for_vta(network())


def raises(_definition: tirx.PrimFunc, _config: VTAConfig) -> s_tir.Schedule:
    raise KeyError("no tile")


def returns_text(_definition: tirx.PrimFunc, _config: VTAConfig) -> Any:
    return "scheduled"


def returns_another(_definition: tirx.PrimFunc, config: VTAConfig) -> s_tir.Schedule:
    return schedule(leaky((1, 32, 8, 8)), config)


def unfinished(definition: tirx.PrimFunc, _config: VTAConfig) -> tirx.PrimFunc:
    return definition


@T.prim_func(s_tir=True)
def backwards(x: T.Buffer((1, 16, 8, 8), "int8"), y: T.Buffer((1, 16, 8, 8), "int8")) -> None:
    """It reads what it should write, and writes what it should only read."""
    wide = T.sblock_alloc_buffer((1, 16, 8, 8), "int32")
    for n, c, h, w in T.grid(1, 16, 8, 8):
        with T.sblock("load"):
            i, j, k, m = T.axis.remap("SSSS", [n, c, h, w])
            wide[i, j, k, m] = T.Cast("int32", y[i, j, k, m])
    for n, c, h, w in T.grid(1, 16, 8, 8):
        with T.sblock("store"):
            i, j, k, m = T.axis.remap("SSSS", [n, c, h, w])
            x[i, j, k, m] = T.Cast("int8", wide[i, j, k, m])


def writes_its_input(_definition: tirx.PrimFunc, _config: VTAConfig) -> s_tir.Schedule:
    sch = s_tir.Schedule(backwards)
    sch.set_scope("load", 0, vs.ACC)
    for block in ("load", "store"):
        vs.dma_copy(sch, block)
    return sch


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            writes_its_input,
            "block store stores to x, an input; a kernel writes its last parameter, y, and nothing "
            "else; make x the last one or stage the value on chip",
        ),
        (
            raises,
            "its schedule raised KeyError: 'no tile'; run it by itself on the function of the "
            "call to see where",
        ),
        (
            returns_text,
            "str given; a kernel is made from a scheduled tirx.PrimFunc or its s_tir.Schedule; "
            "give one of them",
        ),
        (
            returns_another,
            "its schedule returned a function of x int8 (1, 32, 8, 8), y int8 (1, 32, 8, 8); the "
            "call is of one of x int8 (1, 16, 8, 8), y int8 (1, 16, 8, 8); return the same "
            "function, scheduled",
        ),
        (
            unfinished,
            "block wide writes wide in global; what is not a parameter of the function lives on "
            "chip; compute_inline wide, or set_scope its result to local.acc_buffer",
        ),
    ],
)
def test_a_schedule_that_fails_is_named(wrong: Any, message: str) -> None:
    text = f'middle asks for kernel "{NAME}" of {__name__}: {message}'
    with registered(register_kernel, NAME, wrong), refused(text):
        partition_for_vta(network())


def test_a_function_of_other_shapes() -> None:
    text = (
        f'middle asks kernel "{NAME}" for x of int8 (1, 16, 8, 8); its function has int8 '
        "(1, 32, 8, 8); call a function of these shapes"
    )
    with registered(register_kernel, NAME, schedule), refused(text):
        partition_for_vta(network(leaky((1, 32, 8, 8))))


def test_a_function_of_more_tensors() -> None:
    a, b = (te.placeholder(SHAPE, "int8", name=n) for n in "ab")
    definition = te.create_prim_func([a, b, te.compute(SHAPE, lambda *i: a(*i) + b(*i), name="c")])
    text = f'middle gives 1 tensors to kernel "{NAME}"; its function takes 2; give one for each'
    with registered(register_kernel, NAME, schedule), refused(text):
        partition_for_vta(network(definition))
