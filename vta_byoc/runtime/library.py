"""Exported libraries: loaded with care, and what they say of themselves.

Beside ``main`` a library has the function ABOUT, which returns JSON text in bytes: the machine, the
version of vta_byoc and what each program holds and counts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.runtime.executable import (
    InputType,
    constant_text,
    input_types,
    stated_text,
    states_of,
)

ABOUT = "vta_about"
"""The function that returns the machine, the version and the programs: uint8, JSON text."""
ELF = b"\x7fELF"
_SECTIONS = struct.Struct("<40xQ10xHH")  # of the header of a 64-bit little-endian ELF file


def with_about(
    mod: tvm.IRModule, config: VTAConfig, programs: Mapping[str, Program]
) -> tvm.IRModule:
    """`mod` with a function ABOUT that describes its machine and programs."""
    about = {
        "version": version("vta_byoc"),
        "machine": config.to_dict(),
        "programs": {name: program_facts(program) for name, program in programs.items()},
    }
    return constant_text(mod, ABOUT, json.dumps(about))


def program_facts(program: Program) -> dict[str, Any]:
    """Sizes of a program in numbers and bytes, and the counters of one run."""
    return {
        "instructions": len(program.insns),
        "constant_bytes": int(program.image.size),
        "arena_bytes": program.arena_bytes,
        "counters": program.counters(),
    }


@dataclass(frozen=True)
class Library:
    """A loaded library.

    Attributes:
        machine: the virtual machine that runs it.
        inputs: what its `main` takes.
        states: what those of them begin with that stand for variables of the model, by name.
        about: version, machine and programs; empty for a library that does not say.
        nbytes: size of its file.
    """

    machine: relax.VirtualMachine
    module: tvm.runtime.Module
    inputs: list[InputType]
    states: Mapping[str, np.ndarray]
    about: Mapping[str, Any]
    nbytes: int


def load_library(path: Path) -> Library:
    """Load a library that `vta-byoc compile` or `export_library` wrote.

    Raises:
        VTAError: there is no such file, it is truncated, or it holds no model.
    """
    _check_whole(path)
    try:
        module = tvm.runtime.load_module(str(path))
        machine = relax.VirtualMachine(module, tvm.cpu())
        machine.module["get_function_arity"]("main")
    except (AttributeError, RuntimeError, OSError, ValueError) as error:
        line = next(iter(str(error).strip().splitlines()), "no message")
        raise VTAError(
            f'library "{path}" cannot be loaded: {line}; a library of this processor with a model '
            "in it is needed; compile the model again"
        ) from error
    says = machine.module.implements_function(ABOUT)
    about = json.loads(stated_text(machine, ABOUT)) if says else {}
    known = input_types(machine), states_of(machine), about
    return Library(machine, module, *known, path.stat().st_size)


def _check_whole(path: Path) -> None:
    """Refuse a truncated file: the dynamic linker would map it as if it were whole, and crash."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            head = file.read(_SECTIONS.size)
    except OSError as error:
        raise VTAError(
            f'library "{path}" cannot be read ({error.strerror}); give a library that vta-byoc '
            "compile has written"
        ) from error
    if head[: len(ELF)] != ELF:
        return  # of another system: its own linker says what is wrong
    end = size + 1
    if len(head) == _SECTIONS.size:
        offset, each, count = _SECTIONS.unpack(head)
        end = offset + each * count
    if end > size:
        raise VTAError(
            f'library "{path}" is truncated: it has {size} bytes; at least {end} belong to it; '
            "copy it again or compile the model again"
        )


def noise_of(inputs: list[InputType], seed: int) -> list[np.ndarray]:
    """Random arrays for the inputs of a library: normal floats, any integers.

    Raises:
        VTAError: an input whose shape the library does not say.
    """
    rng, arrays = np.random.default_rng(seed), []
    for item in inputs:
        if item.shape is None or item.dtype is None:
            raise VTAError(
                f"input {item.name!r} has no stated shape; noise needs one; give --input"
            )
        dtype = np.dtype(item.dtype)
        if dtype.kind == "f":
            arrays.append(rng.standard_normal(item.shape).astype(dtype))
        else:
            ends = np.iinfo(dtype)
            arrays.append(rng.integers(ends.min, ends.max, item.shape, dtype, endpoint=True))
    return arrays
