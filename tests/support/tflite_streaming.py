"""A streaming TFLite model: it keeps what it has seen in variables."""

from __future__ import annotations

import numpy as np
from importer_tflite_graph import Lite

WIDTH, NEW = 6, 2


def handle(g: Lite, name: str) -> int:
    made = g.made_tensor((), "resource")
    g.node("VAR_HANDLE", [], [made], "VarHandleOptions", container="", sharedName=name)
    return made


def begun(g: Lite, values: dict[str, np.ndarray]) -> None:
    """Assigned once, before the first call."""
    with g.called() as number:
        for name, value in values.items():
            variable = handle(g, name)
            constant = g.const(value, str(value.dtype))
            g.node("ASSIGN_VARIABLE", [variable, constant], [], "AssignVariableOptions")
    g.node("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=number)


def read(g: Lite, variable: int, shape: tuple[int, ...]) -> int:
    made = g.made_tensor(shape)
    g.node("READ_VARIABLE", [variable], [made], "ReadVariableOptions")
    return made


def window(g: Lite, name: str, x: int, rank: int) -> int:
    """What was seen before and `x`, of which the newest are remembered."""
    lead, axis = (1,) * (rank - 1), rank - 1
    variable = handle(g, name)
    before = read(g, variable, (*lead, WIDTH))
    whole, kept = g.made_tensor((*lead, WIDTH + NEW)), g.made_tensor((*lead, WIDTH))
    options = {"axis": axis, "fusedActivationFunction": 0}
    g.node("CONCATENATION", [before, x], [whole], "ConcatenationOptions", **options)
    begin = g.const([0] * axis + [NEW])
    g.node("SLICE", [whole, begin, g.const([*lead, WIDTH])], [kept], "SliceOptions")
    g.node("ASSIGN_VARIABLE", [variable, kept], [], "AssignVariableOptions")
    return whole


def streaming(rank: int, initial: bool) -> Lite:
    """A window over the input, weighted, and a sum of all that was ever seen."""
    g = Lite("stream", rank)
    shape = (*(1,) * (rank - 1), NEW)
    if initial:
        first = np.arange(WIDTH, dtype="float32").reshape(*shape[:-1], WIDTH)
        begun(g, {"seen": first, "total": np.full(shape, 0.5, "float32")})
    x = g.tensor(shape)
    whole = window(g, "seen", x, rank)
    weighted = g.made_tensor((*shape[:-1], WIDTH + NEW))
    weight = g.const(np.linspace(-1, 1, WIDTH + NEW), "float32")
    g.node("MUL", [whole, weight], [weighted], "MulOptions", fusedActivationFunction=0)
    variable, sums = handle(g, "total"), g.made_tensor(shape)
    before = read(g, variable, shape)
    g.node("ADD", [before, x], [sums], "AddOptions", fusedActivationFunction=0)
    g.node("ASSIGN_VARIABLE", [variable, sums], [], "AssignVariableOptions")
    again = read(g, variable, shape)  # behind the assignment: the new sum
    doubled = g.made_tensor(shape)
    g.node("ADD", [again, again], [doubled], "AddOptions", fusedActivationFunction=0)
    g.outputs = [weighted, doubled]
    return g
