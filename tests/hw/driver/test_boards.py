"""Boards' descriptions, and the transport of `/dev/mem` and u-dma-buf on files of their form."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from vta_byoc.hw.driver.board import open_board
from vta_byoc.hw.driver.dev_mem import DevMem
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.devices import driver

GOOD = {"interface": "hls", "base": "0x43C00000", "machine": "pynq", "memory": "udmabuf0"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of a board: registers at 4096, a u-dma-buf of 64 KiB at 0x3000_0000."""
    (tmp_path / "mem").write_bytes(bytes(3 * 4096))
    (tmp_path / "udmabuf0").write_bytes(bytes(1 << 16))
    (tmp_path / "class" / "udmabuf0").mkdir(parents=True)
    (tmp_path / "class" / "udmabuf0" / "phys_addr").write_text("0x30000000\n")
    (tmp_path / "class" / "udmabuf0" / "size").write_text("65536\n")
    return tmp_path


def opened(folder: Path) -> DevMem:
    return DevMem(
        4096,
        4096,
        "udmabuf0",
        design="1x16_i8w8a32_15_15_18_17",
        registers=folder / "mem",
        buffers=folder / "class",
        devices=folder,
    )


def test_registers_and_memory_are_mapped(folder: Path) -> None:
    board = opened(folder)
    board.write32(0x18, 0xDEADBEEF)
    assert board.read32(0x18) == 0xDEADBEEF
    first = board.allocate(100, 64)
    second = board.allocate(4096, 4096)
    assert (first.address, second.address) == (0x30000000, 0x30001000)
    assert board.write(second, 4000, np.full(200, 7, np.uint8)) == 96
    assert board.read(second, 4000, 200).tolist() == [7] * 96
    board.flush(second, for_device=True)
    about = folder / "class" / "udmabuf0"
    written = ("sync_offset", "sync_size", "sync_direction", "sync_for_device")
    assert [(about / name).read_text() for name in written] == ["4096", "4096", "1", "1"]
    board.free(first)
    assert board.allocate(4096, 4096).address == 0x30000000
    with pytest.raises(MemoryError, match="^the block has 65,536 bytes in 2 parts$"):
        board.allocate(1 << 16, 64)
    assert not board.interrupt(0.0) and not board.reset()
    assert board.design() == "1x16_i8w8a32_15_15_18_17"
    board.close()
    raw = (folder / "mem").read_bytes()
    assert raw[4096 + 0x18 :][:4] == bytes.fromhex("efbeadde")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"interface": "spi"}, "interface is 'spi'; known: hls, chisel; choose one"),
        ({"memory": None}, "memory is None; it must be a text; add it"),
        (
            {"base": "43C0"},
            "base is '43C0'; it must be the physical address of the registers, a multiple of 4096 "
            'such as "0x43C00000"; correct it',
        ),
        (
            {"clock": 100},
            "unknown key clock; known keys: base, bitstream, interface, interrupt, machine, "
            "memory; correct or remove it",
        ),
    ],
)
def test_wrong_descriptions_are_refused(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "board.json"
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(VTAError, match=f"^{re.escape(f'board {path}: {message}')}$"):
        open_board(path)


def test_a_board_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    path.write_text(json.dumps({**GOOD, "memory": "udmabuf-of-nobody"}))
    with pytest.raises(VTAError, match=f"^board {path} cannot be opened \\(") as err:
        open_board(path)
    assert str(err.value).endswith(
        "its registers need root or a group of /dev/mem, its memory the kernel's u-dma-buf; check "
        "both"
    )


def test_pynq_is_asked_for_where_it_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    path.write_text(json.dumps({**GOOD, "memory": "pynq", "bitstream": "vta.bit"}))
    with pytest.raises(
        VTAError,
        match=re.escape(
            'the package "pynq" is not installed; a board\'s memory "pynq" needs it; run this on '
            'the board\'s PYNQ image, or name a u-dma-buf as "memory"'
        ),
    ):
        open_board(path)


def test_a_board_is_a_device_by_its_description() -> None:
    found = driver("board:pynq.json")
    assert (found.name, found.computes) == ("board:pynq.json", True)
