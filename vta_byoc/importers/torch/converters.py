"""PyTorch operators as Relax, where TVM's importer computes something else or has no converter.

Operands are taken in the dtype that PyTorch promotes them to, results have the dtype that PyTorch
recorded for the node.
"""

from __future__ import annotations

from vta_byoc.importers.torch.arguments import Converter
from vta_byoc.importers.torch.distances import DISTANCES
from vta_byoc.importers.torch.elementwise import ELEMENTWISE
from vta_byoc.importers.torch.indexing import INDEXING
from vta_byoc.importers.torch.movement import MOVEMENT
from vta_byoc.importers.torch.planes import PLANES
from vta_byoc.importers.torch.reductions import REDUCTIONS

OVERRIDES: dict[str, Converter] = {
    **DISTANCES,
    **ELEMENTWISE,
    **INDEXING,
    **MOVEMENT,
    **PLANES,
    **REDUCTIONS,
}
"""Operator -> our converter, where TVM's computes something else or there is none."""
