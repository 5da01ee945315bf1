"""A Program: instructions, micro-ops, constants, symbols with relocations, layer map.

Its DRAM is one byte arena laid out as inputs | image (constants, micro-ops) | states | temporaries
and outputs.  States stay from run to run where a session keeps the arena (:mod:`.together`), and
are zero in a fresh one.  Of the last, those that are never alive together may share bytes.  Every
address in the stream is a symbol plus an element offset until :func:`link` resolves it, so equal
inputs give equal bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import count_stream, dram_elem_bytes
from vta_byoc.hw.disassembly import disassemble
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.html_table import first_rows, html_table
from vta_byoc.hw.isa import DRAM_ELEMENTS, ISA, Instruction, MemType, Opcode
from vta_byoc.hw.program.arena import ARENA_ALIGN, ArenaPlan, aligned

KINDS = ("input", "const", "uop", "state", "temp", "output")
STORED = ("temp", "output")
"""Kinds of symbols that a program stores anew in every run; only these may share bytes."""
WRITTEN = ("state", *STORED)
"""Kinds of symbols that a program may store into."""


@dataclass(frozen=True)
class Symbol:
    """A named byte range of the arena.

    ``shape`` and ``dtype`` describe the tensor in it; ``align`` is in bytes; ``kind`` one of KINDS;
    ``scope`` is the DRAM memory scope its consumers asked for.  A symbol with a ``parent`` is the
    part of it from byte ``inside`` on.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    align: int
    scope: str = "global"
    offset: int = -1
    parent: str = ""
    inside: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Relocation:
    """Instruction ``index`` addresses ``symbol`` at ``addend`` elements of its memory type."""

    index: int
    symbol: str
    addend: int


@dataclass(frozen=True)
class Layer:
    """Instructions [begin, end) belong to layer ``name``; ``output`` is the symbol it stores."""

    name: str
    begin: int
    end: int
    output: str = ""


