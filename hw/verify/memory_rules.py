"""Rules about memory: what is read was written before, and no two queues race for an element.

The walk follows program order.  It computes no contents but those of the micro-op buffer, which
say what GEMM and ALU touch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vta_byoc.hw.isa import AluOp, Instruction, MemType, Opcode, Queue
from vta_byoc.hw.program.program import WRITTEN, Symbol
from vta_byoc.hw.verify.access import Transfer, Where, dram_grain, end_of
from vta_byoc.hw.verify.compute_rules import ComputeRules
from vta_byoc.hw.verify.rules import Report
from vta_byoc.hw.verify.sound_transfers import sound_transfers
from vta_byoc.hw.verify.tokens import Clock
from vta_byoc.hw.verify.transfer_rules import SymbolMap, check_transfer

_NOTHING = -1
"""In place of a tensor where nothing was stored."""
_SHARED = "a tensor lies in bytes that it shares until another is stored there"
_APART = "give {} a place of its own until it was read last"
_ADVICE = {
    1: "push one there and pop it here",
    2: "push one there and pass it on through the compute queue to here",
}


def element_of(where: Where, position: int) -> int:
    """The element at ``position`` of a set."""
    return int(where.start + position if isinstance(where, slice) else where[position])


class Defined:
    """The elements of one space that were written; what is written once stays so."""

    def __init__(self, size: int) -> None:
        self._written: np.ndarray = np.zeros(size, bool)
        self._whole = 0
        """All elements below it are written: most programs fill a buffer and ask ever after."""

    def __getitem__(self, where: Where) -> np.ndarray:
        return self._written[where]

    def add(self, where: Where) -> None:
        """Elements are written now."""
        if end_of(where) > self._whole:
            self._written[where] = True

    def missing(self, where: Where) -> int | None:
        """The first element of an ascending set that nothing wrote; None when there is none."""
        if end_of(where) <= self._whole:
            return None
        written = self._written[where]
        if not written.all():
            return element_of(where, int(written.argmin()))
        rest = self._written[self._whole :]
        if rest.size and rest[0]:
            self._whole += rest.size if rest.all() else int(rest.argmin())
        return None


class History:
    """The last instruction of each queue that read and that wrote each element of one space."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kinds: list[tuple[int, bool, np.ndarray]] = []
        """(queue, are they writes, the last of them for each element), as they came up."""
        self._places: list[int | None] = [None] * (2 * len(Queue))
        self._newest: list[int] = []
        """The last of each kind to access anything; instructions of a queue come in order."""
        self._against: list[list[int]] = [[] for _ in self._places]
        """Kinds in conflict with an access: those of other queues, of which one is a write."""

    def note(self, queue: Queue, where: Where, write: bool, index: int) -> None:
        """Instruction ``index`` of ``queue`` read or wrote ``where``."""
        place = self._places[2 * queue + write]
        if place is None:
            place = self._places[2 * queue + write] = len(self._kinds)
            self._kinds.append((int(queue), write, np.full(self._size, -1, np.int32)))
            self._newest.append(index)
            for other in Queue:
                for writes in (False, True):
                    if other != queue and (write or writes):
                        self._against[2 * other + writes].append(place)
        self._kinds[place][2][where] = index
        self._newest[place] = index

    def last_write(self, queue: Queue, element: int) -> int:
        """The last instruction of ``queue`` that wrote ``element``, which one did."""
        place = self._places[2 * queue + True]
        assert place is not None
        return int(self._kinds[place][2][element])

    def unordered(
        self, queue: Queue, where: Where, write: bool, clock: Clock
    ) -> list[tuple[int, bool, int]]:
        """Accesses of other queues in conflict with one that may not have finished by `clock`.

        Of each queue and kind the last one, as (instruction, did it write, element).
        """
        found = []
        for place in self._against[2 * queue + write]:
            other, wrote, last = self._kinds[place]
            if self._newest[place] <= clock[other]:
                continue
            at = last[where]
            if at.size and int(at.max()) > clock[other]:
                position = int(at.argmax())
                found.append((int(at[position]), wrote, element_of(where, position)))
        return found


