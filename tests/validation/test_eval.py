"""`vta-byoc eval` and `vta_byoc.evaluate`: counts, streaming, devices, refusals."""

from __future__ import annotations

import io
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import onnx.parser
import pytest
import tvm
from cli_runs import cli, quantize_once, refused
from rich.console import Console
from small_models import Net

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # models/ is not installed

import vta_byoc as vta
from models import digits
from vta_byoc.cli import app, commands
from vta_byoc.cli.progress import Steps
from vta_byoc.hw.errors import VTAError
from vta_byoc.validation.accuracy import (
    Change,
    Evaluation,
    host_runner,
    measure,
    onnxruntime_runner,
    predictions,
    runner,
    signature,
)
from vta_byoc.validation.labelled_dataset import LabelledData, Spec

BATCH, FEATURES, CLASSES, SAMPLES = 4, 16, 5, 30


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense classifier of batch 4."""
    net = Net(data=(BATCH, FEATURES))
    return net.save(
        tmp_path_factory.mktemp("model") / "dense.onnx", net.dense("data", FEATURES, CLASSES)
    )


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    rng = np.random.default_rng(5)
    return rng.standard_normal((SAMPLES, FEATURES), dtype=np.float32)


@pytest.fixture(scope="module")
def logits(model: Path, samples: np.ndarray) -> np.ndarray:
    """The scores of the float model, with NumPy's weights: independent of what is tested."""
    import onnx
    from onnx import numpy_helper

    tensors = onnx.load(model).graph.initializer
    weight, bias = (numpy_helper.to_array(t) for t in tensors)
    result: np.ndarray = samples @ weight.T + bias
    return result


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, samples: np.ndarray, logits: np.ndarray) -> Path:
    """Every third label is wrong."""
    labels = logits.argmax(axis=1)
    labels[::3] = (labels[::3] + 1) % CLASSES
    path = tmp_path_factory.mktemp("data") / "data.npz"
    np.savez(path, data=samples, labels=labels)
    return path


@pytest.fixture(scope="module")
def modules(model: Path, samples: np.ndarray) -> tuple[tvm.IRModule, tvm.IRModule]:
    """Float and quantized."""
    mod = vta.load_model(model)
    return mod, vta.quantize(mod, calibration=[samples[:4], samples[4:8]])


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


class TestCounts:
    def test_both_directions(self) -> None:
        found = Evaluation()
        found.add(np.array([0, 1, 2]), np.array([0, 2, 2]), np.array([0, 1, 1]))
        found.add(np.array([3, 3, 3, 3, 3]), np.array([3, 0, 0, 1, 2]), np.array([3, 3, 3, 1, 0]))
        assert (found.samples, found.correct, found.against_correct) == (8, 3, 5)
        assert (found.lost, found.gained, found.agreeing) == (3, 1, 3)
        assert (found.net_loss, found.drop_points) == (2, 25.0)
        assert found.changes == [
            Change(1, label=1, quantized=2, against=1),
            Change(2, label=2, quantized=2, against=1),
            Change(4, label=3, quantized=0, against=3),
            Change(5, label=3, quantized=0, against=3),
        ]

    def test_listed_changes_are_bounded(self) -> None:
        found, ones = Evaluation(), np.ones(15, int)
        for _ in range(3):
            found.add(ones, 0 * ones, ones)
        assert found.lost == 45
        assert [change.sample for change in found.changes] == list(range(20))

    def test_prediction_is_the_first_of_the_highest(self) -> None:
        scores = np.array([[1, 3, 3], [2, 2, 1], [0, 0, 0]], np.int8)
        assert predictions(scores, 3).tolist() == [1, 0, 0]
        assert predictions(scores.reshape(3, 3, 1, 1), 3).tolist() == [1, 0, 0]

    def test_scores_that_are_no_numbers(self) -> None:
        scores = np.zeros((4, 3), np.float32)
        scores[2, 1] = np.nan
        with pytest.raises(VTAError) as raised:
            predictions(scores, 3, first=8)
        assert str(raised.value) == (
            "a score of sample 10 is NaN; predictions need numbers; check the sample and the model "
            "in float"
        )
        with pytest.raises(VTAError) as raised:
            predictions(scores, 5)
        assert str(raised.value) == (
            "a model gives 3 scores for a sample; the quantized one gives 5; compare two forms of "
            "the same model"
        )


