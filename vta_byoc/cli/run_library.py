"""`vta-byoc run FILE.so`: an exported library, without the model that it was compiled from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from vta_byoc.cli.consoles import say
from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    import numpy as np

    from vta_byoc.reports.run.inputs import Input
    from vta_byoc.runtime.library import Library
    from vta_byoc.runtime.profile import Profile

LIBRARY_SUFFIXES = (".so", ".dylib", ".dll")
OF_MODELS = {
    "config": "--config",
    "shapes": "--shape",
    "fixed": "--fix",
    "calibration": "--calibration",
    "device": "--device",
    "check": "--check",
}
"""Parameters of `run` that a library has answered already, and their options."""


def holds_library(path: str) -> bool:
    """Whether a command is given an exported library, by its name."""
    return Path(path).suffix in LIBRARY_SUFFIXES


def is_compiled(path: str) -> bool:
    """Whether a command is given a library or the folder of a bundle."""
    from vta_byoc.bundle.read import is_bundle

    return holds_library(path) or is_bundle(Path(path))


def run_library(
    file: str, inputs: Sequence[str], as_json: bool, output: str | None, seed: int
) -> None:
    """Run a library and print what its regions counted; options are those of `run`.

    Inputs that stand for variables of the model begin as the model does, unless given.

    Raises:
        VTAError: options that say how to compile a model, inputs that the library does not take, or
            a bundle, which needs the C runtime.
    """
    from vta_byoc.base.arrays import save_named
    from vta_byoc.cli import files
    from vta_byoc.cli.inputs import read_arrays
    from vta_byoc.runtime.execute import profile
    from vta_byoc.runtime.library import load_library

    if not holds_library(file):
        raise VTAError(
            f'"{file}" is a bundle; run takes models, libraries and program files; run it with the '
            'C runtime: cp -r "$(python -m vta_byoc.bundle.runtime_source)" runtime && make -C '
            "runtime"
        )
    _refuse_options()
    given = read_arrays(inputs)
    if output is not None:
        files.check_writable(Path(output), ".npz")
    library = load_library(Path(file))
    bound = _bound(library, given, seed)
    found = profile(library.module, [value.array for _, value in bound])
    names = [f"output{i}" for i in range(len(found.outputs))]
    if output is not None:
        with files.replacing(Path(output)) as temporary:
            save_named(temporary, dict(zip(names, found.outputs, strict=True)))
    _print(file, bound, names, found, as_json)


def _refuse_options() -> None:
    context = click.get_current_context()
    for name, option in OF_MODELS.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise VTAError(
                f"{option} with a library; machine, device and shapes are compiled into it; leave "
                f"{option} out, or give the model"
            )


def _bound(
    library: Library, given: Sequence[tuple[str, str, np.ndarray]], seed: int
) -> list[tuple[str, Input]]:
    """Names and arrays of the library's inputs: those given, by name or in order; states; noise."""
    from vta_byoc.reports.run.inputs import Input

    names = [item.name for item in library.inputs]
    bound = _drawn(library, seed) if len(given) < len(names) else {}
    named = {name for name, _, _ in given if name}
    free = [i for i, name in enumerate(names) if name not in named]
    for name, path, array in given:
        if (name and name not in names) or not (name or free):
            raise VTAError(
                f'input file "{path}" is for "{name or "one input more"}"; the library takes '
                f"{', '.join(names) or 'none'}; name one of them"
            )
        bound[names.index(name) if name else free.pop(0)] = Input(array, path)
    return [(name, bound[i]) for i, name in enumerate(names)]


def _drawn(library: Library, seed: int) -> dict[int, Input]:
    """Inputs by their number: what variables of the model begin with, and noise for others."""
    from vta_byoc.cli.inputs import begun, noise
    from vta_byoc.runtime.library import noise_of

    states = begun(library.states)
    others = [i for i, item in enumerate(library.inputs) if item.name not in states]
    arrays = noise_of([library.inputs[i] for i in others], seed)
    found = {i: states[item.name] for i, item in enumerate(library.inputs) if item.name in states}
    return found | {i: noise(array, seed) for i, array in zip(others, arrays, strict=True)}


def _print(
    file: str,
    bound: Sequence[tuple[str, Input]],
    names: Sequence[str],
    found: Profile,
    as_json: bool,
) -> None:
    outputs = {
        name: {"shape": list(array.shape), "dtype": str(array.dtype)}
        for name, array in zip(names, found.outputs, strict=True)
    }
    if as_json:
        facts = {"library": file, "regions": len(found.regions), "counters": found.counters}
        inputs = {name: value.to_json() for name, value in bound}
        say(json.dumps({**facts, "inputs": inputs, "outputs": outputs}, indent=2))
        return
    say(f"{file}: regions that ran: {len(found.regions)}")
    for name, value in bound:
        say(value.line(name))
    for name, count in found.counters.items():
        say(f"{name:<18}{count:>16,}")
    for name, array in zip(names, found.outputs, strict=True):
        say(f"{name} {array.dtype} {array.shape}")
