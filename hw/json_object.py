"""JSON objects from files, read so that every mistake in one has a line of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vta_byoc.hw.errors import VTAError

SHOWN = 60
"""Characters of a wrong value that errors repeat."""
MAX_BYTES = 1 << 20
"""Of a configuration file; real ones have some hundred."""


def read_object(path: str | Path, what: str, instead: str) -> dict[str, Any]:
    """The object of a JSON file; a key that stands twice is refused.

    Args:
        path: the file.
        what: names the file in errors.
        instead: the next step when it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as err:
        reason = getattr(err, "strerror", None) or str(err)
        raise VTAError(f"{what} cannot be read ({reason}); {instead}") from err
    if len(data) > MAX_BYTES:
        raise VTAError(
            f"{what} has more than {MAX_BYTES:,} bytes; that is no configuration; check the path"
        )
    try:
        found = json.loads(data.decode("utf-8"), object_pairs_hook=lambda p: _unique(p, what))
    except VTAError:
        raise
    except RecursionError as err:
        raise VTAError(f"{what} is nested too deep; use KEY: value pairs") from err
    except ValueError as err:
        raise VTAError(f"{what} is not JSON ({err}); correct it") from err
    if not isinstance(found, dict):
        raise VTAError(f"{what} holds no JSON object; use KEY: value pairs")
    return found


def _unique(pairs: list[tuple[str, Any]], what: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise VTAError(f"{what} has the key {shown(twice)} twice; keep one of them")
    return found


def shown(value: Any) -> str:
    """`value` as Python writes it, cut to some characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of too many digits, or too deep
        text = f"a {type(value).__name__} of too many digits or levels"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
