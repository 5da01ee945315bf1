"""Calibration: which samples, and how large every tensor gets on them.

A sample is what `main` is called with once: an array for a model with one input, a tuple or list
of arrays in the order of the inputs, or a dict input name -> array. Arrays are float32 of exactly
the input's shape, batch dimension included, and finite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from vta_byoc.bindings import (
    FunctionWriter,
    is_float32,
    source_name,
    static_shape,
    straight_bindings,
    substituted,
    with_main,
)
from vta_byoc.hw.errors import VTAError
from vta_byoc.reference import build_reference

Sample = np.ndarray | tuple[np.ndarray, ...] | list[np.ndarray] | Mapping[str, np.ndarray]
Progress = Callable[[int, "int | None"], None]
"""Called after each sample with how many are done and how many there are (None: not known)."""


def input_shapes(mod: tvm.IRModule) -> dict[str, tuple[int, ...]]:
    """Input name -> shape, in the order of `main`'s parameters.

    Raises:
        VTAError: an input is not a float32 tensor of static shape.
    """
    shapes = {}
    for param in mod["main"].params:
        if not is_float32(param):
            raise VTAError(
                f'input "{param.name}" has the type {param.ty}; models are quantized from float32 '
                "tensors; load the float32 model"
            )
        shapes[str(param.name)] = static_shape(param)
    return shapes


def load_calibration(path: str | Path, mod: tvm.IRModule) -> list[dict[str, np.ndarray]]:
    """Samples from an `.npz` file.

    The file holds one float32 array per input, named like the input, with the samples stacked
    along the first axis: shape `(n * shape[0], *shape[1:])`, that is `(n, 3, 224, 224)` for n
    samples of an input `(1, 3, 224, 224)`.

    Raises:
        VTAError: the file cannot be read, or its arrays do not fit the model.
    """
    arrays = _read_npz(Path(path))
    shapes = input_shapes(mod)
    if set(arrays) != set(shapes):
        raise VTAError(
            f'calibration file "{path}" holds the arrays {_quoted(arrays)}; the inputs of the '
            f"model are {_quoted(shapes)}; save one array per input under its name"
        )
    stacks = {name: _split(arrays[name], name, shape) for name, shape in shapes.items()}
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
    return [_checked(sample, shapes, i) for i, sample in enumerate(samples)]


def default_calibration(mod: tvm.IRModule, n: int = 4, seed: int = 0) -> list[dict[str, Any]]:
    """`n` samples of standard normal noise: for demonstrations, not for accuracy."""
    rng = np.random.default_rng(seed)
    shapes = input_shapes(mod)
    return [
        {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
        for _ in range(n)
    ]


def tensor_ranges(
    mod: tvm.IRModule, calibration: Iterable[Sample], progress: Progress | None = None
) -> dict[relax.Var, float]:
    """The largest magnitude of every float32 tensor of `main`, over all samples.

    One sample is in memory at a time; the module itself reduces each tensor to one number.

    Raises:
        VTAError: no samples, a sample that does not fit the model, or a tensor that is not
            finite.
    """
    if isinstance(calibration, Mapping | np.ndarray | str):
        raise VTAError(
            f"calibration is one {type(calibration).__name__}; it must be a list (or another "
            "iterable) of samples; put the sample in a list"
        )
    shapes = input_shapes(mod)
    total = len(calibration) if isinstance(calibration, Sized) else None
    tensors, observer = _observer(mod)
    machine: Any = None
    ranges = np.zeros(len(tensors))
    count = 0
    for sample in calibration:
        arrays = _checked(_named(sample, shapes, count), shapes, count)
        machine = machine or relax.VirtualMachine(build_reference(observer), tvm.cpu())
        ranges = np.maximum(ranges, _observe(machine, arrays, tensors, count))
        count += 1
        if progress is not None:
            progress(count, total)
    if count == 0:
        raise VTAError(
            "calibration has 0 samples; at least 1 is needed; give it representative inputs"
        )
    return dict(zip(tensors, ranges.tolist(), strict=True))


def _observer(mod: tvm.IRModule) -> tuple[list[relax.Var], tvm.IRModule]:
    """The float32 tensors of `main`, and a module that returns the largest magnitude of each."""
    main, writer = mod["main"], FunctionWriter()
    env: dict[relax.Var, relax.Expr] = {}
    bindings = straight_bindings(main)
    for binding in bindings:
        env[binding.var] = writer.emit(substituted(binding.value, env), binding.var.name)
    tensors = [v for v in [*main.params, *(b.var for b in bindings)] if is_float32(v)]
    for tensor in tensors:
        _check_not_empty(tensor)
    peaks = [_peak(writer, env.get(tensor, tensor)) for tensor in tensors]
    return tensors, with_main(mod, writer.finish(main, relax.Tuple(peaks)))


def _check_not_empty(tensor: relax.Var) -> None:
    if 0 in static_shape(tensor):
        raise VTAError(
            f'tensor "{source_name(tensor)}" has the shape {static_shape(tensor)}; every '
            "dimension must be at least 1; correct the shapes or slices of the model"
        )


def _peak(writer: FunctionWriter, tensor: relax.Expr) -> relax.Var:
    """The largest magnitude; NaN if the tensor holds one."""
    out_ty = relax.TensorType((), "float32")
    return writer.emit(relax.call_dps_packed(PEAK, [tensor], out_ty=out_ty), "peak")


PEAK = "vta.calibrate.peak"
"""Global function. NumPy, because compiling a reduction for every shape would take longer."""


@tvm.register_global_func(PEAK, override=True)
def _write_peak(tensor: Any, peak: Any) -> None:
    magnitudes = np.abs(tensor.numpy())
    peak.copyfrom(np.asarray(magnitudes.max(initial=0), "float32"))


def _observe(
    machine: Any, arrays: dict[str, np.ndarray], tensors: list[relax.Var], index: int
) -> np.ndarray:
    peaks = machine["main"](*(tvm.runtime.tensor(array) for array in arrays.values()))
    values = np.array([float(peak.numpy()) for peak in peaks])
    for tensor, value in zip(tensors, values, strict=True):
        if not np.isfinite(value):
            raise VTAError(
                f'tensor "{source_name(tensor)}" is NaN or infinite on calibration sample '
                f"{index}; every value must be finite; check the sample and the model in float"
            )
    return values


def _named(sample: Any, shapes: dict[str, tuple[int, ...]], index: int) -> dict[str, Any]:
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
    sample: Mapping[str, Any], shapes: dict[str, tuple[int, ...]], index: int
) -> dict[str, np.ndarray]:
    for name, shape in shapes.items():
        where = f'calibration sample {index}, input "{name}"'
        array = sample[name]
        if not isinstance(array, np.ndarray):
            raise VTAError(
                f"{where} is a {type(array).__name__}; samples are NumPy arrays; "
                "convert it with numpy.asarray"
            )
        if array.dtype != np.float32:
            raise VTAError(
                f"{where} has dtype {array.dtype}; the input takes float32; "
                'convert it with .astype("float32")'
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
    return dict(sample)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise VTAError(
            f'calibration file "{path}" does not exist; an .npz file is needed; check the path'
        )
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # a broken archive fails in zipfile, zlib, pickle or NumPy
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
