"""Layers that do not depend on each other: another order where the program is better so."""

from __future__ import annotations

import pytest
import tvm
from integer_models import IntegerNet, equal_program

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.options import BuildOptions
from vta_byoc.partitioning.appended import APPENDED
from vta_byoc.partitioning.region import Region, RegionStep, region_functions
from vta_byoc.passes.layer_order import best_order, longest_path_first
from vta_byoc.pipeline import compile_module, partition_for_vta

OFF = ("layer_order",)


def step(output: str, *args: str, composite: str = "vta.conv2d") -> RegionStep:
    return RegionStep(composite, (), (), (), args, output, output)


def region(*steps: RegionStep) -> Region:
    return Region({}, ("x",), steps, (steps[-1].output,))


def names(found: Region | None) -> str:
    assert found is not None
    return " ".join(step.output for step in found.steps)


def test_the_layer_with_most_behind_it_comes_first() -> None:
    given = region(
        step("a", "x"), step("b", "x"), step("c", "b"), step("d", "c", "w"), step("e", "a", "d")
    )
    assert names(longest_path_first(given)) == "b c a d e"


def test_of_equal_ones_the_order_of_the_model_stays() -> None:
    given = region(step("a", "x"), step("b", "x"), step("c", "b", "a"))
    assert longest_path_first(given) is None


def test_a_chain_has_one_order() -> None:
    assert longest_path_first(region(step("a", "x"), step("b", "a"), step("c", "b", "a"))) is None


def test_what_a_session_appends_to_stays_in_order() -> None:
    given = region(
        step("a", "x"), step("b", "x", composite=APPENDED), step("c", "b"), step("d", "c", "a")
    )
    assert longest_path_first(given) is None


def branches(size: int = 14, wide: int = 64) -> tuple[IntegerNet, tvm.IRModule]:
    """Four branches of one tensor, the shortest first, joined: a block of Inception."""
    net = IntegerNet(x=(1, 16, size, size))
    first = net.conv(net.params[0], wide, 1, name="first")
    parts = [net.conv(first, 32, 1, name="one")]
    pool = net.op(
        "nn.max_pool2d", first, (3, 3), strides=(1, 1), padding=(1, 1, 1, 1), name="pool"
    )
    parts.append(net.conv(pool, 32, 1, name="pooled"))
    for kernel in (3, 5):
        reduced = net.conv(first, 32, 1, name=f"reduce{kernel}")
        parts.append(net.conv(reduced, 48, kernel, name=f"wide{kernel}"))
    joined = net.op("concat", parts, axis=1, name="joined")
    return net, net.module(net.conv(joined, 32, 1, name="last"))


def checked(net: IntegerNet, mod: tvm.IRModule, machine: str, off: tuple[str, ...]) -> Program:
    options = BuildOptions(config=VTAConfig.preset(machine), without_rewrites=off)
    return equal_program(compile_module(mod, options=options), net, mod)


@pytest.mark.parametrize("machine", ["sim", "2x16", "tophub_4x8"])
def test_both_orders_are_right_and_the_better_one_is_taken(machine: str) -> None:
    net, mod = branches()
    chosen, model = (checked(net, mod, machine, off) for off in ((), OFF))
    assert {layer.name for layer in chosen.layers} == {layer.name for layer in model.layers}
    assert best_order([model, chosen]).insns.tobytes() == chosen.insns.tobytes()


def test_the_first_of_equal_programs_is_taken() -> None:
    programs = [checked(*branches(5, 16), "sim", OFF) for _ in range(2)]
    assert best_order(programs) is programs[0]


def test_the_other_order_of_a_region_reads_what_is_stored() -> None:
    _, mod = branches()
    marked = partition_for_vta(mod, config=VTAConfig.preset("sim"))
    (function,) = region_functions(marked).values()
    found = Region.of(function)
    other = longest_path_first(found)
    assert other is not None and sorted(map(repr, other.steps)) == sorted(map(repr, found.steps))
    stored = set(found.params)
    for each in other.steps:
        assert set(each.args) <= stored, each
        stored.add(each.output)
