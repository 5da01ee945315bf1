"""Program files: what was saved comes back, and nothing else does."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from conv_cases import conv_case, rescale
from hand_programs import Hand, product

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.file import MAGIC, VERSION, from_file_bytes, load, save, to_file_bytes
from vta_byoc.hw.program.program import Program, link
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.testing.random_safe import random_safe_program
from vta_byoc.hw.timing_parameters import Timing
from vta_byoc.hw.verify.verifier import verify
from vta_byoc.workload.workloads import Conv2dWorkload

HEAD = 52
"""Bytes before the payload."""


def sealed(payload: bytes, version: int = VERSION) -> bytes:
    """A file with a correct checksum around any payload."""
    head = MAGIC + version.to_bytes(4, "little") + len(payload).to_bytes(8, "little")
    return head + hashlib.sha256(head + payload).digest() + payload


def refusal(data: bytes) -> str:
    with pytest.raises(VTAError) as err:
        from_file_bytes(data, "program file p.vta")
    assert "\n" not in str(err.value)
    return str(err.value)


# ---------------------------------------------------------------- round trips
@pytest.mark.parametrize("preset", VTAConfig.presets())
def test_round_trip(preset: str, tmp_path: Path) -> None:
    config = VTAConfig.preset(preset)
    program, _ = random_safe_program(config, np.random.default_rng(0), 12)
    save(program, tmp_path / "p.vta")
    loaded = load(tmp_path / "p.vta", config)
    assert loaded == program
    assert loaded.disassemble() == program.disassemble()
    for item in dataclasses.fields(Program):
        if item.name not in ("insns", "image"):
            assert getattr(loaded, item.name) == getattr(program, item.name)
    for one, two in ((loaded.insns, program.insns), (loaded.image, program.image)):
        assert one.dtype == two.dtype and one.shape == two.shape


def test_loaded_program_runs(tmp_path: Path) -> None:
    work = Conv2dWorkload(1, 20, 20, 6, 6, (3, 3), padding=(1, 1, 1, 1), epilogue=rescale(9))
    case = conv_case(work, VTAConfig())
    save(case.program, tmp_path / "conv.vta")
    loaded = load(tmp_path / "conv.vta")
    assert verify(loaded) == []
    case.check(simulator.run(loaded, case.inputs).arena)


def test_equal_programs_give_equal_files() -> None:
    one, two = (product().done() for _ in range(2))
    assert to_file_bytes(one) == to_file_bytes(two)


def test_empty_program(tmp_path: Path) -> None:
    empty = link(VTAConfig(), [], [], {}, [], [])
    save(empty, tmp_path / "empty.vta")
    assert load(tmp_path / "empty.vta") == empty
    assert [v.rule for v in verify(empty)] == ["finish"]


# ---------------------------------------------------------------- writing
def test_save_replaces_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.vta"
    save(Hand().done(), path)
    before = path.read_bytes()

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(VTAError) as err:
        save(product().done(), path)
    assert str(err.value) == (
        f"program file {path} cannot be written (No space left on device); its folder must exist "
        "and be writable; give another path"
    )
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_save_into_a_missing_folder(tmp_path: Path) -> None:
    path = tmp_path / "none" / "p.vta"
    with pytest.raises(VTAError) as err:
        save(product().done(), path)
    assert str(err.value) == (
        f"program file {path} cannot be written (No such file or directory); its folder must exist "
        "and be writable; give another path"
    )


def test_save_over_a_folder(tmp_path: Path) -> None:
    with pytest.raises(VTAError, match="cannot be written \\(Is a directory\\)"):
        save(product().done(), tmp_path)
    assert list(tmp_path.parent.glob(".*.part")) == []


def test_load_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(VTAError) as err:
        load(tmp_path / "p.vta")
    assert str(err.value) == (
        f"program file {tmp_path / 'p.vta'} cannot be read (No such file or directory); give a "
        "file that vta_byoc has saved"
    )


# ---------------------------------------------------------------- damage
@pytest.mark.parametrize("data", [b"", b"ONNX", b"\x00" * 4096, b"\x93VTA\n\x1a\n", MAGIC.lower()])
def test_not_a_program_file(data: bytes) -> None:
    assert refusal(data) == (
        "program file p.vta is not a VTA program; program files begin with the bytes "
        "935654410d0a1a0a; give a file that vta_byoc has saved"
    )


def test_a_bit_flipped_at_every_byte() -> None:
    """No flip goes unnoticed, and the message says what is wrong with the file."""
    data = to_file_bytes(product().done())
    kinds = {
        "is not a VTA program": 0,
        "is damaged: the": 0,
        "its header says": 0,
        "is truncated": 0,
    }
    for at in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            text = refusal(bytes(broken))
            (kind,) = (k for k in kinds if k in text)
            kinds[kind] += 1
    print(f"{8 * len(data)} flips: {kinds}")
    assert kinds["is not a VTA program"] == 8 * len(MAGIC)
    assert all(kinds.values())


def test_truncated_at_every_byte() -> None:
    data = to_file_bytes(product().done())
    for size in range(1, len(data)):
        text = refusal(data[:size])
        need = HEAD if size < HEAD else len(data)
        assert text == (
            f"program file p.vta is truncated: it has {size} bytes; at least {need} belong to it; "
            "copy it again or save the program again"
        )


def test_appended_bytes() -> None:
    data = to_file_bytes(product().done())
    assert refusal(data + b"\n") == (
        f"program file p.vta has {len(data) + 1} bytes; its header says {len(data)}; something was "
        "appended or the file is damaged: save the program again"
    )


def test_damaged_contents() -> None:
    data = bytearray(to_file_bytes(product().done()))
    data[-1] ^= 1
    assert refusal(bytes(data)) == (
        "program file p.vta is damaged: the SHA-256 of its contents is not the one saved with "
        "them; every bit must be as it was written; save the program again"
    )


def test_newer_version() -> None:
    payload = product().done().to_bytes()
    assert refusal(sealed(payload + b"more", VERSION + 1)) == (
        "program file p.vta has format version 4; this vta_byoc reads version 3; install the "
        "vta_byoc that saved it, or compile the program again"
    )


# ---------------------------------------------------------------- sealed nonsense
def test_checksums_do_not_make_a_program() -> None:
    """Whatever carries a correct checksum is refused or is a program that can be verified."""
    rng = np.random.default_rng(0)
    payload = product().done().to_bytes()
    header = int.from_bytes(payload[:8], "little") + 8
    digits = np.frombuffer(b'0123456789-."[]{},:', np.uint8)
    refused = 0
    for _ in range(1500):
        broken = bytearray(payload)
        for _ in range(rng.integers(1, 3)):
            broken[rng.integers(header)] = rng.choice(digits)
        try:
            program = from_file_bytes(sealed(bytes(broken)))
        except VTAError:
            refused += 1
            continue
        assert program.to_bytes() == bytes(broken)
        verify(program)
    print(f"{refused} of 1500 refused")
    assert 750 < refused < 1500


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("arena_bytes", -1, "ValueError: -1 is no size or index"),
        ("input_bytes", True, "ValueError: True is no size or index"),
        ("symbols", [{"name": "x"}], "KeyError: 'shape'"),
        ("relocations", [[0, 7, 0]], "TypeError: 7 is no text"),
        ("config", {"LOG_BLOK": 4}, "VTAError: configuration: unknown key LOG_BLOK"),
    ],
)
def test_malformed_header(key: str, value: object, reason: str) -> None:
    program = product().done()
    head = json.dumps({**program.header(), key: value}, sort_keys=True).encode()
    parts = (head, program.insns.tobytes(), program.image.tobytes())
    text = refusal(sealed(b"".join(len(p).to_bytes(8, "little") + p for p in parts)))
    assert text.startswith(f"program file p.vta holds no program ({reason}")
    assert text.endswith("; a file holds what vta_byoc saved; save the program again")


# ---------------------------------------------------------------- configurations
def test_other_configuration(tmp_path: Path) -> None:
    save(product(Hand(VTAConfig.preset("1x32"))).done(), tmp_path / "p.vta")
    with pytest.raises(VTAError) as err:
        load(tmp_path / "p.vta", VTAConfig.preset("pynq"))
    text = str(err.value)
    assert text.startswith(
        f"program file {tmp_path / 'p.vta'} is for another machine: LOG_BLOCK 5, not 4; "
    )
    assert text.endswith(
        "; a program runs on the configuration that it was compiled for; compile it for this one"
    )


def test_other_capabilities(tmp_path: Path) -> None:
    save(product().done(), tmp_path / "p.vta")
    machine = VTAConfig(capabilities=Capabilities(mul=False))
    with pytest.raises(VTAError) as err:
        load(tmp_path / "p.vta", machine)
    assert str(err.value) == (
        f"program file {tmp_path / 'p.vta'} is for another machine: CAPABILITIES.mul True, not "
        "False; a program runs on the configuration that it was compiled for; compile it for this "
        "one"
    )


def test_name_and_timing_of_the_machine_may_differ(tmp_path: Path) -> None:
    program = product().done()
    save(program, tmp_path / "p.vta")
    machine = VTAConfig(target="board", timing=Timing(clock_mhz=333))
    assert load(tmp_path / "p.vta", machine) == program
