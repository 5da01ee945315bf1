"""Images as calibration samples: preprocessing, order, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from PIL import Image
from small_models import Graph

from vta_byoc.hw.errors import VTAError
from vta_byoc.quantization.calibration.image_folder import (
    ImageFolder,
    Preprocessing,
    load_image_folder,
)
from vta_byoc.quantization.calibration.statistics import tensor_statistics


def model(*shape: int) -> tvm.IRModule:
    g = Graph(shape)
    return g.module(g.op("nn.relu", g.params[0], name="relu"))


COLOR = model(1, 3, 8, 8)


def picture(path: Path, pixels: Any, mode: str | None = None) -> Path:
    image = Image.fromarray(np.asarray(pixels, "uint8"))
    (image.convert(mode) if mode else image).save(path)
    return path


def pixels(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype("uint8")


def arrays(folder: ImageFolder) -> list[np.ndarray]:
    return [sample["x0"] for sample in folder]


def refused(text: str, path: Path, mod: tvm.IRModule = COLOR, **options: Any) -> None:
    with pytest.raises(VTAError) as caught:
        list(load_image_folder(path, mod, **options))
    assert str(caught.value) == text


# ---------------------------------------------------------------- preprocessing
def test_images_of_the_right_size_are_only_normalized(tmp_path: Path) -> None:
    first, second = pixels(1, 8, 8, 3), pixels(2, 8, 8, 3)
    picture(tmp_path / "b.png", second)
    picture(tmp_path / "a.png", first)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    folder = load_image_folder(tmp_path, COLOR, mean=mean, std=std)
    assert len(folder) == 2
    for got, source in zip(arrays(folder), (first, second), strict=True):
        want = ((source / 255 - mean) / std).transpose(2, 0, 1)
        assert got.dtype == np.float32 and got.shape == (1, 3, 8, 8)
        np.testing.assert_allclose(got[0], want, atol=1e-6)


def test_raw_pixels(tmp_path: Path) -> None:
    source = pixels(1, 8, 8, 3)
    picture(tmp_path / "a.png", source)
    (got,) = arrays(load_image_folder(tmp_path, COLOR, std=(1 / 255,)))
    np.testing.assert_allclose(got[0], source.transpose(2, 0, 1), rtol=1e-6)


def test_layouts_and_channels(tmp_path: Path) -> None:
    source = pixels(3, 8, 8)
    picture(tmp_path / "gray.png", source)
    for shape, layout in (((1, 1, 8, 8), None), ((1, 8, 8, 1), None), ((1, 8, 8, 1), "NHWC")):
        (got,) = arrays(load_image_folder(tmp_path, model(*shape), layout=layout))
        np.testing.assert_allclose(got.reshape(8, 8), source / 255, rtol=1e-6)
    (got,) = arrays(load_image_folder(tmp_path, model(1, 8, 8, 3)))
    np.testing.assert_allclose(got[0], np.stack([source] * 3, -1) / 255, rtol=1e-6)
    ambiguous = model(1, 3, 5, 3)
    (first,) = arrays(load_image_folder(tmp_path, ambiguous))
    (last,) = arrays(load_image_folder(tmp_path, ambiguous, layout="NHWC"))
    np.testing.assert_array_equal(first[0, 0], first[0, 1])
    np.testing.assert_array_equal(last[0, ..., 0], last[0, ..., 1])


def test_the_middle_is_cut_out(tmp_path: Path) -> None:
    """16 columns of stripes: with size 8 the input's 8 columns are the middle ones."""
    stripes = np.broadcast_to(np.arange(16, dtype="uint8")[None, :, None] * 10, (8, 16, 3))
    picture(tmp_path / "wide.png", stripes)
    for size in (None, 8):
        (got,) = arrays(load_image_folder(tmp_path, COLOR, size=size, std=(1 / 255,)))
        np.testing.assert_allclose(got[0, 0, 0], np.arange(4, 12) * 10, atol=1e-4)


