"""How the interpreter multiplies: the layout of INP and WGT in its SRAM, and the GEMM product.

A variant packs ``group`` channels into one int32 word.  An INP element is ``batch * block /
group`` words, rows of the batch one after another.  A WGT element is retiled: word ``g * block
+ j`` holds the channels of group ``g`` for output lane ``j``.  One vector load then brings a
group of weights for many lanes, and one input word, broadcast, meets them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tvm import tirx
from tvm.script import tirx as T

Expr = Any  # a tirx expression; the wheel carries no types


# ---------------------------------------------------------------- vectors
def vector(dtype: str, lanes: int) -> str:
    """The dtype of ``lanes`` elements."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def splat(value: Expr, lanes: int) -> Expr:
    """``value`` in every lane."""
    return value if lanes == 1 else T.broadcast(value, lanes)


def load(buffer: Expr, start: Expr, lanes: int) -> Expr:
    """``lanes`` consecutive elements of a one-dimensional buffer."""
    return buffer[start] if lanes == 1 else buffer[T.ramp(start, 1, lanes)]


def store(buffer: Expr, start: Expr, lanes: int, value: Expr) -> None:
    """Emit a store of ``lanes`` consecutive elements."""
    T.buffer_store(buffer, value, [start if lanes == 1 else T.ramp(start, 1, lanes)])


def _modulo(combine: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr, int], Expr]:
    """An int32 operation modulo 2**32.

    TVM tells LLVM that no 32 or 64 bit addition or multiplication overflows, signed or unsigned.
    In 64 bits none does, and LLVM narrows the whole to one 32 bit operation that wraps.
    """

    def operate(a: Expr, b: Expr, lanes: int) -> Expr:
        wide = vector("int64", lanes)
        return T.Cast(vector("int32", lanes), combine(T.Cast(wide, a), T.Cast(wide, b)))

    return operate


add = _modulo(lambda a, b: a + b)
multiply = _modulo(lambda a, b: a * b)


def shift(a: Expr, b: Expr, lanes: int) -> Expr:
    """``a >> b``, arithmetic, for b >= 0, else ``a << -b``; amounts modulo 32."""
    zero, mask, all_bits = (splat(T.int32(x), lanes) for x in (0, 31, 32))
    right = b & mask
    return T.Select(b >= zero, a >> right, a << ((all_bits - right) & mask))


# ---------------------------------------------------------------- variants
class Dot(Protocol):
    """One way to multiply.

    ``lanes`` int32 lanes make a vector; ``bias_words`` follow each retiled WGT element.
    Expressions of channels are int8 vectors, those of words int32 vectors.
    """

    name: str
    group: int
    lanes: int

    def bias_words(self, block: int) -> int:
        """int32 words that the bias of a WGT element takes for so many output lanes."""

    def encode_inp(self, channels: Expr, count: int) -> Expr:
        """`count` int8 channels of an INP row as packed int32 words."""

    def encode_wgt(self, channels: Expr, count: int) -> Expr:
        """`count` int8 weights of a WGT row as packed int32 words."""

    def decode_inp(self, word: Expr) -> Expr:
        """The int8 channels of a packed INP word."""

    def decode_wgt(self, word: Expr) -> Expr:
        """The int8 weights of a packed WGT word."""

    def bias(self, wgt: Sequence[Expr]) -> Expr:
        """What is added to each product, from the packed weights of its lanes."""

    def product(self, inp: Sequence[Expr], wgt: Sequence[Expr]) -> Expr:
        """The products of one row with all output lanes, as an int32 vector."""


