"""Configuration files that hold anything JSON can: each is refused by its own line."""

from __future__ import annotations

from pathlib import Path

import pytest

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError

FIX = "; correct it in the configuration file"
TEXTS: dict[str, str] = {
    '{"TARGET": [1]}': f"configuration key TARGET is [1]; it must be a string{FIX}",
    '{"HW_VER": NaN}': f"configuration key HW_VER is nan; it must be a string{FIX}",
    '{"LOG_BLOCK": 4.0}': (
        f"configuration key LOG_BLOCK is 4.0; it must be an integer from 2 to 7{FIX}"
    ),
    '{"LOG_BLOCK": true}': (
        f"configuration key LOG_BLOCK is True; it must be an integer from 2 to 7{FIX}"
    ),
    '{"LOG_BATCH": 1' + "0" * 100 + "}": (
        f"configuration key LOG_BATCH is 1{'0' * 59}...; it must be an integer from 0 to 6{FIX}"
    ),
    '{"CAPABILITIES": {"max_tokens": null}}': (
        "configuration key CAPABILITIES.max_tokens is None; it must be an integer from 1 to "
        f"65535{FIX}"
    ),
    '{"CAPABILITIES": {"max_tokens": 0}}': (
        "configuration key CAPABILITIES.max_tokens is 0; it must be an integer from 1 to "
        f"65535{FIX}"
    ),
    '{"TIMING": {"clock_mhz": {}}}': (
        f"configuration key TIMING.clock_mhz is {{}}; it must be an integer from 1 to 1000000{FIX}"
    ),
    '{"TIMING": "fast"}': "PATH: TIMING is 'fast'; it must be an object of KEY: value pairs",
    '{"LOG_BLOCK": 4, "LOG_BLOCK": 5}': (
        "configuration file PATH has the key 'LOG_BLOCK' twice; keep one of them"
    ),
    "[" * 100_000: "configuration file PATH is nested too deep; use KEY: value pairs",
    "[1]": "configuration file PATH holds no JSON object; use KEY: value pairs",
    " " * 1_100_000: (
        "configuration file PATH has more than 1,048,576 bytes; that is no configuration; check "
        "the path"
    ),
    "": (
        "configuration file PATH is not JSON (Expecting value: line 1 column 1 (char 0)); correct "
        "it"
    ),
}
"""Text of the file -> the whole message, PATH for its name."""


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:30])
def test_each_mistake_has_its_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text(text)
    with pytest.raises(VTAError) as caught:
        VTAConfig.from_json(path)
    assert str(caught.value) == TEXTS[text].replace("PATH", str(path))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_bytes(b'{"TARGET": "\xff"}')
    with pytest.raises(VTAError) as caught:
        VTAConfig.from_json(path)
    assert str(caught.value) == (
        f"configuration file {path} is not JSON ('utf-8' codec can't decode byte 0xff in position "
        "12: invalid start byte); correct it"
    )
