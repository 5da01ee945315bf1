"""Writing a program of int32 steps (`ir.programs`) as operators of the integer dialect."""

from __future__ import annotations

from collections.abc import Collection

from tvm import relax

from vta_byoc.ir.bindings import SEPARATOR
from vta_byoc.ir.programs import Instructions
from vta_byoc.quantization.dialect_builder import PROGRAM_OPS, StepWriter, const


class ProgramWriter:
    """Writes the programs of one operator of the model.

    Attributes:
        name: of that operator.
        values: what the names of a program stand for, so far.
    """

    def __init__(self, write: StepWriter, name: str) -> None:
        self._write, self.name = write, name
        self.values: dict[str, relax.Expr] = {}

    def emit(self, call: relax.Expr, part: str) -> relax.Var:
        """One operator, a part of it."""
        return self._write.emit(call, f"{self.name}{SEPARATOR}{part}")

    def end(self, call: relax.Expr) -> relax.Var:
        """The last operator, which has its name."""
        return self._write.emit(call, self.name)

    def steps(self, program: Instructions, prefix: str, named: Collection[str] = ()) -> None:
        """The operators of a program; values in `named` are called what they are called there."""
        for each in program:
            right: relax.Expr = (
                self.values[each.right]
                if isinstance(each.right, str)
                else const(each.right, "int32")
            )
            call = PROGRAM_OPS[each.op](self.values[each.left], right)
            part = each.name if each.name in named else f"{prefix}_{each.op}"
            self.values[each.name] = self.emit(call, part)
