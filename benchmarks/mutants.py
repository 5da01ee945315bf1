"""Whether a room's own tests notice a wrong token: mutants of the compiler and of the core.

    python benchmarks/mutants.py                           # 300 mutants of all rooms
    python benchmarks/mutants.py --only codegen --count 50
    python benchmarks/mutants.py --only rtl --count 100    # the core's control (extra rtl, too)
    python benchmarks/mutants.py --seed 2 --json
    python benchmarks/mutants.py --only rtl --minutes 8 --log build/mutants   # goes on where it was

The mutants are cosmic-ray's, one token each: an operator, a comparison, a number, a condition.
They are drawn with a seed from all that a room has, in proportion to its number.  A mutant runs the
tests that stand beside its room and execute its line (coverage of one clean run tells which), the
quickest first, until one fails.  A line that no test of the room executes is a survivor too.

Not among the mutants are tokens that no correct program shows: annotations, which are strings here;
assertions and the `strict` of a `zip`, which hold for every input and are there to stop a wrong
compiler; the size of a cache, which changes no result.

Figures of each room: `ROOM.tried`, `ROOM.killed_share` (target: at least 0.9), `ROOM.equivalent`.
Survivors that no test can notice are named with the reason in `benchmarks/equivalent_mutants.json`;
they still count as tried.
Needs the extra `mutants`.
A room at a time is recorded by `benchmarks/record.py mutants -- --only ROOM --count N`.
"""

from __future__ import annotations

import ast
import itertools
import json
import multiprocessing
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks._figures import Figure, arguments, report  # noqa: E402
from benchmarks._kept_verdicts import NOTHING_KEPT, Kept, digest_of  # noqa: E402
from vta_byoc.hw.cache import CACHE_VARIABLE  # noqa: E402

ROOMS = {
    "codegen": ("vta_byoc/codegen", "tests/codegen"),
    "strategies": ("vta_byoc/strategies", "tests/strategies"),
    "packing": ("vta_byoc/workload", "tests/workload"),
    "quantization": ("vta_byoc/quantization", "tests/quantization"),
    "rtl": ("vta_byoc/hw/rtl", "tests/hw/rtl"),
}
"""Room: folder of its modules, folder of its tests."""
FACADES = {
    "codegen": (),
    "strategies": ("vta_byoc/strategy.py",),
    "packing": ("vta_byoc/graph_pack.py",),
    "quantization": ("vta_byoc/quantize.py",),
    "rtl": (),
}
"""What stands above a room under its own name."""
BUILT_ONCE = {"rtl": ("test_core_device.py", "test_core_lockstep.py")}
"""Tests of a room that share what its modules build in the first of them: coverage gives the lines
to that one, and a wrong one may be noticed by any."""
CONTROL = (
    *("assembler", "axi_core", "axi_lite", "bursts", "compute", "core", "fetch", "fields"),
    *("loader", "loops", "read_channel", "registers", "sequencer", "storer", "tokens"),
)
"""Modules of the room "rtl" that are mutated: the core's control, not what builds and runs it."""
OPERATORS = (
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_FloorDiv",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mod_FloorDiv",
    "ReplaceBinaryOperator_LShift_RShift",
    "ReplaceBinaryOperator_RShift_LShift",
    "ReplaceBinaryOperator_BitAnd_BitOr",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceUnaryOperator_USub_UAdd",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "NumberReplacer",
    "AddNot",
    "ZeroIterationForLoop",
)
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
SLACK_SECONDS = 60
"""Beside three times what the tests take unchanged: a mutant may loop for ever."""


