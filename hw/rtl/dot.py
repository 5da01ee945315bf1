"""The GEMM array: one block of weights times one element of inputs in a cycle."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

PRODUCT_BITS = 16
"""Bits that hold every product of two int8."""


class DotLanes(wiring.Component):
    """The products of one row of int8 inputs with one row of weights for each of `lanes` lanes.

    `inp` is (block,) int8, `wgt` (lanes, block) int8, `sums` (lanes,) of `sum_bits` signed bits.
    With two lanes each input meets both weights in one multiplication of 25 by 8 bits: the second
    weight stands 16 bits above the first, and what the first product borrows from the second is
    given back. A multiplier of an FPGA that is wide enough (DSP48: 25 by 18) does two products so.
    """

    def __init__(self, block: int, lanes: int) -> None:
        self.block, self.lanes = block, lanes
        self.sum_bits = PRODUCT_BITS + block.bit_length() - 1
        super().__init__(
            {
                "inp": In(8 * block),
                "wgt": In(8 * block * lanes),
                "sums": Out(self.sum_bits * lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Products, and a tree of adders for each lane."""
        m = Module()
        products = [self._products(m, place) for place in range(self.block)]
        totals = []
        for lane in range(self.lanes):
            total = Signal(signed(self.sum_bits), name=f"sum_{lane}")
            m.d.comb += total.eq(_tree([each[lane] for each in products]))
            totals.append(total)
        m.d.comb += self.sums.eq(Cat(*totals))
        return m

    def _products(self, m: Module, place: int) -> list[Value]:
        """What one input gives in every lane."""
        factor = _octet(self.inp, place)
        weights = [_octet(self.wgt, lane * self.block + place) for lane in range(self.lanes)]
        if self.lanes == 1:
            return [factor * weights[0]]
        low, high = weights
        both = Signal(signed(PRODUCT_BITS + 9), name=f"weights_{place}")
        product = Signal(signed(2 * PRODUCT_BITS), name=f"products_{place}")
        m.d.comb += [both.eq((high << PRODUCT_BITS) + low), product.eq(both * factor)]
        first, second = product[:PRODUCT_BITS], product[PRODUCT_BITS:]
        return [first.as_signed(), second.as_signed() + first[-1]]


class DotArray(wiring.Component):
    """For each of `batch` rows of int8 inputs, its product with each of `block` rows of weights.

    `inp` is (batch, block) int8, `wgt` (block, block) int8 with output lanes first, `sums` (batch,
    block) of `sum_bits` signed bits, enough for every value: registered, where `enable` is set.
    `packed` makes two products with one multiplication where there are two lanes.
    """

    def __init__(self, batch: int, block: int, *, packed: bool = True) -> None:
        self.batch, self.block = batch, block
        self.lanes = 2 if packed and block > 1 else 1
        self.sum_bits = PRODUCT_BITS + block.bit_length() - 1
        super().__init__(
            {
                "enable": In(1),
                "inp": In(8 * batch * block),
                "wgt": In(8 * block * block),
                "sums": Out(self.sum_bits * batch * block),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Equal modules of one or two lanes, and the register behind them."""
        m = Module()
        sums = []
        for row in range(self.batch):
            for lane in range(0, self.block, self.lanes):
                m.submodules[f"lanes_{row}_{lane}"] = lanes = DotLanes(self.block, self.lanes)
                nbits = 8 * self.block
                m.d.comb += [
                    lanes.inp.eq(self.inp[row * nbits : (row + 1) * nbits]),
                    lanes.wgt.eq(self.wgt[lane * nbits : (lane + self.lanes) * nbits]),
                ]
                sums.append(lanes.sums)
        with m.If(self.enable):
            m.d.sync += self.sums.eq(Cat(*sums))
        return m


def _octet(vectors: Value, place: int) -> Value:
    return vectors[8 * place : 8 * place + 8].as_signed()


def _tree(values: list[Value]) -> Value:
    """The sum of values, in as few levels of adders as there can be."""
    while len(values) > 1:
        pairs = [a + b for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + (values[-1:] if len(values) % 2 else [])
    return values[0]
