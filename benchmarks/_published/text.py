"""Lines and pages of text, drawn with the font that Pillow carries: the same pixels everywhere.

Words are English ones and numbers; sizes, slants, brightness and noise differ from picture to
picture.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont

WORDS = [
    "machine", "learning", "tensor", "accelerator", "page", "invoice", "total", "amount", "price",
    "street", "name", "report", "section", "open", "compiler", "energy", "river", "mountain",
    "water", "light", "green", "yellow", "house", "number", "figure", "table", "result", "first",
    "second", "third", "value", "error", "signal", "noise", "ratio", "line", "word", "2026", "28",
    "19.99", "1,250",
]  # fmt: skip
SLANT = 0.15
"""The largest shift of a letter's top, in its height."""
NOISE = 4.0
"""The deviation of the noise, in steps of 255."""


def _words(rng: np.random.Generator, most: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.integers(1, most + 1)))


def _written(text: str, size: float, rng: np.random.Generator) -> Image.Image:
    """`text` in white on black, slanted, as high and wide as it is."""
    font = ImageFont.load_default(size)
    left, top, right, bottom = (round(edge) for edge in font.getbbox(text))
    margin = round(SLANT * (bottom - top)) + 2
    ink = Image.new("L", (right - left + 2 * margin, bottom - top + 4))
    ImageDraw.Draw(ink).text((margin - left, 2 - top), text, fill=255, font=font)
    slant = rng.uniform(-SLANT, SLANT)
    moved = (1, slant, -slant * ink.height / 2, 0, 1, 0)
    return ink.transform(ink.size, Image.Transform.AFFINE, moved, Image.Resampling.BILINEAR)


def _coloured(ink: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Dark letters on a bright ground, uint8 (height, width, 3); `ink` is what they cover."""
    ground, letters = rng.uniform(180, 255, 3), rng.uniform(0, 100, 3)
    covered = ink[:, :, None] / 255.0
    noise = rng.normal(0.0, NOISE, (*ink.shape, 1))
    mixed = ground * (1 - covered) + letters * covered + noise
    return np.clip(np.rint(mixed), 0, 255).astype(np.uint8)


def line(rng: np.random.Generator, height: int, width: int) -> tuple[str, np.ndarray]:
    """One or two words as high as the picture, and the picture, uint8 (height, width', 3).

    The picture is as wide as its words, at most `width`; what reads it fills it up.
    """
    while True:
        text = _words(rng, 2)
        ink = _written(text, rng.uniform(0.4, 0.75) * height, rng)
        if ink.width <= width:
            break
    paper = Image.new("L", (ink.width, height))
    paper.paste(ink, (0, (height - ink.height) // 2))
    return text, _coloured(np.asarray(paper, np.float64), rng)


def page(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Lines of several sizes one below the other, uint8 (height, width, 3)."""
    paper, y = Image.new("L", (width, height)), int(rng.integers(4, 20))
    while True:
        ink = _written(_words(rng, 3), rng.uniform(12.0, 26.0), rng)
        if y + ink.height > height:
            return _coloured(np.asarray(paper, np.float64), rng)
        paper.paste(ink, (int(rng.integers(4, 30)), y))
        y += ink.height + int(rng.integers(4, 20))
