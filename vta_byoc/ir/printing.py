"""Passes that print the module after a stage, and change nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import tvm

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.printable import printable
from vta_byoc.ir.stage import Stage


def check_requests(requests: Sequence[str], known: Sequence[str], run: Sequence[str]) -> None:
    """Refuse to print after what is none of the stages ``known``, or none of those that ``run``.

    Raises:
        VTAError: the first request (``NAME`` or ``NAME=FILE``) that would print nothing.
    """
    for request in requests:
        name = request.partition("=")[0]
        if name not in known:
            raise VTAError(
                f"print after {name!r}: no stage has this name; known: {', '.join(known)}; "
                "`vta-byoc passes` says what each one does"
            )
        if name not in run:
            raise VTAError(
                f"print after {name!r}: this stage does not run here; those that run: "
                f"{', '.join(run)}; choose one of them"
            )


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
