"""What each objective of the choice of tiles makes of ResNet-18: cycles and DRAM bytes.

docs/cost-model.md quotes them. The network has its own images and the preset pynq; every objective
compiles the same quantized module.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from benchmarks.networks import moved_bytes
from models import resnet18
from vta_byoc import VTAConfig, load_model, quantize
from vta_byoc.cost.objective import BOTH, CYCLES, DRAM_BYTES, NAMED, Objective
from vta_byoc.options import BuildOptions
from vta_byoc.pipeline import compile_programs
from vta_byoc.reports.run.timing import time_programs

OBJECTIVES = {
    "both": NAMED[BOTH],
    "cycles": NAMED[CYCLES],
    "both_10_unlimited": Objective(BOTH, 0.1),
    "both_20_unlimited": Objective(BOTH, 0.2),
    "both_50_unlimited": Objective(BOTH, 0.5),
    "dram_bytes": NAMED[DRAM_BYTES],
}
"""By the names of their figures; the first is the default."""
IMAGES = 2
"""That calibrate."""


def measured() -> Iterator[Figure]:
    """Cycles by the timing simulator and megabytes of every objective."""
    config = VTAConfig.preset("pynq")
    images = [image[None] for image in resnet18.calibration_inputs(IMAGES)]
    qmod = quantize(load_model(resnet18.cached()), calibration=images, config=config)
    for name, objective in OBJECTIVES.items():
        options = BuildOptions(config=config, objective=objective)
        programs = compile_programs(qmod, options=options)
        cycles = sum(timing.cycles for timing in time_programs(programs).values())
        megabytes = sum(map(moved_bytes, programs.values())) / 1e6
        yield Figure(f"{name}_cycles", cycles, "cycles")
        yield Figure(f"{name}_megabytes", megabytes, "MB")


def main() -> int:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    return report("objectives", list(measured()), options.json)


if __name__ == "__main__":
    sys.exit(main())
