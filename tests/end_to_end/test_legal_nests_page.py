"""The page of legal nests: every refusal of the code that reads nests, once, and its tables."""

from __future__ import annotations

import pytest
from legal_nests import MODULES, ROOM, SECTIONS, markdown, refusals
from messages import messages_of
from tvm import s_tir, te

import vta_byoc.schedule as vs
from vta_byoc.workload.alu import OPERATIONS


def test_every_refusal_stands_once() -> None:
    found = [message for section in refusals().values() for message in section]
    made = [message for module in MODULES for message in messages_of(f"{ROOM}.{module}")]
    assert sorted(map(repr, found)) == sorted(map(repr, made)) and len(found) > 45
    assert all(len(of_unit) >= 2 for of_unit in refusals().values())
    assert all(message.fix for message in found)


def test_sections_name_functions_that_refuse() -> None:
    refusing = {
        (module, message.function)
        for module in MODULES
        for message in messages_of(f"{ROOM}.{module}")
    }
    named = {(m, f) for section in SECTIONS for m, each in section.refusing.items() for f in each}
    assert named <= refusing


def test_tables_have_what_the_machine_has() -> None:
    page = markdown()
    assert all(f"| `{row.op.name}`" in page for row in OPERATIONS.values())
    assert "| `local.acc_buffer` | int8 |" in page and "`CAPABILITIES.acc_8bit`" in page


@pytest.mark.parametrize(("dtype", "unit"), [("float32", "LOAD"), ("int32", "STORE")])
def test_a_refusal_is_found_on_the_page_under_its_unit(dtype: str, unit: str) -> None:
    """What a schedule is refused for, word for word but for what is filled in."""
    x = te.placeholder((4, 1, 16), "int32" if unit == "STORE" else dtype, name="x")
    wide = te.compute(x.shape, lambda *i: x(*i).astype("int32"), name="wide")
    y = te.compute(x.shape, lambda *i: wide(*i).astype("int8"), name="y")
    if unit == "STORE":
        y = te.compute(x.shape, lambda *i: wide(*i) + 1, name="y")
    sch = s_tir.Schedule(te.create_prim_func([x, y]))
    sch.set_scope("wide", 0, vs.ACC)
    with pytest.raises(vs.ScheduleError) as caught:
        vs.dma_copy(sch, "y" if unit == "STORE" else "wide")
    words = str(caught.value).rpartition("; ")[2]
    assert words in {message.fix for message in refusals()[unit]}, caught.value


def test_every_table_of_the_code_is_written() -> None:
    pytest.importorskip("sphinx")
    from tables_of_the_code import TABLES

    assert {"isa", "legal-nests", "messages"} <= set(TABLES)
    for name, written in TABLES.items():
        text = written()
        assert "| --- |" in text or text.startswith("## "), name
