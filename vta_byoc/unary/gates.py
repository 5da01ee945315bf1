"""Gates: `x` times a clamped straight line of `x`, fitted to a table piece by piece.

Hard swish is one, and so is what the search finds for SiLU. The line, its two ends and the constant
behind the product enter the result linearly once it is known which values are clamped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from vta_byoc.hw.isa import IMMEDIATE_HIGH
from vta_byoc.ir.chains import INT8_HIGH, INT8_LOW, SELF
from vta_byoc.unary.program import VALUES, Program, Step, applied_steps

NEAREST = 8
"""How far the operand's offset is moved at most."""
TURNS = 4
"""How often it is asked anew which values are clamped."""


def clamped_late(program: Program) -> Program | None:
    """`program` whose second chain clamps its result instead of its operand.

    Clamps of the operand are whole steps of it, those of the result are finer: a gate that closes
    between two values closes where it should.  None where the chain is no clamped straight line.
    """
    ops = [op for op, _ in program.right]
    rest = program.right[2:]
    if ops[:2] != ["max", "min"] or any(by == SELF or op in ops[:2] for op, by in rest):
        return None
    ends = applied_steps(np.array([int(by) for _, by in program.right[:2]], np.int64), rest)
    limits = (("max", int(ends.min())), ("min", int(ends.max())))
    late = replace(program, right=(*rest, *limits))
    return late if late.fits else None


@dataclass(frozen=True)
class _Gate:
    """`((x + offset) * clip(x * slope >> cut + level, low, high)) >> first + end >> last, then`."""

    offset: int
    cut: int
    low: int
    high: int
    first: int
    last: int
    then: tuple[Step, ...]
    line: tuple[Step, ...]

    @classmethod
    def of(cls, program: Program) -> _Gate | None:
        """What a program is; None where it is another."""
        ops = "".join(f"{op} " for op, _ in program.right)
        after = [op for op, _ in program.after]
        if program.op != "mul" or ops not in ("mul shr add max min ", "mul add max min "):
            return None
        if [op for op, _ in program.left] not in ([], ["add"]) or any(
            by == SELF for _, by in program.steps
        ):
            return None
        size = next(
            (n for n in (["shr", "add", "shr"], ["add", "shr"]) if after[: len(n)] == n), []
        )
        if not size:
            return None
        numbers = [int(by) for _, by in program.after[: len(size)]]
        *_, low, high = (int(by) for _, by in program.right)
        return cls(
            int(program.left[0][1]) if program.left else 0,
            int(program.right[1][1]) if len(program.right) == 5 else 0,
            low,
            high,
            numbers[0] if len(size) == 3 else 0,
            numbers[-1],
            program.after[len(size) :],
            program.right[:-2],
        )


def refitted(program: Program, wanted: np.ndarray) -> Iterator[Program]:
    """`program`, a gate, with other offsets of its operand and what is nearest to `wanted` then.

    Args:
        program: as `clamped_late` gives it.
        wanted: int64 results of the values -128 to 127, [256].
    """
    gate = _Gate.of(program)
    if gate is None:
        return
    line = applied_steps(VALUES, gate.line)
    for offset in range(gate.offset - NEAREST, gate.offset + NEAREST + 1):
        low, high = line <= gate.low, line >= gate.high
        for _ in range(TURNS):
            slope, level, least, most, end = _fitted(offset, low, high, wanted)
            ends = sorted((least, most))
            real = VALUES * slope + level
            low, high = real <= ends[0], real >= ends[1]
        found = _written(gate, offset, slope, level, ends, end)
        if found.fits:
            yield found


def _fitted(offset: int, low: np.ndarray, high: np.ndarray, wanted: np.ndarray) -> list[float]:
    """Slope and level of the line, its two ends and the constant, by least squares.

    An end that no value reaches is that of the line.
    """
    moved, inside = VALUES + offset, ~(low | high)
    parts = (VALUES * inside, inside, low & ~high, high)
    columns = np.stack([*(moved * part for part in parts), np.ones(len(VALUES))], axis=1)
    counts = (wanted > INT8_LOW) & (wanted < INT8_HIGH)
    scale = np.maximum(np.abs(columns).max(axis=0), 1)
    found, *_ = np.linalg.lstsq(columns[counts] / scale, wanted[counts].astype(float), rcond=None)
    slope, level, least, most, end = (float(v) for v in found / scale)
    line = VALUES * slope + level
    least = least if (low & ~high & counts).any() else float(line.min())
    most = most if (high & counts).any() else float(line.max())
    return [slope, level, least, most, end]


def _written(
    gate: _Gate, offset: int, slope: float, level: float, ends: list[float], end: float
) -> Program:
    """The program with these numbers at the shifts of `gate`."""
    bits, shift = gate.first + gate.last, gate.cut
    while shift and abs(slope) * 2.0 ** (bits + shift) > IMMEDIATE_HIGH:
        shift -= 1
    numbers = [slope * 2.0 ** (bits + shift), *(v * 2.0**bits for v in (level, *ends))]
    by, add, low, high = (int(np.rint(np.clip(v, -(2**31), 2**31))) for v in numbers)
    cut: tuple[Step, ...] = (("shr", shift),) if shift else ()
    right = (("mul", by), *cut, ("add", add), ("max", low), ("min", high))
    first: tuple[Step, ...] = (("shr", gate.first),) if gate.first else ()
    rounded = int(np.rint(np.clip((end + 0.5) * 2.0**gate.last, -(2**31), 2**31)))
    after = (*first, ("add", rounded), ("shr", gate.last), *gate.then)
    return Program((("add", offset),) if offset else (), "mul", right, after)
