"""Modules between the stages of the pipeline."""

from __future__ import annotations

import tvm
from integer_models import IntegerNet

from vta_byoc.hw.sim.target import native_target
from vta_byoc.ir.legality import FORMS, Form
from vta_byoc.options import Planned
from vta_byoc.passes.lower_regions import LoweredRegions
from vta_byoc.pipeline import STAGES, BuildOptions

DRY = BuildOptions(device="null")


def after_stages(
    mod: tvm.IRModule, options: BuildOptions = DRY
) -> list[tuple[Planned, tvm.IRModule]]:
    """Each stage that runs, with the module that it gives."""
    found, record = [], LoweredRegions()
    with native_target():
        for planned in STAGES:
            if planned.when.holds(options):
                mod = planned.make(options, record)(mod)
                found.append((planned, mod))
    return found


def in_every_form(mod: tvm.IRModule) -> dict[Form, tvm.IRModule]:
    """``mod`` as the last stage that gives each form leaves it."""
    given = {planned.stage.gives: result for planned, result in after_stages(mod)}
    return {form: given[form] for form in FORMS}


def bordered_net() -> IntegerNet:
    """A convolution on VTA, a residual fused into it, and an absolute value on the CPU."""
    net = IntegerNet(x=(1, 16, 6, 6))
    (x,) = net.params
    joined = net.residual(net.conv(x, 16, name="conv"), x, name="join")
    net.result = net.op("abs", joined, name="size")
    return net
