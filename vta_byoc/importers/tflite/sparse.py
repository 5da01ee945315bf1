"""Sparse constants of TFLite files, written out as dense arrays.

A sparse tensor is stored as a tree: one level for each axis and for each axis inside of blocks, in
the traversal order of the file. A dense level has every index; a sparse one names those that hold
values, in compressed rows (https://www.tensorflow.org/lite, `SparsityParameters` of its schema).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tflite

from vta_byoc.hw.errors import VTAError

_VECTORS = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}


def dense(
    name: str, values: np.ndarray, shape: tuple[int, ...], sparsity: tflite.SparsityParameters
) -> np.ndarray:
    """The array of a sparse tensor.

    Args:
        name: of the tensor, for the errors.
        values: those that are stored, one after the other.
        shape: of the dense tensor.
        sparsity: where the values stand, as the file says.

    Returns:
        Of `shape` and the dtype of `values`, zero where nothing is stored.

    Raises:
        VTAError: the tree does not lead to as many values, or leads out of the shape.
    """
    order, blocks = _numbers(sparsity, "TraversalOrder"), _numbers(sparsity, "BlockMap")
    if sparsity.DimMetadataLength() != len(order) or len(order) != len(shape) + len(blocks):
        raise _damaged(name, f"{len(order)} levels for {len(shape)} axes and {len(blocks)} blocks")
    stored, indices, sizes = np.zeros(1, "int64"), np.zeros((len(order), 1), "int64"), {}
    for level, axis in enumerate(order):
        metadata = sparsity.DimMetadata(level)
        if not _is_sparse(metadata) and stored.size * metadata.DenseSize() > math.prod(shape):
            raise _damaged(name, f"{metadata.DenseSize()} indices on level {level} for {shape}")
        parents, stored, found = _level(metadata, stored)
        indices = indices[:, parents]
        indices[axis] = found
        sizes[axis] = max(int(metadata.DenseSize()), 1)
    places = indices[: len(shape)]
    for number, axis in enumerate(blocks):
        block = len(shape) + number
        places[axis] = places[axis] * sizes[block] + indices[block]
    limits = np.asarray(shape)[:, None]
    if stored.size != values.size or not ((places >= 0) & (places < limits)).all():
        raise _damaged(name, f"{values.size} values for {stored.size} places of {shape}")
    result = np.zeros(shape, values.dtype)
    result[tuple(places)] = values[stored]
    return result


def _is_sparse(metadata: Any) -> bool:
    return bool(metadata.Format() == tflite.DimensionType.SPARSE_CSR)


def _level(metadata: Any, stored: np.ndarray) -> tuple[np.ndarray, ...]:
    """One level down: the place above of each place, where it is stored, its index on the axis."""
    if not _is_sparse(metadata):
        size = int(metadata.DenseSize())
        index = np.tile(np.arange(size), stored.size)
        return np.repeat(np.arange(stored.size), size), stored.repeat(size) * size + index, index
    segments, indices = _vector(metadata, "ArraySegments"), _vector(metadata, "ArrayIndices")
    begin, count = segments[stored], np.diff(segments)[stored]
    parents = np.repeat(np.arange(stored.size), count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    below = begin[parents] + within
    return parents, below, indices[below]


def _vector(metadata: Any, name: str) -> np.ndarray:
    table = getattr(metadata, name)()
    vector = _VECTORS[getattr(metadata, f"{name}Type")()]()
    vector.Init(table.Bytes, table.Pos)
    return np.asarray(vector.ValuesAsNumpy()).astype("int64")


def _numbers(sparsity: tflite.SparsityParameters, name: str) -> list[int]:
    count = getattr(sparsity, f"{name}Length")()
    return [int(getattr(sparsity, name)(i)) for i in range(count)]


def _damaged(name: str, text: str) -> VTAError:
    return VTAError(
        f'sparse tensor "{name}" has {text}; the file is damaged; convert or download the model '
        "again"
    )
