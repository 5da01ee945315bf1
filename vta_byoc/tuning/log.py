"""Tuning logs: files of schedules, one a line, each bound to what it was found for.

A line is a JSON object: the format of the log, the version of the tile spaces, the machine, what is
computed (strategy, workload, fused operators), the kernels, simulated cycles.  A line with a
``layer`` is for the layer of that name alone.  docs/tuning.md has an example.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.json_object import shown
from vta_byoc.tuning.schedule import Schedule

FORMAT = 1
"""Of the lines; a reader of another one refuses them."""
TILE_SPACES = 1
"""Raised whenever a strategy's axes, orders or kernels change: tiles found before mean others."""
UNTIMED = frozenset({"profile", "clock_mhz", "host_copy_bytes"})
"""Parameters of time that no tile depends on; the profile is named first."""
MAX_BYTES = 1 << 26
AGAIN = "run `vta-byoc tune MODEL -o FILE` with this version and machine and a new FILE"


@dataclass(frozen=True)
class Entry:
    """A line of a log.

    Attributes:
        schedule: what it says.
        machine: what it was found for, as :func:`machine_of`.
        layer: whose it is; "": of every layer that computes this.
        simulated: cycles of the layer alone by the timing simulator; None: nobody simulated it.
        line: the text that was read; "" of a new entry.
        number: of that line; 0 of a new entry.
    """

    schedule: Schedule
    machine: dict[str, object]
    layer: str = ""
    simulated: int | None = None
    line: str = dataclasses.field(default="", compare=False, repr=False)
    number: int = dataclasses.field(default=0, compare=False)

    @property
    def key(self) -> tuple[str, str]:
        """What no two lines of a log have in common."""
        return (self.layer, "" if self.layer else self.schedule.key)

    def text(self) -> str:
        """The line, as it was read or as it is to be written."""
        if self.line:
            return self.line
        value: dict[str, object] = {"format": FORMAT, "tile_spaces": TILE_SPACES}
        if self.layer:
            value["layer"] = self.layer
        value |= self.schedule.to_json()
        value |= {"simulated_cycles": self.simulated, "machine": self.machine}
        return json.dumps(value)


def machine_of(config: VTAConfig) -> dict[str, object]:
    """All of a machine that schedules and their cycles depend on, by name."""
    found: dict[str, object] = {
        field.name.upper(): getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name.startswith("log_")
    }
    found |= {f"FIELD_WIDTHS.{name}": bits for name, bits in config.index_bits.items()}
    found |= {
        f"CAPABILITIES.{name}": value
        for name, value in dataclasses.asdict(config.capabilities).items()
    }
    time = dataclasses.asdict(config.timing)
    found["TIMING.profile"] = time["profile"]
    found |= {f"TIMING.{name}": value for name, value in time.items() if name not in UNTIMED}
    return found


def check_machine(entry: Entry, config: VTAConfig, what: str) -> None:
    """Refuse an entry of another machine."""
    here = machine_of(config)
    for name in dict.fromkeys([*here, *entry.machine]):
        found, wanted = entry.machine.get(name), here.get(name)
        if found != wanted:
            raise VTAError(
                f"{what} is of another machine: {name} is {json.dumps(found)} there and "
                f"{json.dumps(wanted)} here ({config.name}); {AGAIN}"
            )


# ---------------------------------------------------------------- reading
def read_log(path: str | Path) -> tuple[Entry, ...]:
    """The entries of a log, in order.

    Raises:
        VTAError: no such file, a damaged line, one of another version, or two of one key.
    """
    what = f'tuning log "{path}"'
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as err:
        reason = err.strerror or str(err)
        raise VTAError(
            f"{what} cannot be read ({reason}); write one with `vta-byoc tune MODEL -o FILE`"
        ) from err
    if len(data) > MAX_BYTES:
        raise VTAError(
            f"{what} has more than {MAX_BYTES:,} bytes; that is no tuning log; check the path"
        )
    found: dict[tuple[str, str], Entry] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        entry = _entry(line, number, f"{what}, line {number}")
        before = found.setdefault(entry.key, entry)
        if before is not entry:
            whose = f'layer "{entry.layer}"' if entry.layer else entry.schedule.layer_text
            raise VTAError(
                f"{what}, lines {before.number} and {number}: two schedules of {whose}; a log has "
                "one; remove one of the lines"
            )
    return tuple(found.values())


def _entry(data: bytes, number: int, what: str) -> Entry:
    try:
        line = data.decode("utf-8")
        value = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise _damaged(what, "no JSON") from err
    if not isinstance(value, dict):
        raise _damaged(what, "no JSON object")
    _check_version(value, what)
    try:
        schedule = Schedule.from_json(value)
        machine, layer = dict(value["machine"]), value.get("layer", "")
        simulated = value["simulated_cycles"]
        schedule.key, schedule.text  # noqa: B018  what cannot be written is damaged
        if not isinstance(layer, str) or not isinstance(simulated, int | None):
            raise TypeError("layer and simulated_cycles")
    except Exception as err:  # whatever a constructor says of a field that is not one
        word = f"{type(err).__name__}: {err}"
        raise _damaged(what, f"not the fields of a schedule ({shown(word)})") from err
    return Entry(schedule, machine, layer, simulated, line, number)


def _check_version(value: dict[str, object], what: str) -> None:
    for name, wanted in (("format", FORMAT), ("tile_spaces", TILE_SPACES)):
        found = value.get(name)
        if name not in value:
            raise _damaged(what, f'no "{name}"')
        if found != wanted:
            raise VTAError(
                f'{what} is of another version: "{name}" is {shown(found)} there and {wanted} '
                f"here; {AGAIN}"
            )


def _damaged(what: str, why: str) -> VTAError:
    return VTAError(
        f"{what} is damaged: it holds {why}; a line is what `vta-byoc tune` writes; remove the line"
    )


# ---------------------------------------------------------------- writing
def merged(old: Iterable[Entry], new: Iterable[Entry]) -> list[Entry]:
    """``old`` with ``new`` in the place of entries of the same key, or behind them."""
    found = {entry.key: entry for entry in old}
    for entry in new:
        found[entry.key] = entry
    return list(found.values())


def update_log(path: str | Path, new: Sequence[Entry]) -> None:
    """Add ``new`` to a log, or replace its entries of the same key; other lines stay as they are.

    The file is read again and replaced at once: whoever reads it sees the old log or the new one.

    Raises:
        VTAError: the log cannot be read, or not be written, as on a full disk.
    """
    path = Path(path)
    entries = merged(read_log(path) if path.exists() else (), new)
    try:
        _replace(path, "".join(f"{entry.text()}\n" for entry in entries))
    except OSError as err:
        raise VTAError(
            f'tuning log "{path}" cannot be written ({err.strerror or err}); the log is what it '
            f'was; make room in "{path.parent}", or name a file that you may write'
        ) from err


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(path.suffix, f".{path.stem[:40]}-", path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        os.chmod(name, mode)
        os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
