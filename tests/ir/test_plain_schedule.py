"""Schedules without TVM's checks of argument types do what TVM's own do."""

from __future__ import annotations

import pytest
import tvm
from tvm import s_tir, te, tirx

from vta_byoc.ir.plain_schedule import PlainSchedule


def product() -> tirx.PrimFunc:
    a, b = te.placeholder((8, 16), "int8", "a"), te.placeholder((16, 8), "int8", "b")
    k = te.reduce_axis((0, 16), "k")
    made = te.compute(
        (8, 8), lambda i, j: te.sum((a[i, k] * b[k, j]).astype("int32"), axis=k), name="product"
    )
    return te.create_prim_func([a, b, made])


def scheduled(kind: type[s_tir.Schedule]) -> tirx.PrimFunc:
    sch = kind(product())
    block = sch.get_sblock("product")
    i, j, k = sch.get_loops(block)
    outer, inner = sch.split(j, [None, 4])
    sch.reorder(outer, i, k, inner)
    sch.vectorize(inner)
    sch.reverse_compute_at(sch.cache_write(block, 0, "local"), i)
    sch.decompose_reduction(block, k)
    return sch.mod["main"]


def test_primitives_do_the_same() -> None:
    tvm.ir.assert_structural_equal(scheduled(PlainSchedule), scheduled(s_tir.Schedule))


def test_no_primitive_looks_at_types() -> None:
    """TVM's do: every one that the plain schedule has of them is what TVM wraps."""
    checked = {n: m for n, m in vars(s_tir.Schedule).items() if hasattr(m, "__wrapped__")}
    assert {"split", "cache_read", "compute_at"} <= set(checked)
    assert all(vars(PlainSchedule)[name] is made.__wrapped__ for name, made in checked.items())


def test_what_cannot_be_applied_is_refused() -> None:
    sch = PlainSchedule(product())
    *_, k = sch.get_loops(sch.get_sblock("product"))
    with pytest.raises(s_tir.schedule.ScheduleError):
        sch.parallel(k)
