"""What users register beside kernels: each kind has its effect, and its mistakes are named."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet
from tvm import relax

import vta_byoc as vta
from vta_byoc.extend import (
    register_calibrator,
    register_device,
    register_importer,
    register_integer_op,
    register_pattern,
    register_preset,
    register_strategy,
    registered,
    table,
)
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.devices import Simulator
from vta_byoc.hw.sim.simulator import run
from vta_byoc.hw.verify.verifier import verify
from vta_byoc.ir.stage import checked_forms
from vta_byoc.partition import placements
from vta_byoc.partitioning.elementwise import match_clamp, read_clamp
from vta_byoc.partitioning.entry import Parsed, PatternEntry, Plan
from vta_byoc.partitioning.layers import simple_plan
from vta_byoc.pipeline import compile_module, partition_for_vta
from vta_byoc.quantization.calibration.range_estimators import Calibrator, Histogram
from vta_byoc.quantization.groups import moves_as_int8
from vta_byoc.quantization.ops.table import OPERATORS
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.reports.html.report import html_report
from vta_byoc.reports.run.graph import operator_edges
from vta_byoc.reports.run.layers import model_facts
from vta_byoc.strategies.base import LayerSchedule
from vta_byoc.strategies.elementwise.elementwise import Elementwise
from vta_byoc.strategy import STRATEGIES, Computation
from vta_byoc.tune import tunable_layers, tune
from vta_byoc.validation.bit_exact import compare_layers
from vta_byoc.workload.workloads import ElementwiseWorkload, Epilogue, Prologue, Step

SHAPE = (1, 16, 4, 4)
ME = __name__


def refused(message: str) -> Any:
    return pytest.raises(VTAError, match=f"^{re.escape(message)}$")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing that a test registers stays."""
    with registered():
        yield
    assert table() == ""


# ---------------------------------------------------------------- patterns and strategies
class OwnClamps(Elementwise):
    name = "own_clamps"
    cycles: float | None = None

    def estimate(self, schedule: LayerSchedule[Any], config: VTAConfig) -> float:
        return super().estimate(schedule, config) if self.cycles is None else self.cycles


def plan_clamp(parsed: Parsed, config: VTAConfig) -> Plan:
    return simple_plan("own_clamps", parsed.work, parsed.constants, config, "my clamp")


ENTRY = PatternEntry("vta.own_clamp", ("relax.maximum",), match_clamp, read_clamp, plan_clamp)


def clamped() -> tvm.IRModule:
    net = IntegerNet(x=SHAPE)
    return net.module(net.clamp(net.params[0], -5, 9, "clip"))


def test_a_pattern_and_a_strategy_run_on_vta() -> None:
    register_strategy(OwnClamps)
    register_pattern(ENTRY)
    assert table() == (
        f"strategy own_clamps    {ME}\npattern vta.own_clamp  {ENTRY.match.__module__}\n"
    )
    with checked_forms():
        compiled = compile_module(clamped())
    (row,) = compiled.placement
    assert (row.device, row.reason, row.computed_by[0].how) == (
        "vta",
        "pattern vta.own_clamp",
        "my clamp",
    )
    assert row.cycles > 0
    (program,) = compiled.programs.values()
    assert verify(program) == []
    pixels = np.random.default_rng(0).integers(-128, 128, SHAPE).astype("int8")
    checks = compare_layers(clamped(), compiled, [pixels])
    assert checks and all(check.equal for check in checks)


def test_it_is_tuned_fused_and_in_the_report() -> None:
    """A strategy of one's own has what the built-in ones have: it declares the same things."""
    register_strategy(OwnClamps)
    register_pattern(ENTRY)
    config, net = VTAConfig(), IntegerNet(x=(1, 16, 32, 32))
    first = net.clamp(net.params[0], -5, 9, "first")
    mod = net.module(net.clamp(net.residual(first, net.params[0], name="sum"), -3, 7, "end"))
    layers, left = tunable_layers(partition_for_vta(mod, config), config)
    assert not left
    (tuned,) = [each for each in tune(layers, config, 2) if "first" in each.layer.names[0]]
    assert tuned.timed >= 2 and tuned.cycles <= tuned.default_cycles
    compiled = compile_module(mod, config)
    (row,) = [row for row in compiled.placement if row.name == "first"]
    assert row.computed_by[0].how == "my clamp"
    assert compiled.sharing
    facts = model_facts(
        config, compiled.programs, compiled.placement, compiled.sharing, operator_edges(mod)
    )
    assert "pattern vta.own_clamp" in html_report(facts, "a network", config.name, None)
    pixels = np.random.default_rng(0).integers(-128, 128, (1, 16, 32, 32)).astype("int8")
    assert all(check.equal for check in compare_layers(mod, compiled, [pixels]))


