"""Address generation: rows of a transfer as bursts that a memory bus takes."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from vta_byoc.hw.rtl.parameters import ADDRESS_BITS, BEATS_BITS, BURST_BEATS, PAGE_BYTES

ROW_BYTES_BITS = 32
"""Bits of the bytes of a row and of the bytes between two."""


class BurstGenerator(wiring.Component):
    """Cuts `rows` rows of `row_bytes` bytes, `stride` bytes apart, into bursts of whole beats.

    No burst is longer than BURST_BEATS or crosses a multiple of PAGE_BYTES. At most `window` beats
    are asked for and not `arrived`, and one burst more; without a `window` there is no such limit,
    and `arrived` is not looked at. `start` takes the inputs; `busy` lasts until the last burst is
    taken.
    """

    def __init__(self, port_bytes: int, window: int | None) -> None:
        self.port_bytes, self.window = port_bytes, window
        super().__init__(
            {
                "start": In(1),
                "address": In(ADDRESS_BITS),
                "row_bytes": In(ROW_BYTES_BITS),
                "stride": In(ROW_BYTES_BITS),
                "rows": In(16),
                "arrived": In(1),
                "busy": Out(1),
                "valid": Out(1),
                "ready": In(1),
                "burst_address": Out(ADDRESS_BITS),
                "burst_beats": Out(BEATS_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A state for the row that comes, one for the bursts of a row."""
        m = Module()
        port, log_port = self.port_bytes, self.port_bytes.bit_length() - 1
        row, rows_left = Signal(ADDRESS_BITS), Signal(16)
        beat, beats_left = Signal(ADDRESS_BITS - log_port), Signal(ROW_BYTES_BITS)
        in_row = Signal()
        page_beats = PAGE_BYTES // port
        to_page, most = Signal(range(page_beats + 1)), Signal(range(page_beats + 1))
        room, taken = Signal(init=1), Signal()
        offset = row[:log_port]
        m.d.comb += [
            to_page.eq(page_beats - beat[: page_beats.bit_length() - 1]),
            most.eq(Mux(to_page > BURST_BEATS, BURST_BEATS, to_page)),
            self.burst_beats.eq(Mux(beats_left > most, most, beats_left)),
            self.burst_address.eq(beat << log_port),
            self.valid.eq(in_row & room),
            taken.eq(self.valid & self.ready),
        ]
        if self.window is not None:
            ahead = Signal(range(self.window + BURST_BEATS + 1))
            m.d.sync += ahead.eq(ahead + Mux(taken, self.burst_beats, 0) - self.arrived)
            m.d.comb += room.eq(ahead < self.window)
        next_row = [
            beat.eq(row[log_port:]),
            beats_left.eq((offset + self.row_bytes + (port - 1)) >> log_port),
            row.eq(row + self.stride),
            rows_left.eq(rows_left - 1),
        ]
        with m.If(self.start):
            m.d.sync += [
                row.eq(self.address),
                rows_left.eq(self.rows),
                self.busy.eq(self.rows != 0),
                in_row.eq(0),
            ]
        with m.Elif(self.busy & ~in_row):
            m.d.sync += [*next_row, in_row.eq(1)]
        with m.Elif(taken):
            m.d.sync += [
                beat.eq(beat + self.burst_beats),
                beats_left.eq(beats_left - self.burst_beats),
            ]
            with m.If(beats_left == self.burst_beats):
                more = rows_left != 0
                m.d.sync += [*next_row, in_row.eq(more), self.busy.eq(more)]
        return m
