"""Layer by layer: how a network that came quantized parts from the runtime it comes from.

Both compute on their own results. A layer that rounds one value in a thousand differently is
enough: what reads it rounds others, and so on to the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from vta_byoc.importers.onnx import checks as onnx_checks
from vta_byoc.importers.onnx import importer as onnx_import
from vta_byoc.ir.bindings import sanitized
from vta_byoc.quantization.tensor_pairs import Pair, tensor_pairs
from vta_byoc.quantize import quantize
from vta_byoc.validation.against_runtime import Compared, Runtime, bound_for, compare
from vta_byoc.validation.runtimes import float_runtime, tflite_runtime

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of the first and the last tensor, and three in between."""


def curve(
    mod: tvm.IRModule,
    model: Any,
    feeds: Sequence[Sequence[np.ndarray]],
    integer: tvm.IRModule | None = None,
    *,
    reference: bool = False,
) -> list[Compared]:
    """Every 8-bit tensor of `mod`, quantized, against the source runtime, in order.

    Args:
        mod: what `load_model` made of `model`.
        model: a file, or a PyTorch program.
        feeds: inputs in order, one or more times.
        integer: what `quantize` made of `mod`; by default with its own options.
        reference: whether TFLite's reference kernels are meant.
    """
    integer = quantize(mod) if integer is None else integer
    other = _runtime(mod, model, tensor_pairs(mod, integer), reference)
    found = compare(mod, integer, [tuple(feed) for feed in feeds], other, bound_for(mod))
    return [tensor for tensor in found.tensors if tensor.equal is not None]


def _runtime(mod: tvm.IRModule, model: Any, pairs: Sequence[Pair], reference: bool) -> Runtime:
    """PyTorch computes pt2e programs in floats, as the imported module does."""
    suffix = Path(model).suffix if isinstance(model, str | Path) else ""
    if suffix == ".onnx":
        return _fused_onnxruntime(Path(model))
    if suffix == ".tflite":
        return tflite_runtime(str(model), reference=reference)
    return float_runtime(mod, pairs)


def _fused_onnxruntime(path: Path) -> Runtime:
    """ONNX Runtime with its integer kernels: of its tensors those that are quantized exist."""
    import onnxruntime
    from onnx import helper

    model = onnx_checks.read(path)
    onnx_import.name_nodes(model.graph)
    made = {n.name: n.output[0] for n in model.graph.node if n.op_type.startswith("Q")}
    known = {value.name for value in model.graph.output}
    wanted = [name for name in made.values() if name not in known]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in wanted)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # on x86 tensors of int8 are otherwise multiplied as floats wherever they are read twice
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    inputs = [value.name for value in session.get_inputs()]

    def run(arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        feed = dict(zip(inputs, arrays.values(), strict=True))
        found = dict(zip(made, session.run(list(made.values()), feed), strict=True))
        return {**arrays, **{sanitized(name): array for name, array in arrays.items()}, **found}

    return run


def at_depths(tensors: Sequence[Compared]) -> list[Compared]:
    """The tensors at `DEPTHS`."""
    return [tensors[round(depth * (len(tensors) - 1))] for depth in DEPTHS]
