"""What runs of `mutants.py` found, kept in a folder: a long run is made in pieces."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def digest_of(paths: Iterable[Path]) -> str:
    """A digest of files: of their names and bytes."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class State:
    """The files of a room: a digest of its modules, and one of each test file by its path."""

    modules: str
    files: dict[str, str]

    def changed(self, files: Mapping[str, str]) -> list[str]:
        """The test files that are others than they were, new, or gone."""
        return [name for name in {**files, **self.files} if files.get(name) != self.files.get(name)]


@dataclasses.dataclass(frozen=True)
class Kept:
    """The baselines and verdicts of earlier runs, in `folder`; without one nothing is kept.

    A mutant that was killed stays killed while its module is the same: tests are added, and those
    that are changed are changed to notice more. One that survived is tried again when a module of
    its room has changed, and by the test files that have.
    """

    folder: Path | None

    def __post_init__(self) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def baseline(self, room: str, state: State) -> dict[str, Any] | None:
        """The baseline of a room that was made of its modules as they are."""
        path = self._baseline(room)
        if path is None or not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found if found["modules"] == state.modules else None

    def keep_baseline(self, room: str, state: State, facts: Mapping[str, Any]) -> None:
        """Keep the baseline of a room."""
        path = self._baseline(room)
        if path is not None:
            path.write_text(json.dumps({**dataclasses.asdict(state), **facts}), encoding="utf-8")

    def verdict(
        self, mutant: Mapping[str, Any], module: str, state: State
    ) -> dict[str, Any] | None:
        """What became of a mutant of a module with the digest `module`, None where it is open."""
        found = None
        path = self._verdicts()
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
        for line in lines:
            kept = json.loads(line)
            if kept["mutant"] == dict(mutant) and kept["module"] == module:
                killed = kept["outcome"] in ("killed", "timeout")
                found = kept if killed or kept["modules"] == state.modules else None
        return found

    def keep_verdict(
        self, mutant: Mapping[str, Any], module: str, state: State, outcome: str, test: str
    ) -> None:
        """Add what became of a mutant."""
        path = self._verdicts()
        if path is None:
            return
        facts = {"mutant": mutant, "module": module, **dataclasses.asdict(state)}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**facts, "outcome": outcome, "test": test}) + "\n")

    def _baseline(self, room: str) -> Path | None:
        return None if self.folder is None else self.folder / f"baseline-{room}.json"

    def _verdicts(self) -> Path | None:
        return None if self.folder is None else self.folder / "verdicts.jsonl"


NOTHING_KEPT = Kept(None)
"""For a run by itself."""
