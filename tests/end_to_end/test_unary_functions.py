"""Functions of one operand: from float networks to the simulator, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from alu_cases import GEOMETRIES
from layer_runs import equal_run
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.quantization_record import float_regions, functions
from vta_byoc.partition import placements
from vta_byoc.pipeline import partition_for_vta
from vta_byoc.quantize import quantize

SIM, PYNQ = VTAConfig.preset("sim"), VTAConfig.preset("pynq")
Write = Callable[[relax.BlockBuilder, relax.Var], relax.Expr]


def number(value: float) -> relax.Expr:
    return relax.const(np.float32(value))


def hard_swish(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    moved = b.emit(relax.op.add(x, number(3.0)))
    cut = b.emit(relax.op.clip(moved, 0.0, 6.0))
    return relax.op.divide(b.emit(relax.op.multiply(x, cut)), number(6.0))


def silu(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.multiply(x, b.emit(relax.op.sigmoid(x)))


def gelu_by_erf(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    inner = b.emit(relax.op.erf(b.emit(relax.op.divide(x, number(math.sqrt(2.0))))))
    whole = b.emit(relax.op.multiply(x, b.emit(relax.op.add(inner, number(1.0)))))
    return relax.op.multiply(whole, number(0.5))


def elu(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    below = b.emit(relax.op.subtract(number(1.0), b.emit(relax.op.exp(x))))
    scaled = b.emit(relax.op.multiply(number(-1.0), b.emit(relax.op.nn.relu(below))))
    return relax.op.add(scaled, b.emit(relax.op.nn.relu(x)))


def softplus_by_choice(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """As PyTorch decomposes it."""
    raised = b.emit(relax.op.add(b.emit(relax.op.exp(x)), number(1.0)))
    is_large = b.emit(relax.op.greater(x, number(20.0)))
    return relax.op.where(is_large, x, b.emit(relax.op.log(raised)))


def soft_shrink(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    is_large = b.emit(relax.op.greater(b.emit(relax.op.abs(x)), number(0.5)))
    cut = b.emit(relax.op.multiply(b.emit(relax.op.sign(x)), number(0.5)))
    return relax.op.where(is_large, b.emit(relax.op.subtract(x, cut)), number(0.0))


def gate_by_truth(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    is_large = b.emit(relax.op.greater(x, number(0.25)))
    is_open = b.emit(relax.op.logical_and(is_large, b.emit(relax.op.isfinite(x))))
    return relax.op.multiply(x, b.emit(relax.op.astype(is_open, "float32")))


def squared_relu(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.power(b.emit(relax.op.nn.relu(x)), number(2.0))


FUNCTIONS: dict[str, Write] = {
    "hard_swish": hard_swish,
    "silu": silu,
    "sigmoid": lambda b, x: relax.op.sigmoid(x),
    "gelu_by_erf": gelu_by_erf,
    "elu": elu,
    "softplus_by_choice": softplus_by_choice,
    "soft_shrink": soft_shrink,
    "gate_by_truth": gate_by_truth,
    "squared_relu": squared_relu,
}


def network(write: Write, seed: int = 0, first: bool = True, batch: int = 1) -> tvm.IRModule:
    """A function between two convolutions, or before one."""
    rng = np.random.default_rng(seed)
    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((batch, 16, 5, 6), "float32"))

    def conv(data: relax.Expr, size: int) -> relax.Var:
        weight = rng.normal(size=(16, 16, size, size)).astype("float32") / (2 * size)
        return b.emit(relax.op.nn.conv2d(data, relax.const(weight), padding=size // 2))

    with b.function("main", [x]):
        with b.dataflow():
            data = conv(x, 3) if first else x
            out = conv(b.emit(write(b, data)), 1)
            out = b.emit_output(out)
        b.emit_func_output(out)
    return b.get()


def samples(seed: int = 1, count: int = 3, batch: int = 1) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    shape = (batch, 16, 5, 6)
    return [{"x": rng.normal(size=shape).astype("float32") * 2} for _ in range(count)]


def test_the_placement_says_how_near_it_is() -> None:
    qmod = quantize(network(silu), calibration=samples(), config=SIM, scales="mul")
    (entry,) = functions(qmod).values()
    notes = [row.note for row in placements(partition_for_vta(qmod, SIM))]
    wanted = (
        f"a program of {entry['cycles']} cycles a vector, {100 * entry['exact']:.0f} % of the 256 "
        "values exact, others at most 1 off"
    )
    assert sum(wanted in note for note in notes) == 1, notes


def test_no_tolerance_below_zero() -> None:
    text = "function_tolerance is -1 steps; 0 or more are taken; 0 asks for exact results"
    with pytest.raises(VTAError, match=f"^{text}$"):
        quantize(network(silu), calibration=samples(), config=SIM, function_tolerance=-1)


@pytest.mark.parametrize("worth", [-1.0, math.inf, math.nan])
def test_what_noise_cannot_be_worth(worth: float) -> None:
    text = (
        f"function_worth is {worth:g} cycles a vector; finite numbers from 0 on are taken; 0 asks "
        "for the fewest cycles, 12 is the default"
    )
    with pytest.raises(VTAError, match=f"^{text}$"):
        quantize(network(silu), calibration=samples(), config=SIM, function_worth=worth)


@pytest.mark.parametrize("scales", ["pow2", "mul"])
def test_nearer_functions_are_chosen_by_what_they_are_worth(scales: str) -> None:
    found = []
    for worth in (0.0, 16.0):
        given = {"calibration": samples(), "config": SIM, "scales": scales}
        qmod = quantize(network(silu), function_worth=worth, **given)
        (entry,) = functions(qmod).values()
        found.append(entry)
        assert regions_of(qmod, SIM) == 1
    assert found[0]["cycles"] < found[1]["cycles"] and found[0]["exact"] < found[1]["exact"]
    assert "add the second" in found[1]["program"]


def regions_of(qmod: tvm.IRModule, config: VTAConfig) -> int:
    """Compile, run, compare every result and stored tensor with numpy; the number of regions."""
    inputs = list(samples(2, 1, config.batch)[0].values())
    return len(equal_run(qmod, config, inputs).programs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_between_convolutions_is_one_region_with_one_program(name: str) -> None:
    qmod = quantize(network(FUNCTIONS[name]), calibration=samples(), config=SIM, scales="mul")
    (entry,) = functions(qmod).values()
    assert entry["error"] <= 1 and not float_regions(qmod)
    assert regions_of(qmod, SIM) == 1


@pytest.mark.parametrize("machine", GEOMETRIES)
def test_a_ramp_and_a_bump_on_every_machine(machine: str) -> None:
    config = GEOMETRIES[machine]
    mod, feeds = network(silu, batch=config.batch), samples(batch=config.batch)
    qmod = quantize(mod, calibration=feeds, config=config, scales="mul", function_worth=30.0)
    (entry,) = functions(qmod).values()
    assert "add the second" in entry["program"] and entry["exact"] > 0.9
    assert regions_of(qmod, config) == 1


@pytest.mark.parametrize("reach", [3.0, 3.5, 5.0])
def test_hyperbolic_tangents_of_any_range_stay_in_the_region(reach: float) -> None:
    """Of those that no program reaches, results a little coarser have one."""

    def tanh(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.tanh(b.emit(relax.op.clip(x, -reach, reach)))

    qmod = quantize(network(tanh), calibration=samples(), config=SIM, scales="mul")
    (entry,) = functions(qmod).values()
    assert entry["error"] <= 1 and not float_regions(qmod)
    assert regions_of(qmod, SIM) == 1


def test_on_its_own_reads_the_input() -> None:
    mod = network(silu, first=False)
    qmod = quantize(mod, calibration=samples(), config=SIM, scales="pow2")
    assert len(functions(qmod)) == 1
    assert regions_of(qmod, SIM) == 1


def test_without_mul_a_curve_stays_float_with_its_reason() -> None:
    qmod = quantize(network(silu), calibration=samples(), config=PYNQ)
    (refusal,) = float_regions(qmod).values()
    assert refusal.text == (
        "stays float: its program would multiply, and the machine's ALU has no MUL "
        "(CAPABILITIES.mul is false) (tolerance 1)"
    )


def test_a_value_that_others_read_ends_the_group() -> None:
    def shared(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        gate = b.emit(relax.op.sigmoid(x))
        return relax.op.add(b.emit(relax.op.multiply(x, gate)), b.emit(relax.op.nn.relu(gate)))

    qmod = quantize(network(shared), calibration=samples(), config=SIM, scales="mul")
    assert len(functions(qmod)) == 1


def test_what_leaves_every_value_as_it_is() -> None:
    def known(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.where(b.emit(relax.op.isnan(x)), number(0.0), x)

    qmod = quantize(network(known), calibration=samples(), config=SIM, scales="mul")
    (entry,) = functions(qmod).values()
    assert entry["error"] == 0 and entry["program"] == "x, min 127"
    assert regions_of(qmod, SIM) == 1


def test_without_a_program_the_operand_is_not_rounded() -> None:
    def steps(_: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.floor(x)

    qmod = quantize(network(steps), calibration=samples(), config=SIM, scales="mul")
    assert not functions(qmod)
    floats = {
        str(b.value.args[0].name)
        for b in qmod["main"].body.blocks[0].bindings
        if getattr(getattr(b.value, "op", None), "name", "") == "relax.quantize"
    }
    (refusal,) = float_regions(qmod).values()
    assert refusal.text.startswith("stays float: no program of the ALU was found for it")
    assert len(floats) == 2 and "x" in floats, floats


def test_a_truth_value_that_others_read_is_in_no_group() -> None:
    def shared(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        is_large = b.emit(relax.op.greater(x, number(0.5)))
        chosen = b.emit(relax.op.where(is_large, x, number(0.0)))
        other = b.emit(relax.op.nn.max_pool2d(x, (3, 3), padding=(1, 1)))
        return relax.op.add(chosen, b.emit(relax.op.where(is_large, other, number(1.0))))

    qmod = quantize(network(shared), calibration=samples(), config=SIM, scales="mul")
    assert not functions(qmod)
