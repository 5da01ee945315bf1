"""Layers whose factor is in their weights, or in a sum of parts of their accumulator.

Weights of two digits are two products of the same data; a sum of shifts, and a multiplication in
two parts, read one value again and again (`vta_byoc.quantization.dialect` has all forms).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from tvm import relax
from tvm.ir import Call
from tvm_ffi import structural_equal

from vta_byoc.ir.bindings import is_constant, op_name
from vta_byoc.ir.chains import KEPT, Binding, Graph, as_step, is_narrowing

JOIN = 4
"""Bindings of a product of two digits: the upper digit's, its shift, the lower one's, their sum."""


def joined(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """The product of two digits that begins with ``anchor``, its upper digit."""
    raised = graph.only_user(anchor.var)
    total = graph.only_user(raised.var) if raised is not None else None
    if raised is None or total is None or op_name(total.value) != "relax.add":
        return None
    step = as_step(raised.value)
    if step is None or step[0] != "shl" or step[1].size != 1 or as_step(total.value):
        return None
    others = [arg for arg in total.value.args if not arg.same_as(raised.var)]
    low = graph.defined.get(others[0]) if len(others) == 1 else None
    if low is None or graph.only_user(low.var) is None or not _alike(anchor.value, low.value):
        return None
    return [anchor, raised, low, total]


def is_lower_digit(graph: Graph, binding: Binding) -> bool:
    """Whether ``binding`` is the second product of :func:`joined`."""
    total = graph.only_user(binding.var)
    if total is None or op_name(total.value) != "relax.add":
        return False
    for arg in total.value.args:
        raised = graph.defined.get(arg) if isinstance(arg, relax.Var) else None
        step = None if raised is None else as_step(raised.value)
        upper = graph.defined.get(step[2]) if step and isinstance(step[2], relax.Var) else None
        if upper is not None and (found := joined(graph, upper)) and found[2] is binding:
            return True
    return False


def _alike(first: relax.Expr, second: relax.Expr) -> bool:
    """Whether two products differ in their constant weights only."""
    calls = isinstance(first, Call) and isinstance(second, Call)
    if not calls or op_name(first) != op_name(second) or len(first.args) != 2:
        return False
    if not is_constant(first.args[1]) or not is_constant(second.args[1]):
        return False
    same = first.args[0].same_as(second.args[0]) and structural_equal(first.attrs, second.attrs)
    return bool(same) and first.args[1].value.shape == second.args[1].value.shape


def chain(graph: Graph, var: relax.Var) -> list[Binding]:
    """As :meth:`Graph.chain`, with sums of what steps make of one value."""
    found = graph.chain(var)
    if found and is_narrowing(found[-1].value):
        return found
    last = found[-1].var if found else var
    sums = _sums(graph, last)
    return [*found, *sums, *graph.chain(sums[-1].var)] if sums else found


def _sums(graph: Graph, kept: relax.Var) -> list[Binding]:
    """Steps on ``kept`` and ``kept`` added to what they make, again until nothing else reads it."""
    readers = [user for user in graph.users.get(kept, []) if user is not None]
    steps = [user for user in readers if as_step(user.value) is not None]
    if len(steps) != 1 or len(readers) != len(graph.users.get(kept, [])):
        return []
    found: list[Binding] = []
    at: Binding | None = steps[0]
    adds = 0
    while at is not None:
        if found and _adds(at.value, found[-1].var, kept):
            adds += 1
        elif as_step(at.value) is None:
            return []
        found.append(at)
        if adds == len(readers) - 1:
            return found
        at = graph.only_user(at.var)
    return []


def _adds(call: relax.Expr, value: relax.Var, kept: relax.Var) -> bool:
    return op_name(call) == "relax.add" and [
        a.same_as(v) for a, v in zip(call.args, (value, kept), strict=True)
    ] == [True, True]


def digit_shift(bindings: Sequence[Binding]) -> int:
    """The shift of the upper digit where a group begins with a product of two; else 0."""
    if len(bindings) < JOIN or op_name(bindings[0].value) != op_name(bindings[2].value):
        return 0
    step = as_step(bindings[1].value)
    assert step is not None
    return int(step[1].reshape(-1)[0])


def steps_of(bindings: Sequence[Binding]) -> Iterator[tuple[str, np.ndarray | str]]:
    """As `chains.steps_of`; a value that is read again is KEPT before its first step."""
    kept: relax.Expr | None = None
    sums = {b.value.args[1] for b in bindings if _is_sum(b.value)}
    for binding in bindings:
        step = as_step(binding.value)
        if step is None:
            if _is_sum(binding.value):
                yield "add", KEPT
            continue
        if kept is None and step[2] in sums:
            kept = step[2]
            yield "keep", KEPT
        yield step[0], step[1]


def _is_sum(value: relax.Expr) -> bool:
    return op_name(value) == "relax.add" and not any(is_constant(a) for a in value.args)
