"""What a decoder refuses, in whole."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from attention_cases import attention
from decoders import KNOWN, SMALL, compiled, model, small
from tvm import relax

import vta_byoc as vta
from vta_byoc.decoding.windows import windows_of
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.quantize import quantize

FORM = "export it as ids (1, T) to logits (1, T, vocabulary), causal"


def extended(ids: list[int]) -> None:
    with small().session() as session:
        session.extend(ids)


SEQUENCES: dict[str, tuple[Callable[[], object], str]] = {
    "a long prompt": (
        lambda: small().generate([0] * 49, 1),
        "the prompt has 49 tokens; the bucket takes 48; shorten the prompt, or export the model "
        "with more tokens",
    ),
    "too many tokens": (
        lambda: small().generate([0] * 40, 10),
        "40 tokens of the prompt and 10 more fill the bucket, which takes 48; ask for 9 or fewer, "
        "or export the model with more tokens",
    ),
    "no tokens wanted": (
        lambda: small().generate([0], 0),
        "0 tokens are wanted; 1 or more are generated; ask for one",
    ),
    "an empty prompt": (
        lambda: small().generate("", 3),
        "0 tokens are appended; 1 or more are; give the prompt a token",
    ),
    "an unknown character": (
        lambda: small().generate("abXc", 3),
        f"character 'X' at place 2 of the prompt; the model knows 11: {KNOWN!r}; write the prompt "
        "with these",
    ),
    "text without characters": (
        lambda: dataclasses.replace(small(), characters=None).generate("abc", 3),
        "the prompt is a text of 3 characters; the model keeps no characters (metadata "
        '"characters" of an ONNX file); give the prompt as numbers of tokens',
    ),
    "a number above the vocabulary": (
        lambda: small().generate([3, 11], 3),
        "token 11 at place 1; the model has 11, from 0 to 10; give numbers of these",
    ),
    "a negative number": (
        lambda: extended([-1]),
        "token -1 at place 0; the model has 11, from 0 to 10; give numbers of these",
    ),
    "more than there is room for": (
        lambda: extended([0] * 49),
        "49 tokens behind 0; the bucket takes 48; shorten the prompt, or export the model with "
        "more tokens",
    ),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences(name: str) -> None:
    act, text = SEQUENCES[name]
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        act()


def test_a_refused_call_leaves_the_sequence_as_it_was() -> None:
    with small().session() as session:
        session.extend([1, 2])
        with pytest.raises(VTAError, match="^token 99 at place 1"):
            session.extend([3, 99])
        assert session.ids == (1, 2)


def machine(**changes: object) -> VTAConfig:
    return dataclasses.replace(VTAConfig.preset("sim"), **changes)  # type: ignore[arg-type]


def test_a_machine_without_mul() -> None:
    plain = VTAConfig.preset("sim")
    bare = machine(capabilities=dataclasses.replace(plain.capabilities, mul=False))
    text = (
        f"machine {bare.name} has no MUL; softmax and normalizations of a decoder multiply; use a "
        "machine with CAPABILITIES.mul"
    )
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        vta.decoder(small().qmod, bare)


def test_nothing_to_calibrate_with() -> None:
    builder = relax.BlockBuilder()
    ids = relax.Var("ids", relax.TensorType((1, 48), "int64"))
    with builder.function("main", [ids]):
        builder.emit_func_output(ids)
    text = (
        "calibration is None and the model keeps no text of its length; quantization reads "
        "samples; give sequences (1, T)"
    )
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        vta.decoder(builder.get())


def module(tokens: int, axis: int | None = None) -> tvm.IRModule:
    """A layer without attention on (1, tokens, 16), or a sum over an axis of it."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, tokens, 16), "float32"))
    with builder.function("main", [x]):
        weight = relax.const(np.ones((16, 16), "float32"))
        call = relax.op.matmul(x, weight) if axis is None else relax.op.sum(x, axis)
        with builder.dataflow():
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.get()


