"""Operators that no importer has, by what PyTorch itself writes them with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from small_models import call

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.importers.torch import operators as torch_operators
from vta_byoc.ir.bindings import op_name, straight_bindings

torch = pytest.importorskip("torch")


def exported(function: Callable[..., Any], *shapes: Sequence[int]) -> tuple[Any, list[Any], Any]:
    """A function of tensors as a program, tensors for it, and what it makes of them."""

    class Function(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *args: Any) -> Any:
            return function(*args)

    rng = torch.Generator().manual_seed(1)
    given = [torch.randn(tuple(shape), generator=rng) for shape in shapes]
    program = torch.export.export(Function(), tuple(given))
    return program, given, function(*given)


def operators_where_equal(function: Callable[..., Any], *shapes: Sequence[int]) -> list[str]:
    """The operators of the imported function, which computes what PyTorch does."""
    program, given, wanted = exported(function, *shapes)
    mod = load_model(program)
    (got,) = call(mod, *(tensor.numpy() for tensor in given))
    assert got.shape == tuple(wanted.shape)
    np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5, atol=1e-5)
    return [op_name(binding.value) for binding in straight_bindings(mod["main"])]


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 2)])
def test_a_matrix_by_a_vector(beta: float, alpha: float) -> None:
    """`addmv` is left by PyTorch's default table, which has a definition of it."""
    operators_where_equal(
        lambda x, m, v: torch.addmv(x, m, v, beta=beta, alpha=alpha), (4,), (4, 6), (6,)
    )


@pytest.mark.parametrize("order", [1.0, 2.0, float("inf")])
def test_the_distance_of_two_tensors(order: float) -> None:
    operators_where_equal(lambda a, b: torch.dist(a, b, order), (3, 4), (3, 4))


@pytest.mark.parametrize("low, high", [(True, True), (True, False), (False, True)])
def test_bounds_that_are_larger_than_the_tensor(low: bool, high: bool) -> None:
    """The result has the shape that all three broadcast to."""
    operators_where_equal(
        lambda x, a, b: torch.clamp(x, a if low else None, b if high else None) + 0 * (a + b),
        (4, 1),
        (3, 1, 5),
        (5,),
    )


def test_equal_rows_are_nowhere_apart() -> None:
    """Rounding would make a root of a negative number of it."""
    rows = 30  # as many as PyTorch takes a product for
    assert "relax.matmul" in operators_where_equal(
        lambda x: torch.cdist(x, x).clamp(min=0.05), (rows, 4)
    )
    assert "relax.matmul" not in operators_where_equal(lambda x: torch.cdist(x, x), (5, 4))


def test_elements_that_differ_are_counted() -> None:
    operators_where_equal(lambda x: torch.cdist(x.sign(), -x.sign(), p=0), (5, 4))


def test_the_nearest_entries_of_a_codebook() -> None:
    """What a vector quantizer does: the places of the least distances."""
    codes = torch.randn(40, 8, generator=torch.Generator().manual_seed(2))
    found = operators_where_equal(lambda x: torch.cdist(x, codes).argmin(-1), (3, 8))
    assert "relax.matmul" in found and "relax.argmin" in found


@pytest.mark.parametrize(
    "function",
    [lambda x: (x != x).float(), torch.nanmean, torch.nansum, lambda x: x.nanmean(1)],
    ids=["differs from itself", "mean", "sum", "mean of rows"],
)
def test_what_is_no_number_is_found(function: Callable[[Any], Any]) -> None:
    """PyTorch writes `isnan` as a comparison of a tensor with itself."""
    given = torch.tensor([[1.0, float("nan"), 3.0], [4.0, 5.0, 7.0]])

    class Function(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return function(x)

    mod = load_model(torch.export.export(Function(), (given,)))
    (got,) = call(mod, given.numpy())
    np.testing.assert_allclose(got, function(given).numpy(), rtol=1e-6)


def test_any_part_of_several_is_read() -> None:
    operators_where_equal(lambda x: x.split([1, 2, 3])[2] * x.chunk(2)[1], (6, 4))


def test_a_definition_that_writes_into_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is left as it was before."""
    monkeypatch.setattr(torch_operators, "WRITES", "none")
    operators_where_equal(lambda x: torch.complex(x, x).imag, (4, 3))


@pytest.mark.parametrize(
    "function, text",
    [
        (
            lambda x: x.uniform_(),
            r'^node "uniform" \(uniform.default\) draws random numbers; inference must compute',
        ),
        (lambda x: x.clone().cauchy_(), r'^node "cauchy" \(cauchy.default\) draws random numbers'),
        # what hypot consists of is one operator of the same name
        (lambda x: torch.hypot(x, x), r'^node "hypot" has the operator hypot.default; TVM\'s'),
    ],
    ids=["uniform", "cauchy", "hypot"],
)
def test_what_stays_refused(function: Callable[[Any], Any], text: str) -> None:
    program, _, _ = exported(function, (2, 3))
    with pytest.raises(VTAError, match=text):
        load_model(program)
