"""Demands that no machine can meet: every error says tensor, scope, need and have."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import tvm
from scope_modules import (
    ACC,
    CHAIN,
    CONV,
    KNOWN,
    TABLE,
    TEX,
    A,
    T,
    demands,
    kernel,
    main,
    module,
    npu,
    scoped,
)
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.scopes import (
    GLOBAL,
    HOST,
    Needs,
    Scope,
    ScopeTable,
    decide_scopes,
    memory_scopes,
)


def changed(name: str, **values: Any) -> ScopeTable:
    """The toy machine with one scope changed."""
    rows = [dataclasses.replace(s, **values) if s.name == name else s for s in TABLE.scopes]
    return ScopeTable("toy", tuple(rows))


def refused(
    pool: Needs, table: ScopeTable = TABLE, mod: tvm.IRModule = CHAIN, conv: Needs = CONV
) -> str:
    with pytest.raises(VTAError) as error:
        decide_scopes(mod, demands(conv=conv, pool=pool), table)
    return str(error.value)


def test_scope_that_does_not_exist() -> None:
    assert refused(npu("global.vtex")) == (
        'tensor "a": consumer "b" demands scope "global.vtex", which toy does not know; it has '
        "global, global.tex, global.acc; name one of them or add a row to the scope table"
    )


def test_scope_that_cannot_hold_the_tensor() -> None:
    assert refused(npu(ACC), changed(ACC, capacity=63, element=16)) == (
        'tensor "a": consumer "b" demands scope "global.acc": need 64 bytes in elements of 16, '
        "have 63 on toy; name global or cut the tensor into tiles"
    )
    rounded = changed(ACC, capacity=64, element=48)
    assert "need 96 bytes in elements of 48, have 64 on toy" in refused(npu(ACC), rounded)
    decide_scopes(CHAIN, demands(pool=npu(ACC)), changed(ACC, capacity=64, element=16))


def test_scope_of_other_types() -> None:
    assert refused(npu(ACC), changed(ACC, dtypes=("int8", "int32"))) == (
        'tensor "a": consumer "b" demands scope "global.acc": need float32, have int8, int32 on '
        "toy; convert the tensor or name another scope"
    )


def test_configuration_without_the_buffer() -> None:
    assert refused(npu(ACC), changed(ACC, capacity=0)) == (
        'tensor "a": consumer "b" demands scope "global.acc": need a buffer, have none: toy is '
        "configured without it; choose a configuration that has it or name global"
    )


def test_scope_that_the_consumer_cannot_read() -> None:
    assert refused(npu(ACC), changed(ACC, readers=(HOST,))) == (
        'tensor "a": consumer "b" demands scope "global.acc": need npu, which runs it, among its '
        "readers, have host; demand a scope that npu reads"
    )


def test_scope_that_no_producer_can_write() -> None:
    """conv writes global only, and the host makes no copy into the accumulator."""
    conv = Needs((TEX,), (GLOBAL,), "npu")
    assert refused(npu(ACC), changed(ACC, writers=("npu",)), conv=conv) == (
        'tensor "a" is wanted in scope "global.acc" and made in "global": need its producer or '
        'the host to write "global.acc", have as writers npu; let the producer write it or '
        "demand another scope"
    )
    unread = changed(ACC, readers=("npu",))
    both = Needs((TEX,), (ACC,), "npu")
    assert refused(npu(TEX), unread, conv=both) == (
        'tensor "a" is wanted in scope "global.tex" and made in "global.acc": need the host to '
        'read "global.acc" for a copy, have as readers npu; let the producer write a scope that '
        "the host reads"
    )


def test_producer_that_claims_what_its_unit_cannot_write() -> None:
    assert refused(npu(ACC), changed(ACC, writers=(HOST,))) == (
        'tensor "a": producer "a" writes scope "global.acc": need npu, which runs it, among its '
        "writers, have host; write a scope that npu writes"
    )
    assert refused(npu(ACC), conv=Needs((TEX,), ("global.vtex",), "npu")) == (
        'tensor "a": its producer writes scope "global.vtex", which toy does not know; it has '
        "global, global.tex, global.acc; name one of them or add a row to the scope table"
    )


def with_hints(*scopes: str) -> tvm.IRModule:
    lines, last = [], "x"
    for number, scope in enumerate(scopes):
        hint = f'R.hint_on_device({last}, R.device(1, 0), "{scope}")'
        lines.append(f"h{number}: {T} = {hint}")
        last = f"h{number}"
    lines.append(f"b = R.call_tir(cls.pool, ({last},), out_ty={T})")
    return module(kernel("pool"), main("x", "\n".join(lines), "b"))


def test_hints_that_contradict() -> None:
    assert refused(npu(ACC), mod=with_hints(TEX)) == (
        'tensor "x": a hint states scope "global.tex" and consumer "b" demands scope '
        '"global.acc"; need one scope, have two; remove the hint or change the demand'
    )
    assert refused(npu(TEX), mod=with_hints(TEX, ACC)) == (
        'tensor "x": a hint states scope "global.acc" of what another hint states scope '
        '"global.tex"; need one scope, have two; remove one of the hints'
    )
    assert 'demands scope "global.none", which toy' in refused(
        npu(TEX),
        mod=module(
            kernel("other"),
            main(
                "x",
                f"""
            h: {T} = R.hint_on_device(x, R.device(1, 0), "global.none")
            b = R.call_tir(cls.other, (h,), out_ty={T})
            """,
                "b",
            ),
        ),
    )


def test_result_that_a_hint_keeps_off_the_border() -> None:
    body = f'h: {T} = R.hint_on_device(x, R.device(1, 0), "global.tex")'
    assert refused(npu(TEX), mod=module(main("x", body, "h"))) == (
        'tensor "x": a hint states scope "global.tex" and consumer "result" demands scope '
        '"global"; need one scope, have two; remove the hint or change the demand'
    )


def test_type_that_its_producer_cannot_write() -> None:
    body = f"""
    a = R.call_tir(cls.conv, (x,), out_ty={A})
    b = R.call_tir(cls.pool, (a,), out_ty={T})
    """
    mod = module(kernel("conv"), kernel("pool"), main("x", body, "b"), scopes=(GLOBAL, TEX, ACC))
    assert refused(npu(TEX), mod=mod, conv=Needs((TEX,), (TEX, GLOBAL), "npu")) == (
        'tensor "a": its type states scope "global.acc", which its producer "a" cannot write: '
        "need global.acc, have global.tex, global; change the type or what the producer writes"
    )


def test_demand_functions_that_miscount() -> None:
    assert refused(npu(TEX, TEX)) == (
        'the demand function gives 2 scopes for "b" (pool), which has 1 tensor operands; give '
        "one for each"
    )
    assert refused(npu(TEX, writes=())) == (
        'the demand function gives no scope that "b" (pool) can write; name one, for example '
        '"global"'
    )


def test_tables_that_cannot_be() -> None:
    with pytest.raises(VTAError) as error:
        ScopeTable("toy", (Scope(TEX),))
    assert str(error.value) == (
        'the scope table of toy has global.tex; it needs "global", where everything else lives: '
        'add Scope("global")'
    )
    with pytest.raises(VTAError, match='scope "global" is in the table of toy twice; keep one'):
        ScopeTable("toy", (Scope(GLOBAL), Scope(GLOBAL)))


def test_operators_without_a_primfunc() -> None:
    def first(site: object) -> Needs:
        return npu(TEX)

    with pytest.raises(VTAError) as error:
        scoped(
            module(main("x", "a = R.negative(x)", "a")),
            first,
            legalize={"relax.negative": lambda _builder, call: call},
        )
    assert str(error.value) == (
        'operator "a" (relax.negative) is given scope global.tex: need one PrimFunc to carry it, '
        "its legalization gives another expression; give one call_tir in legalize="
    )
    swapped = relax.const([0.0] * 16, "float32")
    with pytest.raises(VTAError, match="its legalization reads a tensor that is not its operand"):
        scoped(
            module(main("x", "a = R.negative(x)", "a")),
            first,
            legalize={
                "relax.negative": lambda builder, call: builder.call_te(
                    lambda t: tvm.te.compute(t.shape, lambda i: -t[i]), swapped
                )
            },
        )


def test_unknown_shape_and_other_target() -> None:
    text = """
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        with R.dataflow():
            a = R.negative(x)
            R.output(a)
        return a
    """
    with pytest.raises(VTAError) as error:
        decide_scopes(module(text), lambda _site: npu(TEX), TABLE)
    assert str(error.value) == (
        'tensor "x": scope "global.tex" is demanded of a tensor whose shape is not known at '
        "compile time; give it a static shape or demand global"
    )
    scoped_module, _ = scoped(CHAIN)
    other = tvm.target.Target({"kind": "ext_dev"})
    with pytest.raises(VTAError, match=re.escape("strip_vdevices first")):
        memory_scopes(KNOWN, TABLE, other)(scoped_module)
