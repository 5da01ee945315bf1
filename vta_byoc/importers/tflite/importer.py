"""TFLite models to QDQ Relax in NCHW.

TVM's own importer emits NHWC, averages integers with truncation and clips after it has quantized;
it is not used. The operators are in `importers.tflite.operators` and `importers.tflite.movement`.
"""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import relax

from vta_byoc.base.boundary import at
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.tflite.branches import without_branches
from vta_byoc.importers.tflite.constants import folded
from vta_byoc.importers.tflite.graph import TFLiteGraph
from vta_byoc.importers.tflite.model import Model, read
from vta_byoc.importers.tflite.operators import convert
from vta_byoc.importers.tflite.variables import as_states
from vta_byoc.ir.states import INITIAL_STATES


def load(path: Path, shapes: dict[str, tuple[int, ...]]) -> tuple[tvm.IRModule, list[str]]:
    """The model as QDQ Relax, not yet normalized, and the names of its outputs.

    Raises:
        VTAError: a file that is no TFLite model, an operator or a quantization that is not
            supported, shapes that are not those of the file.
    """
    model, initial = as_states(without_branches(read(path)))
    model = folded(model)
    _check_shapes(model, shapes)
    graph = TFLiteGraph(model)
    for tensor in model.inputs:
        graph.add_input(tensor)
    for op in model.operators:
        graph.op = op
        at(f'operator "{op.name}" ({op.code})')
        convert(graph)
    at("")
    results = [graph.result(tensor) for tensor in model.outputs]
    result = results[0] if len(results) == 1 else relax.Tuple(results)
    source = relax.Function(graph.params, result, ret_ty=relax.ObjectType())
    main = graph.writer.finish(source, result).with_attr("global_symbol", "main")
    mod = relax.transform.Normalize()(tvm.IRModule({"main": main}))
    if initial:
        mod = mod.with_attr(INITIAL_STATES, {k: tvm.runtime.tensor(v) for k, v in initial.items()})
    return mod, [tensor.name for tensor in model.outputs]


def _check_shapes(model: Model, shapes: dict[str, tuple[int, ...]]) -> None:
    fixed = {tensor.name: tensor.shape for tensor in model.inputs}
    for name, shape in shapes.items():
        if name not in fixed:
            raise VTAError(
                f'shape given for "{name}"; the inputs of the model are {", ".join(fixed)}; '
                "use one of these names"
            )
        if tuple(shape) != fixed[name]:
            raise VTAError(
                f'shape {tuple(shape)} given for "{name}"; a TFLite file has fixed shapes, here '
                f"{fixed[name]}; convert the model again with the shape"
            )
