"""Transformer blocks drawn at random, quantized, compiled and compared with the reference."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import tvm
from attention_cases import samples
from tvm import relax

from vta_byoc import quantize
from vta_byoc.hw.config import VTAConfig
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

MASKS = ("none", "causal", "additive", "padding", "by query", "causal and padding")
NORMS = ("none", "layer", "root mean square")
ACTIVATIONS = ("relu", "gelu", "gated silu")
MACHINES = ("sim", "1x32")
SCALES = ("pow2", "mul")


@dataclass(frozen=True)
class Block:
    """A drawn block.

    Attributes:
        seed: of its weights.
        machine, scales: for which it is compiled, and how it is quantized.
        tokens: of its input.
        heads: of queries.
        shared: how many of them share one of keys and values.
        size: channels of a head.
        hidden: channels between the two layers behind the attention.
        mask, norm, activation: one of `MASKS`, `NORMS`, `ACTIVATIONS`.
        first: whether a normalization stands before what it normalizes for, not behind the sum.
        biased: whether layers have a bias.
    """

    seed: int
    machine: str
    scales: str
    tokens: int
    heads: int
    shared: int
    size: int
    hidden: int
    mask: str
    norm: str
    activation: str
    first: bool
    biased: bool

    @property
    def width(self) -> int:
        """Channels of a token."""
        return self.heads * self.size


def drawn(seed: int) -> Block:
    """The block of a seed: masks, norms and activations take turns, sizes are random."""
    rng = np.random.default_rng(seed)
    machine = MACHINES[seed // 2 % len(MACHINES)]
    k = VTAConfig.preset(machine).block
    shared = int(rng.choice([1, 1, 2, 3]))
    return Block(
        seed,
        machine,
        SCALES[seed % len(SCALES)],
        int(rng.integers(1, 3 * k + 3)),
        shared * int(rng.integers(1, 3)),
        shared,
        int(rng.choice([k // 2, k, k, k + 8, 2 * k])),
        int(rng.integers(1, 4 * k)),
        MASKS[seed % len(MASKS)],
        NORMS[seed // len(MASKS) % len(NORMS)],
        ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))],
        bool(rng.integers(2)),
        bool(rng.integers(2)),
    )


def drawn_small(seed: int) -> Block:
    """A block of the same masks, norms and machines that takes a second or two, not nine.

    It has up to half as many tokens again as a block of the machine, one or two heads, and, but
    for one of sixteen, ReLU: for other activations a function is searched for.
    """
    block = drawn(seed)
    k = VTAConfig.preset(block.machine).block
    shared = 1 + block.shared % 2
    return dataclasses.replace(
        block,
        tokens=1 + block.tokens % (k + k // 2),
        heads=max(shared, 1 + block.heads % 2),
        shared=shared,
        size=min(block.size, k + 8),
        hidden=1 + block.hidden % (2 * k),
        activation=block.activation if seed % 16 == 7 else "relu",
    )


class _Writer:
    def __init__(self, block: Block) -> None:
        self.block, self.rng = block, np.random.default_rng(block.seed)
        self.builder = relax.BlockBuilder()

    def emit(self, value: relax.Expr) -> relax.Var:
        return self.builder.emit(value)

    def const(self, array: np.ndarray | float) -> relax.Constant:
        return relax.const(np.asarray(array, "float32"))

    def dense(self, x: relax.Expr, outputs: int) -> relax.Expr:
        inputs = int(x.ty.shape[-1])
        weight = self.rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)
        made = self.emit(relax.op.matmul(x, self.const(weight)))
        if not self.block.biased:
            return made
        return self.emit(relax.op.add(made, self.const(0.1 * self.rng.standard_normal(outputs))))

    def normed(self, x: relax.Expr) -> relax.Expr:
        weight = self.const(1 + 0.2 * self.rng.standard_normal(self.block.width))
        if self.block.norm == "layer":
            bias = self.const(0.2 * self.rng.standard_normal(self.block.width))
            return self.emit(relax.op.nn.layer_norm(x, weight, bias, [-1], 1e-5))
        if self.block.norm == "root mean square":
            return self.emit(relax.op.nn.rms_norm(x, weight, [-1], 1e-5))
        return x

    # ---------------------------------------------------------------- attention
    def heads(self, x: relax.Expr, count: int, axes: list[int]) -> relax.Expr:
        block = self.block
        apart = self.emit(relax.op.reshape(x, (1, block.tokens, count, block.size)))
        return self.emit(relax.op.permute_dims(apart, axes))

    def repeated(self, x: relax.Expr) -> relax.Expr:
        """Heads of keys or values, once for each head of queries."""
        shared = self.block.shared
        return x if shared == 1 else self.emit(relax.op.repeat(x, shared, 1))

    def attention(self, x: relax.Expr, mask: relax.Var | None) -> relax.Expr:
        block = self.block
        few = block.heads // block.shared
        query = self.heads(self.dense(x, block.width), block.heads, [0, 2, 1, 3])
        key = self.heads(self.dense(x, few * block.size), few, [0, 2, 3, 1])
        value = self.heads(self.dense(x, few * block.size), few, [0, 2, 1, 3])
        scores = self.emit(relax.op.matmul(query, self.repeated(key)))
        scores = self.emit(relax.op.multiply(scores, self.const(block.size**-0.5)))
        scores = self.masked(scores, mask)
        shares = self.emit(relax.op.nn.softmax(scores, -1))
        mixed = self.emit(relax.op.matmul(shares, self.repeated(value)))
        mixed = self.emit(relax.op.permute_dims(mixed, [0, 2, 1, 3]))
        joined = self.emit(relax.op.reshape(mixed, (1, block.tokens, block.width)))
        return self.dense(joined, block.width)

    def masked(self, scores: relax.Expr, mask: relax.Var | None) -> relax.Expr:
        block, tokens = self.block, self.block.tokens
        if block.mask.startswith("causal"):
            causal = self.const(np.where(np.tri(tokens), 0, -np.inf))
            scores = self.emit(relax.op.add(scores, causal))
        if block.mask == "additive":
            bias = self.const(self.rng.normal(size=(block.heads, tokens, tokens)))
            scores = self.emit(relax.op.add(scores, bias))
        if mask is None:
            return scores
        if block.mask == "by query":
            return self.emit(relax.op.where(mask, scores, self.const(-np.inf)))
        wide = self.emit(relax.op.expand_dims(self.emit(relax.op.astype(mask, "float32")), [1, 2]))
        gone = self.emit(relax.op.subtract(self.const(1), wide))
        far = self.emit(relax.op.multiply(gone, self.const(-1e4)))
        return self.emit(relax.op.add(scores, far))

    def mask(self) -> relax.Var | None:
        """The input that hides keys."""
        tokens = self.block.tokens
        if self.block.mask == "by query":
            return relax.Var("mask", relax.TensorType((1, 1, tokens, tokens), "bool"))
        if "padding" in self.block.mask:
            return relax.Var("mask", relax.TensorType((1, tokens), "int64"))
        return None

    # ---------------------------------------------------------------- the rest
    def feed_forward(self, x: relax.Expr) -> relax.Expr:
        block = self.block
        wide = self.dense(x, block.hidden)
        if block.activation == "relu":
            wide = self.emit(relax.op.nn.relu(wide))
        elif block.activation == "gelu":
            wide = self.emit(relax.op.nn.gelu(wide))
        else:
            gate = self.emit(relax.op.nn.silu(self.dense(x, block.hidden)))
            wide = self.emit(relax.op.multiply(gate, wide))
        return self.dense(wide, block.width)

    def module(self) -> tvm.IRModule:
        block, mask = self.block, self.mask()
        x = relax.Var("x", relax.TensorType((1, block.tokens, block.width), "float32"))
        with self.builder.function("main", [x] if mask is None else [x, mask]):
            with self.builder.dataflow():
                value: relax.Expr = x
                for part in (lambda y: self.attention(y, mask), self.feed_forward):
                    given = self.normed(value) if block.first else value
                    value = self.emit(relax.op.add(value, part(given)))
                    value = value if block.first else self.normed(value)
                result = self.builder.emit_output(value)
            self.builder.emit_func_output(result)
        return self.builder.get()


def module_of(block: Block) -> tvm.IRModule:
    """The float module of a block."""
    return _Writer(block).module()


def try_block(block: Block) -> frozenset[str]:
    """Compile a block and compare all that it stores on one input.

    Returns:
        The kinds of composites in it.

    Raises:
        AssertionError: tensors differ; the message has the block.
    """
    mod, config = module_of(block), VTAConfig.preset(block.machine)
    names = [str(param.name) for param in mod["main"].params]
    given = samples(mod, 1)[0]
    calibration = [dict(zip(names, given, strict=True))]
    integers = quantize(mod, calibration=calibration, config=config, scales=block.scales)
    compiled = compile_module(integers, config)
    reference = reference_runner(integers, compiled.programs)(given)
    run = profile(compiled.exe, given, arenas=True)
    checks = compare_outputs(["out"], run.outputs, reference)
    checks += compare_stored(run, compiled.programs, reference)
    different = [check.name for check in checks if not check.equal]
    assert different == [], f"{dataclasses.asdict(block)}: {different}"
    return frozenset(
        op.why.rule.removeprefix("pattern ") for op in compiled.placement if op.device == "vta"
    )
