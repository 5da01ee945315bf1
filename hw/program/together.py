"""Programs that stay in one memory: constants shared, states kept from run to run.

A program by itself lies in an arena that is filled anew for every run.  Programs that are placed
together (:func:`together`) have one arena for as long as a session lasts: constants of equal bytes
lie there once, states of equal meaning are one tensor, and temporaries lie over each other, as one
program runs at a time.  What a run finds at another place than the run before, a window of a state
or of a table, is an address that :meth:`Together.stream` moves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, MemType, Opcode
from vta_byoc.hw.program.arena import ARENA_ALIGN, aligned
from vta_byoc.hw.program.program import Program, root_of

Named = tuple[str, str]
"""A program's name, and that of one of its symbols."""


@dataclass(frozen=True)
class Slide:
    """Transfers whose place is ``step`` bytes further for every window.

    Attributes:
        symbol: what they address, and of which program.
        opcode: LOAD or STORE.
        step: bytes.
    """

    symbol: Named
    opcode: Opcode
    step: int


@dataclass(frozen=True)
class Together:
    """Programs in one arena.

    Attributes:
        programs: by name.
        offsets: where each symbol is, in bytes from the arena's first.
        contents: what is written there once, by its first byte.
        nbytes: of the arena.
        unshared: bytes of the constants if each program had its own.
        constants: bytes of the constants as they are.
        streams: the instructions of each program at window 0, uint64 (n, 2).
        slides: what other windows move.
    """

    programs: Mapping[str, Program]
    offsets: Mapping[Named, int]
    contents: Mapping[int, np.ndarray]
    nbytes: int
    unshared: int
    constants: int
    streams: Mapping[str, np.ndarray]
    slides: tuple[Slide, ...]

    def stream(self, name: str, window: int) -> np.ndarray:
        """The instructions of a program for a window: uint64 (n, 2)."""
        stream, program = self.streams[name], self.programs[name]
        opcodes = _field(program.config, stream, "opcode")
        for slide in self.slides:
            owner, symbol = slide.symbol
            if owner == name and window:
                rows = np.array([r.index for r in program.relocations if r.symbol == symbol], int)
                rows = rows[opcodes[rows] == slide.opcode]
                by = np.full(len(rows), window * slide.step, np.int64)
                stream = moved_rows(program.config, stream, rows, by)
        return stream

    def view(self, arena: np.ndarray, named: Named) -> np.ndarray:
        """The tensor of a symbol in the bytes of the arena, uint8 (nbytes,); no copy."""
        symbol, first = self.programs[named[0]].symbol(named[1]), self.offsets[named]
        return arena[first : first + symbol.nbytes].view(symbol.dtype).reshape(symbol.shape)


def together(
    programs: Mapping[str, Program],
    same: Sequence[Sequence[Named]] = (),
    tables: Mapping[Named, np.ndarray] | None = None,
    slides: Sequence[Slide] = (),
) -> Together:
    """Place programs in one arena.

    Args:
        programs: by name; all of one machine.
        same: symbols that are one state; each a state or a result of its program.
        tables: what lies in place of a constant, of which a run takes a window.
        slides: what moves from window to window.

    Raises:
        VTAError: symbols that should be one have different sizes.
    """
    return _Placing(programs, tables or {}).placed(same, tuple(slides))


