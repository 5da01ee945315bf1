"""Layers that are equal have their kernels made once; programs are as if each had its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest
import tvm
from integer_models import IntegerNet
from test_layer_order import branches

from vta_byoc.hw.config import VTAConfig
from vta_byoc.options import BuildOptions
from vta_byoc.passes import lower_regions
from vta_byoc.passes.kernels_once import KernelsOnce
from vta_byoc.pipeline import compile_module
from vta_byoc.strategies.base import KernelFunction
from vta_byoc.strategies.conv.conv2d import CONV2D
from vta_byoc.strategies.te.kernel import Chosen
from vta_byoc.strategy import Computation
from vta_byoc.workload.workloads import Conv2dWorkload

CONFIG = VTAConfig.preset("sim")
WORK = Conv2dWorkload(1, 32, 32, 8, 8, (3, 3))


class Anew(KernelsOnce):
    """Makes kernels for every layer."""

    def of(self, computation: Computation) -> Sequence[KernelFunction]:
        return KernelsOnce(CONFIG).of(computation)


def blocks(count: int = 3) -> tuple[IntegerNet, tvm.IRModule]:
    """Equal convolutions one after the other."""
    net = IntegerNet(x=(1, 16, 8, 8))
    last = net.params[0]
    for number in range(count):
        last = net.conv(last, 16, 3, name=f"conv{number}")
    return net, net.module(last)


@pytest.mark.parametrize("made", [branches, blocks], ids=["branches", "blocks"])
def test_programs_are_the_same_to_the_byte(
    made: Callable[[], tuple[IntegerNet, tvm.IRModule]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for kind in (KernelsOnce, Anew):
        monkeypatch.setattr(lower_regions, "KernelsOnce", kind)
        compiled = compile_module(made()[1], options=BuildOptions(config=CONFIG))
        found.append({name: program.to_bytes() for name, program in compiled.programs.items()})
    assert found[0] == found[1]


def test_equal_computations_are_asked_once() -> None:
    once, computation = KernelsOnce(CONFIG), Computation(CONV2D, WORK)
    equal = Computation(CONV2D, dataclasses.replace(WORK))
    (kernel,), (same,) = once.of(computation), once.of(equal)
    assert same.func.same_as(kernel.func)


def test_other_computations_have_kernels_of_their_own() -> None:
    once, computation = KernelsOnce(CONFIG), Computation(CONV2D, WORK)
    (chosen,) = computation.kernels(CONFIG)
    tile = chosen.choice.tile
    choice = dataclasses.replace(chosen.choice, tile=dict(reversed(tile.items())))
    turned = dataclasses.replace(chosen, choice=choice)
    assert turned == chosen, "the order of axes is no part of equality"
    others = [
        dataclasses.replace(computation, weight_batch=2),
        dataclasses.replace(computation, chosen=Chosen((chosen,))),
        dataclasses.replace(computation, chosen=Chosen((turned,))),
        Computation(CONV2D, dataclasses.replace(WORK, strides=(2, 2))),
    ]
    funcs = [once.of(each)[0].func for each in (computation, *others)]
    assert len(set(funcs)) == len(funcs)