@pytest.mark.parametrize("shape", [(8, 8), (4, 6)])
@pytest.mark.parametrize("height,width", [(16, 16), (31, 9), (5, 23), (4, 4)])
def test_any_size_is_resized_with_its_aspect_ratio(
    tmp_path: Path, height: int, width: int, shape: tuple[int, ...]
) -> None:
    """A ramp keeps its slope: it is resized equally in both directions."""
    rows, columns = np.mgrid[:height, :width]
    step = 250 // (height + width)
    picture(tmp_path / "ramp.png", step * (rows + columns))
    (got,) = arrays(load_image_folder(tmp_path, model(1, 1, *shape), std=(1 / 255,)))
    middle = got[0, 0, 1:-1, 1:-1]
    scale = max(shape[0] / height, shape[1] / width)
    for axis in (0, 1):
        assert np.diff(middle, axis=axis).mean() == pytest.approx(step / scale, rel=0.25)


def test_size_zooms(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", np.pad(np.full((8, 8), 200), 4))
    (whole,) = arrays(load_image_folder(tmp_path, model(1, 1, 8, 8)))
    (middle,) = arrays(load_image_folder(tmp_path, model(1, 1, 8, 8), size=16))
    assert whole.min() < 0.1 and middle.min() > 0.75


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "1", "CMYK"])
def test_modes(tmp_path: Path, mode: str) -> None:
    suffix = ".jpg" if mode == "CMYK" else ".png"
    picture(tmp_path / f"a{suffix}", np.full((8, 8, 3), 255), mode)
    (got,) = arrays(load_image_folder(tmp_path, COLOR))
    np.testing.assert_allclose(got, 1.0, atol=0.02)


# ---------------------------------------------------------------- the folder
def test_other_files_are_ignored_and_counted(tmp_path: Path) -> None:
    picture(tmp_path / "a.PNG", pixels(0, 8, 8, 3))
    (tmp_path / "labels.txt").write_text("cat")
    (tmp_path / ".hidden").write_text("")
    (tmp_path / "more.png").mkdir()
    folder = load_image_folder(tmp_path, COLOR)
    assert (len(folder), folder.ignored, folder.files[0].name) == (1, 3, "a.PNG")


def test_batches_and_limit(tmp_path: Path) -> None:
    for i in range(5):
        picture(tmp_path / f"{i}.png", np.full((8, 8, 3), i))
    pairs = load_image_folder(tmp_path, model(2, 3, 8, 8), std=(1 / 255,))
    assert [[round(float(x[0, 0, 0])) for x in a] for a in arrays(pairs)] == [[0, 1], [2, 3]]
    assert len(load_image_folder(tmp_path, COLOR, limit=1)) == 1
    assert len(load_image_folder(tmp_path, COLOR, limit=3)) == 3
    assert len(load_image_folder(tmp_path, COLOR, limit=30)) == 5


