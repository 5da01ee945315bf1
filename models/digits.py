r"""Handwritten digits, five folds of them, and networks that were trained on each.

The images are those of scikit-learn (`sklearn.datasets.load_digits`): 1,797 digits of 8x8 pixels
with values 0 to 16, the test part of "Optical Recognition of Handwritten Digits" (UCI Machine
Learning Repository, Alpaydin and Kaynak, 1998, CC BY 4.0). Here they are enlarged to 16x16.

The networks of fold k have not seen the images of fold k: each image is held out once, so figures
over the five folds together are about 1,797 images that are new to the network that judges them.
`models/train_digits.py` made the files of `models/trained`.

    python models/digits.py --fold 0 -o held-out.npz --calibration calibration.npz
    vta-byoc eval models/trained/resnet8_fold0.onnx --data held-out.npz \
        --calibration calibration.npz
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models import _command
from models._command import ModelError
from models._exact import F32

CONVOLUTIONAL = ("resnet8", "mobilenet", "mobilenet_v3")
VIT = "vit"
"""A vision transformer of three blocks."""
NETWORKS = (*CONVOLUTIONAL, VIT)
FOLDS = 5
CLASSES = 10
SIZE = 16
"""Height and width of an input: twice those of an image."""
IMAGES = 1797
INPUT, LABELS = "image", "labels"
"""Names of the arrays in the files that `main` writes; INPUT is also the networks' input."""
MEAN, DEVIATION = 0.3, 0.31
"""Of the pixels of enlarged images, from 0 to 1."""
CALIBRATION_INPUTS = 256
TRAINED = Path(__file__).resolve().parent / "trained"
RECORD = TRAINED / "digits.json"

Indices = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Digits:
    """Inputs (n, 1, SIZE, SIZE) and their labels (n,), 0 to 9."""

    inputs: F32
    labels: Labels

    def of(self, indices: Indices) -> Digits:
        """Some of them, in the order of `indices`."""
        return Digits(self.inputs[indices], self.labels[indices])


@functools.cache
def raw() -> tuple[F32, Labels]:
    """The images as they come, (1797, 8, 8) with values 0 to 16, and their labels.

    Raises:
        ModelError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ModelError(
            "scikit-learn is not installed; the digits come with it; run: "
            "python -m pip install scikit-learn"
        ) from error
    digits = load_digits()
    return digits.images.astype(np.float32), digits.target.astype(np.int64)


@functools.cache
def load() -> Digits:
    """All 1,797 digits as the networks take them."""
    images, labels = raw()
    return Digits(normalised(enlarged(images)[:, None] / np.float32(16)), labels)


def enlarged(images: F32) -> F32:
    """Twice the height and width, bilinear between pixel centres; zero beyond the edges."""
    for axis in (1, 2):
        images = np.moveaxis(images, axis, 0)
        padded = np.pad(images, [(1, 1), (0, 0), (0, 0)])
        halves = [0.75 * images + 0.25 * padded[:-2], 0.75 * images + 0.25 * padded[2:]]
        both = np.stack(halves, axis=1).reshape(-1, *images.shape[1:])
        images = np.moveaxis(both, 0, axis)
    return np.ascontiguousarray(images, np.float32)


def normalised(pixels: F32) -> F32:
    """Pixels from 0 to 1 less MEAN, over DEVIATION."""
    return np.asarray((pixels - MEAN) / DEVIATION, np.float32)


# ---------------------------------------------------------------- folds
def split(labels: Labels, seed: int) -> list[Indices]:
    """FOLDS disjoint sorted sets of all indices, each with the same share of every class."""
    rng = np.random.RandomState(seed)  # its streams are frozen (NEP 19)
    parts: list[list[int]] = [[] for _ in range(FOLDS)]
    dealt = 0
    for digit in range(CLASSES):
        for index in rng.permutation(np.flatnonzero(labels == digit)):
            parts[dealt % FOLDS].append(int(index))
            dealt += 1
    return [np.array(sorted(part), np.int64) for part in parts]


@functools.cache
def record() -> dict[str, Any]:
    """What `train_digits` wrote beside the networks: folds, versions, correct predictions."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def held_out_indices(fold: int) -> Indices:
    """The images that the networks of `fold` have not seen."""
    return np.array(record()["folds"][fold], np.int64)


def training_indices(fold: int) -> Indices:
    """All others."""
    return np.setdiff1d(np.arange(IMAGES), held_out_indices(fold))


def held_out(fold: int) -> Digits:
    """The digits to measure the networks of `fold` with."""
    return load().of(held_out_indices(fold))


def calibration_inputs(fold: int, n: int = CALIBRATION_INPUTS) -> F32:
    """`n` inputs from all over the training images of `fold`, (n, 1, SIZE, SIZE)."""
    indices = training_indices(fold)
    return load().inputs[indices[np.arange(n) * len(indices) // n]]


def trained(network: str, fold: int) -> Path:
    """The ONNX file of a trained network: input `image` (1, 1, 16, 16), output `logits` (1, 10)."""
    return TRAINED / f"{network}_fold{fold}.onnx"


# ---------------------------------------------------------------- as a script
def main(arguments: Sequence[str] | None = None) -> int:
    """Write the digits of a fold; returns the exit code: 0, or 2 after an error line."""
    parser = _command._Parser(description="Write the held-out digits of a fold as an .npz file.")
    parser.add_argument("--fold", type=int, choices=range(FOLDS), default=0, help="default: 0")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.npz", help="file to write")
    text = f"also write {CALIBRATION_INPUTS} of the other digits to calibrate with"
    parser.add_argument("--calibration", metavar="FILE.npz", help=text)
    try:
        given = parser.parse_args(arguments)
        digits = held_out(given.fold)
        arrays: dict[str, np.ndarray] = {INPUT: digits.inputs, LABELS: digits.labels}
        _command.write_atomically(Path(given.output), lambda: _command._npz(**arrays))
        if given.calibration:
            inputs = calibration_inputs(given.fold)
            made = _command._npz(**{INPUT: inputs})
            _command.write_atomically(Path(given.calibration), lambda: made)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"digits: wrote {given.output}, {len(digits.labels)} digits of fold {given.fold}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
