"""Small Relax modules and a toy machine for the tests of the memory-scope pass.

Every kernel works on float32[16]; the machine has a texture scope and an accumulator scope.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import tvm
from script_texts import parsed
from tvm import relax

from vta_byoc.ir.host_loops import without_asserts
from vta_byoc.scopes import (
    GLOBAL,
    HOST,
    CallSite,
    Decision,
    DemandFunction,
    Legalization,
    Needs,
    Scope,
    ScopeRecord,
    ScopeTable,
    memory_scopes,
)

TEX, ACC = "global.tex", "global.acc"
UNITS = (HOST, "npu")
TABLE = ScopeTable(
    "toy",
    (
        Scope(GLOBAL, readers=UNITS, writers=UNITS),
        Scope(TEX, readers=UNITS, writers=UNITS),
        Scope(ACC, readers=UNITS, writers=UNITS),
    ),
)
TARGET = tvm.target.Target("llvm")
SCOPES = (GLOBAL, TEX, ACC)
T = 'R.Tensor((16,), "float32")'
G, X, A = (f'R.Tensor((16,), "float32", "llvm:{i}:{s}")' for i, s in enumerate(SCOPES))
TO_X, TO_A = (f'dst_vdevice="llvm:{SCOPES.index(s)}:{s}"' for s in (TEX, ACC))
COPIES = {"X": TO_X, "A": TO_A}


def kernel(name: str, *scopes: str, operands: int = 1, factor: int = 2) -> str:
    """The text of a PrimFunc: ``factor`` times the sum of its operands.

    ``scopes`` of the operands and of the result; all global without.
    """
    named = scopes or (GLOBAL,) * (operands + 1)
    names = [f"x{i}" for i in range(len(named) - 1)]
    params = ", ".join(
        f'{n}: T.Buffer((16,), "float32", scope="{s}")'
        for n, s in zip([*names, "y"], named, strict=True)
    )
    total = " + ".join(f"{n}[vi]" for n in names)
    return f"""
@T.prim_func(private=True, s_tir=True)
def {name}({params}):
    for i in range(16):
        with T.sblock("y"):
            vi = T.axis.spatial(16, i)
            y[vi] = ({total}) * T.float32({factor})
"""


def split(name: str, *scopes: str) -> str:
    """The text of a PrimFunc with two results: its operand, and its operand times four."""
    x, y, z = scopes or (GLOBAL,) * 3
    return f"""
@T.prim_func(private=True, s_tir=True)
def {name}(
    x0: T.Buffer((16,), "float32", scope="{x}"),
    y: T.Buffer((16,), "float32", scope="{y}"),
    z: T.Buffer((16,), "float32", scope="{z}"),
):
    for i in range(16):
        with T.sblock("y"):
            vi = T.axis.spatial(16, i)
            y[vi] = x0[vi]
            z[vi] = x0[vi] * T.float32(4)
"""


def module(*functions: str, scopes: Sequence[str] = ()) -> tvm.IRModule:
    """The module of TVMScript texts, with a VDevice for each of ``scopes``."""
    listed = ", ".join(f'I.vdevice("llvm", 0, "{scope}")' for scope in scopes)
    infos = [f'I.module_global_infos({{"vdevice": [{listed}]}})'] if scopes else []
    body = "\n".join(textwrap.dedent(text).strip() for text in [*infos, *functions])
    text = "@I.ir_module\nclass Module:\n" + textwrap.indent(body, "    ")
    mod: tvm.IRModule = parsed(text)
    return mod


def main(params: str, body: str, result: str, typed: str = T, outputs: str = "") -> str:
    """The text of ``main``: ``params`` of type ``typed``, bindings, and what it returns."""
    listed = ", ".join(f"{name}: {typed}" for name in params.split())
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return (
        f"@R.function\ndef main({listed}):\n    cls = Module\n    with R.dataflow():\n"
        f"{lines}\n        R.output({outputs or result})\n    return {result}\n"
    )


CALL = re.compile(r"(\w+)(?:: (\w))? = (\w+)\((.*)\)")
COPY = re.compile(r"(\w+): (\w) <- (\w+)")
TYPES = {"G": G, "X": X, "A": A}


def program(
    body: str, result: str, *scopes: str, params: str = "x", outputs: str = ""
) -> tvm.IRModule:
    """The module of ``main`` and the kernels that it calls, with VDevices of ``scopes``.

    A line is a call ``a = conv(x)``, with the letter of its type ``a: X = conv_tex_tex(x_tex)``
    where there are scopes; a copy ``x_tex: X <- x``; or a binding in TVMScript.  The scopes of a
    kernel are the last parts of its name.
    """
    kernels: dict[str, str] = {}
    lines = []
    for line in textwrap.dedent(body).strip().splitlines():
        if copy := COPY.fullmatch(line):
            name, kind, source = copy.groups()
            lines.append(f"{name}: {TYPES[kind]} = R.to_vdevice({source}, {COPIES[kind]})")
        elif call := CALL.fullmatch(line):
            name, kind, callee, operands = call.groups()
            lines.append(
                f"{name} = R.call_tir(cls.{callee}, ({operands},), out_ty={TYPES.get(kind, T)})"
            )
            named = [f"global.{part}" for part in callee.split("_")[1:]]
            memories = [GLOBAL if memory == "global.global" else memory for memory in named]
            kernels[callee] = kernel(callee, *memories, operands=operands.count(",") + 1)
        else:
            lines.append(re.sub(r"^(\w+): (\w) =", lambda m: f"{m[1]}: {TYPES[m[2]]} =", line))
    typed = G if scopes else T
    text = main(params, "\n".join(lines), result, typed, outputs)
    return module(*kernels.values(), text, scopes=scopes)


def demands(**needs: Needs) -> DemandFunction:
    """The demand function that knows kernels by the beginning of their names."""

    def demand(site: CallSite) -> Needs | None:
        return next((n for name, n in needs.items() if site.callee.startswith(name)), None)

    return demand


def npu(*scopes: str, writes: tuple[str, ...] = (TEX, ACC, GLOBAL)) -> Needs:
    """Reads operands in ``scopes``; runs on the accelerator."""
    return Needs(scopes, writes, "npu")


CONV = npu(TEX)
ADD = npu(ACC, ACC)
KNOWN = demands(conv=CONV, add=ADD)


def scoped(
    mod: tvm.IRModule,
    demand: DemandFunction = KNOWN,
    table: ScopeTable = TABLE,
    legalize: Mapping[str, Legalization] | None = None,
) -> tuple[tvm.IRModule, dict[str, Decision]]:
    """The module after the pass, and the decisions of ``main`` by tensor."""
    record = ScopeRecord()
    result = memory_scopes(demand, table, TARGET, legalize, record)(mod)
    return result, {d.tensor: d for d in record.decisions["main"]}


def run(mod: tvm.IRModule) -> np.ndarray:
    """The result of ``main`` on llvm for one fixed input."""
    x = np.random.default_rng(0).standard_normal(16).astype("float32")
    with without_asserts():
        vm = relax.VirtualMachine(relax.build(mod, TARGET), tvm.cpu())
    return vm["main"](tvm.runtime.tensor(x)).numpy()


CHAIN = program("a = conv(x)\nb = pool(a)", "b")
"""A convolution, and a pooling that reads it."""
