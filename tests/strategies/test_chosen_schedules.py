"""Which schedule each strategy chooses, what it estimates, and the program that follows:
`tests/golden/schedules`. A program is its instructions by kind and a digest of all of them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from alu_cases import GEOMETRIES, clamp
from integer_models import IntegerNet, flatten_net, island_net, residual_net, stem_net
from layer_runs import run_module
from room_values import changeable

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.cost.search import Choice, cost_of
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.strategies.conv.grouping import groupings
from vta_byoc.strategies.conv.tile_space import conv_space
from vta_byoc.strategies.movement import regions as moves
from vta_byoc.strategies.te.kernel import Chosen
from vta_byoc.strategy import STRATEGIES, Computation
from vta_byoc.workload.workloads import (
    CHANNEL,
    FULL,
    MAP,
    Conv2dWorkload,
    ConvTransposeWorkload,
    ElementwiseWorkload,
    Epilogue,
    PoolWorkload,
    Prologue,
    Step,
    Workload,
)

BIAS = Epilogue((Step("add", CHANNEL), Step("shr", 7), *clamp()))
EACH = Epilogue((Step("add", FULL), Step("mul", MAP), Step("shr", 9), *clamp()))
WIDE = Epilogue((Step("add", CHANNEL),), "int32")
LOADED = Prologue(0, (Step("shl", 3),)), Prologue(1, (Step("add", CHANNEL), Step("shr", 1)))

WORKLOADS: dict[str, tuple[str, Workload]] = {
    "3x3": (
        "conv2d",
        Conv2dWorkload(1, 40, 33, 13, 17, (3, 3), (1, 1), (1, 2, 0, 1), epilogue=BIAS),
    ),
    "3x3 of stride 2": (
        "conv2d",
        Conv2dWorkload(2, 16, 64, 29, 30, (3, 3), (2, 3), (0, 1, 1, 1), epilogue=EACH),
    ),
    "1x1": ("conv2d", Conv2dWorkload(1, 256, 512, 14, 14, (1, 1), epilogue=BIAS)),
    "dilated": (
        "conv2d",
        Conv2dWorkload(1, 32, 16, 21, 9, (2, 3), (1, 1), (2, 2, 2, 2), (3, 2), epilogue=WIDE),
    ),
    "groups": (
        "conv2d",
        Conv2dWorkload(1, 48, 24, 10, 9, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 6, BIAS),
    ),
    "two digits": ("conv2d", Conv2dWorkload(1, 32, 32, 8, 8, (3, 3), epilogue=BIAS, digit_shift=7)),
    "dense": ("conv2d", Conv2dWorkload(5, 800, 100, 1, 1, (1, 1), epilogue=BIAS)),
    "56x56": (
        "conv2d",
        Conv2dWorkload(1, 64, 64, 56, 56, (3, 3), (1, 1), (1, 1, 1, 1), epilogue=BIAS),
    ),
    "transposed": (
        "conv2d_transpose",
        ConvTransposeWorkload(
            1, 20, 18, 6, 5, (3, 4), (2, 3), (1, 0, 1, 2), epilogue=BIAS, output_padding=(1, 0)
        ),
    ),
    "depthwise": (
        "depthwise",
        Conv2dWorkload(1, 40, 40, 15, 12, (3, 5), (2, 1), (1, 2, 0, 1), (1, 1), 40, BIAS),
    ),
    "sum of two": ("elementwise", ElementwiseWorkload(1, 70, 15, 13, LOADED, "add", BIAS)),
    "one operand": (
        "elementwise",
        ElementwiseWorkload(2, 16, 40, 33, (Prologue(0, (Step("mul", FULL),)),), None, BIAS),
    ),
    "maximum": (
        "pool",
        PoolWorkload("max", 1, 33, 19, 18, (3, 2), (2, 1), (1, 0, 1, 1), low=-128),
    ),
    "sum": (
        "pool",
        PoolWorkload("sum", 1, 20, 14, 15, (2, 3), (2, 2), (0, 1, 1, 0), epilogue=BIAS),
    ),
    "mean of a plane": ("pool", PoolWorkload("sum", 2, 64, 7, 7, (7, 7), epilogue=BIAS)),
}
MOVES: dict[str, Callable[[VTAConfig], Workload]] = {
    "joined": lambda c: moves.concat([(1, 24, 9, 7), (1, 64, 9, 7), (1, 9, 9, 7)], c),
    "padded": lambda c: moves.pad((2, 20, 5, 6), (1, 0, 2, 3), c),
    "enlarged": lambda c: moves.upsample((1, 20, 5, 6), (2, 3), c),
    "cut": lambda c: moves.strided_slice((1, 50, 9, 8), (3, 1, 0), (45, 9, 7), (2, 2, 3), c),
    "channels reversed": lambda c: moves.channels_of((1, 40, 4, 5), range(39, -1, -1), c),
}


def program_of(computation: Computation, config: VTAConfig) -> Program:
    """The program of one computation: all that it reads are inputs."""
    compute = computation.strategy.compute(computation.schedule(config), config)
    builder = ProgramBuilder(config)
    names = []
    for number, param in enumerate(compute.params):
        kind = "output" if number == len(compute.params) - 1 else "input"
        shape = [int(d) for d in param.shape]
        names.append(builder.symbol(f"t{number}", kind, shape, str(param.dtype)))
    for part in computation.functions(config):
        builder.layer("layer", part.func, [names[i] for i in part.args])
    return builder.finish()


def summary(program: Program) -> str:
    """Instructions by kind, and a digest of the whole text."""
    text = program.disassemble()
    numbered = (line.split() for line in text.splitlines() if line[:8].strip().isdigit())
    kinds = Counter(" ".join(words[1:3]) for words in numbered)
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    return f"    {counts}; {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def described(strategy: str, work: Workload, config: VTAConfig) -> Iterator[str]:
    computation = Computation(STRATEGIES[strategy], work)
    try:
        kernels = computation.kernels(config)
    except VTAError as error:
        yield f"    {error}"
        return
    yield f"    {Chosen(kernels).to_text()}"
    yield f"    {computation.estimate(config):.1f} cycles; {STRATEGIES[strategy].scopes(work)}"
    yield summary(program_of(computation, config))


@pytest.mark.parametrize("name", ["1x16", "4x8", "quarter"])
def test_schedules(name: str, golden: Callable[[str, str], None]) -> None:
    config, lines = GEOMETRIES[name], []
    cases = {**WORKLOADS, **{what: ("move", make(config)) for what, make in MOVES.items()}}
    for what, (strategy, work) in cases.items():
        lines += [what, *described(strategy, work, config)]
    golden(f"schedules/{name}.txt", "\n".join(lines) + "\n")


def tilings(work: Conv2dWorkload, config: VTAConfig) -> Iterator[str]:
    """What random tiles of a convolution cost by estimate, whichever is chosen."""
    for grouping in groupings(work, config):
        space = conv_space(work, grouping, config)
        rng, costs = np.random.default_rng(0), Counter[str]()
        for _ in range(60):
            tile = {name: int(rng.choice(axis)) for name, axis in space.axes.items()}
            one, two, three = (int(n) for n in rng.integers(1, 3, 3))
            variant = str(rng.choice(list(space.variants)))
            cost = cost_of(space, config, Choice(tile, variant, (one, two, three)))
            costs["fit"] += bool(np.isfinite(cost))
            costs["total"] += round(cost) if np.isfinite(cost) else 0
        axes = {name: len(axis) for name, axis in space.axes.items()}
        yield f"    {dataclasses.astuple(grouping)} {axes} {dict(costs)}"


@pytest.mark.parametrize("name", ["1x16", "4x8"])
def test_what_other_tiles_cost(name: str, golden: Callable[[str, str], None]) -> None:
    lines = []
    for what, (_, work) in WORKLOADS.items():
        if isinstance(work, Conv2dWorkload) and work.groups < work.in_channels:
            lines += [what, *tilings(work, GEOMETRIES[name])]
    golden(f"schedules/tiles-{name}.txt", "\n".join(lines) + "\n")


def fused_net() -> IntegerNet:
    """A convolution, a sum and a pool in its tiles, behind a layer whose result both read."""
    net = IntegerNet(x=(1, 20, 18, 14))
    first = net.conv(net.params[0], 24, 3, stride=2, pads=(1, 0, 1, 1), name="first")
    second = net.conv(first, 24, name="second")
    third = net.conv(second, 24, 1, relu=False, name="third")
    net.result = net.residual(third, first, name="join")
    return net


NETS = {
    "fused": fused_net,
    "residual": residual_net,
    "island": island_net,
    "stem": stem_net,
    "flattened": flatten_net,
}


def test_programs_of_networks(golden: Callable[[str, str], None]) -> None:
    """Consumers in tiles, shared weights and scopes, region by region."""
    lines = []
    for name, make in NETS.items():
        net = make()
        done = run_module(net.module(net.result), GEOMETRIES["1x16"], net.inputs())
        for region, program in done.programs.items():
            lines += [f"{name}, {region}", summary(program)]
    golden("schedules/networks.txt", "\n".join(lines) + "\n")


def test_which_values_may_change() -> None:
    """A schedule under construction collects; everything else is a value."""
    found = {name for name in changeable("vta_byoc.strategies") if not name.startswith("_")}
    assert found == {"Stage"} and not changeable("vta_byoc.strategy")
