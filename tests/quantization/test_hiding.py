"""Which operators hide scores: what is added to them, and where they are replaced."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from small_models import Graph
from tvm import relax

from vta_byoc.ir.bindings import straight_bindings
from vta_byoc.quantization.ops.hiding import hidden_by
from vta_byoc.quantization.policy import AnyScales
from vta_byoc.quantization.quantizer import Quantizer

FAR = np.where(np.tri(4), 0, -1e4)


def addends(g: Graph) -> dict[str, tuple[relax.Expr, bool]]:
    """What may be added to scores of (2, 4, 4): and whether it is a mask of run time."""
    far, near, keep = (
        relax.Var(name, relax.TensorType((4, 4), kind))
        for name, kind in (("far", "float32"), ("near", "float32"), ("keep", "bool"))
    )
    g.params += [far, near, keep]
    none, all_ = g.const(0.0), g.const(-np.inf)
    chosen = g.op("where", keep, none, all_, name="chosen")
    ones = g.op("astype", keep, "float32", name="ones")
    left = g.op("subtract", g.const(1.0), ones, name="left")
    return {
        "an input that hides in a sample": (far, True),
        "an input that does not": (near, False),
        "a choice of what hides": (chosen, True),
        "a choice of something else": (g.op("where", keep, none, g.const(-3.0)), False),
        "what is left of a mask": (g.op("multiply", left, g.const(-1e4)), True),
        "a little of what is left": (g.op("multiply", left, g.const(-9.0)), False),
        "whole numbers times a large one": (g.op("multiply", g.const(-1e4), ones), True),
        "whole numbers times a positive one": (g.op("multiply", ones, g.const(1e4)), False),
        "any numbers times a large one": (g.op("multiply", near, g.const(-1e4)), False),
        "a curve times a large one": (
            g.op("multiply", g.op("reshape", g.op("exp", near), (1, 4, 4)), g.const(-1e4)),
            False,
        ),
        "filled with what hides": (g.op("full_like", near, g.const(-np.inf)), True),
        "filled with something else": (g.op("full_like", near, g.const(-3.0)), False),
        "a view of a mask": (g.op("reshape", chosen, (1, 4, 4)), True),
        "two masks": (g.op("minimum", chosen, far), True),
        "a mask and something else": (g.op("add", chosen, near), False),
        "a constant": (g.const(FAR), False),
        "scores": (g.params[0], False),
    }


def found_in(g: Graph, result: relax.Var) -> tuple[bool | None, str] | None:
    """What is hidden of the scores by the last operator, and by what."""
    mod = g.module(result)
    ranges = {param: 1e4 if param.name == "far" else 3.0 for param in mod["main"].params}
    last = [b for b in straight_bindings(mod["main"]) if b.var.name == "hidden"][-1]
    q = Quantizer(mod, ranges, AnyScales())
    found = hidden_by(q, last, mod["main"].params[0])
    return None if found is None else (found.where, str(getattr(found.value, "name", "")))


@pytest.mark.parametrize("what", addends(Graph((2, 4, 4))))
def test_what_is_added_hides_where_it_is_a_mask(what: str) -> None:
    """On either side of the scores; twice the scores are no mask."""
    for is_first in (False, True):
        g = Graph((2, 4, 4))
        value, is_mask = addends(g)[what]
        sides = (value, g.params[0]) if is_first else (g.params[0], value)
        found = found_in(g, g.op("add", *sides, name="hidden"))
        assert (found is not None) == is_mask
        assert found is None or found[0] is None


def test_a_condition_of_run_time_hides_where_the_scores_are_replaced() -> None:
    """By numbers of -1000 or less alone, and of the scores' own shape."""
    for fill, is_first in itertools.product((-np.inf, -1000.0, -999.0, 0.0), (False, True)):
        g = Graph((2, 4, 4))
        keep = relax.Var("keep", relax.TensorType((4, 4), "bool"))
        g.params.append(keep)
        sides = (g.params[0], g.const(fill))
        result = g.op("where", keep, *(sides if is_first else sides[::-1]), name="hidden")
        found = found_in(g, result)
        assert found == ((not is_first, "keep") if fill <= -1000 else None)


def test_constant_conditions_and_other_shapes_are_no_masks_of_run_time() -> None:
    g = Graph((2, 4, 4))
    constant = relax.const(FAR == 0)
    assert found_in(g, g.op("where", constant, g.params[0], g.const(-1e4), name="hidden")) is None
    g = Graph((2, 4, 4))
    g.params.append(relax.Var("far", relax.TensorType((3, 2, 4, 4), "float32")))
    assert found_in(g, g.op("add", *g.params, name="hidden")) is None
    g = Graph((2, 4, 4))
    g.params.append(relax.Var("far", relax.TensorType((4, 4), "float32")))
    assert found_in(g, g.op("subtract", *g.params, name="hidden")) is None
