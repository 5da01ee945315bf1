"""Refusals of code generation: how nests are put together, tiles, arguments, transfers, tokens."""

from __future__ import annotations

import dataclasses
import re

import pytest
from conv_cases import conv_tile, rescale
from script_nests import (
    INDENTED,
    LOAD,
    STORE,
    A,
    X,
    Y,
    assert_refused,
    function,
    load,
    nest,
    parse,
    program,
    stored,
)
from tvm import s_tir, te, tirx

from vta_byoc.codegen import CodegenError, ProgramBuilder
from vta_byoc.codegen.alu import check_immediate
from vta_byoc.codegen.nest import extent_of
from vta_byoc.codegen.transfer import Dim, plan_transfer
from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import AluOp
from vta_byoc.strategies.base import LayerSchedule
from vta_byoc.strategies.conv.conv2d import CONV2D
from vta_byoc.strategies.conv.grouping import groupings
from vta_byoc.strategies.te.kernel import Kernel
from vta_byoc.workload.memory import ACC
from vta_byoc.workload.workloads import Conv2dWorkload

CAPS = Capabilities()

# name: (function, what the message must hold)
CASES: dict[str, tuple[str, str]] = {
    # ------------------------------------------------------------ indices and conditions
    "an index that is not affine": (
        function(
            f"x:int32:16,1,16 {Y}",
            A,
            nest("load", "dma_copy", "i:4 k:16", "a[i, 0, k] = x[i * i, 0, k]"),
            STORE,
        ),
        "is not affine in its loops; the DMA and the hardware loops follow constant strides only",
    ),
    "padding by an alternative": (
        function(
            f"{X} {Y}",
            A,
            load(value="T.if_then_else(i < 1 or i > 2, x[i, 0, k], 0)"),
            STORE,
        ),
        "is not a conjunction of comparisons; padding and tails are boxes",
    ),
    "padding by a diagonal": (
        function(
            "x:int32:2,2,16 y:int8:2,2,16",
            "a:acc:2,2,16",
            nest(
                "load",
                "dma_copy",
                "i:2 j:2 k:16",
                "a[i, j, k] = T.if_then_else(i + j < 2, x[i, j, k], 0)",
            ),
            nest("store", "dma_copy", "i:2 j:2 k:16", 'y[i, j, k] = T.Cast("int8", a[i, j, k])'),
        ),
        "bounds 2 loops at once; padding and tails are boxes",
    ),
    # ------------------------------------------------------------ structure
    "a buffer in a scope of another machine": (
        function(f"{X} {Y}", "a:shared:4,1,16:int32", LOAD, STORE),
        "buffer a is allocated in shared; VTA stages tensors in local.inp_buffer",
    ),
    "a temporary in DRAM": (
        function(f"{X} {Y}", "a:global:4,1,16:int32", LOAD, STORE),
        "buffer a is allocated in global",
    ),
    "a pragma around several blocks": (
        function(
            f"{X} {Y}",
            A,
            "for i_ in T.serial(4, annotations={'vta.pragma': 'alu'}):",
            *(line for text in (LOAD, STORE) for line in text.splitlines()[1:]),
        ),
        "loop i_ carries pragma alu but holds more than one block; annotate a loop around a single "
        "block",
    ),
    "a statement between nests": (
        function(f"{X} {Y}", A, LOAD, 'T.evaluate(T.call_extern("int32", "f"))', STORE),
        "Evaluate around or between nests; a scheduled VTA function has loops, blocks and "
        "sequences only",
    ),
    "a block without a store": (
        function(f"{X} {Y}", A, LOAD, nest("idle", "alu", "i:4 k:16", "T.evaluate(i)"), STORE),
        "block idle holds Evaluate; a tensorizable nest stores one value; split it into blocks",
    ),
    "a loop that starts at two": (
        function(f"{X} {Y}", A, LOAD, STORE.replace("T.serial(4)", "T.serial(2, 4)")),
        "loop i_ runs from 2 for 2 turns; loops start at 0 and have constant extents",
    ),
    "a thread of a GPU": (
        function(f"{X} {Y}", A, "for t in T.thread_binding(1, thread='threadIdx.x'):", *INDENTED),
        "loop t is bound to threadIdx.x; VTA has virtual threads only; bind it to vthread.x",
    ),
    "a virtual thread in a virtual thread": (
        function(
            f"{X} {Y}",
            A,
            "for t in T.thread_binding(1, thread='vthread.x'):",
            "    for u in T.thread_binding(1, thread='vthread.y'):",
            *("    " + line for line in INDENTED),
        ),
        "loop u nests a virtual thread in another",
    ),
    "a tile that nobody reads": (
        function(f"{X} {Y}", f"b:acc:4,1,16 {A}", load(to="b[i, 0, k]"), LOAD, STORE),
        "block load writes b, which no other block reads; remove the nest or use its result",
    ),
    "half an element": (
        function(
            "x:int32:8 y:int8:8",
            "b:acc:8",
            nest("load", "dma_copy", "k:8", "b[k] = x[k]"),
            nest("store", "dma_copy", "k:8", 'y[k] = T.Cast("int8", b[k])'),
        ),
        "buffer b in local.acc_buffer has 8 scalars; an element has 16; stage whole elements",
    ),
    "more than SRAM holds": (
        function(
            "x:int32:2049,1,16 y:int8:2049,1,16",
            "a:acc:2049,1,16",
            nest("load", "dma_copy", "i:2049 k:16", "a[i, 0, k] = x[i, 0, k]"),
            nest("store", "dma_copy", "i:2049 k:16", 'y[i, 0, k] = T.Cast("int8", a[i, 0, k])'),
        ),
        "local.acc_buffer needs 2049 elements for a (slot 0); this machine has 2048; "
        "use smaller tiles or one slot (vta.slots)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    assert_refused(*CASES[name])


def test_shift_of_the_whole_word() -> None:
    """TVM itself never writes such a shift by a constant; a loop may come to it."""
    with pytest.raises(CodegenError, match="block out shifts by 32; int32 shifts are -31 to 31"):
        check_immediate("out", AluOp.SHR, 32)


def test_reduction_without_decomposition() -> None:
    """An init left inside its block becomes a condition, which is no nest."""
    data = te.placeholder((4, 1, 16), "int8", name="data")
    weight = te.placeholder((1, 16, 16), "int8", name="weight")
    rk = te.reduce_axis((0, 16), "rk")
    acc = te.compute(
        (4, 1, 16),
        lambda i, b, o: te.sum(
            data[i, b, rk].astype("int32") * weight[0, o, rk].astype("int32"), axis=rk
        ),
        name="acc",
    )
    out = te.compute((4, 1, 16), lambda *i: acc(*i).astype("int8"), name="out")
    sch = s_tir.Schedule(te.create_prim_func([data, weight, out]))
    for k, scope in enumerate(("local.inp_buffer", "local.wgt_buffer")):
        block = sch.cache_read(sch.get_sblock("acc"), k, scope)
        sch.annotate(sch.get_loops(block)[-1], "vta.pragma", "dma_copy")
    sch.set_scope(sch.get_sblock("acc"), 0, ACC)
    with pytest.raises(CodegenError, match="decompose_reduction a block with an init"):
        program(sch.mod["main"])


WORK = Conv2dWorkload(1, 32, 32, 56, 56, (3, 3), padding=(1, 1, 1, 1), epilogue=rescale(8))


def tiled(
    work: Conv2dWorkload, config: VTAConfig, tile: tuple[int, int, int, int]
) -> tirx.PrimFunc:
    """A convolution in tiles of output channels, rows, columns and input channels."""
    co, oh, ow, ci = tile
    choice = conv_tile(work, co, oh, ow, ci, "weights")
    kernel = Kernel(choice, groupings(work, config)[0])
    return CONV2D.scheduled(LayerSchedule(work, kernels=(kernel,)), config)


@pytest.mark.parametrize(
    ("tile", "message"),
    [
        (
            (1, 56, 56, 1),
            "local.acc_buffer needs 3137 elements for acc_local.acc_buffer (slot 0); this machine "
            "has 2048; use smaller tiles or one slot (vta.slots)",
        ),
        (
            (1, 18, 56, 1),
            "local.inp_buffer needs 2320 elements for inp_local.inp_buffer (slot 1); this machine "
            "has 2048",
        ),
    ],
)
def test_tiles_larger_than_sram(tile: tuple[int, int, int, int], message: str) -> None:
    with pytest.raises(CodegenError, match=re.escape(message)):
        program(tiled(WORK, VTAConfig(), tile))


# ---------------------------------------------------------------- builder
def test_symbol_twice() -> None:
    builder = ProgramBuilder(VTAConfig())
    builder.symbol("x", "input", (4, 1, 16), "int32")
    with pytest.raises(CodegenError, match="symbol 'x' is declared twice; give tensors distinct"):
        builder.symbol("x", "output", (4, 1, 16), "int8")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["x"], "layer n: 1 symbols for 2 parameters; bind each parameter once"),
        (["x", "z"], "layer n: symbol z is not declared; declare it first"),
        (
            ["x", "x"],
            "layer n: parameter y is 64 x int8, symbol x 64 x int32; bind a tensor of the same "
            "size and type",
        ),
        (["small", "y"], "layer n: parameter x is 64 x int32, symbol small 48 x int32"),
    ],
)
def test_wrong_arguments(args: list[str], message: str) -> None:
    builder = ProgramBuilder(VTAConfig())
    builder.symbol("x", "input", (4, 1, 16), "int32")
    builder.symbol("small", "input", (3, 1, 16), "int32")
    builder.symbol("y", "output", (4, 1, 16), "int8")
    with pytest.raises(CodegenError, match=re.escape(message)):
        builder.layer("n", parse(stored("a[i, 0, k] + 1")), args)


