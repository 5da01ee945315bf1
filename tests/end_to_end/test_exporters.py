"""Networks as PyTorch's two ONNX exporters and torch.export write them.

One image network and one of token ids hold the forms that real networks are made of; what is
imported must compute what ONNX Runtime, or PyTorch, does.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quantized_runs import operators
from small_models import call

from vta_byoc.importers.load import load_model

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
onnxruntime = pytest.importorskip("onnxruntime")
HAS_SCRIPT = importlib.util.find_spec("onnxscript") is not None
STYLES = [
    "torchscript",
    pytest.param(
        "dynamo", marks=pytest.mark.skipif(not HAS_SCRIPT, reason="onnxscript is not installed")
    ),
]


def images() -> tuple[Any, tuple[Any, ...]]:
    """Channel shuffle, C2f, shifted windows, reflecting pads, FiLM, anchors, resizing."""
    from torch import nn
    from torch.nn import functional as F

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect")
            self.inner = nn.Conv2d(4, 4, 1)
            self.last = nn.Conv2d(12, 8, 1)
            self.film = nn.Linear(3, 16)

        def forward(self, x: Any, z: Any) -> Any:
            x = self.first(x)
            n, c, h, w = x.size()
            x = x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, -1, h, w)
            parts = list(x.chunk(2, 1))
            parts.append(self.inner(parts[-1]))
            x = self.last(torch.cat(parts, 1))
            scale, shift = self.film(z).chunk(2, -1)
            x = x * scale[:, :, None, None].expand_as(x) + shift.unsqueeze(-1).unsqueeze(-1)
            return self.windows(x), self.boxes(x), F.interpolate(x, size=(h // 2, w * 2))

        def windows(self, x: Any) -> Any:
            n, c, h, w = x.shape
            y = torch.roll(x.permute(0, 2, 3, 1), (-1, -1), (1, 2))
            y = y.view(n, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
            y = y.softmax(-1)
            count = int(y.shape[0] / (h * w / 4))
            y = y.view(count, h // 2, w // 2, 2, 2, -1).permute(0, 1, 3, 2, 4, 5)
            return torch.roll(y.reshape(n, h, w, c), (1, 1), (1, 2))

        def boxes(self, x: Any) -> Any:
            n, c, h, w = x.shape
            near, far = x.view(n, c, -1).split((4, 4), 1)
            y, x = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            anchors = torch.stack((x, y), -1).view(-1, 2).transpose(0, 1)
            return torch.cat([anchors - near[:, :2], anchors + far[:, 2:]], 1)

    generator = torch.Generator().manual_seed(1)
    shapes = ((1, 4, 4, 6), (1, 3))
    return Net(), tuple(torch.randn(shape, generator=generator) for shape in shapes)


def tokens() -> tuple[Any, tuple[Any, ...]]:
    """Embedding, rotary positions, a causal mask of -inf, a mask of the input, layer norm."""
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(20, 8)
            self.qkv = nn.Linear(8, 24)
            self.norm = nn.LayerNorm(8)
            self.register_buffer("rates", 1.0 / 100 ** (torch.arange(0, 8, 2).float() / 8))

        def forward(self, ids: Any, mask: Any) -> Any:
            x = self.table(ids)
            n, t, c = x.shape
            q, k, v = self.qkv(self.norm(x)).split(c, -1)
            angles = (
                self.rates[None, :, None].expand(n, -1, 1) @ torch.arange(t)[None, None].float()
            )
            angles = torch.cat((angles, angles), 1).transpose(1, 2)
            q, k = (self.turned(each, angles.cos(), angles.sin()) for each in (q, k))
            hidden = torch.triu(torch.full((t, t), float("-inf")), 1)
            scores = q @ k.transpose(1, 2) / c**0.5 + hidden
            scores = scores.masked_fill(mask[:, None] == 0, float("-inf"))
            return x + scores.softmax(-1) @ v

        def turned(self, x: Any, cos: Any, sin: Any) -> Any:
            half = x.shape[-1] // 2
            return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    return Net(), (torch.tensor([[3, 19, 0, 7]]), torch.tensor([[1, 1, 1, 0]]))


NETWORKS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "images": images,
    "tokens": tokens,
}


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(0)
    net, args = NETWORKS[name]()
    return net.eval(), args


def assert_close(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, atol=2e-6)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("style", STYLES)
def test_onnx(name: str, style: str, tmp_path: Path) -> None:
    net, args = made(name)
    path = tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, args, str(path), dynamo=style == "dynamo", external_data=False, verbose=False
        )
    mod = load_model(path)
    arrays = [arg.numpy() for arg in args]
    session = onnxruntime.InferenceSession(str(path))
    names = [value.name for value in session.get_inputs()]
    assert_close(call(mod, *arrays), session.run(None, dict(zip(names, arrays, strict=True))))
    left = set(operators(mod)) & {"shape_of", "arange", "cos", "sin", "full", "trilu", "triu"}
    assert not left, "shapes, positions and masks are constants"


@pytest.mark.parametrize("name", NETWORKS)
def test_exported_program(name: str) -> None:
    net, args = made(name)
    mod = load_model(torch.export.export(net, args))
    with torch.no_grad():
        expected = net(*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert_close(call(mod, *(arg.numpy() for arg in args)), [each.numpy() for each in expected])
    assert not set(operators(mod)) & {"arange", "cos", "sin", "full", "triu"}
