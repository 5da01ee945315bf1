"""Samples in stacked arrays, and which integers pick rows of tables."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import Graph
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.quantization.calibration.random_inputs import table_rows
from vta_byoc.quantization.calibration.samples import _split


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 4), (2, 4), (2, 4, 5)], ids=str)
def test_a_stack_is_split_into_samples_of_the_input(shape: tuple[int, ...]) -> None:
    rows, rest = (shape[0], shape[1:]) if shape else (1, ())
    samples = [np.full(shape, number) for number in range(3)]
    stack = np.concatenate([np.reshape(sample, (rows, *rest)) for sample in samples])
    found = _split(stack, "x", shape)
    assert [each.shape for each in found] == [shape] * 3
    np.testing.assert_array_equal(found, samples)
    wrong = [stack[None], stack[..., None]]
    wrong += [np.concatenate([stack, stack], axis=-1)] if rest else []
    wrong += [stack[1:]] if rows > 1 else []
    for other in wrong:
        with pytest.raises(VTAError, match='^calibration array "x" has shape'):
            _split(other, "x", shape)


def test_integers_that_pick_rows_are_bounded_by_the_smallest_table() -> None:
    """Also behind operators on integers; what picks none has no bound."""
    g = Graph((5, 2), (7, 3), (4, 6))
    first, second, third, other = (
        relax.Var(name, relax.TensorType((2,), "int64")) for name in ("a", "b", "c", "d")
    )
    large, small, wide = g.params
    g.params = [*g.params, first, second, third, other]
    moved = g.op("add", first, second, name="moved")
    taken = [
        g.op("take", large, first, 0, name="large"),
        g.op("take", small, moved, 0, name="small"),
        g.op("take", small, first, 0, name="again"),
        g.op("take", wide, third, 1, name="columns"),
        g.op("negative", other, name="other"),
    ]
    found = table_rows(g.module(*taken))
    assert found == {"a": 5, "b": 7, "c": 6}
