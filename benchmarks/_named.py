"""The command line of benchmarks whose parts have names and a process of their own each."""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks._figures import arguments


@dataclass(frozen=True)
class Parts:
    """What a benchmark measures one by one.

    Attributes:
        benchmark: its name.
        what: what one part is called, such as "network".
        needs: packages without which it is left out.
        gib: memory that the process of one part may allocate.
    """

    benchmark: str
    what: str
    needs: tuple[str, ...]
    gib: int

    def arguments(self, description: str) -> argparse.ArgumentParser:
        """A parser with the options of every such benchmark."""
        parser = arguments(description)
        parser.add_argument("--only", nargs="+", metavar="NAME", help=f"these {self.what}s")
        parser.add_argument("--list", action="store_true", help=f"print the {self.what}s and exit")
        parser.add_argument("--measure", metavar="NAME", help=f"print the JSON of one {self.what}")
        return parser

    def left_out(self) -> bool:
        """Whether a package is missing, which is then told."""
        missing = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if missing:
            said = f"{self.benchmark}: left out, {' and '.join(missing)} not installed"
            print(said, file=sys.stderr)
        return bool(missing)

    def measured(self, measure: Callable[[], dict[str, Any]]) -> int:
        """Print what `measure` finds of one part, in bounded memory; the exit code."""
        resource.setrlimit(resource.RLIMIT_DATA, (self.gib << 30,) * 2)
        print(json.dumps(measure()))
        return 0

    def chosen(
        self,
        parser: argparse.ArgumentParser,
        options: argparse.Namespace,
        about: Mapping[str, str],
    ) -> list[str]:
        """The names that are to be measured: those of `--only`, or all that there are.

        With `--list` they are printed beside what `about` says of them, and none is measured.
        """
        names = list(options.only or about)
        if unknown := [name for name in names if name not in about]:
            parser.error(f"no {self.what} is called {', '.join(unknown)}; see --list")
        if not options.list:
            return names
        for name in names:
            print(f"{name:24}{about[name]}")
        return []
