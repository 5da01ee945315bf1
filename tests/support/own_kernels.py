"""A kernel of a user's inside a network of the integer dialect, for the tests of registration."""

from __future__ import annotations

from typing import Any

import tvm
from integer_models import IntegerNet
from tvm import relax, s_tir, te, tirx

import vta_byoc.schedule as vs
from vta_byoc.extend import with_kernel
from vta_byoc.hw.config import VTAConfig

SHAPE = (1, 16, 8, 8)
NAME = "leaky"


def leaky(shape: tuple[int, ...] = SHAPE) -> tirx.PrimFunc:
    """max(x, x / 8) of int8 in any layout, the quotient rounded down."""
    x = te.placeholder(shape, "int8", name="x")
    wide = te.compute(shape, lambda *i: x(*i).astype("int32"), name="wide")
    again = te.compute(shape, lambda *i: x(*i).astype("int32"), name="again")

    def value(*i: Any) -> Any:
        return tirx.Max(wide(*i), again(*i) >> tirx.const(3, "int32")).astype("int8")

    return te.create_prim_func([x, te.compute(shape, value, name="y")])


def schedule(definition: tirx.PrimFunc, config: VTAConfig) -> s_tir.Schedule:
    """Tiles of 8 elements, whatever the shape is."""
    sch = s_tir.Schedule(definition)
    lanes = config.batch * config.block
    tiles, _ = sch.split(sch.fuse(*sch.get_loops("y")), [None, 8 * lanes])
    for name in ("wide", "again"):
        sch.set_scope(name, 0, vs.ACC)
        sch.compute_at(name, tiles)
        vs.dma_copy(sch, name)
    vs.alu(sch, "y")
    vs.dma_copy(sch, "y")
    return sch


def network(definition: tirx.PrimFunc | None = None, name: str = NAME) -> tvm.IRModule:
    """A convolution, a call of the kernel ``name``, a convolution."""
    net = IntegerNet(x=SHAPE)
    first = net.conv(net.params[0], 16, relu=False, name="first")
    made = with_kernel(definition or leaky(), name)
    function = relax.BlockBuilder().add_func(made, "own")
    middle = net.emit(
        relax.call_tir(function, [first], out_ty=relax.TensorType(SHAPE, "int8")), "middle"
    )
    mod = net.module(net.conv(middle, 16, name="last"))
    mod.update_func(function, made)
    return relax.transform.Normalize()(mod)
