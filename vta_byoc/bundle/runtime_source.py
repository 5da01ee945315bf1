"""Where the C runtime lies: `cp -r "$(python -m vta_byoc.bundle.runtime_source)" runtime`."""

from __future__ import annotations

from pathlib import Path

import vta_byoc.runtime


def runtime_source() -> Path:
    """The folder of the C runtime: sources, examples, Makefile and CMakeLists.txt."""
    (folder,) = vta_byoc.runtime.__path__
    return Path(folder) / "c"


if __name__ == "__main__":
    print(runtime_source())