@dataclass(frozen=True)
class Mutant:
    """One token of a module replaced."""

    room: str
    module: str
    line: int
    operator: str
    occurrence: int
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.module}:{self.line} {self.operator}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: killed, timeout, survived, or uncovered."""

    mutant: Mutant
    outcome: str
    test: str = ""

    @property
    def killed(self) -> bool:
        return self.outcome in ("killed", "timeout")


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
        return sorted((t for t in chosen if t in self.seconds), key=lambda t: self.seconds[t])

    def facts(self) -> dict[str, Any]:
        """The baseline as values of JSON."""
        lines = [(*place, sorted(tests)) for place, tests in self.tests_of.items()]
        return {"seconds": self.seconds, "lines": lines}

    @classmethod
    def of_facts(cls, facts: dict[str, Any]) -> Baseline:
        """The baseline of such values."""
        lines = {(module, line): frozenset(tests) for module, line, tests in facts["lines"]}
        return cls(facts["seconds"], lines)


def modules(room: str, tree: Path) -> list[Path]:
    """The modules of a room, those that stand above it included."""
    folder, _ = ROOMS[room]
    found = [*sorted((tree / folder).rglob("*.py")), *(tree / name for name in FACADES[room])]
    return [path for path in found if room != "rtl" or path.stem in CONTROL]


@dataclass(frozen=True)
class Place:
    """Where a token can be replaced: which of the operator's places in the module."""

    room: str
    module: str
    line: int
    operator: str
    occurrence: int


def places(room: str, tree: Path) -> Iterator[Place]:
    """Every place of a room where an operator finds a token."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    for path in modules(room, tree):
        source = path.read_text(encoding="utf-8")
        parsed, ignored = get_ast(source), _without_effect(source)
        nodes, where = list(ast_nodes(parsed)), path.relative_to(tree).as_posix()
        for name in OPERATORS:
            operator = get_operator(f"core/{name}")()
            found = (p for node in nodes for p in operator.mutation_positions(node))
            for occurrence, ((line, column), _) in enumerate(found):
                if not any(first <= (line, column) < last for first, last in ignored):
                    yield Place(room, where, line, name, occurrence)


def mutant_at(place: Place, tree: Path) -> Mutant | None:
    """The mutant of a place, None where the operator changes nothing that is compiled."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = (tree / place.module).read_text(encoding="utf-8")
    operator = get_operator(f"core/{place.operator}")()
    changed = mutate_code(source, operator, place.occurrence)
    before, after = _changed_line(source, changed, place.line)
    return Mutant(**asdict(place), before=before, after=after) if before != after else None


def _without_effect(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where a token changes nothing that a correct program shows."""
    found: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for node in ast.walk(ast.parse(source)):
        for given in _silent(node):
            last = (given.end_lineno or 0, given.end_col_offset or 0)
            found.append(((given.lineno, given.col_offset), last))
    return found


def _silent(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The parts of ``node`` that say what holds, or how fast, and not what to compute."""
    for kind in ("annotation", "returns"):
        given = getattr(node, kind, None)
        if isinstance(given, ast.expr):
            yield given
    if isinstance(node, ast.Assert):
        yield node
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if (ast.unparse(node.func), keyword.arg) in (
                ("zip", "strict"),
                ("functools.lru_cache", "maxsize"),
            ):
                yield keyword.value


def _changed_line(source: str, changed: str, line: int) -> tuple[str, str]:
    before, after = source.splitlines(), changed.splitlines()
    for left, right in zip(before[line - 1 :], after[line - 1 :], strict=False):
        if left != right:
            return left.strip(), right.strip().replace("[ ", "[").replace("( ", "(")
    return "", ""


def drawn(rooms: Sequence[str], count: int, seed: int, tree: Path) -> Iterator[Mutant]:
    """``count`` mutants of the rooms, in proportion to how many each has; the seed decides.

    Only those that are drawn are made: a mutant is a module parsed and written again.
    """
    every = {room: list(places(room, tree)) for room in rooms}
    total, chosen = sum(map(len, every.values())), random.Random(seed)
    for of_room in every.values():
        share = round(count * len(of_room) / total)
        order = chosen.sample(of_room, len(of_room))
        made = (mutant_at(place, tree) for place in order)
        yield from itertools.islice(filter(None, made), share)


class _Recorder:
    """A pytest plug-in: seconds of each test that passed, the first one that failed."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed and not self.failed:
            self.failed = report.nodeid


def _pytest(tree: Path, options: list[str], answer: Any) -> None:
    """In a process of its own: run pytest in the tree and send what it found."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.chdir(tree)
    sys.path[:] = [str(tree), *(p for p in sys.path if Path(p or ".").resolve() != ROOT)]
    sys.dont_write_bytecode = True
    for name in [n for n in sys.modules if n.split(".")[0] in ("vta_byoc", "benchmarks", "models")]:
        del sys.modules[name]
    import pytest

    recorder = _Recorder()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *options], plugins=[recorder])
    answer.send((int(code), dict(recorder.seconds), recorder.failed))


