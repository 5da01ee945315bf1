"""Instructions as text, one line each."""

from __future__ import annotations

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import DEP_FIELDS, ISA, PADS, AluOp, Instruction, MemType, Opcode

_FACTORS = ("factor_out", "factor_in")


def disassemble(config: VTAConfig, insns: np.ndarray) -> list[str]:
    """One line for each instruction of a stream (n, 2) uint64."""
    isa = ISA.of(config)
    return [format_instruction(isa.decode(w0, w1)) for w0, w1 in insns.tolist()]


def format_instruction(insn: Instruction) -> str:
    """One instruction on one line: mnemonic, operands, then its tokens in brackets."""
    if insn.opcode == Opcode.FINISH:
        return f"FINISH{_tokens(insn)}"
    if insn.opcode in (Opcode.LOAD, Opcode.STORE):
        return f"{_transfer(insn)}{_tokens(insn)}"
    loops = (
        f"uop {insn['uop_bgn']}-{insn['uop_end']} iter {insn['iter_out']},{insn['iter_in']} "
        f"dst {insn['dst_factor_out']},{insn['dst_factor_in']}"
    )
    srcs = f" src {insn['src_factor_out']},{insn['src_factor_in']}"
    if insn.opcode == Opcode.GEMM:
        if insn["reset"]:
            return f"GEMM   RESET    {loops}{_tokens(insn)}"
        wgts = f" wgt {insn['wgt_factor_out']},{insn['wgt_factor_in']}"
        return f"GEMM   MAC      {loops}{srcs}{wgts}{_tokens(insn)}"
    code = insn["alu_opcode"]
    name = AluOp(code).name if code in set(AluOp) else f"?{code}"
    operand = f" imm {insn['imm']}" if insn["use_imm"] else srcs
    if insn["use_imm"] and any(insn[f"src_{n}"] != insn[f"dst_{n}"] for n in _FACTORS):
        operand = srcs + operand
    return f"ALU    {name:<8} {loops}{operand}{_tokens(insn)}"


def _transfer(insn: Instruction) -> str:
    mem = insn["mem_type"]
    name = MemType(mem).name if mem in set(MemType) else f"?{mem}"
    pads = ",".join(str(insn[p]) for p in PADS)
    body = (
        f"{name:<8} sram {insn['sram_base']} dram {insn['dram_base']:#x} "
        f"y {insn['y_size']} x {insn['x_size']} stride {insn['x_stride']}"
    )
    return f"{insn.opcode.name:<6} {body}{f' pad {pads}' if pads != '0,0,0,0' else ''}"


def _tokens(insn: Instruction) -> str:
    names = [n for n in DEP_FIELDS if insn[n]]
    return f"  [{' '.join(names)}]" if names else ""
