"""What every model script offers: options, one-line errors, files written whole, a cache."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import inspect
import io
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

import numpy as np
import onnx

CACHE = Path(__file__).resolve().parents[1] / "build" / "models"

SIZES = (32, 512)
CLASSES = (2, 10_000)
SEEDS = (0, 2**32 - 1)
SAMPLE_SEED = 7


class ModelError(ValueError):
    """A model that cannot be made or written; one line with value, limit and next step.

    Not VTAError: models need numpy and onnx, but neither TVM nor the package.
    """


class Build(Protocol):
    """Makes a model for images of size x size."""

    def __call__(self, *, size: int, classes: int, seed: int) -> onnx.ModelProto: ...


def model_bytes(build: Build, *, size: int, classes: int, seed: int) -> bytes:
    """The model as the bytes of an ONNX file.

    Raises:
        ModelError: an option is outside its range.
    """
    _check("--size", "image size", size, SIZES)
    _check("--classes", "number of classes", classes, CLASSES)
    _check("--seed", "seed", seed, SEEDS)
    return build(size=size, classes=classes, seed=seed).SerializeToString(deterministic=True)


def write_atomically(path: Path, produce: Callable[[], bytes]) -> int:
    """Write what `produce` returns to `path`, whole or not at all; returns the number of bytes.

    The file is tried before `produce` is called: a path that cannot be written fails at once.

    Raises:
        ModelError: the path cannot be written.
    """
    target = path.resolve()  # behind a symbolic link
    if target.is_dir():
        raise ModelError(f'cannot write "{path}": it is a directory; name a file in it')
    if target.exists() and not target.is_file():
        raise ModelError(f'cannot write "{path}": it is not a regular file; name a new file')
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            data = produce()
            file.write(data)
        os.replace(temporary, target)
    except OSError as error:
        raise ModelError(
            f'cannot write "{path}": {error.strerror}; name a file in a directory that exists, '
            "is writable and has room"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return len(data)


def cached(
    name: str,
    build: Build,
    *,
    size: int = 224,
    classes: int = 1000,
    seed: int = 0,
    directory: Path = CACHE,
) -> Path:
    """The ONNX file of a model, built only if this very code has not built it before."""
    sources = [*Path(__file__).parent.glob("_*.py"), Path(inspect.getfile(build))]
    code = b"".join(source.read_bytes() for source in sorted(sources))
    key = hashlib.sha256(code).hexdigest()[:16]
    path = directory / f"{name}-{size}-{classes}-{seed}-{key}.onnx"
    if not path.is_file():
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda: model_bytes(build, size=size, classes=classes, seed=seed))
    return path


def main(name: str, build: Build, arguments: Sequence[str] | None = None) -> int:
    """The command line of a model script; returns the exit code: 0, or 2 after an error line."""
    try:
        options = _parser(name).parse_args(arguments)
        chosen = {"size": options.size, "classes": options.classes, "seed": options.seed}
        start = time.perf_counter()
        size = write_atomically(Path(options.output), lambda: model_bytes(build, **chosen))
        _write_images(options)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    seconds = time.perf_counter() - start
    print(f"{name}: wrote {options.output}, {size / 1e6:.1f} MB, in {seconds:.1f} s")
    return 0


def _write_images(options: argparse.Namespace) -> None:
    """The calibration images and one other image, where they were asked for."""
    from ._build import calibration_inputs, sample_inputs

    if options.calibration:
        images = calibration_inputs(options.size)
        write_atomically(Path(options.calibration), lambda: _npz(data=images))
    if options.sample:
        image = sample_inputs(1, SAMPLE_SEED, options.size)
        write_atomically(Path(options.sample), lambda: _npy(image))


def _npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ModelError(f"{message}; run with --help for the options")


def _parser(name: str) -> _Parser:
    parser = _Parser(description=f"Write {name} as an ONNX file: the same bytes every time.")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write")
    for option, default, (low, high), text in (
        ("--size", 224, SIZES, "height and width of the input"),
        ("--classes", 1000, CLASSES, "number of logits"),
        ("--seed", 0, SEEDS, "seed of the weights"),
    ):
        explained = f"{text}, {low} to {high} (default: %(default)s)"
        parser.add_argument(option, type=int, default=default, metavar="N", help=explained)
    for option, text in (
        ("--calibration", "also write images to calibrate quantization with (.npz, key data)"),
        ("--sample", "also write one input image (.npy)"),
    ):
        parser.add_argument(option, metavar="FILE", help=text)
    return parser


def _check(option: str, what: str, value: int, limits: tuple[int, int]) -> None:
    low, high = limits
    if not low <= value <= high:
        raise ModelError(f"{what} {value}; {low} to {high} can be built; change {option}")
