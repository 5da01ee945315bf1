"""Rows and columns of a kernel that see padding alone: what is left computes the same sums."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet, Rescale

from vta_byoc.base.rewrites import without
from vta_byoc.hw.config import VTAConfig
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import reference_runner
from vta_byoc.workload.receptive import blind_taps, without_blind_taps
from vta_byoc.workload.workloads import Conv2dWorkload

SIM = VTAConfig.preset("sim")


def padded(size: int, kernel: int, dilation: int, pads: int, stride: int = 1) -> Conv2dWorkload:
    return Conv2dWorkload(
        1, 16, 16, size, size, (kernel, kernel), (stride,) * 2, (pads,) * 4, (dilation,) * 2
    )


@pytest.mark.parametrize("seed", range(40))
def test_taps_that_are_left_out_see_no_input_and_the_result_keeps_its_size(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, kernel, dilation, stride = (int(n) for n in rng.integers((1, 1, 1, 1), (9, 6, 9, 4)))
    pads = (kernel - 1) * dilation // 2 + int(rng.integers(0, 4))
    work = padded(size, kernel, dilation, pads, stride)
    if work.out_height < 1:
        return
    less, (rows, _) = without_blind_taps(work)
    assert less.out_shape == work.out_shape
    assert min(less.padding) >= 0 and min(less.kernel) >= 1
    left = range(kernel)[rows]
    for tap, out in itertools.product(set(range(kernel)) - set(left), range(work.out_height)):
        assert not 0 <= out * stride + tap * dilation - pads < size
    place = out_of(left[0], dilation, pads)
    assert place == -less.padding[0], "the first tap reads what it did"


def out_of(tap: int, dilation: int, before: int) -> int:
    """What the first output reads through a tap."""
    return tap * dilation - before


def test_a_kernel_of_large_dilation_is_one_tap() -> None:
    """As in DeepLabV3 at 14 x 14: dilation 24 and 36, and 12, where every tap sees something."""
    for dilation, kernel in ((12, (3, 3)), (13, (3, 3)), (14, (1, 1)), (24, (1, 1)), (36, (1, 1))):
        less, _ = without_blind_taps(padded(14, 3, dilation, dilation))
        assert (less.kernel, less.padding == (0,) * 4) == (kernel, kernel == (1, 1))


def test_padding_of_less_than_a_dilation_keeps_its_tap() -> None:
    """Without it the padding would be negative; one tap is left of a kernel that sees nothing."""
    assert blind_taps(1, 2, 2, 1, 5, (4, 0)) == (0, 0)
    assert blind_taps(2, 1, 3, 1, 4, (8, 8)) == (2, 0)
    assert blind_taps(1, 1, 3, 1, 1, (9, 9)) == (0, 0)


def layer(size: int, dilation: int, groups: int) -> tuple[tvm.IRModule, list[np.ndarray]]:
    net = IntegerNet(dilation, x=(1, 32, size, size))
    weight = net.rng.integers(-127, 128, (32, 32 // groups, 3, 3)).astype("int8")
    bias = net.rng.integers(-3000, 3000, 32).astype("int32")
    attrs = SimpleNamespace(
        strides=[1, 1], padding=[dilation] * 4, dilation=[dilation] * 2, groups=groups
    )
    found = net.conv2d(net.params[0], weight, bias, attrs, Rescale(9, -128), "layer")
    return net.module(found), net.inputs()


@pytest.mark.parametrize("groups", [1, 2, 32])
@pytest.mark.parametrize(("size", "dilation"), [(5, 4), (5, 5), (4, 9)])
def test_programs_without_them_compute_the_same(size: int, dilation: int, groups: int) -> None:
    mod, x = layer(size, dilation, groups)
    compiled = compile_module(mod, SIM)
    (row,) = compiled.placement
    assert row.macs == 32 * size * size * (32 // groups) * 9, "work is counted as the model has it"
    reference = reference_runner(mod, compiled.programs)(x)
    assert np.array_equal(profile(compiled.exe, x).outputs[0], reference.outputs[0])


def test_the_rewrite_can_be_switched_off() -> None:
    mod, _ = layer(5, 5, 1)
    loaded = []
    for off in ([], ["skip_padding"]):
        with without([*off, "bias_gemm"]):
            (program,) = compile_module(mod, SIM).programs.values()
        loaded.append(program.counters()["wgt_load_nbytes"])
    assert loaded[1] - loaded[0] == 8 * (2 * 2) * SIM.wgt_elem_bytes
