"""The trained decoder of characters: what it writes is what the integer reference writes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
from decoders import Whole
from draws import draws
from stored_parameters import Stored

import vta_byoc as vta
from models import characters
from models._decoder import decoder as made

DEPTH, TOKENS = draws(2, 3), draws(128, 256)
"""Blocks and places that are computed here; the network has three and 256, as `make fuzz` does."""
WRITTEN = TOKENS - len("You may ") + 1


class Beginning(Stored):
    """Those of the trained network with fewer places."""

    def weight(self, name: str, shape: tuple[int, ...], scale: float) -> np.ndarray:
        if name == "positions":
            return self.values[name][: shape[0]]
        return super().weight(name, shape, scale)


def written(parameters: Stored, **sizes: int) -> onnx.ModelProto:
    """The trained network, or one of other sizes, with what its file keeps."""
    trained = onnx.load(characters.TRAINED)
    model = made(characters.NAME, dataclasses.replace(characters.sizes(), **sizes), parameters)
    kept = {each.key: each.value for each in trained.metadata_props}
    onnx.helper.set_model_props(model, kept)
    return model


def test_the_file_is_the_network_with_its_weights() -> None:
    again = written(Stored(characters.TRAINED))
    assert again.SerializeToString(deterministic=True) == characters.TRAINED.read_bytes()


def test_many_characters_of_the_trained_blocks(tmp_path: Path) -> None:
    """The bucket is filled; each is the likeliest of the reference behind those before it."""
    path = tmp_path / "blocks.onnx"
    onnx.save(written(Beginning(characters.TRAINED), depth=DEPTH, tokens=TOKENS), path)
    decoder = vta.decoder(path)
    done = decoder.generate("You may ", WRITTEN)
    prompt = decoder.encoded("You may ")
    wanted = Whole(decoder).logits([*prompt, *done.ids[:-1]])[len(prompt) - 1 :]
    assert np.array_equal(done.logits, wanted)
    assert done.ids == tuple(wanted.argmax(axis=-1).tolist())
    assert len(done.text) == WRITTEN and set(done.text) <= set(characters.characters())
    assert done.runs == {"prefill": 0, "decode": WRITTEN} and done.traffic["caches"] == 0
