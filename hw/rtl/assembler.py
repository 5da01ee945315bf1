"""From beats of the memory port to elements of SRAM."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Assembler(wiring.Component):
    """Joins beats to an element, or takes elements that are smaller than a beat out of it.

    `kinds` are log2 of the bytes of an element, one of which `kind` selects. An element is there
    while `valid`; `take` takes it. `beat_ready` says that a beat would be taken. Of elements that
    are smaller than a beat `sub` is the place of the first of a row, given with `row`, and
    `row_last` says that no other element of this row follows.
    """

    def __init__(self, port_bytes: int, kinds: Sequence[int]) -> None:
        self.port_bytes, self.kinds = port_bytes, tuple(kinds)
        self.element_bits = 8 << max(kinds)
        super().__init__(
            {
                "kind": In(range(max(len(kinds), 2))),
                "start": In(1),
                "row": In(1),
                "sub": In(8),
                "row_last": In(1),
                "beat": In(8 * port_bytes),
                "beat_valid": In(1),
                "beat_ready": Out(1),
                "valid": Out(1),
                "take": In(1),
                "element": Out(self.element_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A shift register of beats; what it and the beat that is there make is the element."""
        m = Module()
        bits = 8 * self.port_bytes
        kept = max(self.element_bits - bits, 0)
        shift = Signal(kept)
        count, place = Signal(range(max(self.element_bits // bits, 2))), Signal(8)
        whole, drained = Signal(), Signal()
        beat_taken = Signal()
        m.d.comb += [
            self.valid.eq(self.beat_valid & whole),
            self.beat_ready.eq(Mux(whole, self.take & drained, 1)),
            beat_taken.eq(self.beat_valid & self.beat_ready),
        ]
        with m.Switch(self.kind):
            for number, log in enumerate(self.kinds):
                with m.Case(number):
                    m.d.comb += self._one(1 << log, shift, count, place, whole, drained)
        with m.If(self.start):
            m.d.sync += count.eq(0)
        with m.Elif(beat_taken):
            m.d.sync += count.eq(Mux(whole, 0, count + 1))
            if kept:
                m.d.sync += shift.eq(Cat(shift, self.beat)[bits:])
        with m.If(self.row):
            m.d.sync += place.eq(self.sub)
        with m.Elif(self.valid & self.take):
            m.d.sync += place.eq(place + 1)
        return m

    def _one(
        self,
        size: int,
        shift: Signal,
        count: Signal,
        place: Signal,
        whole: Signal,
        drained: Signal,
    ) -> list[Value]:
        """What the signals are for elements of `size` bytes."""
        beats, bits = size // self.port_bytes, 8 * self.port_bytes
        if beats <= 1:
            each = self.port_bytes // size
            at = place[: each.bit_length() - 1]
            last = (at == each - 1) | self.row_last if each > 1 else Value.cast(1)
            picked = self.beat.word_select(at, 8 * size) if each > 1 else self.beat
            return [whole.eq(1), drained.eq(last), self.element.eq(picked)]
        held = shift[len(shift) - (beats - 1) * bits :]
        element = Cat(held, self.beat)
        return [whole.eq(count == beats - 1), drained.eq(1), self.element.eq(element)]
