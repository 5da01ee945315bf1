"""What the options of the command line name: machines, shapes, arrays."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vta_byoc.base.arrays import read_npy
from vta_byoc.hw.errors import VTAError
from vta_byoc.quantization.calibration.random_inputs import random_input
from vta_byoc.reports.run.inputs import Input

Shape = tuple[int, ...]
FLOAT = "float32"


def parse_shapes(values: Sequence[str]) -> dict[str, Shape]:
    """`NAME=1,3,224,224`, repeated, as input name -> shape."""
    shapes: dict[str, Shape] = {}
    for value in values:
        name, _, text = value.rpartition("=")
        dims = text.split(",")
        if not name or not all(dim.strip().isdecimal() for dim in dims):
            raise VTAError(
                f'--shape "{value}" is not NAME=SIZE,SIZE,...; sizes are positive integers; '
                "write for example --shape data=1,3,224,224"
            )
        if name in shapes:
            raise VTAError(f'--shape names "{name}" twice; give every input one shape')
        shapes[name] = tuple(int(dim) for dim in dims)
    return shapes


def read_arrays(values: Sequence[str]) -> list[tuple[str, str, np.ndarray]]:
    """`FILE.npy` or `NAME=FILE.npy` as (name or "", path, array)."""
    arrays = []
    for value in values:
        name, _, path = value.partition("=")
        if not path or Path(value).is_file():
            name, path = "", value
        arrays.append((name, path, _read_npy(Path(path))))
    return arrays


def _read_npy(path: Path) -> np.ndarray:
    if not path.is_file():
        kind = "is a directory" if path.is_dir() else "does not exist"
        raise VTAError(f'input file "{path}" {kind}; a .npy file is needed; check the path')
    if zipfile.is_zipfile(path):
        raise VTAError(
            f'input file "{path}" is an .npz archive; --input takes one array per file; save '
            "each with numpy.save and give NAME=FILE.npy for each"
        )
    try:
        return read_npy(path)
    except VTAError:
        raise
    except Exception as error:  # a header of nonsense fails in NumPy, ast or tokenize
        raise VTAError(
            f'input file "{path}" is not a .npy file of numbers; save it with '
            "numpy.save(path, array)"
        ) from error


def bind_inputs(
    shapes: Mapping[str, Shape],
    given: Sequence[tuple[str, str, np.ndarray]],
    seed: int,
    dtypes: Mapping[str, str] | None = None,
    rows: Mapping[str, int] | None = None,
    states: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Input]:
    """The inputs of a run, in the model's order; noise when none is given (`random_input`).

    Inputs that stand for variables of the model begin with what these begin with, unless given.

    Args:
        shapes: input name -> shape.
        given: from `read_arrays`; arrays without a name fill the inputs in order.
        seed: of the noise, drawn input by input from one `numpy.random.default_rng(seed)`.
        dtypes: input name -> dtype; None: every input is float32.
        rows: of the tables that integer inputs pick from (`table_rows`).
        states: what variables of the model begin with (`initial_states`).
    """
    limits, first = rows or {}, begun(states or {})
    wanted = dict.fromkeys(shapes, FLOAT) if dtypes is None else dtypes
    if not given:
        rng = np.random.default_rng(seed)
        drawn = {
            name: noise(random_input(rng, shape, wanted[name], limits.get(name)), seed)
            for name, shape in shapes.items()
            if name not in first
        }
        return {name: (drawn | first)[name] for name in shapes}
    bound = _by_name(shapes, given, first)
    for name, shape in shapes.items():
        _check(name, shape, bound[name], wanted[name])
        _check_rows(name, bound[name], limits.get(name))
    return {name: bound[name] for name in shapes}


def noise(array: np.ndarray, seed: int) -> Input:
    """The input of an array that was drawn."""
    return Input(array, f"random, seed {seed}")


def begun(states: Mapping[str, np.ndarray]) -> dict[str, Input]:
    """The inputs that stand for variables of the model, as it begins."""
    return {name: Input(array, "as the model begins") for name, array in states.items()}


def _by_name(
    shapes: Mapping[str, Shape],
    given: Sequence[tuple[str, str, np.ndarray]],
    first: Mapping[str, Input],
) -> dict[str, Input]:
    known = _quoted(shapes)
    named = {name for name, _, _ in given if name}
    unnamed = iter(name for name in shapes if name not in named)
    bound: dict[str, Input] = {}
    for name, path, array in given:
        target = name or next(unnamed, "")
        if not target:
            raise VTAError(
                f'input file "{path}" is one too many; the model has {len(shapes)} inputs: '
                f"{known}; give one file for each"
            )
        if target not in shapes:
            raise VTAError(
                f'--input names "{target}"; the inputs of the model are {known}; '
                "use one of these names"
            )
        if target in bound:
            raise VTAError(f'--input names "{target}" twice; give one file for each input')
        bound[target] = Input(array, path)
    bound = {**first, **bound}
    missing = [name for name in shapes if name not in bound]
    if missing:
        raise VTAError(
            f"no array for the inputs {_quoted(missing)}; the inputs of the model are {known}; "
            "give --input NAME=FILE.npy for each, or none for random ones"
        )
    return bound


def _check(name: str, shape: Shape, value: Input, dtype: str) -> None:
    array, where = value.array, f'input "{name}" from "{value.source}"'
    if array.dtype != dtype:
        raise VTAError(
            f"{where} has dtype {array.dtype}; the model takes {dtype}; "
            f'convert it with .astype("{dtype}")'
        )
    if array.shape != shape:
        raise VTAError(
            f"{where} has shape {array.shape}; the model takes {shape}; reshape or crop the array"
        )
    bad = int(array.size - np.count_nonzero(np.isfinite(array)))
    if bad:
        raise VTAError(
            f"{where} has {bad} values that are NaN or infinite; every value must be finite; "
            "repair the array"
        )


def _check_rows(name: str, value: Input, rows: int | None) -> None:
    if rows is None or not value.array.size:
        return
    low, high = int(value.array.min()), int(value.array.max())
    if low < -rows or high >= rows:
        raise VTAError(
            f'input "{name}" from "{value.source}" has values from {low} to {high}; they pick from '
            f"a table of {rows} rows; give numbers from 0 to {rows - 1}"
        )


def _quoted(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(f'"{name}"' for name in names)
