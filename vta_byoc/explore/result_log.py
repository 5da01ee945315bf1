"""The results of an exploration on disk: a line each, whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

from vta_byoc.explore.point import Point
from vta_byoc.hw.errors import VTAError


class ResultLog:
    """A JSON Lines file that is extended line by line.

    A line that an interruption cut off is dropped when the file is opened again.

    Attributes:
        points: what it holds, by the key of the job.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.points: dict[str, Point] = {}
        if path.exists():
            self._read()

    def _read(self) -> None:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                point = Point(**json.loads(line))
            except (ValueError, TypeError) as err:
                raise VTAError(
                    f"line {number} of {self.path} is no result ({err}); the file holds those of "
                    "vta-byoc explore; remove the line, or name another file"
                ) from err
            self.points[point.key] = point
        if len(whole) < len(data):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))

    def add(self, point: Point) -> None:
        """Append a result, and wait until it is on the disk."""
        line = json.dumps(point.to_json(), sort_keys=True) + "\n"
        with self.path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self.points[point.key] = point
