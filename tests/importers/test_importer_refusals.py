"""What TVM's importers would compute wrongly is refused, with the reason and what to do."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_models import Net

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed (extra: torch)"
)
EMPTY = "; every dimension must be at least 1; correct its attributes, or the shapes of the inputs"


def refused(text: str, model: Any) -> None:
    with pytest.raises(VTAError) as caught:
        load_model(model)
    assert str(caught.value) == text


# ---------------------------------------------------------------- ONNX
def _slice(n: Net) -> str:
    return n.node("Slice", "x", n.const([3], "int64"), n.const([2], "int64"), name="cut")


def _backwards(n: Net) -> str:
    limits = (n.const([value], "int64") for value in (0, 2, 1, -1))
    return n.node("Slice", "x", *limits, name="cut")


ONNX: dict[str, tuple[Callable[[Net], str], str]] = {
    "slice": (
        _slice,
        'node "cut" (Slice) makes "t0_0" of shape (0, 3, 4, 4) from (2, 3, 4, 4)' + EMPTY,
    ),
    "slice backwards": (
        _backwards,
        'node "cut" (Slice) makes "t0_0" of shape (2, 0, 4, 4) from (2, 3, 4, 4)' + EMPTY,
    ),
    "shape of data": (
        lambda n: n.node("NonZero", "x", name="where"),
        'node "where" has the operator NonZero; the shape of its result depends on the data, and '
        "every shape must be known; export the model without it or cut the model before it",
    ),
    "index": (
        lambda n: n.node("Gather", "x", n.const([0, 3], "int64"), name="pick", axis=1),
        'node "pick" (take) has the index 3; its axis has 3 elements, so -3 to 2 can be read; '
        "correct the index",
    ),
}


@pytest.mark.parametrize("name", ONNX)
def test_onnx(name: str, tmp_path: Path) -> None:
    build, text = ONNX[name]
    net = Net(x=[2, 3, 4, 4])
    refused(text, net.save(tmp_path / "net.onnx", build(net)))


# ---------------------------------------------------------------- PyTorch
TORCH: dict[str, tuple[Callable[[Any], Any], str]] = {
    "divisor": (
        lambda x: _aten().avg_pool2d(x, [2, 2], [2, 2], [0, 0], False, True, 3),
        'node "avg_pool2d" (avg_pool2d.default) has a divisor_override; averages are divided by '
        "their number of elements; leave it out and multiply the result",
    ),
    "places of maxima": (
        lambda x: _aten().adaptive_max_pool2d(x, [2, 2])[1],
        'node "adaptive_max_pool2d" (adaptive_max_pool2d.default) has its second result read, the '
        "places of the maxima; only the maxima of adaptive pools are imported; pool without "
        "return_indices",
    ),
    "moments": (  # of rows of one element they have the shape of the rows
        lambda x: _aten().native_layer_norm(x[..., :1], [1], None, None, 1e-5)[1],
        'node "native_layer_norm" (native_layer_norm.default) has its result 1 read, counted from '
        "0; only the first is imported; compute the other with operators of its own",
    ),
    "moments of groups": (
        lambda x: _aten().native_group_norm(x, None, None, 1, 2, 16, 1, 1e-5)[2],
        'node "native_group_norm" (native_group_norm.default) has its result 2 read, counted from '
        "0; only the first is imported; compute the other with operators of its own",
    ),
    "random": (
        lambda x: x + _aten().randn_like(x),
        'node "randn_like" (randn_like.default) draws random numbers; inference must compute the '
        "same every time; export in eval mode",
    ),
    "norm": (
        lambda x: _aten().linalg_vector_norm(x, 0),
        'node "linalg_vector_norm" (linalg_vector_norm.default) has the order 0; orders other than '
        "0 are imported; write it as (x != 0).sum()",
    ),
    "filtered corners": (
        lambda x: _aten()._upsample_bilinear2d_aa.default(x, [3, 3], True),
        'node "_upsample_bilinear2d_aa" (_upsample_bilinear2d_aa.default) has align_corners and a '
        "filter; only half pixels are filtered; resize with align_corners=False",
    ),
}


def _aten() -> Any:
    import torch

    return torch.ops.aten


@needs_torch
@pytest.mark.parametrize("name", TORCH)
def test_torch(name: str) -> None:
    import torch

    function, text = TORCH[name]

    class Program(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    refused(text, torch.export.export(Program().eval(), (torch.ones(1, 2, 4, 4),)))
