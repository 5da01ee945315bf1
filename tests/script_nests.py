"""Small scheduled functions as TVMScript text, for the tests of code generation.

A nest is one block with loops around it; a function is buffers and nests in order.
"""

from __future__ import annotations

import textwrap

import numpy as np
import tvm
from tvm import tirx

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program import Program

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
    return tvm.script.from_source(text)


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
