"""Which schedule each strategy chooses, what it estimates, and the program that follows:
`tests/golden/schedules.txt`. A program is its instructions by kind and a digest of all of them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from alu_cases import GEOMETRIES, clamp
from room_values import changeable

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
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
    Side,
    Step,
    Workload,
)

BIAS = Epilogue((Step("add", CHANNEL), Step("shr", 7), *clamp()))
EACH = Epilogue((Step("add", FULL), Step("mul", MAP), Step("shr", 9), *clamp()))
WIDE = Epilogue((Step("add", CHANNEL),), "int32")
LOADED = Side(0, (Step("shl", 3),)), Side(1, (Step("add", CHANNEL), Step("shr", 1)))

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
        ConvTransposeWorkload(1, 20, 18, 6, 5, (3, 4), (2, 3), (1, 0, 1, 2), (1, 0), epilogue=BIAS),
    ),
    "depthwise": (
        "depthwise",
        Conv2dWorkload(1, 40, 40, 15, 12, (3, 5), (2, 1), (1, 2, 0, 1), (1, 1), 40, BIAS),
    ),
    "sum of two": ("elementwise", ElementwiseWorkload(1, 70, 15, 13, LOADED, "add", BIAS)),
    "one operand": (
        "elementwise",
        ElementwiseWorkload(2, 16, 40, 33, (Side(0, (Step("mul", FULL),)),), None, BIAS),
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
}


def program_of(computation: Computation, config: VTAConfig) -> Program:
    """The program of one computation: all that it reads are inputs."""
    compute = computation.strategy.compute(computation.work, config)
    builder = ProgramBuilder(config)
    names = []
    for number, param in enumerate(compute.params):
        kind = "output" if number == len(compute.params) - 1 else "input"
        shape = [int(d) for d in param.shape]
        names.append(builder.symbol(f"t{number}", kind, shape, str(param.dtype)))
    for part in computation.parts(config):
        builder.layer("layer", part.func, [names[i] for i in part.args])
    return builder.finish()


def described(strategy: str, work: Workload, config: VTAConfig) -> Iterator[str]:
    computation = Computation(STRATEGIES[strategy], work)
    try:
        kernels = computation.kernels(config)
    except VTAError as error:
        yield f"    {error}"
        return
    text = program_of(computation, config).disassemble()
    kinds = Counter(
        tuple(line.split()[1:3]) for line in text.splitlines() if line[:8].strip().isdigit()
    )
    yield f"    {Chosen(kernels).to_text()}"
    yield f"    {computation.estimate(config):.1f} cycles; {STRATEGIES[strategy].scopes(work)}"
    counts = (f"{' '.join(kind)} {count}" for kind, count in sorted(kinds.items()))
    yield f"    {', '.join(counts)}; {hashlib.sha256(text.encode()).hexdigest()[:16]}"


@pytest.mark.parametrize("name", ["1x16", "4x8", "quarter"])
def test_schedules(name: str, golden: Callable[[str, str], None]) -> None:
    config, lines = GEOMETRIES[name], []
    cases = {**WORKLOADS, **{what: ("move", make(config)) for what, make in MOVES.items()}}
    for what, (strategy, work) in cases.items():
        lines += [what, *described(strategy, work, config)]
    golden(f"schedules/{name}.txt", "\n".join(lines) + "\n")


def test_which_values_may_change() -> None:
    """A schedule under construction collects; everything else is a value."""
    found = {name for name in changeable("vta_byoc.strategies") if not name.startswith("_")}
    assert found == set()
