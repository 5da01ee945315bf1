"""What an executable says of itself, also after it was exported and loaded elsewhere.

Its regions have numbers, which every call of the driver carries.  Its inputs are in a function of
its own beside ``main``, which returns their names, shapes and dtypes as the bytes of JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import tvm
from tvm import relax

from vta_byoc.hw.errors import VTAError

SIGNATURE = "vta_signature"
"""The function that returns what `main` takes: uint8, JSON text."""
STATES = "vta_initial_states"
"""The function that returns what inputs begin with that stand for variables of the model.

A tuple, in the order in which the signature names them; only models with variables have it.
"""


def region_name(number: int) -> str:
    """The name of a region by its number in the model, from 0."""
    return f"region{number}"


@dataclass(frozen=True)
class InputType:
    """One input of ``main``; ``shape`` and ``dtype`` are None where the executable does not say."""

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None

    def __str__(self) -> str:
        name = repr(self.name)
        return name if self.dtype is None else f"{name} {self.dtype} {self.shape}"


class _Named(TypedDict):
    name: str


class _Stated(_Named, total=False):
    """An input as the JSON text has it; a name alone where its type is not known."""

    shape: list[int]
    dtype: str


def with_signature(
    mod: tvm.IRModule, states: Mapping[str, np.ndarray] | None = None
) -> tvm.IRModule:
    """``mod`` with a function SIGNATURE that describes the parameters of its ``main``.

    Where there are ``states``, which inputs of these names begin with, it has STATES, too.
    """
    inputs = [_described(param) for param in mod["main"].params]
    if not states:
        return constant_text(mod, SIGNATURE, json.dumps({"inputs": inputs}))
    arrays = [relax.const(array, str(array.dtype)) for array in states.values()]
    text = json.dumps({"inputs": inputs, "states": list(states)})
    return constant_text(_stating(mod, STATES, relax.Tuple(arrays)), SIGNATURE, text)


def constant_text(mod: tvm.IRModule, name: str, text: str) -> tvm.IRModule:
    """``mod`` with a function ``name`` that returns ``text`` as uint8."""
    return _stating(mod, name, relax.const(np.frombuffer(text.encode(), np.uint8), "uint8"))


def _stating(mod: tvm.IRModule, name: str, body: relax.Expr) -> tvm.IRModule:
    """``mod`` with a function ``name`` that returns constants."""
    function = relax.Function([], relax.SeqExpr([], body), ret_ty=body.ty)
    result = mod.clone()
    result[name] = function.with_attr("global_symbol", name)
    return relax.transform.Normalize()(result)


def stated_text(machine: relax.VirtualMachine, name: str) -> str:
    """What the function that :func:`constant_text` added returns."""
    return str(machine[name]().numpy().tobytes().decode())


def _described(param: relax.Var) -> _Stated:
    shape, dtype = getattr(param.ty, "shape", None), str(getattr(param.ty, "dtype", ""))
    sizes = None if shape is None else list(getattr(shape, "values", shape))
    if sizes is None or not dtype or not all(hasattr(size, "value") for size in sizes):
        return {"name": str(param.name)}
    return {"name": str(param.name), "shape": [int(s.value) for s in sizes], "dtype": dtype}


def input_types(machine: relax.VirtualMachine) -> list[InputType]:
    """The inputs of ``main`` in order; of an executable without a signature only their names."""
    if machine.module.implements_function(SIGNATURE):
        stated = json.loads(stated_text(machine, SIGNATURE))["inputs"]
        return [_stated(entry) for entry in stated]
    count = machine.module["get_function_arity"]("main")
    name_of = machine.module["get_function_param_name"]
    return [InputType(str(name_of("main", i))) for i in range(count)]


def states_of(machine: relax.VirtualMachine) -> dict[str, np.ndarray]:
    """What inputs begin with that stand for variables of the model, by their names."""
    if not machine.module.implements_function(STATES):
        return {}
    names = json.loads(stated_text(machine, SIGNATURE))["states"]
    return {n: array.numpy() for n, array in zip(names, machine[STATES](), strict=True)}


def _stated(entry: _Stated) -> InputType:
    if "shape" not in entry:
        return InputType(entry["name"])
    return InputType(entry["name"], tuple(entry["shape"]), entry["dtype"])


# ---------------------------------------------------------------- checking what is given
def named_in_order(
    given: Mapping[str, np.ndarray], wanted: Sequence[InputType]
) -> list[np.ndarray]:
    """``given`` by name as the inputs ``wanted``, in their order.

    Raises:
        VTAError: other names than those of the model, or a model with equal names.
    """
    names = [item.name for item in wanted]
    if len(set(names)) < len(names):
        raise VTAError(
            f"inputs {', '.join(map(repr, given)) or 'none'} given by name; the model has inputs "
            f"of equal names: {_listed(wanted)}; give a sequence in this order"
        )
    if set(given) != set(names):
        raise VTAError(
            f"inputs {', '.join(map(repr, given)) or 'none'} given; the model takes "
            f"{_listed(wanted)}; give an array under each of these names"
        )
    return [given[name] for name in names]


def check_inputs(arrays: Sequence[np.ndarray], wanted: Sequence[InputType]) -> None:
    """Refuse arrays that ``main`` does not take.

    Raises:
        VTAError: another number of arrays, another shape or another dtype.
    """
    if len(arrays) != len(wanted):
        raise VTAError(
            f"arrays given: {len(arrays)}; the model takes {len(wanted)}: {_listed(wanted)}; give "
            "one for each input"
        )
    for array, item in zip(arrays, wanted, strict=True):
        if item.shape is None:
            continue
        if array.dtype != item.dtype:
            raise VTAError(
                f"input {item.name!r} has dtype {array.dtype}; the model takes {item.dtype}; "
                f'convert it with .astype("{item.dtype}")'
            )
        if array.shape != item.shape:
            raise VTAError(
                f"input {item.name!r} has shape {array.shape}; the model takes {item.shape}; "
                "reshape or crop the array"
            )


def _listed(wanted: Sequence[InputType]) -> str:
    return ", ".join(map(str, wanted)) or "none"
