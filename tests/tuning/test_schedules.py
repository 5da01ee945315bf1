"""Schedules as values: written on composites, pinned by name, refused where they are illegal."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet, residual_net
from schedule_cases import KINDS, SIM, check_exact, digests, random_layer

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import output_names
from vta_byoc.pipeline import Compiled, compile_module, partition_for_vta
from vta_byoc.runtime.execute import profile
from vta_byoc.strategies.te.kernel import ESTIMATE, PIN, Chosen
from vta_byoc.strategy import STRATEGIES, Computation
from vta_byoc.tune import candidates
from vta_byoc.tuning.schedule import Schedule, layer_steps, schedules_of
from vta_byoc.tuning.schedules import Schedules
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner


def exact(net: IntegerNet, mod: tvm.IRModule, schedules: Schedules | None) -> Compiled:
    """The compiled module, whose every stored tensor equals the integer reference."""
    compiled = compile_module(mod, SIM, schedules=schedules)
    inputs = net.inputs()
    run = profile(compiled.exe, inputs, arenas=True)
    reference = reference_runner(mod, compiled.programs)(inputs)
    checks = compare_outputs(output_names(mod), run.outputs, reference)
    checks += compare_stored(run, compiled.programs, reference)
    assert checks and all(check.equal for check in checks), [str(c) for c in checks if not c.equal]
    return compiled


@pytest.fixture(scope="module")
def net() -> IntegerNet:
    return residual_net()


@pytest.fixture(scope="module")
def mod(net: IntegerNet) -> tvm.IRModule:
    return net.module(net.result)


@pytest.fixture(scope="module")
def known(mod: tvm.IRModule) -> dict[str, Schedule]:
    return schedules_of(partition_for_vta(mod, SIM), SIM)


class TestValue:
    @pytest.mark.parametrize("kind", KINDS)
    def test_json_gives_the_schedule_back(self, kind: str) -> None:
        strategy, work = random_layer(kind, np.random.default_rng(3))
        schedule = Schedule.of(Computation(STRATEGIES[strategy], work), SIM)
        assert Schedule.from_json(schedule.to_json()) == schedule
        chosen = Chosen(schedule.kernels, PIN)
        assert Chosen.from_text(chosen.to_text()) == chosen

    def test_one_line_says_it(self, known: dict[str, Schedule]) -> None:
        assert known["conv_a"].text == (
            "conv2d 1x32x8x8 to 1x32x8x8, weights: n=1 g=1 co=2 oh=8 ow=8 ci=1 kh=1 kw=3, "
            f"slots 2/2/2, {known['conv_a'].cycles:,.0f} cycles by estimate"
        )
        assert known["conv_b+join"].text.startswith("conv2d+elementwise 1x32x8x8 to 1x32x8x8, ")

    def test_it_is_written_on_every_composite(self, mod: tvm.IRModule) -> None:
        steps = layer_steps(partition_for_vta(mod, SIM))
        assert list(steps) == ["conv_a", "conv_b+join"]
        assert all(s.chosen is not None and s.chosen.origin == ESTIMATE for _, s in steps.values())

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_candidate_is_legal_and_exact(self, kind: str) -> None:
        strategy, work = random_layer(kind, np.random.default_rng(5))
        schedule = Schedule.of(Computation(STRATEGIES[strategy], work), SIM)
        found = candidates(schedule, SIM, 2)[0]
        assert 1 <= len(found) <= 2
        for number, kernel in enumerate(found):
            check_exact(schedule.with_kernel(0, kernel), SIM, number)


class TestPins:
    def test_a_pin_changes_the_program_and_no_bit_of_the_result(
        self, net: IntegerNet, mod: tvm.IRModule, known: dict[str, Schedule]
    ) -> None:
        mine = known["conv_a"].changed(oh=4)
        before, after = exact(net, mod, None), exact(net, mod, Schedules(pins={"conv_a": mine}))
        assert digests(before) != digests(after)
        same = exact(net, mod, Schedules(pins={"conv_a": known["conv_a"]}))
        assert digests(before) == digests(same)

    def test_a_pin_of_fused_layers(
        self, net: IntegerNet, mod: tvm.IRModule, known: dict[str, Schedule]
    ) -> None:
        mine = known["conv_b+join"].changed(oh=4)
        found = exact(net, mod, Schedules(pins={"conv_b+join": mine}))
        assert digests(found) != digests(exact(net, mod, None))

    def test_a_pinned_producer_keeps_its_tiles_to_itself(
        self, net: IntegerNet, mod: tvm.IRModule
    ) -> None:
        apart = schedules_of(partition_for_vta(mod, SIM, scopes="dram"), SIM)
        found = exact(net, mod, Schedules(pins={"conv_b": apart["conv_b"]}))
        (sharing,) = [item for item in found.sharing if item.tensor == "conv_b"]
        assert sharing.rule == 'need tiles to choose for both, have a pinned schedule of "conv_b"'

    def test_a_pin_of_selected_layers(self, mod: tvm.IRModule, known: dict[str, Schedule]) -> None:
        mine = known["conv_a"].changed(oh=4)
        pins = {"..conv_a": mine, "conv_b+@add": known["conv_b+join"].changed(oh=4)}
        found = schedules_of(partition_for_vta(mod, SIM, schedules=Schedules(pins=pins)), SIM)
        assert found["conv_a"].kernels == mine.kernels
        assert all(s.kernels[0].choice.tile["oh"] == 4 for s in found.values())

    def test_selected_pins_that_are_not_met(
        self, mod: tvm.IRModule, known: dict[str, Schedule]
    ) -> None:
        texts = {
            "@add+@add": 'pin of layers "@add+@add": VTA computes no such layer; layers are '
            "conv_a, join, conv_b+join; select some of them, fused operators with + between them",
            "conv_a..conv_a": 'pin of layers "conv_a..conv_a" is not met: it is of '
            "conv2d+elementwise 1x32x8x8 to 1x32x8x8, which none of conv_a is, the first is conv2d "
            "1x32x8x8 to 1x32x8x8; pin a schedule of one of these layers",
            "zz*": 'operator "zz*" of a pinned schedule is not in the model; it has 3 operators; '
            "`vta-byoc place MODEL` lists their names",
        }
        for selector, text in texts.items():
            given = Schedules(pins={selector: known["conv_b+join"]})
            with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
                partition_for_vta(mod, SIM, schedules=given)


Change = Callable[[Schedule], Schedule]


def with_join(schedule: Schedule) -> Schedule:
    (kernel,) = schedule.kernels
    assert kernel.grouping is not None
    grouping = dataclasses.replace(kernel.grouping, joined=7)
    return schedule.with_kernel(0, dataclasses.replace(kernel, grouping=grouping))


def with_axis(schedule: Schedule) -> Schedule:
    (kernel,) = schedule.kernels
    choice = dataclasses.replace(kernel.choice, tile={"x": 1})
    return schedule.with_kernel(0, dataclasses.replace(kernel, choice=choice))


ILLEGAL: Mapping[str, tuple[Change, str]] = {
    "size": (
        lambda s: s.changed(oh=5),
        "has oh=5; the sizes of oh are 1, 2, 3, 4, 8; choose one",
    ),
    "order": (
        lambda s: s.changed(order="rows"),
        "has the order 'rows'; orders of a 3x3 convolution are weights held, weights, inputs held, "
        "inputs; choose one",
    ),
    "slots": (
        lambda s: s.changed(slots=(2, 3, 1)),
        "has 3 slots of WGT; a tile has 1 to 2; choose 1 or 2",
    ),
    "axes": (
        with_axis,
        "has sizes of x; the axes of a 3x3 convolution are n, g, co, oh, ow, ci, kh, kw; give a "
        "size for each of them",
    ),
    "groups": (with_join, "joins 7 groups; this layer can join 1; choose one"),
    "kernels": (
        lambda s: dataclasses.replace(s, kernels=s.kernels * 2),
        "has 2 kernels; conv2d 1x32x8x8 to 1x32x8x8 has 1; take all of them from one schedule of "
        "this layer",
    ),
    "workload": (
        lambda s: dataclasses.replace(s, work=dataclasses.replace(s.work, height=9)),
        'is of another layer: height 9, not 8 as layer "conv_a" has; take the schedule of this '
        "layer, as `vta-byoc tune` writes it",
    ),
}


class TestRefusals:
    @pytest.mark.parametrize("case", ILLEGAL)
    def test_an_illegal_pin(self, mod: tvm.IRModule, known: dict[str, Schedule], case: str) -> None:
        change, text = ILLEGAL[case]
        pins = {"conv_a": change(known["conv_a"])}
        with pytest.raises(VTAError) as error:
            partition_for_vta(mod, SIM, schedules=Schedules(pins=pins))
        assert str(error.value) == f'pin of layer "conv_a" {text}'

    def test_more_than_sram_holds(self, mod: tvm.IRModule, known: dict[str, Schedule]) -> None:
        small = dataclasses.replace(SIM, log_acc_buff_size=12, log_inp_buff_size=11)
        pins = {"conv_a": known["conv_a"]}
        with pytest.raises(VTAError) as error:
            partition_for_vta(mod, small, schedules=Schedules(pins=pins))
        assert str(error.value) == (
            'pin of layer "conv_a" needs 161 INP elements; machine 1x16 has 128; choose a smaller '
            "tile or fewer slots"
        )

    def test_a_layer_that_is_not_there(self, mod: tvm.IRModule, known: dict[str, Schedule]) -> None:
        with pytest.raises(VTAError) as error:
            partition_for_vta(mod, SIM, schedules=Schedules(pins={"conv_z": known["conv_a"]}))
        assert str(error.value) == (
            'pin of layer "conv_z": there is no such layer on VTA; layers are conv_a, join, '
            "conv_b+join; name one as `vta-byoc tune` lists them"
        )

    def test_a_pin_that_is_not_met(self, mod: tvm.IRModule, known: dict[str, Schedule]) -> None:
        """A fused schedule where operators are not to be fused."""
        pins: dict[str, Any] = {"join": known["conv_b+join"]}
        with pytest.raises(VTAError) as error:
            partition_for_vta(mod, SIM, scopes="dram", schedules=Schedules(pins=pins))
        assert str(error.value) == (
            'pin of layer "join" is not met: the layer is elementwise 1x32x8x8, 1x32x8x8 to '
            "1x32x8x8, which no line of this name has; pin the layer as `vta-byoc tune` lists it, "
            "fused operators included"
        )
