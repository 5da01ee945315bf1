"""Whatever is broken in a program of any kind of layer: the layer is named, nothing crashes, and
what is said of the instruction is true."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import dialect_numpy
import numpy as np
import pytest
import tvm
from hand_programs import changed
from integer_models import IntegerNet
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, AluOp, MemType, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim.target import unoptimized_target
from vta_byoc.hw.trace.implementations import implementation
from vta_byoc.hw.verify.rules import layer_of
from vta_byoc.ir.host_loops import without_asserts
from vta_byoc.pipeline import Compiled, compile_module
from vta_byoc.quantization.scales import Rescale
from vta_byoc.validation import divergence, root_cause
from vta_byoc.validation.bit_exact import Reference, stored, values_of
from vta_byoc.validation.divergence import Divergence, compare_with_reference
from vta_byoc.validation.root_cause import Stage, stages

SIM = implementation("sim")
TRUE_OF_READ = "what it read is right, "
MOVED = "all that it stores would be right "


# ---------------------------------------------------------------- networks
def conv(channels: int, kernel: int, **options: Any) -> IntegerNet:
    """A convolution to 40 channels."""
    net = IntegerNet(x=(1, channels, 8, 7))
    net.result = net.conv(net.params[0], 40, kernel, relu=False, name="layer", **options)
    return net


def conv1d() -> IntegerNet:
    """With a multiplication and two values for the channels."""
    net = IntegerNet(x=(2, 20, 19))
    attrs = SimpleNamespace(strides=[2], padding=[1, 1], dilation=[1], groups=1)
    weight, bias = weights(net, 24, 20, 3), weights(net, 24).astype("int32")
    net.result = net.conv1d(net.params[0], weight, bias, attrs, Rescale(8), "layer")
    return net


def weights(net: IntegerNet, *shape: int) -> np.ndarray:
    return np.asarray(net.rng.integers(-127, 128, shape), "int8")


def transposed() -> IntegerNet:
    net = IntegerNet(x=(1, 20, 5, 4))
    attrs = SimpleNamespace(
        strides=[2, 2], padding=[1, 1, 1, 1], output_padding=[1, 0], dilation=[1, 1], groups=1
    )
    weight, bias = weights(net, 20, 18, 4, 3), weights(net, 18).astype("int32")
    net.result = net.conv2d_transpose(net.params[0], weight, bias, attrs, Rescale(9), "layer")
    return net


def dense(rescale: Rescale | None, *shape: int) -> IntegerNet:
    """Channels last; an int32 result called layer__bias without ``rescale``."""
    net = IntegerNet(x=shape)
    weight, bias = weights(net, shape[-1], 50), weights(net, 50).astype("int32") * 50
    net.result = net.matmul(net.params[0], weight, bias, rescale, "layer")
    return net


def max_pool() -> IntegerNet:
    net = IntegerNet(x=(1, 20, 7, 9))
    window = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}
    net.result = net.op("nn.max_pool2d", net.params[0], name="layer", **window)
    return net


def mean() -> IntegerNet:
    net = IntegerNet(x=(1, 40, 5, 5))
    net.result = net.mean(net.params[0], [2, 3], 5243, Rescale(15), "layer")
    return net


def addition(op: Callable[..., relax.Expr] = relax.op.add) -> IntegerNet:
    """Two aligned sides."""
    net = IntegerNet(x=(1, 20, 4, 5), y=(1, 20, 4, 5))
    operands = [(net.params[0], 2), (net.params[1], -1)]
    net.result = net.binary(op, operands, Rescale(2, -90, 101), "layer")
    return net


def leaky() -> IntegerNet:
    net = IntegerNet(x=(1, 20, 4, 5))
    net.result = net.leaky_relu(net.params[0], 1, 3, Rescale(3), "layer")
    return net


def clamp() -> IntegerNet:
    net = IntegerNet(x=(2, 20))
    net.result = net.clamp(net.params[0], -50, 70, "layer")
    return net


def concat(batch: int) -> IntegerNet:
    """Stored in place for one image, copied for two."""
    net = IntegerNet(x=(batch, 16, 5, 4))
    parts = [net.conv(net.params[0], 16, k, relu=False, name=f"part{k}") for k in (1, 3)]
    both = net.op("concat", parts, axis=1, name="layer")
    net.result = net.conv(both, 16, 1, name="after")
    return net


def in_ranges() -> IntegerNet:
    """The filters of the first convolution are computed in two ranges, of which one is read."""
    net = IntegerNet(x=(1, 16, 5, 4))
    both = net.conv(net.params[0], 64, 1, relu=False, name="both")
    halves = [net.op("strided_slice", both, [1], [c], [c + 32], name=f"from{c}") for c in (0, 32)]
    deep = net.conv(halves[1], 32, 3, relu=False, name="deep")
    joined = net.op("concat", [*halves, deep], axis=1, name="joined")
    net.result = net.conv(joined, 16, 1, name="last")
    return net


def convolved(**inputs: tuple[int, ...]) -> tuple[IntegerNet, relax.Var]:
    """A network and a convolution of its input ``x`` to 40 channels."""
    net = IntegerNet(x=(1, 20, 8, 6), **inputs)
    return net, net.conv(net.params[0], 40, 3, relu=False, name="conv")


def shared_sum() -> IntegerNet:
    """A sum fused into a convolution."""
    net, result = convolved(y=(1, 40, 8, 6))
    operands = [(result, 2), (net.params[1], -1)]
    net.result = net.binary(relax.op.add, operands, Rescale(2, -90, 101), "layer")
    return net


def shared_chain() -> IntegerNet:
    """A leaky relu and a pool fused into a convolution."""
    net, result = convolved()
    active = net.leaky_relu(result, 1, 3, Rescale(3, -128), "active")
    window = {"pool_size": (2, 2), "strides": (2, 2)}
    net.result = net.op("nn.max_pool2d", active, name="layer", **window)
    return net


NETS: dict[str, Callable[[], IntegerNet]] = {
    "folded stem": functools.partial(conv, 3, 7, stride=2),
    "grouped": functools.partial(conv, 80, 3, groups=5),
    "depthwise": functools.partial(conv, 40, 3, groups=40, shift=8),
    "conv1d": conv1d,
    "transposed": transposed,
    "dense": functools.partial(dense, Rescale(9), 2, 3, 70),
    "int32": functools.partial(dense, None, 2, 70),
    "max pool": max_pool,
    "mean": mean,
    "residual": addition,
    "subtraction": functools.partial(addition, relax.op.subtract),
    "product": functools.partial(addition, relax.op.multiply),
    "leaky": leaky,
    "clamp": clamp,
    "concat": functools.partial(concat, 1),
    "copied concat": functools.partial(concat, 2),
    "in ranges": in_ranges,
    "shared sum": shared_sum,
    "shared chain": shared_chain,
}


# ---------------------------------------------------------------- changes
def variants(program: Program) -> Iterator[tuple[str, int, Program]]:
    """(what, instruction, program): each with one thing wrong."""
    isa = ISA.of(program.config)
    for index, words in enumerate(program.insns.tolist()):
        insn = isa.decode(*words)
        if insn.opcode == Opcode.ALU and insn["use_imm"]:
            shift = insn["alu_opcode"] == AluOp.SHR
            value = insn["imm"] + 1 if shift else insn["imm"] // 2 - 3
            yield "immediate", index, changed(program, index, imm=value)
        elif insn.opcode == Opcode.GEMM and not insn["reset"]:
            yield "factor", index, changed(program, index, src_factor_in=insn["src_factor_in"] + 1)
        elif insn.opcode == Opcode.STORE and insn["x_size"] * insn["y_size"] > 2:
            yield "store to", index, changed(program, index, dram_base=insn["dram_base"] + 1)
            yield "store from", index, changed(program, index, sram_base=insn["sram_base"] + 1)
        elif insn.opcode == Opcode.LOAD and insn["mem_type"] == MemType.WGT and insn["x_size"]:
            at = insn["dram_base"] * program.config.wgt_elem_bytes - program.input_bytes
            image = program.image.copy()
            image[at : at + program.config.wgt_elem_bytes : 17] ^= 64
            yield "weight", index, dataclasses.replace(program, image=image)


def spread(
    found: Sequence[tuple[str, int, Program]], most: int
) -> Iterator[tuple[str, int, Program]]:
    """At most ``most`` of each kind, evenly."""
    for kind in dict.fromkeys(what for what, _, _ in found):
        these = [one for one in found if one[0] == kind]
        yield from these[:: -(-len(these) // most)]


@dataclasses.dataclass
class Case:
    """A compiled network."""

    mod: tvm.IRModule
    inputs: list[np.ndarray]
    compiled: Compiled
    program: Program

    def differs(self, program: Program) -> Divergence | None:
        wrong = dataclasses.replace(self.compiled, programs={"region0": program})
        return compare_with_reference(self.mod, wrong, self.inputs, SIM)


@functools.cache
def compiled_case(name: str) -> Case:
    """The network of a name, compiled once."""
    net = NETS[name]()
    mod = net.module(net.result)
    with without_asserts():
        compiled = compile_module(mod, VTAConfig(), target=unoptimized_target())
    return Case(mod, net.inputs(), compiled, compiled.programs["region0"])


@pytest.fixture
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    """The network of a name.  Building a reference takes most of the time: NumPy is one."""
    found = compiled_case(request.param)
    known = dialect_numpy.run(found.mod, *found.inputs)

    def runner(_mod: tvm.IRModule, programs: Mapping[str, Program]) -> Any:
        names = [name for program in programs.values() for name in stored(program)]
        tensors = {name: values_of(known, name) for name in names}
        return lambda _inputs: Reference([known["result"]], tensors)

    def values(_mod: tvm.IRModule, _inputs: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
        return {name: known[name] for name in names}

    monkeypatch.setattr(divergence, "reference_runner", runner)
    monkeypatch.setattr(root_cause, "_reference_values", values)
    return found


MOST = 2
"""Of each kind of change in a network."""
EXACT = {"folded stem", "grouped", "depthwise", "conv1d", "transposed", "dense", "int32", "mean",
         "concat", "copied concat", "in ranges"}
"""Networks whose steps are those of the machine: a wrong immediate is named exactly."""


@pytest.mark.parametrize("case", NETS, indirect=True, ids=str)
def test_the_layer_is_named_and_what_is_said_is_true(
    case: Case, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.params["case"]
    assert case.differs(case.program) is None
    counts: Counter[str] = Counter()
    for what, index, program in spread(list(variants(case.program)), MOST):
        found = case.differs(program)
        if found is None:  # a bound that no value reaches
            continue
        counts[what] += 1
        text = f"{what} of {index}: {found}"
        assert found.layer == layer_of(program.layers, index), text
        if what.startswith("store"):
            assert found.index == index, text
            assert MOVED in found.cause or "stopped" in found.cause, text
        elif TRUE_OF_READ in found.cause or (what == "immediate" and name in EXACT):
            assert (found.index, what) == (index, "immediate"), text
            assert "its operand or immediate is wrong: " in found.cause, text
        else:
            assert found.index in way(found), text
            assert what == "weight" or (index in way(found) and index <= found.index), text
    missing = {"mean": {"store to", "store from"}, "max pool": {"immediate"}}.get(name, set())
    assert set(counts) == {"factor", "weight", "immediate", "store to", "store from"} - missing


def way(found: Divergence) -> list[int]:
    """The instructions that a finding lists; those between its ends where it leaves some out."""
    start, listed = found.evidence.split(": ")
    assert start == "path of the value"
    if "..." in listed:
        listed = f"{listed.split('-')[0].split(',')[0]}-{listed.split(' ')[-1].split('-')[-1]}"
    ends = [list(map(int, part.split("-"))) for part in listed.split(", ")]
    return [i for end in ends for i in range(end[0], end[-1] + 1)]


@pytest.mark.parametrize("case", ["transposed", "max pool", "int32"], indirect=True, ids=str)
def test_the_program_as_compiled_names_the_instruction(case: Case) -> None:
    for _, index, program in spread(list(variants(case.program)), 1):
        found = compare_with_reference(
            case.mod, case.compiled, case.inputs, SIM, {"region0": program}
        )
        assert found is not None and found.index == index


@pytest.mark.parametrize("case", ["concat"], indirect=True, ids=str)
def test_a_store_into_another_layer_is_named(case: Case) -> None:
    """The last layer's STORE writes over what an earlier one has stored."""
    last = case.program.layers[-1]
    index = max(i for what, i, _ in variants(case.program) if what == "store to")
    assert last.begin <= index
    part = case.program.symbol("part3").offset // case.program.config.out_elem_bytes
    found = case.differs(changed(case.program, index, dram_base=part))
    assert found is not None and (found.index, found.layer) == (index, "after")
    assert found.tensor is not None and found.tensor.name == "part3"
    assert found.cause == "it overwrites part3[0, 0, 0, 0], which is not of its layer"


# ---------------------------------------------------------------- stages
STAGES = {
    "grouped": "layer__acc, add layer__bias, shr layer__shift, max layer__max, min layer__min",
    "int32": "layer__acc, add layer__bias",
    "max pool": "layer",
    "concat": "layer",
    "clamp": "layer__max, min layer",
    "mean": "layer__acc, mul layer__product, add layer__round, shr layer__shift, max layer__max, "
    "min layer__min",
    "leaky": "layer__acc, add layer__round, shr layer__shift, max layer__max, min layer__min",
}


@pytest.mark.parametrize("name", STAGES)
def test_stages(name: str) -> None:
    net = NETS[name]()
    output = "layer__bias" if name == "int32" else "layer"
    found = stages(net.module(net.result), output)
    assert ", ".join(f"{stage.op} {stage.name}".strip() for stage in found) == STAGES[name]


def test_a_left_shift_is_a_shift_or_a_product() -> None:
    assert Stage("shl", "x").kinds == ("SHR", "MUL")
    assert Stage("max", "x").kinds == ("MAX",)
