"""Digests of the sources of rooms, which name what was made by them and is kept on disk."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import vta_byoc.hw
from vta_byoc.hw.cache import digest_of_sources


def digests_of_rooms(rooms: Iterable[str]) -> list[str]:
    """A digest of each of ``rooms``; that of the machine lies apart where nothing is installed."""
    own, hw = Path(__file__).resolve().parents[1], Path(str(vta_byoc.hw.__file__)).resolve().parent
    return [digest_of_sources(hw if room == "hw" else own / room) for room in rooms]
