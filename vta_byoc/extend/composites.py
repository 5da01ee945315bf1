"""What patterns and strategies are written with (`register_pattern`, `register_strategy`).

A pattern finds a group of operators (`PatternEntry.match`), reads its workload (`read`) and plans
it (`plan`): `simple_plan` asks a strategy for the tiling that costs least. A strategy derives from
`Strategy`, or from `SingleKernelStrategy` where one loop nest computes the result; its tilings are
a `Space`, and what they cost follows from their `ResourceUsage`.
"""

from __future__ import annotations

from vta_byoc.cost.search import Choice, Space
from vta_byoc.cost.usage import ResourceUsage, Staged
from vta_byoc.ir.chains import Binding, Graph
from vta_byoc.partitioning.entry import Candidate, Parsed, PatternEntry, Plan
from vta_byoc.partitioning.layers import simple_plan
from vta_byoc.strategies.base import (
    KernelFunction,
    LayerSchedule,
    LayerWork,
    SingleKernelStrategy,
    Strategy,
)
from vta_byoc.strategies.te.kernel import Kernel, KernelSpace
from vta_byoc.workload.workloads import (
    Conv2dWorkload,
    ElementwiseWorkload,
    Epilogue,
    PoolWorkload,
    Prologue,
    Step,
)

__all__ = [
    "Binding",
    "Candidate",
    "Choice",
    "Conv2dWorkload",
    "ElementwiseWorkload",
    "Epilogue",
    "Graph",
    "Kernel",
    "KernelFunction",
    "KernelSpace",
    "LayerSchedule",
    "LayerWork",
    "Parsed",
    "PatternEntry",
    "Plan",
    "PoolWorkload",
    "Prologue",
    "ResourceUsage",
    "SingleKernelStrategy",
    "Space",
    "Staged",
    "Step",
    "Strategy",
    "simple_plan",
]
