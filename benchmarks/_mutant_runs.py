"""Tests of a room on its mutants, in processes forked from one that has collected them.

Collecting a room's tests imports the compiler and takes as long as most mutants need to be killed.
So one process collects them and waits; for each mutant it forks, and the child gives the functions
that exist the code of the changed module.  A mutant whose change is no function's (a constant, a
default, the body of a class), or whose line runs while modules are imported, takes a process that
imports all of it anew.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from benchmarks._mutant_places import FACADES, ROOMS, Mutant
from vta_byoc.hw.cache import CACHE_VARIABLE

ROOT = Path(__file__).resolve().parents[1]
SLACK_SECONDS = 60
"""Beside three times what a test takes unchanged: a mutant may loop for ever."""
QUICK_SECONDS = 40
"""Tests below it come before the question whether a mutant is equivalent: ten seconds itself."""
WIDTH = re.compile(r"\b(In|Out|Signal)\(")
"""Lines with widths, whose mutants often are; of others the question comes behind a build."""
NEW = ("vta_byoc", "benchmarks", "models")
"""Packages that a process imports from the tree, not from where the benchmark stands."""
BUILT_ONCE = {"rtl": ("test_core_device.py", "test_core_lockstep.py", "test_steps_take_the_")}
"""Tests of a room that share what its modules build in the first of them: coverage gives the lines
to that one, and a wrong one may be noticed by any."""
BUILD_SECONDS = 60
"""What any of these takes that is the first to run."""
CHOICES = "*.tiles"
"""Files of what searches have chosen, named by the sources on disk, of which a mutant is none."""
Found = tuple[int, dict[str, float], str]
"""What a run of tests says: pytest's exit code, the seconds of each test, the first failure.

No class of this module: forks have left its package for the one in the tree.
"""
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Baseline:
    """One clean run of a room's tests: seconds of each, and which of them execute a line."""

    seconds: dict[str, float]
    tests_of: dict[tuple[str, int], frozenset[str]]

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that execute the mutant's line, the quickest first.

        A line that runs while modules are imported belongs to all of them.
        """
        tests = self.tests_of.get((mutant.module, mutant.line), frozenset())
        shared = BUILT_ONCE.get(mutant.room, ())
        if any(name in test for test in tests for name in shared):
            tests |= {test for test in self.seconds if any(name in test for name in shared)}
        chosen = self.seconds if "" in tests else tests
        here = [t for t in chosen if t in self.seconds]
        return sorted(here, key=lambda test: self.cost(mutant.room, test))

    def cost(self, room: str, test: str) -> float:
        """Seconds of a test that is the first to run."""
        builds = any(name in test for name in BUILT_ONCE.get(room, ()))
        return self.seconds[test] + BUILD_SECONDS * builds

    def runs_at_import(self, mutant: Mutant) -> bool:
        """Whether the mutant's line is executed while tests are collected."""
        return "" in self.tests_of.get((mutant.module, mutant.line), frozenset())

    def facts(self) -> dict[str, Any]:
        """The baseline as values of JSON."""
        lines = [(*place, sorted(tests)) for place, tests in self.tests_of.items()]
        return {"seconds": self.seconds, "lines": lines}

    @classmethod
    def of_facts(cls, facts: dict[str, Any]) -> Baseline:
        """The baseline of such values."""
        lines = {(module, line): frozenset(tests) for module, line, tests in facts["lines"]}
        return cls(facts["seconds"], lines)

    def without(self, files: Collection[str]) -> Baseline:
        """The baseline but for the tests of some files."""

        def left(test: str) -> bool:
            return test.split("::")[0] not in files

        seconds = {test: taken for test, taken in self.seconds.items() if left(test)}
        lines = {place: frozenset(filter(left, tests)) for place, tests in self.tests_of.items()}
        return Baseline(seconds, lines)

    def beside(self, other: Baseline) -> Baseline:
        """The tests of both."""
        nothing: frozenset[str] = frozenset()
        lines = {
            place: self.tests_of.get(place, nothing) | other.tests_of.get(place, nothing)
            for place in {**self.tests_of, **other.tests_of}
        }
        return Baseline(self.seconds | other.seconds, lines)

    def limits(self, room: str, tests: list[str]) -> dict[str, int]:
        """Seconds after which each of a mutant's tests is taken to loop for ever."""
        return {test: round(3 * self.cost(room, test)) + SLACK_SECONDS for test in tests}


NO_TESTS = Baseline({}, {})
"""The baseline of no test."""


