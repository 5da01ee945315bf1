"""Fourier transforms of PyTorch programs: products with matrices of waves, linear layers of VTA.

A complex tensor of shape s is a float tensor (*s, 2) (`complex_numbers`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from vta_byoc.importers.torch.arguments import Converter, emit
from vta_byoc.importers.waves import complex_waves, real_waves
from vta_byoc.ir.bindings import static_shape

if TYPE_CHECKING:
    from torch.fx import Node
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

NORMALIZED: Mapping[int, Callable[[int], float]] = {
    0: lambda size: 1.0,
    1: lambda size: 1 / math.sqrt(size),
    2: lambda size: 1 / size,
}
"""PyTorch's number for a normalization -> the factor of a transform of so many samples."""


def _transformed(
    importer: ExportedProgramImporter, x: relax.Expr, axis: int, rank: int, matrix: np.ndarray
) -> relax.Expr:
    """`x` times (parts, samples, parts of the result, frequencies) along one of `rank` axes.

    Parts are the last axis of `x` and of the result where there are two.
    """
    shape = static_shape(x)
    parts, samples, made, count = matrix.shape
    others = [at for at in range(rank) if at != axis]
    order = [*others, axis, *range(rank, len(shape))]
    rows = [shape[at] for at in others]
    flat = emit(importer, relax.op.permute_dims(x, order))
    flat = emit(importer, relax.op.reshape(flat, (math.prod(rows), samples * parts)))
    weights = matrix.transpose(1, 0, 3, 2).reshape(samples * parts, count * made)
    weights = np.ascontiguousarray(weights, "float32")
    product = emit(importer, relax.op.matmul(flat, relax.const(weights)))
    ends = [made] if made > 1 else []
    product = emit(importer, relax.op.reshape(product, (*rows, count, *ends)))
    back = [*np.argsort([*others, axis]).tolist(), *range(rank, rank + len(ends))]
    return emit(importer, relax.op.permute_dims(product, back))


def rank_of(node: Node) -> int:
    """Axes of what a node makes, the one of parts not counted."""
    return len(node.meta["val"].shape)


def _of_real(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """_fft_r2c(x, dims, normalization, onesided): the last of `dims` first, then the others."""
    source, dims, kind, is_onesided = node.args
    rank, value = rank_of(node), importer.env[source]
    for place, dim in enumerate(reversed(dims)):
        size = source.meta["val"].shape[dim]
        matrix = complex_waves(size, size, is_onesided and not place, False)
        matrix = matrix[: 2 if place else 1] * NORMALIZED[kind](size)
        value = _transformed(importer, value, dim % rank, rank, matrix)
    return value


def _of_complex(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """_fft_c2c(x, dims, normalization, forward)."""
    source, dims, kind, is_forward = node.args
    return _along(importer, importer.env[source], source, dims, kind, is_forward)


def _along(
    importer: ExportedProgramImporter,
    value: relax.Expr,
    source: Node,
    dims: Sequence[int],
    kind: int,
    is_forward: bool,
) -> relax.Expr:
    rank = rank_of(source)
    for dim in dims:
        size = source.meta["val"].shape[dim]
        matrix = complex_waves(size, size, False, not is_forward)
        factor = NORMALIZED[kind](size) * (1 if is_forward else size)  # the waves are divided
        value = _transformed(importer, value, dim % rank, rank, matrix * factor)
    return value


def _to_real(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """_fft_c2r(x, dims, normalization, size): all axes but the last of `dims`, then that."""
    source, dims, kind, size = node.args
    value = _along(importer, importer.env[source], source, dims[:-1], kind, False)
    rank, last = rank_of(node), dims[-1]
    matrix = real_waves(source.meta["val"].shape[last], size) * NORMALIZED[kind](size) * size
    return _transformed(importer, value, last % rank, rank, matrix)


SPECTRA: Mapping[str, Converter] = {
    "_fft_c2c.default": _of_complex,
    "_fft_c2r.default": _to_real,
    "_fft_r2c.default": _of_real,
}
"""Operator -> its converter."""
