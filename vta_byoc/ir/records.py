"""Records of any length as attributes of functions and modules.

A record is JSON text. As a string it would stand in the printed module, escaped, in one line of
kilobytes. So an attribute holds it as a tensor of bytes, which TVMScript prints as
`metadata["ffi.Tensor"][0]`; the bytes are in the table of metadata below the module
(`mod.script(show_meta=True)`), so that the text parses back to an equal module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import numpy as np
import tvm

from vta_byoc.base.json_types import Json

PREFIX = "vta."
"""Attributes whose names begin so are of this package."""


def as_record(text: str) -> tvm.runtime.Tensor:
    """`text` as the value of an attribute: uint8 [bytes of UTF-8]."""
    return tvm.runtime.tensor(np.frombuffer(text.encode(), np.uint8))


def text_of(value: object) -> str:
    """The text of a record; of a string that somebody wrote by hand, itself."""
    if isinstance(value, tvm.runtime.Tensor):
        return value.numpy().tobytes().decode()
    return str(value)


def records(mod: tvm.IRModule) -> dict[tuple[str, str], Json]:
    """Every record of a module: (function, attribute) -> what its JSON text says.

    The function is "" for an attribute of the module. Composites inside of a region are called
    `region.composite`.
    """
    found = dict(_of("", mod.attrs))
    for gv, function in sorted(mod.functions.items(), key=lambda item: item[0].name_hint):
        found.update(_of(gv.name_hint, function.attrs))
        for name, inner in _inner(function):
            found.update(_of(f"{gv.name_hint}.{name}", inner.attrs))
    return found


def _of(
    function: str, attributes: Mapping[str, object] | None
) -> Iterator[tuple[tuple[str, str], Json]]:
    for name, value in (attributes or {}).items():
        if str(name).startswith(PREFIX) and isinstance(value, tvm.runtime.Tensor):
            yield (function, str(name)), json.loads(text_of(value))


def _inner(function: tvm.ir.BaseFunc) -> Iterator[tuple[str, tvm.relax.Function]]:
    for block in getattr(getattr(function, "body", None), "blocks", ()):
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if isinstance(value, tvm.relax.Function):
                yield str(binding.var.name), value
