"""ONNX's If: the branch that runs takes its place, where shapes and constants tell which one.

Exporters of scripted PyTorch write an If for every test of a rank, a shape or an option.  When a
model is loaded its shapes are static, so most of these conditions have one value.  A branch may
hold further Ifs, whose conditions are known once the shapes of its tensors are: one round each.

Where data decides, both branches run, as no operator has side effects, and a Where takes the
results of one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from vta_byoc.base import limits
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.onnx.node import set_nodes, subgraphs
from vta_byoc.importers.onnx.sizes import SHAPE_VALUES, Known, can_be_shape, inferred
from vta_byoc.importers.onnx.static import OF_SHAPE, can_be_computed, computed, of_shape
from vta_byoc.ir.bindings import UniqueNames

Values = dict[str, np.ndarray]
"""Tensor -> its value, of those that are known before the model runs and can be shapes."""


def take_branches(graph: onnx.GraphProto, opset: int, shapes: Mapping[str, list[int]]) -> bool:
    """Put the nodes of the branches that run in the place of every If, nested ones too.

    Args:
        graph: valid; changed in place.
        opset: of the default domain.
        shapes: of the inputs.

    Returns:
        Whether there was any.

    Raises:
        VTAError: an If whose condition depends on options alone, which can be fixed, or whose
            branches give results of different shapes where data decides.
    """
    if not _ifs(graph):
        return False
    names, values, choices = _Names(graph), Values(), list[_Choice]()
    while _ifs(graph):
        _add_known(values, graph, opset, shapes)
        conditions = [_condition(node, values) for node in graph.node]
        if all(condition is None for condition in conditions):
            choices.append(_choice(graph, values, names))
            continue
        nodes: list[onnx.NodeProto] = []
        for node, condition in zip(graph.node, conditions, strict=True):
            nodes += [node] if condition is None else _taken(node, condition, names, graph)
        set_nodes(graph, nodes)
    if choices:
        known = inferred(graph, opset, shapes, values)
        for choice in choices:
            choice.check(known)
    return True


def _ifs(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    return [node for node in graph.node if node.op_type == "If"]


# ---------------------------------------------------------------- what is known
def _add_known(
    values: Values, graph: onnx.GraphProto, opset: int, shapes: Mapping[str, list[int]]
) -> None:
    """Add every value that follows; each may tell shapes, which may tell further values."""
    before = -1
    weights = [each for each in graph.initializer if can_be_shape(each)]
    values.update((each.name, numpy_helper.to_array(each)) for each in weights)
    while len(values) > before:
        before = len(values)
        known = inferred(graph, opset, shapes, values)
        for node in graph.node:
            if can_be_computed(node) and not all(name in values for name in node.output if name):
                values.update(_results(node, values, known, opset))


def _results(node: onnx.NodeProto, values: Values, known: Known, opset: int) -> Values:
    """The outputs of `node`; empty where they are not known, or it cannot be computed."""
    if node.op_type in OF_SHAPE and node.input[0] in known:
        return {node.output[0]: of_shape(node, known[node.input[0]][0])}
    if not all(name in values for name in node.input if name):
        return {}
    if not all(can_be_shape(attribute.t) for attribute in node.attribute):
        return {}
    with contextlib.suppress(Exception):  # the importer comes to the node and says what is wrong
        results = computed(node, [values.get(name) for name in node.input], opset, SHAPE_VALUES)
        named = zip(node.output, results or (), strict=False)
        return {name: value for name, value in named if name}
    return {}


# ---------------------------------------------------------------- the branch that runs
def _condition(node: onnx.NodeProto, values: Values) -> bool | None:
    """Which branch of an If runs; None if that is not known, or it is none."""
    value = values.get(node.input[0]) if node.op_type == "If" else None
    return bool(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


def _taken(
    node: onnx.NodeProto, condition: bool, names: _Names, graph: onnx.GraphProto
) -> list[onnx.NodeProto]:
    """The nodes of the branch that runs, then one for every output of the If.

    The initializers of the branch are added to those of `graph`.
    """
    branch = _moved(node, THEN if condition else ELSE, names, graph)
    ends = [
        helper.make_node("Identity", [inner.name], [outer])
        for inner, outer in zip(branch.output, node.output, strict=False)
        if outer
    ]
    return [*branch.node, *ends]


THEN, ELSE = "then_branch", "else_branch"


def _moved(
    node: onnx.NodeProto, chosen: str, names: _Names, graph: onnx.GraphProto
) -> onnx.GraphProto:
    """A branch with names that `graph` has not yet, and which holds its initializers now."""
    branch = next(each.g for each in node.attribute if each.name == chosen)
    _rename(branch, {name: names.moved(name) for name in _defined(branch)})
    graph.initializer.extend(branch.initializer)
    return branch


# ---------------------------------------------------------------- both branches run
@dataclass(frozen=True)
class _Choice:
    """An If whose condition is computed from data: each result is one of two.

    Attributes:
        name: of the If.
        given: the tensor that decides, as the If reads it.
        condition: the same as a scalar.
        pairs: for each result the tensors of both branches, and its name.
    """

    name: str
    given: str
    condition: str
    pairs: tuple[tuple[str, str, str], ...]

    def check(self, known: Known) -> None:
        """Refuse what a Where would broadcast: several conditions, results of two shapes."""
        if known.get(self.condition, ((), 0))[0]:
            raise VTAError(
                f'node "{self.name}" (If) chooses by "{self.given}" of more than one element; '
                "it must be one truth value; export the model without it or cut the model before it"
            )
        for first, second, result in self.pairs:
            if first not in known or second not in known or known[first] != known[second]:
                pair = " and ".join(_told(known, each) for each in (first, second))
                raise VTAError(
                    f'node "{self.name}" (If) chooses by data, and its branches give "{result}" '
                    f"as {pair}; they must have one shape and type before the model runs; export "
                    "the model without it or cut the model before it"
                )


def _choice(graph: onnx.GraphProto, values: Values, names: _Names) -> _Choice:
    """Put both branches of the first If in its place, and a Where for every result."""
    nodes = list(graph.node)
    place = next(place for place, node in enumerate(nodes) if node.op_type == "If")
    node = nodes[place]  # no other comes before it, whose branches could tell its condition
    _check_open(node, graph, values)
    then, other = (_moved(node, chosen, names, graph) for chosen in (THEN, ELSE))
    name = str(node.name or node.output[0])
    scalar = names.moved(f"{name}_condition")
    found = zip(then.output, other.output, node.output, strict=False)
    pairs = tuple((a.name, b.name, outer) for a, b, outer in found if outer)
    ends = [helper.make_node("Where", [scalar, a, b], [end]) for a, b, end in pairs]
    flat = helper.make_node("Squeeze", [node.input[0]], [scalar])
    nodes[place : place + 1] = [flat, *then.node, *other.node, *ends]
    set_nodes(graph, nodes)
    return _Choice(name, str(node.input[0]), scalar, pairs)


def _told(known: Known, name: str) -> str:
    if name not in known:
        return "a shape that is not known"
    shape, kind = known[name]
    return f"{limits.listed(shape)} {TensorProto.DataType.Name(kind).lower()}"


class _Names:
    """The names of tensors outside of branches, and what those of a branch become there.

    A name may occur once in every branch: then it gets a number.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._outside = {*(value.name for value in graph.input), *_defined(graph)}
        self._all = UniqueNames("_")
        for name in {*self._outside, *_inner_names(graph)}:
            self._all.fresh(name)

    def moved(self, name: str) -> str:
        new = self._all.fresh(name) if name in self._outside else name
        self._outside.add(new)
        return new