class TestModels:
    def test_signature(self, modules: tuple[tvm.IRModule, tvm.IRModule]) -> None:
        found = signature(modules[1])
        assert dict(found.inputs) == {"data": Spec((4, 16), np.dtype("float32"))}
        assert (found.rows, found.classes) == (4, 5)

    def test_several_outputs(self, tmp_path: Path) -> None:
        net = Net(data=(1, 4))
        path = net.save(tmp_path / "two.onnx", net.node("Relu", "data"), net.node("Abs", "data"))
        with pytest.raises(VTAError) as raised:
            signature(vta.load_model(path))
        assert str(raised.value) == (
            "the model has 2 outputs; a classifier has one, the scores; cut the model to it"
        )

    @pytest.mark.parametrize(
        ("shape", "axes", "given"),
        [((2, 6), [1], "(2, 1)"), ((3, 4, 5), [], "(3, 4, 5)"), ((2, 6), [0], "(1, 6)")],
    )
    def test_no_classifier(
        self, tmp_path: Path, shape: tuple[int, ...], axes: list[int], given: str
    ) -> None:
        net = Net(data=shape)
        out = net.node("ReduceMean", "data", axes=axes) if axes else net.node("Relu", "data")
        with pytest.raises(VTAError) as raised:
            signature(vta.load_model(net.save(tmp_path / "x.onnx", out)))
        assert str(raised.value) == (
            f'the model takes "data" {shape} and gives {given}; a classifier takes n samples and '
            "gives (n, classes) scores with 2 classes or more; cut the model at its scores"
        )

    def test_unknown_device(self, modules: tuple[tvm.IRModule, tvm.IRModule]) -> None:
        with pytest.raises(VTAError) as raised:
            runner(modules[1], None, "board")
        assert str(raised.value).startswith("unknown device 'board'; known: sim, ")

    def test_without_onnxruntime(self, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(VTAError) as raised:
            onnxruntime_runner(model)
        assert str(raised.value) == (
            "onnxruntime is not installed; comparing with ONNX Runtime needs it; run: python -m "
            "pip install onnxruntime, or compare with float"
        )

    def test_onnxruntime_takes_halves(self, tmp_path: Path) -> None:
        model = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> net (float16[1, 4] x) => (float16[1, 4] y) '
            "{ y = Softmax(x) }"
        )
        onnx.save(model, str(tmp_path / "half.onnx"))
        x = np.array([[0, 1, 2, 3]], "float32")
        found = onnxruntime_runner(tmp_path / "half.onnx")({"x": x})
        np.testing.assert_allclose(found, np.exp(x) / np.exp(x).sum(), rtol=1e-3)

    def test_file_that_onnxruntime_refuses(self, tmp_path: Path) -> None:
        path = tmp_path / "x.onnx"
        path.write_bytes(b"no model")
        with pytest.raises(VTAError) as raised:
            onnxruntime_runner(path)
        assert str(raised.value).startswith(f'ONNX Runtime cannot load "{path}": ')
        assert str(raised.value).endswith("; it runs the file as it is; compare with float")


class TestEvaluate:
    def test_float_beside_numpy(
        self,
        model: Path,
        data: Path,
        logits: np.ndarray,
        modules: tuple[tvm.IRModule, tvm.IRModule],
    ) -> None:
        mod, qmod = modules
        with np.load(data) as arrays:
            right = int((logits.argmax(axis=1) == arrays["labels"]).sum())
        assert right == 20
        for against in (mod, model):
            found = vta.evaluate(qmod, data, against=against, device="reference")
            assert (found.samples, found.against_correct) == (SAMPLES, right)
            assert found.correct == right - found.net_loss

    def test_the_device_counts_what_the_reference_does(
        self, data: Path, modules: tuple[tvm.IRModule, tvm.IRModule]
    ) -> None:
        mod, qmod = modules
        done: list[tuple[int, int]] = []
        sim = vta.evaluate(
            qmod, data, against=mod, limit=10, progress=lambda *at: done.append(at)
        ).to_json()
        reference = vta.evaluate(qmod, data, against=mod, limit=10, device="reference").to_json()
        for result in (sim, reference):
            for side in ("quantized", "against"):
                assert result[side].pop("samples_per_second") > 0
        assert sim == reference
        assert done == [(4, 10), (8, 10), (10, 10)]

    def test_a_trained_network(self, tmp_path: Path) -> None:
        mod = vta.load_model(digits.trained("resnet8", 1))
        calibration = digits.calibration_inputs(1, 32)
        qmod = vta.quantize(mod, calibration=[x[None] for x in calibration])
        held = digits.held_out(1)
        path = saved(tmp_path / "digits.npz", image=held.inputs, labels=held.labels)
        machine, reference = runner(qmod, None, "sim"), host_runner(qmod)
        other = onnxruntime_runner(digits.trained("resnet8", 1))
        found = measure(machine, other, LabelledData(path, signature(qmod)))
        assert found.against_correct == digits.record()["networks"]["resnet8"]["correct"][1]
        assert found.samples == 360
        assert abs(found.net_loss) <= 4
        for x in held.inputs[:40]:
            assert np.array_equal(machine({"image": x[None]}), reference({"image": x[None]}))


