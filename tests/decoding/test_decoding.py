"""A decoder token by token: every logit is that of the whole sequence, and nothing is copied."""

from __future__ import annotations

import numpy as np
import pytest
from decoders import KNOWN, TOKENS, drawn_ids, small, whole

from vta_byoc.decoding.sliding import MASK
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.verify.verifier import verify


def test_every_token_has_the_logits_of_the_whole_sequence() -> None:
    ids = drawn_ids(0)[0].tolist()
    wanted = whole().logits(ids)
    assert len(np.unique(wanted)) > TOKENS  # it says something
    with small().session() as session:
        got = np.stack([session.extend([each]) for each in ids])
    assert np.array_equal(got, wanted)
    assert session.runs == {"prefill": 0, "decode": TOKENS}
    assert {held.layout for held in small().programs.sliding.values()} == {MASK}  # none is rotary


@pytest.mark.parametrize("prompt", [1, 15, 16, 17, 31, 32, 33, 47])
def test_decoding_behind_a_prompt_of_any_length(prompt: int) -> None:
    ids = drawn_ids(prompt)[0].tolist()
    wanted = whole().logits(ids)
    with small().session() as session:
        got = [session.extend(ids[:prompt]), *(session.extend([each]) for each in ids[prompt:])]
    assert np.array_equal(np.stack(got), wanted[prompt - 1 :])
    assert session.runs["prefill"] == (prompt > 16)


@pytest.mark.parametrize("parts", [(20, 20, 8), (3, 30, 15), (16, 16, 16)])
def test_tokens_appended_in_parts(parts: tuple[int, ...]) -> None:
    ids = drawn_ids(sum(parts[:1]))[0].tolist()
    wanted = whole().logits(ids)
    with small().session() as session:
        for end, count in zip(np.cumsum(parts).tolist(), parts, strict=True):
            assert np.array_equal(session.extend(ids[end - count : end]), wanted[end - 1])


def test_another_sequence_reads_nothing_of_the_one_before() -> None:
    first, second = (drawn_ids(seed)[0].tolist() for seed in (50, 51))
    with small().session() as session:
        session.extend(first)
        session.reset()
        assert session.ids == () and session.room == TOKENS
        got = np.stack([session.extend([each]) for each in second])
    assert np.array_equal(got, whole().logits(second))


def test_keys_and_values_are_not_copied_by_the_host() -> None:
    done = small().generate([1, 2, 3], 40)
    assert done.traffic["caches"] == 0
    assert done.runs == {"prefill": 0, "decode": 40}
    windows = small().programs.windows
    cache = sum(int(np.prod(each.shape)) for each in windows.caches)
    a_token = sum(done.traffic.values()) / 40
    assert 0 < a_token < cache


def test_generation_is_that_of_the_reference() -> None:
    done = small().generate("abc", 40)
    assert done.ids == whole().greedy([1, 2, 3], 40)
    assert done.text == "".join(KNOWN[each] for each in done.ids)


def test_the_device_does_not_matter() -> None:
    assert small().generate([4, 5], 20, device="tsim").ids == small().generate([4, 5], 20).ids


@pytest.mark.parametrize("name", ["prefill", "step"])
def test_the_verifier_has_nothing_against_the_programs(name: str) -> None:
    program: Program = getattr(small().programs, name).program
    assert not verify(program)
    assert len(program.of_kind("state")) == (4 if name == "step" else 0)


def test_layers_store_keys_and_values_in_the_caches() -> None:
    """No layer copies there what a projection, or its transposition, has stored elsewhere."""
    program = small().programs.step.program
    states = {symbol.name for symbol in program.of_kind("state")}
    assert states
    assert not states & {layer.name for layer in program.layers}
    assert states <= {layer.output for layer in program.layers}