def _inner_names(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _defined(inner)
            yield from _inner_names(inner)


def _defined(graph: onnx.GraphProto) -> list[str]:
    """The names that initializers and nodes of the graph give, not those of its subgraphs."""
    made = [name for node in graph.node for name in node.output if name]
    return list(dict.fromkeys([*(tensor.name for tensor in graph.initializer), *made]))


def _rename(graph: onnx.GraphProto, new: Mapping[str, str]) -> None:
    """Give tensors their `new` names, where subgraphs read them too."""
    for tensor in graph.initializer:
        tensor.name = new.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new.get(name, name) for name in node.output]
        for inner in subgraphs(node):
            _rename(inner, new)
    for value in graph.output:
        value.name = new.get(value.name, value.name)


# ---------------------------------------------------------------- what is refused
def _check_open(node: onnx.NodeProto, graph: onnx.GraphProto, values: Values) -> None:
    """Refuse an If that options alone decide: who fixes them has one branch to run, not two."""
    inputs = _sources(node.input[0], graph)
    fixable = [f"--fix {_example(each, graph, values)}" for each in inputs if _is_option(each)]
    if not inputs or len(fixable) < len(inputs):
        return
    listed = ", ".join(f'"{value.name}"' for value in inputs)
    them = "it" if len(fixable) == 1 else "them"
    raise VTAError(
        f'node "{node.name or node.output[0]}" (If) chooses a branch by "{node.input[0]}", which '
        f"is computed from the values of {listed}, and an option decides before the model is "
        f"compiled; fix {them}, for example {' '.join(fixable)}, or export the model without it"
    )


def _sources(name: str, graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs of the graph from whose elements the tensor `name` is computed."""
    needed = {name}
    for node in reversed(graph.node):
        if needed.intersection(node.output) and node.op_type not in OF_SHAPE:
            needed.update(node.input)
    needed -= {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name in needed]


def _example(option: onnx.ValueInfoProto, graph: onnx.GraphProto, values: Values) -> str:
    """A value for it: one that it is compared with, where there is any."""
    if option.type.tensor_type.elem_type == TensorProto.BOOL:
        return f"{option.name}=true"
    tests = [n for n in graph.node if n.op_type in COMPARISONS and option.name in n.input]
    beside = [values[name] for node in tests for name in node.input if name in values]
    numbers = [int(each.reshape(-1)[0]) for each in beside if each.size == 1]
    return f"{option.name}={numbers[0] if numbers else 1}"


def _is_option(value: onnx.ValueInfoProto) -> bool:
    """Whether an input is one number or truth value, as a sample rate is."""
    kind = value.type.tensor_type
    return kind.elem_type in OPTIONS and math.prod(d.dim_value for d in kind.shape.dim) == 1


OPTIONS = (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)
COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
