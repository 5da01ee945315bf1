"""What networks that look at text are for: inputs whose answer is known, and who gives it."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx

from benchmarks._published import text

Scaling: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
"""Of each channel, what is taken from pixels from 0 to 1 and what they are divided by then."""
HALF: Scaling = ((0.5,) * 3, (0.5,) * 3)
IMAGENET: Scaling = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""The mean and the deviation of the pixels of ImageNet."""
PLAIN: Scaling = ((0.0,) * 3, (1.0,) * 3)
BYTES: Scaling = ((0.0,) * 3, (1 / 255,) * 3)
"""From 0 to 255."""
MARKED = 0.3
"""From this probability on a pixel is one of text, as the packages have it."""
METADATA = "metadata"
"""The alphabet stands in the ONNX file, under `character`."""


@dataclass(frozen=True)
class Task:
    """How inputs of a network are drawn, and what its results are held against.

    Attributes:
        kind: "read" (a line's characters, by CTC), "turned" (by which part of a full turn a
            picture is turned), "mark" (the pixels that are text, against the runtime's).
        scaling: of the pixels.
        drawn: "line" or "page".
        turns: the turns that the network tells apart, in quarters.
        calibration: pictures that choose the scales.
        samples: pictures that are judged.
        alphabet: of "read": `METADATA`, or the end of a file's path in the wheel.
    """

    kind: str
    scaling: Scaling
    drawn: str
    turns: tuple[int, ...] = (0,)
    calibration: int = 8
    samples: int = 4
    alphabet: str = ""


@dataclass(frozen=True)
class Sample:
    """A picture as the network takes it, float32 (1, channels, height, width), and its answer."""

    picture: np.ndarray
    answer: str | int


def scaled(pixels: np.ndarray, scaling: Scaling) -> np.ndarray:
    """Pixels [height, width, channels] from 0 to 1 as a network takes them."""
    mean, deviation = (np.array(each)[: pixels.shape[-1]] for each in scaling)
    found: np.ndarray = (pixels - mean) / deviation
    return found


def drawn(task: Task, rng: np.random.Generator, shape: Sequence[int]) -> Sample:
    """A sample of the network's input shape (1, channels, height, width)."""
    _, channels, height, width = shape
    turn = int(rng.integers(len(task.turns)))
    answer: str | int = turn
    if task.drawn == "line":
        words, pixels = text.line(rng, height, width)
        answer = words if task.kind == "read" else turn
    else:
        pixels = text.page(rng, height, width)
    pixels = np.rot90(pixels, task.turns[turn])
    fed = scaled(pixels / 255.0, task.scaling)
    whole = np.zeros((height, width, 3))
    whole[:, : fed.shape[1]] = fed
    planes = whole.transpose(2, 0, 1)
    if channels == 1:
        planes = planes.mean(axis=0, keepdims=True)
    return Sample(np.ascontiguousarray(planes[None], "float32"), answer)


# ---------------------------------------------------------------- judging
def right_of(
    task: Task,
    samples: Sequence[Sample],
    got: Sequence[np.ndarray],
    runtime: Sequence[np.ndarray],
    alphabet: Sequence[str],
) -> float:
    """The share of the answers that are right, in percent.

    Of marked pixels: those that both the results and the runtime's mark, of those that one does.
    """
    if task.kind == "mark":
        pairs = [(a > MARKED, b > MARKED) for a, b in zip(got, runtime, strict=True)]
        both = sum(int((a & b).sum()) for a, b in pairs)
        either = sum(int((a | b).sum()) for a, b in pairs)
        return 100.0 * both / either if either else math.nan
    answer: Callable[[np.ndarray], str | int]
    answer = (lambda y: characters(y[0], alphabet)) if task.kind == "read" else _class_of
    right = [answer(y) == sample.answer for y, sample in zip(got, samples, strict=True)]
    return 100.0 * sum(right) / len(right)


def _class_of(result: np.ndarray) -> int:
    return int(result.reshape(-1).argmax())


def characters(result: np.ndarray, alphabet: Sequence[str]) -> str:
    """What CTC reads in probabilities (steps, characters), blanks around it left out."""
    chosen = result.argmax(axis=-1)
    new = np.concatenate(([True], chosen[1:] != chosen[:-1]))
    return "".join(alphabet[c] for c in chosen[new & (chosen != 0)]).strip()


def alphabet_of(task: Task, path: Path, wheel: Path) -> list[str]:
    """The characters by their class: 0 is CTC's nothing, the last a blank."""
    if not task.alphabet:
        return []
    if task.alphabet == METADATA:
        stored = {each.key: each.value for each in onnx.load(path).metadata_props}
        listed = stored["character"]
    else:
        with zipfile.ZipFile(wheel) as archive:
            (member,) = [n for n in archive.namelist() if n.endswith(f"/{task.alphabet}")]
            listed = archive.read(member).decode("utf-8")
    return ["", *listed.splitlines(), " "]
