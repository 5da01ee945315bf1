"""A program of instructions on as few vectors as it needs, for an ALU that works in place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vta_byoc.ir.programs import Instruction, Instructions
from vta_byoc.workload.alu import OPERATIONS


@dataclass(frozen=True)
class Move:
    """`registers[to] = registers[left] op right`; `right` is an immediate or a register.

    Attributes:
        op: add, mul, shr, shl, max or min.
        to: the register that is written; it may be `left`.
        left: the register of the first operand.
        right: the register of the second operand, or an immediate.
        is_register: whether `right` is a register.
    """

    op: str
    to: int
    left: int
    right: int
    is_register: bool


def _read(each: Instruction) -> list[str]:
    """The values that an instruction reads."""
    return [name for name in (each.left, each.right) if isinstance(name, str)]


@dataclass(frozen=True)
class Allocated:
    """A program in registers.

    Attributes:
        moves: its instructions.
        places: the registers of the values that are read before or behind it.
        count: how many registers it takes.
    """

    moves: tuple[Move, ...]
    places: dict[str, int]
    count: int

    @property
    def copies(self) -> int:
        """Instructions whose result takes another register than their operand."""
        return sum(move.to != move.left for move in self.moves)


def allocated(program: Instructions, given: Iterable[str], wanted: Iterable[str]) -> Allocated:
    """Registers for a program: a value takes the place of an operand that nobody reads again.

    Args:
        program: the instructions.
        given: values that are there before it.
        wanted: values that are read behind it.
    """
    last: dict[str, int] = {}
    for number, each in enumerate(program):
        last |= dict.fromkeys(_read(each), number)
    last |= dict.fromkeys(wanted, len(program))
    at = {name: register for register, name in enumerate(given)}
    free: list[int] = []
    count, moves = len(at), []
    kept = dict(at)
    for number, each in enumerate(program):
        left, right = each.left, each.right
        ends = [name for name in dict.fromkeys(_read(each)) if last[name] == number]
        ends_right = right in ends and left not in ends
        if isinstance(right, str) and ends_right and OPERATIONS[each.op].commutes:
            left, right = right, left
        register = right if isinstance(right, int) else at[right]
        if left in ends:
            to = at[left]
        elif free:
            to = free.pop()
        else:
            to, count = count, count + 1
        moves.append(Move(each.op, to, at[left], register, isinstance(right, str)))
        free += [at[name] for name in ends if at[name] != to]
        at[each.name] = kept[each.name] = to
    return Allocated(tuple(moves), kept, count)
