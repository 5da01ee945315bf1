"""How fields lie in the words of an instruction or micro-op, and how they are put in and taken out.

Nothing here knows an instruction: `hw/isa.py` states which fields there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.errors import VTAError

WORD_BITS = 64
"""Bits of a word of an instruction."""


@dataclass(frozen=True)
class FieldSpec:
    """One bit field: `width` is a bit count or the name of an index width, optionally `+1`."""

    name: str
    width: int | str
    signed: bool = False

    def bits(self, widths: Mapping[str, int]) -> int:
        """The width in bits where the named index widths are `widths`."""
        if isinstance(self.width, int):
            return self.width
        name, _, extra = self.width.partition("+")
        return widths[name] + int(extra or 0)


@dataclass(frozen=True)
class Layout:
    """The fields of an instruction or micro-op, word by word, from bit 0 upwards."""

    words: tuple[tuple[FieldSpec, ...], ...]
    word_bits: int = WORD_BITS

    def field(self, name: str) -> FieldSpec:
        """The field `name`."""
        return next(spec for word in self.words for spec in word if spec.name == name)

    def needs(self, widths: Mapping[str, int]) -> list[int]:
        """Bits that each word needs where the named index widths are `widths`."""
        return [sum(spec.bits(widths) for spec in word) for word in self.words]

    def placed(self, widths: Mapping[str, int]) -> tuple[BitField, ...]:
        """The fields where the named index widths are `widths`."""
        placed = []
        for word, specs in enumerate(self.words):
            lsb = 0
            for spec in specs:
                width = spec.bits(widths)
                placed.append(BitField(spec.name, word, lsb, width, spec.signed))
                lsb += width
        return tuple(placed)


@dataclass(frozen=True)
class BitField:
    """A field placed for one configuration: `lsb` counts from bit 0 of word `word`."""

    name: str
    word: int
    lsb: int
    width: int
    signed: bool

    @property
    def low(self) -> int:
        """The least value that the field holds."""
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """The greatest value that the field holds."""
        return (1 << (self.width - 1)) - 1 if self.signed else (1 << self.width) - 1


def packed(fields: Iterable[BitField], values: Mapping[str, int], what: str) -> list[int]:
    """The two words of `values` by field name; fields that are not named are 0.

    Raises:
        VTAError: a value does not fit its field of `what`.
    """
    fields, words = tuple(fields), [0, 0]
    unknown = set(values) - {f.name for f in fields}
    if unknown:
        raise TypeError(f"{what} has no field {sorted(unknown)}; correct the name")
    for f in fields:
        value = values.get(f.name, 0)
        if not f.low <= value <= f.high:
            raise VTAError(
                f"{what} field {f.name} is {value}; its {f.width} bits hold {f.low} to {f.high}; "
                "split the operation or use a smaller tile"
            )
        words[f.word] |= (value & ((1 << f.width) - 1)) << f.lsb
    return words


# ---------------------------------------------------------------- many at once
def column(field: BitField, words: np.ndarray) -> np.ndarray:
    """``field`` of every row of ``words`` (n, 2) uint64, as (n,) int64."""
    raw = (words[:, field.word] >> np.uint64(field.lsb)) & np.uint64((1 << field.width) - 1)
    values = raw.astype(np.int64)
    if field.signed:
        values[values > field.high] -= 1 << field.width
    return values


def reserved_bits(fields: Iterable[BitField], words: np.ndarray) -> np.ndarray:
    """The bits of no field that are set, those of both words of a row together, (n,) uint64."""
    used = [0, 0]
    for f in fields:
        used[f.word] |= ((1 << f.width) - 1) << f.lsb
    unused = np.array([~u & ((1 << WORD_BITS) - 1) for u in used], np.uint64)
    return np.bitwise_or.reduce(words & unused, axis=1)


@dataclass(frozen=True)
class Unpacker:
    """Fields in the form that is quick to decode.

    Attributes:
        parts: (name, word, lsb, mask) of each field.
        signed: (name, greatest value, number of values) of each signed field.
        used: the bits of both words that belong to a field.
    """

    parts: tuple[tuple[str, int, int, int], ...]
    signed: tuple[tuple[str, int, int], ...]
    used: tuple[int, int]

    @classmethod
    def of(cls, fields: tuple[BitField, ...]) -> Unpacker:
        """The unpacker of placed fields."""
        parts = tuple((f.name, f.word, f.lsb, (1 << f.width) - 1) for f in fields)
        signed = tuple((f.name, f.high, 1 << f.width) for f in fields if f.signed)
        first, second = (sum(m << lsb for _, w, lsb, m in parts if w == word) for word in (0, 1))
        return cls(parts, signed, (first, second))

    def unpacked(self, words: tuple[int, ...]) -> dict[str, int]:
        """Every field of the words, by name."""
        values = {name: (words[word] >> lsb) & mask for name, word, lsb, mask in self.parts}
        for name, high, span in self.signed:
            if values[name] > high:
                values[name] -= span
        return values
