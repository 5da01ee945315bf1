"""ONNX files to Relax: what is checked, in which order, before TVM imports the operators."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import onnx
import tvm

from vta_byoc.importers.fixed_inputs import with_fixed_inputs
from vta_byoc.importers.onnx.attributes import check_attributes
from vta_byoc.importers.onnx.branches import take_branches
from vta_byoc.importers.onnx.checks import (
    check_model,
    check_operators,
    input_shapes,
    read,
)
from vta_byoc.importers.onnx.fixed import Value, fix_inputs
from vta_byoc.importers.onnx.functions import written_out
from vta_byoc.importers.onnx.fused import claim_runtime_nodes
from vta_byoc.importers.onnx.naming import import_graph, name_nodes
from vta_byoc.importers.onnx.node import opset_of
from vta_byoc.importers.onnx.precision import as_float32
from vta_byoc.importers.onnx.qoperator import expand
from vta_byoc.importers.onnx.sizes import check_sizes
from vta_byoc.importers.onnx.spectra import state_axes
from vta_byoc.importers.onnx.unread import drop_results
from vta_byoc.importers.onnx.versions import usable
from vta_byoc.ir.bindings import UniqueNames


def read_model(path: Path) -> onnx.ModelProto:
    """The file's graph as it is imported, of operators of today and of float32.

    Raises:
        VTAError: a file that is no ONNX model, or of operators too old to be converted.
    """
    model = usable(read(path), path)
    drop_results(model)
    as_float32(model)
    return written_out(model)


def load(
    path: Path, shapes: dict[str, tuple[int, ...]], fixed: Mapping[str, Value] | None = None
) -> tuple[tvm.IRModule, list[str]]:
    """The model as Relax, parameters as constants, not yet normalized, and its outputs' names.

    Args:
        path: a file that exists.
        shapes: input name -> shape, of the inputs that the user gave one.
        fixed: input name -> value, of inputs that become constants.

    Raises:
        VTAError: a file that is no ONNX model or is broken, an operator, an attribute or a
            quantization that is not supported, a branch that an option decides, dynamic
            dimensions without a shape, a value that its input does not take.
    """
    model = read_model(path)
    values = fix_inputs(model, fixed or {}, shapes)
    opset = opset_of(model)
    claim_runtime_nodes(model, opset)
    state_axes(model, opset)
    check_operators(model)
    asked = {name: shape for name, shape in shapes.items() if name not in values}
    bound = input_shapes(model.graph, asked)
    check_model(model, path)
    if take_branches(model.graph, opset, bound):
        check_operators(model)
    check_attributes(model.graph)
    check_sizes(model.graph, opset, bound)
    name_nodes(model.graph)
    expand(model.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = import_graph(model.graph, opset, bound)
    names = UniqueNames("_")  # a result may be listed twice
    mod = with_fixed_inputs(mod, values)
    return mod, [names.fresh(value.name) for value in model.graph.output]