@pytest.mark.parametrize("cycles", [math.inf, math.nan, -1.0])
def test_an_estimate_that_is_no_number_of_cycles(cycles: float) -> None:
    """The operator goes to the next row of the table, and the rest of the network works."""
    strategy = OwnClamps()
    strategy.cycles = cycles
    register_strategy(strategy)
    register_pattern(ENTRY)
    (row,) = vta_rows(clamped())
    wrong = (
        f'strategy "own_clamps" of {ME} estimates {cycles} cycles; a finite number of 0 or more is '
        "taken; repair its estimate"
    )
    assert (row.device, row.reason) == (
        "vta",
        f"pattern vta.clamp; not by a plug-in's pattern: {wrong}",
    )
    with refused(wrong):
        Computation(STRATEGIES["own_clamps"], work_of_clamp()).estimate(VTAConfig())


def work_of_clamp() -> Any:
    return ElementwiseWorkload(1, 16, 4, 4, (Prologue(0),), None, Epilogue((Step("max", -5),)))


def vta_rows(mod: tvm.IRModule) -> Any:
    return placements(partition_for_vta(mod))


def test_a_pattern_that_fails_leaves_its_operator_to_the_next() -> None:
    def read(_bindings: Any, _config: VTAConfig) -> Parsed:
        raise TypeError("no idea")

    register_pattern(dataclasses.replace(ENTRY, read=read))
    (row,) = vta_rows(clamped())
    assert row.reason == (
        f'pattern vta.clamp; not by a plug-in\'s pattern: pattern "vta.own_clamp" of '
        f"{match_clamp.__module__} fails with TypeError: no idea; repair it"
    )


def test_a_failing_pattern_is_the_reason_where_nothing_else_takes_it() -> None:
    def match(_graph: Any, _anchor: Any) -> None:
        raise KeyError("scale")

    def sigmoid(x: relax.Expr) -> relax.Expr:
        return relax.op.sigmoid(x)

    register_pattern(PatternEntry("vta.s", ("relax.sigmoid",), match, read_clamp, plan_clamp))
    net = IntegerNet(x=SHAPE)
    plain = relax.op.astype(net.params[0], "float32")
    out = net.emit(sigmoid(net.emit(plain, "wide")), "s")
    rows = {row.name: row.reason for row in vta_rows(net.module(out))}
    assert rows["s"] == f"pattern \"vta.s\" of {ME} fails with KeyError: 'scale'; repair it"


def test_names_of_patterns_and_strategies() -> None:
    with refused(
        f'pattern "mine" of {match_clamp.__module__}; the names of composites are '
        "vta.<identifier>; give it such a name"
    ):
        register_pattern(dataclasses.replace(ENTRY, name="mine"))
    with refused(
        f'pattern "vta.conv2d" of {match_clamp.__module__} is registered already, by vta_byoc; '
        "each name stands for one pattern; give it another name"
    ):
        register_pattern(dataclasses.replace(ENTRY, name="vta.conv2d"))
    with refused(
        f"strategy Simulator of {Simulator.__module__} is no Strategy; derive it from "
        "vta_byoc.strategies.base.Strategy"
    ):
        register_strategy(Simulator("a", "b"))  # type: ignore[arg-type]


# ---------------------------------------------------------------- integer operators
def totals_module() -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            weight = relax.const(np.eye(16, dtype="float32").reshape(16, 16, 1, 1))
            low = builder.emit(relax.op.nn.conv2d(x, weight), "low")
            act = builder.emit(relax.op.cumsum(low, 1), "act")
            out = builder.emit_output(relax.op.nn.conv2d(act, weight), "out")
        builder.emit_func_output(out)
    return builder.get()


def quantized() -> tvm.IRModule:
    sample = {"x": np.random.default_rng(0).standard_normal(SHAPE, "float32")}
    return vta.quantize(totals_module(), calibration=[sample])


def as_relu(q: Quantizer, binding: relax.VarBinding) -> bool:
    value = q.value(binding.value.args[0])
    if not moves_as_int8(q, binding, value):
        return False
    out = q.write.clamp(q.int8(value), 0, 127, binding.var.name)
    q.set_int8(binding.var, out, q.scale(value))
    return True


def test_an_integer_operator_leaves_no_float() -> None:
    assert "R.cumsum" in str(quantized())
    register_integer_op("relax.cumsum", as_relu)
    assert table() == f"integer operator relax.cumsum  {ME}\n"
    mod = quantized()
    assert "R.cumsum" not in str(mod)
    rows = {row.name: row.device for row in vta_rows(mod)}
    assert rows["act"] == "vta"