def test_scalar_parameter() -> None:
    text = stored("a[i, 0, k] + 1").replace("def main(", "def main(n: T.int32, ")
    builder = ProgramBuilder(VTAConfig())
    for name, kind, dtype in (("x", "input", "int32"), ("y", "output", "int8")):
        builder.symbol(name, kind, (4, 1, 16), dtype)
    with pytest.raises(CodegenError, match="parameter n is a scalar; VTA functions take tensors"):
        builder.layer("n", parse(text), ["x", "x", "y"])


# ---------------------------------------------------------------- conditions of several loops
@pytest.mark.parametrize(("kind", "most"), [("store", 1), ("reset", 2), ("alu", 2), ("gemm", 3)])
def test_how_many_loops_a_condition_bounds(kind: str, most: int) -> None:
    """Rows and columns and a tap of a product; what is copied is one box."""
    at, loops = "h * 8 + r * 4 + i * 2 + j", "h:2 r:2 i:2 j:2"
    mac = f'a[{at}, o] = a[{at}, o] + T.Cast("int32", d[{at}, k]) * T.Cast("int32", w[0, o, k])'
    nests = {
        "load": ("dma_copy", f"{loops} k:16", f"d[{at}, k] = x[{at}, k]"),
        "weights": ("dma_copy", "o:16 k:16", "w[0, o, k] = f[0, o, k]"),
        "clear": ("gemm", f"{loops} k:16", f"a[{at}, k] = 0"),
        "reset": ("gemm", f"{loops} k:16", f"a[{at}, k] = 0"),
        "gemm": ("gemm", f"{loops} o:16 k:16R", mac),
        "alu": ("alu", f"{loops} k:16", f"a[{at}, k] = a[{at}, k] + 1"),
        "store": ("dma_copy", f"{loops} k:16", f'y[{at}, k] = T.Cast("int8", a[{at}, k])'),
    }

    def bounded(count: int) -> str:
        where = {kind: " + ".join(f"{var}_" for var in "hrij"[-count:]) + f" < {count}"}
        return function(
            "x:int8:16,16 f:int8:1,16,16 y:int8:16,16",
            "d:inp:16,16 w:wgt:1,16,16 a:acc:16,16",
            *(nest(name, *each, where.get(name, "")) for name, each in nests.items()),
        )

    assert len(program(bounded(most)).insns)
    assert_refused(bounded(most + 1), f"bounds {most + 1} loops at once; padding and tails are")


