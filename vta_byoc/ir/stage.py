"""A stage of the pipeline: a named pass that takes one form of the IR and gives another."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass

import tvm

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.legality import Form, check_form

LOG = logging.getLogger(__name__)
Run = Callable[[tvm.IRModule, tvm.transform.PassContext], tvm.IRModule]
PREFIX = "vta."
_CHECKED: ContextVar[bool] = ContextVar("vta_byoc.ir.stage.checked", default=False)


@contextlib.contextmanager
def checked_forms(wanted: bool = True) -> Iterator[None]:
    """Every stage that runs meanwhile checks what it gives too, if ``wanted``.

    What a stage takes is checked at any time.
    """
    token = _CHECKED.set(wanted or _CHECKED.get())
    try:
        yield
    finally:
        _CHECKED.reset(token)


def run_inside(
    made: tvm.transform.Pass, settings: Callable[[], AbstractContextManager[None]]
) -> tvm.transform.Pass:
    """The pass ``made``, run inside of what ``settings`` gives."""

    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        with settings():
            return made(mod)

    return tvm.transform.module_pass(run, opt_level=0, name=str(made.info.name))


@dataclass(frozen=True)
class Stage:
    """What is known of a stage; called with a function, it makes the pass of it.

    Attributes:
        name: as the pipeline's table and ``--print-after`` say it; the pass is ``vta.<name>``.
        takes: the form of the module that it works on.
        gives: the form of its result.
        does: what it does, in a few words.
    """

    name: str
    takes: Form
    gives: Form
    does: str

    @property
    def title(self) -> str:
        """The name of its pass."""
        return PREFIX + self.name

    def __call__(self, run: Run) -> tvm.transform.Pass:
        """The pass ``title`` that runs ``run``.

        The pass raises VTAError for a module that is not of the form that the stage takes.
        """

        def checked(mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
            self._check_taken(mod)
            begin = time.perf_counter()
            result = run(mod, ctx)
            LOG.info("stage %s: %.3f s", self.name, time.perf_counter() - begin)
            self._check_given(result)
            return result

        return tvm.transform.module_pass(checked, opt_level=0, name=self.title)

    def _check_taken(self, mod: tvm.IRModule) -> None:
        try:
            check_form(mod, self.takes)
        except VTAError as error:
            raise VTAError(f"stage {self.name} takes {self.takes}: {error}") from None

    def _check_given(self, mod: tvm.IRModule) -> None:
        """A wrong result is a bug of the stage, not an error of the user."""
        if _CHECKED.get():
            try:
                check_form(mod, self.gives)
            except VTAError as error:
                raise AssertionError(f"stage {self.name} gives {self.gives}: {error}") from None
