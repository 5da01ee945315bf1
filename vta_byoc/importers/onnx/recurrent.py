"""ONNX recurrent layers: RNN, GRU and LSTM, unrolled over their sequence.

The length of a sequence is known, so a layer becomes one matrix product of all its inputs with W
and one of each step's state with R, between gates of float operators.  The products are the layers
that can be quantized and run on VTA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from tvm import relax

from vta_byoc.importers.onnx.node import NodeAttributes
from vta_byoc.ir.bindings import SEPARATOR, is_constant, static_shape
from vta_byoc.ir.names import CELL, STEP

Inputs = list[relax.Expr]
State = tuple[relax.Expr | None, ...]
"""Tensors (batch, hidden) that a step hands to the next; None: zeros."""
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
UNSUPPORTED: tuple[Literal["clip", "input_forget"], ...] = ("clip", "input_forget")
"""Attributes that must be 0."""
ACTIVATIONS: Mapping[str, Callable[[relax.Expr], relax.Expr]] = {
    "Relu": relax.op.nn.relu,
    "Sigmoid": relax.op.sigmoid,
    "Tanh": relax.op.tanh,
}


def step_name(node: str, step: int, second: bool = False, kind: str = STEP) -> str:
    """The name of what a node has after a step: `kind` is STEP or CELL.

    Args:
        node: its name.
        step: the number of the step, along the sequence.
        second: whether it is the second direction of two.
        kind: whether it is the result or the state of the cells.
    """
    return f"{node}{kind}{'back_' if second else ''}{step}"


@dataclass
class _Cell:
    """One direction of a layer.

    Attributes:
        emit: binds a call to a variable of the node, or to one of the name given.
        name: of the node; its products are called `<name>_input` and `<name>_state`, so that
            reports tell them from the gates.
        hidden: size of the state.
        activations: of the gates, of the candidate, and of the cell, as far as the kind has them.
        weights: R transposed, (hidden, gates * hidden).
        bias: that is added to the state's product, (gates * hidden).
        peephole: (3, hidden), of an LSTM that has them.
        resets_late: a GRU's linear_before_reset.
        second: whether it is the second direction of two.
        step: the number of the step that is being written, along the sequence.
    """

    emit: Callable[..., relax.Var]
    name: str
    hidden: int
    activations: list[Callable[[relax.Expr], relax.Expr]]
    weights: np.ndarray
    bias: np.ndarray
    peephole: np.ndarray | None
    resets_late: bool
    second: bool
    step: int = 0

    def result(self, value: relax.Expr, kind: str = STEP) -> relax.Var:
        """What the step hands to the next, under the name of the step."""
        return self.emit(value, step_name(self.name, self.step, self.second, kind))

    def product(self, state: relax.Expr | None, first: int, last: int) -> relax.Expr | None:
        """The state times R of the gates `first` to `last`; None for zeros."""
        if state is None:
            return None
        part = self.weights[:, first * self.hidden : last * self.hidden]
        product = relax.op.matmul(state, relax.const(np.ascontiguousarray(part)))
        return self.emit(product, f"{self.name}_state{SEPARATOR}matmul")

    def summed(self, x: relax.Expr, product: relax.Expr | None) -> relax.Expr:
        """Plus the product of the state."""
        if product is None:
            return x
        return self.emit(relax.op.add(x, product), f"{self.name}_state{SEPARATOR}add")

    def plus(self, left: relax.Expr, right: relax.Expr | None) -> relax.Expr:
        return left if right is None else self.emit(relax.op.add(left, right))

    def times(self, left: relax.Expr, right: relax.Expr | None) -> relax.Expr | None:
        return None if right is None else self.emit(relax.op.multiply(left, right))

    def gate(self, sums: relax.Expr, index: int) -> relax.Expr:
        begin = index * self.hidden
        return self.emit(relax.op.strided_slice(sums, [1], [begin], [begin + self.hidden]))

    def gate_of(self, sums: relax.Expr | None, index: int) -> relax.Expr | None:
        return None if sums is None else self.gate(sums, index)

    def activated(self, which: int, value: relax.Expr) -> relax.Expr:
        return self.emit(self.activations[which](value))


# ---------------------------------------------------------------- one step
def _rnn_step(cell: _Cell, x: relax.Expr, state: State) -> State:
    sums = cell.summed(x, cell.product(state[0], 0, 1))
    return (cell.result(cell.activations[0](sums)),)


def _gru_step(cell: _Cell, x: relax.Expr, state: State) -> State:
    """Gates z and r, then the candidate of what r lets through."""
    (hidden,) = state
    products = cell.product(hidden, 0, 3 if cell.resets_late else 2)
    update, reset = (
        cell.activated(0, cell.plus(cell.gate(x, index), cell.gate_of(products, index)))
        for index in (0, 1)
    )
    if cell.resets_late:
        late = relax.const(cell.bias[2 * cell.hidden :].reshape(1, -1))
        own = cell.gate_of(products, 2)
        passed = cell.times(reset, late if own is None else cell.plus(own, late))
    else:
        passed = cell.product(cell.times(reset, hidden), 2, 3)
    candidate = cell.activated(1, cell.plus(cell.gate(x, 2), passed))
    kept = cell.emit(relax.op.subtract(relax.const(np.float32(1)), update))
    new, old = relax.op.multiply(kept, candidate), cell.times(update, hidden)
    return (cell.result(new if old is None else relax.op.add(cell.emit(new), old)),)


def _lstm_step(cell: _Cell, x: relax.Expr, state: State) -> State:
    """Gates i, o and f, and the candidate."""
    hidden, memory = state
    sums = cell.summed(x, cell.product(hidden, 0, 4))
    enter = cell.activated(0, _peeped(cell, cell.gate(sums, 0), 0, memory))
    candidate = cell.activated(1, cell.gate(sums, 3))
    new = relax.op.multiply(enter, candidate)
    if memory is not None:
        entered = cell.emit(new)
        forget = cell.activated(0, _peeped(cell, cell.gate(sums, 2), 2, memory))
        new = relax.op.add(entered, cell.emit(relax.op.multiply(forget, memory)))
    kept = cell.result(new, CELL)
    leave = cell.activated(0, _peeped(cell, cell.gate(sums, 1), 1, kept))
    return cell.result(relax.op.multiply(leave, cell.activated(2, kept))), kept


def _peeped(cell: _Cell, gate: relax.Expr, index: int, memory: relax.Expr | None) -> relax.Expr:
    if cell.peephole is None or memory is None:
        return gate
    factor = relax.const(np.ascontiguousarray(cell.peephole[index : index + 1]))
    return cell.plus(gate, cell.times(memory, factor))


# ---------------------------------------------------------------- a layer
@dataclass(frozen=True)
class _Kind:
    """What differs between the layers.

    Attributes:
        gates: how many W and R hold.
        states: how many tensors a step hands on.
        activations: by default, for one direction.
        step: computes one step.
    """

    gates: int
    states: int
    activations: tuple[str, ...]
    step: Callable[[_Cell, relax.Expr, State], State]


KINDS = {
    "GRU": _Kind(3, 1, ("Sigmoid", "Tanh"), _gru_step),
    "LSTM": _Kind(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm_step),
    "RNN": _Kind(1, 1, ("Tanh",), _rnn_step),
}
"""Operator -> its kind."""


def unroll(
    builder: relax.BlockBuilder, op_name: str, inputs: Inputs, attrs: NodeAttributes
) -> relax.Expr:
    """The outputs of a recurrent node as a tuple.

    Args:
        builder: emits what the node needs.
        op_name: "RNN", "GRU" or "LSTM".
        inputs: X, W, R, B, sequence_lens, the initial states and, of an LSTM, P; None for one
            that is left out.
        attrs: of the node, as TVM's importer reads them.

    Raises:
        ValueError: weights that are no constants, or an attribute that is not supported.
    """
    kind = KINDS[op_name]
    data, batch_first = inputs[0], bool(attrs.get("layout", 0))
    if batch_first:
        data = builder.emit(relax.op.permute_dims(data, [1, 0, 2]))
    length, batch, _ = static_shape(data)
    _check(inputs, attrs, length)
    starts = _initial(builder, inputs[5 : 5 + kind.states], batch_first)
    rows: list[relax.Expr] = []
    ends: list[list[relax.Expr]] = [[] for _ in range(kind.states)]
    directions = DIRECTIONS[attrs.get("direction", b"forward").decode()]
    for number, is_reverse in enumerate(directions):
        cell, projected = _cell(builder, kind, inputs, attrs, number, data)
        state: State = tuple(None if s is None else _row(builder, s, number) for s in starts)
        made: list[relax.Expr] = []
        for step in reversed(range(length)) if is_reverse else range(length):
            cell.step, x = step, _part(builder, projected, step * batch, batch)
            state = kind.step(cell, x, state)
            assert state[0] is not None
            made.append(state[0])
        rows.append(_stacked(builder, made[::-1] if is_reverse else made, length, batch))
        for end, value in zip(ends, state, strict=True):
            end.append(value)
    return _outputs(builder, rows, ends, batch_first)


def _check(inputs: Inputs, attrs: NodeAttributes, length: int) -> None:
    if not is_constant(inputs[1]) or not is_constant(inputs[2]):
        raise ValueError("its weights are computed while the model runs; they must be constants")
    for key in UNSUPPORTED:
        if attrs.get(key):
            raise ValueError(f"{key} = {attrs[key]} is not supported; only 0 is")
    lengths = inputs[4]
    if lengths is None:
        return
    if not is_constant(lengths) or (lengths.value.numpy() != length).any():
        raise ValueError(f"sequence_lens must be left out, or {length} for every sequence")


def _initial(
    builder: relax.BlockBuilder, states: Inputs, batch_first: bool
) -> list[relax.Expr | None]:
    """(directions, batch, hidden) each; None for zeros."""
    found: list[relax.Expr | None] = []
    for state in states:
        if state is None or (is_constant(state) and not state.value.numpy().any()):
            found.append(None)
        else:
            swapped = relax.op.permute_dims(state, [1, 0, 2])
            found.append(builder.emit(swapped) if batch_first else state)
    return found


def _cell(
    builder: relax.BlockBuilder,
    kind: _Kind,
    inputs: Inputs,
    attrs: NodeAttributes,
    number: int,
    data: relax.Expr,
) -> tuple[_Cell, relax.Expr]:
    """A direction, and all its inputs times W with the biases, (length * batch, gates * hidden)."""
    own, state = (_array(inputs[i])[number] for i in (1, 2))
    hidden = state.shape[1]
    biases = np.zeros((2, kind.gates * hidden), "float32")
    if inputs[3] is not None:
        biases = _array(inputs[3])[number].reshape(2, -1)
    resets_late = bool(attrs.get("linear_before_reset", 0))
    bias = biases[0] + biases[1]
    if resets_late:  # the candidate's share of the state's bias is reset with its product
        bias[2 * hidden :] = biases[0, 2 * hidden :]
    name = str(attrs["tvm_custom"]["name"])
    peephole = inputs[7] if kind is KINDS["LSTM"] else None
    cell = _Cell(
        builder.emit,
        name,
        hidden,
        _activations(kind, attrs, number),
        np.ascontiguousarray(state.T),
        biases[1],
        None if peephole is None else _array(peephole)[number].reshape(3, hidden),
        resets_late,
        number > 0,
    )
    length, batch, size = static_shape(data)
    flat = builder.emit(relax.op.reshape(data, (length * batch, size)))
    call = relax.op.matmul(flat, relax.const(np.ascontiguousarray(own.T)))
    product = builder.emit(call, f"{name}_input{SEPARATOR}matmul")
    total = relax.op.add(product, relax.const(bias))
    return cell, builder.emit(total, f"{name}_input{SEPARATOR}add")


def _array(expr: relax.Expr) -> np.ndarray:
    if not is_constant(expr):
        raise ValueError("its weights are computed while the model runs; they must be constants")
    return np.asarray(expr.value.numpy(), "float32")


def _activations(
    kind: _Kind, attrs: NodeAttributes, number: int
) -> list[Callable[[relax.Expr], relax.Expr]]:
    count = len(kind.activations)
    names = [bytes(name).decode() for name in attrs.get("activations", ())]
    names = names[number * count : (number + 1) * count] or list(kind.activations)
    for name in names:
        if name not in ACTIVATIONS:
            raise ValueError(f"its activation is {name}; {', '.join(ACTIVATIONS)} are supported")
    return [ACTIVATIONS[name] for name in names]


# ---------------------------------------------------------------- pieces and their results
def _row(builder: relax.BlockBuilder, states: relax.Expr, number: int) -> relax.Expr:
    """(batch, hidden) of a direction."""
    if is_constant(states):
        return relax.const(np.ascontiguousarray(_array(states)[number]))
    part = builder.emit(relax.op.strided_slice(states, [0], [number], [number + 1]))
    return builder.emit(relax.op.squeeze(part, [0]))


def _part(builder: relax.BlockBuilder, rows: relax.Expr, begin: int, count: int) -> relax.Expr:
    if static_shape(rows)[0] == count:
        return rows
    return builder.emit(relax.op.strided_slice(rows, [0], [begin], [begin + count]))


def _stacked(
    builder: relax.BlockBuilder, states: list[relax.Expr], length: int, batch: int
) -> relax.Expr:
    """(length, 1, batch, hidden) of all steps."""
    whole = states[0] if length == 1 else builder.emit(relax.op.concat(states, 0))
    return builder.emit(relax.op.reshape(whole, (length, 1, batch, static_shape(whole)[1])))


def _outputs(
    builder: relax.BlockBuilder,
    rows: list[relax.Expr],
    ends: list[list[relax.Expr]],
    batch_first: bool,
) -> relax.Expr:
    """Y and the last states, in the layout of the node."""
    whole = rows[0] if len(rows) == 1 else relax.op.concat(rows, 1)
    if batch_first:
        whole = relax.op.permute_dims(builder.emit(whole), [2, 0, 1, 3])
    last = []
    for states in ends:
        each = [builder.emit(relax.op.expand_dims(state, [0])) for state in states]
        value = each[0] if len(each) == 1 else builder.emit(relax.op.concat(each, 0))
        swapped = relax.op.permute_dims(value, [1, 0, 2])
        last.append(builder.emit(swapped) if batch_first else value)
    return relax.Tuple([whole, *last])
