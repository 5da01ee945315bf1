"""Float networks of one input, written operator by operator; weights are drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.pipeline import Compiled, compile_module
from vta_byoc.quantize import quantize


class Net:
    """A float network of one input; weights are drawn."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
        self.rng = rng
        self.data = relax.Var("data", relax.TensorType(shape, "float32"))
        self.builder = relax.BlockBuilder()

    def const(self, *shape: int, middle: float = 0.0, spread: float = 1.0) -> relax.Expr:
        return relax.const((middle + spread * self.rng.normal(size=shape)).astype("float32"))

    def op(self, call: relax.Expr, name: str) -> relax.Var:
        return self.builder.emit(call, name)

    def dense(self, x: relax.Expr, outputs: int, name: str) -> relax.Var:
        inputs = int(x.ty.shape[-1])
        weight = self.const(inputs, outputs, spread=inputs**-0.5)
        return self.op(relax.op.matmul(x, weight), name)

    def norm(self, x: relax.Expr, kind: str, name: str, axis: int = -1) -> relax.Var:
        channels = int(x.ty.shape[axis])
        weight = self.const(channels, middle=1.0, spread=0.2)
        if kind == "rms":
            return self.op(relax.op.nn.rms_norm(x, weight, [axis], 1e-5), name)
        bias = self.const(channels, spread=0.1)
        return self.op(relax.op.nn.layer_norm(x, weight, bias, [axis], 1e-5), name)

    def module(self, build: Callable[[Net], relax.Expr]) -> tvm.IRModule:
        with self.builder.function("main", [self.data]):
            with self.builder.dataflow():
                result = self.builder.emit_output(build(self))
            self.builder.emit_func_output(result)
        return self.builder.get()


def compiled_from(
    build: Callable[[Net], relax.Expr], shape: tuple[int, ...], config: VTAConfig
) -> Compiled:
    """The network that `build` makes of an input of a shape, quantized on one drawn sample."""
    rng = np.random.default_rng(3)
    mod = Net(rng, shape).module(build)
    samples = [{"data": rng.normal(size=shape).astype("float32")}]
    return compile_module(quantize(mod, calibration=samples, config=config), config)
