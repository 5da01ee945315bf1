"""Text that is drawn for published networks, answers that are judged, and the int8 baseline."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks._published import tasks, text

READ = tasks.Task("read", tasks.HALF, "line", samples=3, alphabet="letters.txt")
ALPHABET = ["", "a", "b", " "]


def drawn(task: tasks.Task, shape: tuple[int, ...], seed: int = 0) -> tasks.Sample:
    return tasks.drawn(task, np.random.default_rng(seed), shape)


def test_a_line_is_dark_on_bright_and_the_same_each_time() -> None:
    for seed in range(5):
        words, pixels = text.line(np.random.default_rng(seed), 48, 160)
        assert set(words.split()) <= set(text.WORDS)
        assert pixels.shape[0] == 48 and pixels.shape[1] <= 160 and pixels.dtype == np.uint8
        bright = pixels.mean(axis=2)
        assert np.median(bright) > 160 and bright.min() < 130
        again, same = text.line(np.random.default_rng(seed), 48, 160)
        assert again == words and (same == pixels).all()


def test_a_page_has_lines_below_each_other() -> None:
    rows = text.page(np.random.default_rng(0), 224, 224).mean(axis=2).min(axis=1) < 130
    assert 3 <= (rows[1:] & ~rows[:-1]).sum() <= 15


def test_a_picture_is_scaled_and_filled_up() -> None:
    sample = drawn(READ, (1, 3, 48, 320))
    assert sample.picture.shape == (1, 3, 48, 320) and sample.picture.dtype == np.float32
    assert sample.picture.min() >= -1 and sample.picture.max() <= 1
    assert isinstance(sample.answer, str) and not sample.picture[..., -8:].any()
    assert drawn(READ, (1, 1, 64, 160)).picture.shape == (1, 1, 64, 160)


def test_the_answer_is_by_how_much_a_page_is_turned() -> None:
    upright = tasks.Task("turned", tasks.IMAGENET, "page")
    turned = dataclasses.replace(upright, turns=(1,))
    whole, quarter = (drawn(task, (1, 3, 64, 64)).picture for task in (upright, turned))
    np.testing.assert_array_equal(np.rot90(whole, axes=(2, 3)), quarter)
    both = dataclasses.replace(upright, turns=(0, 2))
    assert {drawn(both, (1, 3, 64, 64), seed).answer for seed in range(8)} == {0, 1}


# ---------------------------------------------------------------- judging
def test_characters_of_ctc() -> None:
    rows = np.eye(4)[[0, 3, 1, 1, 0, 1, 2, 2, 3, 3, 0]]
    assert tasks.characters(rows, ALPHABET) == "aab"


def test_right_lines_are_counted() -> None:
    samples = [tasks.Sample(np.zeros(1), answer) for answer in ("ab", "b", "a")]
    said = [np.eye(4)[row][None] for row in ([1, 2], [2, 0], [2, 0])]
    assert tasks.right_of(READ, samples, said, said, ALPHABET) == pytest.approx(200 / 3)


def test_right_turns_are_counted() -> None:
    task = tasks.Task("turned", tasks.HALF, "line", turns=(0, 2))
    samples = [tasks.Sample(np.zeros(1), turn) for turn in (0, 1)]
    said = [np.array([[0.1, 0.9]])] * 2
    assert tasks.right_of(task, samples, said, said, []) == 50


def test_marks_are_compared_with_the_runtime_s() -> None:
    task = tasks.Task("mark", tasks.IMAGENET, "page")
    got, runtime = np.array([0.9, 0.9, 0.1, 0.0]), np.array([0.9, 0.2, 0.8, 0.0])
    samples = [tasks.Sample(np.zeros(1), 0)]
    assert tasks.right_of(task, samples, [got], [runtime], []) == pytest.approx(100 / 3)
    nothing = [np.zeros(4)]
    assert np.isnan(tasks.right_of(task, samples, nothing, nothing, []))


def one_layer(opset: int) -> onnx.ModelProto:
    """A convolution of eight channels by 1 whose data's height and width are open."""
    weight = np.arange(64, dtype="float32").reshape(8, 8, 1, 1) / 64
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, "height", -1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_the_alphabet_is_in_the_file_or_in_the_wheel(tmp_path: Path) -> None:
    model, path, wheel = one_layer(13), tmp_path / "net.onnx", tmp_path / "a.whl"
    helper.set_model_props(model, {"character": "a\nb"})
    onnx.save(model, path)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("carrier/letters.txt", "b\na\n")
    inside = dataclasses.replace(READ, alphabet=tasks.METADATA)
    assert tasks.alphabet_of(inside, path, wheel) == ALPHABET
    assert tasks.alphabet_of(READ, path, wheel) == ["", "b", "a", " "]
    assert tasks.alphabet_of(dataclasses.replace(READ, alphabet=""), path, wheel) == []


@pytest.mark.parametrize("opset", [11, 13])
def test_the_baseline_is_int8_and_knows_no_open_shapes(opset: int, tmp_path: Path) -> None:
    from benchmarks._int8_baseline import onnxruntime_int8
    from benchmarks._zoo.measure import decibels

    path, rng = tmp_path / "net.onnx", np.random.default_rng(0)
    onnx.save(one_layer(opset), path)
    inputs = [[rng.standard_normal((1, 8, 4, 4)).astype("float32")] for _ in range(4)]
    weight = np.arange(64, dtype="float32").reshape(8, 8) / 64
    wanted = [[np.einsum("oc,nchw->nohw", weight, x)] for (x,) in inputs]
    found = decibels(onnxruntime_int8(path, inputs, inputs), wanted)
    assert 30 < found < 60