def test_a_rule_of_ones_own_instead_of_the_compilers() -> None:
    builtin = OPERATORS["relax.nn.relu"]
    taken = "relax.nn.relu"
    with refused(
        f'integer operator "{taken}" of {ME} is registered already, by vta_byoc; each name stands '
        "for one integer operator; give it another name"
    ):
        register_integer_op(taken, as_relu)
    with registered(register_integer_op, taken, as_relu, replace=True):
        assert table() == f"integer operator {taken}  {ME} (instead of the built-in one)\n"
        assert OPERATORS[taken].convert is as_relu
        with refused(
            f'integer operator "{taken}" of {ME} is registered already, by {ME}; each name stands '
            "for one integer operator; give it another name"
        ):
            register_integer_op(taken, as_relu, replace=True)
    assert OPERATORS[taken] is builtin


def narrow(q: Quantizer, binding: relax.VarBinding) -> bool:
    value = q.value(binding.value.args[0])
    out = q.write.emit(relax.op.astype(q.int8(value), "int16"), binding.var.name)
    q.set_int8(binding.var, out, q.scale(value))
    return True


def flat(q: Quantizer, binding: relax.VarBinding) -> bool:
    value = q.value(binding.value.args[0])
    out = q.write.emit(relax.op.reshape(q.int8(value), (256,)), binding.var.name)
    q.set_int8(binding.var, out, q.scale(value))
    return True


def raising(_q: Quantizer, _binding: relax.VarBinding) -> bool:
    raise IndexError("nothing there")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            narrow,
            "gives a result of int16 (1, 16, 4, 4); it stands for one of int8 (1, 16, 4, 4); "
            "convert it in the rule",
        ),
        (
            flat,
            "gives a result of int8 (256,); it stands for one of int8 (1, 16, 4, 4); convert it in "
            "the rule",
        ),
        (
            raising,
            "fails with IndexError: nothing there; return False where the rule does not hold, and "
            "repair it",
        ),
        (
            lambda _q, _binding: True,
            "returned True and stored no value; the result is stored by close, close_group or "
            "set_int8; return False to leave it float",
        ),
    ],
)
def test_what_a_rule_does_wrong(rule: Any, message: str) -> None:
    register_integer_op("relax.cumsum", rule)
    with refused(f'integer operator "relax.cumsum" of {ME}, at "act", {message}'):
        quantized()


def test_names_of_integer_operators() -> None:
    with refused(
        f'integer operator "relax.nn.hardswish" of {ME} is no operator of TVM; Relax operators '
        "have names such as relax.nn.silu; correct the name"
    ):
        register_integer_op("relax.nn.hardswish", as_relu)
    with refused(
        f'integer operator "relax.nn.relu" of {ME} is registered already, by vta_byoc; each name '
        "stands for one integer operator; give it another name"
    ):
        register_integer_op("relax.nn.relu", as_relu)


# ---------------------------------------------------------------- calibrators
def half(_histogram: Histogram, absmax: float, _choice: Calibrator) -> float:
    return absmax / 2


def test_a_calibrator_is_a_method() -> None:
    register_calibrator("half", half)
    histogram = Histogram()
    histogram.add(np.array([1.0, -4.0], "float32"), 4.0)
    assert Calibrator("half").threshold(histogram, 4.0) == 2.0
    sample = {"x": np.random.default_rng(0).standard_normal(SHAPE, "float32")}
    halved = vta.quantize(totals_module(), calibration=[sample], method="half")
    assert str(halved) != str(quantized())


@pytest.mark.parametrize("found", [math.nan, math.inf, 0.0, 5.0])
def test_a_threshold_out_of_range(found: float) -> None:
    register_calibrator("odd", lambda _histogram, _absmax, _choice: found)
    histogram = Histogram()
    histogram.add(np.array([4.0], "float32"), 4.0)
    with refused(
        f'calibrator "odd" of {ME} gives the threshold {found}; it is above 0 and at most the '
        "largest magnitude, here 4; repair it"
    ):
        Calibrator("odd").threshold(histogram, 4.0)


# ---------------------------------------------------------------- importers
def load_text(path: Path, shapes: dict[str, tuple[int, ...]]) -> tuple[tvm.IRModule, list[str]]:
    x = relax.Var("x", relax.TensorType(shapes.get("x", SHAPE), path.read_text().strip()))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.relu(x), "y")
        builder.emit_func_output(out)
    return builder.get(), ["y"]


