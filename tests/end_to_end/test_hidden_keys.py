"""Masks that are inputs of a model: its attention stays on VTA, bit for bit, and near to float."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from attention_cases import (
    Late,
    attention,
    checked_integers,
    computed,
    devices,
    quantized,
    samples,
)
from small_models import call
from tvm import relax

from vta_byoc import quantize
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.ir.quantization_record import float_regions

SIM = VTAConfig.preset("sim")
TOKENS, HEADS, WIDTH = 21, 2, 16
Hide = Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]


def param(name: str, shape: tuple[int, ...], dtype: str) -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


def added(mask: relax.Var, fill: float = -1e4) -> Late:
    """(1 - mask) * fill, as BERT has it."""

    def hide(builder: relax.BlockBuilder, scores: relax.Expr) -> relax.Expr:
        wide = builder.emit(relax.op.astype(mask, "float32"))
        wide = builder.emit(relax.op.expand_dims(wide, [1, 2]))
        gone = builder.emit(relax.op.subtract(relax.const(np.float32(1)), wide))
        far = builder.emit(relax.op.multiply(gone, relax.const(np.float32(fill))))
        return builder.emit(relax.op.add(scores, far))

    return Late(mask, hide)


def replaced(mask: relax.Var) -> Late:
    """where(mask, scores, -infinity), of each query and head."""

    def hide(builder: relax.BlockBuilder, scores: relax.Expr) -> relax.Expr:
        return builder.emit(relax.op.where(mask, scores, relax.const(np.float32(-np.inf))))

    return Late(mask, hide)


def plain(mask: relax.Var) -> Late:
    """What is added to the scores is an input."""
    return Late(mask, lambda builder, scores: builder.emit(relax.op.add(scores, mask)))


LATE = {
    "padding": lambda: added(param("mask", (1, TOKENS), "int64")),
    "padding, least float": lambda: added(
        param("mask", (1, TOKENS), "float32"), float(np.finfo("float32").min)
    ),
    "of each query": lambda: replaced(param("mask", (1, 1, TOKENS, TOKENS), "bool")),
    "of each head": lambda: replaced(param("mask", (1, HEADS, 1, TOKENS), "bool")),
    "an input of floats": lambda: plain(param("far", (TOKENS, TOKENS), "float32")),
}


@pytest.mark.parametrize("name", LATE)
def test_masks_of_run_time(name: str) -> None:
    """One region, whose operand is the mask; with a constant mask too."""
    causal = np.where(np.tri(TOKENS), 0.0, -np.inf) if name.startswith("padding") else None
    mod = attention(TOKENS, HEADS, WIDTH, mask=causal, late=LATE[name]())
    integers = quantized(mod, SIM, "mul")
    compiled = checked_integers(mod, integers, SIM)
    assert len(compiled.programs) == 1
    assert devices(compiled, "relax.nn.softmax") == []
    assert "pattern vta.attention" in [op.why.rule for op in compiled.placement]
    (given, *_) = samples(mod)
    exact, found = computed(mod, given), computed(integers, given)
    noise = np.square(found - exact).sum() / np.square(exact).sum()
    assert -10 * np.log10(noise) > 32


def test_hidden_keys_change_nothing() -> None:
    """The result of queries that see no hidden key is that of other hidden keys."""
    mod = attention(TOKENS, HEADS, WIDTH, late=LATE["padding"]())
    integers = quantized(mod, SIM, "mul")
    ((x, mask), *_) = samples(mod)
    changed = np.where(mask[..., None] == 1, x, -x).astype("float32")
    (first,), (second,) = (call(integers, each, mask) for each in (x, changed))
    kept = mask[0] == 1
    np.testing.assert_array_equal(first[0, kept], second[0, kept])
    assert not np.array_equal(first[0, ~kept], second[0, ~kept])


def test_masks_of_minus_infinity_calibrate() -> None:
    """A sample of 0 and minus infinity is taken as one of the least number is, with its result."""
    mod = attention(TOKENS, HEADS, WIDTH, late=LATE["an input of floats"]())
    ((x, far), *_) = samples(mod)
    found = []
    for fill in (-np.inf, np.finfo("float32").min):
        given = {"x": x, "far": np.where(far < 0, fill, 0).astype("float32")}
        integers = quantize(mod, calibration=[given], config=SIM, scales="mul")
        assert not float_regions(integers)
        found.append(call(integers, *given.values())[0])
    np.testing.assert_array_equal(*found)


def _far(builder: relax.BlockBuilder, scores: relax.Expr, bias: relax.Var) -> relax.Expr:
    """Scores and a bias that reaches as far as masks do."""
    wide = builder.emit(relax.op.multiply(bias, relax.const(100.0, "float32")))
    return builder.emit(relax.op.add(scores, wide))


def test_a_bias_of_run_time_is_no_mask() -> None:
    """What is added to the scores and does not hide keys leaves the softmax to stand alone.

    Where it reaches as far as a mask does, it stays on the CPU.
    """
    bias = param("bias", (TOKENS, TOKENS), "float32")
    mod = attention(TOKENS, HEADS, WIDTH, late=plain(bias))
    integers = quantized(mod, SIM, "mul")
    kinds = [op_name(b.value) for b in straight_bindings(integers["main"])]
    assert "relax.nn.softmax" not in kinds and not float_regions(integers)
    far = attention(TOKENS, HEADS, WIDTH, late=Late(bias, functools.partial(_far, bias=bias)))
    integers = quantized(far, SIM, "mul")
    kinds = [op_name(b.value) for b in straight_bindings(integers["main"])]
    assert "relax.nn.softmax" in kinds
    (reason,) = (each.text for each in float_regions(integers).values())
    assert reason == (
        "stays float: it adds to its scores what the model computes and not as masks are, which "
        "are 0 or -1,000 and less; hide keys by where, or by (1 - mask) times a number of -1,000 "
        "or less"
    )
