"""Calibration samples from a folder of images, read one at a time.

An image is resized (bilinear, antialiased, aspect ratio kept), cut to the middle, divided by 255,
and normalized: `(pixel / 255 - mean) / std`, channel by channel in the order R, G, B.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import tvm

from vta_byoc.hw.errors import VTAError
from vta_byoc.quantization.calibration.samples import input_shapes

if TYPE_CHECKING:
    from PIL import Image

EXTENSIONS = frozenset(
    (*(".bmp", ".gif", ".jpeg", ".jpg", ".pgm"), *(".png", ".ppm", ".tif", ".tiff", ".webp"))
)
LAYOUTS = {"NCHW": (1, 2, 3), "NHWC": (3, 1, 2)}
"""Layout -> axes of channels, rows and columns."""
WIDE_MODES = ("I", "F")
"""Pixels of 16 or 32 bits: turning them into 8 would cut, not scale."""


@dataclass(frozen=True)
class Preprocessing:
    """What happens to a pixel between the file and the model.

    Attributes:
        mean, std: of the pixels divided by 255; one value, or one per channel. A model that takes
            0 to 255 has mean 0 and std 1/255.
        size: length of the shorter side before the middle is cut out; None: as short as the
            model's input allows.
        layout: of the model's input, "NCHW" or "NHWC"; None: the one that has 1 or 3 channels.
        limit: use only the first images, in the order of their names; None: all.

    Raises:
        VTAError: a value that no image can be prepared with.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    size: int | None = None
    layout: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, 3) or not all(map(math.isfinite, values)):
                raise VTAError(
                    f"image {name} {_listed(values)}; one finite number is needed, or one for "
                    f"each of 3 channels; give for example {name}=0.5"
                )
        if min(self.std) <= 0:
            raise VTAError(
                f"image std {_listed(self.std)}; it divides the pixels and must be above 0; "
                "leave it out to divide by 255 only"
            )
        for name, value in (("size", self.size), ("limit", self.limit)):
            if value is not None and value < 1:
                raise VTAError(f"image {name} {value}; it must be at least 1; leave it out")
        if self.layout not in (None, *LAYOUTS):
            raise VTAError(f'image layout "{self.layout}"; NCHW and NHWC are known; leave it out')


@dataclass(frozen=True)
class ImageFolder:
    """A folder as samples: each iteration opens the files anew, in the order of their names.

    Attributes:
        name, shape: of the model's input; `shape[0]` images make a sample.
        files: the images that are used.
        ignored: how many other entries the folder has: other files, and folders.
        preprocessing: with the layout filled in.
    """

    name: str
    shape: tuple[int, ...]
    files: tuple[Path, ...]
    ignored: int
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.files) // self.shape[0]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        batch = self.shape[0]
        for index in range(len(self)):
            files = self.files[index * batch : (index + 1) * batch]
            yield {self.name: np.stack([self._prepared(file) for file in files])}

    def _prepared(self, file: Path) -> np.ndarray:
        channels, rows, columns = (self.shape[axis] for axis in LAYOUTS[self._layout])
        image = _opened(file, "RGB" if channels == 3 else "L")
        image = _cropped(image, rows, columns, self.preprocessing.size)
        pixels = np.asarray(image, "float32").reshape(rows, columns, channels) / np.float32(255)
        mean = np.asarray(self.preprocessing.mean, "float32")
        std = np.asarray(self.preprocessing.std, "float32")
        values = (pixels - mean) / std
        return values if self._layout == "NHWC" else np.ascontiguousarray(values.transpose(2, 0, 1))

    @property
    def _layout(self) -> str:
        assert self.preprocessing.layout is not None
        return self.preprocessing.layout


