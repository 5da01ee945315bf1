"""What --calibration and --preprocess accept on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import cli, refused
from PIL import Image
from small_models import Net

from vta_byoc.cli.calibration import parse_preprocessing, read_calibration
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = Net(image=(1, 3, 8, 8))
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    return net.save(path, net.conv("image", 3, 4, name="conv"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "images"
    path.mkdir()
    for i in range(3):
        pixels = np.random.default_rng(i).integers(0, 256, (20, 16, 3)).astype("uint8")
        Image.fromarray(pixels).save(path / f"{i}.png")
    return path


@pytest.mark.parametrize(
    "text,options",
    [
        ("mean=0.5", {"mean": (0.5,)}),
        ("mean=0.1,0.2,0.3,std=2", {"mean": (0.1, 0.2, 0.3), "std": (2.0,)}),
        ("size=256, limit=10", {"size": 256, "limit": 10}),
        ("std=1,1,1,layout=NHWC", {"std": (1.0, 1.0, 1.0), "layout": "NHWC"}),
    ],
)
def test_preprocessing(text: str, options: dict[str, Any]) -> None:
    assert parse_preprocessing(text) == options


@pytest.mark.parametrize("text", ["", "0.5", "mean", "mean=x", "size=1.5", "size=1,2", "mean=1,,2"])
def test_malformed_preprocessing(text: str) -> None:
    with pytest.raises(VTAError) as caught:
        parse_preprocessing(text)
    assert str(caught.value) == (
        f'--preprocess "{text}" is not KEY=VALUE,KEY=VALUE,...; mean and std take 1 or 3 numbers, '
        "size and limit a whole number; write for example "
        "--preprocess mean=0.485,0.456,0.406,std=0.229,0.224,0.225,size=256"
    )


@pytest.mark.parametrize(
    "text,problem", [("gamma=2", '"gamma" which is not known'), ("size=8,size=9", '"size" twice')]
)
def test_keys_of_preprocessing(text: str, problem: str) -> None:
    with pytest.raises(VTAError) as caught:
        parse_preprocessing(text)
    assert str(caught.value) == (
        f'--preprocess "{text}" has {problem}; mean, std, size, layout, limit can be given once '
        "each; correct the option"
    )


def test_a_folder_is_as_good_as_its_arrays(model: Path, folder: Path, tmp_path: Path) -> None:
    mod = load_model(model)
    samples = list(read_calibration(str(folder), mod, {"mean": (0.5,), "std": (0.25,)}))
    arrays = np.concatenate([sample["image"] for sample in samples])  # type: ignore[call-overload]
    np.savez(tmp_path / "samples.npz", image=arrays)
    outputs = []
    for *given, name in (
        (folder, "--preprocess", "mean=0.5,std=0.25", "a.npz"),
        (tmp_path / "samples.npz", "b.npz"),
        (folder, "c.npz"),
    ):
        result = cli("run", model, "--output", tmp_path / name, "--calibration", *given)
        assert result.exit_code == 0, result.output
        outputs.append(np.load(tmp_path / name)["t0_0"])
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[0], outputs[2])


def test_refusals(model: Path, folder: Path, tmp_path: Path) -> None:
    run = ("run", model, "--calibration")
    npz = tmp_path / "samples.npz"
    np.savez(npz, image=np.zeros((2, 3, 8, 8), "float32"))
    assert refused(*run, npz, "--preprocess", "mean=0.5") == (
        f'--preprocess with --calibration "{npz}", which is no folder; only images are prepared; '
        "save the samples as the model takes them"
    )
    assert refused(*run, folder, "--preprocess", "size=4").startswith("image size 4; the input ")
    (folder / "1.png").write_bytes(b"no image")
    assert refused(*run, folder).startswith(f'image "{folder / "1.png"}" cannot be decoded (')