_SYMBOL_FIELDS = tuple(field.name for field in dataclasses.fields(Symbol))
_LAYER_FIELDS = tuple(field.name for field in dataclasses.fields(Layer))


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A linked program.  ``insns`` (n, 2) uint64 with arena-relative addresses, ``image`` int8."""

    config: VTAConfig
    insns: np.ndarray
    image: np.ndarray
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]
    layers: tuple[Layer, ...]
    input_bytes: int
    arena_bytes: int

    def symbol(self, name: str) -> Symbol:
        """The symbol ``name``."""
        for sym in self.symbols:
            if sym.name == name:
                return sym
        raise VTAError(
            f"program has no symbol {name!r}; it has {', '.join(s.name for s in self.symbols)}"
        )

    def of_kind(self, kind: str) -> list[Symbol]:
        """Symbols of one kind, in order of declaration."""
        return [s for s in self.symbols if s.kind == kind]

    def new_arena(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """A fresh arena (int8) holding the image and ``inputs`` by symbol name."""
        arena = np.zeros(self.arena_bytes, np.int8)
        arena[self.input_bytes : self.input_bytes + self.image.size] = self.image
        for sym in self.of_kind("input"):
            self.view(arena, sym.name)[...] = inputs[sym.name]
        return arena

    def view(self, arena: np.ndarray, name: str) -> np.ndarray:
        """The bytes of symbol ``name`` inside ``arena`` as its tensor, a view.

        After a run, the bytes that a temporary shares hold whatever was stored there last; a run
        of :meth:`without_sharing` keeps every tensor.
        """
        sym = self.symbol(name)
        raw = arena[sym.offset : sym.offset + sym.nbytes]
        return raw.view(sym.dtype).reshape(sym.shape)

    def counters(self) -> dict[str, int]:
        """The seven counters by decoding the stream."""
        return count_stream(self.config, self.insns)

    def relocated(self, base: int) -> np.ndarray:
        """Instructions for an arena placed at byte address ``base``: (n, 2) uint64."""
        isa = ISA.of(self.config)
        insns = self.insns.copy()
        for rel in self.relocations:
            insn = isa.decode(*insns[rel.index].tolist())
            elem = dram_elem_bytes(self.config, MemType(insn["mem_type"]))
            if base % elem:
                raise VTAError(
                    f"arena base {base:#x} is not a multiple of {elem} bytes, the size of a "
                    f"{MemType(insn['mem_type']).name} element; align the arena to it"
                )
            values = {**insn.fields, "dram_base": insn["dram_base"] + base // elem}
            values.pop("opcode")
            insns[rel.index] = isa.encode(insn.opcode, **values)
        return insns

    @property
    def peak_bytes(self) -> int:
        """Bytes that temporaries and outputs take in the arena."""
        return self.arena_bytes - self._stored_begin

    @property
    def unshared_bytes(self) -> int:
        """Bytes that they would take if each had a place of its own."""
        start = self._stored_begin
        return _in_a_row(self._stored_roots(), start)[1] - start

    @property
    def _stored_begin(self) -> int:
        """Where temporaries and outputs begin: behind the image and the states."""
        ends = [aligned(s.offset + s.nbytes, ARENA_ALIGN) for s in self.of_kind("state")]
        return max(ends, default=self.input_bytes + self.image.size)

    def shares(self) -> bool:
        """Whether temporaries or outputs have bytes in common (but a part with its whole)."""
        end = 0
        for sym in sorted(self._stored_roots(), key=lambda s: s.offset):
            if sym.nbytes and sym.offset < end:
                return True
            end = max(end, sym.offset + sym.nbytes)
        return False

    def without_sharing(self) -> Program:
        """The same instructions with a place of its own for every tensor; itself if that is so.

        What a run of it leaves in the arena is every tensor as it was stored.  It needs no tokens
        that the program does not have: it has fewer conflicts.  Addresses move with the symbol of
        their relocation, also those that are wrong.
        """
        if not self.shares():
            return self
        placed, total = _in_a_row(self._stored_roots(), self._stored_begin)
        by_name = {s.name: s for s in self.symbols}
        symbols = []
        for sym in self.symbols:
            root, inside = root_of(sym, by_name)
            offset = placed[root].offset + inside if root in placed else sym.offset
            symbols.append(dataclasses.replace(sym, offset=offset))
        distance = {s.name: s.offset - by_name[s.name].offset for s in symbols}
        return dataclasses.replace(
            self, insns=self._moved(distance), symbols=tuple(symbols), arena_bytes=total
        )

    def _stored_roots(self) -> list[Symbol]:
        return [s for s in self.symbols if s.kind in STORED and not s.parent]

    def _moved(self, distance: Mapping[str, int]) -> np.ndarray:
        """Instructions after every symbol moved by so many bytes: (n, 2) uint64."""
        isa, insns = ISA.of(self.config), self.insns.copy()
        for rel in self.relocations:
            if not distance.get(rel.symbol):
                continue
            insn = isa.decode(*insns[rel.index].tolist())
            if not addresses_dram(insn):
                continue
            elem = dram_elem_bytes(self.config, MemType(insn["mem_type"]))
            # A wrong address may wrap around; no arena reaches that far, so a run refuses it.
            base = (insn["dram_base"] + distance[rel.symbol] // elem) % DRAM_ELEMENTS
            values = {**insn.fields, "dram_base": base}
            values.pop("opcode")
            insns[rel.index] = isa.encode(insn.opcode, **values)
        return insns

    def header(self) -> dict[str, object]:
        """Everything but the arrays, as JSON-ready data."""
        return {
            "config": self.config.to_dict(),
            "symbols": [{name: getattr(s, name) for name in _SYMBOL_FIELDS} for s in self.symbols],
            "relocations": [(r.index, r.symbol, r.addend) for r in self.relocations],
            "layers": [{name: getattr(x, name) for name in _LAYER_FIELDS} for x in self.layers],
            "input_bytes": self.input_bytes,
            "arena_bytes": self.arena_bytes,
        }

    def to_bytes(self) -> bytes:
        """Canonical bytes: equal programs give equal bytes."""
        head = json.dumps(self.header(), sort_keys=True).encode()
        parts = (head, self.insns.astype("<u8").tobytes(), self.image.tobytes())
        return b"".join(len(p).to_bytes(8, "little") + p for p in parts)

    def digest(self) -> str:
        """SHA-256 of :meth:`to_bytes`, hexadecimal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.digest())

    def __repr__(self) -> str:
        return (
            f"<Program for {self.config.target} ({self.config.name}): layers: {len(self.layers)}, "
            f"instructions: {len(self.insns):,}, arena: {self.arena_bytes:,} bytes>"
        )

    def _repr_html_(self) -> str:
        layers = [(each.name, f"{each.end - each.begin:,}", each.output) for each in self.layers]
        counters = [(name, f"{value:,}") for name, value in self.counters().items()]
        return html_table(
            repr(self)[1:-1], ("layer", "instructions", "stores"), first_rows(layers)
        ) + html_table("counters", ("", ""), counters)

    def disassemble(self) -> str:
        """The whole program as text: symbols, then instructions under their layers."""
        lines = [f"; vta {self.config.name} {self.config.key}"]
        for s in self.symbols:
            shape = "x".join(map(str, s.shape))
            lines.append(f"; {s.kind:<6} {s.name} {shape} {s.dtype} at {s.offset:#x} {s.scope}")
        names = {rel.index: f"  ; {rel.symbol}+{rel.addend}" for rel in self.relocations}
        starts = {layer.begin: layer.name for layer in self.layers}
        for i, text in enumerate(disassemble(self.config, self.insns)):
            if i in starts:
                lines.append(f"{starts[i]}:")
            lines.append(f"  {i:6d}  {text}{names.get(i, '')}")
        return "\n".join(lines) + "\n"


