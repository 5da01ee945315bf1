"""Parameters of `main`: which are weights, their values from a file, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.base import limits
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.relay.graph import (
    Call,
    Constant,
    Expr,
    Function,
    Module,
    Param,
    TensorType,
    Type,
    in_order,
)

WEIGHTS: dict[str, tuple[int, ...]] = {
    **{f"nn.conv{axes}d": (1,) for axes in (1, 2, 3)},
    **{f"nn.conv{axes}d_transpose": (1,) for axes in (1, 2, 3)},
    **{name: (1,) for name in ("nn.dense", "nn.bias_add", "nn.prelu")},
    "nn.batch_norm": (1, 2, 3, 4),
    **{f"nn.{kind}_norm": (1, 2) for kind in ("layer", "group", "instance")},
    **{name: (1, 2, 3, 4, 5) for name in ("qnn.conv2d", "qnn.dense", "qnn.conv2d_transpose")},
    "qnn.requantize": (1, 2, 3, 4),
    "qnn.quantize": (1, 2),
    "qnn.dequantize": (1, 2),
}
"""Operator -> its operands that are weights."""
MOVES = frozenset(
    ("reshape", "transpose", "expand_dims", "squeeze", "layout_transform", "cast", "copy")
)
"""Operators behind which a weight is still a weight."""
ELEMENTWISE = frozenset(("add", "subtract", "multiply", "divide", "maximum", "minimum"))
LISTED = 6
"""Missing tensors that an error names."""
VARIANCE = ("nn.batch_norm", 4)


@dataclass(frozen=True)
class Tensors:
    """Values of tensors by their names: given, or drawn.

    Attributes:
        given: from a parameter file.
        seed: of random values for what is not given; None: nothing is drawn.
    """

    given: Mapping[str, np.ndarray]
    seed: int | None = None


def bound(module: Module, main: Function, tensors: Tensors, what: str) -> dict[int, np.ndarray]:
    """The value of every parameter and constant that is no input, by `id` of its expression.

    Raises:
        VTAError: values are missing, have another shape, or none of the names is a parameter.
    """
    names = {param.name for param in main.params}
    if tensors.given and names.isdisjoint(tensors.given):
        raise VTAError(
            f"the parameter file has {_listed(tensors.given)}; {what} has the parameters "
            f"{_listed(names)}; give the file that was saved with this module"
        )
    values: dict[int, np.ndarray] = {}
    missing: list[Param | Constant] = []
    uses = _uses(main)
    weights = _weights(main, uses)
    for param in main.params:
        if param.name in tensors.given:
            values[id(param)] = _checked(param, tensors.given[param.name])
        elif id(param) in weights:
            missing.append(param)
    missing += [e for e in in_order(main.body) if isinstance(e, Constant) and e.array is None]
    if missing and tensors.seed is None:
        raise _missing(missing, what)
    variances = {id(arg) for arg, use in uses if use == VARIANCE}
    values.update(_drawn(missing, tensors.seed or 0, variances))
    return values


def _uses(main: Function) -> list[tuple[Expr, tuple[str, int]]]:
    """Every operand with the operator and the place where it is read."""
    calls = [e for e in in_order(main.body) if isinstance(e, Call) and isinstance(e.op, str)]
    return [(arg, (str(c.op), i)) for c in calls for i, arg in enumerate(c.args)]


def _weights(main: Function, uses: Sequence[tuple[Expr, tuple[str, int]]]) -> set[int]:
    """Parameters that are read as weights: by place, or broadcast to what another one makes."""
    marked = {id(arg) for arg, (op, place) in uses if place in WEIGHTS.get(op, ())}
    calls = [e for e in in_order(main.body) if isinstance(e, Call) and isinstance(e.op, str)]
    for call in reversed(calls):
        if id(call) in marked and call.op in MOVES:
            marked.update(id(arg) for arg in call.args)
        if call.op == "take" and not isinstance(call.args[1], Constant):
            marked.add(id(call.args[0]))
        if call.op in ELEMENTWISE and len(call.args) == 2:
            marked |= _smaller(call.args)
    return {id(p) for p in main.params if id(p) in marked}


def _smaller(args: Sequence[Expr]) -> set[int]:
    """The parameter beside a value that is computed, as biases and factors of channels are."""
    first, second = args
    pairs = ((first, second), (second, first))
    return {
        id(param)
        for param, other in pairs
        if isinstance(param, Param) and isinstance(other, Call) and _is_small(param.type)
    }


def _is_small(type_: Type) -> bool:
    """Whether a tensor has one axis with more than one element at most."""
    return isinstance(type_, TensorType) and sum(dim != 1 for dim in type_.shape) <= 1


def _checked(param: Param, value: np.ndarray) -> np.ndarray:
    declared = param.type
    if not isinstance(declared, TensorType):
        return value
    fits = len(declared.shape) == value.ndim and all(
        dim in (None, size) for dim, size in zip(declared.shape, value.shape, strict=True)
    )
    if fits and str(value.dtype) == declared.dtype:
        return value
    found = TensorType(value.shape, str(value.dtype))
    raise VTAError(
        f'parameter "{param.name}" is {declared}; the parameter file has {found}; give the file '
        "that was saved with this module"
    )


def _missing(missing: Sequence[Param | Constant], what: str) -> VTAError:
    shown = [f'"{item.name}" {item.type or "of unknown type"}' for item in missing[:LISTED]]
    rest = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
    count = "1 tensor" if len(missing) == 1 else f"{len(missing)} tensors"
    return VTAError(
        f"{what} has no values for {count}: {', '.join(shown)}{rest}; give them with params= "
        "(--params FILE), save the text with its metadata, or draw them with random_params= "
        "(--random-params SEED)"
    )


def _drawn(
    missing: Iterable[Param | Constant], seed: int, variances: set[int]
) -> dict[int, np.ndarray]:
    """Random values: floats near those of trained layers, integers of a few bits."""
    rng = np.random.default_rng(seed)
    values = {}
    for item in missing:
        kind = item.type
        if not isinstance(kind, TensorType) or None in kind.shape:
            raise VTAError(
                f'tensor "{item.name}" has no known shape, so that no values can be drawn; save '
                "the text with its types (mod.astext() after InferType) or with its metadata"
            )
        shape = tuple(int(dim or 0) for dim in kind.shape)
        limits.check([limits.declared(f'tensor "{item.name}"', shape, kind.dtype)], "the model")
        if kind.dtype.startswith("float"):
            reads = max(int(np.prod(shape[1:])), 1)
            drawn = rng.standard_normal(shape) / np.sqrt(reads)
            drawn = np.abs(drawn) + 0.5 if id(item) in variances else drawn
        else:
            drawn = rng.integers(0 if kind.dtype[0] == "u" else -8, 8, shape)
        values[id(item)] = drawn.astype(kind.dtype)
    return values


def _listed(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
    return ", ".join(f'"{name}"' for name in listed[:LISTED]) + more
