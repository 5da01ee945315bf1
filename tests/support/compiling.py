"""What holds for every test that compiles: a plugin, loaded where tests run.

The process that hands tests out to others imports no TVM, which would take it three seconds before
any test begins.  Nor does any test fail because a machine is slow: no case that is drawn has a
deadline.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import tvm
from hypothesis import HealthCheck, settings
from tvm import relax

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim import kept_code
from vta_byoc.hw.sim.target import exact_target, native_target, unoptimized_target
from vta_byoc.hw.verify.verifier import verify
from vta_byoc.ir.float_modules import float_operators
from vta_byoc.ir.host_loops import TIR_PIPELINE, without_asserts
from vta_byoc.ir.optimization import PLAIN
from vta_byoc.ir.stage import checked_forms
from vta_byoc.passes import kept_programs
from vta_byoc.passes.lower_regions import unchecked_program
from vta_byoc.strategies.te import kept_choices
from vta_byoc.strategies.te.timed import cycles_alone

settings.register_profile(
    "however slow", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("however slow")

MOST_MACHINES = 512
"""Machines for which choices and interpreters are kept: the tests have more than users."""


def pytest_configure() -> None:
    """Keep what all machines of the tests need."""
    kept_choices.MOST_FILES = kept_code.MOST_ENTRIES = MOST_MACHINES


@pytest.fixture(autouse=True)
def compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program of one test is kept for another, which may change what compiles it."""
    monkeypatch.setattr(kept_programs, "WORTH_SECONDS", math.inf)


@pytest.fixture(autouse=True, scope="session")
def checked() -> Iterator[None]:
    """Every stage that a test runs gives a module of the form that it says."""
    with checked_forms():
        yield


@pytest.fixture(autouse=True)
def verified(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program that a test builds passes the static verifier.

    `compile_region` asks it itself (test_arena.py) of the better of what `unchecked_program` wrote,
    and a second time would find nothing else. What a search only times, `cycles_alone`, is verified
    when it is chosen and compiled.
    """
    if request.node.get_closest_marker("unverified"):
        return
    finish = ProgramBuilder.finish

    def verified_finish(builder: ProgramBuilder) -> Program:
        program = finish(builder)
        if sys._getframe(1).f_code in (unchecked_program.__code__, cycles_alone.__code__):
            return program
        violations = verify(program)
        assert not violations, "\n".join(map(str, violations))
        return program

    monkeypatch.setattr(ProgramBuilder, "finish", verified_finish)


@functools.cache
def host_targets() -> tuple[str, tvm.target.Target]:
    """What executables are built for here, as text; the same with LLVM's optimizations off."""
    return str(exact_target(native_target())), exact_target(unoptimized_target())


@pytest.fixture(autouse=True)
def quick_hosts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executables are built without LLVM's optimizations and asserts where no bit depends on these.

    They take half of the time of a small build.  Modules with other float operators than those of
    PLAIN, and those of long tests, whole networks, are built as users build them.
    """
    if request.node.get_closest_marker("long"):
        return
    build, (slow, quick) = relax.build, host_targets()

    def built(mod: tvm.IRModule, target: Any = None, *args: Any, **options: Any) -> Any:
        ours = options.get("tir_pipeline") is TIR_PIPELINE and "relax_pipeline" in options
        whole = any(var.name_hint == "main" for var in mod.get_global_vars())  # no part of a model
        watched = tvm.transform.PassContext.current().instruments  # of a test, by this very context
        plain = whole and all(op in PLAIN for op in float_operators(mod))
        if watched or not ours or not plain or str(target) != slow:
            return build(mod, target, *args, **options)
        with without_asserts():
            return build(mod, quick, *args, **options)

    monkeypatch.setattr(relax, "build", built)


@pytest.fixture
def quantized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands take the quantized form of a model that an earlier one made."""
    from cli_runs import quantize_once

    from vta_byoc.cli import commands

    monkeypatch.setattr(commands, "quantize", quantize_once)
