"""What `build` returns, and the executor that runs it under its old names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.runtime.execute import run_vm


@dataclass(frozen=True, eq=False)
class Library:
    """A compiled module.

    Attributes:
        exe: what `vta_byoc.build` returns; `vta_byoc.profile` takes it.
        inputs: the names of the inputs, in order.
        outputs: how many results there are.
        weights: names of parameters that are part of the library.
    """

    exe: Any
    inputs: list[str]
    outputs: int
    weights: frozenset[str]

    def __getitem__(self, name: str) -> Callable[[object], Library]:
        """`lib["default"](device)`, as old scripts make what `GraphModule` takes."""
        if name != "default":
            raise VTAError(f'the library has no function "{name}"; "default" is the one; use it')
        return lambda device: self


class GraphModule:
    """Runs a library: `set_input`, `run`, `get_output`."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._machine = relax.VirtualMachine(library.exe, tvm.cpu())
        self._feed: dict[str, np.ndarray] = {}
        self._results: list[np.ndarray] | None = None

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Set one input by name or number, or several by name.

        Weights are in the library already and are not read.

        Raises:
            VTAError: no such input.
        """
        given = dict(params)
        if key is not None:
            given[self._name(key)] = value
        for name, array in given.items():
            if name in self._library.weights:
                continue
            self._feed[self._name(name)] = (
                array if isinstance(array, np.ndarray) else np.asarray(array.numpy())
            )

    def _name(self, key: str | int) -> str:
        inputs = self._library.inputs
        if isinstance(key, int) and 0 <= key < len(inputs):
            return inputs[key]
        if key in inputs or key in self._library.weights:
            return str(key)
        listed = ", ".join(f'"{name}"' for name in inputs)
        raise VTAError(f'"{key}" is no input; the inputs are {listed}; use one of them')

    def run(self, **inputs: Any) -> None:
        """Run once, with inputs that are set before or now.

        Raises:
            VTAError: an input is missing, or has another shape or dtype.
        """
        self.set_input(**inputs)
        missing = [name for name in self._library.inputs if name not in self._feed]
        if missing:
            listed = ", ".join(f'"{name}"' for name in missing)
            raise VTAError(f"no array for the inputs {listed}; give each with set_input")
        self._results = run_vm(self._machine, [self._feed[n] for n in self._library.inputs])

    def get_num_outputs(self) -> int:
        """How many results there are."""
        return self._library.outputs

    def get_output(self, index: int, out: Any = None) -> Any:
        """A result of the last run as a tensor of TVM's; copied into `out` where that is given.

        Raises:
            VTAError: nothing ran yet, or there is no such result.
        """
        results = self._outputs()
        if not 0 <= index < len(results):
            raise VTAError(f"output {index} of {len(results)}; give a number below that")
        if out is None:
            return tvm.runtime.tensor(results[index])
        out.copyfrom(results[index])
        return out

    def _outputs(self) -> list[np.ndarray]:
        if self._results is None:
            raise VTAError("nothing ran yet, so that there is no output; call run() first")
        return self._results
