"""Imported operators on LLVM beside the runtime that their model comes from."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from importer_draws import Case
from small_models import flat, plain_machine

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.canonicalize.index_bounds import unproven_indices
from vta_byoc.importers.load import load_model

AT_ONCE = 60
"""Modules that are built together: a build costs 0.3 s before it does anything."""
EQUAL, REFUSED, WRONG, NO_MODEL = "equal", "refused", "wrong", "no model"


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        kind: `EQUAL`; `REFUSED` by a VTAError; `WRONG`; or `NO_MODEL`: its own runtime takes none
            such.
        text: the error, or how the results differ.
    """

    case: Case
    kind: str
    text: str = ""


Arrays = Sequence[np.ndarray]
Drawn = tuple[int, Case, Arrays]
"""The place of a case, the case, and what its own runtime makes of it."""
Join = Callable[[Sequence[Case]], Any]
"""Makes one model of several cases: their inputs and outputs one after the other."""


@dataclass(frozen=True)
class _Group:
    """Cases that were imported as one module."""

    drawn: Sequence[Drawn]
    mod: tvm.IRModule


def outcomes(cases: Iterable[Case], join: Join | None = None, size: int = 1) -> list[Outcome]:
    """What became of each case, in their order.

    Args:
        join: imports `size` cases as one model; where that fails, halves of them.
    """
    listed = list(cases)
    done: dict[int, Outcome] = {}
    known = list(_expected(listed, done))
    groups = [
        group
        for start in range(0, len(known), size)
        for group in _imported(known[start : start + size], join, done)
    ]
    for start in range(0, len(groups), AT_ONCE):
        part = groups[start : start + AT_ONCE]
        for group, machine in zip(part, _machines([g.mod for g in part]), strict=True):
            done.update(_compared(group, machine))
    return [done[number] for number in range(len(listed))]


def _expected(cases: Sequence[Case], done: dict[int, Outcome]) -> Iterator[Drawn]:
    for number, case in enumerate(cases):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = case.expected()
        except Exception as error:
            done[number] = Outcome(case, NO_MODEL, _line(error))
        else:
            yield number, case, result


def _imported(
    drawn: Sequence[Drawn], join: Join | None, done: dict[int, Outcome]
) -> Iterator[_Group]:
    """The modules that were made of the cases; what could not be imported is `done`."""
    found = _module([case for _, case, _ in drawn], join)
    if not isinstance(found, Outcome):
        yield _Group(drawn, found)
    elif len(drawn) == 1:
        done[drawn[0][0]] = found
    else:
        half = len(drawn) // 2
        yield from _imported(drawn[:half], join, done)
        yield from _imported(drawn[half:], join, done)


def _module(cases: Sequence[Case], join: Join | None) -> tvm.IRModule | Outcome:
    case = cases[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = case.model() if join is None else join(cases)
        except Exception as error:
            return Outcome(case, NO_MODEL, _line(error))
        try:
            mod = load_model(model)
        except VTAError as error:
            return Outcome(case, REFUSED, _line(error))
        except Exception as error:
            return Outcome(case, WRONG, f"{type(error).__name__}: {_line(error)}")
    unproven = unproven_indices(mod)
    return Outcome(case, WRONG, f"indices of {unproven} are not proven") if unproven else mod


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# ---------------------------------------------------------------- running
def _machines(mods: Sequence[tvm.IRModule]) -> list[Any]:
    """For each module a function of its inputs, or the error of its build."""
    try:
        return _built(mods)
    except Exception as error:
        if len(mods) == 1:
            return [error]
        half = len(mods) // 2
        return _machines(mods[:half]) + _machines(mods[half:])


def _built(mods: Sequence[tvm.IRModule]) -> list[Any]:
    if len(mods) == 1:
        return [plain_machine(mods[0])["main"]]
    if any(len(mod.get_global_vars()) > 1 for mod in mods):
        raise ValueError("a module with functions of its own is built alone")
    functions = {
        f"main{number}": mod["main"].with_attr("global_symbol", f"main{number}")
        for number, mod in enumerate(mods)
    }
    machine = plain_machine(tvm.IRModule(functions))
    return [machine[name] for name in functions]


def _compared(group: _Group, machine: Any) -> Iterator[tuple[int, Outcome]]:
    """The outcome of each case of a group, with its place."""
    results = _results(group, machine)
    wanted = sum(len(expected) for _, _, expected in group.drawn)
    if not isinstance(results, str) and len(results) != wanted:
        results = f"{len(results)} results instead of {wanted}"
    start = 0
    for number, case, expected in group.drawn:
        text = results if isinstance(results, str) else ""
        for ours, theirs in zip(results[start:], expected, strict=False):
            text = text or _difference(ours, theirs, case.tolerance)
        start += len(expected)
        yield number, Outcome(case, WRONG if text else EQUAL, text)


def _results(group: _Group, machine: Any) -> list[np.ndarray] | str:
    """What the machine computes, or why it does not."""
    if isinstance(machine, Exception):
        return f"does not build: {_line(machine)}"
    try:
        feed = [array for _, case, _ in group.drawn for array in case.feed]
        return flat(machine(*(tvm.runtime.tensor(array) for array in feed)))
    except Exception as error:
        return f"does not run: {_line(error)}"


def _difference(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> str:
    """How they differ; empty if they do not."""
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return f"{ours.dtype}{ours.shape} instead of {theirs.dtype}{theirs.shape}"
    if theirs.dtype.kind != "f":
        return "" if np.array_equal(ours, theirs) else _first(ours, theirs, ours != theirs)
    finite = np.abs(theirs[np.isfinite(theirs)])
    limit = tolerance * max(1.0, float(finite.max(initial=0)))
    close = np.isclose(ours, theirs, rtol=tolerance, atol=limit, equal_nan=True)
    return "" if close.all() else _first(ours, theirs, ~close)


def _first(ours: np.ndarray, theirs: np.ndarray, differ: np.ndarray) -> str:
    at = tuple(int(i) for i in np.argwhere(differ)[0])
    return f"{int(differ.sum())} of {differ.size} values; at {at} {ours[at]}, not {theirs[at]}"