class TestCommand:
    @pytest.fixture(autouse=True)
    def quantized_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(commands, "quantize", quantize_once)

    def test_json(self, model: Path, data: Path) -> None:
        result = cli("eval", model, "--data", data, "--against", "onnxruntime", "--json")
        assert result.exit_code == 0, result.stderr
        found = json.loads(result.stdout)
        assert list(found) == [
            "model", "config", "device", "data", "compared_with", "calibration", "samples",
            "quantized", "against", "agreement", "right_to_wrong", "wrong_to_right", "net_loss",
            "changes", "seconds",
        ]  # fmt: skip
        assert (found["samples"], found["against"]["correct"]) == (SAMPLES, 20)
        assert found["against"]["accuracy_percent"] == pytest.approx(100 * 20 / SAMPLES)
        net = found["right_to_wrong"] - found["wrong_to_right"]
        assert found["net_loss"] == {"samples": net, "points": pytest.approx(100 * net / SAMPLES)}
        assert list(found["seconds"]) == ["import", "quantize", "compile", "evaluate"]

    def test_text(self, model: Path, data: Path) -> None:
        result = cli("eval", model, "--data", data, "--device", "reference", "--limit", "9")
        assert result.exit_code == 0, result.stderr
        lines = [line.split() for line in result.stdout.splitlines()]
        assert lines[0] == ["right", "accuracy", "samples/s"]
        assert lines[3][:4] == ["float", "6", "66.67", "%"]
        assert ["samples", "9", "of", *str(data).split()] in lines
        assert result.stderr.splitlines()[-1] == (
            "running 9 samples on device reference and in float"
        )

    def test_bad_data_is_found_before_quantizing(self, model: Path, tmp_path: Path) -> None:
        path = saved(tmp_path / "x.npz", data=np.zeros((4, 16), np.float32), labels=[0, 1, 2, 7])
        result = cli("eval", model, "--data", path)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.splitlines() == [
            f"importing {model}",
            f'error: label 7 of sample 3 in data file "{path}"; the model has 5 classes, 0 to 4; '
            "number the labels as the model's outputs",
        ]

    def test_devices_share_the_samples(self, model: Path, data: Path) -> None:
        alone, shared = (
            json.loads(cli("eval", model, "--data", data, "--json", *more).stdout)
            for more in ((), ("--devices", "2"))
        )
        for found in (alone, shared):
            del found["seconds"]
            for side in ("quantized", "against"):
                assert found[side].pop("samples_per_second") > 0
        assert alone == shared

    def test_workers_share_the_samples(
        self, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jobs: list[int] = []
        monkeypatch.setattr("vta_byoc.validation.sharded_accuracy.LEAST_SAMPLES", 6)
        monkeypatch.setattr(
            "vta_byoc.validation.sharded_accuracy.run_in_order",
            lambda work, given, *_where: (
                jobs.append(len(given)) or map(work, pickle.loads(pickle.dumps(given)))
            ),
        )
        for more in ((), ("--against", "onnxruntime", "--limit", "27")):
            alone, shared = (
                json.loads(cli("eval", model, "--data", data, "--json", *more, *where).stdout)
                for where in ((), ("--workers", "2"))
            )
            for found in (alone, shared):
                del found["seconds"]
                for side in ("quantized", "against"):
                    assert found[side].pop("samples_per_second") > 0
            assert alone == shared
        assert jobs == [4, 4]
        assert refused("eval", model, "--data", data, "--workers", "2", "--devices", "2") == (
            "--devices 2 with --scheduler or --workers; devices share the samples of this process, "
            "and workers have a device each; leave one of the options out"
        )

    def test_devices_that_cannot_be(self, model: Path, data: Path) -> None:
        assert refused("eval", model, "--data", data, "--device", "null") == (
            'accuracy on device "null"; it computes nothing; choose "sim"'
        )
        several = ("--device", "reference", "--devices", "2")
        assert refused("eval", model, "--data", data, *several) == (
            'several devices of "reference"; it is the host itself, once; choose "sim", or leave '
            "the number of devices out"
        )
        assert refused(
            "eval", model, "--data", data, "--device", "rpc://h:1", "--devices", "2"
        ) == ("2 devices of rpc://h:1; it has 1; start further servers, or ask for fewer")

    def test_options(self, model: Path) -> None:
        assert refused("eval", model) == ("Missing option '--data'; see vta-byoc eval --help")
        assert refused("eval", model, "--data", "x.npz", "--limit", "0") == (
            "Invalid value for '--limit': 0 is not in the range x>=1; see vta-byoc eval --help"
        )


class TestProgressBar:
    def test_on_a_terminal(self) -> None:
        steps, screen = Steps(), io.StringIO()
        steps._console = Console(file=screen, force_terminal=True, width=80)
        with steps.counted("work", "doing it", 7) as show:
            show(3)
        assert "doing it" in screen.getvalue() and "3/7" in screen.getvalue()
        assert list(steps.seconds) == ["work"]

    def test_in_a_pipe(self) -> None:
        steps, screen = Steps(), io.StringIO()
        steps._console = Console(file=screen, width=80)
        with steps.counted("work", "doing it", 7) as show:
            show(3)
        assert screen.getvalue() == "doing it\n"


def test_docs_know_its_own_options() -> None:
    page = Path(__file__).parents[2] / "docs" / "accuracy.md"
    text = page.read_text(encoding="utf-8")
    own, shared = (
        {p.opts[0] for p in app.commands[name].params if isinstance(p, click.Option)}
        for name in ("eval", "place")
    )
    assert own - shared == {
        "--data", "--against", "--device", "--devices", "--scheduler", "--workers", "--limit",
    }  # fmt: skip
    assert [option for option in sorted(own - shared) if f"`{option}" not in text] == []
