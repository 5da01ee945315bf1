"""What benchmarks/layers.py rests on: how it reads the published table, its numpy, its counts."""

from __future__ import annotations

import csv

import dialect_numpy
import numpy as np
import pytest

from benchmarks._layers import Layer, Tensors, _Writer, compiled, reference, tensors, useful_gemm
from benchmarks.layers import BOARD, PRESETS, table_rows, vectors
from vta_byoc.hw.config import VTAConfig

SMALL = [
    Layer("conv2d", 2, 5, 7, (9, 8), (3, 2), (2, 1), (1, 0, 2, 1)),
    Layer("conv2d", 1, 12, 18, (6, 6), (3, 3), (1, 1), (1, 1, 1, 1), groups=3),
    Layer("conv2d_transpose", 2, 6, 5, (4, 3), (4, 3), (2, 3), (1, 0, 1, 1)),
    Layer("conv2d_transpose", 1, 6, 8, (3, 3), (2, 2), (2, 2), groups=2),
    Layer("dense", 3, 40, 9),
]


@pytest.mark.parametrize("layer", SMALL, ids=lambda layer: layer.text)
def test_reference_equals_the_dialect(layer: Layer) -> None:
    given = tensors(layer, 1)
    result = dialect_numpy.run(_Writer().module(layer, given), given.data)["result"]
    np.testing.assert_array_equal(reference(layer, given), result)
    assert len(np.unique(result)) > 8


def test_a_compiled_layer_is_compared() -> None:
    config = VTAConfig.preset("sim")
    result = compiled(SMALL[2], config)
    assert result.exact and result.placement.device == "vta"
    given = tensors(SMALL[2])
    wrong = Tensors(given.data, given.weight, given.bias + 4096)
    assert not np.array_equal(reference(SMALL[2], given), reference(SMALL[2], wrong))
    assert result.gemm == useful_gemm(SMALL[2], config)


def test_every_row_of_the_table_is_read() -> None:
    with BOARD.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    rows = table_rows()
    assert len(rows) == len(lines)
    for row, line in zip(rows, lines, strict=True):
        config = VTAConfig.preset(PRESETS[row.geometry])
        assert row.geometry == config.name
        assert (row.board is None) == (line["plausible"] == "0")
        gemm = useful(row.layer, config)
        assert gemm == int(line["gemm_ops"]), line


def useful(layer: Layer, config: VTAConfig) -> int:
    """GEMM micro-ops without any waste."""
    if layer.op == "conv2d_transpose":
        return useful_gemm(layer, config)
    taps = layer.kernel[0] * layer.kernel[1]
    return vectors(layer, config) * (layer.in_channels // layer.groups // config.block) * taps


def test_groups_of_the_grouped_network_have_a_block_each() -> None:
    """The table does not state them; its micro-ops are those of groups of 16 channels."""
    grouped = [row.layer for row in table_rows() if row.layer.groups > 1]
    assert len(grouped) == 9
    assert all(layer.in_channels // layer.groups == 16 for layer in grouped)
