"""The match on a marked composite: what marking found is written on the function, for packing.

A composite carries the plan as a record, with its operands as positions among the parameters, and
the constants as tensors: both survive every pass, print and compare as any attribute does.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from vta_byoc.ir.records import as_record, text_of
from vta_byoc.partitioning.composite import CONSTANTS_ATTR, MATCH_ATTR
from vta_byoc.partitioning.entry import Candidate, Match, Parsed, Plan
from vta_byoc.partitioning.table import PATTERNS
from vta_byoc.strategies.te.kernel import Chosen
from vta_byoc.strategy import STRATEGIES
from vta_byoc.workload.texts import from_json, to_json


def match_attributes(match: Match, args: Sequence[relax.Var]) -> dict[str, Any]:
    """The attributes of a composite that is called with ``args``."""
    parsed, plan = match.parsed, match.plan
    positions = {arg: i for i, arg in enumerate(args)}
    found = {
        "strategy": plan.strategy,
        "work": to_json(parsed.work),
        "planned": to_json(plan.work),
        "arrays": _names_of(plan.arrays, parsed.constants),
        "operands": [positions[operand] for operand in parsed.operands],
        "layout": parsed.layout,
        "layouts": parsed.layouts,
        "kernels": Chosen(plan.kernels).to_text(),
        "cycles": plan.cycles,
        "candidate": dataclasses.asdict(plan.candidate),
    }
    constants = {name: tvm.runtime.tensor(array) for name, array in parsed.constants.items()}
    return {MATCH_ATTR: as_record(json.dumps(found)), CONSTANTS_ATTR: constants}


def _names_of(
    arrays: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray]
) -> dict[str, str]:
    """The name that each of the plan's ``arrays`` has among the ``constants`` that were read."""
    return {
        name: next(known for known, constant in constants.items() if constant is array)
        for name, array in arrays.items()
    }


def match_of(composite: relax.Function) -> Match:
    """The match that :func:`match_attributes` wrote; its operands are the parameters."""
    entry = PATTERNS[str(composite.attrs["Composite"])]
    found: Mapping[str, Any] = json.loads(text_of(composite.attrs[MATCH_ATTR]))
    strategy = str(found["strategy"])
    work = from_json(STRATEGIES[strategy].workload, str(found["work"]))
    kept = composite.attrs[CONSTANTS_ATTR]
    constants = {str(name): tensor.numpy() for name, tensor in kept.items()}
    operands = tuple(composite.params[i] for i in found["operands"])
    layouts = tuple(str(layout) for layout in found["layouts"])
    parsed = Parsed(work, operands, constants, str(found["layout"]), layouts)
    kernels = Chosen.from_text(str(found["kernels"])).kernels
    candidate = Candidate.from_json(found["candidate"])
    planned = from_json(STRATEGIES[strategy].workload, str(found["planned"]))
    arrays = {name: constants[known] for name, known in found["arrays"].items()}
    plan = Plan(strategy, planned, arrays, kernels, float(found["cycles"]), candidate)
    return Match(entry, parsed, plan)