def test_an_importer_takes_its_files(tmp_path: Path) -> None:
    path = tmp_path / "net.mine"
    path.write_text("float32")
    register_importer("mine", ".mine", load_text)
    mod = vta.load_model(path, shapes={"x": (2, 3)})
    assert [int(dim) for dim in mod["main"].params[0].ty.shape] == [2, 3]


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (
            load_text,
            'gives input "x" the dtype float16; float32, int8, uint8, int32, int64, bool are '
            "taken; convert it",
        ),
        (
            lambda _path, _shapes: None,
            "returned a NoneType; a Relax module and a list of the names of its outputs are taken; "
            "return both",
        ),
        (
            lambda _path, _shapes: (tvm.IRModule(), []),
            'returned a module without a Relax function "main"; give it one',
        ),
    ],
)
def test_what_an_importer_does_wrong(load: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "net.mine"
    path.write_text("float16")
    register_importer("mine", ".mine", load)
    with refused(f'importer "mine" of {ME} {message}'):
        vta.load_model(path)


def test_an_importer_of_another_shape_or_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "net.mine"
    path.write_text("float32")
    message = (
        f'importer "mine" of {ME} gives input "x" the shape {SHAPE}; (2, 3) was asked for; use '
        "the shapes that load gets"
    )
    fixed = registered(register_importer, "mine", ".mine", lambda p, _shapes: load_text(p, {}))
    with fixed, refused(message):
        vta.load_model(path, shapes={"x": (2, 3)})
    register_importer("mine", ".mine", lambda _path, _shapes: 1 // 0)  # type: ignore[arg-type,return-value]
    with refused(
        f'importer "mine" of {ME} fails at "{path}": ZeroDivisionError: integer division or modulo '
        "by zero; repair it, or export the model to another format"
    ):
        vta.load_model(path)


def test_extensions_that_are_taken() -> None:
    with refused(
        f'importer ".onnx" of {ME} is registered already, by vta_byoc; each name stands for one '
        "importer; give it another name"
    ):
        register_importer("mine", ".onnx", load_text)
    with refused(
        f'importer "mine" of {ME} is for files that end in ".tar"; an extension has a dot, lower '
        "case, and is none of Relay's (.relay, .txt, .json, .tar); choose another"
    ):
        register_importer("mine", ".tar", load_text)


# ---------------------------------------------------------------- presets and devices
def test_a_preset_is_a_machine_by_name() -> None:
    register_preset("mine", {"LOG_INP_BUFF_SIZE": 14})
    register_preset("same", VTAConfig())
    assert VTAConfig.preset("mine").log_inp_buff_size == 14
    assert {"mine", "same", "pynq"} <= set(VTAConfig.presets())
    assert table() == f"preset mine  {ME}\npreset same  {ME}\n"
    assert str(tvm.target.Target("vta/mine").attrs["model"]) == "mine"
    with refused(
        f'preset "pynq" of {ME} is registered already, by vta_byoc; each name stands for one '
        "preset; give it another name"
    ):
        register_preset("pynq", VTAConfig())


class Mine(Simulator):
    """The functional simulator under a name of one's own; `spoils`: it writes what it reads."""

    def __init__(self, spoils: bool = False) -> None:
        super().__init__("mine", "a copy of the simulator")
        object.__setattr__(self, "spoils", spoils)

    def module(self, config: VTAConfig, target: Any = None) -> Any:
        made = super().module(config, target)
        if not self.spoils:  # type: ignore[attr-defined]
            return made
        return Spoiling(made)


class Spoiling:
    """A runtime module whose functions change their second argument."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __getitem__(self, name: str) -> Any:
        def call(insns: Any, inputs: Any, *rest: Any) -> None:
            self.module[name](insns, inputs, *rest)
            inputs.copyfrom(inputs.numpy() + np.int8(1))

        return call


def test_a_device_runs_programs() -> None:
    register_device(Mine)
    compiled = compile_module(clamped(), device="mine")
    pixels = np.random.default_rng(0).integers(-128, 128, SHAPE).astype("int8")
    found = vta.profile(compiled.exe, [pixels])
    assert np.array_equal(found.outputs[0], np.clip(pixels, -5, 9))
    (program,) = compiled.programs.values()
    given = {s.name: np.zeros(s.shape, s.dtype) for s in program.of_kind("input")}
    assert run(program, given, device="mine").counters == run(program, given).counters


def test_a_device_that_changes_what_it_reads() -> None:
    register_device(Mine(spoils=True))
    (program,) = compile_module(clamped()).programs.values()
    given = {s.name: np.zeros(s.shape, s.dtype) for s in program.of_kind("input")}
    with refused(
        f'device "mine" of {ME} changed the inputs of a program; it only reads them; write to the '
        "arena and the counters alone"
    ):
        run(program, given, device="mine")


def test_a_device_without_what_a_driver_has() -> None:
    class Half:
        name = "half"
        about = "half a device"

    with refused(
        f"device Half of {ME} has no computes, timed, module; a device has name, about, computes, "
        "timed, module; add what it lacks"
    ):
        register_device(Half)  # type: ignore[type-var]
    with refused(
        f'device "sim" of {Simulator.__module__} is registered already, by vta_byoc; each name '
        "stands for one device; give it another name"
    ):
        register_device(Simulator("sim", "another"))