class PortableDot:
    """Pairs of int16 in a word; LLVM finds the multiply-add of pairs (pmaddwd and its kin).

    A pair of int8 products is below 2**15, their sum over a block below 2**22: nothing wraps.
    """

    name = "portable"
    group = 2

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes

    def bias_words(self, block: int) -> int:
        """There is no bias."""
        return 0

    def encode_inp(self, channels: Expr, count: int) -> Expr:
        """Pairs of channels, sign-extended to int16, in one word each."""
        wide = T.Cast(vector("int16", count), channels)
        return T.reinterpret(vector("int32", count // 2), wide)

    encode_wgt = encode_inp

    def decode_inp(self, word: Expr) -> Expr:
        """The low bytes of the pair."""
        return T.Cast("int8x2", T.reinterpret("int16x2", word))

    decode_wgt = decode_inp

    def bias(self, wgt: Sequence[Expr]) -> Expr:
        """Never asked for, since `bias_words` is 0."""
        raise AssertionError("this variant has no bias")

    def product(self, inp: Sequence[Expr], wgt: Sequence[Expr]) -> Expr:
        """Sum over groups of the input word times the weight words, one int32 a lane."""
        total = None
        for word, weights in zip(inp, wgt, strict=True):
            products = self._widen(splat(word, self.lanes)) * self._widen(weights)
            pair = self._every_second(products, 0) + self._every_second(products, 1)
            total = pair if total is None else total + pair
        return total

    def _widen(self, words: Expr) -> Expr:
        pairs = T.reinterpret(vector("int16", 2 * self.lanes), words)
        return T.Cast(vector("int32", 2 * self.lanes), pairs)

    def _every_second(self, values: Expr, first: int) -> Expr:
        indices = [tirx.IntImm("int32", i) for i in range(first, 2 * self.lanes, 2)]
        return tirx.Shuffle([values], indices)


class VnniDot:
    """Four int8 in a word, by the x86 instruction vpdpbusd (unsigned times signed bytes).

    INP is kept as ``x + 128`` (xor 128), so a product is too large by 128 times the sum of the
    weights; minus that, one word a lane, is kept behind each WGT element as its bias.
    """

    name = "vnni"
    group = 4

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes

    def bias_words(self, block: int) -> int:
        """One word for each output lane."""
        return block

    def encode_inp(self, channels: Expr, count: int) -> Expr:
        """Four channels a word, offset by 128 to be unsigned."""
        return self.encode_wgt(channels ^ splat(T.int8(-128), count), count)

    def encode_wgt(self, channels: Expr, count: int) -> Expr:
        """Four weights a word."""
        return T.reinterpret(vector("int32", count // 4), channels)

    def decode_inp(self, word: Expr) -> Expr:
        """The four channels without their offset."""
        return self.decode_wgt(word) ^ splat(T.int8(-128), 4)

    def decode_wgt(self, word: Expr) -> Expr:
        """The four weights."""
        return T.reinterpret("int8x4", word)

    def bias(self, wgt: Sequence[Expr]) -> Expr:
        """Minus the product of the weights with an input of zeros."""
        zero = self.encode_inp(splat(T.int8(0), 4), 4)
        none = splat(T.int32(0), self.lanes)
        return none - self._chain(none, [zero] * len(wgt), wgt)

    def product(self, inp: Sequence[Expr], wgt: Sequence[Expr]) -> Expr:
        """As PortableDot.product; the last of ``wgt`` is the bias."""
        return self._chain(wgt[-1], inp, wgt[:-1])

    def _chain(self, start: Expr, inp: Sequence[Expr], wgt: Sequence[Expr]) -> Expr:
        name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
        total, octets = start, vector("int8", 4 * self.lanes)
        for word, weights in zip(inp, wgt, strict=True):
            unsigned = T.reinterpret(octets, splat(word, self.lanes))
            signed = T.reinterpret(octets, weights)
            total = T.call_llvm_pure_intrin(
                vector("int32", self.lanes), name, total, unsigned, signed
            )
        return total


DOTS: Mapping[str, Callable[[int], Dot]] = {"portable": PortableDot, "vnni": VnniDot}
"""Variants by name, to be called with the number of int32 lanes in a vector."""
