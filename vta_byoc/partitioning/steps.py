"""Steps as the machine runs them, with the proof that no value leaves int32.

The dialect's steps have constants of any size; the machine has 16-bit immediates, shifts by up to
its largest amount, and tensor operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.hw.isa import IMMEDIATE_HIGH, IMMEDIATE_LOW
from vta_byoc.ir.bindings import per_channel
from vta_byoc.ir.chains import INT8_VALUES, KEPT, OTHER, SELF
from vta_byoc.workload.alu import OPERATIONS, is_shift
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, Step

INT32_LOW, INT32_HIGH = -(2**31), 2**31 - 1
NO_MUL = "no MUL (CAPABILITIES.mul is false)"
"""What a refusal says of a machine whose ALU does not multiply."""


@dataclass(frozen=True)
class Range:
    """Least and greatest value of each channel, int64 arrays of one shape (channels,).

    ``values``: where all channels have one function of one int8 tensor, its value for each int8,
    [256] int64; the range is then that of no other values.
    """

    low: np.ndarray
    high: np.ndarray
    values: np.ndarray | None = None

    @classmethod
    def int8(cls, channels: int) -> Range:
        """What int8 data may be."""
        return cls.of(INT8_VALUES, channels)

    @classmethod
    def of(cls, values: np.ndarray, channels: int) -> Range:
        """What a function of one int8 tensor may be."""
        low, high = (np.full(channels, end, np.int64) for end in (values.min(), values.max()))
        return cls(low, high, values)

    def joined(self, op: str, other: Range) -> Range:
        """``self op other``, of functions of one tensor where both have values."""
        if self.values is not None and other.values is not None:
            values = OPERATIONS[op].exact(self.values, other.values)
            return Range.of(values, len(self.low))
        interval = OPERATIONS[op].interval
        return Range(*interval(self.low, self.high, other.low, other.high))


@dataclass(frozen=True)
class Axes:
    """Which axes of a tensor of rank ``rank`` are channels, rows, columns (None: it has none)."""

    rank: int
    channel: int
    height: int | None = None
    width: int | None = None


AXES = {
    ("nchw", 2): Axes(2, 1),
    ("nchw", 3): Axes(3, 1, width=2),
    ("nchw", 4): Axes(4, 1, 2, 3),
}


def axes_of(layout: str, rank: int) -> Axes:
    """Axes of a ``layout`` ("nchw": channels second; "rows": channels last) of ``rank``."""
    return Axes(rank, rank - 1) if layout == "rows" else AXES[layout, rank]


class StepReader:
    """Turns the dialect's steps on a tensor into machine steps and their tensor operands.

    ``range`` starts as what the value may be and follows the steps.  ``widened``: the GEMM core
    widens the value, and may multiply it by one number.  ``other``: the range of what steps of
    OTHER add.
    """

    def __init__(
        self,
        shape: Sequence[int],
        axes: Axes,
        value: Range,
        config: VTAConfig,
        what: str,
        widened: bool = False,
        other: Range | None = None,
    ) -> None:
        self._shape = tuple(shape)
        self._axes = axes
        self._config = config
        self._what = what
        self._widened = widened
        self.range = value
        self.steps: list[Step] = []
        self.operands: list[np.ndarray] = []
        self._copy: Range | None = None
        self._other = other
        self._require(value)

    def read(self, steps: Iterable[tuple[str, np.ndarray | str]]) -> StepReader:
        """Append ``steps``; returns itself."""
        for op, constant in steps:
            if not isinstance(constant, str):
                self._step(op, constant)
            elif constant == SELF:
                self._square()
            elif constant == OTHER:
                self._again()
            else:
                self._kept(op)
        return self

    def _square(self) -> None:
        """Multiply the value by itself."""
        if not self._config.capabilities.mul:
            raise self._no_mul()
        if self.range.values is not None:
            self.range = self.range.joined("mul", self.range)
        else:
            low, high = self.range.low**2, self.range.high**2
            crosses = (self.range.low <= 0) & (self.range.high >= 0)
            self.range = Range(np.where(crosses, 0, np.minimum(low, high)), np.maximum(low, high))
        self._require(self.range)
        self.steps.append(Step("mul", SELF))

    def _no_mul(self) -> VTAError:
        return VTAError(
            Refusal(
                f"{self._what} multiplies and the machine has",
                NO_MUL,
                remedy="quantize for this machine (config=), use power-of-two scales or a "
                "machine with MUL",
            )
        )

    def _kept(self, op: str) -> None:
        """``keep`` the value, or ``add`` what was kept."""
        if op == "keep":
            self._copy = self.range
        else:
            assert self._copy is not None
            self._plus(self._copy)
        self.steps.append(Step(op, KEPT))

    def _again(self) -> None:
        """Add the right operand of the operator before once more."""
        assert self._other is not None
        self._plus(self._other)
        self.steps.append(Step("add", OTHER))

    def _plus(self, value: Range) -> None:
        """The range of the sum with ``value``."""
        self.range = self.range.joined("add", value)
        self._require(self.range)

    # ---------------------------------------------------------------- one step
    def _step(self, op: str, constant: np.ndarray) -> None:
        kind, values = self._operand(constant)
        after = self._after(op, values, kind)
        self._require(after)
        changes = (after.low != self.range.low).any() or (after.high != self.range.high).any()
        neutral = OPERATIONS[op].neutral is None and not changes
        if not (neutral or _is_neutral(op, values)):
            self._append(op, kind, values)
        self.range = after

    def _operand(self, constant: np.ndarray) -> tuple[str | None, np.ndarray]:
        """Kind (None: one number) and values () / (C,) / (H, W) / (C, H, W) of a constant."""
        values = constant.astype(np.int64)
        if values.size and (values == values.reshape(-1)[0]).all():
            return None, values.reshape(-1)[:1].reshape(())
        axes, rank = self._axes, self._axes.rank
        channels = per_channel(constant, rank, axes.channel, self._shape[axes.channel])
        if channels is not None:
            return CHANNEL, channels.astype(np.int64)
        return self._spatial(values)

    def _spatial(self, values: np.ndarray) -> tuple[str, np.ndarray]:
        axes = self._axes
        dims = (1,) * (axes.rank - values.ndim) + values.shape
        values = values.reshape(dims)
        space = [a for a in (axes.height, axes.width) if a is not None]
        others = [d for a, d in enumerate(dims) if a not in (axes.channel, *space)]
        if any(d != 1 for d in others) or not space:
            raise VTAError(
                Refusal(
                    f"{self._what} has a constant of shape",
                    f"{tuple(values.shape)} for a tensor {self._shape}",
                    "one value, one per channel or one per position is taken",
                    "write it as one of these",
                )
            )
        full = [self._shape[a] if a in space else d for a, d in enumerate(dims)]
        values = np.moveaxis(np.broadcast_to(values, full), axes.channel, 0)
        height = 1 if axes.height is None else self._shape[axes.height]
        plane = values.reshape(dims[axes.channel], height, -1)
        return (FULL, plane) if dims[axes.channel] > 1 else (MAP, plane[0])

    def _after(self, op: str, values: np.ndarray, kind: str | None) -> Range:
        """The range after the step, in exact integers."""
        if kind in (None, CHANNEL):
            least = most = values
        elif kind == MAP:
            least, most = values.min(), values.max()
        else:
            least, most = values.min(axis=(1, 2)), values.max(axis=(1, 2))
        if is_shift(op) and (least.min() < 0 or most.max() > 31):
            raise VTAError(
                Refusal(
                    f"{self._what} shifts by",
                    f"{least.min()} to {most.max()}",
                    "0 to 31 are taken",
                    "split the shift",
                )
            )
        if kind is None and self.range.values is not None:
            return Range.of(OPERATIONS[op].exact(self.range.values, values), len(self.range.low))
        return Range(*OPERATIONS[op].interval(self.range.low, self.range.high, least, most))

    def _require(self, value: Range) -> None:
        low, high = int(value.low.min()), int(value.high.max())
        if low < INT32_LOW or high > INT32_HIGH:
            raise VTAError(
                Refusal(
                    f"{self._what} may reach",
                    f"{high if high > INT32_HIGH else low}",
                    f"int32 holds {INT32_LOW} to {INT32_HIGH}",
                    "use smaller weights or closer scales",
                )
            )

    # ---------------------------------------------------------------- machine form
    def _append(self, op: str, kind: str | None, values: np.ndarray) -> None:
        if op == "mul" and not values.any():
            # TE folds a product with 0, and what was computed so far would be gone.
            self._immediate("min", 0)
            self._immediate("max", 0)
            return
        if op == "mul" and not self._config.capabilities.mul:
            if self._widened and kind is None:
                self.steps.append(Step(op, int(values)))
                return
            raise self._no_mul()
        if kind is None:
            self._immediate(op, int(values))
        elif op == "shl":
            self._append("mul", kind, np.int64(1) << values)
        elif op == "shr":
            self._shifts(kind, values)
        else:
            self._tensor(op, kind, values)

    def _immediate(self, op: str, value: int) -> None:
        if is_shift(op) or IMMEDIATE_LOW <= value <= IMMEDIATE_HIGH:
            self.steps.append(Step(op, value))
        else:
            self._tensor(op, CHANNEL, np.full(self._shape[self._axes.channel], value, np.int64))

    def _tensor(self, op: str, kind: str, values: np.ndarray) -> None:
        if values.min() < INT32_LOW or values.max() > INT32_HIGH:
            raise VTAError(
                Refusal(
                    f"{self._what} has the operand",
                    f"{int(np.abs(values).max())}",
                    f"int32 holds {INT32_HIGH}",
                    "use smaller constants",
                )
            )
        self.steps.append(Step(op, kind))
        self.operands.append(values.astype(np.int32))

    def _shifts(self, kind: str, values: np.ndarray) -> None:
        """Right shifts by tensors of amounts that the machine can do."""
        limit = self._config.capabilities.max_shift
        while values.any():
            part = np.minimum(values, limit)
            self._tensor("shr", kind, part)
            values = values - part


def _is_neutral(op: str, values: np.ndarray) -> bool:
    """Whether the step changes nothing."""
    neutral = OPERATIONS[op].neutral
    return neutral is not None and bool((values == neutral).all())
