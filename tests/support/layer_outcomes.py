"""Random layers compiled, run and compared, with what there is to count about them."""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dialect_numpy
import numpy as np
from draws import draws
from layer_runs import Run, machines, run_module
from random_layers import KINDS, Layer, network, random_layer

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.partition import Placement
from vta_byoc.partitioning.entry import Plan
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import reference_runner

PER_MODULE = 17
MOST_MODULES = 2
MODULES = draws(1, MOST_MODULES)
EACH = PER_MODULE * MODULES
"""Layers of each kind on each machine."""


@dataclass(frozen=True)
class Outcome:
    """One layer that was bit-exact.

    ``plan`` and ``program`` are None on the CPU; ``seconds`` is its share of the processor time of
    partitioning and code generation; ``values`` is how many different values its result has.
    """

    layer: Layer
    machine: str
    placement: Placement
    plan: Plan | None
    program: Program | None
    seconds: float
    values: int


@functools.cache
def outcomes(machine: str, kind: str) -> tuple[Outcome, ...]:
    """EACH layers of ``kind`` on ``machine``; no two machines see the same layer."""
    first = list(machines()).index(machine) * MOST_MODULES * PER_MODULE
    return tuple(
        outcome
        for start in range(first, first + EACH, PER_MODULE)
        for outcome in _module(machine, kind, range(start, start + PER_MODULE))
    )


def check_executable(machine: str) -> None:
    """One layer of each kind, compiled for the VM, against the reference that LLVM runs."""
    net, outs = network([random_layer(kind, 5000) for kind in KINDS])
    mod, inputs = net.module(*outs), net.inputs()
    compiled = compile_module(mod, machines()[machine])
    assert [p.device for p in compiled.placement if "flat" not in p.name] == ["vta"] * len(KINDS)
    got = profile(compiled.exe, inputs).outputs
    want = reference_runner(mod, {})(inputs).outputs
    for kind, value, expected in zip(KINDS, got, want, strict=True):
        np.testing.assert_array_equal(value, expected, err_msg=kind)


def _module(machine: str, kind: str, seeds: Sequence[int]) -> Iterator[Outcome]:
    layers = [random_layer(kind, seed) for seed in seeds]
    net, outs = network(layers)
    mod, inputs = net.module(*outs), net.inputs(seeds[0])
    run = run_module(mod, machines()[machine], inputs)
    want = dialect_numpy.run(mod, *inputs)["result"]
    for number, (layer, seed) in enumerate(zip(layers, seeds, strict=True)):
        got, expected = run.outputs[number], want[number]
        what = f"{kind} {seed} on {machine}: {layer}; {run.placement[f'layer{number}']}"
        assert got.dtype == expected.dtype and got.shape == expected.shape, what
        different = int(np.count_nonzero(got != expected))
        assert not different, f"{different} of {got.size} values differ: {what}"
        yield _outcome(layer, machine, run, f"layer{number}", len(np.unique(got)))


def _outcome(layer: Layer, machine: str, run: Run, name: str, values: int) -> Outcome:
    seconds = run.seconds / len(run.outputs)
    place, plan, program = run.placement[name], run.plans.get(name), run.programs.get(name)
    assert (place.device == "vta") == (program is not None), place
    return Outcome(layer, machine, place, plan, program, seconds, values)


# ---------------------------------------------------------------- what the layers cover
def features(outcome: Outcome) -> set[str]:
    """Everything that is counted of a layer."""
    config = machines()[outcome.machine]
    found = {
        f"kind {outcome.layer.kind}",
        f"machine {outcome.machine}",
        f"result {outcome.layer.dtype}",
        "several values" if outcome.values > 8 else "few values",
    }
    found |= {f"step {op}" for op, _ in outcome.layer.steps}
    found |= layer_features(outcome.layer, config)
    if outcome.program is None or outcome.plan is None:
        return found | {"on the CPU"}
    return found | {f"mapping {mapping(outcome.plan)}"} | program_features(outcome.program)