class _Placing:
    def __init__(self, programs: Mapping[str, Program], tables: Mapping[Named, np.ndarray]) -> None:
        self.programs, self.tables = programs, tables
        self.offsets: dict[Named, int] = {}
        self.contents: dict[int, np.ndarray] = {}
        self.end = 0

    def placed(self, same: Sequence[Sequence[Named]], slides: tuple[Slide, ...]) -> Together:
        unshared = self._constants()
        constants = self.end
        for group in same:
            self._one(group)
        for name, program in self.programs.items():
            for symbol in program.symbols:
                if symbol.kind in ("state", "input") and (name, symbol.name) not in self.offsets:
                    self.offsets[name, symbol.name] = self._room(symbol.nbytes, symbol.align)
        self._temporaries()
        streams = {name: self._stream(name) for name in self.programs}
        return Together(
            self.programs,
            self.offsets,
            self.contents,
            self.end,
            unshared,
            constants,
            streams,
            slides,
        )

    def _room(self, nbytes: int, align: int) -> int:
        first = aligned(self.end, max(align, ARENA_ALIGN))
        self.end = aligned(first + nbytes, ARENA_ALIGN)
        return first

    def _constants(self) -> int:
        """Place constants and micro-ops, those of equal bytes once; the bytes of all."""
        first: dict[Hashable, int] = {}
        total = 0
        for name, program in self.programs.items():
            for symbol in program.symbols:
                if symbol.kind not in ("const", "uop"):
                    continue
                named = name, symbol.name
                begin = symbol.offset - program.input_bytes
                octets = program.image[begin : begin + symbol.nbytes].view(np.uint8)
                octets = self.tables.get(named, octets)
                total += octets.nbytes
                key = hashlib.sha256(octets.tobytes()).digest(), symbol.align
                if key not in first:
                    first[key] = self._room(octets.nbytes, symbol.align)
                    self.contents[first[key]] = octets
                self.offsets[named] = first[key]
        return total

    def _one(self, group: Sequence[Named]) -> None:
        """A place for symbols that are one state."""
        symbols = [self.programs[program].symbol(name) for program, name in group]
        sizes = sorted({symbol.nbytes for symbol in symbols})
        if len(sizes) > 1:
            raise VTAError(
                f"{' and '.join(name for _, name in group)} have {', '.join(map(str, sizes))} "
                "bytes; what is one state has one size; name symbols of equal tensors"
            )
        place = self._room(symbols[0].nbytes, max(symbol.align for symbol in symbols))
        self.offsets |= dict.fromkeys(group, place)

    def _temporaries(self) -> None:
        """What programs store anew, over each other: one runs at a time."""
        align = max((s.align for p in self.programs.values() for s in p.symbols), default=1)
        behind = self.end
        for name, program in self.programs.items():
            by_name = {s.name: s for s in program.symbols}
            begin = program.arena_bytes - program.peak_bytes
            base = behind + (begin - behind) % max(align, ARENA_ALIGN)  # moved by whole elements
            for symbol in program.symbols:
                named = name, symbol.name
                if named in self.offsets:
                    continue
                root, inside = root_of(symbol, by_name)
                moved = self.offsets.get((name, root))
                here = base + symbol.offset - begin
                self.offsets[named] = here if moved is None else moved + inside
            self.end = max(self.end, base + program.peak_bytes)

    def _stream(self, name: str) -> np.ndarray:
        program = self.programs[name]
        distance = {s.name: self.offsets[name, s.name] - s.offset for s in program.symbols}
        rows = np.array([r.index for r in program.relocations], int)
        by = np.array([distance[r.symbol] for r in program.relocations], np.int64)
        return moved_rows(program.config, program.insns, rows, by)


def _field(config: VTAConfig, insns: np.ndarray, name: str) -> np.ndarray:
    """The values (n,) int64 of an unsigned field that LOAD has."""
    field = ISA.of(config).field(Opcode.LOAD, name)
    found = (insns[:, field.word] >> np.uint64(field.lsb)) & np.uint64(field.high)
    return found.astype(np.int64)


def moved_rows(
    config: VTAConfig, insns: np.ndarray, rows: np.ndarray, by: np.ndarray
) -> np.ndarray:
    """A copy of a stream whose transfers ``rows`` address ``by`` bytes further, each its own."""
    found = np.array(insns, np.uint64)
    if not len(rows):
        return found
    field = ISA.of(config).field(Opcode.LOAD, "dram_base")
    memory = _field(config, found, "mem_type")[rows]
    sizes = np.ones(len(rows), np.int64)
    for mem in MemType:
        sizes[memory == mem] = dram_elem_bytes(config, mem)
    assert not (by % sizes).any(), "places are multiples of every element"
    new = _field(config, found, "dram_base")[rows] + by // sizes
    assert new.min() >= 0 and new.max() <= field.high, "an arena's addresses have 32 bits"
    kept = found[rows, field.word] & ~np.uint64(field.high << field.lsb)
    found[rows, field.word] = kept | (new.astype(np.uint64) << np.uint64(field.lsb))
    return found
