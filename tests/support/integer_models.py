"""Small modules of the integer dialect, written group by group, with seeded weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from vta_byoc.hw.program.program import Program
from vta_byoc.importers.load import output_names
from vta_byoc.ir.bindings import static_shape
from vta_byoc.pipeline import Compiled
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.linear import LinearCombination
from vta_byoc.quantization.scales import Rescale
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner


class IntegerNet(DialectWriter):
    """A function of int8 NCHW tensors under construction; ``result`` is for those who build one."""

    result: relax.Var

    def __init__(self, seed: int = 0, **inputs: tuple[int, ...]) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.params = [relax.Var(n, relax.TensorType(s, "int8")) for n, s in inputs.items()]

    def conv(
        self,
        x: relax.Expr,
        co: int,
        k: int = 3,
        *,
        stride: int = 1,
        pads: tuple[int, int, int, int] | None = None,
        relu: bool = True,
        shift: int = 9,
        groups: int = 1,
        name: str = "conv",
    ) -> relax.Var:
        """conv2d + bias + shift + clamp with random weights."""
        ci = static_shape(x)[1]
        weight = self.rng.integers(-127, 128, (co, ci // groups, k, k)).astype("int8")
        bias = self.rng.integers(-3000, 3000, co).astype("int32")
        attrs = SimpleNamespace(
            strides=[stride, stride],
            padding=list(pads or [k // 2] * 4),
            dilation=[1, 1],
            groups=groups,
        )
        return self.conv2d(x, weight, bias, attrs, Rescale(shift, 0 if relu else -128), name)

    def residual(
        self,
        lhs: relax.Expr,
        rhs: relax.Expr,
        shifts: tuple[int, int] = (0, 1),
        *,
        shift: int = 1,
        name: str = "add",
    ) -> relax.Var:
        """Residual addition with relu; ``shifts`` are left shifts of the two sides."""
        operands = [(lhs, shifts[0]), (rhs, shifts[1])]
        return self.binary(relax.op.add, operands, Rescale(shift, 0), name)

    def binary(
        self,
        op: Callable[[relax.Expr, relax.Expr], relax.Expr],
        operands: Sequence[tuple[relax.Expr, int]],
        rescale: Rescale,
        name: str,
    ) -> relax.Var:
        """`op` of two int8 tensors, each widened and shifted left by its amount (right and rounded
        if negative), rescaled to int8."""
        terms = [
            self._aligned(value, amount, f"{name}__{side}")
            for (value, amount), side in zip(operands, ("lhs", "rhs"), strict=True)
        ]
        total = self.emit(op(*terms), f"{name}__acc")
        return self.scaled_sums(total, _joined([1], rescale), name)

    def _aligned(self, value: relax.Expr, amount: int, name: str) -> relax.Var:
        wide = self.op("astype", value, "int32", name=name)
        if amount < 0:
            rounding = relax.const(Rescale(-amount).rounding)
            wide = self.op("add", wide, rounding, name=f"{name}__round")
        return self._shifted(wide, -amount, name)

    def leaky_relu(
        self, value: relax.Expr, factor: int, bits: int, rescale: Rescale, name: str
    ) -> relax.Var:
        """The larger of x and x * factor / 2**bits, both times 2**bits, rescaled to int8."""
        return self.linear(relax.op.maximum, [value], _joined([1 << bits, factor], rescale), name)

    def rescale(self, value: relax.Expr, rescale: Rescale, name: str) -> relax.Var:
        """int8 -> int8 at another scale."""
        return self.linear(None, [value], _joined([1], rescale), name)

    def mean(
        self, value: relax.Expr, axes: list[int], factor: int, rescale: Rescale, name: str
    ) -> relax.Var:
        """The sum over `axes`, which are kept, times `factor`, rescaled to int8."""
        total = self.sum(value, axes, True, name)
        return self.scaled_sums(total, _joined([factor], rescale), name)

    def op(self, op: str, *args: Any, name: str = "", **attrs: Any) -> relax.Var:
        """Bind ``relax.op.<op>``."""
        function: Any = relax.op
        for part in op.split("."):
            function = getattr(function, part)
        return self.emit(function(*args, **attrs), name or op.split(".")[-1])

    def module(self, *outputs: relax.Expr) -> tvm.IRModule:
        """The module whose ``main`` returns ``outputs``."""
        result = outputs[0] if len(outputs) == 1 else relax.Tuple(list(outputs))
        source = SimpleNamespace(params=self.params, attrs=None)
        main = self.finish(source, result).with_attr("global_symbol", "main")
        mod = tvm.IRModule({"main": main})
        return relax.transform.Normalize()(mod)

    def inputs(self, seed: int = 1) -> list[np.ndarray]:
        """Random inputs in order of the parameters."""
        rng = np.random.default_rng(seed)
        return [rng.integers(-128, 128, static_shape(p)).astype("int8") for p in self.params]


def residual_net(channels: int = 32, size: int = 8, batch: int = 1) -> IntegerNet:
    """Two convolutions and a residual addition; the module is ``.module(net.result)``."""
    net = IntegerNet(x=(batch, channels, size, size))
    a = net.conv(net.params[0], channels, name="conv_a")
    b = net.conv(a, channels, relu=False, name="conv_b")
    net.result = net.residual(b, net.params[0], name="join")
    return net


def island_net() -> IntegerNet:
    """Two regions with a CPU operator (an absolute value) between them."""
    net = IntegerNet(x=(1, 16, 12, 12))
    a = net.conv(net.params[0], 32, name="first")
    size = net.op("abs", a, name="size")
    net.result = net.conv(size, 16, name="second")
    return net


def stem_net(channels: int = 3) -> IntegerNet:
    """Two stems on one image and a layer behind the first."""
    net = IntegerNet(x=(1, channels, 40, 40))
    first = net.conv(net.params[0], 32, 7, stride=2, name="first")
    second = net.conv(net.params[0], 32, 7, stride=2, name="second")
    net.result = net.residual(net.conv(first, 32, name="deep"), second, name="sum")
    return net


def flatten_net(size: int = 3, channels: int = 24, how: str = "reshape") -> IntegerNet:
    """A convolution, its result flattened, a dense layer."""
    net = IntegerNet(x=(2, 16, size, size))
    wide = net.conv(net.params[0], channels, name="conv")
    if how == "reshape":
        flat = net.op("reshape", wide, (2, channels * size * size), name="flat")
    else:
        flat = net.op("flatten", net.op("permute_dims", wide, [0, 2, 3, 1], name="last"), name="f")
        flat = net.op("reshape", flat, (2, channels * size * size), name="flat")
    weight = net.rng.integers(-127, 128, (channels * size * size, 20)).astype("int8")
    bias = net.rng.integers(-999, 999, 20).astype("int32")
    net.result = net.matmul(flat, weight, bias, Rescale(10), "dense")
    return net


def _joined(factors: Sequence[int], rescale: Rescale) -> LinearCombination:
    """Operands without zero points times `factors`, joined and rescaled."""
    return LinearCombination(
        tuple(np.array(factor) for factor in factors),
        (np.array(0),) * len(factors),
        np.array(rescale.rounding),
        rescale.shift,
        rescale.low,
        rescale.high,
        bound=0,
    )


def equal_program(compiled: Compiled, net: IntegerNet, mod: tvm.IRModule) -> Program:
    """The one program of a compilation, whose results and stored tensors are the reference's."""
    inputs = net.inputs()
    run = profile(compiled.exe, inputs, arenas=True)
    reference = reference_runner(mod, compiled.programs)(inputs)
    checks = compare_outputs(output_names(mod), run.outputs, reference)
    checks += compare_stored(run, compiled.programs, reference)
    assert checks and all(check.equal for check in checks), [str(c) for c in checks if not c.equal]
    (program,) = compiled.programs.values()
    return program
