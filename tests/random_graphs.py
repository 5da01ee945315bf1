"""Random networks of the integer dialect: 2 to 12 operators of all kinds, branches and islands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from integer_models import IntegerNet
from tvm import relax

from vta_byoc.bindings import static_shape

MOST_ELEMENTS = 12_000
"""Of one tensor."""


class GraphMaker:
    """Grows one network; every operator reads tensors that are there."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        size = (int(self.rng.integers(4, 10)), int(self.rng.integers(4, 10)))
        # inputs of 32 channels fill the lanes of all machines: folding has tests of its own
        shape = (int(self.rng.choice([1, 1, 2])), 32, *size)
        self.net = IntegerNet(seed, x=shape, y=shape)
        self.values: list[relax.Var] = list(self.net.params)
        self.made: list[str] = []

    def build(self) -> tvm.IRModule:
        """The module; some values that nothing reads are results beside the last one."""
        wanted = int(self.rng.integers(2, 13))
        while len(self.made) < wanted:
            kind = str(self.rng.choice(list(KINDS), p=WEIGHTS))
            value = KINDS[kind](self, f"{kind}{len(self.made)}")
            if value is not None:
                self.values.append(value)
                self.made.append(kind)
        extra = [v for v in self.values[2:-1] if self.rng.random() < 0.15]
        return self.net.module(self.values[-1], *extra)

    # ---------------------------------------------------------------- choices
    def pick(self) -> relax.Var:
        """A tensor, mostly a late one."""
        late = self.values[-3:]
        return late[int(self.rng.integers(len(late)))]

    def shape(self, value: relax.Var) -> tuple[int, int, int, int]:
        n, c, h, w = static_shape(value)
        return n, c, h, w

    def twin(self, value: relax.Var) -> relax.Var | None:
        """Another tensor of the shape of ``value``."""
        same = [v for v in self.values if static_shape(v) == static_shape(value)]
        return same[int(self.rng.integers(len(same)))]

    def channels(self) -> int:
        return int(self.rng.choice([1, 8, 16, 24, 32, 37, 48]))

    # ---------------------------------------------------------------- operators
    def conv(self, name: str) -> relax.Var:
        x = self.pick()
        k = int(self.rng.choice([1, 3, 3, 5]))
        stride = int(self.rng.integers(1, 3)) if min(self.shape(x)[2:]) > 3 else 1
        shift, relu = int(self.rng.integers(7, 11)), bool(self.rng.random() < 0.6)
        return self.net.conv(
            x, self.channels(), k, stride=stride, relu=relu, shift=shift, name=name
        )

    def grouped(self, name: str) -> relax.Var | None:
        x = self.pick()
        c = self.shape(x)[1]
        groups = [g for g in range(2, c + 1) if c % g == 0]
        if not groups:
            return None
        g = int(self.rng.choice([groups[-1], groups[int(self.rng.integers(len(groups)))]]))
        return self.net.conv(x, c, 3, groups=g, shift=6, name=name)

    def transposed(self, name: str) -> relax.Var | None:
        x = self.pick()
        n, c, h, w = self.shape(x)
        co = self.channels()
        if n * co * h * w * 4 > MOST_ELEMENTS or min(h, w) < 2:
            return None
        k = int(self.rng.integers(2, 5))
        weight = self.rng.integers(-127, 128, (c, co, k, k)).astype("int8")
        product = relax.op.nn.conv2d_transpose(
            x, relax.const(weight), strides=(2, 2), padding=(1, 1), out_dtype="int32"
        )
        value = self.net.emit(product, f"{name}__acc")
        bias = self.rng.integers(-999, 999, (1, co, 1, 1)).astype("int32")
        return self.finish(value, name, ("add", bias), ("right_shift", np.int32(9)))

    def finish(
        self, value: relax.Expr, name: str, *steps: tuple[str, np.ndarray | np.int32]
    ) -> relax.Var:
        """Steps, saturation and int8."""
        all_steps = [*steps, ("maximum", np.int32(-128)), ("minimum", np.int32(127))]
        for number, (op, constant) in enumerate(all_steps):
            call = getattr(relax.op, op)(value, relax.const(np.asarray(constant, "int32")))
            value = self.net.emit(call, f"{name}__{number}")
        return self.net.emit(relax.op.astype(value, "int8"), name)

    def wide(self, value: relax.Var, name: str) -> relax.Var:
        return self.net.emit(relax.op.astype(value, "int32"), name)

    def binary(self, name: str) -> relax.Var | None:
        x = self.pick()
        y = self.twin(x)
        if y is None:
            return None
        sides = [self.wide(v, f"{name}__{s}") for v, s in ((x, "lhs"), (y, "rhs"))]
        op = str(self.rng.choice(["add", "add", "subtract", "maximum", "minimum", "multiply"]))
        value = self.net.emit(getattr(relax.op, op)(*sides), f"{name}__acc")
        half = ("add", np.int32(1 << 6)) if op == "multiply" else ("add", np.int32(1))
        shift = np.int32(7 if op == "multiply" else 1)
        return self.finish(value, name, half, ("right_shift", shift))

    def unary(self, name: str) -> relax.Var:
        x = self.pick()
        value = self.wide(x, f"{name}__acc")
        by_channel = self.rng.integers(-20, 20, (1, self.shape(x)[1], 1, 1)).astype("int32")
        factor = by_channel if self.rng.random() < 0.5 else np.int32(5)
        return self.finish(value, name, ("multiply", factor), ("right_shift", np.int32(3)))

    def leaky(self, name: str) -> relax.Var:
        x = self.wide(self.pick(), f"{name}__acc")
        scaled = self.net.emit(
            relax.op.left_shift(x, relax.const(np.int32(3))), f"{name}__kept__shift"
        )
        value = self.net.emit(relax.op.maximum(scaled, x), f"{name}__max")
        return self.finish(value, name, ("add", np.int32(4)), ("right_shift", np.int32(3)))

    def clamp(self, name: str) -> relax.Var:
        x = self.pick()
        low = self.net.emit(relax.op.maximum(x, relax.const(np.int8(-9))), f"{name}__low")
        return self.net.emit(relax.op.minimum(low, relax.const(np.int8(90))), name)

    def pool(self, name: str) -> relax.Var | None:
        x = self.pick()
        if min(self.shape(x)[2:]) < 3:
            return None
        k, s, p = ((2, 2, 0), (3, 2, 1), (3, 1, 1))[int(self.rng.integers(3))]
        options = {"pool_size": (k, k), "strides": (s, s), "padding": (p, p)}
        return self.net.op("nn.max_pool2d", x, **options, name=name)

    def mean(self, name: str) -> relax.Var:
        value = self.wide(self.pick(), f"{name}__int32")
        total = self.net.op("sum", value, axis=[2, 3], keepdims=True, name=f"{name}__acc")
        return self.finish(total, name, ("multiply", np.int32(9)), ("right_shift", np.int32(8)))

    def concat(self, name: str) -> relax.Var | None:
        x = self.pick()
        n, _, h, w = self.shape(x)
        others = [v for v in self.values if self.shape(v)[::2] == (n, h) and self.shape(v)[3] == w]
        parts = [x, *(others[int(i)] for i in self.rng.integers(len(others), size=2))]
        parts = parts[: int(self.rng.integers(2, 4))]
        if sum(self.shape(p)[1] for p in parts) * n * h * w > MOST_ELEMENTS:
            return None
        return self.net.emit(relax.op.concat(parts, axis=1), name)

    def slice(self, name: str) -> relax.Var | None:
        x = self.pick()
        _, c, h, _ = self.shape(x)
        if c < 4 or h < 4:
            return None
        first = int(self.rng.integers(0, c // 2))
        return self.net.op("strided_slice", x, [1, 2], [first, 1], [c, h], [1, 2], name=name)

    def pad(self, name: str) -> relax.Var:
        widths = (0, 0, 0, 0, *(int(w) for w in self.rng.integers(0, 3, 4)))
        return self.net.op("nn.pad", self.pick(), widths, name=name)

    def upsample(self, name: str) -> relax.Var | None:
        x = self.pick()
        if np.prod(self.shape(x)) * 4 > MOST_ELEMENTS:
            return None
        rows = self.net.op("repeat", x, 2, 2, name=f"{name}__rows")
        return self.net.op("repeat", rows, 2, 3, name=name)

    def shuffle(self, name: str) -> relax.Var | None:
        x = self.pick()
        n, c, h, w = self.shape(x)
        groups = [g for g in (2, 3, 4) if c % g == 0]
        if not groups:
            return None
        g = int(self.rng.choice(groups))
        seen = self.net.op("reshape", x, (n, g, c // g, h, w), name=f"{name}__groups")
        swapped = self.net.op("permute_dims", seen, axes=[0, 2, 1, 3, 4], name=f"{name}__swap")
        return self.net.op("reshape", swapped, (n, c, h, w), name=name)

    def island(self, name: str) -> relax.Var:
        """An operator that the partition table does not know."""
        x = self.clamp(f"{name}_in")
        return self.net.op("abs", x, name=name)


KINDS: dict[str, Callable[[GraphMaker, str], relax.Var | None]] = {
    "conv": GraphMaker.conv,
    "grouped": GraphMaker.grouped,
    "transposed": GraphMaker.transposed,
    "binary": GraphMaker.binary,
    "unary": GraphMaker.unary,
    "leaky": GraphMaker.leaky,
    "clamp": GraphMaker.clamp,
    "pool": GraphMaker.pool,
    "mean": GraphMaker.mean,
    "concat": GraphMaker.concat,
    "slice": GraphMaker.slice,
    "pad": GraphMaker.pad,
    "upsample": GraphMaker.upsample,
    "shuffle": GraphMaker.shuffle,
    "island": GraphMaker.island,
}
_SHARES = np.array([6, 2, 1, 4, 1, 1, 1, 2, 1, 3, 1, 1, 1, 1, 1], float)
WEIGHTS = _SHARES / _SHARES.sum()
