"""What a layer costs on a machine, before the module that it belongs to exists."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from vta_byoc.dialect import DialectWriter
from vta_byoc.hw.config import VTAConfig
from vta_byoc.partition import estimated_cycles


def estimate(
    write: Callable[[DialectWriter, relax.Expr], relax.Var],
    shape: tuple[int, ...],
    config: VTAConfig,
) -> float | None:
    """Cycles that the compiler expects of what `write` writes on int8 data of `shape`; None where
    the partition table leaves any of it to the CPU."""
    data = relax.Var("data", relax.TensorType(shape, "int8"))
    writer = DialectWriter()
    writer.names.fresh("data")
    out = write(writer, data)
    source = relax.Function([data], data, ret_ty=data.ty)
    mod = tvm.IRModule({"main": writer.finish(source, out)})
    return estimated_cycles(relax.transform.Normalize()(mod)["main"], config)
