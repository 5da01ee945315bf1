"""`only` and `exclude`: what the user keeps on the CPU, with the reason, and the same integers."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet, residual_net
from own_kernels import NAME, SHAPE, network, schedule

from vta_byoc.extend import register_kernel, registered
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.selection import Selectors
from vta_byoc.options import BuildOptions
from vta_byoc.partition import placements
from vta_byoc.pipeline import build, partition_for_vta
from vta_byoc.runtime.execute import profile


@pytest.fixture(scope="module")
def net() -> IntegerNet:
    return residual_net()


@pytest.fixture(scope="module")
def mod(net: IntegerNet) -> tvm.IRModule:
    return net.module(net.result)


def reasons(mod: tvm.IRModule) -> dict[str, str]:
    """Operators on the CPU, and why."""
    return {row.name: row.reason for row in placements(mod) if row.device == "cpu"}


@pytest.fixture(scope="module")
def expected(net: IntegerNet, mod: tvm.IRModule) -> np.ndarray:
    return profile(build(partition_for_vta(mod)), net.inputs()).outputs[0]


@pytest.mark.parametrize(
    ("only", "exclude", "left"),
    [
        ("conv_a..conv_b", (), {"join": 'not selected by only "conv_a..conv_b"'}),
        (
            ["conv_b", "@add"],
            (),
            {"conv_a": 'not selected by only "conv_b", "@add"'},
        ),
        ((), "conv_*,join", {
            "conv_a": 'excluded by "conv_*"',
            "conv_b": 'excluded by "conv_*"',
            "join": 'excluded by "join"',
        }),
        ("conv*", "conv_b", {
            "conv_b": 'excluded by "conv_b"',
            "join": 'not selected by only "conv*"',
        }),
    ],
)  # fmt: skip
def test_left_out_with_the_reason_and_the_same_integers(
    net: IntegerNet,
    mod: tvm.IRModule,
    expected: np.ndarray,
    only: Selectors,
    exclude: Selectors,
    left: dict[str, str],
) -> None:
    pmod = partition_for_vta(mod, only=only, exclude=exclude)
    assert reasons(pmod) == left
    assert np.array_equal(profile(build(pmod), net.inputs()).outputs[0], expected)


def test_options_take_texts_and_sequences(mod: tvm.IRModule) -> None:
    options = BuildOptions(only="conv_a, conv_b", exclude=["conv_b"])
    assert (options.only, options.exclude) == (("conv_a", "conv_b"), ("conv_b",))
    assert set(reasons(partition_for_vta(mod, options=options))) == {"conv_b", "join"}


def refused(message: str) -> pytest.RaisesExc[VTAError]:
    return pytest.raises(VTAError, match=f"^{re.escape(message)}$")


def test_nothing_is_left(mod: tvm.IRModule) -> None:
    text = (
        'only "conv_a" selects 1 operators and exclude "conv*" all of them too; nothing is left '
        "for VTA; drop one of the two"
    )
    with refused(text):
        partition_for_vta(mod, only="conv_a", exclude="conv*")


def test_unknown_names(mod: tvm.IRModule) -> None:
    known = "is not in the model; it has 3 operators; similar names are"
    with refused(f'operator "conv_c" to compute on VTA {known} "conv_b", "conv_a"'):
        partition_for_vta(mod, only="conv_c")
    with refused(f'operator "jion" to exclude from VTA {known} "join"'):
        partition_for_vta(mod, exclude="jion")


def test_a_reshape_that_is_left_out_is_no_view() -> None:
    net = IntegerNet(x=(1, 16, 4, 4))
    flat = net.op("reshape", net.conv(net.params[0], 16, name="conv"), (1, 256), name="flat")
    again = net.op("reshape", flat, (1, 16, 4, 4), name="again")
    mod = net.module(net.conv(again, 16, name="last"))
    pmod = partition_for_vta(mod, exclude="flat,again")
    assert reasons(pmod) == {"flat": 'excluded by "flat"', "again": 'excluded by "again"'}
    inputs = net.inputs()
    plain = profile(build(partition_for_vta(mod)), inputs).outputs[0]
    assert np.array_equal(profile(build(pmod), inputs).outputs[0], plain)


def test_a_users_kernel_that_is_left_out_runs_on_the_host() -> None:
    image = np.random.default_rng(0).integers(-128, 128, SHAPE).astype("int8")
    with registered(register_kernel, NAME, schedule):
        both = [partition_for_vta(network(), exclude=what) for what in ((), "middle")]
        found = [profile(build(pmod), [image]) for pmod in both]
    assert reasons(both[1]) == {"middle": 'excluded by "middle"'}
    assert [len(run.regions) for run in found] == [3, 2]
    assert np.array_equal(found[0].outputs[0], found[1].outputs[0])
