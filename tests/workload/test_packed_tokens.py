"""Packing of tensors whose tokens are columns, and schedules that packing is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet
from small_models import call
from tvm import relax

from vta_byoc.graph_pack import graph_pack, pack_counts
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import straight_bindings
from vta_byoc.partition import mark, placements
from vta_byoc.quantization.requantize import FixedPoint
from vta_byoc.quantization.scales import Rescale
from vta_byoc.strategies.base import WORKLOAD_ATTR
from vta_byoc.strategies.te.kernel import SCHEDULE_ATTR, Chosen
from vta_byoc.strategy import STRATEGIES, Computation
from vta_byoc.tuning.schedule import Schedule
from vta_byoc.tuning.schedules import Schedules
from vta_byoc.workload.texts import workload_of
from vta_byoc.workload.workloads import Conv2dWorkload

SIM = VTAConfig()


class Tokens(IntegerNet):
    """Layers on 32 tokens of 32 channels."""

    def __init__(self) -> None:
        super().__init__(x=(1, 32, 32))
        self.first = self.dense(self.params[0], 32, "first")

    def dense(self, x: relax.Expr, outputs: int, name: str) -> relax.Var:
        weight = self.rng.integers(-127, 128, (int(x.ty.shape[-1]), outputs)).astype("int8")
        bias = self.rng.integers(-999, 999, outputs).astype("int32")
        return self.matmul(x, weight, bias, Rescale(9, -128), name)

    def moved(self, op: str, *args: object) -> relax.Var:
        return self.op(op, self.first, *args, name="moved")


def viewed(net: Tokens) -> list[relax.Var]:
    return [net.dense(net.moved("reshape", (1, 1, 32, 32)), 32, "second")]


def copied(net: Tokens) -> list[relax.Var]:
    moved = net.moved("reshape", (1, 16, 64))
    return [net.dense(moved, 32, "second"), net.dense(moved, 48, "third")]


def added(net: Tokens) -> list[relax.Var]:
    return [net.residual(net.first, net.dense(net.first, 32, "second"), name="sum"), net.first]


def multiplied(net: Tokens) -> list[relax.Var]:
    """By themselves: the second operand is read the other way round."""
    parts = net.moved("reshape", (1, 4, 8, 32))
    mixed = net.op("permute_dims", parts, [0, 2, 1, 3], name="mixed")
    rows = net.op("reshape", mixed, (1, 32, 32), name="rows")
    shifted = FixedPoint(np.array(0), (("right_shift", np.array(9)),), -128, 127, 1 << 20)
    return [net.product_of_two(rows, rows, shifted, "product")]


@pytest.mark.parametrize(
    ("made", "packs", "unpacks", "moves"),
    [(viewed, 1, 1, 0), (copied, 1, 2, 1), (added, 1, 2, 0), (multiplied, 2, 2, 1)],
)
def test_tokens_stay_packed(
    made: Callable[[Tokens], list[relax.Var]], packs: int, unpacks: int, moves: int
) -> None:
    """The same results on llvm; what VTA copies for one layer others read too, and it stores no
    tensor of the model twice."""
    net = Tokens()
    mod = net.module(*made(net))
    found = graph_pack(SIM)(mark(SIM)(mod))
    assert pack_counts(found) == {"vta_pack": packs, "vta_unpack": unpacks, "vta_fold": 0}
    notes = [record.note for record in placements(found)]
    assert sum("copied" in note for note in notes) == moves
    inputs = net.inputs()
    for got, want in zip(call(found, *inputs), call(mod, *inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_given_schedule_is_taken_and_the_others_stay() -> None:
    """Cycles change by the difference of the two estimates: what the host does stays."""
    net = IntegerNet(x=(1, 3, 24, 24))
    first = net.conv(net.params[0], 32, 7, stride=2, name="first")
    marked = mark(SIM)(net.module(net.conv(first, 48, name="second")))
    usual = graph_pack(SIM)(marked)
    known = schedules_in(usual)
    mine = {name: slower(each) for name, each in known.items()}
    cycles = {record.name: record.cycles for record in placements(usual)}
    for name, other in (("first", "second"), ("second", "first")):
        assert mine[name].kernels != known[name].kernels
        given = graph_pack(SIM, schedules=Schedules(pins={name: mine[name]}))(marked)
        found = schedules_in(given)
        assert found[name].kernels == mine[name].kernels
        assert found[other].kernels == known[other].kernels
        changed = {record.name: record.cycles for record in placements(given)}
        assert changed[other] == cycles[other]
        assert changed[name] - cycles[name] == 500


def test_a_layer_of_which_some_channels_are_read_takes_the_schedule_of_its_name() -> None:
    """What is computed is one range of its channels, which has a name of its own."""
    net = IntegerNet(x=(1, 16, 6, 6))
    whole = net.conv(net.params[0], 40, 1, name="whole")
    some = net.op("strided_slice", whole, [1], [4], [24], name="some")
    marked = mark(SIM)(net.module(net.conv(some, 16, 1, name="last")))
    (name, known), _ = schedules_in(graph_pack(SIM)(marked)).items()
    assert name.startswith("whole__")
    given = Schedules(pins={"whole": slower(known)})
    found = schedules_in(graph_pack(SIM, schedules=given)(marked))
    assert found[name].kernels == slower(known).kernels


def slower(schedule: Schedule) -> Schedule:
    """In tiles of one row, by estimate 500 cycles slower."""
    (kernel,) = schedule.changed(oh=1).kernels
    choice = dataclasses.replace(kernel.choice, cycles=kernel.choice.cycles + 500)
    return schedule.with_kernel(0, dataclasses.replace(kernel, choice=choice))


def schedules_in(mod: tvm.IRModule) -> dict[str, Schedule]:
    """The schedules of the convolutions of a packed module, by name."""
    found = {}
    for binding in straight_bindings(mod["main"]):
        name = getattr(binding.value, "op", None)
        if not isinstance(name, tvm.ir.GlobalVar):
            continue
        func = mod[name]
        compute = mod[func.body.blocks[0].bindings[0].value.args[0]]
        work = workload_of(Conv2dWorkload, compute.attrs[WORKLOAD_ATTR])
        chosen = Chosen.from_text(str(func.attrs[SCHEDULE_ATTR]))
        computation = Computation(STRATEGIES["conv2d"], work, chosen=chosen)
        found[str(binding.var.name)] = Schedule.of(computation, SIM)
    return found