def addresses_dram(insn: Instruction) -> bool:
    """Whether ``insn`` is a LOAD or STORE of a known memory type."""
    return insn.opcode in (Opcode.LOAD, Opcode.STORE) and insn["mem_type"] in set(MemType)


def _in_a_row(symbols: Iterable[Symbol], offset: int) -> tuple[dict[str, Symbol], int]:
    """Symbols by name, one behind the other from ``offset`` on, and where they end."""
    placed: dict[str, Symbol] = {}
    for sym in symbols:
        if sym.name in placed:
            raise AssertionError(f"symbol {sym.name} declared twice")
        offset = aligned(offset, max(sym.align, ARENA_ALIGN))
        placed[sym.name] = dataclasses.replace(sym, offset=offset)
        offset += sym.nbytes
    return placed, aligned(offset, ARENA_ALIGN)


def place_symbols(
    symbols: Sequence[Symbol], plan: ArenaPlan | None = None
) -> tuple[list[Symbol], int, int, int]:
    """Give offsets: inputs, image, states, then the rest; (symbols, inputs, image, total).

    ``plan`` places temporaries and outputs by name; those that it does not name come behind, each
    at a place of its own.
    """
    offset, marks = 0, []
    placed: dict[str, Symbol] = {}
    planned = plan.offsets if plan is not None else {}
    for kinds in (("input",), ("const", "uop"), ("state",), STORED):
        group = [s for s in symbols if s.kind in kinds and not s.parent]
        if kinds == STORED and plan is not None:
            base = aligned(offset, plan.align)
            for sym in (s for s in group if s.name in planned):
                placed[sym.name] = dataclasses.replace(sym, offset=base + planned[sym.name])
            offset = base + plan.nbytes
        row, offset = _in_a_row((s for s in group if s.name not in planned), offset)
        placed |= row
        marks.append(offset)
    by_name = {s.name: s for s in symbols}
    for sym in symbols:
        root, inside = root_of(sym, by_name)
        placed[sym.name] = dataclasses.replace(sym, offset=placed[root].offset + inside)
    return [placed[s.name] for s in symbols], marks[0], marks[1], marks[-1]


