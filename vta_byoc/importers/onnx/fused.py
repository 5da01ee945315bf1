"""Operators that exporters and ONNX Runtime's optimizer fuse, as the operators that they are of.

A node is found by its domain and its operator: `Attention` of ONNX and of ONNX Runtime differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper
from tvm import relax

from vta_byoc.importers.onnx import attention
from vta_byoc.importers.onnx.absent import ABSENT
from vta_byoc.importers.onnx.node import NodeAttributes, all_nodes
from vta_byoc.importers.onnx.spectra import stft
from vta_byoc.ir.bindings import static_shape

Inputs = list[relax.Expr]
Fused = Callable[[relax.BlockBuilder, Inputs, NodeAttributes], relax.Expr]
"""(builder, inputs, None for one that is left out; attributes) -> the value or values."""
EPSILON, SKIP_EPSILON = 1e-5, 1e-12
"""What the operators mean where the node states none."""
RUNTIME = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""


# ---------------------------------------------------------------- normalization
def _layer_norm(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    """Over all axes from `axis` on; mean and deviation as further results are not taken."""
    _one_result(attrs)
    return _normalized(inputs[0], inputs[1], inputs[2], attrs)


def _rms_norm(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    """Divided by the root of the mean square over all axes from `axis` on."""
    _one_result(attrs)
    return _by_root_mean_square(inputs[0], inputs[1], attrs)


def _skip_layer_norm(
    builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes
) -> relax.Expr:
    data, skip, gamma, beta, bias = inputs[:5]
    total = _sum(builder, data, skip, bias)
    attrs.setdefault("epsilon", SKIP_EPSILON)
    return _with_sum(_normalized(total, gamma, beta, attrs), total, attrs)


def _skip_rms_norm(
    builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes
) -> relax.Expr:
    data, skip, gamma, bias = inputs[:4]
    total = _sum(builder, data, skip, bias)
    attrs.setdefault("epsilon", SKIP_EPSILON)
    return _with_sum(_by_root_mean_square(total, gamma, attrs), total, attrs)


def _sum(
    builder: relax.BlockBuilder, data: relax.Expr, skip: relax.Expr, bias: relax.Expr | None
) -> relax.Expr:
    total = builder.emit(relax.op.add(data, skip))
    return total if bias is None else builder.emit(relax.op.add(total, bias))


def _with_sum(result: relax.Expr, total: relax.Expr, attrs: NodeAttributes) -> relax.Expr:
    """The sum is the fourth result; mean and deviation before it are left empty by every writer."""
    count = attrs["tvm_custom"]["num_outputs"]
    return result if count == 1 else relax.Tuple([result, *[total] * (count - 1)])


def _embed_layer_norm(
    builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes
) -> relax.Expr:
    """Embeddings of words, places and segments; results: normalized, lengths, and the sum."""
    ids, segments, words, places, kinds, gamma, beta, mask, positions = inputs[:9]
    batch, tokens = static_shape(ids)
    if positions is None:
        positions = relax.const(np.arange(tokens, dtype="int32").reshape(1, tokens))
    total = builder.emit(relax.op.take(words, ids, 0))
    for table, rows in ((places, positions), (kinds, segments)):
        if table is not None and rows is not None:
            part = builder.emit(relax.op.take(table, rows, 0))
            total = builder.emit(relax.op.add(total, part))
    attrs.setdefault("epsilon", SKIP_EPSILON)
    lengths: relax.Expr = relax.const(np.zeros(batch, "int32"))
    if mask is not None:
        lengths = builder.emit(relax.op.sum(mask, 1))
    results = [_normalized(total, gamma, beta, attrs), lengths, total]
    return relax.Tuple(results[: attrs["tvm_custom"]["num_outputs"]])


def _normalized(
    x: relax.Expr, gamma: relax.Expr, beta: relax.Expr | None, attrs: NodeAttributes
) -> relax.Expr:
    if beta is None:
        beta = relax.const(np.zeros(static_shape(gamma), "float32"))
    epsilon = float(attrs.get("epsilon", EPSILON))
    return relax.op.nn.layer_norm(x, gamma, beta, _axes(x, attrs), epsilon)


def _by_root_mean_square(x: relax.Expr, gamma: relax.Expr, attrs: NodeAttributes) -> relax.Expr:
    epsilon, shape, axes = float(attrs.get("epsilon", EPSILON)), static_shape(x), _axes(x, attrs)
    if len(axes) == 1 < len(shape):
        return relax.op.nn.rms_norm(x, gamma, axes, epsilon)
    flat = relax.op.reshape(x, (math.prod(shape[: axes[0]]), math.prod(shape[axes[0] :])))
    factors = relax.op.reshape(gamma, (-1,))
    return relax.op.reshape(relax.op.nn.rms_norm(flat, factors, -1, epsilon), shape)


def _axes(x: relax.Expr, attrs: NodeAttributes) -> list[int]:
    rank = len(static_shape(x))
    return list(range(int(attrs.get("axis", -1)) % rank, rank))


def _one_result(attrs: NodeAttributes) -> None:
    if attrs["tvm_custom"]["num_outputs"] > 1:
        raise ValueError("its mean and deviation are results; only the normalized tensor is taken")


# ---------------------------------------------------------------- functions and products
def _quick_gelu(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    slope = relax.const(np.float32(attrs.get("alpha", 1.702)))
    gate = builder.emit(relax.op.sigmoid(builder.emit(relax.op.multiply(inputs[0], slope))))
    return relax.op.multiply(inputs[0], gate)


def _fused_matmul(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    """A product of operands that may be turned, times a number."""
    if attrs.get("transBatchA") or attrs.get("transBatchB"):
        raise ValueError("transBatchA and transBatchB are not supported; only 0 is")
    turned = [
        builder.emit(relax.op.permute_dims(x, _swapped(x))) if attrs.get(key) else x
        for x, key in zip(inputs[:2], _TURNED, strict=True)
    ]
    product = relax.op.matmul(*turned)
    factor = float(attrs.get("alpha", 1.0))
    return (
        product
        if factor == 1
        else relax.op.multiply(builder.emit(product), relax.const(np.float32(factor)))
    )


_TURNED = ("transA", "transB")


def _swapped(x: relax.Expr) -> list[int]:
    rank = len(static_shape(x))
    return [*range(rank - 2), rank - 1, rank - 2]


FUSED: Mapping[tuple[str, str], Fused] = {
    ("", "Attention"): attention.attention,
    ("", "LayerNormalization"): _layer_norm,
    ("", "RMSNormalization"): _rms_norm,
    ("", "RotaryEmbedding"): attention.rotary,
    ("", "STFT"): stft,
    **{("", op_type): written for op_type, written in ABSENT.items()},
    (RUNTIME, "Attention"): attention.fused,
    (RUNTIME, "EmbedLayerNormalization"): _embed_layer_norm,
    (RUNTIME, "FusedMatMul"): _fused_matmul,
    (RUNTIME, "GroupQueryAttention"): attention.group_query,
    (RUNTIME, "LayerNormalization"): _layer_norm,
    (RUNTIME, "MultiHeadAttention"): attention.multi_head,
    (RUNTIME, "QuickGelu"): _quick_gelu,
    (RUNTIME, "RotaryEmbedding"): attention.runtime_rotary,
    (RUNTIME, "SimplifiedLayerNormalization"): _rms_norm,
    (RUNTIME, "SkipLayerNormalization"): _skip_layer_norm,
    (RUNTIME, "SkipSimplifiedLayerNormalization"): _skip_rms_norm,
}
"""(domain, operator) -> how it is written with simpler operators."""
_OWN_BELOW: Mapping[str, int] = {"LayerNormalization": 17, "SimplifiedLayerNormalization": 1 << 30}
"""Operators that ONNX Runtime writes into ONNX's domain -> the opset from which they are ONNX's."""


def domain_of(node: onnx.NodeProto) -> str:
    """The domain of a node, empty for ONNX's own."""
    return "" if node.domain == "ai.onnx" else str(node.domain)


def claim_runtime_nodes(model: onnx.ModelProto, opset: int) -> None:
    """Give ONNX Runtime's operators its domain where its optimizer wrote them into ONNX's."""
    claimed = [
        node
        for node in all_nodes(model.graph)
        if not domain_of(node) and opset < _OWN_BELOW.get(node.op_type, 0)
    ]
    for node in claimed:
        node.domain = RUNTIME
    if claimed and all(each.domain != RUNTIME for each in model.opset_import):
        model.opset_import.append(helper.make_opsetid(RUNTIME, 1))
