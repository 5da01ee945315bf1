"""Language models: token ids in, hidden states or logits out."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 256


# ---------------------------------------------------------------- BERT
class BertLayer(nn.Module):
    """Attention with separate projections and normalization after each sum."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def split(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        return x.view(batch, tokens, self.heads, width // self.heads).permute(0, 2, 1, 3)

    def forward(self, x: Any, bias: Any) -> Any:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5 + bias
        y = torch.matmul(scores.softmax(-1), v).permute(0, 2, 1, 3).reshape(x.shape)
        x = self.norm1(self.output(y) + x)
        return self.norm2(self.down(F.gelu(self.up(x))) + x)


class Bert(nn.Module):
    """Three sums of embeddings, layers, a pooler of the first token."""

    def __init__(self, tokens: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(VOCABULARY, width), nn.Embedding(2, width)
        self.places = nn.Embedding(tokens, width)
        self.register_buffer("positions", torch.arange(tokens)[None])
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(depth))
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Any, kinds: Any, mask: Any) -> Any:
        bias = (1.0 - mask[:, None, None, :].to(torch.float32)) * torch.finfo(torch.float32).min
        x = self.norm(self.words(ids) + self.kinds(kinds) + self.places(self.positions))
        for layer in self.layers:
            x = layer(x, bias)
        return x, torch.tanh(self.pooler(x[:, 0]))


def bert() -> nn.Module:
    """BERT-Tiny (Devlin et al., 2018; Turc et al., 2019): ids, kinds and a mask of int64."""
    return Bert(tokens=16, width=128, depth=2, heads=2)


# ---------------------------------------------------------------- Llama
class RmsNorm(nn.Module):
    """Divided by the root of the mean square, scaled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary position embedding."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


class LlamaLayer(nn.Module):
    """Grouped-query attention with rotary embeddings, and SwiGLU."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        hidden = 8 * width // 3 // 16 * 16
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def split(self, x: Any, heads: int) -> Any:
        batch, tokens, _ = x.shape
        return x.view(batch, tokens, heads, self.size).transpose(1, 2)

    def repeated(self, x: Any) -> Any:
        """Each key and value head serves several query heads."""
        batch, groups, tokens, size = x.shape
        times = self.heads // groups
        x = x[:, :, None].expand(batch, groups, times, tokens, size)
        return x.reshape(batch, groups * times, tokens, size)

    def forward(self, x: Any, cos: Any, sin: Any, mask: Any) -> Any:
        y = self.norm1(x)
        q = rotated(self.split(self.query(y), self.heads), cos, sin)
        k = self.repeated(rotated(self.split(self.key(y), self.groups), cos, sin))
        v = self.repeated(self.split(self.value(y), self.groups))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.output(y.transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Token ids to logits of the next tokens."""

    def __init__(self, tokens: int, width: int, depth: int, heads: int, groups: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, groups) for _ in range(depth))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        size = width // heads
        frequency = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angle = torch.outer(torch.arange(tokens).float(), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        mask = torch.full((tokens, tokens), float("-inf")).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, ids: Any) -> Any:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        return self.head(self.norm(x))


def llama() -> nn.Module:
    """Llama's form (Touvron et al., 2023): RMSNorm, rotary embeddings, grouped queries, SwiGLU."""
    return Llama(tokens=16, width=128, depth=2, heads=4, groups=2)
