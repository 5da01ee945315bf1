"""Dense arrays as the sparse tensors of TFLite files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema


def encoded(
    values: np.ndarray,
    order: Sequence[int],
    blocks: Sequence[tuple[int, int]],
    is_sparse: Callable[[], bool],
) -> tuple[np.ndarray, schema.SparsityParametersT]:
    """The values that are stored, and where they stand.

    Args:
        values: of any shape.
        order: of the levels: axes of `values`, behind them the blocks, counted on.
        blocks: the axis and the size of each block, which divides the size of the axis.
        is_sparse: asked for each level, whether it is stored in compressed rows.
    """
    sizes, expanded = _expanded(values, dict(blocks))
    whole = expanded.transpose(order)
    table = schema.SparsityParametersT()
    table.traversalOrder, table.blockMap = list(order), [axis for axis, _ in blocks]
    table.dimMetadata = []
    places = np.zeros((1, 0), "int64")
    for level, axis in enumerate(order):
        metadata = schema.DimensionMetadataT()
        metadata.denseSize = sizes[axis]
        below = [
            [i for i in range(sizes[axis]) if whole[(*place, i)].any()] for place in places.tolist()
        ]
        metadata.format = schema.DimensionType.DENSE
        if is_sparse():
            metadata.format = schema.DimensionType.SPARSE_CSR
            counts = [len(indices) for indices in below]
            _store(metadata, "arraySegments", [0, *np.cumsum(counts).tolist()], level)
            _store(metadata, "arrayIndices", [i for indices in below for i in indices], level)
        else:
            below = [list(range(sizes[axis]))] * len(places)
        table.dimMetadata.append(metadata)
        places = np.array(
            [
                (*place, i)
                for place, indices in zip(places.tolist(), below, strict=True)
                for i in indices
            ],
            "int64",
        ).reshape(-1, level + 1)
    return whole[tuple(places.T)], table


def _expanded(values: np.ndarray, blocks: dict[int, int]) -> tuple[list[int], np.ndarray]:
    """The sizes of axes and blocks, and the array with its blocks as last axes."""
    outer = [size // blocks.get(axis, 1) for axis, size in enumerate(values.shape)]
    split, lead, inner = [], [], []
    for axis, size in enumerate(outer):
        lead.append(len(split))
        split.append(size)
        if axis in blocks:
            inner.append(len(split))
            split.append(blocks[axis])
    return [*outer, *blocks.values()], values.reshape(split).transpose([*lead, *inner])


def _store(metadata: schema.DimensionMetadataT, name: str, numbers: list[int], level: int) -> None:
    """One of the three kinds of vectors, by the level."""
    kind = ("Int32Vector", "Uint16Vector", "Uint8Vector")[level % 3]
    vector = getattr(schema, f"{kind}T")()
    vector.values = numbers
    setattr(metadata, f"{name}Type", getattr(schema.SparseIndexVector, kind))
    setattr(metadata, name, vector)
