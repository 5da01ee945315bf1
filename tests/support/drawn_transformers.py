"""Transformer blocks drawn at random, quantized, compiled and compared with the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from attention_cases import samples
from operators_llvm import OPERATORS
from region_runs import compared
from tvm import relax

from vta_byoc import quantize
from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.partition import Placement
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import (
    OUTPUT,
    TensorCheck,
    compare_outputs,
    compare_stored,
    reference_runner,
)

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
        rotary: whether queries and keys are turned by their positions.
        memory: tokens of another input, of which keys and values are; 0 where they are of its own.
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
    rotary: bool
    memory: int

    @property
    def width(self) -> int:
        """Channels of a token."""
        return self.heads * self.size

    @property
    def keys(self) -> int:
        """Tokens that have keys and values."""
        return self.memory or self.tokens


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
        bool(rng.integers(4) == 0),
        int(rng.integers(1, 3 * k + 3)) if rng.integers(4) == 0 else 0,
    )


def drawn_small(seed: int) -> Block:
    """A block of the same kinds that takes less than a second.

    It has up to half as many tokens again as a block of the machine, up to four heads, and, but for
    one of seventeen, ReLU: for other activations a function is searched for.
    """
    block = drawn(seed)
    k = VTAConfig.preset(block.machine).block
    most = k + k // 2
    return dataclasses.replace(
        block,
        tokens=1 + block.tokens % most,
        heads=min(block.heads, 4 // block.shared * block.shared),
        size=min(block.size, k + 8),
        hidden=1 + block.hidden % (2 * k),
        activation=ACTIVATIONS[1 + seed // 34 % 2] if seed % 17 == 7 else "relu",
        memory=block.memory and 1 + block.memory % most,
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
    def heads(self, x: relax.Expr, count: int) -> relax.Expr:
        shape = (1, int(x.ty.shape[1]), count, self.block.size)
        apart = self.emit(relax.op.reshape(x, shape))
        return self.emit(relax.op.permute_dims(apart, [0, 2, 1, 3]))

    def turned(self, x: relax.Expr) -> relax.Expr:
        """Queries or keys by their positions."""
        if not self.block.rotary:
            return x
        size, tokens = self.block.size, int(x.ty.shape[2])
        rates = 10000.0 ** -(np.arange(0, size, 2) / size)
        turns = np.tile(np.outer(np.arange(tokens), rates), 2)
        first = self.emit(relax.op.strided_slice(x, [3], [0], [size // 2]))
        second = self.emit(relax.op.strided_slice(x, [3], [size // 2], [size]))
        other = self.emit(relax.op.concat([self.emit(relax.op.negative(second)), first], 3))
        cos = self.emit(relax.op.multiply(x, self.const(np.cos(turns))))
        sin = self.emit(relax.op.multiply(other, self.const(np.sin(turns))))
        return self.emit(relax.op.add(cos, sin))

    def repeated(self, x: relax.Expr) -> relax.Expr:
        """Heads of keys or values, once for each head of queries."""
        shared = self.block.shared
        return x if shared == 1 else self.emit(relax.op.repeat(x, shared, 1))

    def attention(self, x: relax.Expr, other: relax.Expr, mask: relax.Var | None) -> relax.Expr:
        """Of ``x`` to the tokens ``other``."""
        block = self.block
        few = block.heads // block.shared
        query = self.turned(self.heads(self.dense(x, block.width), block.heads))
        key = self.turned(self.heads(self.dense(other, few * block.size), few))
        key = self.emit(relax.op.permute_dims(key, [0, 1, 3, 2]))
        value = self.heads(self.dense(other, few * block.size), few)
        scores = self.emit(relax.op.matmul(query, self.repeated(key)))
        scores = self.emit(relax.op.multiply(scores, self.const(block.size**-0.5)))
        scores = self.masked(scores, mask)
        shares = self.emit(relax.op.nn.softmax(scores, -1))
        mixed = self.emit(relax.op.matmul(shares, self.repeated(value)))
        mixed = self.emit(relax.op.permute_dims(mixed, [0, 2, 1, 3]))
        joined = self.emit(relax.op.reshape(mixed, (1, block.tokens, block.width)))
        return self.dense(joined, block.width)

    def masked(self, scores: relax.Expr, mask: relax.Var | None) -> relax.Expr:
        block, shape = self.block, (self.block.tokens, self.block.keys)
        if block.mask.startswith("causal"):
            causal = self.const(np.where(np.tri(*shape), 0, -np.inf))
            scores = self.emit(relax.op.add(scores, causal))
        if block.mask == "additive":
            bias = self.const(self.rng.normal(size=(block.heads, *shape)))
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
        tokens, keys = self.block.tokens, self.block.keys
        if self.block.mask == "by query":
            return relax.Var("mask", relax.TensorType((1, 1, tokens, keys), "bool"))
        if "padding" in self.block.mask:
            return relax.Var("mask", relax.TensorType((1, keys), "int64"))
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
        memory = relax.Var("memory", relax.TensorType((1, block.keys, block.width), "float32"))
        params = [x, *([memory] if block.memory else []), *([] if mask is None else [mask])]
        with self.builder.function("main", params):
            with self.builder.dataflow():
                value: relax.Expr = x
                for part in (
                    lambda y: self.attention(y, memory if block.memory else y, mask),
                    self.feed_forward,
                ):
                    given = self.normed(value) if block.first else value
                    value = self.emit(relax.op.add(value, part(given)))
                    value = value if block.first else self.normed(value)
                result = self.builder.emit_output(value)
            self.builder.emit_func_output(result)
        return self.builder.get()


def module_of(block: Block) -> tvm.IRModule:
    """The float module of a block, in the form of the importers."""
    return normalize(_Writer(block).module())


def try_block(block: Block) -> frozenset[str]:
    """Compile a block as users do and compare all that it stores on one input.

    Returns:
        The kinds of composites in it.

    Raises:
        AssertionError: tensors differ; the message has the block.
    """
    integers, given = quantized(block)
    compiled = compile_module(integers, VTAConfig.preset(block.machine))
    reference = reference_runner(integers, compiled.programs)(given)
    run = profile(compiled.exe, given, arenas=True)
    checks = compare_outputs(["out"], run.outputs, reference)
    checks += compare_stored(run, compiled.programs, reference)
    return _kinds(block, checks, compiled.placement)


def try_parts(block: Block) -> frozenset[str]:
    """As `try_block` in a quarter of the time: what was built once is not built again."""
    with OPERATORS.calibrating():
        integers, given = quantized(block)
    config = VTAConfig.preset(block.machine)
    return _kinds(block, *compared(integers, config, given))


def quantized(block: Block) -> tuple[tvm.IRModule, list[np.ndarray]]:
    """A block in integers, and the input that it was calibrated with."""
    mod, config = module_of(block), VTAConfig.preset(block.machine)
    names = [str(param.name) for param in mod["main"].params]
    given = samples(mod, 1)[0]
    calibration = [dict(zip(names, given, strict=True))]
    return quantize(mod, calibration=calibration, config=config, scales=block.scales), given


def _kinds(
    block: Block, checks: Sequence[TensorCheck], placement: Iterable[Placement]
) -> frozenset[str]:
    """The kinds of composites; all checks must say that there is no difference."""
    assert {check.where for check in checks} > {OUTPUT}, f"{block}: nothing is stored"
    different = [str(check) for check in checks if not check.equal]
    assert different == [], f"{block}: {different}"
    taken = [op.why for op in placement if op.device == "vta"]
    return frozenset(why.rule.removeprefix("pattern ") for why in taken)
