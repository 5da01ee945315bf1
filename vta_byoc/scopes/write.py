"""Writing a function again, block by block, and the VDevices on its types."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax
from tvm.ir import Type

from vta_byoc.ir.bindings import substituted, vars_in


class BlockWriter:
    """Bindings of a function under construction; what leaves a dataflow block becomes an output."""

    def __init__(self, builder: relax.BlockBuilder):
        self._builder = builder
        self._blocks: list[tuple[bool, list[tuple[relax.Var, relax.Expr]]]] = []

    def begin(self, block: relax.BindingBlock | None = None) -> None:
        """Start a block of the kind of ``block``; of dataflow without one."""
        dataflow = block is None or isinstance(block, relax.DataflowBlock)
        self._blocks.append((dataflow, []))

    def emit(self, value: relax.Expr, name: str) -> relax.Var:
        """Bind ``value`` to a new variable called ``name``."""
        if not self._blocks:
            self.begin()
        value = self._builder.normalize(value)
        dataflow, bindings = self._blocks[-1]
        var = (relax.DataflowVar if dataflow else relax.Var)(name, value.ty)
        bindings.append((var, value))
        return var

    def finish(
        self, source: relax.Function, params: list[relax.Var], body: relax.Expr
    ) -> relax.Function:
        """The function of ``params`` with the attributes of ``source`` that returns ``body``."""
        outside = set(vars_in(body))
        env: dict[relax.Var, relax.Expr] = {}
        for dataflow, bindings in reversed(self._blocks):
            if dataflow:
                env.update({v: relax.Var(v.name, v.ty) for v, _ in bindings if v in outside})
            outside.update(used for _, value in bindings for used in vars_in(value))
        blocks = [
            (relax.DataflowBlock if dataflow else relax.BindingBlock)(
                [relax.VarBinding(env.get(v, v), substituted(x, env)) for v, x in bindings]
            )
            for dataflow, bindings in self._blocks
            if bindings
        ]
        body = self._builder.normalize(substituted(body, env))
        seq = relax.SeqExpr(blocks, body)
        return relax.Function(params, seq, body.ty, source.is_pure, source.attrs)


def placed(ty: Type, devices: Iterator[relax.VDevice | None]) -> Type:
    """``ty`` with the next of ``devices`` on each of its tensors, depth first."""
    if isinstance(ty, relax.TensorType):
        device = next(devices)
        if ty.shape is None:
            return relax.TensorType(None, ty.dtype, device, ty.ndim)
        return relax.TensorType(ty.shape, ty.dtype, device)
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([placed(item, devices) for item in ty.fields])
    return ty
