"""The memory-scope pass on plain Relax modules: Before and Expected for each rule."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tvm
from scope_modules import (
    ACC,
    ADD,
    KNOWN,
    SCOPES,
    TEX,
    demands,
    npu,
    program,
    run,
    scoped,
)
from tvm import relax
from tvm.ir import GenericConst

from vta_byoc.ir.bindings import substituted
from vta_byoc.scopes import GLOBAL, CallSite, Decision, DemandFunction, Needs, strip_vdevices

TEX_ONLY = SCOPES[:2]


def check(
    before: tvm.IRModule,
    expected: tvm.IRModule,
    demand: DemandFunction = KNOWN,
    runs: bool = False,
) -> dict[str, Decision]:
    """That the pass gives ``expected``, that a second run changes nothing, and where it ``runs``
    that the stripped module computes what ``before`` does; the decisions."""
    result, decisions = scoped(before, demand)
    tvm.ir.assert_structural_equal(result, expected)
    relax.analysis.well_formed(result)
    tvm.ir.assert_structural_equal(scoped(result, demand)[0], result)
    stripped = strip_vdevices()(result)
    assert "to_vdevice" not in stripped.script() and "vdevice" not in stripped.global_infos
    if runs:
        np.testing.assert_array_equal(run(stripped), run(before))
    return decisions


def rules(decisions: Mapping[str, Decision]) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    return {name: (d.scope, d.rule, d.copies) for name, d in decisions.items()}


def test_single_consumer() -> None:
    before = program(
        """
        a = conv(x)
        b = conv(a)
        """,
        "b",
    )
    expected = program(
        """
        x_tex: X <- x
        a: X = conv_tex_tex(x_tex)
        b: G = conv_tex_global(a)
        """,
        "b",
        *TEX_ONLY,
    )
    assert rules(check(before, expected)) == {
        "x": (GLOBAL, "graph input: stays in global, one copy per other scope", (TEX,)),
        "a": (TEX, "single consumer", ()),
        "b": (GLOBAL, "graph output: global at the border", ()),
    }


def test_agreeing_consumers() -> None:
    body = """
    a = conv(x)
    b = conv(a)
    c = conv(a)
    """
    before = program(body, "(b, c)", outputs="b, c")
    expected = program(
        """
        x_tex: X <- x
        a: X = conv_tex_tex(x_tex)
        b: G = conv_tex_global(a)
        c: G = conv_tex_global(a)
        """,
        "(b, c)",
        *TEX_ONLY,
        outputs="b, c",
    )
    decisions = check(before, expected)
    assert decisions["a"].demands == (("b", TEX), ("c", TEX))
    assert (decisions["a"].scope, decisions["a"].rule) == (TEX, "consumers agree")


def test_conflicting_consumers_share_one_copy() -> None:
    """Three consumers want a in tex, one in acc: it is made in tex and copied to acc once; the
    second reader of acc takes the same copy."""
    before = program(
        """
        a = conv(x)
        b = conv(a)
        c = add(a, b)
        d = add(c, a)
        """,
        "d",
    )
    expected = program(
        """
        x_tex: X <- x
        a: X = conv_tex_tex(x_tex)
        b: A = conv_tex_acc(a)
        a_acc: A <- a
        c: A = add_acc_acc_acc(a_acc, b)
        d: G = add_acc_acc_global(c, a_acc)
        """,
        "d",
        *SCOPES,
    )
    a = check(before, expected, runs=True)["a"]
    assert rules({"a": a})["a"] == (TEX, "consumers disagree: one copy per other scope", (ACC,))
    assert (a.nbytes, a.copied_bytes) == (64, 64)


def test_cpu_island_in_the_middle() -> None:
    """The island reads and writes global; its operator is not even legalised."""
    body = """
    a = conv(x)
    b = R.exp(a)
    c = conv(b)
    """
    expected = program(
        """
        x_tex: X <- x
        a: G = conv_tex_global(x_tex)
        b: G = R.exp(a)
        b_tex: X <- b
        c: G = conv_tex_global(b_tex)
        """,
        "c",
        *TEX_ONLY,
    )
    decisions = check(program(body, "c"), expected)
    assert rules(decisions)["a"] == (GLOBAL, "single consumer", ())
    copied = (GLOBAL, "its producer cannot write it: one copy per scope", (TEX,))
    assert rules(decisions)["b"] == copied


def test_graph_output_that_is_also_consumed() -> None:
    body = """
    a = conv(x)
    b = conv(a)
    """
    expected = program(
        """
        x_tex: X <- x
        a: G = conv_tex_global(x_tex)
        a_tex: X <- a
        b: G = conv_tex_global(a_tex)
        """,
        "(a, b)",
        *TEX_ONLY,
        outputs="a, b",
    )
    before = program(body, "(a, b)", outputs="a, b")
    decisions = check(before, expected)
    assert decisions["a"].demands == (("b", TEX), ("result", GLOBAL))
    rule = "graph output that is also consumed: global at the border, one copy per other scope"
    assert rules(decisions)["a"] == (GLOBAL, rule, (TEX,))


def test_constant_shared_by_two_scopes() -> None:
    """Two constants, no copy at run time; the third reader shares the first one."""
    weight = relax.const(np.arange(16, dtype="float32"))

    def with_weight(mod: tvm.IRModule, kinds: tuple[str, ...]) -> tvm.IRModule:
        """The parameter w replaced by constants in the scopes of its reads; "" for `weight`."""
        infos = {str(d.memory_scope): d for d in mod.global_infos.get("vdevice", [])}
        types = {s: relax.TensorType((16,), "float32", d) for s, d in infos.items()}
        made = {s: GenericConst(weight.value, ty) for s, ty in types.items()} | {"": weight}
        func, bindings, scope = mod["main"], [], iter(kinds)
        for binding in func.body.blocks[0].bindings:
            env = {func.params[1]: made[next(scope)]}
            bindings.append(relax.VarBinding(binding.var, substituted(binding.value, env)))
        body = relax.SeqExpr([relax.DataflowBlock(bindings)], func.body.body)
        single = relax.Function(func.params[:1], body, func.ret_ty, attrs=func.attrs)
        mod.update_func(mod.get_global_var("main"), single)
        return relax.transform.Normalize()(mod)

    before = program(
        """
        a = scale(x, w)
        b = add(a, w)
        c = scale(b, w)
        """,
        "c",
        params="x w",
    )
    expected = program(
        """
        a: A = scale_global_tex_acc(x, w)
        b: G = add_acc_acc_global(a, w)
        c: G = scale_global_tex_global(b, w)
        """,
        "c",
        *SCOPES,
        params="x w",
    )
    demand = demands(scale=npu(GLOBAL, TEX), add=ADD)
    expected = with_weight(expected, (TEX, ACC, TEX))
    decisions = check(with_weight(before, ("", "", "")), expected, demand, runs=True)
    assert rules(decisions)["constant"] == (TEX, "constant: stored once per scope", (ACC,))
    assert decisions["constant"].copied_bytes == 0


def test_residual_whose_sides_come_from_different_regions() -> None:
    """One side is made on the accelerator and written where the sum wants it, the other behind an
    operator of the host and copied."""
    before = program(
        """
        a = conv(x)
        b = R.tanh(a)
        c = conv(b)
        d = add(b, c)
        """,
        "d",
    )
    expected = program(
        """
        x_tex: X <- x
        a: G = conv_tex_global(x_tex)
        b: G = R.tanh(a)
        b_tex: X <- b
        c: A = conv_tex_acc(b_tex)
        b_acc: A <- b
        d: G = add_acc_acc_global(b_acc, c)
        """,
        "d",
        *SCOPES,
    )
    decisions = check(before, expected)
    assert decisions["b"].copies == (TEX, ACC)
    assert (decisions["c"].scope, decisions["c"].rule) == (ACC, "single consumer")


def test_primfunc_shared_by_call_sites_with_different_scopes() -> None:
    """Three signatures of one PrimFunc: two clones, and itself where all is global."""
    before = program(
        """
        a = twice(x)
        b = twice(a)
        c = twice(b)
        """,
        "c",
    )
    expected = program(
        """
        a: X = twice_global_tex(x)
        b: G = twice_tex_global(a)
        c: G = twice(b)
        """,
        "c",
        *TEX_ONLY,
    )

    def second_reads_tex(site: CallSite) -> Needs | None:
        return npu(TEX if site.name == "b" else GLOBAL)

    check(before, expected, second_reads_tex)
