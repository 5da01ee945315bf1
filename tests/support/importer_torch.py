"""Cases for every operator of the PyTorch importer: programs with one call, against eager PyTorch.

A generator draws a function of tensors and its inputs. Programs take float32 only; integers and
booleans are made of it inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from importer_draws import Case, Draw
from importer_torch_inputs import (
    KINDS,
    Generator,
    aten,
    binary,
    moved,
    positive,
    reduction,
    scalar,
    small,
    unary,
    whole,
)
from importer_torch_layers import (
    adaptive,
    adaptive_maximal,
    addmm,
    average,
    batch_norm,
    convolution,
    distances,
    filtered,
    grid,
    group_norm,
    layer_norm,
    maximal,
    product,
    resized,
)
from importer_torch_moves import (
    added,
    along,
    arange,
    as_strided,
    bucketize,
    casts,
    cat,
    clamp,
    clamp_tensors,
    diagonal,
    embedding,
    emptied,
    expand,
    extreme_of,
    flip,
    full,
    gather,
    index,
    index_put,
    index_select,
    made,
    norm,
    pad,
    permute,
    repeat,
    scatter,
    select,
    slice_,
    slice_scatter,
    sort,
    special,
    split,
    squeeze,
    topk,
    unfold,
    unsqueeze,
    variance,
    view,
    where,
)


def elu(x: Any, alpha: float) -> Any:
    """With the scale that SELU has, and that of the operand that CELU has, where alpha is not 1."""
    return aten.elu(x, alpha) if alpha == 1 else aten.elu(x, alpha, 1.05, 1 / alpha)


CASES: dict[str, Generator] = {
    "_adaptive_avg_pool2d.default": adaptive(2),
    "_adaptive_avg_pool3d.default": adaptive(3),
    "_log_softmax.default": moved(along(aten._log_softmax, False), kinds=KINDS[:1]),
    "_native_batch_norm_legit.no_stats": batch_norm(aten._native_batch_norm_legit.no_stats, True),
    "_native_batch_norm_legit_no_training.default": batch_norm(
        aten._native_batch_norm_legit_no_training
    ),
    "_softmax.default": moved(along(aten._softmax, False), kinds=KINDS[:1]),
    "_to_copy.default": casts,
    "abs.default": unary(aten.abs, -4, 4, whole),
    "acos.default": unary(aten.acos, -1, 1),
    "acosh.default": unary(aten.acosh, 1, 9),
    "adaptive_max_pool2d.default": adaptive_maximal(2),
    "adaptive_max_pool3d.default": adaptive_maximal(3),
    "add.Scalar": scalar(aten.add.Scalar),
    "add.Tensor": binary(added, *KINDS, positive),
    "addmm.default": addmm,
    "alias.default": unary(aten.alias),
    "amax.default": reduction(aten.amax, *KINDS),
    "amin.default": reduction(aten.amin, *KINDS),
    "any.default": unary(aten.any, -1, 1, positive),
    "any.dim": reduction(aten.any.dim, positive, *KINDS, many=False),
    "any.dims": reduction(aten.any.dims, positive, *KINDS),
    "arange.start_step": made(arange),
    "argmax.default": extreme_of(aten.argmax),
    "argmin.default": extreme_of(aten.argmin),
    "as_strided.default": as_strided,
    "asin.default": unary(aten.asin, -1, 1),
    "asinh.default": unary(aten.asinh),
    "atan.default": unary(aten.atan),
    "atan2.default": binary(aten.atan2, KINDS[0]),
    "atanh.default": unary(aten.atanh, -0.9, 0.9),
    "avg_pool2d.default": average(2),
    "avg_pool3d.default": average(3),
    "bitwise_and.Scalar": scalar(aten.bitwise_and.Scalar, whole, small, numbers=(3, 1)),
    "bitwise_and.Tensor": binary(aten.bitwise_and.Tensor, whole, small),
    "bitwise_not.default": unary(lambda x: aten.bitwise_not(whole(x))),
    "bitwise_or.Scalar": scalar(aten.bitwise_or.Scalar, whole, small, numbers=(3, 1)),
    "bitwise_or.Tensor": binary(aten.bitwise_or.Tensor, whole, small, positive),
    "bitwise_xor.Scalar": scalar(aten.bitwise_xor.Scalar, whole, small, numbers=(3, 1)),
    "bitwise_xor.Tensor": binary(aten.bitwise_xor.Tensor, whole, small, positive),
    "bmm.default": product(1),
    "bucketize.Tensor": bucketize,
    "cat.default": cat,
    "ceil.default": unary(aten.ceil),
    "clamp.Tensor": clamp_tensors,
    "clamp.default": clamp,
    "clone.default": unary(aten.clone),
    "constant_pad_nd.default": moved(pad),
    "convolution.default": convolution,
    "copy.default": binary(lambda x, y: aten.copy(x + 0 * y, x), KINDS[0]),
    "cos.default": unary(aten.cos),
    "cosh.default": unary(aten.cosh),
    "cumprod.default": moved(along(aten.cumprod)),
    "cumsum.default": moved(along(aten.cumsum)),
    "diagonal.default": diagonal,
    "div.Scalar": scalar(aten.div.Scalar),
    "div.Tensor": binary(aten.div.Tensor, low_right=0.5),
    "div.Tensor_mode": binary(
        lambda x, y: (
            aten.div.Tensor_mode(x, y, rounding_mode="floor"),
            aten.div.Tensor_mode(x, y, rounding_mode="trunc"),
        ),
        low_right=1,
    ),
    "elu.default": scalar(elu, KINDS[0], numbers=(1.0, 0.5, 2, -0.5)),
    "embedding.default": embedding,
    "empty.memory_format": made(emptied),
    "empty_permuted.default": made(emptied),
    "eq.Scalar": scalar(aten.eq.Scalar),
    "eq.Tensor": binary(aten.eq.Tensor),
    "erf.default": unary(aten.erf),
    "exp.default": unary(aten.exp),
    "expand.default": expand,
    "expm1.default": unary(aten.expm1),
    "flip.default": moved(flip),
    "floor.default": unary(aten.floor),
    "fmod.Scalar": scalar(aten.fmod.Scalar),
    "fmod.Tensor": binary(aten.fmod.Tensor, low_right=1),
    "full.default": made(full),
    "full_like.default": unary(lambda x: aten.full_like(x, 2.5), -4, 4, whole),
    "gather.default": gather,
    "ge.Scalar": scalar(aten.ge.Scalar),
    "ge.Tensor": binary(aten.ge.Tensor),
    "gelu.default": unary(aten.gelu),
    "grid_sampler_2d.default": grid,
    "gt.Scalar": scalar(aten.gt.Scalar),
    "gt.Tensor": binary(aten.gt.Tensor),
    "hardtanh.default": scalar(
        lambda x, a: aten.hardtanh(x, -a, 2 * a), KINDS[0], numbers=(1, 0.5, 3)
    ),
    "index.Tensor": index,
    "index_put.default": index_put,
    "index_select.default": moved(index_select),
    "isinf.default": special(aten.isinf),
    "isnan.default": special(aten.isnan),
    "le.Scalar": scalar(aten.le.Scalar),
    "le.Tensor": binary(aten.le.Tensor),
    "leaky_relu.default": scalar(aten.leaky_relu, KINDS[0], numbers=(0.1, 0.01, 1.5)),
    "lift_fresh_copy.default": unary(lambda x: x + torch.tensor(2.0)),
    "linalg_vector_norm.default": norm,
    "log.default": unary(aten.log, 0.1, 9),
    "log10.default": unary(aten.log10, 0.1, 9),
    "log1p.default": unary(aten.log1p, -0.9, 9),
    "log2.default": unary(aten.log2, 0.1, 9),
    "logical_and.default": binary(aten.logical_and, *KINDS, positive),
    "logical_not.default": unary(aten.logical_not, -1, 1, positive, whole),
    "logical_or.default": binary(aten.logical_or, *KINDS, positive),
    "logical_xor.default": binary(aten.logical_xor, *KINDS, positive),
    "lt.Scalar": scalar(aten.lt.Scalar),
    "lt.Tensor": binary(aten.lt.Tensor),
    "max.default": unary(aten.max, -4, 4, whole),
    "max.dim": reduction(lambda *a: aten.max.dim(*a)[0], *KINDS, many=False),
    "max_pool2d_with_indices.default": maximal(2),
    "max_pool3d_with_indices.default": maximal(3),
    "maximum.default": binary(aten.maximum, *KINDS, positive),
    "mean.default": unary(aten.mean),
    "mean.dim": reduction(aten.mean.dim),
    "median.default": unary(aten.median),
    "median.dim": reduction(lambda *a: aten.median.dim(*a)[0], many=False),
    "min.default": unary(aten.min, -4, 4, whole),
    "min.dim": reduction(lambda *a: aten.min.dim(*a)[0], *KINDS, many=False),
    "minimum.default": binary(aten.minimum, *KINDS, positive),
    "mm.default": product(0),
    "mul.Scalar": scalar(aten.mul.Scalar),
    "mul.Tensor": binary(aten.mul.Tensor, *KINDS, positive),
    "native_group_norm.default": group_norm,
    "native_layer_norm.default": layer_norm,
    "ne.Scalar": scalar(aten.ne.Scalar),
    "ne.Tensor": binary(aten.ne.Tensor),
    "neg.default": unary(aten.neg, -4, 4, whole),
    "permute.default": moved(permute),
    "pow.Scalar": scalar(lambda x, n: aten.pow.Scalar(n, x), KINDS[0], numbers=(2, 0.5, 3.0)),
    "pow.Tensor_Scalar": scalar(aten.pow.Tensor_Scalar, numbers=(2, 3, 0, 1)),
    "pow.Tensor_Tensor": binary(aten.pow.Tensor_Tensor, KINDS[0], low=0.5),
    "prod.default": unary(aten.prod),
    "prod.dim_int": reduction(aten.prod.dim_int, many=False),
    "reciprocal.default": unary(aten.reciprocal, 0.5, 4),
    "relu.default": unary(aten.relu),
    "remainder.Scalar": scalar(aten.remainder.Scalar),
    "remainder.Tensor": binary(aten.remainder.Tensor, low_right=1),
    "repeat.default": moved(repeat),
    "round.decimals": unary(lambda x: aten.round.decimals(x, decimals=1)),
    "round.default": unary(aten.round),
    "rsqrt.default": unary(aten.rsqrt, 0.1, 9),
    "scalar_tensor.default": unary(lambda x: x + aten.scalar_tensor(2.5)),
    "scatter.src": scatter(False),
    "scatter.value": scatter(True),
    "select.int": moved(select),
    "sigmoid.default": unary(aten.sigmoid, -20, 20),
    "sign.default": unary(aten.sign, -4, 4, whole),
    "sin.default": unary(aten.sin),
    "sinh.default": unary(aten.sinh),
    "slice.Tensor": moved(slice_),
    "slice_scatter.default": slice_scatter,
    "sort.default": moved(sort),
    "split_with_sizes.default": moved(split),
    "sqrt.default": unary(aten.sqrt, 0, 9),
    "squeeze.dims": moved(squeeze),
    "sub.Scalar": scalar(aten.sub.Scalar),
    "sub.Tensor": binary(lambda x, y: aten.sub.Tensor(x, y, alpha=3), *KINDS),
    "sum.dim_IntList": reduction(aten.sum.dim_IntList, *KINDS, positive),
    "tan.default": unary(aten.tan, -1, 1),
    "tanh.default": unary(aten.tanh),
    "topk.default": moved(topk),
    "trunc.default": unary(aten.trunc),
    "unsqueeze.default": moved(unsqueeze),
    "_cdist_forward.default": distances,
    "_upsample_bicubic2d_aa.default": filtered(aten._upsample_bicubic2d_aa.default),
    "_upsample_bilinear2d_aa.default": filtered(aten._upsample_bilinear2d_aa.default),
    "unfold.default": moved(unfold),
    "upsample_bilinear2d.vec": resized(aten.upsample_bilinear2d.vec, corners=True),
    "upsample_nearest2d.vec": resized(aten.upsample_nearest2d.vec),
    "var.correction": variance(aten.var.correction),
    "var_mean.correction": variance(aten.var_mean.correction),
    "view.default": moved(view),
    "where.self": where,
}
"""Operator, as the importer's table calls it -> generator."""


