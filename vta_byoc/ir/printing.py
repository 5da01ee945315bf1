"""Passes that print the module after a stage, and change nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import tvm

from vta_byoc.base.printable import printable
from vta_byoc.ir.stage import Stage


def printers(stage: Stage, requests: Sequence[str]) -> Iterator[tvm.transform.Pass]:
    """The passes that print the module after ``stage``, where ``requests`` name it.

    Each request is ``NAME``, to print on stderr, or ``NAME=FILE``.
    """
    for request in requests:
        name, _, file = request.partition("=")
        if name == stage.name:
            yield _printer(stage, file)


def _printer(stage: Stage, file: str) -> tvm.transform.Pass:
    @tvm.transform.module_pass(opt_level=0, name=f"vta.Print{stage.name}")
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        text = printable(f"# after {stage.name}: {stage.gives}\n{mod.script()}\n")
        if file:
            Path(file).write_text(text, encoding="utf-8")
        else:
            sys.stderr.write(text)
        return mod

    return run
