"""Refusals of code generation, each with its reason: what a single nest does."""

from __future__ import annotations

import dataclasses
import re

import pytest
from script_nests import (
    EARLY,
    GEMM_LOOPS,
    LOAD,
    LOAD_D,
    MAC,
    STORE,
    X8,
    A,
    X,
    Y,
    alu,
    assert_refused,
    computed,
    function,
    gemm,
    gemm_of,
    load,
    nest,
    program,
    store,
    stored,
)

from vta_byoc.codegen import CodegenError
from vta_byoc.hw.config import Capabilities, VTAConfig

CAPS = Capabilities()


def test_the_templates_lower() -> None:
    """The functions that the cases below break are sound."""
    for func in (stored("a[i, 0, k] + 1"), computed("b[i, 0, k] = a[i, 0, k] + 1"), gemm()):
        assert len(program(func).insns)


# name: (function, what the message must hold)
CASES: dict[str, tuple[str, str]] = {
    # ------------------------------------------------------------ pragmas
    "wrong pragma": (
        function(f"{X} {Y}", A, load("gemm"), STORE),
        "block load carries pragma gemm but is dma_copy (reads global, writes local.acc_buffer); "
        'annotate a loop of it with "vta.pragma" = "dma_copy" or change the nest',
    ),
    "missing pragma": (
        function(f"{X} {Y}", A, load(""), STORE),
        "block load carries pragma none but is dma_copy",
    ),
    "unknown pragma": (
        function(f"{X} {Y}", A, load("dma_cpy"), STORE),
        "block load carries pragma dma_cpy; known pragmas are dma_copy, gemm, alu",
    ),
    "a store that computes": (
        function(f"{X} {Y}", A, LOAD, store("T.max(a[i, 0, k], 0)", "dma_copy")),
        "block store carries pragma dma_copy but is alu,dma_copy (reads local.acc_buffer, writes "
        "global, MAX)",
    ),
    "a store that only copies": (
        function(f"{X} {Y}", A, LOAD, store("a[i, 0, k]", "alu,dma_copy")),
        "block store carries pragma alu,dma_copy but is dma_copy",
    ),
    "a reset called alu": (
        function(Y, A, nest("clear", "alu", "i:4 k:16", "a[i, 0, k] = 0"), STORE),
        "block clear carries pragma alu but is gemm (reads nothing",
    ),
    "an addition called gemm": (
        function(f"{X} {Y}", A, LOAD, alu("a[i, 0, k] = a[i, 0, k] + 1", pragma="gemm"), STORE),
        "block compute carries pragma gemm but is alu",
    ),
    "a GEMM called alu": (gemm(pragma="alu"), "block mac carries pragma alu but is gemm"),
    # ------------------------------------------------------------ loads
    "a load that computes": (
        function(f"{X} {Y}", A, load(value="x[i, 0, k] * 2"), STORE),
        "block load computes x[i_, 0, k_] * 2 while loading; a DMA only copies",
    ),
    "padding with ones": (
        function(f"{X} {Y}", A, load(value="T.if_then_else(i < 3, x[i, 0, k], 1)"), STORE),
        "block load pads with 1; the DMA pads zeros only; pad with 0",
    ),
    "only padding, and not zero": (
        gemm_of(nest("load", "dma_copy", "i:4 k:16", "d[i, 0, k] = T.int8(3)")),
        "block load fills local.inp_buffer with",
    ),
    "int32 into the input buffer": (
        gemm_of(
            nest("load", "dma_copy", "i:4 k:16", 'd[i, 0, k] = T.Cast("int8", x[i, 0, k])'), x=X
        ),
        "block load loads int32 into local.inp_buffer; it takes int8 from DRAM; cast the tensor "
        "before it is stored there",
    ),
    "float in the accumulator": (
        function(
            f"{X} {Y}",
            "a:acc:4,1,16:float32",
            load(value='T.Cast("float32", x[i, 0, k])'),
            STORE,
        ),
        "block load writes float32 to local.acc_buffer; it holds int32; cast in the compute",
    ),
    "transposed lanes": (
        gemm_of(LOAD_D, nest("load", "dma_copy", "o:16 k:16", "w[0, o, k] = f[0, k, o]")),
        "block load: lanes step 16 in SRAM and 1 in DRAM; a DMA moves whole elements; "
        "pack the tensor so",
    ),
    "padding inside an element": (
        function(f"{X} {Y}", A, load(value="T.if_then_else(k < 3, x[i, 0, k], 0)"), STORE),
        "block load pads inside an element; the DMA pads whole elements",
    ),
    "part of an element": (
        function(
            f"{X} {Y}", A, nest("load", "dma_copy", "i:4 k:8", "a[i, 0, k] = x[i, 0, k]"), STORE
        ),
        "block load: lane loops cover 32 scalars; an element of local.acc_buffer has 16 (1x16); "
        "split the loops at whole elements",
    ),
    "a tail inside an element": (
        function(
            f"{X} {Y}",
            A,
            nest("load", "dma_copy", "i:4 k:16", "a[i, 0, k] = x[i, 0, k]", "k_ < 9"),
            STORE,
        ),
        "block load: lane loops cover 9 scalars; an element of local.acc_buffer has 16",
    ),
    "half an element": (
        function(
            f"{X} {Y}",
            A,
            nest("load", "dma_copy", "i:4 k:16", "a[i, 0, k] = x[0, 0, i * 8 + k]"),
            STORE,
        ),
        "block load: a loop steps 16 scalars in SRAM and 8 in DRAM; elements hold 16; "
        "copy whole elements once",
    ),
    "one element many times": (
        function(
            f"{X} {Y}",
            A,
            nest("load", "dma_copy", "r:4 i:4 k:16", "a[i, 0, k] = x[r, 0, k]"),
            STORE,
        ),
        "block load: a loop steps 0 scalars in SRAM and 16 in DRAM; elements hold 16; "
        "copy whole elements once",
    ),
    "a DRAM offset inside an element": (
        function(
            f"x:int32:128 {Y}",
            A,
            nest("load", "dma_copy", "i:4 k:16", "a[i, 0, k] = x[i * 16 + k + 4]"),
            STORE,
        ),
        "block load: DRAM offset 4 scalars is not a multiple of 16; tiles start at whole elements",
    ),
    "an SRAM offset inside an element": (
        function(
            f"x:int32:4,1,16 {Y}",
            "a:acc:5,1,16",
            nest(
                "load", "dma_copy", "i:4 k:16", "a[i + (k + 3) // 16, 0, (k + 3) % 16] = x[i, 0, k]"
            ),
            STORE,
        ),
        "block load: a starts at lane 3 of an element of 16; start at whole elements",
    ),
    "rows that interleave": (
        function(
            f"x:int32:2,2,16 {Y}",
            A,
            nest("load", "dma_copy", "i:2 j:2 k:16", "a[i + j, 0, k] = x[i, j, k]"),
            STORE,
        ),
        "SRAM stride 1 overlaps a row of 2 elements",
    ),
    # ------------------------------------------------------------ stores
    "a store from the input buffer": (
        function(
            f"{X8} {Y}",
            "d:inp:4,1,16",
            load(to="d[i, 0, k]"),
            nest("store", "dma_copy", "i:4 k:16", "y[i, 0, k] = d[i, 0, k]"),
        ),
        "block store stores to DRAM from local.inp_buffer; STORE reads local.acc_buffer only",
    ),
    "a store of a constant": (
        function(Y, "", nest("store", "dma_copy", "i:4 k:16", "y[i, 0, k] = T.int8(1)")),
        "block store stores to DRAM from a constant",
    ),
    "a store of int32": (
        function(
            f"{X} y:int32:4,1,16",
            A,
            LOAD,
            nest("store", "dma_copy", "i:4 k:16", "y[i, 0, k] = a[i, 0, k]"),
        ),
        "block store stores int32; STORE writes int8; saturate and cast first",
    ),
    "a store that repeats a tile": (
        function(
            f"{X} y:int8:3,4,1,16",
            A,
            LOAD,
            nest("store", "dma_copy", "r:3 i:4 k:16", 'y[r, i, 0, k] = T.Cast("int8", a[i, 0, k])'),
        ),
        "block store: a loop steps 0 scalars in SRAM and 64 in DRAM",
    ),
    "a store that computes a tile again and again": (
        function(
            f"{X} y:int8:3,4,1,16",
            A,
            LOAD,
            nest(
                "store",
                "alu,dma_copy",
                "r:3 i:4 k:16",
                'y[r, i, 0, k] = T.Cast("int8", a[i, 0, k] + 1)',
            ),
        ),
        "block store applies ADD to a more than once per element (a loop does not move it)",
    ),
    # ------------------------------------------------------------ GEMM
    "a product without sum": (
        gemm('a[i, 0, o] = T.Cast("int32", d[i, 0, k]) * T.Cast("int32", w[0, o, k])'),
        "GEMM is acc += int32(inp) * int32(wgt); write the reduction so",
    ),
    "a square of the input": (
        gemm(MAC.replace("w[0, o, k]", "d[i, 0, o]").replace("= a", "= w[0, o, k] + a")),
        "GEMM is acc += int32(inp) * int32(wgt)",
    ),
    "the sum of another accumulator": (
        gemm(MAC.replace("= a[i", "= a[3 - i")),
        "GEMM is acc += int32(inp) * int32(wgt)",
    ),
    "weights not transposed": (
        gemm(MAC.replace("w[0, o, k]", "w[0, k, o]")),
        "block mac: a lane loop steps (1, 0, 1) in acc, inp, wgt; GEMM computes acc[b, o] += "
        "inp[b, k] * wgt[o, k]; transpose the weights when packing",
    ),
    "part of the output lanes": (
        gemm(loops="i:4 o:8 k:16R"),
        "block mac: lane loops cover 8 scalars; an element of local.acc_buffer has 16",
    ),
    "part of the input lanes": (
        gemm(loops="i:4 o:16 k:8R"),
        "block mac: lane loops cover 8 scalars; an element of local.inp_buffer has 16",
    ),
    # ------------------------------------------------------------ ALU
    "an unknown operation": (
        stored("T.Select(a[i, 0, k] > 0, a[i, 0, k], 0)"),
        "the ALU has MIN, MAX, ADD, SHR and MUL on int32",
    ),
    "a difference of tensors": (
        computed("b[i, 0, k] = a[i, 0, k] - a[3 - i, 0, k]"),
        "computes a[i_, 0, k_] - a[3 - i_, 0, k_]; the ALU has MIN, MAX, ADD, SHR and MUL on int32",
    ),
    "a narrowing in between": (
        stored('T.Cast("int32", T.Cast("int8", a[i, 0, k])) + 1'),
        "the ALU has MIN, MAX, ADD, SHR and MUL on int32",
    ),
    "a large immediate": (
        stored("a[i, 0, k] + 32768"),
        "block store: ADD by 32768; an immediate holds -32768 to 32767; "
        "fold the constant into the bias or load it as a tensor",
    ),
    "a constant that is none": (
        function(
            f"{X} {Y}",
            A,
            nest("fill", "alu", "i:4 k:16", "a[i, 0, k] = i"),
            STORE,
        ),
        "block fill fills local.acc_buffer with",
    ),
    "an operand in DRAM": (
        computed("b[i, 0, k] = a[i, 0, k] + x[i, 0, k]"),
        "block compute reads global and local.acc_buffer; the ALU reads local.acc_buffer only; "
        "cache_read the operand into local.acc_buffer",
    ),
    "a value changed by its own expression": (
        stored("(a[i, 0, k] + 1) * (a[i, 0, k] + 2)"),
        "block store reads a again after changing it in place; the ALU overwrites its first "
        "operand; stage a second copy",
    ),
    "a value changed by its right operand": (
        stored("a[i, 0, k] + T.shift_right(a[i, 0, k], 1)"),
        "block store reads a again after changing it in place",
    ),
    "a value changed by an earlier store": (
        function(
            f"{X} z:int8:4,1,16 {Y}",
            A,
            LOAD,
            EARLY.replace("y[", "z["),
            STORE,
        ),
        "block store reads a after block early changed it in place; the ALU overwrites its first "
        "operand; stage a second copy",
    ),
    "a GEMM into a changed value": (
        function(
            f"{X8} f:int8:1,16,16 {Y}",
            f"d:inp:4,1,16 w:wgt:1,16,16 {A}",
            nest("load_d", "dma_copy", "i:4 k:16", "d[i, 0, k] = x[i, 0, k]"),
            nest("load_w", "dma_copy", "o:16 k:16", "w[0, o, k] = f[0, o, k]"),
            nest("clear", "gemm", "i:4 k:16", "a[i, 0, k] = 0"),
            EARLY,
            nest("mac", "gemm", GEMM_LOOPS, MAC),
            STORE,
        ),
        "block mac reads a after block early changed it in place",
    ),
    "neighbours in place": (
        function(
            f"x:int32:5,1,16 {Y}",
            "a:acc:5,1,16",
            nest("load", "dma_copy", "i:5 k:16", "a[i, 0, k] = x[i, 0, k]"),
            store("T.max(a[i, 0, k], a[i + 1, 0, k])"),
        ),
        "block store reads elements of a that it also changes, at another index",
    ),
    "another lane": (
        computed("b[i, 0, k] = b[i, 0, k] + a[i, 0, 0]"),
        "block compute: a lane loop steps [1, 0]; the ALU works lane by lane",
    ),
    "a sum over lanes": (
        computed("b[i, 0, k] = b[i, 0, k] + a[i, 0, r]", "i:4 k:16 r:16R"),
        "block compute: a lane loop steps [1, 0]; the ALU works lane by lane",
    ),
    "a quarter of the lanes": (
        computed("b[i, 0, k] = b[i, 0, k] + a[i, 0, k]", "i:4 k:4"),
        "block compute: a loop steps [4, 16] scalars, elements hold [16, 16]; "
        "keep the batch and channel lanes innermost and whole",
    ),
    "elements that become lanes": (
        computed("b[i, 0, k] = b[i, 0, k] + a[0, 0, i]", "i:4 k:16"),
        "block compute: a loop steps [16, 1] scalars, elements hold [16, 16]; "
        "keep the batch and channel lanes innermost and whole",
    ),
    "the destination shifted by itself": (
        computed("b[i, 0, k] = T.shift_right(a[i, 0, k], b[i, 0, k])"),
        "block compute reads its destination b as second operand",
    ),
    "the last turn of a loop": (
        function(
            f"x:int32:2,4,1,16 {Y}",
            f"c:acc:2,4,1,16 {A}",
            nest("load", "dma_copy", "r:2 i:4 k:16", "c[r, i, 0, k] = x[r, i, 0, k]"),
            alu("a[i, 0, k] = c[r, i, 0, k]", "r:2 i:4 k:16"),
            STORE,
        ),
        "block compute writes a anew in a loop that does not move it; only the last turn would "
        "count",
    ),
    "two operations of one reduction": (
        function(
            f"x:int32:3,4,1,16 {Y}",
            f"c:acc:3,4,1,16 {A}",
            nest("load", "dma_copy", "r:3 i:4 k:16", "c[r, i, 0, k] = x[r, i, 0, k]"),
            nest("clear", "gemm", "i:4 k:16", "a[i, 0, k] = 0"),
            alu("a[i, 0, k] = T.max(a[i, 0, k] + c[r, i, 0, k], 0)", "i:4 k:16 r:3R"),
            STORE,
        ),
        "block compute reduces into a with ADD and MAX; the ALU runs one operation over the whole "
        "nest",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    assert_refused(*CASES[name])


@pytest.mark.parametrize(
    ("capability", "func", "message"),
    [
        (
            {"mul": False},
            stored("a[i, 0, k] * 3"),
            "block store computes MUL; this machine has no MUL (CAPABILITIES.mul is false)",
        ),
        (
            {"acc_8bit": False},
            function(f"{X8} {Y}", A, load(value='T.Cast("int32", x[i, 0, k])'), STORE),
            "block load loads int8 into local.acc_buffer; this machine has no ACC_8BIT load",
        ),
    ],
)
def test_missing_capability(capability: dict[str, bool], func: str, message: str) -> None:
    assert len(program(func).insns), "the default machine can"
    config = dataclasses.replace(VTAConfig(), capabilities=dataclasses.replace(CAPS, **capability))
    with pytest.raises(CodegenError, match=re.escape(message)):
        program(func, config)
