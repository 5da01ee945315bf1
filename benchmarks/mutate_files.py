"""Damaged ONNX and TFLite files: every one ends in a result or in one line that says what is wrong.

`place` looks at each file and `run` at one in --run-every, in a process of their own with limited
memory and time. Exit 3 is a bug; so are a process that dies, one that does not end, and one that
asks for more memory than the limit before it is refused.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from benchmarks._mutations import SOURCES, mutated

MEMORY = 12 << 30
"""Bytes of address space of the process that loads the files."""
LIMIT = 1
"""GiB that a model may take (`--memory-limit`)."""
SECONDS = 120
"""For one command."""
BUG, DIED, HUNG = "exit 3", "died", "hung"
NO_MEMORY = "memory is not enough"


@dataclass(frozen=True)
class Outcome:
    """How one command on one file ended: `exit 0` to `exit 3`, DIED or HUNG, and its last line."""

    kind: str
    seed: int
    command: str
    end: str
    line: str

    def __str__(self) -> str:
        return f"{self.kind} seed {self.seed}, {self.command}: {self.end}: {self.line}"

    @property
    def is_bad(self) -> bool:
        return self.end not in ("exit 0", "exit 1", "exit 2")


class Worker:
    """A process that runs commands, started again when it dies or hangs."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._folder = tempfile.TemporaryDirectory()
        self._process: Any = None
        self._pipe: Any = None

    def run(self, kind: str, seed: int, command: str) -> Outcome:
        """`vta-byoc COMMAND` on the damaged file."""
        if self._process is None:
            self._start()
        path = Path(self._folder.name) / f"damaged.{kind}"
        path.write_bytes(mutated(kind, seed))
        self._pipe.send((command, str(path), "--memory-limit", str(LIMIT)))
        try:
            end, line = self._pipe.recv() if self._pipe.poll(self._seconds) else (HUNG, "")
        except (EOFError, ConnectionError):
            self._process.join()
            end, line = DIED, f"code {self._process.exitcode}"
        if end in (DIED, HUNG):
            self.close()
        return Outcome(kind, seed, command, end, line)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()


def _serve(pipe: Connection) -> None:
    """Run the commands that come through the pipe, until it closes."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from click.testing import CliRunner

    from vta_byoc.cli import app

    while True:
        try:
            command = pipe.recv()
        except EOFError:
            return
        result = CliRunner().invoke(app, list(command))
        lines = result.stderr.strip().splitlines() or [repr(result.exception)]
        pipe.send((f"exit {result.exit_code}", lines[-1]))


def hunt(kind: str, seeds: range, run_every: int, worker: Worker) -> Iterator[Outcome]:
    """The outcomes of `place`, and of `run` for one seed in `run_every`."""
    for seed in seeds:
        yield worker.run(kind, seed, "place")
        if run_every and seed % run_every == 0:
            yield worker.run(kind, seed, "run")


def figures(kind: str, outcomes: list[Outcome]) -> list[Figure]:
    """Counts over the files of one kind; a file that ends in two ways counts in both."""
    ends = {outcome.end: set[int]() for outcome in outcomes}
    for outcome in outcomes:
        ends[outcome.end].add(outcome.seed)
    memory = {outcome.seed for outcome in outcomes if NO_MEMORY in outcome.line}
    wrong = {"exit_3": ends.get(BUG, ()), "died": ends.get(DIED, ()), "hung": ends.get(HUNG, ())}
    return [
        Figure(f"{kind}_mutations", len({outcome.seed for outcome in outcomes}), "files"),
        Figure(f"{kind}_accepted", len(ends.get("exit 0", ())), "files"),
        Figure(f"{kind}_refused", len(ends.get("exit 2", ())), "files"),
        *(Figure.at_most(f"{kind}_{name}", len(bad), "files", 0) for name, bad in wrong.items()),
        Figure.at_most(f"{kind}_out_of_memory", len(memory), "files", 0),
    ]


def main() -> int:
    assert __doc__ is not None
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1000, help="files of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--run-every", type=int, default=8, help="`run` one in so many, 0: none")
    parser.add_argument("--kind", choices=[*SOURCES], help="only files of one kind")
    parser.add_argument("--verbose", action="store_true", help="print every outcome on stderr")
    args = parser.parse_args()
    found: list[Figure] = []
    bad: list[Outcome] = []
    begin, worker = time.perf_counter(), Worker()
    for kind in [args.kind] if args.kind else SOURCES:
        outcomes = []
        for outcome in hunt(kind, range(args.seed, args.seed + args.n), args.run_every, worker):
            outcomes.append(outcome)
            if args.verbose or outcome.is_bad or NO_MEMORY in outcome.line:
                print(outcome, file=sys.stderr, flush=True)
        bad += [outcome for outcome in outcomes if outcome.is_bad]
        ends = Counter(f"{outcome.command} {outcome.end}" for outcome in outcomes)
        print(kind, dict(sorted(ends.items())), file=sys.stderr, flush=True)
        found += figures(kind, outcomes)
    worker.close()
    seconds = round(time.perf_counter() - begin, 1)
    return report("mutate_files", found, args.json, bad=[str(b) for b in bad], seconds=seconds)


if __name__ == "__main__":
    raise SystemExit(main())
