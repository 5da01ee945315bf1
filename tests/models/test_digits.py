"""The digits, their folds, and the trained networks that are committed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # models/ is not installed

from models import digits, digits_networks
from models._command import ModelError
from vta_byoc import load_model
from vta_byoc.ir.bindings import op_name, static_shape, straight_bindings

FILES = [(network, fold) for network in digits.NETWORKS for fold in range(digits.FOLDS)]
PARAMETERS = {"resnet8": 56_250, "mobilenet": 30_826, "mobilenet_v3": 48_140, "vit": 58_267}


class TestImages:
    def test_all_of_them(self) -> None:
        found = digits.load()
        assert found.inputs.shape == (digits.IMAGES, 1, digits.SIZE, digits.SIZE)
        assert found.inputs.dtype == np.float32
        assert np.bincount(found.labels).tolist() == [
            178,
            182,
            177,
            183,
            181,
            182,
            181,
            179,
            174,
            180,
        ]

    def test_enlarged_is_the_bilinear_resize(self) -> None:
        images = digits.raw()[0][:20].copy()
        images[:, [0, -1], :] = images[:, :, [0, -1]] = 0  # Resize repeats the edge beyond it
        value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [20, 1, 8, 8])
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
        node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
        graph = helper.make_graph([node], "resize", [value], [result], [scales])
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        (want,) = session.run(None, {"x": images[:, None]})
        assert np.array_equal(digits.enlarged(images), want[:, 0])

    def test_beyond_the_edges_is_zero(self) -> None:
        corner = digits.enlarged(np.full((1, 8, 8), 16, np.float32))[0, :2, :2]
        assert corner.tolist() == [[9, 12], [12, 16]]

    def test_without_scikit_learn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
        with pytest.raises(ModelError) as raised:
            digits.raw.__wrapped__()
        assert str(raised.value) == (
            "scikit-learn is not installed; the digits come with it; run: python -m pip install "
            "scikit-learn"
        )


class TestFolds:
    def test_each_image_is_held_out_once(self) -> None:
        parts = [digits.held_out_indices(fold) for fold in range(digits.FOLDS)]
        assert sorted(np.concatenate(parts).tolist()) == list(range(digits.IMAGES))
        assert [len(part) for part in parts] == [360, 360, 359, 359, 359]

    def test_each_has_every_digit(self) -> None:
        labels = digits.load().labels
        counts = [np.bincount(labels[digits.held_out_indices(f)]) for f in range(digits.FOLDS)]
        assert np.ptp(counts, axis=0).max() <= 1

    def test_they_are_made_from_the_seed(self) -> None:
        made = digits.split(digits.load().labels, digits.record()["split_seed"])
        assert [part.tolist() for part in made] == digits.record()["folds"]

    def test_calibration_is_not_held_out(self) -> None:
        held = {x.tobytes() for x in digits.held_out(3).inputs}
        inputs = digits.calibration_inputs(3)
        assert inputs.shape == (256, 1, 16, 16)
        known = {digits.load().inputs[i].tobytes() for i in digits.training_indices(3)}
        assert {x.tobytes() for x in inputs} <= known - held


class TestTrained:
    def test_sizes(self) -> None:
        sizes = [digits.trained(*file).stat().st_size for file in FILES]
        assert len(list(digits.TRAINED.glob("*_fold?.onnx"))) == len(FILES) == 20
        assert max(sizes) < 300e3 and sum(sizes) < 4.3e6

    @pytest.mark.parametrize(("network", "fold"), FILES)
    def test_accuracy_is_the_recorded_one(self, network: str, fold: int) -> None:
        session = onnxruntime.InferenceSession(digits.trained(network, fold))
        held = digits.held_out(fold)
        logits = [session.run(None, {"image": x[None]})[0][0] for x in held.inputs]
        right = int((np.argmax(logits, axis=1) == held.labels).sum())
        assert right == digits.record()["networks"][network]["correct"][fold]

    @pytest.mark.parametrize("network", digits.NETWORKS)
    def test_accuracy_over_the_folds(self, network: str) -> None:
        right = sum(digits.record()["networks"][network]["correct"])
        assert right / digits.IMAGES >= 0.99

    @pytest.mark.parametrize(("network", "fold"), FILES)
    def test_file_is_the_table_with_its_weights(self, network: str, fold: int) -> None:
        data = digits.trained(network, fold).read_bytes()
        state = {
            t.name: numpy_helper.to_array(t) for t in onnx.load_from_string(data).graph.initializer
        }
        again = digits_networks.to_onnx(network, state)
        assert again.SerializeToString(deterministic=True) == data
        counted = sum(v.size for n, v in state.items() if "running" not in n and "." in n)
        assert counted == PARAMETERS[network]

    @pytest.mark.parametrize("network", digits.NETWORKS)
    def test_import(self, network: str) -> None:
        main = load_model(digits.trained(network, 0))["main"]
        assert [(p.name, static_shape(p)) for p in main.params] == [("image", (1, 1, 16, 16))]
        assert static_shape(main.body.body) == (1, 10)
        operators = {op_name(binding.value) for binding in straight_bindings(main)}
        assert "relax.nn.batch_norm" not in operators  # folded
        assert ("relax.minimum" in operators) == (network == "mobilenet")  # of relu6

    def test_batch_norm_is_in_the_file(self) -> None:
        graph = onnx.load(digits.trained("mobilenet", 0)).graph
        kinds = [node.op_type for node in graph.node]
        assert kinds.count("BatchNormalization") == kinds.count("Conv") == 16
        adds = [node.name for node in graph.node if node.op_type == "Add"]
        assert adds == ["block1_add", "block3_add", "block5_add"]


class TestScript:
    def test_files(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        data, calibration = tmp_path / "data.npz", tmp_path / "calibration.npz"
        arguments = ["--fold", "2", "-o", str(data), "--calibration", str(calibration)]
        assert digits.main(arguments) == 0
        assert capsys.readouterr().out == f"digits: wrote {data}, 359 digits of fold 2\n"
        with np.load(data) as found:
            assert np.array_equal(found["image"], digits.held_out(2).inputs)
            assert np.array_equal(found["labels"], digits.held_out(2).labels)
        with np.load(calibration) as found:
            assert np.array_equal(found["image"], digits.calibration_inputs(2))

    def test_errors(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert digits.main(["--fold", "5", "-o", "x.npz"]) == 2
        assert capsys.readouterr().err.startswith("error: argument --fold: invalid choice: ")
        assert digits.main(["-o", str(tmp_path)]) == 2
        assert capsys.readouterr().err == (
            f'error: cannot write "{tmp_path}": it is a directory; name a file in it\n'
        )


class TestTraining:
    """With the extra `torch`."""

    @pytest.fixture(autouse=True)
    def one_thread(self) -> Iterator[None]:
        torch = pytest.importorskip("torch")
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)

    def test_unmoved_images_are_enlarged_ones(self) -> None:
        import torch

        from models.train_digits import Recipe, augmented

        still = Recipe(turn=0, scale=0, shear=0, shift=0, noise=0)
        images = torch.from_numpy(digits.raw()[0] / 16)[:, None]
        found = augmented(images, still, torch.Generator()).numpy()
        assert np.abs(found - digits.load().inputs).max() < 1e-5

    @pytest.mark.parametrize("network", digits.NETWORKS)
    def test_file_computes_what_the_module_does(self, network: str) -> None:
        import torch

        from models.train_digits import network_of

        torch.manual_seed(0)
        module = network_of(network)
        inputs = torch.from_numpy(digits.load().inputs[:64])
        module(inputs)  # moves the statistics of BatchNorm
        exported = digits_networks.to_onnx(network, module.eval().state()).SerializeToString()
        session = onnxruntime.InferenceSession(exported)
        found = np.concatenate([session.run(None, {"image": x[None].numpy()})[0] for x in inputs])
        want = module(inputs).detach().numpy()
        assert np.abs(found - want).max() <= 1e-4 * np.abs(want).max()