def _run(
    tree: Path, options: list[str], limit: float | None
) -> tuple[int, dict[str, float], str] | None:
    """Exit code, seconds of each test and the first failed one; None when the time is over."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_pytest, args=(tree, options, send))
    process.start()
    send.close()
    try:
        if not receive.poll(limit):
            return None
        found: tuple[int, dict[str, float], str] = receive.recv()
        return found
    except EOFError:  # the process died: a crash inside TVM is noticed as well
        return 1, {}, "(the process died)"
    finally:
        process.kill()
        process.join()


def baseline(room: str, tree: Path) -> Baseline:
    """Run a room's tests once, unchanged, with coverage of each test."""
    _, tests = ROOMS[room]
    settings = tree / "coverage.ini"
    sources = [ROOMS[room][0], *FACADES[room]]
    settings.write_text(
        f"[run]\ndata_file = {tree}/coverage-{room}\ninclude =\n"
        + "".join(
            f"    {tree / name}{'' if name.endswith('.py') else '/**/*.py'}\n" for name in sources
        ),
        encoding="utf-8",
    )
    options = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report=", tests]
    found = _run(tree, options, None)
    if found is None or found[0]:
        raise SystemExit(f"the tests of {room} fail unchanged: run pytest {tests}")
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


def tried(mutant: Mutant, tree: Path, known: Baseline) -> Verdict:
    """Run the tests that execute the mutant's line on the changed module."""
    from cosmic_ray.mutating import use_mutation
    from cosmic_ray.plugins import get_operator

    tests = known.of(mutant)
    if not tests:
        return Verdict(mutant, "uncovered")
    limit = 3 * sum(known.seconds[test] for test in tests) + SLACK_SECONDS
    operator = get_operator(f"core/{mutant.operator}")()
    with use_mutation(tree / mutant.module, operator, mutant.occurrence):
        found = _run(tree, ["-x", "--hypothesis-seed=0", *tests], limit)
    if found is None:
        return Verdict(mutant, "timeout")
    code, _, failed = found
    return Verdict(mutant, "killed", failed or "(import)") if code else Verdict(mutant, "survived")


def copied(target: Path) -> Path:
    """The project as it installs, `hw/` inside its package, where modules may be changed."""
    ignore = shutil.ignore_patterns("__pycache__", ".*", "build", "*.egg-info")
    shutil.copytree(ROOT, target, ignore=ignore)
    shutil.copytree(ROOT / "hw", target / "vta_byoc" / "hw", ignore=ignore)
    return target


def state_of(room: str, tree: Path) -> str:
    """A digest of a room's modules and tests."""
    _, tests = ROOMS[room]
    return digest_of([*modules(room, tree), *(tree / tests).rglob("*.py")])


