"""Whether a room's own tests notice a wrong token: mutants of the compiler and of the core.

    python benchmarks/mutants.py                           # 300 mutants of all rooms
    python benchmarks/mutants.py --only codegen --count 50
    python benchmarks/mutants.py --only rtl --count 100    # the core's control (extra rtl, too)
    python benchmarks/mutants.py --seed 2 --json
    python benchmarks/mutants.py --only rtl --minutes 8 --log build/mutants   # goes on where it was

The mutants are cosmic-ray's, one token each: an operator, a comparison, a number, a condition.
They are drawn with a seed from all that a room has, in proportion to its number.  A mutant runs the
tests that stand beside its room and execute its line (coverage of one clean run tells which), the
quickest first, until one fails; `_mutant_runs.py` says in which processes.  A line that no test of
the room executes is a survivor too.

Not among the mutants are tokens that no correct program shows: annotations, which are strings here;
assertions and the `strict` of a `zip`, which hold for every input and are there to stop a wrong
compiler; the size of a cache, which changes no result.

Figures of each room: `ROOM.tried`, `ROOM.killed_share` (target: at least 0.9), `ROOM.equivalent`.
Survivors that no test can notice are named with the reason in `benchmarks/equivalent_mutants.json`;
they still count as tried.  Of the core they do not: `rtl.killed` of those that change what it does
(target: all), `rtl.proved_equivalent` with the same netlist (`_core_netlist.py`, before tests that
take long), `rtl.equivalent` by a reason.
Needs the extra `mutants`.
A room at a time is recorded by `benchmarks/record.py mutants -- --only ROOM --count N`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks._core_netlist import ProvedAlike  # noqa: E402
from benchmarks._figures import Figure, arguments, report  # noqa: E402
from benchmarks._kept_verdicts import NOTHING_KEPT, Kept, State, digest_of  # noqa: E402
from benchmarks._mutant_places import ROOMS, Mutant, drawn, modules  # noqa: E402
from benchmarks._mutant_runs import BUILT_ONCE, NO_TESTS, Baseline, Collected, baseline, outcome  # noqa: E402
from vta_byoc.hw.cache import CACHE_VARIABLE, OFF  # noqa: E402

EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
PROVED = ("rtl",)
"""Rooms of whose mutants it is proved, where netlists show it, that they change nothing."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: killed, timeout, survived, uncovered, or (proved) equivalent."""

    mutant: Mutant
    outcome: str
    test: str = ""

    @property
    def killed(self) -> bool:
        return self.outcome in ("killed", "timeout")


def copied(target: Path) -> Path:
    """The project as it installs, `hw/` inside its package, where modules may be changed."""
    ignore = shutil.ignore_patterns("__pycache__", ".*", "build", "*.egg-info")
    shutil.copytree(ROOT, target, ignore=ignore)
    shutil.copytree(ROOT / "hw", target / "vta_byoc" / "hw", ignore=ignore)
    return target


def unoptimized(tree: Path) -> Path:
    """A compiler for cores that run a few thousand cycles each: they are built in half the time."""
    path = tree / "unoptimized-compiler"
    compiler = os.environ.get("CXX", "g++")
    path.write_text(f'#!/bin/sh\nexec {compiler} "$@" -O0\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def state_of(room: str, tree: Path) -> State:
    """Digests of a room's modules and tests."""
    tests = sorted((tree / ROOMS[room][1]).rglob("*.py"))
    files = {path.relative_to(tree).as_posix(): digest_of([path]) for path in tests}
    return State(digest_of(modules(room, tree)), files)


def verdicts(
    chosen: Iterable[Mutant], tree: Path, minutes: float | None = None, kept: Kept = NOTHING_KEPT
) -> Iterator[Verdict]:
    """Try the mutants, room by room; of each room as many as fit into ``minutes``."""
    for room, of_room in itertools.groupby(chosen, lambda mutant: mutant.room):
        yield from _of_room(room, list(of_room), tree, minutes, kept)


def _of_room(
    room: str, chosen: Sequence[Mutant], tree: Path, minutes: float | None, kept: Kept
) -> Iterator[Verdict]:
    if room in BUILT_ONCE:  # what was built of the unchanged modules is not to be found
        os.environ[CACHE_VARIABLE] = OFF
        os.environ["CXX"] = str(unoptimized(tree))
    end, state = time.monotonic() + 60 * (minutes or float("inf")), state_of(room, tree)
    left: list[tuple[Mutant, list[str] | None]] = []
    for mutant in chosen:
        found = kept.verdict(asdict(mutant), digest_of([tree / mutant.module]), state)
        open_ = found is not None and found["outcome"] in ("survived", "uncovered")
        changed = state.changed(found["files"]) if found is not None and open_ else []
        if found is None or changed:
            left.append((mutant, None if found is None else changed))
        else:
            yield Verdict(mutant, found["outcome"], found["test"])
    if not left:
        return
    clean = kept_baseline(room, tree, state, kept)
    alike = ProvedAlike(tree) if room in PROVED else None
    with contextlib.closing(Collected(tree, ROOMS[room][1])) as collected:
        for number, (mutant, files) in enumerate(left, len(chosen) - len(left) + 1):
            if time.monotonic() > end:
                return
            verdict = Verdict(mutant, *outcome(mutant, tree, clean, collected, alike, files))
            module = digest_of([tree / mutant.module])
            kept.keep_verdict(asdict(mutant), module, state, verdict.outcome, verdict.test)
            said = f"{number} {verdict.outcome} {mutant.text} {verdict.test}"
            print(said, file=sys.stderr, flush=True)
            yield verdict


def kept_baseline(room: str, tree: Path, state: State, kept: Kept) -> Baseline:
    """The baseline of a room, of an earlier run but for the test files that have changed."""
    facts = kept.baseline(room, state)
    if facts is None:
        return _new_baseline(room, tree, [ROOMS[room][1]], state, kept)
    before, changed = Baseline.of_facts(facts), state.changed(facts["files"])
    which = [name for name in changed if name in state.files and "/test_" in name]
    left = before.without(changed)
    return _new_baseline(room, tree, which, state, kept, left) if which else left


def _new_baseline(
    room: str, tree: Path, which: list[str], state: State, kept: Kept, beside: Baseline = NO_TESTS
) -> Baseline:
    print(f"{room}: its tests, unchanged ...", file=sys.stderr, flush=True)
    made = beside.beside(baseline(room, tree, which))
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
    proved = sum(v.outcome == "equivalent" for v in survivors)
    named = sum(v.outcome != "equivalent" and _key(v.mutant) in known for v in survivors)
    yield Figure(f"{room}.tried", len(tried_here), "mutants")
    if room not in PROVED:
        yield Figure(f"{room}.killed_share", share, "", target=0.9, ok=share >= 0.9)
        yield Figure(f"{room}.equivalent", named, "survivors")
        return
    killed, changing = len(tried_here) - len(survivors), len(tried_here) - proved - named
    yield Figure(
        f"{room}.killed", killed, "mutants", baseline=changing, baseline_name="that change"
    )
    share = killed / changing
    yield Figure(f"{room}.killed_share", share, "", target=1.0, ok=share == 1)
    yield Figure(f"{room}.proved_equivalent", proved, "mutants")
    yield Figure(f"{room}.equivalent", named, "survivors")


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
