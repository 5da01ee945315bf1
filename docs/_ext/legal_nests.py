"""The page of legal nests: what a LOAD, a GEMM, an ALU and a STORE nest may be, from the code.

What each takes comes from the tables that code generation reads; what each is refused for, from the
functions that refuse it: `SECTIONS` says whose refusals belong to which unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markdown_table import table
from messages import Message, bullet, messages_of

ROOM = "vta_byoc.codegen"
EVERY = "Every nest"


@dataclass(frozen=True)
class Section:
    """One unit: what its nests are, and the functions of a module that refuse what they are not."""

    title: str
    about: str
    refusing: Mapping[str, Sequence[str]] = field(default_factory=dict)


SECTIONS = (
    Section(
        EVERY,
        "Loops around one block that stores one value. Loops start at 0 and have constant extents; "
        "indices are affine in them; conditions are boxes; tiles are staged in the memories of the "
        "machine and fit them; lanes are innermost and whole.",
    ),
    Section(
        "LOAD",
        "A copy from DRAM to a memory on chip: `dst[...] = src[...]`, a cast of int8 to int32 "
        "where the table has it, and `if_then_else(inside, src[...], 0)` for padding.",
        {
            "tensorizable": ("_load", "_all_padding", "_load_type"),
            "dma": ("_plan", "_check_lane"),
            "transfer": ("_check_nesting",),
        },
    ),
    Section(
        "GEMM",
        "`acc[n, o, b, j] += int32(inp[n, i, b, k]) * int32(wgt[o, i, j, k])`, where b, j and k "
        "are the lanes of elements; or its reset, `acc[...] = 0`.",
        {"tensorizable": ("_gemm", "_constant"), "execution": ("check_gemm_lanes",)},
    ),
    Section(
        "ALU",
        "int32 expressions on ACC, lane by lane, of the operations in the table. Each overwrites "
        "its first operand; the second is a tensor or an immediate.",
        {
            "tensorizable": ("_alu", "_check_once", "_check_reduction"),
            "alu": ("check_immediate", "_operation", "_unchanged"),
            "accumulator": ("refuse_clobbered",),
            "inplace": ("_refuse_repeat", "_refuse_overlap"),
        },
    ),
    Section(
        "STORE",
        "A copy from ACC to DRAM as int8: `dst[...] = int8(acc[...])`. With ALU operations in the "
        "expression the nest is both: the values are computed in ACC, then stored.",
        {"tensorizable": ("_store",), "transfer": ("plan_transfer",)},
    ),
)
MODULES = (
    "tensorizable",
    "dma",
    "alu",
    "accumulator",
    "inplace",
    "execution",
    "nest",
    "linear",
    "sram",
    "transfer",
)
"""The modules that read nests; what none of the sections names is asked of every nest."""


def refusals() -> dict[str, list[Message]]:
    """By the title of a section its refusals, each in exactly one."""
    owner = {
        (module, function): section.title
        for section in SECTIONS
        for module, functions in section.refusing.items()
        for function in functions
    }
    found: dict[str, list[Message]] = {section.title: [] for section in SECTIONS}
    for module in MODULES:
        for message in messages_of(f"{ROOM}.{module}"):
            found[owner.get((module, message.function), EVERY)].append(message)
    return found


def loads() -> list[tuple[str, ...]]:
    """What LOAD takes: the scope written, the type in DRAM, the element, and who has it."""
    from vta_byoc.hw.isa import MEMORY_TYPES, SRAMS
    from vta_byoc.workload.memory import LOADS, SPACES

    rows = []
    for (scope, dtype), mem in LOADS.items():
        sizes = " x ".join(size.upper() for size in SRAMS[SPACES[scope]].sizes)
        kind = MEMORY_TYPES[mem]
        needs = f"`CAPABILITIES.{kind.capability}`" if kind.capability else "every machine"
        rows.append((f"`{scope}`", dtype, sizes, f"`{mem.name}`", needs))
    return rows


def operations() -> list[tuple[str, ...]]:
    """The operations of the ALU with the node of TIR and who has it."""
    from vta_byoc.hw.isa import ALU_CAPABILITIES
    from vta_byoc.workload.alu import OPERATIONS

    rows = []
    for row in OPERATIONS.values():
        needed = ALU_CAPABILITIES.get(row.op)
        how = f"`{row.op.name}`" + (", of the operand's opposite" if row.negated else "")
        has = f"`CAPABILITIES.{needed}`" if needed else "every machine"
        rows.append((f"`{row.tir.__name__}`", how, has))
    return rows


def markdown() -> str:
    """The page: for each unit what it takes, then what is refused and the next step."""
    tables = {
        "LOAD": table(("writes", "type in DRAM", "element", "becomes", "on"), loads()),
        "ALU": table(("TIR", "instruction", "on"), operations()),
    }
    found, parts = refusals(), []
    for section in SECTIONS:
        parts.append(f"## {section.title}\n\n{section.about}\n\n{tables.get(section.title, '')}\n")
        parts.append("Refused:\n\n" + "".join(map(bullet, found[section.title])) + "\n")
    return "".join(parts)


__all__ = ["MODULES", "SECTIONS", "markdown", "refusals"]
