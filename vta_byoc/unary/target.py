"""What a program has to give, and what one costs beside another."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from vta_byoc.base.choices import FUNCTION_WORTH
from vta_byoc.ir.chains import INT8_HIGH, INT8_LOW
from vta_byoc.unary.program import Program

ROUNDING = 1.0 / 12.0
"""The mean square of the error of rounding to whole steps, in squares of a step."""


def counted(beyond: tuple[int, int]) -> np.ndarray:
    """How often each of the 256 results counts, float64 [256].

    So many operands beyond -128, and beyond 127, read as these.
    """
    found = np.ones(256)
    found[[0, -1]] += beyond
    return found


@dataclass(frozen=True)
class Target:
    """What a program has to give.

    Attributes:
        wanted: int64 results of the values -128 to 127, [256].
        tolerance: the largest difference, in steps.
        worth: cycles a vector that half of the noise is worth.
        beyond: how many operands beyond -128, and beyond 127, read as these: so many more times
            the noise of these results counts.
    """

    wanted: np.ndarray
    tolerance: int
    worth: float = FUNCTION_WORTH
    beyond: tuple[int, int] = (0, 0)

    @functools.cached_property
    def weights(self) -> np.ndarray:
        """What the noise of each of the 256 results counts, float64 [256] of mean 1."""
        found = counted(self.beyond)
        return found / found.mean()

    def off(self, program: Program) -> np.ndarray:
        """By how many steps each of the 256 results differs."""
        return np.abs(program.results() - self.wanted)

    def reached(self, results: np.ndarray) -> np.ndarray:
        """Whether results, of one program or of many, are int8 values within the tolerance."""
        least, most = results.min(axis=-1), results.max(axis=-1)
        off = np.abs(results - self.wanted).max(axis=-1)
        found: np.ndarray = (least >= INT8_LOW) & (most <= INT8_HIGH) & (off <= self.tolerance)
        return found

    def takes(self, program: Program) -> bool:
        """Whether the program's results are such, and no value overflows on the way."""
        return bool(self.reached(program.results())) and program.fits

    def noise(self, program: Program) -> float:
        """The mean square of the differences, in that of rounding."""
        return float((self.weights * self.off(program) ** 2).mean()) / ROUNDING

    def estimate(self, program: Program) -> float:
        """Cycles a vector, and `worth` for each doubling of the rounding's noise."""
        return program.cycles() + self.worth * math.log2(1.0 + self.noise(program))

    def price(self, program: Program | None) -> float:
        """The estimate of a program that can be taken, infinite of any other."""
        return self.estimate(program) if program and self.takes(program) else math.inf

    def excess(self, results: np.ndarray) -> np.ndarray:
        """Of each row of results, [candidates, 256]: the squares of what is above the tolerance."""
        above: np.ndarray = np.maximum(np.abs(results - self.wanted) - self.tolerance, 0)
        return (above**2).sum(axis=1)

    def losses(self, results: np.ndarray, above: float) -> np.ndarray:
        """Of each row of results, [candidates, 256]: the mean square of its differences in steps.

        The square of a step above the tolerance counts `above` times as much.
        """
        off = np.abs(results - self.wanted)
        excess = np.maximum(off - self.tolerance, 0)
        squares = (off * off).astype(np.float64)
        near: np.ndarray = (self.weights * squares).mean(axis=1)
        return near + above * ((excess * excess).sum(axis=1) / len(self.wanted))

    def squares(self, results: np.ndarray) -> np.ndarray:
        """Of each row of results: the squares of all differences; infinite where not reached."""
        found = (self.weights * (results - self.wanted) ** 2).sum(axis=1)
        return np.where(self.reached(results), found, np.inf)

    def distances(self, results: np.ndarray) -> np.ndarray:
        """Of each row of results: the largest difference, and the share of those that are it."""
        off = np.abs(results - self.wanted)
        worst = off.max(axis=1)
        found: np.ndarray = worst + (off == worst[:, None]).mean(axis=1)
        return found

    def distance(self, program: Program) -> float:
        """The largest difference, and the share of the results that differ by so much."""
        return float(self.distances(program.results()[None])[0])
