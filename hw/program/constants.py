"""The constants of a program apart from it: its instructions depend on where they lie alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program, Symbol


def without_constants(program: Program, names: Collection[str]) -> Program:
    """``program`` with zeros where its constants ``names`` lie."""
    image = program.image.copy()
    for symbol in _constants(program, names):
        image[_places(program, symbol)] = 0
    return dataclasses.replace(program, image=image)


def with_constants(program: Program, values: Mapping[str, np.ndarray]) -> Program:
    """``program`` with the contents ``values`` of its constants, by name.

    Raises:
        VTAError: it has no such constant, or one of another shape or type.
    """
    image = program.image.copy()
    for symbol in _constants(program, values):
        value = values[symbol.name]
        if (value.shape, str(value.dtype)) != (symbol.shape, symbol.dtype):
            raise VTAError(
                f"constant {symbol.name} of the program is {symbol.shape} {symbol.dtype}, not "
                f"{value.shape} {value.dtype}; compile the program again"
            )
        image[_places(program, symbol)] = np.ascontiguousarray(value).reshape(-1).view(np.int8)
    return dataclasses.replace(program, image=image)


def _constants(program: Program, names: Collection[str]) -> list[Symbol]:
    found = [symbol for symbol in program.symbols if symbol.kind == "const"]
    missing = sorted(set(names) - {symbol.name for symbol in found})
    if missing:
        raise VTAError(f"the program has no constant {missing[0]}; compile the program again")
    return [symbol for symbol in found if symbol.name in names]


def _places(program: Program, symbol: Symbol) -> slice:
    """The bytes of the image that a constant takes."""
    start = symbol.offset - program.input_bytes
    return slice(start, start + symbol.nbytes)
