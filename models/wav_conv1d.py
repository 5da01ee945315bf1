"""Waveforms from code: `python models/wav_conv1d.py -o wav_conv1d.onnx`.

The M5 network of Dai et al., 2016, as PyTorch's tutorial on speech commands has it: 26,915
parameters: convolutions along one axis, on a second of sound at 8 kHz. The logarithm of its softmax
is not part of the network.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np

from models._activations import RELU
from models._blocks import BlockBuilder
from models._build import Tensor, random_filters
from models._exact import F32
from models._zoo import SignalModel

SAMPLES = 8000
LAYERS = ((32, 80, 16), (32, 3, 1), (64, 3, 1), (64, 3, 1))
"""Channels, kernel and stride; a pooling of four follows each."""
POOL = 4
WORDS = 35
STEP = 1 / 64
"""Samples are multiples of it within 120 of them: int8 holds them without error."""


def waves(n: int, seed: int) -> F32:
    """`n` sums of chirps that swell and fade, float32 (n, 1, 8000)."""
    return np.stack([_wave(np.random.RandomState([seed, i])) for i in range(n)])[:, None]


def _wave(rng: np.random.RandomState) -> F32:
    at = np.arange(SAMPLES) / SAMPLES
    total = np.zeros(SAMPLES)
    for _ in range(rng.randint(3, 7)):
        start, slope, phase = rng.uniform(40, 1200), rng.uniform(-400, 800), rng.uniform(0, 1)
        swell = np.exp(-(((at - rng.uniform(0.2, 0.8)) / rng.uniform(0.05, 0.4)) ** 2))
        total += rng.uniform(0.3, 1) * swell * np.sin(2 * np.pi * (start + slope * at) * at + phase)
    total *= 0.6 / total.std()
    total += 0.05 * rng.standard_normal(SAMPLES)
    return np.asarray(np.clip(np.rint(total / STEP), -120, 120) * STEP, np.float32)


def network(b: BlockBuilder) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    x = b.input
    for layer, (channels, kernel, stride) in enumerate(LAYERS, start=1):
        name = f"conv{layer}"
        w = random_filters(b.rng(name), (channels, x.data.shape[1], 1, kernel))
        x = b.conv1d(x, name, w, stride=stride, bias=b.small_bias(name, channels))
        x = b.bn_act(x, f"{name}.bn", f"{name}.act", RELU, pooled=layer == len(LAYERS))
        x = b.max_pool1d(x, f"pool{layer}", kernel=POOL)
    x = b.flatten(b.global_average_pool(x, "avgpool"), "flatten")
    return (b.dense(x, "fc", features=WORDS, output="logits"),)


MODEL = SignalModel("wav_conv1d", network, waves, "wave")
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
