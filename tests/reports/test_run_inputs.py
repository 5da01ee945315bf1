"""What a run says of inputs that reach beyond the integers that they become."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
from cli_runs import SHAPE, cli, small_model
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from vta_byoc.reports.run.inputs import Input, Reach, reaches_of, with_reach


def quantizing(*scales: tuple[object, object], dtype: str = "int8") -> tvm.IRModule:
    """A module whose input `x` [2] becomes integers once for each (step, zero point)."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2,), "float32"))
    other = relax.Var("other", relax.TensorType((2,), "float32"))
    with builder.function("main", [x, other]):
        made = [
            builder.emit(
                relax.op.quantize(
                    x, relax.const(np.float32(step)), relax.const(zero, "int8"), 0, dtype
                )
            )
            for step, zero in scales
        ]
        builder.emit_func_output([*made, other])
    return builder.get()


@pytest.mark.parametrize(
    "scales, dtype, low, high",
    [
        ([(0.5, 0)], "int8", -64.0, 63.5),
        ([(0.5, -128)], "int8", 0.0, 127.5),
        ([(0.25, 0)], "uint8", 0.0, 63.75),
        ([(0.5, 0), (0.5, -128)], "int8", -64.0, 127.5),
    ],
)
def test_how_far_an_input_reaches(
    scales: list[tuple[float, int]], dtype: str, low: float, high: float
) -> None:
    assert reaches_of(quantizing(*scales, dtype=dtype)) == {"x": Reach(low, high, scales[0][0])}


def test_a_scale_for_each_channel_is_left_out() -> None:
    assert reaches_of(quantizing(([0.5, 0.25], 0))) == {}


@given(
    st.floats(-300, 300, width=32),
    st.sampled_from([2.0**-8, 0.25, 1.0, 3.0]),
    st.integers(-128, 127),
)
def test_what_is_cut_is_what_integers_do_not_hold(value: float, step: float, zero: int) -> None:
    whole = np.rint(value / step) + zero
    ends = (-128 - zero) * step, (127 - zero) * step
    cut = Input(np.array([value]), "drawn", Reach(*ends, step)).cut
    beside = min(abs(value - end) for end in ends)
    if abs(beside - step / 2) > 1e-6 * step:  # a half rounds to even
        assert cut == float(not -128 <= whole <= 127)


def test_inputs_without_values_and_without_integers() -> None:
    assert Input(np.zeros((0,)), "none", Reach(0, 1, 0.1)).cut == 0.0
    inputs = {name: Input(np.full(2, 1e9), name) for name in ("x", "other")}
    reached = with_reach(inputs, quantizing((0.5, 0)))
    assert reached["x"].cut == 1.0 and reached["other"] == inputs["other"]


def test_a_run_tells_that_pixels_were_not_scaled(tmp_path: Path) -> None:
    model = small_model(tmp_path / "small.onnx")
    shades = np.random.default_rng(0).uniform(0, 1, (8, *SHAPE[1:])).astype("float32")
    calibration = tmp_path / "calibration.npz"
    np.savez(calibration, data=shades)
    np.save(tmp_path / "pixels.npy", shades[:1] * 255)
    np.save(tmp_path / "shades.npy", shades[:1])
    options = ("run", model, "--calibration", calibration, "--input")
    told = cli(*options, tmp_path / "pixels.npy").stdout.splitlines()
    assert told[1].endswith(f"float32: {tmp_path / 'pixels.npy'}")
    share = 100 * float((shades[:1] * 255 > 1.984375 + 2**-7).mean())
    assert told[2] == (
        f"  {share:.1f} % of its values are cut off: they lie outside of -2 to 1.984, which its "
        "int8 scale holds; prepare inputs as those that chose the scale were, or calibrate with "
        "inputs like these"
    )
    assert told[3] == ""
    quiet = cli(*options, tmp_path / "shades.npy").stdout
    assert "cut off" not in quiet
    pixels, grey = (
        json.loads(cli(*options, tmp_path / file, "--json").stdout)["inputs"]["data"]
        for file in ("pixels.npy", "shades.npy")
    )
    assert 100 * pixels["cut"] == pytest.approx(share) and "cut" not in grey
