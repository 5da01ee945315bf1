"""The memory-scope pass: tuples, values used in place, operators that are legalised after the
decision, hints of the user, several blocks and functions; and that a demand changes the result."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tvm
from scope_modules import (
    ACC,
    CHAIN,
    CONV,
    KNOWN,
    SCOPES,
    TABLE,
    TARGET,
    TEX,
    TO_X,
    A,
    G,
    T,
    X,
    demands,
    kernel,
    main,
    module,
    npu,
    program,
    run,
    scoped,
    split,
)
from tvm import relax

from vta_byoc.scopes import (
    GLOBAL,
    CallSite,
    Needs,
    ScopeTable,
    Serves,
    decide_scopes,
    memory_scopes,
    strip_vdevices,
)


def same_results(before: tvm.IRModule, after: tvm.IRModule) -> None:
    """Both compute the same on llvm once VDevices are stripped."""
    np.testing.assert_array_equal(run(strip_vdevices()(after)), run(before))


def test_another_demand_changes_the_module() -> None:
    """The demand of `pool` alone decides whether `a` is copied, and what `conv` writes."""
    tex, decisions = scoped(CHAIN, demands(conv=CONV, pool=npu(TEX)))
    acc, changed = scoped(CHAIN, demands(conv=CONV, pool=npu(ACC)))
    assert (decisions["a"].scope, changed["a"].scope) == (TEX, ACC)
    names = [{g.name_hint for g in m.functions} for m in (tex, acc)]
    assert names == [
        {"main", "conv_tex_tex", "pool_tex_global"},
        {"main", "conv_tex_acc", "pool_acc_global"},
    ]
    only_global = Needs((TEX,), (GLOBAL,), "npu")
    _, copied = scoped(CHAIN, demands(conv=only_global, pool=npu(ACC)))
    assert (copied["a"].scope, copied["a"].copies) == (GLOBAL, (ACC,))
    assert copied["a"].rule == "its producer cannot write it: one copy per scope"


def test_one_scope_that_serves_both_needs_no_copy() -> None:
    why = "a texture is also an accumulator"
    rows = [
        dataclasses.replace(s, serves=(Serves(ACC, "float32", why),)) if s.name == TEX else s
        for s in TABLE.scopes
    ]
    before = program("a = conv(x)\nb = conv(a)\nc = add(a, b)", "c")
    result, decisions = scoped(before, table=ScopeTable("toy", tuple(rows)))
    assert (decisions["a"].scope, decisions["a"].rule, decisions["a"].copies) == (TEX, why, ())
    assert "add_tex_acc_global" in {g.name_hint for g in result.functions}


def test_results_of_one_call_have_scopes_of_their_own() -> None:
    before = module(
        split("split"),
        kernel("conv"),
        kernel("add", operands=2),
        main(
            "x",
            f"""
            t = R.call_tir(cls.split, (x,), out_ty=[{T}, {T}])
            p: {T} = t[0]
            q: {T} = t[1]
            a = R.call_tir(cls.conv, (p,), out_ty={T})
            b = R.call_tir(cls.add, (q, a), out_ty={T})
            """,
            "b",
        ),
    )
    expected = module(
        split("split_tex_tex_acc", TEX, TEX, ACC),
        kernel("conv_tex_acc", TEX, ACC),
        kernel("add_acc_acc_global", ACC, ACC, GLOBAL),
        main(
            "x",
            f"""
            x_tex: {X} = R.to_vdevice(x, {TO_X})
            t = R.call_tir(cls.split_tex_tex_acc, (x_tex,), out_ty=[{X}, {A}])
            p: {X} = t[0]
            q: {A} = t[1]
            a = R.call_tir(cls.conv_tex_acc, (p,), out_ty={A})
            b = R.call_tir(cls.add_acc_acc_global, (q, a), out_ty={G})
            """,
            "b",
            G,
        ),
        scopes=SCOPES,
    )
    known = {"split": CONV, "conv": CONV, "add": npu(ACC, ACC)}
    result, decisions = scoped(before, demands(**known))
    tvm.ir.assert_structural_equal(result, expected)
    assert [decisions[f"t__{i}"].scope for i in (0, 1)] == [TEX, ACC]


def test_tuples_are_seen_through() -> None:
    """Behind an alias, a tuple and TupleGetItem is the tensor itself; concat takes a tuple."""
    body = """
    a = conv(x)
    t = (a, x)
    u = t[0]
    v = u
    b = conv(v)
    c = R.concat(t, axis=0)
    d = R.strided_slice(c, axes=[0], begin=[0], end=[16])
    """
    before = program(body, "((b, d), x)", outputs="b, d")
    result, decisions = scoped(before)
    assert decisions["a"].demands == (("b", TEX), ("c", GLOBAL))
    assert decisions["a"].copies == (TEX,)
    assert decisions["x"].demands == (("a", TEX), ("c", GLOBAL), ("result", GLOBAL))
    assert result["main"].script().count("R.to_vdevice") == 2
    vm = relax.VirtualMachine(relax.build(strip_vdevices()(result), TARGET), tvm.cpu())
    x = np.arange(16, dtype="float32")
    (b, d), same = vm["main"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(b.numpy(), x * 4)
    np.testing.assert_array_equal(d.numpy(), x * 2)
    np.testing.assert_array_equal(same.numpy(), x)


INPLACE = """
@T.prim_func(private=True, s_tir=True)
def {name}(x: T.Buffer((16,), "float32", scope="{scope}")):
    for i in range(16):
        with T.sblock("y"):
            vi = T.axis.spatial(16, i)
            x[vi] = x[vi] + T.float32(1)
