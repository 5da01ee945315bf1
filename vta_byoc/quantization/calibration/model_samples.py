"""Samples for models whose inputs are float32 or integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from vta_byoc.base import arrays
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import is_float32, static_shape
from vta_byoc.quantization.calibration import samples as calibrate
from vta_byoc.quantization.calibration.random_inputs import INPUT_DTYPES, random_sample
from vta_byoc.quantization.calibration.samples import Progress, Sample


def has_integer_inputs(mod: tvm.IRModule) -> bool:
    """Whether an input of the model is no float32 tensor."""
    return not all(is_float32(param) for param in mod["main"].params)


def input_dtypes(mod: tvm.IRModule) -> dict[str, str]:
    """Input name -> dtype, in the order of `main`'s parameters.

    Raises:
        VTAError: an input has a dtype that is not among `INPUT_DTYPES`.
    """
    found = {str(param.name): str(param.ty.dtype) for param in mod["main"].params}
    for name, dtype in found.items():
        if dtype not in INPUT_DTYPES:
            raise VTAError(
                f'input "{name}" has dtype {dtype}; inputs are {", ".join(INPUT_DTYPES)}; export '
                "the model with one of these"
            )
    return found


def checked(
    mod: tvm.IRModule, samples: Iterable[Sample], progress: Progress | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Each sample as a dict input name -> array, in the order of the inputs.

    `progress` is called after each one.

    Raises:
        VTAError: no samples, or one that does not fit the model.
    """
    if not has_integer_inputs(mod):
        yield from calibrate.checked_samples(mod, samples, progress)
        return
    total, count = len(samples) if isinstance(samples, Sized) else None, 0
    for sample in samples:
        yield _fitting(mod, sample, count)
        count += 1
        if progress is not None:
            progress(count, total)
    if not count:
        raise VTAError("there are 0 samples; at least 1 is needed; give inputs of the model")


def _fitting(mod: tvm.IRModule, sample: Sample, index: int) -> dict[str, np.ndarray]:
    params = mod["main"].params
    names = [str(param.name) for param in params]
    if not isinstance(sample, Mapping):
        arrays = list(sample) if isinstance(sample, tuple | list) else [sample]
        sample = dict(zip(names, arrays, strict=len(arrays) == len(names)))
    if set(sample) != set(names):
        raise VTAError(
            f"sample {index} has the inputs {', '.join(map(str, sample))}; the inputs of the "
            f"model are {', '.join(names)}; give an array for each of them"
        )
    for param, name in zip(params, names, strict=True):
        array, shape, dtype = sample[name], static_shape(param), str(param.ty.dtype)
        if array.shape != shape or array.dtype != dtype:
            raise VTAError(
                f'sample {index}, input "{name}" is {array.dtype} {array.shape}; the input takes '
                f"{dtype} {shape}; convert the samples"
            )
    return {name: sample[name] for name in names}


def noise(mod: tvm.IRModule, count: int, seed: int) -> list[dict[str, np.ndarray]]:
    """Noise for every input (`random_inputs.random_input`)."""
    rng = np.random.default_rng(seed)
    return [random_sample(mod, rng) for _ in range(count)]


def load_samples(path: str | Path, mod: tvm.IRModule) -> list[dict[str, np.ndarray]]:
    """Samples from an `.npz` file: an array for each input, samples along the first axis.

    Raises:
        VTAError: the file cannot be read, or its arrays do not fit the model.
    """
    if not has_integer_inputs(mod):
        return calibrate.load_calibration(path, mod)
    params = {str(param.name): param for param in mod["main"].params}
    found = read_archive(Path(path))
    if set(found) != set(params):
        raise VTAError(
            f'data file "{path}" holds the arrays {", ".join(found) or "none"}; the inputs of '
            f"the model are {', '.join(params)}; save one array per input under its name"
        )
    stacks = {name: _stack(found[name], name, param) for name, param in params.items()}
    if len({len(stack) for stack in stacks.values()}) > 1:
        raise VTAError(
            f'data file "{path}" has different numbers of samples for its inputs; every input '
            "needs the same number; save the arrays together"
        )
    first = next(iter(stacks.values()))
    return [{name: stacks[name][i] for name in params} for i in range(len(first))]


def read_archive(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an `.npz` file."""
    try:
        return arrays.read_npz(path)
    except VTAError:
        raise
    except Exception as error:  # a broken archive fails in zipfile, zlib or NumPy
        raise VTAError(
            f'data file "{path}" is not an .npz archive of numeric arrays, or is not there; save '
            "it with numpy.savez(path, **{input name: samples})"
        ) from error


def _stack(array: np.ndarray, name: str, param: relax.Var) -> np.ndarray:
    """[n, *shape of the input]."""
    shape, dtype = static_shape(param), str(param.ty.dtype)
    fits = array.ndim == len(shape) and array.shape[1:] == shape[1:] and array.dtype == dtype
    if not fits or not len(array) or len(array) % shape[0]:
        wanted = ", ".join(["n" if shape[0] == 1 else f"{shape[0]}*n", *map(str, shape[1:])])
        raise VTAError(
            f'data array "{name}" is {array.dtype} {array.shape}; n samples of the input are '
            f"{dtype} ({wanted}); stack the samples along the first axis"
        )
    return array.reshape(-1, *shape)
