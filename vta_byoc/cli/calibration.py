"""The options that say what to calibrate with, and what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, cast

import click

from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    import tvm

    from vta_byoc.quantization.calibration.samples import Sample

PREPROCESS = "vta_byoc.preprocess"
"""Key of the click context's `meta`: the parsed value of --preprocess."""
NUMBERS: dict[str, Callable[[str], float]] = {
    "mean": float,
    "std": float,
    "size": int,
    "limit": int,
}
KEYS = ("mean", "std", "size", "layout", "limit")
Command = TypeVar("Command", bound=Callable[..., object])


class Preprocessing(TypedDict, total=False):
    """Options of `load_image_folder`."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    layout: str
    limit: int


def calibration_option(command: Command) -> Command:
    """Add --calibration and --preprocess.

    A command takes the first as `calibration`; `read_calibration` finds the second by itself.
    """
    samples = click.option(
        "--calibration",
        metavar="FILE.npz|FOLDER",
        help="Samples to quantize with: one array (n, ...) per input, under its name; or "
        "a folder of images. Default: 4 samples of noise, good for a demonstration only.",
    )
    preprocess = click.option(
        "--preprocess",
        metavar="mean=M,std=S,...",
        expose_value=False,
        callback=_set_preprocess,
        help="Of images: (pixel / 255 - mean) / std with one number or three; size= of the "
        "shorter side before the middle is cut out; layout=NCHW or NHWC; limit= of images.",
    )
    return samples(preprocess(command))


def _set_preprocess(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    ctx.meta[PREPROCESS] = {} if value is None else parse_preprocessing(value)


def read_calibration(
    path: str, mod: tvm.IRModule, preprocessing: Preprocessing | None = None
) -> Iterable[Sample]:
    """The samples of an .npz file or of a folder of images.

    Args:
        path: the file or the folder.
        mod: the model whose inputs they are for.
        preprocessing: options of `load_image_folder`; None: those of the running command.
    """
    if preprocessing is None:
        context = click.get_current_context(silent=True)
        preprocessing = context.meta.get(PREPROCESS, {}) if context else {}
    if Path(path).is_dir():
        from vta_byoc.quantization.calibration.image_folder import load_image_folder

        return load_image_folder(path, mod, **preprocessing)
    if preprocessing:
        raise VTAError(
            f'--preprocess with --calibration "{path}", which is no folder; only images are '
            "prepared; save the samples as the model takes them"
        )
    from vta_byoc.quantization.calibration.samples import load_calibration

    return load_calibration(path, mod)


def parse_preprocessing(text: str) -> Preprocessing:
    """`mean=0.485,0.456,0.406,std=0.5,size=256` as options of `load_image_folder`."""
    values: dict[str, list[str]] = {}
    key = ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            key = name.strip()
            if key not in KEYS or key in values:
                problem = "twice" if key in values else "which is not known"
                raise VTAError(
                    f'--preprocess "{text}" has "{key}" {problem}; {", ".join(KEYS)} can be given '
                    "once each; correct the option"
                )
        elif not key:
            raise _malformed(text)
        values.setdefault(key, []).append((value if equals else part).strip())
    found = {key: _value(key, parts, text) for key, parts in values.items()}
    return cast(Preprocessing, found)  # KEYS has its keys, NUMBERS their types


def _value(key: str, parts: list[str], text: str) -> float | str | tuple[float | str, ...]:
    if key not in ("mean", "std") and len(parts) > 1:
        raise _malformed(text)
    try:
        numbers = tuple(NUMBERS.get(key, str)(part) for part in parts)
    except ValueError as error:
        raise _malformed(text) from error
    return numbers if key in ("mean", "std") else numbers[0]


def _malformed(text: str) -> VTAError:
    return VTAError(
        f'--preprocess "{text}" is not KEY=VALUE,KEY=VALUE,...; mean and std take 1 or 3 numbers, '
        "size and limit a whole number; write for example "
        "--preprocess mean=0.485,0.456,0.406,std=0.229,0.224,0.225,size=256"
    )