class _Recorder:
    """A pytest plug-in: seconds of each test, the first one that failed, and an end to each."""

    def __init__(self, limits: Mapping[str, int] | None = None) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed = ""
        self._limits = limits or {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        signal.alarm(self._limits.get(nodeid, 0))  # ends the process where nothing handles it

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed and not self.failed:
            self.failed = report.nodeid


def _pytest(tree: Path, options: list[str], *plugins: Any) -> int:
    """Run pytest in the tree, in a process that was forked for it."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.chdir(tree)
    sys.path[:] = [str(tree), *(p for p in sys.path if Path(p or ".").resolve() != ROOT)]
    sys.dont_write_bytecode = True
    for name in [n for n in sys.modules if n.split(".")[0] in NEW]:
        del sys.modules[name]
    import pytest

    return int(pytest.main(["-q", "-p", "no:cacheprovider", *options], plugins=list(plugins)))


def _anew(tree: Path, options: list[str], limits: Mapping[str, int], answer: Connection) -> None:
    """Run pytest and send what it found."""
    recorder = _Recorder(limits)
    code = _pytest(tree, options, recorder)
    answer.send((code, dict(recorder.seconds), recorder.failed))


def answered(limit: float | None, run: Callable[..., None], *given: Any) -> Found | None:
    """What ``run(*given, answer)`` sends from a process of its own, None when the time is over."""
    receive, send = FORK.Pipe(duplex=False)
    process = FORK.Process(target=run, args=(*given, send))
    process.start()
    send.close()
    try:
        if not receive.poll(limit):
            return None
        found: Found = receive.recv()
        return found
    except EOFError:  # the process died: a crash inside TVM is noticed as well
        process.join()
        return None if process.exitcode == -signal.SIGALRM else (1, {}, "(the process died)")
    finally:
        process.kill()
        process.join()
        receive.close()


# ---------------------------------------------------------------- the process that has collected
class _Forks:
    """A pytest plug-in: instead of a run of all tests, one of some for each mutant asked for."""

    def __init__(self, asked: Connection) -> None:
        self._asked = asked

    def pytest_runtestloop(self, session: Any) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.freeze()
        self._asked.send("ready")
        while (work := self._asked.recv()) is not None:
            path, changed, limits = work
            chosen = [items[test] for test in limits]
            self._asked.send(answered(None, _changed_run, path, changed, chosen, limits))
        return True


def _changed_run(
    path: str, changed: str, items: list[Any], limits: Mapping[str, int], answer: Connection
) -> None:
    """In a fork: give the module's functions their changed code and run tests until one fails.

    It searches by itself: what the unchanged module, or the mutant before, has chosen is forgotten.
    """
    for chosen in Path(os.environ[CACHE_VARIABLE]).glob(CHOICES):
        chosen.unlink()
    for function, code in changed_functions(path, changed):
        function.__code__ = code
    recorder = _Recorder(limits)
    items[0].config.pluginmanager.register(recorder)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if recorder.failed:
            break
    answer.send((int(bool(recorder.failed)), dict(recorder.seconds), recorder.failed))


def changed_functions(path: str, changed: str) -> list[tuple[FunctionType, CodeType]]:
    """Every function of the module at ``path`` that exists, with its code in ``changed``."""
    parsed = compile(changed, path, "exec", dont_inherit=True)
    new = {_key(code): code for code in _codes(parsed)}
    found = [
        thing
        for thing in _functions()
        if thing.__code__.co_filename == path and _key(thing.__code__) in new
    ]
    return [(function, new[_key(function.__code__)]) for function in found]


def _functions() -> list[FunctionType]:
    gc.unfreeze()
    return [thing for thing in gc.get_objects() if isinstance(thing, FunctionType)]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of every function of a module, however deep."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _key(code: CodeType) -> tuple[str, int, tuple[str, ...]]:
    return code.co_name, code.co_firstlineno, code.co_freevars


def only_functions_differ(source: str, changed: str) -> bool:
    """Whether a change of a module lies in functions that the module defines and does not call.

    The code of the module itself, and of its classes' bodies, must be the same but for the
    functions in it, and every function must be told from the others by name and line.
    """
    old, new = (compile(text, "x", "exec", dont_inherit=True) for text in (source, changed))
    keys = [_key(code) for code in _codes(old)]
    told = len({key[:2] for key in keys}) == len(keys)
    return told and keys == [_key(code) for code in _codes(new)] and _same_outside(old, new)


def _same_outside(old: CodeType, new: CodeType) -> bool:
    """Whether two bodies of a module or class do the same, but for the functions they define."""
    if (old.co_code, old.co_names) != (new.co_code, new.co_names):
        return False
    return len(old.co_consts) == len(new.co_consts) and all(
        _same_constant(left, right)
        for left, right in zip(old.co_consts, new.co_consts, strict=True)
    )


OPTIMIZED = 1
"""`CO_OPTIMIZED`: set in the code of functions, not in the bodies of classes."""


def _same_constant(left: Any, right: Any) -> bool:
    if isinstance(left, CodeType) and isinstance(right, CodeType):
        return bool(left.co_flags & OPTIMIZED) or _same_outside(left, right)
    return type(left) is type(right) and bool(left == right)


class Collected:
    """A room's tests, collected once in a process that forks for each mutant."""

    def __init__(self, tree: Path, tests: str) -> None:
        self._ours, theirs = FORK.Pipe()
        self._process = FORK.Process(target=_collect, args=(tree, tests, theirs))
        self._process.start()
        theirs.close()
        if self._ours.recv() != "ready":
            raise SystemExit(f"the tests of {tests} cannot be collected")

    def run(self, path: Path, changed: str, limits: Mapping[str, int]) -> Found | None:
        """Run tests, each within its seconds, on the changed module; None when a time is over."""
        self._ours.send((str(path), changed, limits))
        found: Found | None = self._ours.recv()
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _collect(tree: Path, tests: str, asked: Connection) -> None:
    _pytest(tree, ["--hypothesis-seed=0", tests], _Forks(asked))


# ---------------------------------------------------------------- one clean run
def baseline(room: str, tree: Path, tests: Sequence[str]) -> Baseline:
    """Run tests of a room once, unchanged, with coverage of each test."""
    settings = tree / "coverage.ini"
    sources = [ROOMS[room][0], *FACADES[room]]
    settings.write_text(
        f"[run]\ndata_file = {tree}/coverage-{room}\ninclude =\n"
        + "".join(
            f"    {tree / name}{'' if name.endswith('.py') else '/**/*.py'}\n" for name in sources
        ),
        encoding="utf-8",
    )
    options = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report=", *tests]
    found = answered(None, _anew, tree, options, {})
    if found is None or found[0]:
        first = found[2] if found is not None else ""
        raise SystemExit(
            f"the tests of {room} fail unchanged ({first}): run pytest {' '.join(tests)}"
        )
    return Baseline(found[1], dict(_coverage(tree, tree / f"coverage-{room}")))


def _coverage(tree: Path, data: Path) -> Iterator[tuple[tuple[str, int], frozenset[str]]]:
    import coverage

    try:
        found = coverage.CoverageData(str(data))
        found.read()
    except sqlite3.Error as error:
        raise SystemExit(f"{data}: {error}") from error
    for name in found.measured_files():
        relative = Path(name).relative_to(tree).as_posix()
        for line, contexts in found.contexts_by_lineno(name).items():
            yield (relative, line), frozenset(context.split("|")[0] for context in contexts)


# ---------------------------------------------------------------- one mutant
Alike = Callable[[Mutant, str], bool]
"""Whether a mutant, with the text of its module, is proved to do what the unchanged module does."""


def outcome(
    mutant: Mutant,
    tree: Path,
    known: Baseline,
    collected: Collected,
    alike: Alike | None = None,
    files: Collection[str] | None = None,
) -> tuple[str, str]:
    """What became of a mutant, and the test that noticed it; one of some `files` where given."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    tests, path = known.of(mutant), tree / mutant.module
    if not tests:
        return "uncovered", ""
    if files is not None:
        tests = [test for test in tests if test.split("::")[0] in files]
    source = path.read_text(encoding="utf-8")
    changed = mutate_code(source, get_operator(f"core/{mutant.operator}")(), mutant.occurrence)
    forks = only_functions_differ(source, changed) and not known.runs_at_import(mutant)
    limits = known.limits(mutant.room, tests)
    seconds = QUICK_SECONDS + (0 if WIDTH.search(mutant.before) else BUILD_SECONDS)
    quick = {t: n for t, n in limits.items() if known.cost(mutant.room, t) < seconds}
    for some in (quick, {t: n for t, n in limits.items() if t not in quick}):
        if some is not quick and alike is not None and alike(mutant, changed):
            return "equivalent", ""
        if not some:
            continue
        if forks:
            found = collected.run(path, changed, some)
        else:
            found = _changed_on_disk(tree, path, (source, changed), some)
        if found is None:
            return "timeout", ""
        code, _, failed = found
        if code:
            return "killed", failed or "(import)"
    return "survived", ""


def _changed_on_disk(
    tree: Path, path: Path, texts: tuple[str, str], limits: Mapping[str, int]
) -> Found | None:
    path.write_text(texts[1], encoding="utf-8")
    options = ["-x", "--hypothesis-seed=0", *limits]
    try:
        return answered(sum(limits.values()) + SLACK_SECONDS, _anew, tree, options, limits)
    finally:
        path.write_text(texts[0], encoding="utf-8")
