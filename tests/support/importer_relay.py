"""One drawn Relay text for every operator that the reader takes.

Expected values come from `relay_numpy`, which computes the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from importer_draws import Case, Draw, case_folder
from importer_relay_layers import LAYERS
from importer_relay_moves import MOVES
from importer_relay_qnn import QNN
from relay_files import metadata
from relay_numpy import evaluate

from vta_byoc.importers.relay.read import read_text


@dataclass
class Drawn:
    """A call under test.

    Attributes:
        inputs: the arrays that the model is fed with.
        attrs: attribute -> value as text.
        args: the operands as text; None: all inputs in order.
    """

    inputs: Sequence[np.ndarray]
    attrs: dict[str, str] = field(default_factory=dict)
    args: str | None = None


def relay_type(array: np.ndarray) -> str:
    """As the text has it."""
    dims = ", ".join(map(str, array.shape))
    return f"Tensor[({dims}), {array.dtype}]" if array.ndim else str(array.dtype)


WEIGHTS = {
    **{f"nn.conv{axes}d{kind}": (1,) for axes in (1, 2, 3) for kind in ("", "_transpose")},
    **{name: (1,) for name in ("nn.dense", "nn.bias_add", "nn.prelu")},
    **{name: (1,) for name in ("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense")},
    "take": (0,),
    **{f"nn.{kind}_norm": (1, 2, 3, 4) for kind in ("batch", "layer", "group", "instance")},
}
"""Operator -> the inputs that are constants of the metadata instead."""


SUMS = ("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense", "qnn.batch_matmul")
"""Operators whose int32 result stands before a requantize."""


def relay_text(operator: str, drawn: Drawn) -> tuple[str, list[int]]:
    """A module of the one call, and the inputs that it has left."""
    fed = [i for i in range(len(drawn.inputs)) if i not in WEIGHTS.get(operator, ())]
    params = ", ".join(f"%x{i}: {relay_type(drawn.inputs[i])}" for i in fed)
    kept = [x for i, x in enumerate(drawn.inputs) if i not in fed]
    numbers = {i: n for n, i in enumerate(i for i in range(len(drawn.inputs)) if i not in fed)}
    args = drawn.args
    if args is None:
        listed = [
            f"%x{i}" if i in fed else f"meta[relay.Constant][{numbers[i]}] /* ty={relay_type(x)} */"
            for i, x in enumerate(drawn.inputs)
        ]
        args = ", ".join(listed)
    attrs = [f"{name}={value}" for name, value in drawn.attrs.items()]
    for i, number in numbers.items():
        args = args.replace(f"%x{i}", f"meta[relay.Constant][{number}]")
    call = f"{operator}({', '.join([*([args] if args else []), *attrs])})"
    if operator in SUMS:
        call = f"qnn.requantize({call}, {args.split(', ')[4]}, 0, 0.9f, 3, axis=1)"
    text = f'#[version = "0.0.5"]\ndef @main({params}) {{\n  {call}\n}}\n'
    return text + (metadata(kept) if kept else ""), fed


def case(operator: str, number: int, seed: int = 0) -> Case:
    """Draw `number` of an operator."""
    key = sum(ord(letter) * 31**i for i, letter in enumerate(operator)) % 2**32
    drawn = Drawn(*CASES[operator](Draw(seed, key, number)))
    text, fed = relay_text(operator, drawn)
    feed = {f"x{i}": drawn.inputs[i] for i in fed}

    def model() -> Path:
        path = case_folder() / f"{operator}{number}_{seed}.relay"
        path.write_text(text, encoding="utf-8")
        return path

    def expected() -> list[np.ndarray]:
        return evaluate(read_text(text, "the text"), feed)

    return Case(operator, model, list(feed.values()), expected, text.splitlines()[2].strip())


# ---------------------------------------------------------------- elementwise
Tuple3 = tuple[Any, ...]


def _floats(low: float = -4, high: float = 4) -> Callable[[Draw], Tuple3]:
    return lambda d: ([d.floats(d.shape(0, 4), low, high)],)


def _pair(low: float = -4, high: float = 4) -> Callable[[Draw], Tuple3]:
    def draw(d: Draw) -> Tuple3:
        shape = d.shape(1, 4)
        return ([d.floats(shape, low, high), d.floats(d.broadcast(shape), low, high)],)

    return draw


def _integers(low: int, high: int, least: int | None = None) -> Callable[[Draw], Tuple3]:
    """Two integer tensors; the second from `least`."""

    def draw(d: Draw) -> Tuple3:
        shape, dtype = d.shape(1, 3), d.pick("int32", "int32", "int64")
        second = d.integers(d.broadcast(shape), low if least is None else least, high)
        return ([d.integers(shape, low, high).astype(dtype), second.astype(dtype)],)

    return draw


def _either(*draws: Callable[[Draw], Tuple3]) -> Callable[[Draw], Tuple3]:
    return lambda d: d.pick(*draws)(d)


def _truths(count: int) -> Callable[[Draw], Tuple3]:
    def draw(d: Draw) -> Tuple3:
        shape = d.shape(1, 3)
        return ([d.integers(shape, 0, 1).astype("bool") for _ in range(count)],)

    return draw


def _clip(d: Draw) -> Tuple3:
    if d.flag():
        return [d.floats(d.shape())], {"a_min": "-1.5f", "a_max": d.pick("6f", "2.5f")}
    x = d.integers(d.shape(), -300, 300).astype("int32")
    low, high = d.pick("-127f", "0f", "-2.57698e+10f"), d.pick("127f", "2.57698e+10f", "5.33333f")
    return [x], {"a_min": low, "a_max": high}


def _cast(d: Draw) -> Tuple3:
    to = d.pick("int8", "int32", "float32", "uint8", "bool", "int64")
    if d.flag() and to in ("int32", "float32", "bool"):
        return [d.floats(d.shape())], {"dtype": f'"{to}"'}
    return [d.integers(d.shape(), -300, 300).astype("int32")], {"dtype": f'"{to}"'}


def _shift(most: int) -> Callable[[Draw], Tuple3]:
    def draw(d: Draw) -> Tuple3:
        shape = d.shape(1, 3)
        return (
            [
                d.integers(shape, -1000, 1000).astype("int32"),
                d.integers(d.broadcast(shape), 0, most).astype("int32"),
            ],
        )

    return draw


def _where(d: Draw) -> Tuple3:
    shape = d.shape(1, 3)
    return ([d.integers(shape, 0, 1).astype("bool"), d.floats(shape), d.floats(shape)],)


def _prelu(d: Draw) -> Tuple3:
    shape = d.shape(2, 4)
    return ([d.floats(shape), d.floats(shape[1:2], 0, 1)],)


def _fixed_point(d: Draw) -> Tuple3:
    x = d.integers(d.shape(), -(2**30), 2**30).astype("int32")
    multiplier = d.size(2**30, 2**31 - 1)
    return [x], {"multiplier": str(multiplier), "shift": str(d.size(-8, 0))}


def _same(d: Draw) -> Tuple3:
    return ([d.floats(d.shape())],)


_ANY = ("abs", "ceil", "exp", "floor", "negative", "tanh", "sigmoid", "sign", "trunc", "erf")
_TRIGONOMETRIC = ("sin", "cos", "sinh", "cosh", "atan", "asinh", "isnan", "isfinite", "isinf")
_POSITIVE = ("log", "sqrt", "rsqrt", "log2", "log10")
_COMPARE = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
CASES: dict[str, Callable[[Draw], Tuple3]] = {
    **{n: _floats() for n in (*_ANY, *_TRIGONOMETRIC, "round", "nn.relu")},
    **{n: _floats() for n in ("fast_exp", "fast_tanh", "fast_erf")},
    **{n: _floats(0.1, 9) for n in _POSITIVE},
    **{n: _floats(-0.9, 0.9) for n in ("asin", "acos", "atanh")},
    "tan": _floats(-1.2, 1.2),
    "acosh": _floats(1.1, 5),
    **{n: _either(_pair(), _integers(-2000, 2000)) for n in ("add", "subtract", "multiply")},
    **{n: _either(_pair(), _integers(-9, 9)) for n in ("maximum", "minimum", *_COMPARE)},
    "divide": _either(_pair(0.2, 4), _integers(-90, 90, 1)),
    "power": _pair(0.2, 3),
    "mod": _integers(-90, 90, 1),
    "floor_mod": _integers(-90, 90, 1),
    "floor_divide": _integers(-90, 90, 1),
    **{n: _truths(2) for n in ("logical_and", "logical_or", "logical_xor")},
    "logical_not": _truths(1),
    **{n: _integers(-99, 99) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "bitwise_not": lambda d: ([d.integers(d.shape(), -99, 99).astype("int32")],),
    "left_shift": _shift(12),
    "right_shift": _shift(20),
    "clip": _clip,
    "cast": _cast,
    "cast_like": lambda d: ([d.floats(d.shape()), d.integers((2,), 0, 3).astype("int32")],),
    "where": _where,
    "fixed_point_multiply": _fixed_point,
    "nn.leaky_relu": lambda d: ([d.floats(d.shape())], {"alpha": "0.1f"} if d.flag() else {}),
    "nn.prelu": _prelu,
    **{n: _same for n in ("copy", "on_device", "annotation.stop_fusion", "annotation.checkpoint",
                          "annotation.bitpack_start", "annotation.bitpack_end")},
    "annotation.cast_hint": lambda d: ([d.floats(d.shape())], {"dtype": '"int8"'}),
    "annotation.compiler_begin": lambda d: ([d.floats(d.shape())], {"compiler": '"x"'}),
    "annotation.compiler_end": lambda d: ([d.floats(d.shape())], {"compiler": '"x"'}),
    **LAYERS,
    **MOVES,
    **QNN,
}  # fmt: skip
"""Operator -> inputs, attributes and operands of one draw."""
