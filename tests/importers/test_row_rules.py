"""Steps of recurrent layers stay rows, and slices of what is joined are taken before it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_depth_rules import Built
from test_normalize import names, same_result
from tvm import relax

import vta_byoc as vta
from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.ir.bindings import op_name, static_shape, straight_bindings
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_stored, reference_runner


def const(built: Built, *shape: int) -> relax.Expr:
    return relax.const(built.rng.normal(size=shape).astype("float32"))


def step(b: Built, x: relax.Expr) -> relax.Expr:
    """(1, 8) seen as (1, 1, 8): a product, columns of it, what is added, a gate, a concat."""
    emit = b.builder.emit
    seen = emit(relax.op.reshape(x, (1, 1, 8)))
    made = emit(relax.op.add(emit(relax.op.matmul(seen, const(b, 8, 12))), const(b, 12)))
    left = emit(relax.op.strided_slice(made, [2], [0], [5]))
    right = emit(relax.op.strided_slice(made, [-1], [7], [12]))
    gate = emit(relax.op.multiply(emit(relax.op.sigmoid(left)), emit(relax.op.tanh(right))))
    return emit(relax.op.concat([gate, emit(relax.op.clip(right, -1, 1))], axis=2))


def test_a_step_works_on_rows() -> None:
    before = Built((1, 8)).module(step)
    after = normalize(before)
    same_result(before, after)
    shapes = [(op_name(b.value), static_shape(b.var)) for b in straight_bindings(after["main"])]
    assert all(len(shape) == 2 for _, shape in shapes[:-1]), shapes
    assert shapes[-1] == ("relax.reshape", (1, 1, 10))


@pytest.mark.parametrize("kind", ["add", "multiply", "maximum", "subtract"])
def test_a_constant_with_more_axes(kind: str) -> None:
    before = Built((3, 8)).module(
        lambda b, x: b.builder.emit(getattr(relax.op, kind)(x, const(b, 1, 1, 1, 8)))
    )
    after = normalize(before)
    same_result(before, after)
    assert names(after) == [kind, "reshape"]


@pytest.mark.parametrize("weight", [(1, 8, 5), (1, 1, 8, 5)])
def test_weights_with_axes_of_one_are_a_matrix(weight: tuple[int, ...]) -> None:
    before = Built((1, 2, 3, 8)).module(
        lambda b, x: b.builder.emit(relax.op.matmul(x, const(b, *weight)))
    )
    after = normalize(before)
    same_result(before, after)
    values = [b.value for b in straight_bindings(after["main"])]
    weights = [static_shape(v.args[1]) for v in values if op_name(v) == "relax.matmul"]
    assert weights == [(8, 5)]


def test_weights_that_make_an_axis_stay() -> None:
    before = Built((3, 8)).module(
        lambda b, x: b.builder.emit(relax.op.matmul(x, const(b, 1, 8, 5)))
    )
    assert names(normalize(before)) == ["matmul"]


def test_a_constant_that_repeats_stays() -> None:
    before = Built((3, 8)).module(lambda b, x: b.builder.emit(relax.op.add(x, const(b, 2, 1, 8))))
    assert names(normalize(before)) == ["add"]


@pytest.mark.parametrize("place", [0, 2, 3, 4])
@pytest.mark.parametrize("turned", [0, 1, None])
def test_one_place_of_what_is_joined(place: int, turned: int | None) -> None:
    """Of (2, 4) and (3, 4) joined, backwards along an axis or not."""

    def write(b: Built, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        value = b.builder.emit(relax.op.concat([x, y], axis=0))
        if turned is not None:
            value = b.builder.emit(relax.op.flip(value, axis=turned))
        return b.builder.emit(relax.op.strided_slice(value, [0], [place], [place + 1]))

    before = Built((2, 4), (3, 4)).module(write)
    after = normalize(before)
    same_result(before, after)
    assert ("concat" in names(after)) == (turned == 1)


def test_a_slice_over_two_parts_stays() -> None:
    before = Built((2, 4), (3, 4)).module(
        lambda b, x, y: b.builder.emit(
            relax.op.strided_slice(b.builder.emit(relax.op.concat([x, y], axis=0)), [0], [1], [3])
        )
    )
    after = normalize(before)
    same_result(before, after)
    assert names(after) == ["concat", "strided_slice"]


def test_a_place_of_both_directions() -> None:
    """The last step of a layer of two directions, joined by columns."""

    def write(b: Built, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        ahead = b.builder.emit(relax.op.concat([x, y], axis=0))
        back = b.builder.emit(relax.op.flip(b.builder.emit(relax.op.concat([y, x], axis=0)), 0))
        both = b.builder.emit(relax.op.concat([ahead, back], axis=1))
        return b.builder.emit(relax.op.strided_slice(both, [0], [1], [2]))

    before = Built((1, 4), (1, 4)).module(write)
    after = normalize(before)
    same_result(before, after)
    assert names(after) == ["concat"]


def test_steps_share_the_layers_of_their_gates() -> None:
    """Columns of a row of a layer's result: a layer for each gate, not one for each step."""

    def write(b: Built, x: relax.Expr) -> relax.Expr:
        emit = b.builder.emit
        layer = emit(relax.op.add(emit(relax.op.matmul(x, const(b, 6, 8))), const(b, 8)))
        steps = emit(relax.op.reshape(layer, (3, 1, 8)))
        found = []
        for number in range(3):
            taken = emit(relax.op.strided_slice(steps, [0], [number], [number + 1]))
            row = emit(relax.op.reshape(taken, (1, 8)))
            for begin in (0, 4):
                found.append(emit(relax.op.strided_slice(row, [1], [begin], [begin + 4])))
        return emit(relax.op.concat(found, axis=0))

    before = Built((1, 3, 6)).module(write)
    after = normalize(before)
    same_result(before, after)
    assert names(after).count("matmul") == 2


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_recurrent_program_is_one_region(kind: str) -> None:
    """Of torch.export, whose steps are slices, rows and gates; both directions."""
    torch: Any = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(torch.nn, kind)(16, 16, batch_first=True, bidirectional=True)
            self.head = torch.nn.Linear(32, 8)

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(x)[0][:, -1])

    torch.manual_seed(0)
    x, config = torch.randn(1, 2, 16), VTAConfig.preset("sim")
    mod = vta.load_model(torch.export.export(Net().eval(), (x,)))
    rng = np.random.default_rng(0)
    samples = [(rng.normal(size=(1, 2, 16)).astype("float32"),) for _ in range(3)]
    qmod = vta.quantize(mod, calibration=samples, config=config)
    compiled = compile_module(qmod, config)
    assert len(compiled.programs) == 1
    assert [p.name for p in compiled.placement if p.device == "cpu"] == ["x"]
    wanted = reference_runner(qmod, compiled.programs)(list(samples[0]))
    run = profile(compiled.exe, list(samples[0]), arenas=True)
    np.testing.assert_array_equal(run.outputs[0], wanted.outputs[0])
    assert all(check.equal for check in compare_stored(run, compiled.programs, wanted))
