"""The match on a marked composite: what marking found is written on the function, for packing.

A composite carries the plan as JSON, with its operands as positions among the parameters, and the
constants as tensors: both survive every pass, print and compare as any attribute does.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from vta_byoc.partitioning.composite import CONSTANTS_ATTR, MATCH_ATTR
from vta_byoc.partitioning.entry import Candidate, Match, Parsed, Plan
from vta_byoc.partitioning.table import PATTERNS
from vta_byoc.strategies.te.kernel import Chosen
from vta_byoc.strategy import STRATEGIES
from vta_byoc.workload.workloads import from_json, to_json


def match_attributes(match: Match, args: Sequence[relax.Var]) -> dict[str, Any]:
    """The attributes of a composite that is called with ``args``."""
    parsed, plan = match.parsed, match.plan
    positions = {arg: i for i, arg in enumerate(args)}
    record = {
        "strategy": plan.strategy,
        "work": to_json(parsed.work),
        "operands": [positions[operand] for operand in parsed.operands],
        "layout": parsed.layout,
        "kernels": Chosen(plan.kernels).to_text(),
        "cycles": plan.cycles,
        "candidate": dataclasses.asdict(plan.candidate),
    }
    constants = {name: tvm.runtime.tensor(array) for name, array in parsed.constants.items()}
    return {MATCH_ATTR: json.dumps(record), CONSTANTS_ATTR: constants}


def match_of(composite: relax.Function) -> Match:
    """The match that :func:`match_attributes` wrote; its operands are the parameters."""
    entry = PATTERNS[str(composite.attrs["Composite"])]
    record: Mapping[str, Any] = json.loads(str(composite.attrs[MATCH_ATTR]))
    strategy = str(record["strategy"])
    work = from_json(STRATEGIES[strategy].workload, str(record["work"]))
    kept = composite.attrs[CONSTANTS_ATTR]
    constants = {str(name): tensor.numpy() for name, tensor in kept.items()}
    operands = tuple(composite.params[i] for i in record["operands"])
    parsed = Parsed(work, operands, constants, str(record["layout"]))
    kernels = Chosen.from_text(str(record["kernels"])).kernels
    candidate = Candidate.from_json(record["candidate"])
    plan = Plan(strategy, work, constants, kernels, float(record["cycles"]), candidate)
    return Match(entry, parsed, plan)
