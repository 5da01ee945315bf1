"""ONNX attention: ONNX Runtime's fused nodes and the operator of opset 23, as products and softmax.

Each node becomes the operators that an exporter writes where it does not fuse: two products per
head, the scale, the masks as sums, softmax.  So what is done with attention is done once.
Tensors inside have the shape (batch, heads, tokens, size).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from vta_byoc.importers.onnx.node import NodeAttributes
from vta_byoc.ir.bindings import SEPARATOR, is_constant, static_shape

Inputs = list[relax.Expr]
HIDDEN = -10000.0
"""What is added to the score of a key that a mask hides, where the node states no value."""
NO_LIMIT = -1
"""Of a window: every key to that side is seen."""
LATER = np.finfo(np.float32).min
"""What is added to the score of a later key in causal attention, farther than padding is."""


class Attention:
    """One attention node being written as simpler operators.

    Attributes:
        builder: binds calls to variables of the node.
        name: of the node; its products are called `<name>_scores` and `<name>_output`.
        terms: what is added to the scaled scores, each broadcast to (batch, heads, tokens, keys).
        scale: of the scores; one over the root of a head's size where it is 0.
        softcap: the limit of tanh over the scores; 0 for none.
    """

    def __init__(self, builder: relax.BlockBuilder, attrs: NodeAttributes) -> None:
        self.builder = builder
        self.name = str(attrs["tvm_custom"]["name"])
        self.terms: list[relax.Expr] = []
        self.scale = float(attrs.get("scale", 0.0))
        self.softcap = float(attrs.get("softcap", 0.0))
        self.hidden = float(attrs.get("mask_filter_value", HIDDEN))

    def emit(self, call: relax.Expr, part: str = "") -> relax.Var:
        """Bind a call; `part` names a product, so that reports tell it from the rest."""
        return self.builder.emit(call, f"{self.name}_{part}" if part else "")

    def heads(self, x: relax.Expr, count: int) -> relax.Expr:
        """(batch, tokens, count * size) as (batch, count, tokens, size)."""
        batch, tokens, width = static_shape(x)
        if width % count:
            raise ValueError(f"a width of {width} cannot be shared by {count} heads")
        split = self.emit(relax.op.reshape(x, (batch, tokens, count, width // count)))
        return self.emit(relax.op.permute_dims(split, [0, 2, 1, 3]))

    def merged(self, x: relax.Expr) -> relax.Expr:
        """(batch, heads, tokens, size) as (batch, tokens, heads * size)."""
        batch, count, tokens, size = static_shape(x)
        swapped = self.emit(relax.op.permute_dims(x, [0, 2, 1, 3]))
        return self.emit(relax.op.reshape(swapped, (batch, tokens, count * size)))

    def hide(self, keep: relax.Expr) -> None:
        """Hide where `keep` is 0: 1 or 0, or booleans, broadcast to the scores."""
        kept = self.emit(relax.op.astype(keep, "float32"))
        gone = self.emit(relax.op.subtract(relax.const(np.float32(1)), kept))
        factor = relax.const(np.float32(self.hidden))
        self.terms.append(self.emit(relax.op.multiply(gone, factor)))

    def hide_later(self, tokens: int, keys: int) -> None:
        """Hide keys behind a token's own; the last tokens and the last keys are the same."""
        self.hide_far(tokens, keys, (NO_LIMIT, 0), keys - tokens)

    def hide_far(self, tokens: int, keys: int, limits: tuple[int, int], offset: int = 0) -> None:
        """Hide keys farther from a token's own than the limits to the left and to the right.

        The key of the first token is the one at `offset`.

        Raises:
            ValueError: a token is left without a key.
        """
        left, right = (keys + tokens if limit == NO_LIMIT else limit for limit in limits)
        distance = np.arange(keys) - np.arange(tokens)[:, None] - offset
        seen = (-left <= distance) & (distance <= right)
        if not seen.any(axis=1).all():
            raise ValueError(f"{tokens} tokens see {keys} keys, and one of them sees no key")
        self.terms.append(relax.const(np.where(seen, np.float32(0), LATER)))

    def hide_padding(self, mask: relax.Expr, batch: int, keys: int) -> None:
        """The masks of ONNX Runtime: keys, pairs of tokens and keys, lengths, ends and starts.

        Their shapes are (batch, keys), (batch, tokens, keys), (batch,) and (2 * batch,).

        Raises:
            ValueError: a mask of another shape.
        """
        shape = static_shape(mask)
        if shape == (batch,):
            self.hide(self.emit(relax.op.less(self._places(keys), self._ends(mask, 0, batch))))
        elif shape == (2 * batch,):
            before = relax.op.less(self._places(keys), self._ends(mask, 0, batch))
            behind = relax.op.less_equal(self._ends(mask, batch, 2 * batch), self._places(keys))
            self.hide(self.emit(relax.op.logical_and(self.emit(before), self.emit(behind))))
        elif len(shape) in (2, 3) and shape[-1] == keys:
            between = (1, 1) if len(shape) == 2 else (1, shape[1])
            self.hide(self.emit(relax.op.reshape(mask, (shape[0], *between, keys))))
        else:
            raise ValueError(
                f"its mask has the shape {shape}; ({batch},), ({2 * batch},), ({batch}, {keys}) "
                f"or ({batch}, tokens, {keys}) are taken"
            )

    def _places(self, keys: int) -> relax.Constant:
        return relax.const(np.arange(keys, dtype="int32").reshape(1, 1, 1, keys))

    def _ends(self, mask: relax.Expr, begin: int, end: int) -> relax.Var:
        """A place of keys for each image."""
        if static_shape(mask) != (end - begin,):
            mask = self.emit(relax.op.strided_slice(mask, [0], [begin], [end]))
        shaped = self.emit(relax.op.reshape(mask, (end - begin, 1, 1, 1)))
        return self.emit(relax.op.astype(shaped, "int32"))

    def attend(self, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        """What the heads of `q` read of `v`; several heads of `q` may share one of `k` and `v`.

        Raises:
            ValueError: shapes that do not fit each other.
        """
        batch, count, tokens, size = static_shape(q)
        shared, keys = static_shape(k)[1:3]
        width = static_shape(v)[3]
        if count % shared:
            raise ValueError(f"{count} heads of queries cannot share {shared} of keys")
        rows = (batch, shared, count // shared * tokens)
        is_shared = count != shared
        if is_shared:
            q = self.emit(relax.op.reshape(q, (*rows, size)))
        turned = self.emit(relax.op.permute_dims(k, [0, 1, 3, 2]))
        scores = self.emit(relax.op.matmul(q, turned), f"scores{SEPARATOR}matmul")
        scale = np.float32(self.scale or size**-0.5)
        scores = self.emit(relax.op.multiply(scores, relax.const(scale)))
        if is_shared:
            scores = self.emit(relax.op.reshape(scores, (batch, count, tokens, keys)))
        if self.softcap:
            limit = relax.const(np.float32(self.softcap))
            bent = self.emit(relax.op.tanh(self.emit(relax.op.divide(scores, limit))))
            scores = self.emit(relax.op.multiply(bent, limit))
        for term in self.terms:
            scores = self.emit(relax.op.add(scores, term))
        shares = self.emit(relax.op.nn.softmax(scores, -1))
        if is_shared:
            shares = self.emit(relax.op.reshape(shares, (*rows, keys)))
        read = self.emit(relax.op.matmul(shares, v), f"output{SEPARATOR}matmul")
        return self.emit(relax.op.reshape(read, (batch, count, tokens, width)))


def _refuse(inputs: Inputs, named: dict[int, str], attrs: NodeAttributes, outputs: int) -> None:
    """What no exporter of a whole sequence writes: a cache of keys, and a packed layout."""
    for index, what in named.items():
        if inputs[index] is not None:
            raise ValueError(f"it has {what}; a whole sequence is taken, without a cache of keys")
    if attrs["tvm_custom"]["num_outputs"] > outputs:
        raise ValueError(f"it has {attrs['tvm_custom']['num_outputs']} results; {outputs} is taken")


# ---------------------------------------------------------------- ONNX Runtime's nodes
def fused(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    """com.microsoft.Attention: the projections of queries, keys and values belong to it."""
    _refuse(inputs, {4: "past keys"}, attrs, 1)
    if attrs.get("do_rotary"):
        raise ValueError("do_rotary = 1 is not supported; only 0 is")
    data, weight, bias = inputs[:3]
    if not is_constant(weight):
        raise ValueError("its weights are computed while the model runs; they must be constants")
    node = Attention(builder, attrs)
    widths = [int(size) for size in attrs.get("qkv_hidden_sizes", ())]
    widths = widths or [static_shape(weight)[1] // 3] * 3
    ends = np.cumsum([0, *widths])
    projected = []
    for part, begin, end in zip(("query", "key", "value"), ends, ends[1:], strict=False):
        own = np.ascontiguousarray(weight.value.numpy()[:, begin:end])
        x = node.emit(relax.op.matmul(data, relax.const(own)), f"{part}{SEPARATOR}matmul")
        if bias is not None:
            x = node.emit(relax.op.add(x, _columns(node, bias, begin, end)), f"{part}")
        projected.append(node.heads(x, attrs["num_heads"]))
    return _runtime_attention(node, projected, inputs[3], inputs[5], attrs)


def multi_head(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    """com.microsoft.MultiHeadAttention: queries, keys and values (batch, tokens, width).

    Keys and values that another layer has split are (batch, heads, tokens, size).
    """
    _refuse(inputs, {6: "past keys", 7: "past values"}, attrs, 1)
    parts = inputs[:3]
    if any(x is None or len(static_shape(x)) == 5 for x in parts):
        raise ValueError(
            "its queries, keys or values are packed; each must be (batch, tokens, width)"
        )
    node = Attention(builder, attrs)
    if inputs[3] is not None:
        parts = _biased(node, parts, inputs[3])
    shaped = [x if len(static_shape(x)) == 4 else node.heads(x, attrs["num_heads"]) for x in parts]
    return _runtime_attention(node, shaped, inputs[4], inputs[5], attrs)


def _biased(node: Attention, parts: Inputs, bias: relax.Expr) -> Inputs:
    """Queries, keys and values with their parts of a bias."""
    shapes = [static_shape(x) for x in parts]
    if any(len(shape) != 3 for shape in shapes):
        raise ValueError("it has a bias and split keys; add the bias before they are split")
    ends = np.cumsum([0, *(shape[2] for shape in shapes)])
    return [
        node.emit(relax.op.add(x, _columns(node, bias, begin, end)))
        for x, begin, end in zip(parts, ends, ends[1:], strict=False)
    ]


def group_query(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    """com.microsoft.GroupQueryAttention over a whole prompt: causal, heads share keys and values.

    Results are the tokens, and the keys and values as a cache would begin.  Lengths of prompts
    (`seqlens_k`) are not read: a token sees no key behind its own, so only rows of padding differ.
    """
    if inputs[1] is None or inputs[2] is None:
        raise ValueError("its queries, keys and values are packed; give them one by one")
    _refuse(inputs, {3: "past keys", 4: "past values"}, attrs, 3)
    if attrs.get("local_window_size", -1) > 0:
        raise ValueError("local_window_size is not supported; leave it out")
    node = Attention(builder, attrs)
    counts = (attrs["num_heads"], *[attrs["kv_num_heads"]] * 2)
    q, k, v = (node.heads(x, count) for x, count in zip(inputs[:3], counts, strict=True))
    if attrs.get("do_rotary"):
        turn = bool(attrs.get("rotary_interleaved"))
        tokens = static_shape(q)[2]
        cos, sin = (_table(x)[:tokens] for x in inputs[7:9])
        q, k = (rotated(node, x, cos, sin, turn) for x in (q, k))
    node.hide_later(static_shape(q)[2], static_shape(k)[2])
    result = node.merged(node.attend(q, k, v))
    return relax.Tuple([result, k, v]) if attrs["tvm_custom"]["num_outputs"] > 1 else result


def _columns(node: Attention, bias: relax.Expr, begin: int, end: int) -> relax.Expr:
    if is_constant(bias):
        return relax.const(np.ascontiguousarray(bias.value.numpy()[begin:end]))
    return node.emit(relax.op.strided_slice(bias, [0], [int(begin)], [int(end)]))


def _runtime_attention(
    node: Attention,
    shaped: Sequence[relax.Expr],
    mask: relax.Expr | None,
    bias: relax.Expr | None,
    attrs: NodeAttributes,
) -> relax.Expr:
    q, k, v = shaped
    tokens, keys = static_shape(q)[2], static_shape(k)[2]
    if mask is not None:
        node.hide_padding(mask, static_shape(q)[0], keys)
    if attrs.get("unidirectional"):
        node.hide_later(tokens, keys)
    if bias is not None:
        node.terms.append(bias)
    return node.merged(node.attend(q, k, v))


# ---------------------------------------------------------------- the operator of opset 23
PRESENT = 3
"""Results of Attention up to the keys and values."""


def attention(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    """ONNX Attention: three tensors of rank 3 with the number of heads, or of rank 4.

    Past keys and values stand in front of the node's own; both together are further results, which
    the next call takes as the past.
    """
    if inputs[6] is not None:
        raise ValueError("it has lengths of keys; all keys are taken")
    if attrs["tvm_custom"]["num_outputs"] > PRESENT:
        raise ValueError("its scores are a result; the tokens, keys and values are taken")
    node = Attention(builder, attrs)
    is_flat = len(static_shape(inputs[0])) == 3
    q, k, v = inputs[:3]
    if is_flat:
        q = node.heads(q, attrs["q_num_heads"])
        k, v = (node.heads(x, attrs["kv_num_heads"]) for x in (k, v))
    past, before = inputs[4:6], 0
    if (past[0] is None) != (past[1] is None):
        raise ValueError("it has past keys or past values; both or none are taken")
    if past[0] is not None:
        before = static_shape(past[0])[2]
        k, v = (node.emit(relax.op.concat(pair, 2)) for pair in ([past[0], k], [past[1], v]))
    mask = inputs[3]
    if mask is not None and str(mask.ty.dtype) == "bool":
        node.hide(mask)
    elif mask is not None:
        node.terms.append(mask)
    left, right = attrs.get("left_window_size", NO_LIMIT), attrs.get("right_window_size", NO_LIMIT)
    limits = (left, 0 if attrs.get("is_causal") else right)
    if limits != (NO_LIMIT, NO_LIMIT):
        node.hide_far(static_shape(q)[2], static_shape(k)[2], limits, before)
    read = node.attend(q, k, v)
    result = node.merged(read) if is_flat else read
    return relax.Tuple([result, k, v]) if attrs["tvm_custom"]["num_outputs"] > 1 else result


# ---------------------------------------------------------------- positions
def runtime_rotary(
    builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes
) -> relax.Expr:
    """com.microsoft.RotaryEmbedding: one position is the first token's; else each token has one."""
    data, places, cos, sin = inputs[:4]
    return _rotary(builder, data, places, cos, sin, attrs)


def rotary(builder: relax.BlockBuilder, inputs: Inputs, attrs: NodeAttributes) -> relax.Expr:
    """ONNX RotaryEmbedding: without positions the tables have a row per token."""
    data, cos, sin, places = inputs[:4]
    return _rotary(builder, data, places, cos, sin, attrs)


def _rotary(
    builder: relax.BlockBuilder,
    data: relax.Expr,
    places: relax.Expr | None,
    cos: relax.Expr,
    sin: relax.Expr,
    attrs: NodeAttributes,
) -> relax.Expr:
    node = Attention(builder, attrs)
    is_flat = len(static_shape(data)) == 3
    x = node.heads(data, attrs["num_heads"]) if is_flat else data
    batch, _, tokens, _ = static_shape(x)
    if places is None:
        tables = [node.emit(relax.op.expand_dims(table, 1)) for table in (cos, sin)]
    else:
        if static_shape(places) == (1,):
            step = relax.const(np.arange(tokens), str(places.ty.dtype))
            places = node.emit(relax.op.add(places, step))
            batch = 1
        flat = node.emit(relax.op.reshape(places, (batch * tokens,)))
        rows = [node.emit(relax.op.take(table, flat, 0)) for table in (cos, sin)]
        tables = [
            node.emit(relax.op.reshape(row, (batch, 1, tokens, static_shape(row)[1])))
            for row in rows
        ]
    part = attrs.get("rotary_embedding_dim", 0)
    if part not in (0, 2 * static_shape(cos)[-1]):
        raise ValueError(f"it turns {part} of a head, and its tables {2 * static_shape(cos)[-1]}")
    turned = _turned(node, x, tables[0], tables[1], bool(attrs.get("interleaved")))
    return node.merged(turned) if is_flat else turned


def _table(expr: relax.Expr | None) -> np.ndarray:
    if expr is None or not is_constant(expr):
        raise ValueError("its tables of cosines and sines must be constants")
    return np.asarray(expr.value.numpy(), "float32")


def rotated(
    node: Attention, x: relax.Expr, cos: np.ndarray, sin: np.ndarray, interleaved: bool
) -> relax.Expr:
    """`x` turned by tables (tokens, size / 2): halves of a head, or neighbours, are the pairs."""
    return _turned(node, x, relax.const(cos), relax.const(sin), interleaved)


def _turned(
    node: Attention, x: relax.Expr, cos: relax.Expr, sin: relax.Expr, interleaved: bool
) -> relax.Expr:
    """Pairs (a, b) become (a cos - b sin, b cos + a sin); what the tables do not reach stays."""
    size, half = static_shape(x)[3], static_shape(cos)[-1]
    if interleaved:
        first, second = _strided(node, x, 0, 2 * half, 2), _strided(node, x, 1, 2 * half, 2)
    else:
        first, second = _strided(node, x, 0, half), _strided(node, x, half, 2 * half)
    emit = node.emit
    products = [
        emit(relax.op.multiply(a, b))
        for a, b in ((first, cos), (second, sin), (second, cos), (first, sin))
    ]
    pair = [
        emit(relax.op.subtract(products[0], products[1])),
        emit(relax.op.add(products[2], products[3])),
    ]
    rest = [] if size == 2 * half else [_strided(node, x, 2 * half, size)]
    if not interleaved:
        return emit(relax.op.concat([*pair, *rest], 3))
    batch, count, tokens, _ = static_shape(x)
    columns = [emit(relax.op.expand_dims(part, 4)) for part in pair]
    turned = emit(relax.op.concat(columns, 4))
    turned = emit(relax.op.reshape(turned, (batch, count, tokens, 2 * half)))
    return emit(relax.op.concat([turned, *rest], 3)) if rest else turned


def _strided(node: Attention, x: relax.Expr, begin: int, end: int, step: int = 1) -> relax.Expr:
    return node.emit(relax.op.strided_slice(x, [3], [begin], [end], [step]))
