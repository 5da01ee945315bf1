"""A call of a program as operators of a Relax function that any TVM runtime can run.

It becomes: inputs laid out as the head of the program's arena, one call of the driver
(instructions, inputs, image, region -> arena, counters), and a slice of the arena per result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import TupleGetItem

from vta_byoc.hw.faults import COUNTER_SLOTS
from vta_byoc.hw.program.program import Program, Symbol
from vta_byoc.hw.sim.interpreter import symbol
from vta_byoc.ir.bindings import SEPARATOR
from vta_byoc.ir.joining import few


@dataclass(frozen=True)
class ProgramCall:
    """One call of ``program``, called ``name``; the driver is told ``number``.

    ``emit`` binds an expression to a variable of a name.
    """

    emit: Callable[[relax.Expr, str], relax.Var]
    program: Program
    name: str
    number: int

    def outputs(self, values: Mapping[str, relax.Expr], names: Iterable[str]) -> list[relax.Var]:
        """Emit the call on input ``values`` by symbol; returns the results ``names``."""
        arena = self._run(self._inputs(values))
        return [self._output(name, arena) for name in names]

    def _inputs(self, values: Mapping[str, relax.Expr]) -> relax.Expr:
        """The first ``input_bytes`` of the arena as one vector of bytes."""
        parts: list[relax.Expr] = []
        end = 0
        for tensor in self.program.of_kind("input"):
            parts += self._gap(tensor.offset - end)
            value = self._words(values[tensor.name], tensor)
            flat = relax.op.reshape(value, (tensor.nbytes,))
            parts.append(self.emit(flat, f"{tensor.name}{SEPARATOR}bytes"))
            end = tensor.offset + tensor.nbytes
        parts += self._gap(self.program.input_bytes - end)
        if len(parts) == 1:
            return parts[0]
        return self._joined(few(parts, self._joined))

    def _joined(self, parts: Sequence[relax.Expr]) -> relax.Var:
        return self.emit(relax.op.concat(list(parts), axis=0), f"{self.name}{SEPARATOR}inputs")

    def _words(self, value: relax.Expr, tensor: Symbol) -> relax.Expr:
        """``value`` as int8; of an int32 tensor the four bytes of each word, the lowest first."""
        if tensor.dtype != "int32":
            return value
        words = self.emit(
            relax.op.reshape(value, (tensor.nbytes // 4, 1)), f"{tensor.name}{SEPARATOR}words"
        )
        shifts = relax.const(np.arange(0, 32, 8, dtype=np.int32))
        shifted = self.emit(relax.op.right_shift(words, shifts), f"{tensor.name}{SEPARATOR}shifted")
        return self.emit(relax.op.astype(shifted, "int8"), f"{tensor.name}{SEPARATOR}octets")

    @staticmethod
    def _gap(count: int) -> list[relax.Expr]:
        return [relax.const(np.zeros(count, np.int8))] if count else []

    def _run(self, inputs: relax.Expr) -> relax.Var:
        program = self.program
        number = relax.prim_value(self.number)
        args = [relax.const(program.insns), inputs, relax.const(program.image), number]
        types = [
            relax.TensorType((program.arena_bytes,), "int8"),
            relax.TensorType((COUNTER_SLOTS,), "int64"),
        ]
        call = relax.call_dps_packed(symbol(program.config), args, out_ty=types)
        run = self.emit(call, f"{self.name}{SEPARATOR}run")
        # Once for all results: where operators read a tuple in several places, FuseOps may hand
        # over a part of it twice and FuseTIR then miss one of them.
        return self.emit(TupleGetItem(run, 0), f"{self.name}{SEPARATOR}arena")

    def _output(self, name: str, arena: relax.Var) -> relax.Var:
        tensor = self.program.symbol(name)
        end = tensor.offset + tensor.nbytes
        part = relax.op.strided_slice(arena, [0], [tensor.offset], [end])
        flat = self.emit(part, f"{name}{SEPARATOR}bytes")
        return self.emit(relax.op.reshape(flat, tensor.shape), name)
