"""Cases for every operator of the TFLite importer: files with one operator, against LiteRT.

A generator writes the operator with a `Lite`; the shapes of its results are those that the
interpreter computes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from importer_draws import Case, case_folder
from importer_tflite_elements import (
    add_n,
    binary,
    cast,
    compared,
    logical,
    logical_not,
    power,
    prelu,
    quantization,
    select,
    select_v2,
    spectrum,
    unary,
)
from importer_tflite_graph import Generator, Lite
from importer_tflite_layers import (
    batch_matmul,
    conv,
    depthwise,
    extreme,
    fully_connected,
    l2_normalization,
    log_softmax,
    pool,
    reduction,
    softmax,
    transpose_conv,
)
from importer_tflite_moves import (
    batch_to_space,
    broadcast,
    concatenation,
    depth_to_space,
    embedding,
    expand_dims,
    gather,
    mirror_pad,
    pack,
    pad,
    reshape,
    resize,
    reverse,
    slice_,
    space_to_batch,
    space_to_depth,
    split,
    split_v,
    squeeze,
    strided_slice,
    tile,
    transpose,
    unpack,
)

CASES: dict[str, Generator] = {
    "ABS": unary(),
    "ADD": binary("AddOptions"),
    "ADD_N": add_n,
    "ARG_MAX": extreme,
    "ARG_MIN": extreme,
    "AVERAGE_POOL_2D": pool,
    "BATCH_MATMUL": batch_matmul,
    "BATCH_TO_SPACE_ND": batch_to_space,
    "BROADCAST_TO": broadcast,
    "CAST": cast,
    "CEIL": unary(),
    "COMPLEX_ABS": spectrum,
    "CONCATENATION": concatenation,
    "CONV_2D": conv,
    "COS": unary(),
    "DEPTHWISE_CONV_2D": depthwise,
    "DEPTH_TO_SPACE": depth_to_space,
    "DEQUANTIZE": quantization,
    "DIV": binary("DivOptions", 0.5),
    "ELU": unary(),
    "EMBEDDING_LOOKUP": embedding,
    "EQUAL": compared,
    "EXP": unary(),
    "EXPAND_DIMS": expand_dims,
    "FLOOR": unary(),
    "FLOOR_DIV": binary("", 0.5),
    "FULLY_CONNECTED": fully_connected,
    "GATHER": gather,
    "GELU": unary(-4, 4, "GeluOptions", approximate=(False, True)),
    "GREATER": compared,
    "GREATER_EQUAL": compared,
    "HARD_SWISH": unary(),
    "IMAG": spectrum,
    "L2_NORMALIZATION": l2_normalization,
    "LEAKY_RELU": unary(-4, 4, "LeakyReluOptions", alpha=(0.1, 0.3, 1.5)),
    "LESS": compared,
    "LESS_EQUAL": compared,
    "LOG": unary(0.1),
    "LOGICAL_AND": logical,
    "LOGICAL_NOT": logical_not,
    "LOGICAL_OR": logical,
    "LOGISTIC": unary(-20, 20),
    "LOG_SOFTMAX": log_softmax,
    "MAXIMUM": binary(),
    "MAX_POOL_2D": pool,
    "MEAN": reduction,
    "MINIMUM": binary(),
    "MIRROR_PAD": mirror_pad,
    "MUL": binary("MulOptions"),
    "NEG": unary(),
    "NOT_EQUAL": compared,
    "PACK": pack,
    "PAD": pad,
    "PADV2": pad,
    "POW": power,
    "PRELU": prelu,
    "QUANTIZE": quantization,
    "REAL": spectrum,
    "REDUCE_MAX": reduction,
    "REDUCE_MIN": reduction,
    "REDUCE_PROD": reduction,
    "RELU": unary(),
    "RELU6": unary(-4, 9),
    "RELU_0_TO_1": unary(),
    "RELU_N1_TO_1": unary(),
    "RESHAPE": reshape,
    "RESIZE_BILINEAR": resize,
    "RESIZE_NEAREST_NEIGHBOR": resize,
    "REVERSE_V2": reverse,
    "RFFT2D": spectrum,
    "ROUND": unary(),
    "RSQRT": unary(0.1),
    "SELECT": select,
    "SELECT_V2": select_v2,
    "SIGN": unary(),
    "SIN": unary(),
    "SLICE": slice_,
    "SOFTMAX": softmax,
    "SPACE_TO_BATCH_ND": space_to_batch,
    "SPACE_TO_DEPTH": space_to_depth,
    "SPLIT": split,
    "SPLIT_V": split_v,
    "SQRT": unary(0),
    "SQUARE": unary(),
    "SQUARED_DIFFERENCE": binary(),
    "SQUEEZE": squeeze,
    "STRIDED_SLICE": strided_slice,
    "SUB": binary("SubOptions"),
    "SUM": reduction,
    "TANH": unary(),
    "TILE": tile,
    "TRANSPOSE": transpose,
    "TRANSPOSE_CONV": transpose_conv,
    "UNPACK": unpack,
}
"""TFLite operator -> generator."""


def case(name: str, number: int, seed: int = 0) -> Case:
    """Draw `number` of the operator `name`."""
    g = Lite(name, seed, number, *name.encode())
    CASES[name](g)

    def model() -> Path:
        path = case_folder() / f"{name}-{number}.tflite"
        path.write_bytes(g.file(g.made()))
        return path

    def expected() -> list[np.ndarray]:
        return [g.interpreter.get_tensor(number) for number in g.outputs]

    return Case(name, model, g.feed, expected, f"draw {number}: {g.text}")