class MemoryWalk:
    """Follows a program instruction by instruction.

    ``clocks[i]`` holds the last instruction of each queue that is finished when ``i`` starts.
    """

    def __init__(self, report: Report, clocks: Sequence[Clock]) -> None:
        program = report.program
        self._report = report
        self._config = program.config
        self._clocks = clocks
        self._words = program.insns.tolist()
        self._symbols = SymbolMap(program)
        self._sound = sound_transfers(program, self._symbols, report.insns)
        self._compute = ComputeRules(program.config)
        sizes = program.config.depths
        self._uops: np.ndarray = np.zeros(sizes["uop"], np.uint32)
        self._defined = {name: Defined(size) for name, size in sizes.items()}
        self._computed: np.ndarray = np.zeros(sizes["acc"], bool)
        self._constants: np.ndarray = np.full(sizes["acc"], _NOTHING, np.int64)
        """Where in the image each ACC element's value stands, of those that hold constants."""
        # Only what STORE may write can change: the arena after its image.
        self._grain = dram_grain(program.config)
        self._base = (program.input_bytes + program.image.size) // self._grain * self._grain
        grains = max(0, -(-(program.arena_bytes - self._base) // self._grain))
        self._holds: np.ndarray = np.full(grains, _NOTHING, np.int32)
        """Which tensor was stored in each grain last: the position of its whole symbol."""
        self._numbers = {s.name: number for number, s in enumerate(program.symbols)}
        self._spaces = {name: History(size) for name, size in (*sizes.items(), ("dram", grains))}

    def step(self, index: int, insn: Instruction) -> None:
        """Check instruction ``index`` and account for what it does."""
        if insn.opcode in (Opcode.LOAD, Opcode.STORE):
            found = self._sound.get(index)
            transfer, symbol = found or check_transfer(self._report, self._symbols, index, insn)
            if transfer is not None and insn.opcode == Opcode.LOAD:
                self._load(index, insn, transfer, symbol)
            elif transfer is not None:
                self._store(index, insn, transfer, symbol)
        elif insn.opcode in (Opcode.GEMM, Opcode.ALU):
            self._work(index, insn)

    # ---------------------------------------------------------------- transfers
    def _load(
        self, index: int, insn: Instruction, transfer: Transfer, symbol: Symbol | None
    ) -> None:
        space = transfer.space
        if symbol is not None:
            self._read_dram(index, insn, transfer, symbol)
        if transfer.mem == MemType.UOP:
            self._load_uops(index, transfer, symbol)
        self._touch(index, insn, space, transfer.sram, True)
        self._defined[space].add(transfer.sram)
        if space == "acc":
            self._computed[transfer.sram] = False
            self._constants[transfer.sram] = _NOTHING
            if transfer.mem == MemType.ACC and symbol is not None and symbol.kind == "const":
                first = transfer.elements() * transfer.elem_bytes
                self._constants[transfer.targets()] = first - self._report.program.input_bytes

    def _read_dram(self, index: int, insn: Instruction, transfer: Transfer, symbol: Symbol) -> None:
        if symbol.kind not in WRITTEN:
            return
        where = transfer.grains(self._grain, self._base)
        if symbol.kind == "state":  # what the run before left there
            self._touch(index, insn, "dram", where, False)
            return
        holds = self._holds[where]
        defined = holds != _NOTHING
        if not defined.all():
            at = self._byte(where, int(defined.argmin()))
            self._report.add(
                "dram-undefined",
                index,
                f"reads byte {at - symbol.offset} of {symbol.kind} {symbol.name}; nothing stored "
                "it before; store it first",
            )
        strange = defined & (holds != self._number(symbol))
        if strange.any():
            grain = element_of(where, int(strange.argmax()))
            store = self._last_store(grain)
            self._report.add(
                "reuse",
                index,
                f"reads byte {self._at(grain) - symbol.offset} of {symbol.kind} {symbol.name}, "
                f"which {self._report.named(store)} stored for {self._holder(grain)}; "
                f"{_SHARED}; {_APART.format(symbol.name)}",
                store,
            )
        self._touch(index, insn, "dram", where, False)

    def _load_uops(self, index: int, transfer: Transfer, symbol: Symbol | None) -> None:
        """Follow the contents of the micro-op buffer; what is unknown counts as zeros."""
        self._uops[transfer.sram] = 0
        if symbol is None:
            return
        if symbol.kind not in ("uop", "const"):
            self._report.add(
                "uop-source",
                index,
                f"micro-ops come from {symbol.kind} {symbol.name}; they must be known when the "
                "program is built; place them in its image",
            )
            return
        program = self._report.program
        first = transfer.elements() * transfer.elem_bytes - program.input_bytes
        octets = program.image[first[..., None] + np.arange(transfer.elem_bytes)]
        self._uops[transfer.targets()] = octets.view(np.uint32)[..., 0]

    def _store(
        self, index: int, insn: Instruction, transfer: Transfer, symbol: Symbol | None
    ) -> None:
        self._want_defined(index, "acc", transfer.sram)
        stale = self._defined["acc"][transfer.sram] & ~self._computed[transfer.sram]
        if stale.any():
            self._report.add(
                "store-source",
                index,
                f"stores ACC element {element_of(transfer.sram, int(stale.argmax()))} as LOAD or "
                "reset left it; STORE sees results of GEMM and ALU only; pass it through the ALU",
            )
        self._touch(index, insn, "acc", transfer.sram, False)
        if symbol is None:
            return
        if symbol.kind not in WRITTEN:
            self._report.add(
                "dram-store",
                index,
                f"stores into {symbol.kind} {symbol.name}; a program may write temporaries and "
                "outputs; declare the target as one",
            )
            return
        where = transfer.grains(self._grain, self._base)
        self._touch(index, insn, "dram", where, True)
        self._holds[where] = self._number(symbol)

    def finish(self) -> None:
        """Check that every output is still what was stored last in its bytes."""
        for symbol in self._report.program.of_kind("output"):
            first = (symbol.offset - self._base) // self._grain
            holds = self._holds[first : first + -(-symbol.nbytes // self._grain)]
            strange = (holds != _NOTHING) & (holds != self._number(symbol))
            if strange.any():
                grain = first + int(strange.argmax())
                self._report.add(
                    "reuse",
                    self._last_store(grain),
                    f"stores {self._holder(grain)} into byte {self._at(grain) - symbol.offset} of "
                    f"output {symbol.name}; results are read when the program has ended; "
                    f"{_APART.format(symbol.name)}",
                )

    def _number(self, symbol: Symbol) -> int:
        return self._numbers[self._symbols.whole(symbol).name]

    def _holder(self, grain: int) -> str:
        """The tensor in a grain of DRAM, by the part of it that was stored there."""
        stored_by = self._symbols.relocations.get(self._last_store(grain), [])
        whole = self._report.program.symbols[self._holds[grain]].name
        return stored_by[0].symbol if stored_by else whole

    def _last_store(self, grain: int) -> int:
        """The instruction that stored a grain of DRAM last."""
        return self._spaces["dram"].last_write(Queue.STORE, grain)

    # ---------------------------------------------------------------- GEMM and ALU
    def _work(self, index: int, insn: Instruction) -> None:
        problem = self._compute.range_problem(insn)
        if problem is not None:
            self._report.add(problem[0], index, problem[1])
            return
        fields = insn.fields
        uops = slice(fields["uop_bgn"], fields["uop_end"])
        if fields["iter_out"] and fields["iter_in"] and not self._want_defined(index, "uop", uops):
            return
        work = self._compute.work(tuple(self._words[index]), insn, self._uops[uops])
        for rule, message in work.problems:
            self._report.add(rule, index, message)
        for space, where in work.reads:
            self._want_defined(index, space, where)
            self._touch(index, insn, space, where, False)
        self._constants[work.writes] = _NOTHING
        if insn.opcode == Opcode.ALU and fields["alu_opcode"] == AluOp.SHR:
            self._check_amounts(index, insn, work.reads)
        self._touch(index, insn, "acc", work.writes, True)
        self._defined["acc"].add(work.writes)
        self._computed[work.writes] = work.computes

    def _check_amounts(
        self, index: int, insn: Instruction, reads: Sequence[tuple[str, Where]]
    ) -> None:
        """Shift amounts that are constants of the program; others are data."""
        if insn["use_imm"] or len(reads) < 2:
            return
        at = self._constants[reads[1][1]]
        octets = at[at != _NOTHING][:, None] + np.arange(self._config.acc_elem_bytes)
        amounts = self._report.program.image[octets].view(np.int32)
        limit = self._config.capabilities.max_shift
        wrong = (amounts < 0) | (amounts > limit)
        if wrong.any():
            self._report.add(
                "tensor-shift",
                index,
                f"a constant shifts by {amounts[wrong][0]}; tensors shift by 0 to {limit} "
                "(CAPABILITIES.max_shift), and some cores ignore the sign; split it, or multiply",
            )

    # ---------------------------------------------------------------- rules
    def _want_defined(self, index: int, space: str, where: Where) -> bool:
        element = self._defined[space].missing(where)
        if element is None:
            return True
        self._report.add(
            "uninitialised",
            index,
            f"reads {space.upper()} element {element}; nothing wrote it before; load or compute it "
            "first",
        )
        return False

    def _touch(self, index: int, insn: Instruction, space: str, where: Where, write: bool) -> None:
        """Check an access for races, then remember it."""
        history, queue = self._spaces[space], insn.queue
        for other, wrote, element in history.unordered(queue, where, write, self._clocks[index]):
            self._race(index, queue, (space, element, write), (other, wrote))
        history.note(queue, where, write, index)

    def _race(
        self, index: int, queue: Queue, access: tuple[str, int, bool], with_: tuple[int, bool]
    ) -> None:
        """Two accesses to an element, (space, element, write), of which ``with_`` was first."""
        (space, element, write), (other, wrote) = access, with_
        backwards = self._clocks[other][queue] >= index
        self._report.add(
            "race",
            index,
            f"{'writes' if write else 'reads'} {self._place(index, space, element)}, which "
            f"{self._report.named(other)} {'writes' if wrote else 'reads'}; "
            f"{'tokens order the two the wrong way round' if backwards else 'no token orders them'}"
            f"; {_ADVICE[abs(queue - self._queue(other))]}",
            other,
        )

    def _queue(self, index: int) -> Queue:
        insn = self._report.insns[index]
        assert insn is not None
        return insn.queue

    def _place(self, index: int, space: str, element: int) -> str:
        """What instruction ``index`` touches, by name."""
        if space != "dram":
            return f"{space.upper()} element {element}"
        symbol = self._symbols.addressed(index) or self._symbols.at(self._at(element))
        return f"DRAM byte {self._at(element)}{f' of {symbol.name}' if symbol else ''}"

    def _byte(self, where: Where, position: int) -> int:
        """Arena byte of a grain of a set."""
        return self._at(element_of(where, position))

    def _at(self, grain: int) -> int:
        """Arena byte of a grain."""
        return grain * self._grain + self._base
