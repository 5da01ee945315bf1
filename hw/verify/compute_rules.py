"""Rules about one GEMM or ALU instruction, given its micro-ops; and which elements it touches."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.faults import MAX_STEPS, Fault, fault_message
from vta_byoc.hw.isa import AluOp, Instruction, Opcode
from vta_byoc.hw.verify.access import (
    Loops,
    Where,
    compact,
    decode_uops,
    operands,
    reserved_uop_bits,
)

_RANGE = {"dst": Fault.DST_RANGE, "src": Fault.SRC_RANGE, "wgt": Fault.WGT_RANGE}
_TOKEN_BITS = 0b1111 << 3


@dataclass(frozen=True)
class Effects:
    """What an instruction does, whatever the state of the machine.

    ``problems`` are (rule, message); ``reads`` SRAM elements by memory, ``writes`` ACC elements,
    both ascending; ``computes``: STORE may read the result.
    """

    problems: tuple[tuple[str, str], ...] = ()
    reads: tuple[tuple[str, Where], ...] = ()
    writes: Where = field(default_factory=lambda: slice(0, 0))
    computes: bool = False


class ComputeRules:
    """Checks instructions of one machine; equal ones with equal micro-ops are checked once."""

    def __init__(self, config: VTAConfig) -> None:
        self._config = config
        self._uop_depth = config.uop_depth
        self._known: dict[tuple[int, int, bytes], Effects] = {}

    def range_problem(self, insn: Instruction) -> tuple[str, str] | None:
        """Whether the micro-op range cannot be read at all."""
        begin, end, depth = insn["uop_bgn"], insn["uop_end"], self._uop_depth
        if begin > end or end > depth:
            return "uop-bounds", fault_message(Fault.UOP_RANGE, end, depth)
        return None

    def work(self, words: tuple[int, int], insn: Instruction, uops: np.ndarray) -> Effects:
        """The work of ``insn`` with micro-ops ``uops``, (uop_end - uop_bgn,) uint32."""
        key = (words[0] & ~_TOKEN_BITS, words[1], uops.tobytes())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._examine(insn, uops)
        return found

    def _examine(self, insn: Instruction, uops: np.ndarray) -> Effects:
        problems = self._alu_words(insn) if insn.opcode == Opcode.ALU else []
        loops = Loops(insn, decode_uops(self._config, uops))
        if loops.steps == 0:
            return Effects((*problems, _no_trips(insn)))
        if loops.steps > MAX_STEPS:
            message = fault_message(Fault.STEPS, loops.steps, MAX_STEPS)
            return Effects((*problems, ("loop-steps", message)))
        bits = reserved_uop_bits(self._config, uops)
        if bits:
            problems.append(("reserved-bits", fault_message(Fault.UOP_RESERVED, bits, 0)))
        if insn.opcode == Opcode.ALU:
            problems += [p for p in (_alu_uops(loops), _imm_source(loops)) if p is not None]
        beyond = self._bounds(insn, loops)
        problems += beyond or self._distances(insn, loops)
        return self._touched(insn, loops, problems)

    def _alu_words(self, insn: Instruction) -> list[tuple[str, str]]:
        caps, code, found = self._config.capabilities, insn["alu_opcode"], []
        if insn["reset"]:
            found.append(("alu-reset", fault_message(Fault.ALU_RESET, 1, 0)))
        if code not in set(AluOp):
            found.append(("alu-opcode", fault_message(Fault.ALU_OPCODE, code, 0)))
        if code == AluOp.MUL and not caps.mul:
            found.append(("mul", fault_message(Fault.NO_MUL, code, 0)))
        if code == AluOp.SHR and insn["use_imm"] and abs(insn["imm"]) > caps.max_shift:
            found.append(
                (
                    "shift",
                    f"a shift by {insn['imm']}; this machine shifts by {-caps.max_shift} to "
                    f"{caps.max_shift} (CAPABILITIES.max_shift); split it",
                )
            )
        return found

    def _bounds(self, insn: Instruction, loops: Loops) -> list[tuple[str, str]]:
        found, size = [], self._config.depths
        for name, space in operands(self._config, insn).items():
            last = loops.last(name)
            if last >= size[space]:
                found.append(("sram-bounds", fault_message(_RANGE[name], last, size[space])))
        return found

    def _distances(self, insn: Instruction, loops: Loops) -> list[tuple[str, str]]:
        distance = self._config.capabilities.dst_distance
        if insn.opcode == Opcode.ALU:
            return self._alu_distance(insn, loops) if distance > 1 else []
        close = None if insn["reset"] else loops.repeat("dst", distance)
        if close is None:
            return []
        return [
            (
                "dst-distance",
                f"ACC element {close[0]} is written again after {close[1]} micro-op steps; equal "
                f"destinations must be {distance} apart (CAPABILITIES.dst_distance); reorder the "
                "loops or split the instruction",
            )
        ]

    @staticmethod
    def _alu_distance(insn: Instruction, loops: Loops) -> list[tuple[str, str]]:
        again = loops.repeat("dst", 2)
        element = again[0] if again else None
        if element is None and not insn["use_imm"]:
            element = loops.follows("dst", "src")
        if element is None:
            return []
        return [
            (
                "alu-distance",
                f"ACC element {element} is read one step after it was written; the ALU has no "
                "interlock; reorder the loops or split the instruction",
            )
        ]

    def _touched(self, insn: Instruction, loops: Loops, problems: list[tuple[str, str]]) -> Effects:
        size = self._config.depths
        sets = [
            (space, compact(loops.touched(name, size[space])))
            for name, space in operands(self._config, insn).items()
        ]
        writes = sets[0][1]
        reset = insn.opcode == Opcode.GEMM and bool(insn["reset"])
        return Effects(tuple(problems), () if reset else tuple(sets), writes, not reset)


# ---------------------------------------------------------------- what only some cores bear
def _no_trips(insn: Instruction) -> tuple[str, str]:
    sizes = (insn["iter_out"], insn["iter_in"], insn["uop_end"] - insn["uop_bgn"])
    return (
        "loop-trips",
        f"loops of {sizes[0]} and {sizes[1]} trips around {sizes[2]} micro-ops; each must be 1 or "
        "more: a core may run on for thousands of steps; leave the instruction out",
    )


def _alu_uops(loops: Loops) -> tuple[str, str] | None:
    wgt = int(loops.uops["wgt"].max())
    if not wgt:
        return None
    return (
        "alu-uop",
        f"a micro-op has wgt {wgt}; it must be 0: a core may take it for high bits of src; give "
        "the ALU micro-ops of its own",
    )


def _imm_source(loops: Loops) -> tuple[str, str] | None:
    """A loop of one trip has no use for its factors."""
    insn = loops.insn
    if not insn["use_imm"]:
        return None
    for loop in ("out", "in"):
        dst, src = insn[f"dst_factor_{loop}"], insn[f"src_factor_{loop}"]
        if dst != src and insn[f"iter_{loop}"] > 1:
            return _two_operands(f"src_factor_{loop}", src, dst)
    other = np.flatnonzero(loops.uops["src"] != loops.uops["dst"])
    if not len(other):
        return None
    src, dst = (int(loops.uops[name][other[0]]) for name in ("src", "dst"))
    return _two_operands("src of a micro-op", src, dst)


def _two_operands(what: str, src: int, dst: int) -> tuple[str, str]:
    return (
        "imm-source",
        f"{what} is {src}; it must be that of dst, {dst}: some cores compute acc[src] op imm; make "
        "the two equal",
    )