def case(name: str, number: int, seed: int = 0) -> Case:
    """Draw `number` of the operator `name`."""
    function, feed = CASES[name](Draw(seed, number, *name.encode()))
    return _case(name, f"draw {number}", function, feed)


def _case(name: str, text: str, function: Callable[..., Any], feed: Sequence[np.ndarray]) -> Case:
    tensors = _tensors(feed)

    def expected() -> list[np.ndarray]:
        result = function(*tensors)
        results = result if isinstance(result, tuple | list) else [result]
        return [tensor.detach().numpy() for tensor in results]

    return Case(name, lambda: function, feed, expected, text)


def _tensors(feed: Sequence[np.ndarray]) -> tuple[Any, ...]:
    return tuple(torch.from_numpy(array) for array in feed)


class _Joined(torch.nn.Module):
    """Functions of tensors as one program: all their inputs, all their results."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self.functions = [(case.model(), len(case.feed)) for case in cases]

    def forward(self, *args: Any) -> Any:
        results, start = [], 0
        for function, count in self.functions:
            result = function(*args[start : start + count])
            results += result if isinstance(result, tuple | list) else [result]
            start += count
        return tuple(results)


def joined(cases: Sequence[Case]) -> Any:
    """One exported program of several cases."""
    feed = [array for case in cases for array in case.feed]
    return torch.export.export(_Joined(cases).eval(), _tensors(feed))
