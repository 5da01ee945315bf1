"""Conformance suites: what is right passes with a report, what is broken is caught by name."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from alu_cases import random_elementwise
from core_extra import with_core_marked
from core_machines import machine_of
from own_kernels import leaky, schedule
from small_models import Graph
from tvm import relax, tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim import devices, interpreter
from vta_byoc.quantization.ops.table import OPERATORS
from vta_byoc.quantization.quantizer import Convert, Quantizer
from vta_byoc.strategies.base import KernelFunction, LayerSchedule
from vta_byoc.strategies.conv.conv2d import CONV2D
from vta_byoc.strategies.elementwise.elementwise import Elementwise
from vta_byoc.testing import (
    Conformance,
    ConformanceError,
    check_device,
    check_integer_op,
    check_kernel,
    check_strategy,
    machines,
)
from vta_byoc.workload.workloads import (
    Conv2dWorkload,
    ElementwiseWorkload,
    Epilogue,
    Prologue,
    Step,
)

SIM, WIDE = VTAConfig.preset("sim"), VTAConfig.preset("2x16")
CLAMP = (Step("shr", 7), Step("max", -128), Step("min", 127))


def caught(message: str) -> Any:
    return pytest.raises(ConformanceError, match=f"^{message}$")


# ---------------------------------------------------------------- strategies
Constants = dict[str, np.ndarray]


def convolution(rng: np.random.Generator, _config: VTAConfig) -> tuple[Conv2dWorkload, Constants]:
    size, ci, co = (int(rng.integers(3, most)) for most in (8, 40, 40))
    work = Conv2dWorkload(
        batch=1,
        in_channels=ci,
        out_channels=co,
        height=size,
        width=size,
        kernel=(3, 3),
        strides=(1, 1),
        padding=(1, 1, 1, 1),
        epilogue=Epilogue(CLAMP),
    )
    return work, {"weight": rng.integers(-128, 128, (co, ci, 3, 3)).astype("int8")}


def elementwise(rng: np.random.Generator, _config: VTAConfig) -> ElementwiseWorkload:
    return random_elementwise(rng)


def test_a_built_in_strategy() -> None:
    found = check_strategy(CONV2D, convolution, machines=(SIM, WIDE), cases=4)
    assert (found.cases, found.refused, found.machines) == (4, 0, ("1x16", "2x16"))
    assert found.worst_ratio is not None and 0.25 <= found.worst_ratio <= 4
    assert str(found) == (
        'strategy "conv2d": 4 cases on 1x16, 2x16 equal bit for bit; estimates at worst '
        f"{found.worst_ratio:.2f} of the timing model; seed 0"
    )


class WrongLastBit(Elementwise):
    """Wrong in the last bit of saturated values, where the channels take more than one block."""

    def functions(
        self, schedule: LayerSchedule[ElementwiseWorkload], config: VTAConfig
    ) -> list[KernelFunction]:
        if schedule.work.channels <= config.block:
            return super().functions(schedule, config)
        steps = (*schedule.work.epilogue.steps[:-1], Step("min", 126))
        work = dataclasses.replace(schedule.work, epilogue=Epilogue(steps))
        return super().functions(dataclasses.replace(schedule, work=work), config)


def doubled(rng: np.random.Generator, _config: VTAConfig) -> tuple[ElementwiseWorkload, Constants]:
    """2 x, saturated, of up to 32 channels."""
    channels = int(rng.integers(1, 33))
    steps = (Step("shl", 1), Step("max", -128), Step("min", 127))
    work = ElementwiseWorkload(1, channels, 4, 4, (Prologue(0, ()),), None, Epilogue(steps))
    return work, {}


def test_a_strategy_that_is_wrong_in_the_last_bit_at_one_shape() -> None:
    text = (
        r'strategy "elementwise" on machine 1x16: ElementwiseWorkload\(batch=1, channels=17, .*'
        r"\): the result\[.*\] is 126, must be 127; \d+ of 512 values differ; repeat it with "
        "seed=6, case=2"
    )
    wrong, machine = WrongLastBit(), (SIM,)
    with caught(text) as first:
        check_strategy(wrong, doubled, machines=machine, seed=6, cases=4)
    with caught(re.escape(str(first.value))):
        check_strategy(wrong, doubled, machines=machine, seed=6, case=2)
    found = check_strategy(wrong, doubled, machines=machine, seed=6, cases=2)  # 15 and 3 channels
    assert found.cases == 2


class Estimating(Elementwise):
    """A strategy that gives any estimate."""

    def __init__(self, cycles: float) -> None:
        self.cycles = cycles

    def estimate(self, schedule: Any, config: VTAConfig) -> float:
        return self.cycles


@pytest.mark.parametrize(
    ("cycles", "text"),
    [
        (0.0, r"the estimate is 0.0 cycles; it must be above 0 and finite, as the compiler .*"),
        (math.inf, r"the estimate is inf cycles; it must be above 0 and finite, .*"),
        (math.nan, r"the estimate is nan cycles; it must be above 0 and finite, .*"),
        (9e9, r"the estimate is 9,000,000,000 cycles, the timing model gives [\d,]+; they must be "
              r"within a factor of 4"),
    ],
)  # fmt: skip
def test_estimates(cycles: float, text: str) -> None:
    where = r'strategy "elementwise" on machine 1x16: ElementwiseWorkload\(.*\): '
    with caught(where + text + "; repeat it with seed=0, case=0"):
        check_strategy(Estimating(cycles), doubled, machines=(SIM,))


class Refusing(Elementwise):
    """A strategy for no machine."""

    def choose(self, layer: Any, config: VTAConfig) -> Any:
        raise VTAError(f"no way to compute it on {config.name}")


def test_a_strategy_that_refuses_everything() -> None:
    text = (
        'strategy "elementwise": none of 2 cases of seed 0 was computed: no way to compute it on '
        "1x16; draw what the machines take"
    )
    with caught(re.escape(text)):
        check_strategy(Refusing, doubled, machines=(SIM,), cases=2)


def test_equal_seeds_draw_equal_cases() -> None:
    seen: list[list[ElementwiseWorkload]] = []
    for seed in (1, 1, 2):
        seen.append([])

        def noted(
            rng: np.random.Generator, config: VTAConfig
        ) -> tuple[ElementwiseWorkload, Constants]:
            seen[-1].append(elementwise(rng, config))
            return seen[-1][-1], {}

        with caught(f".*none of 3 cases of seed {seed} was computed.*"):
            check_strategy(Refusing(), noted, machines=(SIM,), seed=seed, cases=3)
    assert seen[0] == seen[1] != seen[2]


# ---------------------------------------------------------------- kernels
def leaky_of(rng: np.random.Generator, config: VTAConfig) -> tirx.PrimFunc:
    return leaky((config.batch, 8 * int(rng.integers(1, 4)), config.block))


def test_a_kernel() -> None:
    found = check_kernel(schedule, leaky_of, machines=(SIM,), cases=3)
    assert str(found) == 'kernel of "schedule": 3 cases on 1x16 equal bit for bit; seed 0'


def halving(definition: tirx.PrimFunc, config: VTAConfig) -> Any:
    """Clears the last bit of the quotient where there is more than one tile."""
    if int(definition.params[0].shape[1]) <= 8:
        return schedule(definition, config)
    text = definition.script()
    assert ">> 3" in text or "shift_right" in text, text
    changed = tvm.script.from_source(text.replace(", 3)", ", 2)").replace(">> 3", ">> 2"))
    assert isinstance(changed, tirx.PrimFunc)
    return schedule(changed, config)


def test_a_kernel_of_another_function() -> None:
    text = (
        r'kernel of "halving" on machine 1x16: x int8 \(1, (16|24), 16\), y int8 '
        r"\(1, (16|24), 16\): y\[.*\] is -?\d+, must be -?\d+; \d+ of \d+ values differ; "
        r"repeat it with seed=0, case=\d+"
    )
    with caught(text):
        check_kernel(halving, leaky_of, machines=(SIM,))


def test_a_kernel_that_raises() -> None:
    def broken(_definition: tirx.PrimFunc, _config: VTAConfig) -> Any:
        raise KeyError("tile")

    text = (
        r'kernel of "broken" on machine 1x16: ScheduleError: its schedule raised KeyError: .tile.; '
        "run it by itself .*; repeat it with seed=7, case=0"
    )
    with caught(text):
        check_kernel(broken, leaky_of, machines=(SIM,), seed=7)


# ---------------------------------------------------------------- devices
@pytest.mark.parametrize("name", with_core_marked(devices.DRIVERS))
def test_the_built_in_devices(name: str) -> None:
    machine = machine_of(name, SIM)
    found = check_device(devices.DRIVERS[name], machines=(machine,), cases=2)
    assert found == Conformance(f'device "{name}"', 2, 0, (machine.name,), 0)


Change = Callable[[list[np.ndarray]], None]


@dataclasses.dataclass(frozen=True)
class Broken:
    """The simulator, after which one of its five buffers is changed."""

    change: Change
    name: str = "broken"
    about: str = "for tests"
    timed: bool = False
    computes: bool = True

    def module(self, config: VTAConfig, target: Any = None) -> Any:
        inner = devices.driver("sim").module(config, target)
        symbol = interpreter.symbol(config)

        def run(*args: Any) -> None:
            inner[symbol](*args)
            tensors = [*args[:3], *args[4:6]]
            arrays = [t.numpy().copy() for t in tensors]
            self.change(arrays)
            for tensor, array in zip(tensors, arrays, strict=True):
                tensor.copyfrom(array)

        return {symbol: run}


def flip(number: int, at: int = 0) -> Change:
    """Flip the last bit of an element of a buffer."""

    def change(arrays: list[np.ndarray]) -> None:
        arrays[number].reshape(-1)[at] ^= 1

    return change


BROKEN: Mapping[str, tuple[Change, str]] = {
    "instructions": (flip(0), "it changed the instructions, which a device only reads"),
    "input": (flip(1), "it changed the inputs, which a device only reads"),
    "image": (flip(2), "it changed the image of constants, which a device only reads"),
    "arena": (flip(3), r"x is only read: x\[.*\] is -?\d+, must be -?\d+; 1 of \d+ values differ"),
    "counter": (flip(4), r"counter \w+ is \d+, must be \d+"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_device_that_changes(kind: str) -> None:
    change, text = BROKEN[kind]
    where = r'device "broken" on machine 1x16: first run(, x is only read)?'
    text = text.removeprefix("x is only read")
    with caught(f"{where}: {text.removeprefix(': ')}; repeat it with seed=0, case=0"):
        check_device(Broken(change), machines=(SIM,))


def test_a_dry_device_that_leaves_something() -> None:
    text = (
        'device "broken" on machine 1x16: first run: it says that it does not compute, and left '
        "values other than 0; repeat it with seed=0, case=0"
    )
    with caught(re.escape(text)):
        check_device(Broken(flip(3), computes=False), machines=(SIM,))


# ---------------------------------------------------------------- integer operators
def network(rng: np.random.Generator, _config: VTAConfig) -> tvm.IRModule:
    """A convolution and a maximum pool, of drawn sizes."""
    size, channels = 2 * int(rng.integers(2, 5)), int(rng.integers(2, 20))
    g = Graph((1, channels, size, size), seed=int(rng.integers(100)))
    x = g.conv(g.params[0], 8, name="conv", padding=1)
    return g.module(g.op("nn.max_pool2d", x, (2, 2), name="pool", strides=(2, 2)))


POOL = "relax.nn.max_pool2d"


def test_a_built_in_rule() -> None:
    found = check_integer_op(POOL, network, machines=(SIM,), cases=2)
    assert str(found) == f'integer operator "{POOL}": 2 cases on 1x16 equal bit for bit; seed 0'


def rule(change: Callable[[relax.Expr], relax.Expr]) -> Convert:
    """The pool on int8, and then something else."""

    def convert(q: Quantizer, binding: relax.VarBinding) -> bool:
        value = q.value(binding.value.args[0])
        scale = q.scale(value)
        call = relax.Call(binding.value.op, [q.int8(value)], binding.value.attrs)
        pooled = q.write.emit(call, f"{binding.var.name}__pooled")
        result = q.write.emit(change(pooled), binding.var.name)
        q.set_int8(binding.var, result, scale, value.amax)
        return True

    return convert


RULES: Mapping[str, tuple[Convert, str]] = {
    "dtype": (
        rule(lambda x: relax.op.astype(x, "int32")),
        f'VTAError: integer operator "{POOL}" of {__name__}, at "pool", gives a result of int32 '
        r"\(1, 8, 4, 4\); it stands for one of int8 \(1, 8, 4, 4\); convert it in the rule",
    ),
    "values": (
        rule(relax.op.negative),
        r"output 0 is off by [\d.]+ from the float network, whose largest magnitude is [\d.]+; the "
        "tolerance is 0.1 of that",
    ),
    "float": (
        lambda _q, _binding: False,
        '"pool" .*|the result "pool" is float32; the integer form of an operator gives int8',
    ),
}


@pytest.mark.parametrize("kind", RULES)
def test_a_rule_that_is_wrong(kind: str) -> None:
    broken, text = RULES[kind]
    before = OPERATORS[POOL]
    where = f'integer operator "{POOL}" on machine 1x16: '
    with caught(f"{where}({text}); repeat it with seed=0, case=0"):
        check_integer_op(POOL, network, broken, machines=(SIM,))
    assert OPERATORS[POOL] is before


def test_a_network_without_the_operator() -> None:
    text = "the network that was drawn has no relax.nn.relu; repeat it with seed=0, case=0"
    with caught(f'integer operator "relax.nn.relu" on machine 1x16: {text}'):
        check_integer_op("relax.nn.relu", network, machines=(SIM,))


def test_the_machines_of_a_suite_that_is_given_none() -> None:
    assert [m.name for m in machines()] == ["1x16", "2x16", "1x32", "1x16"]
