"""An int32 result is stored plane by plane; a large tile in halves, so that STORE need not wait."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tvm
from integer_models import IntegerNet, equal_program

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.pipeline import compile_module
from vta_byoc.strategies.conv import schedule

PADS = SimpleNamespace(strides=[1, 1], padding=[0] * 4, dilation=[1, 1], groups=1)


def sums(height: int, width: int, channels: int) -> tuple[IntegerNet, tvm.IRModule]:
    """The int32 sums of a convolution with a bias."""
    net = IntegerNet(x=(1, 16, height, width))
    weight = net.rng.integers(-127, 128, (channels, 16, 1, 1)).astype("int8")
    bias = net.rng.integers(-(1 << 20), 1 << 20, channels).astype("int32")
    return net, net.module(net.conv2d(net.params[0], weight, bias, PADS, None, "last"))


def checked(net: IntegerNet, mod: tvm.IRModule, machine: str) -> Program:
    return equal_program(compile_module(mod, VTAConfig.preset(machine)), net, mod)


def stores(program: Program) -> int:
    isa = ISA.of(program.config)
    return sum(isa.decode(*words).opcode == Opcode.STORE for words in program.insns.tolist())


@pytest.mark.parametrize("machine", ["sim", "2x16", "tophub_4x8"])
@pytest.mark.parametrize("height, width, channels", [(23, 14, 16), (31, 1, 96), (1, 250, 40)])
def test_halves_are_right(machine: str, height: int, width: int, channels: int) -> None:
    net, mod = sums(height, width, channels)
    checked(net, mod, machine)


def test_stores_do_not_wait_for_the_next_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    net, mod = sums(56, 56, 16)
    halves = checked(net, mod, "sim")
    monkeypatch.setattr(schedule, "LEAST_IN_HALVES", 1 << 30)
    whole = checked(net, mod, "sim")
    assert stores(halves) == 2 * stores(whole)
    assert simulate(halves).cycles < 0.95 * simulate(whole).cycles


def test_small_tiles_are_stored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    net, mod = sums(1, 1, 1000)
    program = checked(net, mod, "sim")
    monkeypatch.setattr(schedule, "LEAST_IN_HALVES", 1 << 30)
    assert checked(net, mod, "sim").insns.tolist() == program.insns.tolist()
