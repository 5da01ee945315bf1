"""Rotary positions, keys shared by heads, other machines: every logit is the reference's."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from decoders import SMALL, Whole, compiled, drawn_ids, model

from models._decoder import DecoderSizes
from vta_byoc.decoding.decoder import Decoder
from vta_byoc.decoding.sliding import MASK
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.verify.verifier import verify

TOKENS = 32
LLAMA = dataclasses.replace(SMALL, tokens=TOKENS, depth=1, llama=True)
DECODERS: dict[str, tuple[str, DecoderSizes]] = {
    "rotary": ("sim", LLAMA),
    "rotary, keys shared by heads of two blocks, another timing": (
        "core",
        dataclasses.replace(LLAMA, width=64, shared=1),
    ),
    "rotary, blocks of 32": (
        "1x32",
        dataclasses.replace(LLAMA, width=64, hidden=64, tokens=2 * TOKENS),
    ),
}


def found_decoder(name: str) -> Decoder:
    preset, sizes = DECODERS[name]
    return compiled(model(sizes), VTAConfig.preset(preset), sizes.tokens)


@pytest.mark.parametrize("name", DECODERS)
def test_every_token_has_the_logits_of_the_whole_sequence(name: str) -> None:
    decoder = found_decoder(name)
    block = decoder.programs.config.block
    ids = drawn_ids(7, decoder.tokens)[0].tolist()
    wanted = Whole(decoder).logits(ids)
    assert len(np.unique(wanted)) > decoder.tokens
    with decoder.session() as session:
        assert np.array_equal(np.stack([session.extend([each]) for each in ids]), wanted)
        assert session.runs == {"prefill": 0, "decode": decoder.tokens}
        assert session.traffic.caches == 0
        session.reset()
        prompt = block + 3
        behind = [session.extend(ids[:prompt]), *(session.extend([x]) for x in ids[prompt:])]
        assert np.array_equal(np.stack(behind), wanted[prompt - 1 :])
        assert session.runs["prefill"] == 1
    assert not verify(decoder.programs.step.program)
    assert any(held.layout != MASK for held in decoder.programs.sliding.values())  # rotary
