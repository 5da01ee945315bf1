"""Workloads as canonical text, and as attributes of functions."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any

import tvm

from vta_byoc.ir.records import as_record, text_of
from vta_byoc.workload.workloads import Epilogue, Kind, Prologue, Step, Workload

TEXT_NAMES = {"prologues": "sides"}
"""Fields that have another name in texts, as tuning logs hold them."""
LATER: Mapping[str, object] = {
    **dict.fromkeys(("bias", "borders"), False),
    **dict.fromkeys(("ranges", "shapes", "hiding", "causal", "filled", "factors"), ()),
}
"""Fields that texts of older versions do not have, and their values there."""
KNOWN = 1024
"""Texts whose fields are known; a network has some dozens."""


def to_json(work: Workload) -> str:
    """Canonical text of a workload."""
    fields = {
        TEXT_NAMES.get(name, name): value
        for name, value in dataclasses.asdict(work).items()
        if name not in LATER or value != LATER[name]
    }
    return json.dumps(fields, sort_keys=True)


def from_json(kind: type[Kind], text: str) -> Kind:
    """The workload of class ``kind`` that :func:`to_json` wrote."""
    return kind(**_fields(text))


@functools.lru_cache(maxsize=KNOWN)
def _fields(text: str) -> Mapping[str, Any]:
    """The fields of the workload that a text is of; every pass reads the same few texts again."""
    names = {written: name for name, written in TEXT_NAMES.items()}
    fields = {names.get(name, name): value for name, value in json.loads(text).items()}
    return {name: _read(name, value) for name, value in fields.items()}


def workload_attr(work: Workload) -> tvm.runtime.Tensor:
    """A workload as the attribute of a function."""
    return as_record(to_json(work))


def workload_of(kind: type[Kind], attribute: object) -> Kind:
    """The workload of class `kind` in an attribute that :func:`workload_attr` wrote."""
    return from_json(kind, text_of(attribute))


def _read(name: str, value: Any) -> Any:
    if name == "epilogue":
        return Epilogue(_steps(value["steps"]), value["dtype"])
    if name == "ranges":
        return tuple((int(low), int(high)) for low, high in value)
    if name in ("shapes", "filled"):
        return tuple(tuple(shape) for shape in value)
    if name == "prologues":
        return tuple(Prologue(each["operand"], _steps(each["steps"])) for each in value)
    return tuple(value) if isinstance(value, list) else value


def _steps(items: list[Mapping[str, Any]]) -> tuple[Step, ...]:
    return tuple(Step(**item) for item in items)
