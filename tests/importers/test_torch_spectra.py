"""Complex numbers of PyTorch programs: spectra, rotations, and what is refused of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from small_models import call

import vta_byoc as vta
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.trace.implementations import implementation
from vta_byoc.importers.load import load_model
from vta_byoc.importers.torch.complex_numbers import COMPLEX
from vta_byoc.partition import placements
from vta_byoc.pipeline import compile_module
from vta_byoc.validation.divergence import compare_with_reference

torch = pytest.importorskip("torch")
SIM = vta.VTAConfig.preset("sim")
WINDOW = torch.hann_window(16)
fft = torch.fft
Function = Callable[..., Any]


def exported(function: Function, *shapes: Sequence[int]) -> tuple[Any, list[Any]]:
    """A function of tensors, or a module, as a program, and tensors for it."""

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *args: Any) -> Any:
            return function(*args)

    rng = torch.Generator().manual_seed(1)
    given = [torch.randn(tuple(shape), generator=rng) for shape in shapes]
    module = function if isinstance(function, torch.nn.Module) else Module()
    return torch.export.export(module, tuple(given)), given


def frames(x: Any) -> Any:
    return torch.stft(x, 16, 8, window=WINDOW, return_complex=True)


class Rotary(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Positions as rotations of pairs, by complex numbers that are a buffer."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(5.0), 100.0 ** (-torch.arange(0, 8, 2) / 8))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: Any) -> Any:
        pairs = torch.view_as_complex(x.reshape(1, 5, 2, 4, 2))
        return torch.view_as_real(pairs * self.turns[None, :, None]).flatten(3)


def _filtered(x: Any) -> Any:
    """As the layers of a Fourier neural operator: channels are mixed at each frequency."""
    weights = torch.complex(torch.linspace(-1, 1, 6), torch.linspace(1, 0, 6)).reshape(2, 3)
    return fft.irfft2(torch.einsum("bixy,io->boxy", fft.rfft2(x), weights), s=(8, 6))


def _written_into(x: Any) -> Any:
    """The low frequencies of a spectrum of zeros."""
    spectrum = fft.rfft2(x)
    whole = torch.zeros_like(spectrum)
    whole[:, :, :3, :2] = spectrum[:, :, :3, :2] * 2
    whole[:, :, -2:, :2] = spectrum[:, :, -2:, :2].flip(1)
    return fft.irfft2(whole, s=(8, 6))


FUNCTIONS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "magnitudes": (lambda x: frames(x).abs(), (2, 256)),
    "power": (lambda x: torch.view_as_real(frames(x)).pow(2).sum(-1), (2, 256)),
    "all but the last frame": (lambda x: frames(x)[..., :-1].abs() ** 2, (2, 256)),
    "there and back": (
        lambda x: torch.istft(frames(x) * 0.5, 16, 8, window=WINDOW),
        (2, 64),
    ),
    "parts": (lambda x: fft.rfft(x).real - fft.rfft(x).imag, (2, 15)),
    "angles": (lambda x: fft.rfft(x).angle(), (2, 16)),
    "two axes": (lambda x: fft.fft2(x).real, (1, 2, 8, 6)),
    "all axes": (lambda x: fft.fftn(x, norm="ortho").imag, (2, 3, 5)),
    "mixed": (_filtered, (1, 2, 8, 6)),
    "convolution": (lambda x: fft.irfft(fft.rfft(x) * fft.rfft(WINDOW, n=32)), (2, 32)),
    "odd": (lambda x: fft.irfft(fft.rfft(x, norm="forward"), n=15, norm="forward"), (2, 15)),
    "conjugates": (lambda x: fft.ifft(fft.fft(x, dim=0)[:, ::2].conj()).real, (4, 10)),
    "shifted": (lambda x: fft.fftshift(fft.fft(x)).abs(), (2, 10)),
    "sums": (lambda x: (2 * fft.rfft(x) - fft.rfft(x) / 3 + fft.rfft(x)[:, :1]).abs(), (2, 12)),
    "one frequency": (lambda x: fft.rfft(x)[:, -2].unsqueeze(1).abs(), (2, 12)),
    "by a number": (lambda x: (fft.rfft(x) * (0.5 - 2j)).imag, (2, 12)),
    "of an axis in front": (lambda x: fft.rfft(x, dim=1).abs(), (2, 9, 3)),
    "written into": (_written_into, (1, 2, 8, 6)),
    "padded": (
        lambda x: fft.irfft2(torch.nn.functional.pad(fft.rfft2(x)[..., :3, :3], (0, 1, 2, 3))),
        (1, 2, 8, 6),
    ),
    "joined": (lambda x: torch.cat([fft.fft(x), -fft.fft(x)], -1).imag, (2, 5)),
    "stacked": (lambda x: torch.stack([fft.fft(x), fft.fft(x).conj()], 1).angle(), (2, 5)),
    "totals": (lambda x: (fft.fft(x).sum(1, keepdim=True) + fft.fft(x).mean(0)).abs(), (2, 5)),
    "all of it": (lambda x: fft.fft(x).sum().real, (2, 5)),
    "of numbers": (lambda x: (fft.fft(x) - torch.full((5,), 1 - 2j)).imag, (2, 5)),
    "backwards": (lambda x: fft.fft2(x).flip((0, 1)).real, (4, 5)),
    "from angles": (
        lambda x: fft.irfft(torch.polar(fft.rfft(x).abs(), fft.rfft(x).angle() / 2)),
        (2, 8),
    ),
    "rotary": (Rotary(), (1, 5, 2, 8)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_pytorch(name: str) -> None:
    function, shape = FUNCTIONS[name]
    program, (given,) = exported(function, shape)
    before = {key: value.dtype for key, value in program.state_dict.items()}
    (got,) = call(load_model(program), given.numpy())
    wanted = function(given).numpy()
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    assert {key: value.dtype for key, value in program.state_dict.items()} == before


def drawn(rng: np.random.Generator) -> Function:
    """A transform of some axes of a tensor of three, as real numbers."""
    kind = str(rng.choice(["fftn", "ifftn", "rfftn", "ihfft", "irfftn", "hfft"]))
    norm = str(rng.choice(["forward", "backward", "ortho"]))
    axes = [int(axis) for axis in rng.permutation(3)[: rng.integers(1, 4)]]
    sizes = [int(size) for size in rng.integers(2, 7, len(axes))]
    if kind.endswith("hfft"):
        where: dict[str, Any] = {"dim": axes[0], "n": sizes[0] if rng.random() < 0.5 else None}
    else:
        where = {"dim": axes, "s": sizes if rng.random() < 0.5 else None}

    def function(x: Any) -> Any:
        made = getattr(fft, kind)(x, norm=norm, **where)
        return torch.view_as_real(made.resolve_conj()) if made.is_complex() else made

    return function


def test_drawn_transforms() -> None:
    rng = np.random.default_rng(0)
    functions = [drawn(rng) for _ in range(32)]
    program, (given,) = exported(lambda x: tuple(f(x) for f in functions), (3, 4, 5))
    for got, function in zip(call(load_model(program), given.numpy()), functions, strict=True):
        wanted = function(given).numpy()
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_spectrum_is_a_layer_of_vta_and_equals_the_reference() -> None:
    """A network that listens: its first layer is the transform of each frame."""
    layer = torch.nn.Conv1d(9, 8, 3)
    program, (given,) = exported(lambda x: layer(frames(x).abs()), (2, 256))
    qmod = vta.quantize(load_model(program), calibration=[[given.numpy()]], config=SIM)
    found = placements(vta.partition_for_vta(qmod, config=SIM))
    products = {each.name: each.macs for each in found if each.device == "vta" and each.macs}
    assert 2 * 33 * 16 * 18 in products.values(), products  # 16 samples, 9 complex frequencies
    compiled = compile_module(qmod, config=SIM)
    inputs = [given.numpy()]
    assert compare_with_reference(qmod, compiled, inputs, implementation("sim")) is None


REFUSED: dict[str, tuple[Function, str]] = {
    "a result": (
        fft.rfft,
        'result "_fft_r2c" is complex; tensors of real numbers are compiled; return '
        "torch.view_as_real of it",
    ),
    "a function": (
        lambda x: torch.exp(fft.rfft(x)).abs(),
        'node "exp" (exp.default) works on complex numbers; with these {listed} are compiled; '
        "write it with real and imaginary parts",
    ),
    "a quotient": (
        lambda x: (1 / fft.rfft(x)).abs(),
        'node "reciprocal" (reciprocal.default) works on complex numbers; with these {listed} '
        "are compiled; write it with real and imaginary parts",
    ),
    "a part of real numbers": (
        lambda x: torch.cat([fft.rfft(x), x[:, :3]], 1).abs(),
        'node "cat" (cat.default) works on complex numbers, and some of its tensors are real; that '
        "is not compiled; write it with real and imaginary parts",
    ),
    "padding": (
        lambda x: torch.nn.functional.pad(fft.rfft(x), (1, -1)).abs(),
        'node "constant_pad_nd" (constant_pad_nd.default) works on complex numbers, and it cuts, '
        "or pads with another number than 0; that is not compiled; write it with real and "
        "imaginary parts",
    ),
    "a divisor": (
        lambda x: (fft.rfft(x) / fft.rfft(x + 1)).abs(),
        'node "div" (div.Tensor) works on complex numbers, and it divides by a complex number; '
        "that is not compiled; write it with real and imaginary parts",
    ),
    "a real summand": (
        lambda x: (fft.rfft(x) + 1).abs(),
        'node "add" (add.Tensor) works on complex numbers, and a number or a real tensor is added, '
        "or a factor is given; that is not compiled; write it with real and imaginary parts",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    function, text = REFUSED[name]
    program, _ = exported(function, (2, 12))
    with pytest.raises(VTAError) as caught:
        load_model(program)
    assert str(caught.value) == text.format(listed=", ".join(sorted(COMPLEX)))