def test_images_are_read_one_at_a_time_and_again(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", pixels(0, 8, 8, 3))
    broken = tmp_path / "b.png"
    broken.write_bytes(b"")
    folder = load_image_folder(tmp_path, COLOR)
    first = next(iter(folder))["x0"]
    np.testing.assert_array_equal(next(iter(folder))["x0"], first)
    with pytest.raises(VTAError, match=f'^image "{broken}" cannot be decoded'):
        list(folder)


def test_it_is_a_calibration(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", np.full((8, 8, 3), 128))
    picture(tmp_path / "b.png", np.full((8, 8, 3), 255))
    steps: list[Any] = []
    found = tensor_statistics(
        COLOR, load_image_folder(tmp_path, COLOR, mean=(0.5,)), lambda *step: steps.append(step)
    )
    assert [seen.amax for seen in found.values()] == [0.5, 0.5]
    assert steps == [(1, 2), (2, 2)]


# ---------------------------------------------------------------- what is refused
def test_broken_images(tmp_path: Path) -> None:
    whole = picture(tmp_path / "whole.png", pixels(0, 64, 64, 3)).read_bytes()
    (tmp_path / "whole.png").unlink()
    for content in (b"GIF89a", b"text", whole[: len(whole) // 2]):
        path = tmp_path / "bad.png"
        path.write_bytes(content)
        with pytest.raises(VTAError) as caught:
            list(load_image_folder(tmp_path, COLOR))
        text = str(caught.value)
        assert text.startswith(f'image "{path}" cannot be decoded (')
        assert text.endswith("); every image of the folder is used; repair or remove it")


def test_wide_pixels(tmp_path: Path) -> None:
    path = tmp_path / "deep.png"
    Image.fromarray(np.full((8, 8), 40_000, "uint16")).save(path)
    refused(
        f'image "{path}" has more than 8 bits a channel; 8 are read; convert it to 8 bits or '
        "save the samples as .npz",
        tmp_path,
    )


def test_no_images(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat")
    refused(
        f'image folder "{tmp_path}" has 0 images and 1 other entries; at least 1 is needed; put '
        "images (.bmp, .gif, .jpeg, .jpg, .pgm, .png, .ppm, .tif, .tiff, .webp) directly into it",
        tmp_path,
    )
    picture(tmp_path / "a.png", pixels(0, 8, 8, 3))
    with pytest.raises(VTAError, match="has 1 images and 1 other entries; at least 2 are needed;"):
        load_image_folder(tmp_path, model(2, 3, 8, 8))


def test_no_folder(tmp_path: Path) -> None:
    refused(
        f'image folder "{tmp_path / "none"}" does not exist; a folder is needed; check the path',
        tmp_path / "none",
    )
    path = picture(tmp_path / "a.png", pixels(0, 8, 8, 3))
    refused(f'image folder "{path}" is a file; a folder is needed; check the path', path)


def test_models_that_take_no_images(tmp_path: Path) -> None:
    end = "; images fit one input of 4 dimensions with 1 or 3 channels; save the samples as .npz"
    refused('the model has the inputs "x0" (1, 5)' + end, tmp_path, model(1, 5))
    refused('the model has the inputs "x0" (1, 4, 8, 8)' + end, tmp_path, model(1, 4, 8, 8))
    refused('the model has the inputs "x0" (1, 3, 8, 8)' + end, tmp_path, layout="NHWC")
    g = Graph((1, 3, 8, 8), (1, 3, 8, 8))
    two = g.module(g.op("add", *g.params, name="sum"))
    refused('the model has the inputs "x0" (1, 3, 8, 8), "x1" (1, 3, 8, 8)' + end, tmp_path, two)


@pytest.mark.parametrize(
    "options,text",
    [
        (
            {"mean": (1.0, 2.0)},
            "image mean 1,2; one finite number is needed, or one for each of 3 channels; give for "
            "example mean=0.5",
        ),
        (
            {"std": (float("nan"),)},
            "image std nan; one finite number is needed, or one for each of 3 channels; give for "
            "example std=0.5",
        ),
        (
            {"std": (0.5, 0.0, 1.0)},
            "image std 0.5,0,1; it divides the pixels and must be above 0; leave it out to divide "
            "by 255 only",
        ),
        ({"size": 0}, "image size 0; it must be at least 1; leave it out"),
        ({"limit": -1}, "image limit -1; it must be at least 1; leave it out"),
        ({"layout": "CHW"}, 'image layout "CHW"; NCHW and NHWC are known; leave it out'),
    ],
)
def test_options(options: Any, text: str) -> None:
    with pytest.raises(VTAError) as caught:
        Preprocessing(**options)
    assert str(caught.value) == text


def test_options_that_do_not_fit_the_input(tmp_path: Path) -> None:
    refused(
        "image size 7; the input takes 8x8, which is cut from the middle; give at least 8",
        tmp_path,
        size=7,
    )
    refused(
        "image mean has 3 values; the input takes 1 channel; give one value",
        tmp_path,
        model(1, 1, 8, 8),
        mean=(0.1, 0.2, 0.3),
    )


def test_without_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    refused(
        "Pillow is not installed; images are read with it; run `pip install 'vta_byoc[images]'` "
        "or save the samples as .npz",
        tmp_path,
    )
