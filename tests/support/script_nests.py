"""Small scheduled functions as TVMScript text, for the tests of code generation.

A nest is one block with loops around it; a function is buffers and nests in order.
"""

from __future__ import annotations

import re
import textwrap

import numpy as np
import pytest
from script_texts import parsed
from tvm import tirx

from vta_byoc.codegen import CodegenError, ProgramBuilder
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program

SCOPES = {
    "inp": "local.inp_buffer",
    "wgt": "local.wgt_buffer",
    "acc": "local.acc_buffer",
}


def nest(name: str, pragma: str, loops: str, statement: str, where: str = "") -> str:
    """A block: ``loops`` such as "i:4 k:16", outermost first; the pragma on the innermost loop.

    A loop written "r:4R" is a reduction axis; one written "t:2@vthread.x" is bound.
    """
    lines, names, kinds, indent = [], [], "", ""
    items = [item.split(":") for item in loops.split()]
    for n, (var, extent) in enumerate(items):
        count, _, thread = extent.rstrip("R").partition("@")
        marks = f', annotations={{"vta.pragma": "{pragma}"}}' if n == len(items) - 1 else ""
        marks = "" if not pragma else marks
        loop = f'T.thread_binding({count}, thread="{thread}"' if thread else f"T.serial({count}"
        lines.append(f"{indent}for {var}_ in {loop}{marks}):")
        names.append(var)
        kinds += "R" if extent.endswith("R") else "S"
        indent += "    "
    lines.append(f'{indent}with T.sblock("{name}"):')
    indent += "    "
    for var, kind, (_, extent) in zip(names, kinds, items, strict=True):
        axis = "reduce" if kind == "R" else "spatial"
        count = extent.rstrip("R").partition("@")[0]
        lines.append(f"{indent}{var} = T.axis.{axis}({count}, {var}_)")
    if where:
        lines.append(f"{indent}T.where({where})")
    lines.append(f"{indent}{statement}")
    return "\n".join(lines)


def function(params: str, buffers: str, *nests: str) -> str:
    """The text of a function of ``params`` ("x:int32:4,1,16 ...", DRAM) with SRAM ``buffers``
    ("a:acc:4,1,16 ...") and ``nests`` in order."""
    heads = []
    for item in params.split():
        name, dtype, shape = item.split(":")
        heads.append(f'{name}: T.Buffer(({shape},), "{dtype}")')
    lines = []
    for item in buffers.split():
        name, scope, shape, *rest = item.split(":")
        dtype = rest[0] if rest else "int32" if scope == "acc" else "int8"
        scope = SCOPES.get(scope, scope)
        lines.append(f'{name} = T.sblock_alloc_buffer(({shape},), "{dtype}", scope="{scope}")')
    body = textwrap.indent("\n".join([*lines, *nests]), " " * 8)
    return (
        f"@T.prim_func(s_tir=True)\ndef main({', '.join(heads)}):\n"
        f'    with T.sblock("root"):\n{body}\n'
    )


def parse(text: str) -> tirx.PrimFunc:
    """The function of a text."""
    func: tirx.PrimFunc = parsed(text)
    return func


def program(
    func: tirx.PrimFunc | str, config: VTAConfig | None = None, **constants: np.ndarray
) -> Program:
    """``func`` as a Program; its last parameter is the output, ``constants`` are in the image."""
    func = parse(func) if isinstance(func, str) else func
    builder = ProgramBuilder(config or VTAConfig())
    names = [str(p.name) for p in func.params]
    for name, param in zip(names, func.params, strict=True):
        if name in constants:
            builder.constant(name, constants[name])
            continue
        kind = "output" if name == names[-1] else "input"
        builder.symbol(name, kind, [int(s) for s in param.shape], str(param.dtype))
    builder.layer("layer", func, names)
    return builder.finish()


# ---------------------------------------------------------------- sound functions to break
LOAD = nest("load", "dma_copy", "i:4 k:16", "a[i, 0, k] = x[i, 0, k]")
STORE = nest("store", "dma_copy", "i:4 k:16", 'y[i, 0, k] = T.Cast("int8", a[i, 0, k])')
X = "x:int32:4,1,16"
X8 = "x:int8:4,1,16"
Y = "y:int8:4,1,16"
A = "a:acc:4,1,16"


def assert_refused(func: str, message: str) -> None:
    """Code generation refuses the function with the message, in one line that names the layer."""
    with pytest.raises(CodegenError, match=re.escape(message)) as caught:
        program(func)
    assert str(caught.value).startswith("layer layer: "), "the layer is named"
    assert "\n" not in str(caught.value)


def load(pragma: str = "dma_copy", value: str = "x[i, 0, k]", to: str = "a[i, 0, k]") -> str:
    return nest("load", pragma, "i:4 k:16", f"{to} = {value}")


def store(value: str, pragma: str = "alu,dma_copy", loops: str = "i:4 k:16") -> str:
    return nest("store", pragma, loops, f'y[i, 0, k] = T.Cast("int8", {value})')


def alu(statement: str, loops: str = "i:4 k:16", pragma: str = "alu") -> str:
    return nest("compute", pragma, loops, statement)


def stored(value: str, params: str = f"{X} {Y}", buffers: str = A) -> str:
    """x into a, ``value`` stored."""
    return function(params, buffers, LOAD, store(value))


def computed(statement: str, loops: str = "i:4 k:16", b: str = "b:acc:4,1,16") -> str:
    """x into a, ``statement`` from a into b, b stored."""
    last = store("b[i, 0, k]", "dma_copy")
    return function(f"{X} {Y}", f"{A} {b}", LOAD, alu(statement, loops), last)


INDENTED = ["    " + line for text in (LOAD, STORE) for line in text.splitlines()]
GEMM_LOOPS = "i:4 o:16 k:16R"
MAC = 'a[i, 0, o] = a[i, 0, o] + T.Cast("int32", d[i, 0, k]) * T.Cast("int32", w[0, o, k])'


def gemm(statement: str = MAC, pragma: str = "gemm", loops: str = GEMM_LOOPS) -> str:
    """x and w staged, a cleared, ``statement``, a stored."""
    return function(
        f"{X8} f:int8:1,16,16 {Y}",
        f"d:inp:4,1,16 w:wgt:1,16,16 {A}",
        nest("load_d", "dma_copy", "i:4 k:16", "d[i, 0, k] = x[i, 0, k]"),
        nest("load_w", "dma_copy", "o:16 k:16", "w[0, o, k] = f[0, o, k]"),
        nest("clear", "gemm", "i:4 k:16", "a[i, 0, k] = 0"),
        nest("mac", pragma, loops, statement),
        STORE,
    )


def gemm_of(load_d: str, load_w: str = "", x: str = X8) -> str:
    """The GEMM with other loads."""
    load_w = load_w or nest("load_w", "dma_copy", "o:16 k:16", "w[0, o, k] = f[0, o, k]")
    return function(
        f"{x} f:int8:1,16,16 {Y}",
        f"d:inp:4,1,16 w:wgt:1,16,16 {A}",
        load_d,
        load_w,
        nest("clear", "gemm", "i:4 k:16", "a[i, 0, k] = 0"),
        nest("mac", "gemm", GEMM_LOOPS, MAC),
        STORE,
    )


EARLY = nest("early", "alu,dma_copy", "i:4 k:16", 'y[i, 0, k] = T.Cast("int8", a[i, 0, k] + 1)')
LOAD_D = nest("load_d", "dma_copy", "i:4 k:16", "d[i, 0, k] = x[i, 0, k]")
