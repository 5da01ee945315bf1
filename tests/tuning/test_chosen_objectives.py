"""What a compilation makes small: by name, in one value, by exact cycles."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tvm
from integer_models import IntegerNet, equal_program, residual_net

from vta_byoc.cost.objective import Objective
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_bytes
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.options import BuildOptions
from vta_byoc.pipeline import compile_module, compile_programs, partition_for_vta
from vta_byoc.tune import layer_cycles
from vta_byoc.tuning.schedule import schedules_of
from vta_byoc.tuning.schedules import Schedules

SIM = VTAConfig.preset("sim")


def wide_net() -> IntegerNet:
    """Layers that can be computed in fewer cycles or with less traffic."""
    net = residual_net()
    net.result = net.conv(net.conv(net.result, 64, name="wide"), 64, name="last")
    return net


def checked(net: IntegerNet, mod: tvm.IRModule, **options: Any) -> Program:
    """The program of a compilation, whose integers are the reference's."""
    compiled = compile_module(mod, options=BuildOptions(SIM, **options))
    return equal_program(compiled, net, mod)


def test_each_objective_gives_the_same_integers() -> None:
    net = wide_net()
    mod = net.module(net.result)
    found = {name: checked(net, mod, objective=name) for name in ("cycles", "dram-bytes", "both")}
    moved = {name: dram_bytes(program.counters()) for name, program in found.items()}
    assert moved["dram-bytes"] <= min(moved.values()) * 1.01
    assert simulate(found["cycles"]).cycles <= simulate(found["dram-bytes"]).cycles * 1.01
    assert moved["both"] <= moved["cycles"]
    assert simulate(found["both"]).cycles <= simulate(found["cycles"]).cycles * 1.03


def test_names_are_keywords_too() -> None:
    net = wide_net()
    mod = net.module(net.result)
    kernels = {
        name: {layer: s.kernels for layer, s in schedules_of(partition, SIM).items()}
        for name, partition in (
            ("keyword", partition_for_vta(mod, SIM, objective="dram-bytes")),
            ("options", partition_for_vta(mod, options=BuildOptions(SIM, objective="dram-bytes"))),
            ("neither", partition_for_vta(mod, SIM)),
            ("default", partition_for_vta(mod, SIM, objective="both")),
        )
    }
    assert kernels["keyword"] == kernels["options"] != kernels["neither"] == kernels["default"]


def test_what_is_refused() -> None:
    text = "objective 'energy' is none; known: cycles, dram-bytes, both; choose one"
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        BuildOptions(SIM, objective="energy")
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        partition_for_vta(tvm.IRModule(), SIM, objective="energy")
    text = "-1 tilings of a layer to time; 0 to 1000 are taken; give another number"
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        BuildOptions(SIM, exact_choice=-1)
    text = "options and objective are given; need one of the two"
    with pytest.raises(VTAError, match=f"^{re.escape(text)}"):
        partition_for_vta(tvm.IRModule(), objective="both", options=BuildOptions(SIM))


def test_exact_choice_is_never_worse_layer_by_layer() -> None:
    net = wide_net()
    mod = net.module(net.result)
    aim = Objective()
    default = schedules_of(partition_for_vta(mod, options=BuildOptions(SIM, objective=aim)), SIM)
    exact = schedules_of(
        partition_for_vta(mod, options=BuildOptions(SIM, objective=aim, exact_choice=4)), SIM
    )
    assert default.keys() == exact.keys()
    before = {name: layer_cycles(schedule, SIM) for name, schedule in default.items()}
    after = {name: layer_cycles(schedule, SIM) for name, schedule in exact.items()}
    assert all(after[name] <= before[name] for name in before), (before, after)
    assert sum(after.values()) < sum(before.values())
    checked(net, mod, objective=aim, exact_choice=4)


def test_exact_choice_leaves_what_is_pinned() -> None:
    net = wide_net()
    mod = net.module(net.result)
    mine = schedules_of(partition_for_vta(mod, SIM), SIM)["last"].changed(oh=2)
    options = BuildOptions(SIM, schedules=Schedules(pins={"last": mine}), exact_choice=2)
    found = schedules_of(partition_for_vta(mod, options=options), SIM)
    assert found["last"].kernels == mine.kernels


def test_every_way_to_compile_chooses_alike() -> None:
    net = wide_net()
    mod = net.module(net.result)
    options = BuildOptions(SIM, exact_choice=2, objective=Objective())
    (own,) = compile_programs(mod, options=options).values()
    (whole,) = compile_module(mod, options=options).programs.values()
    (apart,) = compile_programs(partition_for_vta(mod, options=options), options=options).values()
    assert own.insns.tobytes() == whole.insns.tobytes() == apart.insns.tobytes()
