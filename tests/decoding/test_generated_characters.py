"""The trained decoder of characters: what it writes is what the integer reference writes."""

from __future__ import annotations

from decoders import Whole

import vta_byoc as vta
from models import characters


def test_200_characters_of_the_trained_model() -> None:
    decoder = vta.decoder(characters.TRAINED)
    done = decoder.generate("You may ", 200)
    assert done.ids == Whole(decoder).greedy(decoder.encoded("You may "), 200)
    assert len(done.text) == 200 and set(done.text) <= set(characters.characters())
    assert done.runs == {"prefill": 0, "decode": 200} and done.traffic["caches"] == 0
