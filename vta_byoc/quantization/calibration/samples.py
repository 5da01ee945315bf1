"""Calibration: which samples, and how large every tensor gets on them.

A sample is what `main` is called with once: an array for a model with one input, a tuple or list
of arrays in the order of the inputs, or a dict input name -> array. Arrays have exactly the input's
shape, batch dimension included, and its dtype; floats are finite, but for masks of 0 and minus
infinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path

import numpy as np
import tvm

from vta_byoc.base import arrays
from vta_byoc.base.progress import Progress
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import static_shape
from vta_byoc.quantization.calibration.random_inputs import INPUT_DTYPES, random_sample

Sample = np.ndarray | tuple[np.ndarray, ...] | list[np.ndarray] | Mapping[str, np.ndarray]


def input_shapes(mod: tvm.IRModule) -> dict[str, tuple[int, ...]]:
    """Input name -> shape, in the order of `main`'s parameters.

    Raises:
        VTAError: an input is not a tensor of static shape, or of no dtype in `INPUT_DTYPES`.
    """
    shapes = {}
    for param in mod["main"].params:
        if str(getattr(param.ty, "dtype", None)) not in INPUT_DTYPES:
            raise VTAError(
                f'input "{param.name}" has the type {param.ty}; inputs are tensors of '
                f"{', '.join(INPUT_DTYPES)}; load a model with one of these"
            )
        shapes[str(param.name)] = static_shape(param)
    return shapes


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


def load_calibration(path: str | Path, mod: tvm.IRModule) -> list[dict[str, np.ndarray]]:
    """Samples from an `.npz` file.

    The file holds one array per input, named like the input, of its dtype, with the samples stacked
    along the first axis: shape `(n * shape[0], *shape[1:])`, that is `(n, 3, 224, 224)` for n
    samples of an input `(1, 3, 224, 224)`.

    Raises:
        VTAError: the file cannot be read, or its arrays do not fit the model.
    """
    found = _read_npz(Path(path))
    shapes = input_shapes(mod)
    if set(found) != set(shapes):
        raise VTAError(
            f'calibration file "{path}" holds the arrays {_quoted(found)}; the inputs of the '
            f"model are {_quoted(shapes)}; save one array per input under its name"
        )
    stacks = {name: _split(found[name], name, shape) for name, shape in shapes.items()}
    counts = {name: len(stack) for name, stack in stacks.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f'"{name}" {count}' for name, count in counts.items())
        raise VTAError(
            f'calibration file "{path}" has different numbers of samples: {listed}; every input '
            "needs the same number; save the arrays together"
        )
    samples = [
        {name: stacks[name][i] for name in shapes} for i in range(next(iter(counts.values()), 0))
    ]
    return [_checked(sample, shapes, input_dtypes(mod), i) for i, sample in enumerate(samples)]


def default_calibration(
    mod: tvm.IRModule, n: int = 4, seed: int = 0
) -> list[dict[str, np.ndarray]]:
    """`n` samples of noise (`random_input`): for demonstrations, not for accuracy."""
    input_shapes(mod)
    rng = np.random.default_rng(seed)
    return [random_sample(mod, rng) for _ in range(n)]


# ---------------------------------------------------------------- samples
def checked_samples(
    mod: tvm.IRModule, calibration: Iterable[Sample], progress: Progress | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Each sample as a dict input name -> array, in the order of the inputs.

    `progress` is called when the caller asks for the next sample, that is after each one.

    Raises:
        VTAError: no samples, or one that does not fit the model.
    """
    if isinstance(calibration, Mapping | np.ndarray | str):
        raise VTAError(
            f"calibration is one {type(calibration).__name__}; it must be a list (or another "
            "iterable) of samples; put the sample in a list"
        )
    shapes, dtypes = input_shapes(mod), input_dtypes(mod)
    total = len(calibration) if isinstance(calibration, Sized) else None
    count = 0
    for sample in calibration:
        yield _checked(_named(sample, shapes, count), shapes, dtypes, count)
        count += 1
        if progress is not None:
            progress(count, total)
    if count == 0:
        raise VTAError(
            "calibration has 0 samples; at least 1 is needed; give it representative inputs"
        )


def _named(sample: Sample, shapes: dict[str, tuple[int, ...]], index: int) -> dict[str, np.ndarray]:
    """The sample as a dict in the order of the inputs."""
    names = list(shapes)
    if isinstance(sample, Mapping):
        if set(sample) != set(names):
            raise VTAError(
                f"calibration sample {index} has the inputs {_quoted(sample)}; the inputs of the "
                f"model are {_quoted(names)}; give an array for each of them"
            )
        return {name: sample[name] for name in names}
    arrays = list(sample) if isinstance(sample, tuple | list) else [sample]
    if len(arrays) != len(names):
        raise VTAError(
            f"calibration sample {index} has {len(arrays)} arrays; the model has {len(names)} "
            f"inputs: {_quoted(names)}; give an array for each of them"
        )
    return dict(zip(names, arrays, strict=True))


def _checked(
    sample: Mapping[str, np.ndarray],
    shapes: dict[str, tuple[int, ...]],
    dtypes: dict[str, str],
    index: int,
) -> dict[str, np.ndarray]:
    found = {}
    for name, shape in shapes.items():
        where = f'calibration sample {index}, input "{name}"'
        array = found[name] = _finite_mask(sample[name])
        if not isinstance(array, np.ndarray):
            raise VTAError(
                f"{where} is a {type(array).__name__}; samples are NumPy arrays; "
                "convert it with numpy.asarray"
            )
        if array.dtype != dtypes[name]:
            raise VTAError(
                f"{where} has dtype {array.dtype}; the input takes {dtypes[name]}; "
                f'convert it with .astype("{dtypes[name]}")'
            )
        if array.shape != shape:
            raise VTAError(
                f"{where} has shape {array.shape}; the input takes {shape}; "
                "reshape or crop the sample"
            )
        bad = int(array.size - np.count_nonzero(np.isfinite(array)))
        if bad:
            raise VTAError(
                f"{where} has {bad} values that are NaN or infinite; every value must be finite; "
                "remove or repair the sample"
            )
    return found


def _finite_mask(array: np.ndarray) -> np.ndarray:
    """A float mask of 0 and minus infinity with the least number instead; others as they are."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        return array
    hidden = np.isneginf(array)
    if not hidden.any() or array[~hidden].any():
        return array
    return np.where(hidden, np.finfo(np.float32).min, array)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise VTAError(
            f'calibration file "{path}" does not exist; an .npz file is needed; check the path'
        )
    try:
        return arrays.read_npz(path)
    except VTAError:
        raise
    except Exception as error:  # a broken archive fails in zipfile, zlib or NumPy
        raise VTAError(
            f'calibration file "{path}" is not an .npz archive of numeric arrays; save it with '
            "numpy.savez(path, **{input name: samples})"
        ) from error


def _split(stack: np.ndarray, name: str, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Samples of `shape` from their stack along the first axis."""
    rows = shape[0] if shape else 1
    fits = stack.ndim == max(len(shape), 1) and stack.shape[1:] == shape[1:]
    if not fits or stack.shape[0] % rows:
        wanted = ", ".join(["n" if rows == 1 else f"{rows}*n", *map(str, shape[1:])])
        raise VTAError(
            f'calibration array "{name}" has shape {stack.shape}; n samples of the input take '
            f"({wanted}); stack the samples along the first axis"
        )
    return [stack[i : i + rows].reshape(shape) for i in range(0, len(stack), rows)]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "none"
