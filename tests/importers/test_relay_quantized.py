"""Modules that `relay.quantize` realised: integers equal, layers on VTA."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import relay_files
import relay_quantized
from relay_numpy import evaluate
from relay_texts import write

import vta_byoc as vta
from vta_byoc.importers.relay.read import read_text
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.partition import placements

CONFIG = vta.VTAConfig.preset("pynq")


def compiled(path: Path, text: str) -> tuple[vta.VTAConfig, object, dict[str, object]]:
    """The executable of a text, and its placement record."""
    mod = vta.load_model(write(path / "net.relay", text))
    quantized = vta.quantize(mod, config=CONFIG)
    pmod = vta.partition_for_vta(quantized, config=CONFIG)
    records = {record.name: record for record in placements(pmod)}
    return CONFIG, vta.build(pmod, config=CONFIG, device="sim"), records


def checked(path: Path, text: str, *feed: np.ndarray) -> dict[str, object]:
    """Run a text on the simulator and compare every integer of the result with NumPy."""
    _, exe, records = compiled(path, text)
    module = read_text(text, "the text")
    names = [param.name for param in module.functions["main"].params]
    expected = evaluate(module, dict(zip(names, feed, strict=True)))
    found = vta.profile(exe, list(feed)).outputs
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), theirs)
    return records


def image(*shape: int, seed: int = 5) -> np.ndarray:
    """Multiples of 1/32, so that exact halves are among what is rounded."""
    return (np.random.default_rng(seed).integers(-120, 120, shape) / 32).astype("float32")


@pytest.mark.parametrize("network", [relay_quantized.resnet18, relay_quantized.mobilenet_v1])
def test_networks_are_equal_and_on_vta(tmp_path: Path, network: Callable[..., str]) -> None:
    text = network(size=32, classes=10)
    records = checked(tmp_path, text, image(1, 3, 32, 32))
    macs = sum(r.macs for r in records.values())  # type: ignore[attr-defined]
    on_vta = sum(r.macs for r in records.values() if r.device == "vta")  # type: ignore[attr-defined]
    assert macs == on_vta > 1_000_000


# ---------------------------------------------------------------- single chains
WEIGHT = np.random.default_rng(1).integers(-127, 128, (16, 16, 3, 3)).astype("int8")
BIAS = np.random.default_rng(2).integers(-9000, 9000, (16, 1, 1)).astype("int32")
CONV = (
    "nn.conv2d(%x, meta[relay.Constant][0], padding=[1, 1, 1, 1], channels=16, "
    'kernel_size=[3, 3], out_dtype="int32")'
)


def module(*lines: str, constants: tuple[np.ndarray, ...] = (WEIGHT, BIAS)) -> str:
    """A text on int8 `%x`, one line a value `%0`, `%1` ...; the last is the result."""
    body = [f"  %{i} = {line};" for i, line in enumerate(lines)]
    head = "def @main(%x: Tensor[(1, 16, 8, 8), int8]) {\n"
    text = head + "\n".join([*body, f"  %{len(lines) - 1}", "}"])
    return text + relay_files.metadata(list(constants))


def int8_image(seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, (1, 16, 8, 8)).astype("int8")


RESCALE = (
    "add(%{0}, 512 /* ty=int32 */)",
    "right_shift(%{1}, 10 /* ty=int32 */)",
    "clip(%{2}, a_min=-127f, a_max=127f)",
    'cast(%{3}, dtype="int8")',
)


def rescaled(start: int) -> list[str]:
    """The lines that bring `%start` to int8."""
    return [line.format(*range(start, start + 4)) for line in RESCALE]


def kinds(path: Path, text: str) -> list[str]:
    mod = vta.load_model(write(path / "net.relay", text))
    return [op_name(b.value).removeprefix("relax.") for b in straight_bindings(mod["main"])]


def test_a_layer_is_one_composite(tmp_path: Path) -> None:
    text = module(CONV, "add(%0, meta[relay.Constant][1])", "nn.relu(%1)", *rescaled(2))
    records = checked(tmp_path, text, int8_image())
    assert {r.device for r in records.values()} == {"vta"}  # type: ignore[attr-defined]
    assert "conv2d" in records


@pytest.mark.parametrize("left", [4, 9])
def test_shifts_that_cancel_are_left_out(tmp_path: Path, left: int) -> None:
    """The accumulator reaches 147 * 127 * 128 < 2**22: 9 more bits are the last that fit."""
    text = module(
        CONV,
        f"left_shift(%0, {left} /* ty=int32 */)",
        "add(%1, meta[relay.Constant][1])",
        "clip(%2, a_min=0f, a_max=2.57698e+10f)",
        "add(%3, 65536 /* ty=int32 */)",
        "right_shift(%4, 17 /* ty=int32 */)",
        "clip(%5, a_min=-127f, a_max=127f)",
        'cast(%6, dtype="int8")',
        constants=(np.clip(WEIGHT, -12, 12), BIAS),
    )
    assert "left_shift" not in kinds(tmp_path, text)
    records = checked(tmp_path, text, int8_image())
    assert {r.device for r in records.values()} == {"vta"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("left", [19, 20, 21])
def test_shifts_that_wrap_wrap(tmp_path: Path, left: int) -> None:
    text = module(
        CONV,
        f"left_shift(%0, {left} /* ty=int32 */)",
        "add(%1, meta[relay.Constant][1])",
        "clip(%2, a_min=0f, a_max=2.57698e+10f)",
        "add(%3, 67108864 /* ty=int32 */)",
        "right_shift(%4, 27 /* ty=int32 */)",
        "clip(%5, a_min=-127f, a_max=127f)",
        'cast(%6, dtype="int8")',
    )
    records = checked(tmp_path, text, int8_image())
    layer = records["conv2d"]
    assert (layer.device, layer.macs) == ("vta", 147456)  # type: ignore[attr-defined]


def test_scalars_and_bounds_of_every_kind(tmp_path: Path) -> None:
    text = module(
        'cast(%x, dtype="int32")',
        "multiply(%0, 3 /* ty=int32 */)",
        "subtract(%1, 7 /* ty=int32 */)",
        "clip(%2, a_min=-100.7f, a_max=5.33333f)",
        'cast(%3, dtype="int8")',
    )
    checked(tmp_path, text, int8_image())


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_sums_are_cut_to_int8_with_and_without_a_clip(
    tmp_path: Path, clip: bool, relu: bool
) -> None:
    """Without one the sum wraps, after a relu too."""
    lines = ['cast(%x, dtype="int32")', "left_shift(%0, 1 /* ty=int32 */)", "add(%0, %1)"]
    lines += ["nn.relu(%2)"] if relu else []
    lines += [f"clip(%{len(lines) - 1}, a_min=-127f, a_max=127f)"] if clip else []
    lines += [f'cast(%{len(lines) - 1}, dtype="int8")']
    pool = f"nn.max_pool2d(%{len(lines) - 1}, pool_size=[2, 2], strides=[2, 2])"
    checked(tmp_path, module(*lines, pool), int8_image())


def test_maxima_of_int32_stand_behind_the_rescale(tmp_path: Path) -> None:
    pool = "nn.max_pool2d(%2, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])"
    text = module(CONV, "add(%0, meta[relay.Constant][1])", "nn.relu(%1)", pool, *rescaled(3))
    records = checked(tmp_path, text, int8_image())
    assert {r.device for r in records.values()} == {"vta"}  # type: ignore[attr-defined]


def test_multiply_and_shift_in_64_bits(tmp_path: Path) -> None:
    text = module(
        CONV,
        "add(%0, meta[relay.Constant][1])",
        "fixed_point_multiply(%1, multiplier=1431655765, shift=-9)",
        "clip(%2, a_min=-127f, a_max=127f)",
        'cast(%3, dtype="int8")',
    )
    records = checked(tmp_path, text, int8_image())
    assert records["conv2d"].device == "vta"  # type: ignore[attr-defined]
    written_out = module(
        CONV,
        'cast(%0, dtype="int64")',
        "multiply(%1, 1431655765 /* ty=int64 */)",
        "add(%2, 549755813888 /* ty=int64 */)",
        "right_shift(%3, 40 /* ty=int64 */)",
        "clip(%4, a_min=-127f, a_max=127f)",
        'cast(%5, dtype="int8")',
    )
    checked(tmp_path, written_out, int8_image())


def test_a_first_layer_may_be_float(tmp_path: Path) -> None:
    first = np.random.default_rng(0).standard_normal((16, 3, 3, 3)).astype("float32")
    text = (
        "def @main(%data: Tensor[(1, 3, 8, 8), float32]) {\n"
        "  %0 = nn.conv2d(%data, meta[relay.Constant][0], padding=[1, 1, 1, 1], channels=16, "
        "kernel_size=[3, 3]);\n  %1 = nn.relu(%0);\n  %2 = multiply(%1, 8f);\n"
        "  %3 = round(%2);\n  %4 = clip(%3, a_min=-127f, a_max=127f);\n"
        '  %5 = annotation.cast_hint(%4, dtype="int8");\n  %6 = cast(%5, dtype="int8");\n'
        "  %7 = annotation.stop_fusion(%6);\n"
        "  %8 = nn.conv2d(%7, meta[relay.Constant][1], channels=16, kernel_size=[3, 3], "
        'out_dtype="int32");\n  %8\n}\n'
    )
    text += relay_files.metadata([first, WEIGHT])
    _, exe, records = compiled(tmp_path, text)
    assert (records["conv2d"].device, records["conv2d_2"].device) == ("cpu", "vta")  # type: ignore[attr-defined]
    feed = image(1, 3, 8, 8)
    (expected,) = evaluate(read_text(text, "the text"), {"data": feed})
    (found,) = vta.profile(exe, [feed]).outputs
    # One float value beside an exact half may round to its other side.
    assert np.mean(np.asarray(found) == expected) > 0.9


def test_channels_last(tmp_path: Path) -> None:
    weight = np.ascontiguousarray(WEIGHT.transpose(2, 3, 1, 0))
    text = (
        "def @main(%x: Tensor[(1, 8, 8, 16), int8]) {\n"
        "  %0 = nn.conv2d(%x, meta[relay.Constant][0], padding=[1, 1, 1, 1], channels=16, "
        'kernel_size=[3, 3], data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32");\n'
        "  %1 = add(%0, meta[relay.Constant][1]);\n  %2 = add(%1, 512 /* ty=int32 */);\n"
        "  %3 = right_shift(%2, 10 /* ty=int32 */);\n"
        "  %4 = clip(%3, a_min=-127f, a_max=127f);\n"
        '  %5 = cast(%4, dtype="int8");\n  %5\n}\n'
    ) + relay_files.metadata([weight, BIAS.reshape(16)])
    feed = np.ascontiguousarray(int8_image().transpose(0, 2, 3, 1))
    records = checked(tmp_path, text, feed)
    assert records["conv2d"].device == "vta"  # type: ignore[attr-defined]


def test_quantize_has_nothing_to_choose(tmp_path: Path) -> None:
    mod = vta.load_model(write(tmp_path / "net.relay", module(CONV, *rescaled(0))))
    assert vta.quantize(mod)["main"].same_as(mod["main"])
    with pytest.raises(vta.VTAError) as caught:
        vta.quantize(mod, keep_float=["conv2d"])
    assert str(caught.value) == (
        "keep_float chooses how a model is quantized; this one came in integers of its own, which "
        "are kept as they are; leave it out, or start from the float model"
    )


@pytest.mark.parametrize("sizes", [(8, 8), (7, 7), (5, 3)])
def test_means_of_what_is_not_negative_are_products_and_shifts(
    tmp_path: Path, sizes: tuple[int, int]
) -> None:
    head = f"def @main(%x: Tensor[(1, 16, {sizes[0]}, {sizes[1]}), int8]) {{\n"
    text = (
        head
        + """  %0 = nn.relu(%x);
  %1 = cast(%0, dtype="int32");
  %2 = nn.global_avg_pool2d(%1);
  cast(%2, dtype="int8")
}
"""
    )
    assert "divide" not in kinds(tmp_path, text)
    rng = np.random.default_rng(0)
    for low in (-128, 0, 120):
        feed = rng.integers(low, 128, (1, 16, *sizes)).astype("int8")
        records = checked(tmp_path, text, feed)
    assert records["global_avg_pool2d"].device == "vta"  # type: ignore[attr-defined]


def test_means_of_what_may_be_negative_are_divided(tmp_path: Path) -> None:
    text = module('cast(%x, dtype="int32")', "nn.global_avg_pool2d(%0)", 'cast(%1, dtype="int8")')
    assert "divide" in kinds(tmp_path, text)
    checked(tmp_path, text, int8_image())


def test_integer_factors_are_not_folded_into_weights(tmp_path: Path) -> None:
    text = module(
        CONV,
        "add(%0, meta[relay.Constant][1])",
        "multiply(%1, 54 /* ty=int32 */)",
        "right_shift(%2, 16 /* ty=int32 */)",
        "clip(%3, a_min=-127f, a_max=127f)",
        'cast(%4, dtype="int8")',
    )
    assert "multiply" in kinds(tmp_path, text)
    checked(tmp_path, text, int8_image())
