"""TFLite operators that compute each element of a tensor by itself, of one operand or several."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tflite import ActivationFunctionType
from tvm import relax

from vta_byoc.importers.tflite.graph import NCHW, TFLiteGraph
from vta_byoc.importers.tflite.model import TFLiteTensor
from vta_byoc.importers.tflite.movement import ACTIVATIONS, Converter, activated, inputs_of


def _number(value: float) -> relax.Expr:
    return relax.const(np.float32(value))


# ---------------------------------------------------------------- several operands
def _operand(g: TFLiteGraph, tensor: TFLiteTensor, rank: int) -> relax.Expr:
    """A tensor that broadcasts to `rank` axes: missing ones are in front, in the file's order."""
    if rank != 4 or len(tensor.shape) in (0, 4):
        return g.value(tensor)
    return _of_shape(g, tensor, (1,) * (4 - len(tensor.shape)) + tensor.shape)


def _of_shape(g: TFLiteGraph, tensor: TFLiteTensor, shape: tuple[int, ...]) -> relax.Expr:
    """A tensor of fewer axes as one of `shape`, which has four, as NCHW."""
    if tensor.value is not None:
        return g.constant(tensor, NCHW, shape)
    value = g.emit(relax.op.reshape(g.value(tensor), shape), "operand")
    return g.emit(relax.op.permute_dims(value, NCHW), "operand")


def _operands(g: TFLiteGraph, *positions: int) -> list[relax.Expr]:
    rank = len(g.op.outputs[0].shape)
    return [_operand(g, tensor, rank) for tensor in inputs_of(g, *positions)]


def _binary(op: Callable[..., relax.Expr], kind: str = "") -> Converter:
    def convert(g: TFLiteGraph) -> None:
        operands = _operands(g, 0, 1)
        activation = g.op.options(kind).FusedActivationFunction() if kind else 0
        g.store(activated(g, op(*operands), activation))

    return convert


def _divide(g: TFLiteGraph) -> None:
    """Integers are divided towards zero in TFLite.

    Raises:
        VTAError: of integers, which Relax divides in another way.
    """
    _refuse_integers(g)
    _binary(relax.op.divide, "DivOptions")(g)


def _floor_divide(g: TFLiteGraph) -> None:
    _refuse_integers(g)
    g.store(relax.op.floor(g.emit(relax.op.divide(*_operands(g, 0, 1)), "quotient")))


def _refuse_integers(g: TFLiteGraph) -> None:
    tensor = g.op.outputs[0]
    if "int" in tensor.dtype and not tensor.is_quantized:
        raise g.error(
            f'divides integers, "{tensor.name}" of {tensor.dtype}; only floats are divided; cast '
            "them before"
        )


def _squared_difference(g: TFLiteGraph) -> None:
    difference = g.emit(relax.op.subtract(*_operands(g, 0, 1)), "difference")
    g.store(relax.op.multiply(difference, difference))


def _sum_of_all(g: TFLiteGraph) -> None:
    first, *others = _operands(g, *range(len(g.op.inputs)))
    for operand in others:
        first = g.emit(relax.op.add(first, operand), "sum")
    g.store(first)


def _select(g: TFLiteGraph) -> None:
    """SELECT: a condition of one axis chooses whole parts of the first axis."""
    rank = len(g.op.outputs[0].shape)
    condition = inputs_of(g, 0)[0]
    if len(condition.shape) != 1 or rank == 1:
        _select_v2(g)
        return
    shape = (*condition.shape, *(1,) * (rank - 1))
    if rank == 4:
        chosen = _of_shape(g, condition, shape)
    else:
        chosen = g.emit(relax.op.reshape(g.value(condition), shape), "condition")
    g.store(relax.op.where(chosen, *_operands(g, 1, 2)))


def _select_v2(g: TFLiteGraph) -> None:
    g.store(relax.op.where(*_operands(g, 0, 1, 2)))


def _prelu(g: TFLiteGraph) -> None:
    """The slopes broadcast, as the operand of an addition does."""
    data, slope = _operands(g, 0, 1)
    below = g.emit(relax.op.minimum(data, _number(0)), "below")
    scaled = g.emit(relax.op.multiply(below, slope), "scaled")
    above = g.emit(relax.op.nn.relu(data), "above")
    g.store(relax.op.add(above, scaled))


# ---------------------------------------------------------------- one operand
def _unary(op: Callable[[relax.Expr], relax.Expr]) -> Converter:
    def convert(g: TFLiteGraph) -> None:
        g.store(op(g.value(*inputs_of(g, 0))))

    return convert


