"""QNN modules: their scales are kept, within one step of the integers of the text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import relay_files
from relay_numpy import evaluate
from relay_texts import error, run, write

import vta_byoc as vta
from vta_byoc.importers.relay.read import read_text
from vta_byoc.partition import placements

RNG = np.random.default_rng(0)
FIRST = RNG.integers(-127, 128, (16, 3, 3, 3)).astype("int8")
SECOND = RNG.integers(-127, 128, (16, 16, 3, 3)).astype("int8")
DENSE = RNG.integers(-127, 128, (10, 16)).astype("int8")
BIAS = RNG.integers(-4000, 4000, (16,)).astype("int32")
SCALES = np.float32(RNG.uniform(0.002, 0.01, 16))
PRODUCTS = np.float32(0.05) * SCALES
CONSTANTS = (FIRST, SCALES, BIAS, PRODUCTS, SECOND, BIAS, DENSE)
TEXT = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 3, 12, 12), float32]) {
  %0 = qnn.quantize(%data, 0.05f, 130 /* ty=int32 */, out_dtype="uint8", axis=1);
  %1 = qnn.conv2d(%0, meta[relay.Constant][0], 130, 0, 0.05f, meta[relay.Constant][1],
                  padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3], out_dtype="int32");
  %2 = nn.bias_add(%1, meta[relay.Constant][2]);
  %3 = qnn.requantize(%2, meta[relay.Constant][3], 0, 0.04f, 0, axis=1, out_dtype="int32");
  %4 = clip(%3, a_min=0f, a_max=255f);
  %5 = cast(%4, dtype="uint8");
  %6 = nn.max_pool2d(%5, pool_size=[2, 2], strides=[2, 2]);
  %7 = qnn.conv2d(%6, meta[relay.Constant][4], 0, 0, 0.04f, 0.005f,
                  padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3], out_dtype="int32");
  %8 = add(%7, reshape(meta[relay.Constant][5], newshape=[16, 1, 1]));
  %9 = qnn.requantize(%8, 0.0002f, 0, 0.2f, 120, out_dtype="uint8");
  %10 = qnn.add(%6, %9, 0.04f, 0, 0.2f, 120, 0.2f, 120);
  %11 = nn.global_avg_pool2d(cast(%10, dtype="int32"));
  %12 = reshape(cast(%11, dtype="uint8"), newshape=[0, -1]);
  %13 = qnn.dense(%12, meta[relay.Constant][6], 120, 0, 0.2f, 0.01f, units=10, out_dtype="int32");
  %14 = qnn.requantize(%13, 0.002f, 0, 1.5f, 0, out_dtype="int8");
  qnn.dequantize(%14, 1.5f, 0)
}
"""
STEP = 1.5
WHOLE = TEXT + relay_files.metadata(list(CONSTANTS))


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 3, 12, 12)).astype("float32") * 2


def expected(feed: np.ndarray) -> np.ndarray:
    return evaluate(read_text(WHOLE, "the text"), {"data": feed})[0]


def test_the_import_is_within_a_step(tmp_path: Path) -> None:
    path = write(tmp_path / "net.relay", WHOLE)
    for seed in range(4):
        (found,) = run(path, image(seed))
        assert np.abs(found - expected(image(seed))).max() < 1.01 * STEP


@pytest.mark.parametrize("preset", ["pynq", "sim"])
def test_all_layers_run_on_vta_with_the_scales_of_the_model(tmp_path: Path, preset: str) -> None:
    config = vta.VTAConfig.preset(preset)
    mod = vta.load_model(write(tmp_path / "net.relay", WHOLE))
    pmod = vta.partition_for_vta(vta.quantize(mod, config=config), config=config)
    records = placements(pmod)
    macs = sum(record.macs for record in records)
    assert macs == sum(record.macs for record in records if record.device == "vta") > 100_000
    exe = vta.build(pmod, config=config, device="sim")
    for seed in range(4):
        (found,) = vta.profile(exe, [image(seed)]).outputs
        assert np.abs(np.asarray(found) - expected(image(seed))).max() < 1.01 * STEP


HEAD = "def @main(%x: Tensor[(1, 2), int8]) {\n"


def test_sums_that_nothing_rescales(tmp_path: Path) -> None:
    weight = relay_files.metadata([np.ones((3, 2), "int8")])
    dense = "qnn.dense(%x, meta[relay.Constant][0], 0, 0, 0.1f, 0.1f, units=3)"
    assert error(tmp_path, f"{HEAD}  {dense}\n}}{weight}") == (
        "a result of the model is sums of a QNN operator in int32; end it with qnn.requantize or "
        "qnn.dequantize"
    )
    assert error(tmp_path, f"{HEAD}  tanh({dense})\n}}{weight}") == (
        'operator "tanh" (tanh, line 2, column 3) reads the int32 sums of a QNN operator; '
        "requantize and dequantize do, and what rescales to 8 bits; put qnn.requantize before it"
    )


def test_scales_that_mean_nothing(tmp_path: Path) -> None:
    text = HEAD + "  qnn.dequantize(%x, -0.1f, 0)\n}"
    assert error(tmp_path, text) == (
        'tensor "dequantize, operand 0" has the quantization scale -0.10000000149011612; scales '
        "must be positive and finite; quantize the model again with data that reaches this tensor"
    )


def test_scales_that_are_computed(tmp_path: Path) -> None:
    text = (
        "def @main(%x: Tensor[(1, 2), int8], %s: Tensor[(1), float32]) "
        "{\n  qnn.dequantize(%x, max(%s), 0)\n}"
    )
    assert "computes its operand 1 while the model runs" in error(tmp_path, text)
