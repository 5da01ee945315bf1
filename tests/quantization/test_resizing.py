"""Bilinear resizings and edge pads as layers: the same floats, then the same integers on VTA."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from small_models import call
from tvm import relax

import vta_byoc as vta
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.pipeline import compile_module
from vta_byoc.quantization.resizing import resize_matrix, resizes_as_layers
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

MODES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
Build = Callable[[relax.Expr], relax.Expr]


def module(build: Build, shape: tuple[int, ...]) -> tvm.IRModule:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit(build(x), "y"), "out")
        builder.emit_func_output(y)
    return builder.get()


def resize(mode: str, height: int, width: int, method: str = "linear") -> Build:
    return lambda x: relax.op.image.resize2d(
        x,
        relax.ShapeExpr([height, width]),
        layout="NCHW",
        method=method,
        coordinate_transformation_mode=mode,
        rounding_method="",
    )


def pad(mode: str, widths: list[int]) -> Build:
    return lambda x: relax.op.nn.pad(x, [0, 0, 0, 0, *widths], pad_mode=mode)


def operators(mod: tvm.IRModule) -> list[str]:
    return [op_name(b.value) for b in straight_bindings(mod["main"])]


def values(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


# ---------------------------------------------------------------- floats
def drawn(count: int) -> list[tuple[str, int, int, int, int]]:
    """(mode, old and new height, old and new width) that have whole factors."""
    rng = np.random.default_rng(3)
    cases = []
    for _ in range(count):
        mode = str(rng.choice(MODES))
        sizes = []
        for _ in range(2):
            old, factor = int(rng.integers(1, 7)), int(rng.integers(1, 5))
            corners = mode == "align_corners" and old > 1
            new = (old - 1) * factor + 1 if corners else old * factor
            shrinks = rng.random() < 0.3
            sizes += [new, old] if shrinks else [old, new]
        cases.append((mode, *sizes))
    return cases  # type: ignore[return-value]


@pytest.mark.parametrize("mode, old_h, new_h, old_w, new_w", drawn(12))
def test_layers_compute_the_resizing(
    mode: str, old_h: int, new_h: int, old_w: int, new_w: int
) -> None:
    """Shrinking to one row needs no whole factor in every mode; then it is left as it was."""
    mod, x = module(resize(mode, new_h, new_w), (1, 2, old_h, old_w)), values((1, 2, old_h, old_w))
    rows, columns = resize_matrix(mode, old_h, new_h), resize_matrix(mode, old_w, new_w)
    (got,) = call(resizes_as_layers(mod), x)
    np.testing.assert_allclose(got, rows @ x @ columns.T, atol=2e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_single_row_is_the_first_or_the_middle(mode: str) -> None:
    """PyTorch's half pixels give the first, as aligned corners and asymmetric ones do."""
    for old in (1, 2, 3, 4):
        row = np.eye(old)[0]
        if mode == "half_pixel":
            row = np.eye(old)[[(old - 1) // 2, old // 2]].mean(axis=0)
        np.testing.assert_array_equal(resize_matrix(mode, old, 1), row[None])
    assert resize_matrix("tf_crop_and_resize", 4, 1) is None


@pytest.mark.parametrize(
    "old, new", (((1, 1), (3, 4)), ((1, 1), (2, 2)), ((1, 2), (3, 2)), ((2, 1), (2, 4)))
)
def test_single_rows_and_columns_are_repeated(old: tuple[int, int], new: tuple[int, int]) -> None:
    mod, x = module(resize("half_pixel", *new), (1, 2, *old)), values((1, 2, *old))
    found = resizes_as_layers(mod)
    assert "relax.nn.conv2d_transpose" not in operators(found)
    (got,) = call(found, x)
    repeated = x.repeat(new[0] // old[0], 2).repeat(new[1] // old[1], 3)
    np.testing.assert_array_equal(got, repeated)


@pytest.mark.parametrize("size", ((3, 8), (6, 4)))
def test_one_axis_is_halved_by_one_layer(size: tuple[int, int]) -> None:
    """The other axis costs no layer of its own."""
    found = resizes_as_layers(module(resize("half_pixel", *size), (1, 2, 6, 8)))
    assert [name for name in operators(found) if name] == ["relax.nn.conv2d"]


@pytest.mark.parametrize("mode", ("reflect", "replicate"))
def test_pads_are_rows_beside_the_data(mode: str) -> None:
    mod, x = module(pad(mode, [2, 1, 0, 3]), (1, 2, 5, 6)), values((1, 2, 5, 6))
    found = resizes_as_layers(mod)
    assert "relax.nn.pad" not in operators(found)
    (got,) = call(found, x)
    widths = ((0, 0), (0, 0), (2, 1), (0, 3))
    np.testing.assert_array_equal(
        got, np.pad(x, widths, mode="edge" if mode != "reflect" else mode)
    )


def test_one_axis_is_padded_alone() -> None:
    mod, x = module(pad("reflect", [0, 0, 1, 2]), (1, 2, 5, 6)), values((1, 2, 5, 6))
    (got,) = call(resizes_as_layers(mod), x)
    np.testing.assert_array_equal(got, np.pad(x, ((0, 0),) * 3 + ((1, 2),), mode="reflect"))


@pytest.mark.parametrize(
    "build",
    (
        resize("half_pixel", 9, 9),
        resize("align_corners", 12, 12),
        resize("half_pixel", 12, 12, "cubic"),
        pad("circular", [1, 1, 1, 1]),
    ),
)
def test_others_stay(build: Build) -> None:
    mod = module(build, (1, 2, 6, 6))
    assert resizes_as_layers(mod) is mod


# ---------------------------------------------------------------- integers
def padded_layer(x: relax.Expr) -> relax.Expr:
    """A convolution of a reflected plane."""
    weight = np.eye(20, dtype="float32")[:, :, None, None]
    return relax.op.nn.conv2d(pad("reflect", [1, 2, 1, 0])(x), relax.const(weight))


@pytest.mark.parametrize(
    "preset, build",
    (
        ("sim", resize("half_pixel", 10, 8)),
        ("pynq", resize("asymmetric", 15, 2)),
        ("sim", resize("align_corners", 13, 4)),
        ("sim", resize("half_pixel", 40, 4)),
        ("pynq", padded_layer),
    ),
)
def test_vta_computes_the_reference(preset: str, build: Build) -> None:
    """One region, bit for bit, within two steps of the floats (one for each rounding)."""
    shape, config = (1, 20, 5, 4), VTAConfig.preset(preset)
    mod, samples = module(build, shape), [values(shape, seed) for seed in range(3)]
    qmod = vta.quantize(mod, calibration=samples[:2], config=config)
    compiled = compile_module(qmod, config)
    run = profile(compiled.exe, samples[2:], arenas=True)
    wanted = reference_runner(qmod, compiled.programs)(samples[2:])
    checks = compare_outputs(["out"], run.outputs, wanted)
    checks += compare_stored(run, compiled.programs, wanted)
    assert len(compiled.programs) == 1 and all(check.equal for check in checks)
    (exact,) = call(mod, samples[0])
    (got,) = profile(compiled.exe, samples[:1]).outputs
    step = 2.0 ** np.ceil(np.log2(max(np.abs(s).max() for s in samples[:2]) / 127))
    assert np.abs(got - exact).max() <= 2 * step