def _square(g: TFLiteGraph) -> None:
    value = g.value(*inputs_of(g, 0))
    g.store(relax.op.multiply(value, value))


def _leaky_relu(g: TFLiteGraph) -> None:
    alpha = float(g.op.options("LeakyReluOptions").Alpha())
    g.store(relax.op.nn.leakyrelu(g.value(*inputs_of(g, 0)), alpha))


def _elu(g: TFLiteGraph) -> None:
    """exp(x) - 1 below zero."""
    value = g.value(*inputs_of(g, 0))
    below = g.emit(relax.op.minimum(value, _number(0)), "below")
    grown = g.emit(relax.op.exp(below), "exp")
    fallen = g.emit(relax.op.subtract(grown, _number(1)), "fallen")
    above = g.emit(relax.op.nn.relu(value), "above")
    g.store(relax.op.add(above, fallen))


def _gelu(g: TFLiteGraph) -> None:
    approximate = g.op.options("GeluOptions").Approximate()
    op = relax.op.nn.gelu_tanh if approximate else relax.op.nn.gelu
    g.store(op(g.value(*inputs_of(g, 0))))


def _hard_swish(g: TFLiteGraph) -> None:
    value = g.value(*inputs_of(g, 0))
    shifted = g.emit(relax.op.add(value, _number(3)), "shifted")
    gate = g.emit(relax.op.clip(shifted, 0, 6), "gate")
    product = g.emit(relax.op.multiply(value, gate), "product")
    g.store(relax.op.multiply(product, _number(1 / 6)))


def _keep(g: TFLiteGraph) -> None:
    """QUANTIZE and DEQUANTIZE: the numbers stay, `value` and `store` change how they are held."""
    (data,) = inputs_of(g, 0)
    g.store(g.value(data))


def _cast(g: TFLiteGraph) -> None:
    """To the dtype of the result; floats are cut towards zero."""
    g.store(relax.op.astype(g.value(*inputs_of(g, 0)), g.op.outputs[0].dtype))


ELEMENTWISE: dict[str, Converter] = {
    "ABS": _unary(relax.op.abs),
    "ADD": _binary(relax.op.add, "AddOptions"),
    "ADD_N": _sum_of_all,
    "CAST": _cast,
    "CEIL": _unary(relax.op.ceil),
    "COS": _unary(relax.op.cos),
    "DEQUANTIZE": _keep,
    "DIV": _divide,
    "ELU": _elu,
    "EQUAL": _binary(relax.op.equal),
    "EXP": _unary(relax.op.exp),
    "FLOOR": _unary(relax.op.floor),
    "FLOOR_DIV": _floor_divide,
    "GELU": _gelu,
    "GREATER": _binary(relax.op.greater),
    "GREATER_EQUAL": _binary(relax.op.greater_equal),
    "HARD_SWISH": _hard_swish,
    "LEAKY_RELU": _leaky_relu,
    "LESS": _binary(relax.op.less),
    "LESS_EQUAL": _binary(relax.op.less_equal),
    "LOG": _unary(relax.op.log),
    "LOGICAL_AND": _binary(relax.op.logical_and),
    "LOGICAL_NOT": _unary(relax.op.logical_not),
    "LOGICAL_OR": _binary(relax.op.logical_or),
    "LOGISTIC": _unary(relax.op.sigmoid),
    "MAXIMUM": _binary(relax.op.maximum),
    "MINIMUM": _binary(relax.op.minimum),
    "MUL": _binary(relax.op.multiply, "MulOptions"),
    "NEG": _unary(relax.op.negative),
    "NOT_EQUAL": _binary(relax.op.not_equal),
    "POW": _binary(relax.op.power),
    "PRELU": _prelu,
    "QUANTIZE": _keep,
    "RELU": _unary(relax.op.nn.relu),
    "RELU6": _unary(ACTIVATIONS[ActivationFunctionType.RELU6]),
    "RELU_0_TO_1": _unary(lambda x: relax.op.clip(x, 0, 1)),
    "RELU_N1_TO_1": _unary(ACTIVATIONS[ActivationFunctionType.RELU_N1_TO_1]),
    "ROUND": _unary(relax.op.round),
    "RSQRT": _unary(relax.op.rsqrt),
    "SELECT": _select,
    "SELECT_V2": _select_v2,
    "SIGN": _unary(relax.op.sign),
    "SIN": _unary(relax.op.sin),
    "SQRT": _unary(relax.op.sqrt),
    "SQUARE": _square,
    "SQUARED_DIFFERENCE": _squared_difference,
    "SUB": _binary(relax.op.subtract, "SubOptions"),
    "TANH": _unary(relax.op.tanh),
}
"""TFLite operator -> converter."""
