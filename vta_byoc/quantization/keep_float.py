"""Which operators the user wants to keep in float: names and patterns to variables of `main`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

import tvm
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import sanitized, source_name, straight_bindings

WILDCARDS = "*?["
NEAR_MATCHES = 3


def keep_float(mod: tvm.IRModule, names: Sequence[str]) -> set[relax.Var]:
    """The variables of `main` that belong to the operators called `names`.

    Args:
        mod: float module of `load_model`.
        names: source names (`source_name`), names as the model file spells them
            ("/features/0/conv"), or patterns of source names with `*`, `?` and `[...]`.

    Raises:
        VTAError: a name that no operator has.
    """
    variables: dict[str, list[relax.Var]] = {}
    for binding in straight_bindings(mod["main"]):
        variables.setdefault(source_name(binding.var), []).append(binding.var)
    inputs = [source_name(param) for param in mod["main"].params]
    matched = [match for name in names for match in _matches(name, list(variables), inputs)]
    return {var for match in matched for var in variables[match]}


def parse_names(text: str) -> tuple[str, ...]:
    """The names of a list with commas, as an option of the command line holds it."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _matches(name: str, known: list[str], inputs: list[str]) -> list[str]:
    if any(sign in name for sign in WILDCARDS):
        matches = [each for each in known if fnmatchcase(each, name)]
    else:
        matches = [each for each in known if each in (name, sanitized(name))]
    if not matches:
        raise VTAError(f'operator "{name}" to keep in float {_why(name, known, inputs)}')
    return matches


def _why(name: str, known: list[str], inputs: list[str]) -> str:
    """Why nothing is called `name`, and what might be meant."""
    if name in inputs:
        return "is an input of the model; only operators are kept; name those that read it"
    literal = sanitized(name)
    near = difflib.get_close_matches(literal, known, NEAR_MATCHES)
    near = near or [each for each in known if literal in each][:NEAR_MATCHES]
    listed = ", ".join(f'"{each}"' for each in near)
    hint = f"similar names are {listed}" if near else "`vta-byoc place MODEL` lists their names"
    return f"is not in the model; it has {len(known)} operators; {hint}"
