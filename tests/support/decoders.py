"""Small decoders of drawn weights, compiled once, and what their reference says."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

import vta_byoc as vta
from models._decoder import DecoderSizes
from models._decoder import decoder as made
from models._vit import Drawn
from vta_byoc.decoding.decoder import Decoder
from vta_byoc.hw.config import VTAConfig
from vta_byoc.validation.bit_exact import reference_runner

TOKENS, VOCABULARY = 48, 11
KNOWN = " abcdefghij"
SMALL = DecoderSizes(tokens=TOKENS, width=32, heads=2, hidden=48, depth=2, vocabulary=VOCABULARY)


def drawn_ids(seed: int, count: int = TOKENS) -> np.ndarray:
    """Tokens (1, count)."""
    return np.random.default_rng(seed).integers(0, VOCABULARY, (1, count))


def model(sizes: DecoderSizes = SMALL) -> onnx.ModelProto:
    """A decoder of drawn weights."""
    return made("small", sizes, Drawn(3))


def compiled(
    given: onnx.ModelProto, config: VTAConfig | None = None, tokens: int = TOKENS
) -> Decoder:
    """A model for a machine, the default preset where None, calibrated with drawn sequences."""
    samples = [drawn_ids(seed, tokens) for seed in range(1, 5)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(given, path)
        return vta.decoder(path, config, calibration=samples)


@functools.cache
def small() -> Decoder:
    """The decoder that tests share; its file keeps eleven characters."""
    given = model()
    onnx.helper.set_model_props(given, {"characters": KNOWN})
    return compiled(given)


class Whole:
    """The integer reference, which computes the whole sequence on llvm."""

    def __init__(self, decoder: Decoder) -> None:
        self._run = reference_runner(decoder.qmod, {})
        self._tokens, self._dtype = decoder.tokens, decoder.programs.windows.ids_dtype

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """Those of each token: (tokens, vocabulary)."""
        padded = np.array([[*ids, *[0] * (self._tokens - len(ids))]], self._dtype)
        return self._run([padded]).outputs[0][0, : len(ids)]

    def greedy(self, ids: Sequence[int], count: int) -> tuple[int, ...]:
        """The likeliest tokens behind `ids`, each of a whole sequence computed anew."""
        found = list(ids)
        for _ in range(count):
            found.append(int(self.logits(found)[-1].argmax()))
        return tuple(found[len(ids) :])


@functools.cache
def whole() -> Whole:
    """The reference of the decoder that tests share."""
    return Whole(small())