def layer_features(layer: Layer, config: VTAConfig) -> set[str]:
    """Of its shape."""
    padding, strides = (layer.attrs.get(k, ()) for k in ("padding", "strides"))
    padding, strides = (v if isinstance(v, tuple) else (v,) for v in (padding, strides))
    dilation = layer.attrs.get("dilation", 1)
    taps = layer.weight.shape[2:] if layer.kind != "dense" else ()
    tests = {
        "pads over 15": any(p > 15 for p in padding),
        "asymmetric pads": padding[: len(padding) // 2] != padding[len(padding) // 2 :],
        "stride over 1": any(s > 1 for s in strides),
        "dilation": dilation not in (1, (1, 1)),
        "kernel over 7": max(taps, default=1) > 7,
        "idle batch lanes": layer.shape[0] % config.batch > 0,
        "hundreds of channels": max(layer.shape[1], *layer.weight.shape[:2]) >= 100,
        "channels off the block": layer.shape[1] % config.block > 0,
        "long rows": max(layer.shape[2:], default=0) > 60,
        "extreme weights": bool(np.isin(layer.weight, (-128, 127)).all()),
        "by channel": any(value.ndim for _, value in layer.steps),
        "flattened": "flatten" in layer.attrs,
    }
    return {name for name, holds in tests.items() if holds}


def mapping(plan: Plan) -> str:
    """How a layer is computed, without the numbers."""
    if plan.fold is not None:
        return "folded"
    return plan.candidate.how.split(",")[0]


def program_features(program: Program) -> set[str]:
    """Tiles, stores and micro-op kernels, from the instructions.

    GEMM in steps: more instructions than tiles, for steps of a reduction or for kernels that one
    instruction cannot walk.
    """
    isa = ISA.of(program.config)
    insns = [isa.decode(*words) for words in program.insns.tolist()]
    stores = sum(i.opcode == Opcode.STORE and i["x_size"] > 0 for i in insns)
    computed = [i for i in insns if i.opcode in (Opcode.GEMM, Opcode.ALU)]
    kernels = len({(i["uop_bgn"], i["uop_end"]) for i in computed})  # their LOADs may be joined
    resets = sum(i.opcode == Opcode.GEMM and i["reset"] for i in insns)
    steps = sum(i.opcode == Opcode.GEMM and not i["reset"] for i in insns)
    found = {f"stores {bucket(stores)}", f"tiles {bucket(resets)}", f"kernels {bucket(kernels)}"}
    return found | ({"GEMM in steps"} if steps > resets else set())


def bucket(count: int) -> str:
    """1, 2-4, 5-16, 17-64 and so on."""
    if count <= 1:
        return str(count)
    power = math.ceil(math.log(count, 4))
    return f"{4 ** (power - 1) + 1}-{4**power}"


def histogram(names: Sequence[str]) -> tuple[Counter[str], str]:
    """Counts of the features of all layers on the machines ``names``, and their text."""
    every = [o for name in names for kind in KINDS for o in outcomes(name, kind)]
    counts = Counter(feature for outcome in every for feature in features(outcome))
    counts["layers"] = len(every)
    reasons = Counter(o.placement.reason for o in every if o.program is None)
    median = statistics.median(o.seconds for o in every)
    listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    lines = [f"{len(every)} random layers on {', '.join(names)}: {listed}"]
    lines.append(f"compiled in {median:.2f} s each (median, of modules of {PER_MODULE} layers)")
    lines += [f"on the CPU, {count}: {reason}" for reason, count in reasons.items()]
    return counts, "\n".join(lines)


def check_histogram(counts: Counter[str], names: Sequence[str]) -> None:
    """Every kind, machine and feature occurs often enough; hardly anything stays on the CPU."""
    exactly = {
        **{f"machine {name}": EACH * len(KINDS) for name in names},
        **{f"kind {kind}": EACH * len(names) for kind in KINDS},
    }
    assert {name: counts[name] for name in exactly} == exactly
    shares = {name: counts[name] / counts["layers"] for name in WANTED}
    assert not {name: shares[name] for name, least in WANTED.items() if shares[name] < least}
    assert counts["on the CPU"] <= 0.03 * counts["layers"]


WANTED = {
    "mapping folded": 0.05,
    "mapping packed GEMM": 0.25,
    "mapping block-diagonal GEMM": 0.15,
    "mapping vector ALU": 0.005,
    "mapping stride phases": 0.1,
    "result int8": 0.6,
    "result int32": 0.05,
    "several values": 0.7,
    "pads over 15": 0.004,
    "asymmetric pads": 0.2,
    "stride over 1": 0.3,
    "dilation": 0.08,
    "kernel over 7": 0.02,
    "hundreds of channels": 0.08,
    "channels off the block": 0.5,
    "idle batch lanes": 0.05,
    "long rows": 0.015,
    "extreme weights": 0.08,
    "by channel": 0.4,
    "flattened": 0.02,
    "tiles 1": 0.1,
    "tiles 2-4": 0.2,
    "tiles 5-16": 0.08,
    "stores 2-4": 0.15,
    "kernels 5-16": 0.3,
    "GEMM in steps": 0.2,
    **{f"step {op}": 0.1 for op in ("add", "mul", "shr", "shl", "max", "min")},
}
"""The least share of the layers that have a feature."""
