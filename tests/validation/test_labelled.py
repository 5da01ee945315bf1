"""Labelled samples: batches, memory, and what is wrong with a file."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vta_byoc.hw.errors import VTAError
from vta_byoc.validation.labelled_dataset import LabelledData, Signature, Spec

ONE = Signature({"x": Spec((2, 3), np.dtype("float32"))}, 4)


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def unreadable(path: Path, sign: Signature = ONE, **options: Any) -> str:
    with pytest.raises(VTAError) as raised:
        list(LabelledData(path, sign, **options))
    return str(raised.value)


class TestData:
    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    @pytest.mark.parametrize("limit", [None, 1, 4, 100])
    def test_batches(self, tmp_path: Path, save: Any, limit: int | None) -> None:
        x = np.arange(15, dtype=np.float32).reshape(5, 3)
        labels = np.array([3, 2, 1, 0, 3], np.uint8)
        save(tmp_path / "x.npz", x=x, labels=labels)
        found = LabelledData(tmp_path / "x.npz", ONE, limit)
        count = min(limit or 5, 5)
        assert len(found) == count
        for _ in range(2):  # each iteration begins again
            batches = list(found)
            assert np.concatenate([b.labels for b in batches]).tolist() == labels[:count].tolist()
            stacked = np.concatenate([b.inputs["x"] for b in batches])
            assert stacked.shape == (count + count % 2, 3)
            assert np.array_equal(stacked[:count], x[:count])
            assert not stacked[count:].any()

    def test_memory_is_one_batch(self, tmp_path: Path) -> None:
        count, size = 256, 2**16
        sign = Signature({"x": Spec((2, size), np.dtype("float32"))}, 10)
        np.savez_compressed(
            tmp_path / "x.npz", x=np.zeros((count, size), np.float32), labels=np.zeros(count, int)
        )
        tracemalloc.start()
        total = sum(len(batch.labels) for batch in LabelledData(tmp_path / "x.npz", sign))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert total == count
        assert peak < 6 * 2 * size * 4 < count * size * 4 / 20

    def test_file(self, tmp_path: Path) -> None:
        assert unreadable(tmp_path / "no.npz") == (
            f'data file "{tmp_path}/no.npz" does not exist; an .npz file is needed; check the path'
        )
        path = tmp_path / "x.npz"
        path.write_bytes(b"not an archive")
        assert unreadable(path) == (
            f'data file "{path}" is not an .npz archive of numeric arrays, or damaged (File is not '
            "a zip file); save it with numpy.savez(path, labels=labels, **{input name: samples})"
        )
        saved(path, x=np.array([[{}]], object), labels=np.zeros(1, int))
        assert "or damaged (arrays of objects)" in unreadable(path)

    def test_damaged(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "x.npz", x=np.ones((2, 3), np.float32), labels=np.zeros(2, int))
        data = bytearray(path.read_bytes())
        data[data.index(np.float32(1).tobytes()) + 2] ^= 1
        path.write_bytes(data)
        assert "Bad CRC-32 for file 'x.npy'" in unreadable(path)

    def test_array_that_ends_early(self, tmp_path: Path) -> None:
        whole = io.BytesIO()
        np.save(whole, np.ones((2, 3), np.float32))
        path = saved(tmp_path / "x.npz", labels=np.zeros(2, int))
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("x.npy", whole.getvalue()[:-4])
        assert '(the array "x" ends early)' in unreadable(path)

    def test_names(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "x.npz", x=np.zeros((2, 3), np.float32))
        assert unreadable(path) == (
            f'data file "{path}" holds the arrays "x"; the inputs of the model and the labels are '
            '"x", "labels"; save one array for each of them under its name'
        )
        assert unreadable(path, Signature({"labels": ONE.inputs["x"]}, 4)) == (
            'an input of the model is named "labels"; that is the name of the labels in a data '
            "file; rename the input"
        )

    @pytest.mark.parametrize(
        ("x", "message"),
        [
            (
                np.zeros((2, 3)),
                'data array "x" has dtype float64; the input takes float32; convert it with '
                '.astype("float32")',
            ),
            (
                np.zeros((2, 4), np.float32),
                'data array "x" has shape (2, 4); n samples of the input take (n, 3); stack the '
                "samples along the first axis",
            ),
            (
                np.zeros((3, 3), np.float32),
                'data array "x" has 3 samples and there are 2 labels; every sample needs one; save '
                "them together",
            ),
            (
                np.zeros((3, 2), np.float32).T,
                'data array "x" is stored by columns (Fortran order); samples are read one after '
                "the other; save numpy.ascontiguousarray(array)",
            ),
            (
                np.array([[0, 0, 0], [0, np.inf, 0]], np.float32),
                'data sample 1, input "x" has values that are NaN or infinite; every value must be '
                "finite; remove or repair the sample",
            ),
        ],
    )
    def test_input(self, tmp_path: Path, x: np.ndarray, message: str) -> None:
        assert unreadable(saved(tmp_path / "x.npz", x=x, labels=np.zeros(2, int))) == message

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (
                np.zeros((2, 1)),
                'labels of data file "PATH" have dtype float64 and shape (2, 1); they are class '
                "numbers, integers of shape (n,); save labels.astype(int).ravel()",
            ),
            (
                np.zeros(0, int),
                'labels of data file "PATH": there are 0; at least 1 sample is needed; save some '
                "samples",
            ),
            (
                np.array([3, 4]),
                'label 4 of sample 1 in data file "PATH"; the model has 4 classes, 0 to 3; number '
                "the labels as the model's outputs",
            ),
            (
                np.array([-1, 0]),
                'label -1 of sample 0 in data file "PATH"; the model has 4 classes, 0 to 3; number '
                "the labels as the model's outputs",
            ),
        ],
    )
    def test_labels(self, tmp_path: Path, labels: np.ndarray, message: str) -> None:
        x = np.zeros((len(labels), 3), np.float32)
        path = saved(tmp_path / "x.npz", x=x, labels=labels)
        assert unreadable(path, limit=1) == message.replace("PATH", str(path))