def load_image_folder(
    path: str | Path,
    mod: tvm.IRModule,
    *,
    mean: tuple[float, ...] = (0.0,),
    std: tuple[float, ...] = (1.0,),
    size: int | None = None,
    layout: str | None = None,
    limit: int | None = None,
) -> ImageFolder:
    """The images of a folder as calibration samples for a model with one image input.

    Subfolders are not searched. A model for batches of n takes n images for each sample; images
    that fill no batch are left out. For the options see `Preprocessing`.

    Raises:
        VTAError: Pillow is not installed, the model does not take images, the folder has none, or
            (when it is its turn) an image cannot be read.
    """
    _pillow("Image")
    wanted = Preprocessing(mean, std, size, layout, limit)
    name, shape, found = _image_input(mod, layout)
    channels, rows, columns = (shape[axis] for axis in LAYOUTS[found])
    for what, values in (("mean", mean), ("std", std)):
        if len(values) not in (1, channels):
            raise VTAError(
                f"image {what} has {len(values)} values; the input takes {channels} channel; "
                "give one value"
            )
    if size is not None and size < max(rows, columns):
        raise VTAError(
            f"image size {size}; the input takes {rows}x{columns}, which is cut from the middle; "
            f"give at least {max(rows, columns)}"
        )
    files, ignored = _images(Path(path), shape[0])
    prepared = Preprocessing(wanted.mean, wanted.std, size, found, limit)
    return ImageFolder(name, shape, files[:limit], ignored, prepared)


def _image_input(mod: tvm.IRModule, layout: str | None) -> tuple[str, tuple[int, ...], str]:
    """Name, shape and layout of the one input."""
    shapes = input_shapes(mod)
    listed = ", ".join(f'"{name}" {shape}' for name, shape in shapes.items())
    if len(shapes) == 1:
        ((name, shape),) = shapes.items()
        for known, axes in LAYOUTS.items():
            if layout in (None, known) and len(shape) == 4 and shape[axes[0]] in (1, 3):
                return name, shape, known
    raise VTAError(
        f"the model has the inputs {listed}; images fit one input of 4 dimensions with 1 or 3 "
        "channels; save the samples as .npz"
    )


def _images(folder: Path, batch: int) -> tuple[tuple[Path, ...], int]:
    """Image files in the order of their names, and how many other entries there are."""
    if not folder.is_dir():
        kind = "is a file" if folder.exists() else "does not exist"
        raise VTAError(f'image folder "{folder}" {kind}; a folder is needed; check the path')
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    images = [e for e in entries if e.suffix.lower() in EXTENSIONS and e.is_file()]
    if len(images) < batch:
        raise VTAError(
            f'image folder "{folder}" has {len(images)} images and {len(entries) - len(images)} '
            f"other entries; at least {batch} {'is' if batch == 1 else 'are'} needed; put images "
            f"({', '.join(sorted(EXTENSIONS))}) directly into it"
        )
    return tuple(images), len(entries) - len(images)


def _opened(file: Path, mode: str) -> Image.Image:
    """The image in `mode`, 8 bits a channel."""
    try:
        with _pillow("Image").open(file) as image:
            wide = image.mode.split(";")[0] in WIDE_MODES
            decoded = image.convert(mode)
    except Exception as error:  # a broken file fails in any of Pillow's decoders
        raise VTAError(
            f'image "{file}" cannot be decoded ({error}); every image of the folder is used; '
            "repair or remove it"
        ) from error
    if wide:
        raise VTAError(
            f'image "{file}" has more than 8 bits a channel; 8 are read; convert it to 8 bits '
            "or save the samples as .npz"
        )
    return decoded


def _cropped(image: Image.Image, rows: int, columns: int, size: int | None) -> Image.Image:
    """The middle of the resized image, rows x columns."""
    width, height = image.size
    scale = max(rows / height, columns / width) if size is None else size / min(width, height)
    resized = (max(columns, round(width * scale)), max(rows, round(height * scale)))
    if resized != (width, height):
        image = image.resize(resized, _pillow("Image").Resampling.BILINEAR)
    left, top = (resized[0] - columns) // 2, (resized[1] - rows) // 2
    return image.crop((left, top, left + columns, top + rows))


def _pillow(module: str) -> ModuleType:
    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError as error:
        raise VTAError(
            "Pillow is not installed; images are read with it; run "
            "`pip install 'vta_byoc[images]'` or save the samples as .npz"
        ) from error


def _listed(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values) or '""'