MODELS: dict[str, tuple[Callable[[], tvm.IRModule], str]] = {
    "two inputs": (
        lambda: attention(32, 1, 16, 32),
        "the model takes 2 inputs of shapes (1, 32, 16), (1, 32, 16); a decoder takes one, ids "
        f"(1, T); {FORM}",
    ),
    "no whole blocks": (
        lambda: attention(40, 1, 16),
        "the model takes 40 tokens; a bucket is 32 or more, in blocks of 16; export the model with "
        "such a length",
    ),
    "one block": (
        lambda: attention(16, 1, 16),
        "the model takes 16 tokens; a bucket is 32 or more, in blocks of 16; export the model with "
        "such a length",
    ),
    "no attention": (
        lambda: module(32),
        f"the model has no attention between its tokens; a decoder has one; {FORM}",
    ),
    "no mask": (
        lambda: quantize(attention(32, 1, 16), calibration=[np.ones((1, 32, 16), "float32")]),
        f"0 of 1 attentions have a causal mask; in a decoder all have one; {FORM}",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_that_are_no_decoders(name: str) -> None:
    made, text = MODELS[name]
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        windows_of(made(), 16)


def test_tokens_that_mix_outside_of_attention() -> None:
    with pytest.raises(VTAError) as caught:
        windows_of(module(32, axis=1), 16)
    assert re.fullmatch(
        r'"\w+" \(relax\.sum\) mixes tokens; in a decoder only causal attention does; '
        + re.escape(FORM),
        str(caught.value),
    )


EARLIER = np.tril(np.ones((32, 32), bool))
MASKS: dict[str, tuple[np.ndarray, str]] = {
    "earlier tokens hidden": (EARLIER.T, "lets a token see a later one; a decoder is causal; "),
    "the next token shown": (
        np.tril(np.ones((32, 32), bool), 1),
        "lets a token see a later one; a decoder is causal; ",
    ),
    "everything shown": (np.ones((32, 32), bool), "hides nothing; a decoder is causal; "),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_that_are_not_causal(name: str) -> None:
    shown, text = MASKS[name]
    mask = np.where(shown, -1.0 if shown.all() else 0.0, -1e4)
    mask[0, 0] = 0.0
    mod = attention(32, 1, 16, mask=mask)
    qmod = quantize(mod, calibration=[np.ones((1, 32, 16), "float32")])
    with pytest.raises(VTAError) as caught:
        windows_of(qmod, 16)
    assert re.fullmatch(rf'the mask of "\w+" {re.escape(text + FORM)}', str(caught.value))


@pytest.mark.parametrize("fill", [-1e3, -1e4, -1e9, float(np.finfo("float32").min), -np.inf])
@pytest.mark.parametrize("biased", [False, True])
def test_masks_that_hide_by_any_large_number(fill: float, biased: bool) -> None:
    """Whatever the operands are: they hide as minus infinity does, beside a bias too."""
    bias = np.tri(32) * np.arange(32) / 8 if biased else 0.0
    mod = attention(32, 1, 16, mask=np.where(EARLIER, 0.0, fill) + bias)
    qmod = quantize(mod, calibration=[np.full((1, 32, 16), 300, "float32")])
    assert len(windows_of(qmod, 16).masks) == 1


def test_heads_that_are_no_whole_blocks() -> None:
    text = (
        "a head has 24 channels; caches keep keys and values in whole blocks of 16, the machine's "
        "BLOCK; export the model with heads of 32 channels"
    )
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        compiled(model(dataclasses.replace(SMALL, tokens=32, width=48, depth=1)), tokens=32)


def test_a_machine_with_a_batch() -> None:
    text = (
        "machine 2x16 has BATCH 2; a decoder takes 1: a weight serves all images of a batch; use a "
        "machine with BATCH 1"
    )
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        vta.decoder(small().qmod, VTAConfig.preset("2x16"))


def test_inputs_that_are_no_ids() -> None:
    text = (
        "the model takes x (1, 32, 16) float32, y (1, 40, 16) float32; a decoder takes ids, "
        f"integers (1, T), and nothing else; {FORM}"
    )
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        vta.decoder(attention(32, 1, 16, 40))


def test_attention_that_is_left_in_float() -> None:
    with pytest.raises(VTAError) as caught:
        windows_of(attention(32, 1, 16), 16)
    text = r'"\w+" of an attention is float32; caches hold int8; quantize it'
    assert re.fullmatch(text, str(caught.value))
