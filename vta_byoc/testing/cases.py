"""Cases of a conformance suite: drawn by a seed, tried one by one, repeated by their number."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.verify.verifier import verify

PRESETS = ("sim", "2x16", "1x32")
SMALLER = 2
"""Logarithm of what the small machine's buffers are smaller by."""


class ConformanceError(VTAError):
    """A case in which something does not do what it must."""


class Mismatch(Exception):
    """What is wrong in one case; the suite adds which case it is."""


class Refused(Exception):
    """The machine does not take the case, as it may."""


@dataclass(frozen=True)
class Conformance:
    """What a conformance suite has tried, all of it right.

    Attributes:
        what: the thing that was checked.
        cases: how many cases were computed and compared.
        refused: how many more the thing refused on their machine.
        machines: names of the machines of the compared cases.
        seed: the seed that they were drawn with.
        worst_ratio: estimated cycles by those of the timing model, where they are farthest apart;
            None where nothing is estimated.
    """

    what: str
    cases: int
    refused: int
    machines: tuple[str, ...]
    seed: int
    worst_ratio: float | None = None

    def __str__(self) -> str:
        ratio = self.worst_ratio
        parts = [
            f"{self.what}: {self.cases} cases on {', '.join(self.machines)} equal bit for bit",
            f"{self.refused} refused" if self.refused else "",
            "" if ratio is None else f"estimates at worst {ratio:.2f} of the timing model",
            f"seed {self.seed}",
        ]
        return "; ".join(filter(None, parts))


def machines() -> tuple[VTAConfig, ...]:
    """The machines of a suite that is given none: three presets, and one with small buffers."""
    sim, *others = (VTAConfig.preset(name) for name in PRESETS)
    small = dataclasses.replace(
        sim,
        log_inp_buff_size=sim.log_inp_buff_size - SMALLER,
        log_wgt_buff_size=sim.log_wgt_buff_size - SMALLER,
        log_acc_buff_size=sim.log_acc_buff_size - SMALLER,
    )
    return (sim, *others, small)


@dataclass(frozen=True)
class Suite:
    """What is checked, and the cases of it.

    Attributes:
        what: the thing, for errors.
        seed: equal seeds draw equal cases.
        cases: how many.
        case: the number of the only one to try; all of them when None.
        configs: the machines, which take turns.
    """

    what: str
    seed: int
    cases: int
    case: int | None
    configs: Sequence[VTAConfig]

    def run(self, attempt: Callable[[np.random.Generator, VTAConfig], float | None]) -> Conformance:
        """Try every case.

        Args:
            attempt: draws a case, compares it and returns the ratio of its estimate to the timing
                model; raises `Refused` or `Mismatch`.

        Raises:
            ConformanceError: the first case that is wrong, or all of them are refused.
        """
        ratios: list[float] = []
        seen: list[str] = []
        refusals: list[str] = []
        for number in range(self.cases) if self.case is None else [self.case]:
            config = self.configs[number % len(self.configs)]
            try:
                ratio = attempt(np.random.default_rng([self.seed, number]), config)
            except Refused as refused:
                refusals.append(str(refused))
                continue
            except Mismatch as wrong:
                raise self._error(number, config, str(wrong)) from wrong
            except Exception as err:
                lines = str(err).strip().splitlines() or ["no message"]
                text = f"{type(err).__name__}: {lines[-1].strip()}"
                raise self._error(number, config, text) from err
            seen.append(config.name)
            ratios += [] if ratio is None else [ratio]
        if not seen:
            first = refusals[0] if refusals else "there are none"
            raise ConformanceError(
                f"{self.what}: none of {len(refusals)} cases of seed {self.seed} was computed: "
                f"{first}; draw what the machines take"
            )
        worst = max(ratios, key=lambda ratio: abs(math.log(ratio)), default=None)
        names = tuple(dict.fromkeys(seen))
        return Conformance(self.what, len(seen), len(refusals), names, self.seed, worst)

    def _error(self, number: int, config: VTAConfig, wrong: str) -> ConformanceError:
        return ConformanceError(
            f"{self.what} on machine {config.name}: {wrong}; repeat it with seed={self.seed}, "
            f"case={number}"
        )


def compare(name: str, found: np.ndarray, expected: np.ndarray, where: str) -> None:
    """Refuse arrays that differ in type or in any bit.

    Raises:
        Mismatch: with the first element that differs.
    """
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        raise Mismatch(
            f"{where}: {name} is {found.dtype} {found.shape}, must be {expected.dtype} "
            f"{expected.shape}"
        )
    wrong = np.argwhere(found != expected)
    if len(wrong):
        at = tuple(int(i) for i in wrong[0])
        raise Mismatch(
            f"{where}: {name}{list(at)} is {found[at]}, must be {expected[at]}; {len(wrong)} of "
            f"{found.size} values differ"
        )


def check_verified(program: Program, where: str) -> None:
    """Refuse a program that the verifier does.

    Raises:
        Mismatch: with its first finding.
    """
    findings = verify(program)
    if findings:
        raise Mismatch(f"{where}: the verifier finds {findings[0]}")
