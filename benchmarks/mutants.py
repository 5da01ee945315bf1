"""Whether a room's own tests notice a wrong token: mutants of the compiler and of the core.

    python benchmarks/mutants.py                           # 300 mutants of all rooms
    python benchmarks/mutants.py --only codegen --count 50
    python benchmarks/mutants.py --only rtl --count 100    # the core's control (extra rtl, too)
    python benchmarks/mutants.py --seed 2 --json
    python benchmarks/mutants.py --log build/mutants --minutes 8    # again and again: goes on

With `--log` a run keeps the tree that it changes, what each test executes and every verdict in a
folder, and a later run with the same arguments goes on where it ended.

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

import contextlib
import json
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks._figures import Figure, arguments, report  # noqa: E402
from benchmarks._mutant_places import ROOMS, Mutant, drawn  # noqa: E402
from benchmarks._mutant_runs import Baseline, Collected, baseline, outcome  # noqa: E402
from vta_byoc.hw.cache import CACHE_VARIABLE  # noqa: E402

EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: killed, timeout, survived, or uncovered."""

    mutant: Mutant
    outcome: str
    test: str = ""
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        return self.outcome in ("killed", "timeout")


class Log:
    """A folder in which a run that ends early leaves what it knows."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.tree = folder, folder / "tree"
        if not self.tree.exists():
            copied(self.tree)

    def chosen(self, rooms: Sequence[str], count: int, seed: int) -> list[Mutant]:
        """The mutants of these arguments, drawn from the tree as it was at first."""
        path = self._folder / f"drawn-{'-'.join(rooms)}-{count}-{seed}.pickle"
        if not path.exists():
            path.write_bytes(pickle.dumps(list(drawn(rooms, count, seed, self.tree))))
        found: list[Mutant] = pickle.loads(path.read_bytes())
        return found

    def baseline(self, room: str) -> Baseline:
        """What the room's tests execute, found out once."""
        path = self._folder / f"{room}.pickle"
        if not path.exists():
            print(f"{room}: its tests, unchanged ...", file=sys.stderr, flush=True)
            path.write_bytes(pickle.dumps(baseline(room, self.tree)))
        found: Baseline = pickle.loads(path.read_bytes())
        return found

    def known(self) -> dict[Mutant, Verdict]:
        """The verdicts of earlier runs."""
        path = self._folder / "verdicts.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        read = [{**json.loads(line)} for line in lines]
        found = [Verdict(**{**given, "mutant": Mutant(**given["mutant"])}) for given in read]
        return {verdict.mutant: verdict for verdict in found}

    def keep(self, verdict: Verdict) -> None:
        """Write down a verdict."""
        with (self._folder / "verdicts.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(verdict)) + "\n")


def copied(target: Path) -> Path:
    """The project as it installs, `hw/` inside its package, where modules may be changed."""
    ignore = shutil.ignore_patterns("__pycache__", ".*", "build", "*.egg-info")
    shutil.copytree(ROOT, target, ignore=ignore)
    shutil.copytree(ROOT / "hw", target / "vta_byoc" / "hw", ignore=ignore)
    return target


def verdicts(chosen: Sequence[Mutant], log: Log, minutes: float | None = None) -> Iterator[Verdict]:
    """Try the mutants, room by room; those of earlier runs first, then as many as fit."""
    known, end = log.known(), time.monotonic() + 60 * (minutes or float("inf"))
    yield from (known[mutant] for mutant in chosen if mutant in known)
    left = [mutant for mutant in chosen if mutant not in known]
    for room in dict.fromkeys(mutant.room for mutant in left):
        if time.monotonic() > end:
            return
        clean, collected = log.baseline(room), Collected(log.tree, ROOMS[room][1])
        with contextlib.closing(collected):
            for mutant in (m for m in left if m.room == room):
                if time.monotonic() > end:
                    return
                verdict = Verdict(mutant, *outcome(mutant, log.tree, clean, collected))
                log.keep(verdict)
                said = f"{verdict.outcome} {verdict.seconds:.1f} s {mutant.text} {verdict.test}"
                print(said, file=sys.stderr, flush=True)
                yield verdict


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
    parser.add_argument("--minutes", type=float, help="try no more mutants after so long")
    parser.add_argument("--log", type=Path, help="folder of what is known, to go on later")
    args = parser.parse_args()
    import tvm  # noqa: F401  imported once, before the processes fork

    with tempfile.TemporaryDirectory(prefix="vta-mutants-") as folder:
        log = Log((args.log or Path(folder)).resolve())
        # Cores of mutants would crowd out those that are kept.
        os.environ[CACHE_VARIABLE] = str(Path(folder).resolve() / "cache")
        chosen = log.chosen(args.only or list(ROOMS), args.count, args.seed)
        found = list(verdicts(chosen, log, args.minutes))
    survivors = [v for v in found if not v.killed]
    known = reasons()
    for verdict in survivors if not args.json else ():
        why = known.get(_key(verdict.mutant), "")
        print(f"{verdict.outcome}: {verdict.mutant.text}{why and f'  (equivalent: {why})'}")
    figures = [f for room in args.only or ROOMS for f in figures_of(room, found)]
    return report("mutants", figures, args.json, survivors=[asdict(v) for v in survivors])


if __name__ == "__main__":
    sys.exit(main())