def root_of(symbol: Symbol, by_name: Mapping[str, Symbol]) -> tuple[str, int]:
    """The symbol without a parent that ``symbol`` lies in, and its first byte there.

    Raises VTAError where a parent is not declared or the parents go round in a circle.
    """
    inside, whole = 0, symbol
    for _ in range(len(by_name) + 1):
        if not whole.parent:
            return whole.name, inside
        inside += whole.inside
        if whole.parent not in by_name:
            break
        whole = by_name[whole.parent]
    raise VTAError(
        f"symbol {symbol.name} lies in no whole symbol; its parents must be declared and end; link "
        "the program again"
    )


def link(
    config: VTAConfig,
    insns: Sequence[tuple[Opcode, dict[str, int]]],
    symbols: Sequence[Symbol],
    constants: dict[str, np.ndarray],
    relocations: Sequence[Relocation],
    layers: Sequence[Layer],
    plan: ArenaPlan | None = None,
) -> Program:
    """Place the symbols, resolve the relocations and encode the stream.

    ``constants`` holds the contents of every "const" and "uop" symbol; ``plan`` is that of
    :func:`place_symbols`.
    """
    isa = ISA.of(config)
    placed, input_bytes, image_end, total = place_symbols(symbols, plan)
    by_name = {s.name: s for s in placed}
    image = np.zeros(image_end - input_bytes, np.int8)
    for sym in placed:
        if sym.kind in ("const", "uop"):
            data = np.ascontiguousarray(constants[sym.name], dtype=sym.dtype)
            if data.shape != sym.shape:
                raise AssertionError(f"{sym.name}: constant {data.shape}, symbol {sym.shape}")
            start = sym.offset - input_bytes
            image[start : start + sym.nbytes] = data.reshape(-1).view(np.int8)
    values = [dict(v) for _, v in insns]
    for rel in relocations:
        sym = by_name[rel.symbol]
        elem = dram_elem_bytes(config, MemType(values[rel.index]["mem_type"]))
        if sym.offset % elem:
            raise AssertionError(f"{sym.name} at {sym.offset} is not aligned to {elem} bytes")
        values[rel.index]["dram_base"] = sym.offset // elem + rel.addend
    words = _encoded(isa, [op for op, _ in insns], values)
    return Program(
        config=config,
        insns=words,
        image=image,
        symbols=tuple(placed),
        relocations=tuple(relocations),
        layers=tuple(layers),
        input_bytes=input_bytes,
        arena_bytes=total,
    )


def _encoded(isa: ISA, opcodes: Sequence[Opcode], values: Sequence[dict[str, int]]) -> np.ndarray:
    """The words (n, 2) uint64 of instructions, field by field for all of an opcode at once."""
    words = np.zeros((len(opcodes), 2), np.uint64)
    for opcode in set(opcodes):
        rows = [i for i, op in enumerate(opcodes) if op == opcode]
        fields = isa.instructions[opcode]
        names = {f.name for f in fields}
        part = np.zeros((len(rows), 2), np.uint64)
        bad = {i for i in rows if not values[i].keys() <= names}
        for f in fields:
            default = int(opcode) if f.name == "opcode" else 0
            column = np.array([values[i].get(f.name, default) for i in rows], np.int64)
            beyond = (column < f.low) | (column > f.high)
            bad |= {rows[k] for k in np.flatnonzero(beyond).tolist()}
            raw = (column & ((1 << f.width) - 1)).astype(np.uint64)
            part[:, f.word] |= raw << np.uint64(f.lsb)
        if bad:
            isa.encode(opcode, **values[min(bad)])  # says what is wrong
        words[rows] = part
    return words
