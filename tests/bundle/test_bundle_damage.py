"""Bundles that are not as they were written: refused, and never a crash."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from bundle_runs import damage, outcome, repair

from vta_byoc.bundle.manifest import FILES, MANIFEST

MUTANTS = 60


def test_a_whole_bundle_opens(example: Path, small_bundle: Path) -> None:
    assert outcome(example, small_bundle) == ("ok", "")


def test_damaged_bundles_are_refused(example: Path, small_bundle: Path, tmp_path: Path) -> None:
    """By size or checksum: every bit of every file is covered."""
    rng = np.random.default_rng(0)
    for _ in range(MUTANTS):
        folder = Path(shutil.copytree(small_bundle, tmp_path / "damaged"))
        what = damage(folder, rng)
        status, message = outcome(example, folder)
        assert status in ("file", "checksum"), f"{what}: {status}: {message}"
        shutil.rmtree(folder)


def test_damage_behind_right_checksums_does_not_crash(
    example: Path, small_bundle: Path, tmp_path: Path
) -> None:
    """Also when the bundle is then run: what is wrong is refused, by runtime or device."""
    rng = np.random.default_rng(1)
    np.zeros((1, 3, 4, 5), np.float32).tofile(tmp_path / "in.bin")
    found: Counter[str] = Counter()
    for _ in range(2 * MUTANTS):
        folder = Path(shutil.copytree(small_bundle, tmp_path / "damaged"))
        what = damage(folder, rng)
        repair(folder)
        status, message = outcome(example, folder, tmp_path / "in.bin", "-o", tmp_path / "out.bin")
        assert not status.startswith("crash"), f"{what}: {status}: {message}"
        found[status] += 1
        shutil.rmtree(folder)
    print(dict(found))
    assert found["format"] >= MUTANTS // 4


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file(name: str, example: Path, copied: Path) -> None:
    (copied / name).unlink()
    assert outcome(example, copied) == (
        "file",
        f'error (file): file "{name}" of the bundle cannot be read; all six files belong to it; '
        "copy the bundle again",
    )


def test_no_bundle(example: Path, tmp_path: Path) -> None:
    assert outcome(example, tmp_path / "nowhere")[0] == "file"


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".bin")])
def test_a_truncated_file(name: str, example: Path, copied: Path) -> None:
    data = (copied / name).read_bytes()
    (copied / name).write_bytes(data[:-1])
    assert outcome(example, copied) == (
        "file",
        f'error (file): file "{name}" has {len(data) - 1} bytes; the manifest says {len(data)}; '
        "the bundle is truncated or damaged: copy it again",
    )


def test_a_changed_bit(example: Path, copied: Path) -> None:
    data = bytearray((copied / "constants.bin").read_bytes())
    data[0] ^= 1
    (copied / "constants.bin").write_bytes(data)
    assert outcome(example, copied) == (
        "checksum",
        'error (checksum): file "constants.bin" is damaged: its SHA-256 is not the one written '
        "beside it; copy the bundle again, or write it again",
    )


# ---------------------------------------------------------------- behind right checksums
def edit(folder: Path, old: str, new: str) -> None:
    """Change the manifest's text in one place; its checksum is right again."""
    text = (folder / MANIFEST).read_text()
    assert text.count(old) >= 1
    (folder / MANIFEST).write_text(text.replace(old, new, 1))
    repair(folder)


def test_a_later_format(example: Path, copied: Path) -> None:
    edit(copied, '"version": 1', '"version": 2')
    assert outcome(example, copied) == (
        "version",
        "error (version): the bundle has format version 2; this runtime reads version 1; take the "
        "runtime of the vta_byoc that wrote it, or write the bundle again",
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"inputs": [0]', '"inputs": [9]'),
        ('"mul": 1', '"mul": 2'),
        ('"zero_point": 0', '"zero_point": -0'),
        ('"axis": 1', '"axis": 7'),
        ('"layout": "packed"', '"layout": "plain"'),
        ('"align": 256', '"align": 255'),
        ('"dtype": "float32"', '"dtype": "float64"'),
        ('"name": "x"', '"name": "\\\\u0078"'),
        ('"format": "vta-byoc bundle"', '"format":"another"'),
        ('"workspace_bytes": ', '"workspace_bytes": 1'),
        ('"device_bytes": ', '"device_bytes": 1'),
        ('"version": 1', '"version": 1, "more": 0'),
        ('"version": 1', '"version": 01'),
    ],
)
def test_another_manifest(old: str, new: str, example: Path, copied: Path) -> None:
    edit(copied, old, new)
    status, message = outcome(example, copied)
    assert status == "format" or (status == "ok" and "workspace" in old), message


def test_the_place_of_the_first_mistake(example: Path, copied: Path) -> None:
    edit(copied, '"log_batch": 0', '"log_batch": x')
    at = (copied / MANIFEST).read_text().index('"log_batch": x') + len('"log_batch": ')
    assert outcome(example, copied) == (
        "format",
        f"error (format): manifest.json, byte {at}: a number is expected; the manifest is not one "
        "that this format has: write the bundle again",
    )


def test_a_store_to_constants(example: Path, copied: Path) -> None:
    """A later run would not read the constants that were loaded."""
    program = json.loads((copied / MANIFEST).read_text())["programs"][0]
    first, last = program["stored_from"], program["arena_bytes"]
    edit(copied, f'"stored_from": {first}', f'"stored_from": {last}')
    status, message = outcome(example, copied)
    assert status == "format"
    assert message.endswith("is refused: a STORE to inputs or constants; write the bundle again")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (0x7, "an unknown opcode"),
        (0x3, "FINISH where it does not stand last"),
        (0x5 << 7, "a transfer beyond the arena"),
        (0x7 << 7, "an unknown memory type"),
    ],
)
def test_a_wrong_instruction(word: int, reason: str, example: Path, copied: Path) -> None:
    path = copied / "instructions.bin"
    insns = np.frombuffer(path.read_bytes(), "<u8").reshape(-1, 2).copy()
    loads = [i for i in range(len(insns)) if insns[i, 0] & 7 == 0 and insns[i, 1] & 0xFFFF]
    insns[loads[0], 0] = (word | 0xFFFFFFFF << 26) & (1 << 64) - 1
    path.write_bytes(insns.tobytes())
    repair(copied)
    assert outcome(example, copied) == (
        "format",
        f"error (format): instruction {loads[0]} of a program is refused: {reason}; write the "
        "bundle again",
    )
