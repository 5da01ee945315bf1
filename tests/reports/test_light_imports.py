"""What users of the library wait for: no import of it needs what only reports and commands do."""

from __future__ import annotations

import subprocess
import sys

from without_torch import WITHOUT_TORCH

FOR_REPORTS = {"click", "jinja2", "plotly", "rich", "PIL"}
CODE = """
import sys
import tvm
before = set(sys.modules)
import vta_byoc
for name in vta_byoc.__all__:
    if name != "evaluate":
        getattr(vta_byoc, name)
print(*sorted({module.partition(".")[0] for module in set(sys.modules) - before}))
print(*sorted(module for module in sys.modules if module.startswith("vta_byoc.")))
"""


def test_loading_quantizing_compiling_and_running_need_no_report() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_TORCH + CODE],
        capture_output=True,
        text=True,
        check=True,
    )
    foreign, own = (line.split() for line in done.stdout.splitlines()[-2:])
    assert FOR_REPORTS & set(foreign) == set()
    rooms = {module.split(".")[1] for module in own}
    assert "pipeline" in rooms and not rooms & {"reports", "cli"}
