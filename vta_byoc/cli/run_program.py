"""`vta-byoc run FILE.vta`: one program on a device, without the model that it is a part of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vta_byoc.cli.consoles import say
from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    import numpy as np

    from vta_byoc.hw.program.program import Program
    from vta_byoc.hw.result import RunResult


def noise(program: Program, seed: int) -> dict[str, np.ndarray]:
    """The inputs of a program with every bit random."""
    import numpy as np

    rng = np.random.default_rng(seed)
    return {
        s.name: np.frombuffer(rng.bytes(s.nbytes), s.dtype).reshape(s.shape)
        for s in program.of_kind("input")
    }


def run_program(
    file: str,
    inputs: Sequence[str],
    device: str,
    check: bool,
    as_json: bool,
    output: str | None,
    seed: int,
) -> bool:
    """Run a program file and print what it counted; options are those of `run`.

    With `check` its outputs are compared with those of the model of the machine in NumPy.

    Returns:
        Whether nothing differs.
    """
    from vta_byoc.base.arrays import save_named
    from vta_byoc.cli import files
    from vta_byoc.cli.inputs import read_arrays
    from vta_byoc.hw.program.file import load
    from vta_byoc.hw.sim.simulator import run

    program, given = load(file), read_arrays(inputs)
    if output is not None:
        files.check_writable(Path(output), ".npz")
    arrays = _bound(program, given, seed)
    result = run(program, arrays, device=device)
    same = _same(program, arrays, result) if check else None
    if output is not None:
        with files.replacing(Path(output)) as temporary:
            save_named(temporary, result.outputs)
    _print(file, program, result, same, as_json)
    return same is not False


def _bound(
    program: Program, given: Sequence[tuple[str, str, np.ndarray]], seed: int
) -> dict[str, np.ndarray]:
    arrays = noise(program, seed)
    unnamed = [name for name in arrays if name not in {name for name, _, _ in given}]
    for name, path, array in given:
        target = name or (unnamed.pop(0) if unnamed else "")
        if target not in arrays:
            raise VTAError(
                f'input file "{path}" is for "{target or "one input more"}"; the program takes '
                f"{', '.join(arrays) or 'none'}; name one of them"
            )
        arrays[target] = array
    return arrays


def _same(program: Program, arrays: dict[str, np.ndarray], result: RunResult) -> bool:
    import numpy as np

    from vta_byoc.hw.reference.numpy_model import run_stream

    arena = run_stream(program.config, program.insns, program.new_arena(arrays)).arena
    return all(
        np.array_equal(program.view(arena, name), array) for name, array in result.outputs.items()
    )


def _print(
    file: str, program: Program, result: RunResult, same: bool | None, as_json: bool
) -> None:
    outputs = {
        name: {"shape": list(array.shape), "dtype": str(array.dtype)}
        for name, array in result.outputs.items()
    }
    cycles = None if result.timing is None else result.timing.cycles
    if as_json:
        found = {"program": file, "bit_exact": same, "counters": result.counters}
        say(json.dumps({**found, "cycles": cycles, "outputs": outputs}, indent=2))
        return
    say(f"{file}: {program!r}")
    for name, count in result.counters.items():
        say(f"{name:<18}{count:>14,}")
    if cycles is not None:
        say(f"{'cycles':<18}{cycles:>14,}")
    for name, array in result.outputs.items():
        say(f"output {name} {array.dtype} {array.shape}")
    if same is not None:
        say("check: " + ("bit-exact with the model in NumPy" if same else "differs from NumPy's"))
