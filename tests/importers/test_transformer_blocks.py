"""Blocks of transformers as PyTorch writes them, by both exporters.

They are equal in float, close as integers, one region, and every stored tensor is bit-exact.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from layer_runs import partitioned
from operators_llvm import OPERATORS
from region_runs import compared

import vta_byoc as vta
from vta_byoc.hw.config import VTAConfig
from vta_byoc.partitioning.region import region_calls
from vta_byoc.validation.bit_exact import OUTPUT

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional
TOKENS, WIDTH, HEADS = 16, 64, 4
SIZE = WIDTH // HEADS
LEAST_SQNR = 24.0
"""dB of the quantized block against the float one."""


class SelfAttention(nn.Module):
    """`scaled_dot_product_attention` behind one projection."""

    def __init__(self, causal: bool = False, mask: torch.Tensor | None = None) -> None:
        super().__init__()
        self.causal, self.mask = causal, mask
        self.inward, self.outward = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        parts = self.inward(x).reshape(batch, tokens, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(
            *parts, attn_mask=self.mask, is_causal=self.causal
        )
        return self.outward(y.transpose(1, 2).reshape(batch, tokens, WIDTH))


class MultiHead(nn.Module):
    """PyTorch's own layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class RootMeanSquare(nn.Module):
    """RMSNorm as models spell it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Decoder(nn.Module):
    """A Llama-like block: rotary positions, heads that share keys, a gated layer."""

    def __init__(self, shared: int = 2) -> None:
        super().__init__()
        self.shared = shared
        narrow = shared * SIZE
        self.q, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDTH, narrow, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 48, bias=False) for _ in range(2))
        self.down = nn.Linear(48, WIDTH, bias=False)
        self.norms = nn.ModuleList([RootMeanSquare(), RootMeanSquare()])
        turns = torch.outer(torch.arange(TOKENS), 10000.0 ** -(torch.arange(0, SIZE, 2) / SIZE))
        both = torch.cat([turns, turns], -1)
        self.register_buffer("cos", both.cos())
        self.register_buffer("sin", both.sin())

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x[..., : SIZE // 2], x[..., SIZE // 2 :]
        return x * self.cos + torch.cat([-second, first], -1) * self.sin

    def heads(self, x: torch.Tensor, count: int) -> torch.Tensor:
        return x.view(x.shape[0], TOKENS, count, SIZE).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        q = self.turned(self.heads(self.q(y), HEADS))
        k, v = self.turned(self.heads(self.k(y), self.shared)), self.heads(self.v(y), self.shared)
        k, v = (part.repeat_interleave(HEADS // self.shared, 1) for part in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(x.shape))
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Classifier(nn.Module):
    """BERT in small: ids, segments, and a mask that adds the least float32 to the scores."""

    def __init__(self, pooled: bool = True) -> None:
        super().__init__()
        self.pooled = pooled
        self.words, self.segments = nn.Embedding(50, WIDTH), nn.Embedding(2, WIDTH)
        self.places = nn.Parameter(torch.randn(TOKENS, WIDTH))
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm, self.result = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3)

    def forward(
        self, ids: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        x = self.norm(self.words(ids) + self.segments(segments) + self.places)
        shape = (x.shape[0], TOKENS, HEADS, SIZE)
        q, k, v = (f(x).view(shape).transpose(1, 2) for f in (self.q, self.k, self.v))
        hidden = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        shares = (q @ k.transpose(-1, -2) / SIZE**0.5 + hidden).softmax(-1)
        y = self.o((shares @ v).permute(0, 2, 1, 3).reshape(x.shape))
        x = self.norm(x + y)
        return self.result(torch.tanh(x[:, 0])) if self.pooled else x


class Masked(nn.Module):
    """Attention that gets its mask: true where a key is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        shape = (*x.shape[:2], 3, HEADS, SIZE)
        parts = self.inward(x).reshape(shape).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*parts, attn_mask=mask)
        return self.outward(y.transpose(1, 2).reshape(x.shape))


class MaskedMultiHead(MultiHead):
    """PyTorch's own layer with its mask: true where a key is hidden."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, attn_mask=~mask[0, 0], need_weights=False)[0]


class PaddedEncoder(nn.Module):
    """PyTorch's encoder with a mask of the tokens: true where one is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = encoder()

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return self.encoder(x, src_key_padding_mask=padding)


def encoder(**given: object) -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, dropout=0, batch_first=True, **given)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


BLOCKS = {
    "attention": SelfAttention,
    "causal": lambda: SelfAttention(causal=True),
    "mask": lambda: SelfAttention(mask=torch.full((TOKENS, TOKENS), float("-inf")).triu(3)),
    "multi head": MultiHead,
    "encoder": encoder,
    "encoder, norms first": lambda: encoder(norm_first=True, activation="gelu"),
    "decoder": Decoder,
    "classifier": Classifier,
    "ids, segments and a mask": lambda: Classifier(pooled=False),
    "padded encoder": PaddedEncoder,
    "masked": Masked,
    "masked multi head": MaskedMultiHead,
}
FORMATS = ("program", "onnx 14")
SIM = VTAConfig.preset("sim")


def sample(name: str) -> tuple[torch.Tensor, ...]:
    x = torch.randn(1, TOKENS, WIDTH)
    if name == "padded encoder":
        return x, torch.arange(TOKENS)[None] > 9
    if name.startswith("masked"):
        return x, torch.ones(1, 1, TOKENS, TOKENS).tril().bool()
    if not isinstance(BLOCKS[name](), Classifier):
        return (x,)
    segments, mask = torch.zeros(2, 1, TOKENS, dtype=torch.long)
    segments[:, 4:] = 1
    mask[:, :6] = 1
    return torch.randint(0, 50, (1, TOKENS)), segments, mask


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", BLOCKS)
def test_block_equals_pytorch_and_is_quantized(name: str, form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    block, given = BLOCKS[name]().eval(), sample(name)
    if form == "program":
        mod = vta.load_model(torch.export.export(block, given))
    else:
        path = tmp_path / "block.onnx"
        torch.onnx.export(block, given, str(path), dynamo=False, opset_version=14)
        mod = vta.load_model(path)
    arrays = tuple(x.numpy() for x in given)
    with torch.no_grad():
        wanted = block(*given).numpy()
    np.testing.assert_allclose(result(mod, arrays), wanted, rtol=1e-5, atol=1e-5)
    with OPERATORS.calibrating():
        qmod = vta.quantize(mod, calibration=[arrays], config=SIM)
    noise = np.square(result(qmod, arrays) - wanted).sum() / np.square(wanted).sum()
    assert -10 * np.log10(noise) >= LEAST_SQNR
    if form != "program":
        assert len(region_calls(partitioned(qmod, SIM, planned=False).module)) == 1
        return
    checks, _ = compared(qmod, SIM, arrays)
    assert len({check.where for check in checks} - {OUTPUT}) == 1
    assert not any(check.n_different for check in checks)


def result(mod: tvm.IRModule, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """What a module with one result computes."""
    return OPERATORS.reference(mod, [], arrays).outputs[0]