"""


def test_a_value_used_in_place_stays_where_its_operand_is() -> None:
    def body(a: str, b: str, kernels: tuple[str, str, str], copy: str) -> str:
        return f"""
        a = R.call_tir(cls.{kernels[0]}, (x,), out_ty={a})
        b = R.call_tir_inplace(cls.{kernels[1]}, (a,), inplace_indices=[0], out_ty={b})
        {copy}
        c = R.call_tir(cls.{kernels[2]}, ({"b_tex" if copy else "b"},), out_ty={G if copy else T})
        """

    before = module(
        kernel("pool"),
        INPLACE.format(name="inc", scope=GLOBAL),
        kernel("conv"),
        main("x", body(T, T, ("pool", "inc", "conv"), ""), "c"),
    )
    known = {"inc": Needs((ACC,), (ACC,), "npu"), "conv": CONV, "pool": npu(GLOBAL)}
    result, decisions = scoped(before, demands(**known))
    copy = f"b_tex: {X} = R.to_vdevice(b, {TO_X})"
    kernels = ("pool_global_acc", "inc_acc", "conv_tex_global")
    expected = module(
        kernel("pool_global_acc", GLOBAL, ACC),
        INPLACE.format(name="inc_acc", scope=ACC),
        kernel("conv_tex_global", TEX, GLOBAL),
        main("x", body(A, A, kernels, copy), "c", G),
        scopes=SCOPES,
    )
    assert decisions["a"].scope == ACC
    assert (decisions["b"].scope, decisions["b"].copies) == (ACC, (TEX,))
    assert decisions["b"].rule == (
        "written in place: where its operand is, one copy per other scope"
    )
    tvm.ir.assert_structural_equal(result, expected)
    same_results(before, result)


# ---------------------------------------------------------------- legalization in parts
def by_operator(site: CallSite) -> Needs | None:
    """Demands of operators that are not legalised; those of pools depend on an attribute."""
    if site.callee == "relax.nn.max_pool2d":
        rows = int(site.attrs.pool_size[0])
        return npu(TEX if rows == 2 else ACC)
    return npu(TEX) if site.callee == "relax.negative" else None


def pools(*sizes: int) -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType((1, 1, 4, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for size in sizes:
                value = builder.emit(relax.op.nn.max_pool2d(value, (size, size)), f"pool{size}")
            result = builder.emit_output(relax.op.exp(value))
        builder.emit_func_output(result)
    return builder.get()


def test_operators_are_legalised_after_their_attributes_decided() -> None:
    before = pools(1, 2)
    result, decisions = scoped(before, by_operator)
    assert decisions["pool1"].scope == TEX
    assert decisions["x"].copies == (ACC,)
    main_text = result["main"].script()
    assert "R.call_tir(max_pool2d_acc_tex, (x_acc,)" in main_text
    assert "R.call_tir(max_pool2d1_tex_global, (pool1,)" in main_text
    assert "R.exp(" in main_text  # in global throughout: left to a later LegalizeOps
    vm = relax.VirtualMachine(relax.build(strip_vdevices()(result), TARGET), tvm.cpu())
    x = np.arange(16, dtype="float32").reshape(1, 1, 4, 4) / 16
    want = relax.VirtualMachine(relax.build(before, TARGET), tvm.cpu())
    got = vm["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(got, want["main"](tvm.runtime.tensor(x)).numpy())


def test_own_legalization() -> None:
    """legalize= replaces TVM's; its PrimFunc gets the scopes."""
    seen = []

    def negate(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        seen.append(call.op.name)
        return builder.call_te(lambda t: tvm.te.compute(t.shape, lambda i: -t[i]), call.args[0])

    before = module(main("x", "a = R.negative(x)", "a"))
    result, _ = scoped(before, by_operator, legalize={"relax.negative": negate})
    assert seen == ["relax.negative"]
    assert result["main"].script().count("R.call_tir") == 1
    same_results(before, result)


# ---------------------------------------------------------------- hints, blocks, functions
def test_hints_of_the_user_are_demands_of_what_nobody_knows() -> None:
    hint = """
    h = R.hint_on_device(x, R.device(1, 0), "global.tex")
    a = kernel(h)
    b = conv(a)
    """
    before = program(hint, "b")
    result, decisions = scoped(before)
    assert decisions["x"].demands == (("a", TEX),)
    assert "kernel_tex_global" in {g.name_hint for g in result.functions}
    assert "hint_on_device" not in result.script()


def test_packed_calls_blocks_without_dataflow_and_calls_of_functions() -> None:
    text = f"""
@I.ir_module
class Module:
    @R.function(private=True)
    def inner(x: {T}) -> {T}:
        cls = Module
        y = R.call_dps_packed("vta_byoc.test_scopes.copy", (x,), out_ty={T})
        z = R.call_dps_packed("vta_byoc.test_scopes.copy", (y,), out_ty={T})
        return z

    @R.function
    def main(x: {T}) -> {T}:
        cls = Module
        a: {T} = cls.inner(x)
        with R.dataflow():
            b = R.call_dps_packed("vta_byoc.test_scopes.copy", (a,), out_ty={T})
            R.output(b)
        return b
"""

    @tvm.register_global_func("vta_byoc.test_scopes.copy", override=True)
    def copy(source: tvm.runtime.Tensor, target: tvm.runtime.Tensor) -> None:
        target.copyfrom(source)

    before = tvm.script.from_source(text)
    demand = demands(**{"vta_byoc": npu(TEX)})
    result, decisions = scoped(before, demand)
    assert decisions["a"].copies == (TEX,)
    assert decide_scopes(before, demand, TABLE)["inner"][1].scope == TEX
    inner = result["inner"].script()
    assert inner.count("R.to_vdevice") == 1 and "R.dataflow" not in inner
    same_results(before, result)


def test_the_same_module_every_time() -> None:
    mapped = memory_scopes(KNOWN, TABLE, TARGET)
    assert mapped(CHAIN).script() == mapped(CHAIN).script()


# ---------------------------------------------------------------- random demands
def random_graph(rng: np.random.Generator) -> tuple[tvm.IRModule, list[list[str]]]:
    """Eight sums of earlier values, three of them results, and their operands' names."""
    names, lines, operands = ["x"], [], []
    for number in range(8):
        chosen = [names[i] for i in rng.integers(0, len(names), int(rng.integers(1, 3)))]
        listed = ", ".join(chosen) + ","
        lines.append(f"v{number} = R.call_tir(cls.sum{len(chosen)}, ({listed}), out_ty={T})")
        names.append(f"v{number}")
        operands.append(chosen)
    text = main("x", "\n".join(lines), "(v3, v5, v7)", outputs="v3, v5, v7")
    kernels = [kernel(f"sum{n}", operands=n, factor=1) for n in (1, 2)]
    return module(*kernels, text), operands


def random_demand(rng: np.random.Generator, operands: list[list[str]]) -> dict[str, Needs]:
    """Legal demands of every call: what it reads, and what it can write in which order."""
    needs = {}
    for number, chosen in enumerate(operands):
        reads = tuple(SCOPES[i] for i in rng.integers(0, 3, len(chosen)))
        writes = tuple(SCOPES[i] for i in rng.permutation(3)[: rng.integers(1, 4)])
        needs[f"v{number}"] = Needs(reads, writes, "npu")
    return needs


@pytest.mark.parametrize("seed", range(12))
def test_random_legal_demands(seed: int) -> None:
    """Every read is in the scope that was demanded, every copy is made once, results stay."""
    rng = np.random.default_rng(seed)
    before, operands = random_graph(rng)
    needs = random_demand(rng, operands)
    result, decisions = scoped(before, lambda site: needs[site.name])
    relax.analysis.well_formed(result)
    text = result["main"].script()
    assert text.count("R.to_vdevice") == sum(len(d.copies) for d in decisions.values())
    for binding in result["main"].body.blocks[0].bindings:
        name = str(binding.var.name)
        if name in needs:
            call = binding.value
            read = tuple(str(a.ty.vdevice.memory_scope) for a in call.args[1].fields)
            assert read == needs[name].reads
            made = str(binding.var.ty.vdevice.memory_scope)
            assert made in needs[name].writes and made == decisions[name].scope
            buffers = [str(p.scope()) or GLOBAL for p in result[call.args[0]].params]
            assert buffers == [*read, made]
    if seed < 2:
        vm = relax.VirtualMachine(relax.build(strip_vdevices()(result), TARGET), tvm.cpu())
        values = {"x": np.arange(16, dtype="float32")}
        for number, chosen in enumerate(operands):
            values[f"v{number}"] = sum((values[c] for c in chosen), np.zeros(16, "float32"))
        for got, name in zip(
            vm["main"](tvm.runtime.tensor(values["x"])), ("v3", "v5", "v7"), strict=True
        ):
            np.testing.assert_array_equal(got.numpy(), values[name])
