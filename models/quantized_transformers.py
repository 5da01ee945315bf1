"""Encoder blocks as PyTorch writes them, quantized by pt2e; they need torch and torchao.

Linear layers of (N, T, C) reach a program as reshape, product of matrices, reshape, with quantize
and dequantize on the other side of the reshapes.
"""

from __future__ import annotations

from typing import Any

SAMPLES = 4
ROWS, WIDTH, HEADS, CLASSES = 16, 32, 2, 10
LINEARS = ("q", "k", "v", "out", "up", "down")
"""Layers of a block whose weights are constant."""


def encoder_block(*, norm_first: bool = False, width: int = WIDTH) -> Any:
    """A block of (N, T, `width`): attention and two layers with GELU.

    It is normalized after each sum as in BERT, or before each part as in ViT.
    """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def attention(self, x: Any) -> Any:
            n, rows, size = x.shape
            parts = (layer(x).view(n, rows, HEADS, -1) for layer in (self.q, self.k, self.v))
            q, k, v = (part.transpose(1, 2) for part in parts)
            scores = torch.softmax(q @ k.transpose(-1, -2) * (size // HEADS) ** -0.5, -1)
            return self.out((scores @ v).transpose(1, 2).reshape(n, rows, size))

        def forward(self, x: Any) -> Any:
            if norm_first:
                x = x + self.attention(self.norm1(x))
                return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))

    return Block()


def vision_transformer() -> Any:
    """A ViT of two blocks on images (N, 3, 32, 32): patches, a class token, positions."""
    import torch
    from torch import nn

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, WIDTH, 8, 8)
            self.token = nn.Parameter(0.1 * torch.randn(1, 1, WIDTH))
            self.position = nn.Parameter(0.1 * torch.randn(1, ROWS + 1, WIDTH))
            self.blocks = nn.Sequential(*(encoder_block(norm_first=True) for _ in range(2)))
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Any) -> Any:
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token, x], 1) + self.position
            return self.head(self.norm(self.blocks(x))[:, :1].flatten(1))

    return ViT()


def transformer_layer() -> Any:
    """PyTorch's own: one product for queries, keys and values, ReLU behind a reshape."""
    from torch import nn

    return nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True)


ROW_SHAPE, IMAGE_SHAPE = (1, ROWS, WIDTH), (1, 3, 32, 32)
MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "bert_block": (encoder_block, ROW_SHAPE),
    "vit": (vision_transformer, IMAGE_SHAPE),
    "transformer_layer": (transformer_layer, ROW_SHAPE),
}
"""Name -> what builds it, the shape of its input."""


def quantized(name: str) -> tuple[Any, Any]:
    """A model of `MODELS` with seeded weights, and an input for it.

    XNNPACK's quantizer converts it: int8, weights per channel.
    """
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

    torch.manual_seed(0)
    build, shape = MODELS[name]
    inputs = [torch.randn(shape) for _ in range(SAMPLES + 1)]
    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
    quantizer = xnnpack.XNNPACKQuantizer().set_global(config)
    program = torch.export.export(build().eval(), (inputs[0],))
    prepared = prepare_pt2e(program.module(), quantizer)
    for item in inputs[1:]:
        prepared(item)
    return convert_pt2e(prepared), inputs[0]
