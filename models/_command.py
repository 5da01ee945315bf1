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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import onnx

CACHE = Path(__file__).resolve().parents[1] / "build" / "models"

SAMPLE_SEED = 7


class ModelError(ValueError):
    """A model that cannot be made or written; one line with value, limit and next step.

    Not VTAError: models need numpy and onnx, but neither TVM nor the package.
    """


@dataclass(frozen=True)
class Option:
    """A whole number that a model can be built with: `name` of `build`, `--name` of the script.

    Attributes:
        what: the value in error messages.
        help: for `--help`.
        default, low, high: values.
        step: only multiples of it can be built.
    """

    name: str
    what: str
    help: str
    default: int
    low: int
    high: int
    step: int = 1

    def limits(self) -> str:
        multiples = f"multiples of {self.step}, " if self.step > 1 else ""
        return f"{multiples}{self.low} to {self.high}"

    def check(self, value: int) -> None:
        if not self.low <= value <= self.high or value % self.step:
            raise ModelError(
                f"{self.what} {value}; {self.limits()} can be built; change --{self.name}"
            )


SIZE = Option("size", "image size", "height and width of the input", 224, 32, 512)
CLASSES = Option("classes", "number of classes", "number of logits", 1000, 2, 10_000)
SEED = Option("seed", "seed", "seed of the weights", 0, 0, 2**32 - 1)
OPTIONS = (SIZE, CLASSES, SEED)
"""Of networks that classify images."""


Build = Callable[..., onnx.ModelProto]
"""Makes a model from a value for each of its options, by name."""


@dataclass(frozen=True)
class Inputs:
    """Seeded inputs of a model: `make(n, seed, options)` stacks n of them (None: to calibrate)."""

    name: str
    make: Callable[[int, int | None, Mapping[str, int]], np.ndarray]


def _images(n: int, seed: int | None, options: Mapping[str, int]) -> np.ndarray:
    from models._build import CALIBRATION_SEED, sample_inputs

    return sample_inputs(n, CALIBRATION_SEED if seed is None else seed, options["size"])


IMAGES = Inputs("data", _images)
CALIBRATION_INPUTS = 8


def model_bytes(build: Build, options: Sequence[Option] = OPTIONS, **chosen: int) -> bytes:
    """The model as the bytes of an ONNX file.

    Raises:
        ModelError: an option is outside its range.
    """
    for option in options:
        option.check(chosen[option.name])
    return build(**chosen).SerializeToString(deterministic=True)


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
    options: Sequence[Option] = OPTIONS,
    source: Path | None = None,
    directory: Path = CACHE,
    **chosen: int,
) -> Path:
    """The ONNX file of a model, built only if this very code has not built it before.

    `source`: where the model is written, if not where `build` is. Files of other versions of the
    code are removed.
    """
    values = {option.name: chosen.pop(option.name, option.default) for option in options}
    assert not chosen, f"{name} has no option {', '.join(chosen)}"
    sources = [*Path(__file__).parent.glob("_*.py"), source or Path(inspect.getfile(build))]
    code = b"".join(path.read_bytes() for path in sorted(sources))
    key = hashlib.sha256(code).hexdigest()[:16]
    stem = "-".join([name, *map(str, values.values())])
    path = directory / f"{stem}-{key}.onnx"
    if not path.is_file():
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda: model_bytes(build, options, **values))
        for stale in set(directory.glob(f"{stem}-{'?' * len(key)}.onnx")) - {path}:
            stale.unlink(missing_ok=True)
    return path


def main(
    name: str,
    build: Build,
    arguments: Sequence[str] | None = None,
    *,
    options: Sequence[Option] = OPTIONS,
    inputs: Inputs = IMAGES,
) -> int:
    """The command line of a model script; returns the exit code: 0, or 2 after an error line."""
    try:
        given = _parser(name, options, inputs).parse_args(arguments)
        chosen = {option.name: getattr(given, option.name) for option in options}
        start = time.perf_counter()
        size = write_atomically(Path(given.output), lambda: model_bytes(build, options, **chosen))
        _write_inputs(given, inputs, chosen)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    seconds = time.perf_counter() - start
    print(f"{name}: wrote {given.output}, {size / 1e6:.1f} MB, in {seconds:.1f} s")
    return 0


def _write_inputs(given: argparse.Namespace, inputs: Inputs, chosen: Mapping[str, int]) -> None:
    """The calibration inputs and one other input, where they were asked for."""
    if given.calibration:
        several = inputs.make(CALIBRATION_INPUTS, None, chosen)
        write_atomically(Path(given.calibration), lambda: _npz(**{inputs.name: several}))
    if given.sample:
        one = inputs.make(1, SAMPLE_SEED, chosen)
        write_atomically(Path(given.sample), lambda: _npy(one))


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


def _parser(name: str, options: Sequence[Option], inputs: Inputs) -> _Parser:
    parser = _Parser(description=f"Write {name} as an ONNX file: the same bytes every time.")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write")
    for option in options:
        parser.add_argument(
            f"--{option.name}",
            type=int,
            default=option.default,
            metavar="N",
            help=f"{option.help}, {option.limits()} (default: %(default)s)",
        )
    for flag, text in (
        ("--calibration", f"also write inputs to calibrate with (.npz, key {inputs.name})"),
        ("--sample", "also write one more input (.npy)"),
    ):
        parser.add_argument(flag, metavar="FILE", help=text)
    return parser
