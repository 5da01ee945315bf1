"""Kernels that come before the layer that they are a part of."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from decoders import TOKENS, compiled, drawn_ids, model, whole

from vta_byoc.decoding import halves
from vta_byoc.hw.verify.verifier import verify
from vta_byoc.partitioning.region import RegionStep
from vta_byoc.passes.early_kernels import Launch, launches
from vta_byoc.passes.lower_regions import EARLY
from vta_byoc.strategies.base import KernelFunction

BODY = tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(tvm.tirx.const(0, "int32")))


def step(output: str, *args: str) -> RegionStep:
    return RegionStep("vta.any", (), (), (), args, output, output)


def kernels(*args: tuple[int, ...]) -> list[KernelFunction]:
    return [KernelFunction(BODY, each) for each in args]


STEPS = (step("q", "x"), step("k", "x"), step("v", "x"), step("out", "q", "k", "v"))
STORED = {each.output: number for number, each in enumerate(STEPS)}
ONE = kernels((0, -1))
# the scratch of "out" is number 3
ATTENTION = kernels((0, 1, 3), (3, 2, -1))


def order(found: list[Launch]) -> list[tuple[int, int, bool]]:
    return [(each.step, each.kernel, each.is_early) for each in found]


def test_scores_come_right_behind_queries_and_keys() -> None:
    own = {"q": ONE, "k": ONE, "v": ONE, "out": ATTENTION}
    found = launches(STEPS, own, STORED, early=True)
    assert order(found) == [
        (0, 0, False),
        (1, 0, False),
        (3, 0, True),
        (2, 0, False),
        (3, 1, False),
    ]


def test_layers_stay_whole_where_nothing_is_early() -> None:
    own = {"q": ONE, "k": ONE, "v": ONE, "out": ATTENTION}
    found = launches(STEPS, own, STORED, early=False)
    assert order(found) == [(n, k, False) for n, k in [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1)]]


@pytest.mark.parametrize("args", [((0, 1, 2, 3), (3, -1)), ((0, 2, 3), (1, 3, -1))])
def test_a_kernel_that_takes_the_values_stays(args: tuple[tuple[int, ...], ...]) -> None:
    own = {"q": ONE, "k": ONE, "v": ONE, "out": kernels(*args)}
    assert not any(each.is_early for each in launches(STEPS, own, STORED, early=True))


def test_the_last_kernel_stays_in_its_place() -> None:
    own = {"q": ONE, "k": ONE, "v": ONE, "out": kernels((0, 1, -1))}
    assert not any(each.is_early for each in launches(STEPS, own, STORED, early=True))


def test_a_kernel_never_comes_before_the_one_ahead_of_it() -> None:
    own = {"q": ONE, "k": ONE, "v": ONE, "out": kernels((0, 1, 3), (0, 3), (3, 2, -1))}
    found = launches(STEPS, own, STORED, early=True)
    assert order(found)[2:4] == [(3, 0, True), (3, 1, True)]


def test_steps_that_have_nothing_to_do_are_no_reason_to_be_early() -> None:
    own = {"q": ONE, "k": ONE, "v": [], "out": ATTENTION}
    assert not any(each.is_early for each in launches(STEPS, own, STORED, early=True))


def test_a_decoder_with_early_scores_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves, "VARIANTS", ((True, True),))
    decoder = compiled(model())
    program = decoder.programs.step.program
    names = [layer.name for layer in program.layers]
    early = [name for name in names if name.endswith(EARLY)]
    assert early and len(set(names)) == len(names)
    assert all(names.index(name) < names.index(name.removesuffix(EARLY)) for name in early)
    assert not verify(program)
    ids = drawn_ids(0)[0].tolist()
    with decoder.session() as session:
        got = np.stack([session.extend([each]) for each in ids])
    assert np.array_equal(got, whole().logits(ids)) and len(got) == TOKENS