# ---------------------------------------------------------------- transfers and tokens
def test_store_with_padding() -> None:
    with pytest.raises(CodegenError, match="a store cannot pad; store only what is inside"):
        plan_transfer([Dim(4, 1, 4, 1, 1)], store=True)


def test_too_many_tokens() -> None:
    """One token may wait for one tile, so a machine that counts to 1 needs smaller programs."""
    config = dataclasses.replace(VTAConfig(), capabilities=dataclasses.replace(CAPS, max_tokens=1))
    work = dataclasses.replace(WORK, height=28, width=28)
    with pytest.raises(VTAError) as caught:
        program(tiled(work, config, (1, 4, 7, 1)), config)
    assert str(caught.value) == (
        "2 tokens from LOAD to COMPUTE may be outstanding; the machine counts to 1; raise "
        "CAPABILITIES.max_tokens to 2 or more in the configuration file"
    )


@pytest.mark.parametrize("start, turns", [(None, 4), (0, None)], ids=["start", "turns"])
def test_a_loop_whose_bounds_are_computed(start: int | None, turns: int | None) -> None:
    """None: a variable, as that of a loop around it."""
    loop, outer = tirx.Var("i", "int32"), tirx.Var("n", "int32")
    first, count = (outer if each is None else each for each in (start, turns))
    body = tirx.Evaluate(tirx.const(0, "int32"))
    with pytest.raises(CodegenError, match="loops start at 0 and have constant extents"):
        extent_of(tirx.For(loop, first, count, tirx.ForKind.SERIAL, body))