def verdicts(
    chosen: Iterable[Mutant], tree: Path, minutes: float | None = None, kept: Kept = NOTHING_KEPT
) -> Iterator[Verdict]:
    """Try the mutants, room by room; of each room as many as fit into ``minutes``."""
    known: dict[str, Baseline] = {}
    end: dict[str, float] = {}
    states: dict[str, str] = {}
    for number, mutant in enumerate(chosen, 1):
        room = mutant.room
        if room not in known:
            end[room] = time.monotonic() + 60 * (minutes or float("inf"))
            states[room] = state_of(room, tree)
            known[room] = kept_baseline(room, tree, states[room], kept)
        module = digest_of([tree / mutant.module])
        found = kept.verdict(asdict(mutant), module, states[room])
        if found is not None:
            yield Verdict(mutant, found["outcome"], found["test"])
            continue
        if time.monotonic() > end[room]:
            continue
        verdict = tried(mutant, tree, known[room])
        kept.keep_verdict(asdict(mutant), module, states[room], verdict.outcome, verdict.test)
        print(
            f"{number} {verdict.outcome} {mutant.text} {verdict.test}", file=sys.stderr, flush=True
        )
        yield verdict


def kept_baseline(room: str, tree: Path, state: str, kept: Kept) -> Baseline:
    """The baseline of a room, from an earlier run where its files are as they were."""
    facts = kept.baseline(room, state)
    if facts is not None:
        return Baseline.of_facts(facts)
    print(f"{room}: its tests, unchanged ...", file=sys.stderr, flush=True)
    made = baseline(room, tree)
    kept.keep_baseline(room, state, made.facts())
    return made


def reasons() -> dict[str, str]:
    """Why no test can notice a mutant, by its module, line and change without the line's number."""
    found: dict[str, str] = json.loads(EQUIVALENT.read_text(encoding="utf-8"))
    return found


def _key(mutant: Mutant) -> str:
    return f"{mutant.module}: {mutant.before} -> {mutant.after}"


def figures_of(room: str, found: Sequence[Verdict]) -> Iterator[Figure]:
    """What the tests of a room are worth: its mutants tried, killed, and known as equivalent."""
    tried_here = [v for v in found if v.mutant.room == room]
    if not tried_here:
        return
    survivors, known = [v for v in tried_here if not v.killed], reasons()
    share = 1 - len(survivors) / len(tried_here)
    equivalent = sum(_key(v.mutant) in known for v in survivors)
    yield Figure(f"{room}.tried", len(tried_here), "mutants")
    yield Figure(f"{room}.killed_share", share, "", target=0.9, ok=share >= 0.9)
    yield Figure(f"{room}.equivalent", equivalent, "survivors")


def main() -> int:
    parser = arguments("Mutants of the compiler and the core that the tests of their room notice.")
    parser.add_argument(
        "--only", nargs="+", metavar="ROOM", choices=ROOMS, help="these rooms (default: all)"
    )
    parser.add_argument("--count", type=int, default=300, help="mutants in all (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="which are drawn (default 0)")
    parser.add_argument("--minutes", type=float, help="try no more of a room's after so long")
    parser.add_argument(
        "--log", type=Path, metavar="FOLDER", help="go on from what is kept there, and keep it"
    )
    args = parser.parse_args()
    import tvm  # noqa: F401  imported once, before the processes fork

    with tempfile.TemporaryDirectory(prefix="vta-mutants-") as folder:
        tree = copied(Path(folder).resolve() / "tree")
        # Cores of mutants would crowd out those that are kept.
        os.environ[CACHE_VARIABLE] = str(Path(folder).resolve() / "cache")
        chosen = drawn(args.only or list(ROOMS), args.count, args.seed, tree)
        found = list(verdicts(chosen, tree, args.minutes, Kept(args.log)))
    survivors = [v for v in found if not v.killed]
    known = reasons()
    for verdict in survivors if not args.json else ():
        why = known.get(_key(verdict.mutant), "")
        print(f"{verdict.outcome}: {verdict.mutant.text}{why and f'  (equivalent: {why})'}")
    figures = [f for room in args.only or ROOMS for f in figures_of(room, found)]
    return report("mutants", figures, args.json, survivors=[asdict(v) for v in survivors])


if __name__ == "__main__":
    sys.exit(main())
