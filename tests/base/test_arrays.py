"""Array files: sizes before memory, every name kept."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from vta_byoc.base import limits
from vta_byoc.base.arrays import array_name, load_named, member_name, read_npy, read_npz, save_named
from vta_byoc.hw.errors import VTAError

NAMES = (
    *("y", "file", "allow_pickle", "arr_0", "x:0", "a/b", "größe", "100 %"),
    *("../x", "/etc/passwd", "a//b", "a/../b", ".", "..", "", "a\\b", "\x1b[31mred", "%2F", "\x00"),
)
PLAIN = ("y", "file", "allow_pickle", "arr_0", "x:0", "a/b", "größe")


def header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


def test_every_name_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "y.npz"
    arrays = {name: np.full(2, i, "float32") for i, name in enumerate(NAMES)}
    save_named(path, arrays)
    found = load_named(path)
    assert list(found) == list(NAMES)
    assert all(np.array_equal(found[name], arrays[name]) for name in NAMES)
    first = path.read_bytes()
    save_named(path, arrays)
    assert path.read_bytes() == first


def test_numpy_reads_plain_names_as_they_are(tmp_path: Path) -> None:
    save_named(tmp_path / "y.npz", {name: np.zeros(1) for name in PLAIN})
    with np.load(tmp_path / "y.npz") as found:
        assert set(found.files) == set(PLAIN)


@pytest.mark.parametrize("name", NAMES)
def test_members_stay_in_their_folder(name: str) -> None:
    member = member_name(name)
    assert array_name(member) == name
    assert not member.startswith("/") and "\\" not in member and member.isprintable()
    assert not {"..", "."} & set(member.split("/")[:-1])


def test_a_header_that_declares_terabytes(tmp_path: Path) -> None:
    path = tmp_path / "huge.npy"
    path.write_bytes(header((1_000_000, 1_000_000)) + bytes(64))
    with pytest.raises(VTAError) as caught:
        read_npy(path)
    assert str(caught.value) == (
        f'the array in "{path}" declares the shape (1000000, 1000000), 3,725.3 GiB; the file holds '
        "64 bytes of it; save it again"
    )


def test_an_archive_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    """What it declares is there: zeros, a thousand to one."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in "ab":
            archive.writestr(f"{name}.npy", header((1 << 20,)) + bytes(4 << 20))
    assert path.stat().st_size < 20_000
    with limits.memory_limit(6 << 20), pytest.raises(VTAError) as caught:
        read_npz(path)
    assert str(caught.value) == (
        f'the tensors of the file "{path}" take 8 MiB together, the array "a" in "{path}" of shape '
        "(1048576) the most of it; 6 MiB are taken at most; correct the shapes, or raise the limit "
        "(--memory-limit 1)"
    )
    with limits.memory_limit(8 << 20):
        assert read_npz(path)["a"].shape == (1 << 20,)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", header((1 << 40,)))
    with pytest.raises(VTAError) as caught:
        read_npz(path)
    assert str(caught.value) == (
        f'the array "a" in "{path}" declares the shape (1099511627776), 4,096 GiB; the file holds '
        "0 bytes of it; save it again"
    )
