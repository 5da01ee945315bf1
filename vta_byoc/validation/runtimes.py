"""Other runtimes that show every tensor of a model, for `compare`.

Names are those that `load_model` gives operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tvm

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.fixed_inputs import fixed_inputs
from vta_byoc.importers.load import initial_states
from vta_byoc.ir.bindings import sanitized, static_shape
from vta_byoc.ir.observe import Observer
from vta_byoc.quantization.tensor_pairs import Pair
from vta_byoc.validation.against_runtime import Runtime

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter

FLOAT, ONNXRUNTIME, TFLITE = "float", "onnxruntime", "tflite"
SUFFIXES = {ONNXRUNTIME: ".onnx", TFLITE: ".tflite"}
NCHW = (0, 3, 1, 2)


def runtime(name: str, model: str, mod: tvm.IRModule, pairs: Sequence[Pair]) -> Runtime:
    """A runtime by name.

    Args:
        name: "float", "onnxruntime" or "tflite".
        model: the file that `mod` was loaded from.
        mod: the source module.
        pairs: the tensors that are wanted.

    Raises:
        VTAError: it is not installed, or cannot run the file.
    """
    suffix = SUFFIXES.get(name)
    if suffix is None:
        return float_runtime(mod, pairs)
    if Path(model).suffix.lower() != suffix:
        raise VTAError(
            f'--against {name} with "{model}"; {name} runs {suffix} files; compare with float, or '
            "give the file that it runs"
        )
    if name == ONNXRUNTIME:
        return onnxruntime_runtime(model, mod)
    if states := initial_states(mod):
        raise VTAError(
            f'--against {name} with "{model}", which has {len(states)} variables, as "'
            f'{next(iter(states))}"; {name} takes no values for them; compare with float'
        )
    return tflite_runtime(model)


def float_runtime(mod: tvm.IRModule, pairs: Sequence[Pair]) -> Runtime:
    """The module itself on the host: float, or float between quantize and dequantize."""
    tensors = [pair.source.var for pair in pairs]
    seen: dict[str, np.ndarray] = {}

    def receive(index: int, values: np.ndarray) -> None:
        seen[str(tensors[index].name)] = values

    observer = Observer(mod, tensors, receive)

    def run(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        observer.run(inputs.values())
        return seen

    return run


def onnxruntime_runtime(path: str, mod: tvm.IRModule) -> Runtime:
    """An ONNX file in ONNX Runtime on the CPU, every tensor an output of the graph.

    Values of inputs are fixed and branches taken as they were for `mod`, so that nodes of branches
    have tensors too.

    Steps of recurrent layers are parts of its sequences (`recurrent_nodes`).

    A model of other floats runs in float32, as it is imported.

    Its graph optimizations are off: they fuse QDQ nodes to integer kernels of their own rounding,
    and tensors between fused nodes do not exist any more.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise _missing("onnxruntime", "ONNX Runtime") from error
    from onnx import helper

    from vta_byoc.importers.onnx import naming
    from vta_byoc.importers.onnx.branches import take_branches
    from vta_byoc.importers.onnx.fixed import fix_inputs
    from vta_byoc.importers.onnx.importer import read_model
    from vta_byoc.importers.onnx.node import opset_of
    from vta_byoc.validation.recurrent_steps import recurrent_nodes

    model = read_model(Path(path))
    fixed = fixed_inputs(mod)
    fix_inputs(model, fixed, {name: array.shape for name, array in fixed.items()})
    shapes = {str(param.name): list(static_shape(param)) for param in mod["main"].params}
    take_branches(model.graph, opset_of(model), shapes)
    naming.name_nodes(model.graph)
    recurrent = recurrent_nodes(model.graph)
    tensors = {node.name: node.output[0] for node in model.graph.node if node.output[0]}
    outputs = list(dict.fromkeys([*tensors.values(), *(t for n in recurrent for t in n.tensors)]))
    have = {value.name for value in model.graph.output}
    wanted = [name for name in outputs if name not in have]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in wanted)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # its errors have no common base of their own
        raise _refused("ONNX Runtime", path, error) from error
    inputs = [value.name for value in session.get_inputs()]

    def run(arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        feed = dict(zip(inputs, arrays.values(), strict=True))
        found = dict(zip(outputs, session.run(outputs, feed), strict=True))
        params = {sanitized(name): array for name, array in arrays.items()}
        steps = {name: values for node in recurrent for name, values in node.steps(found)}
        return {**arrays, **params, **{node: found[t] for node, t in tensors.items()}, **steps}

    return run


def tflite_runtime(path: str, *, reference: bool = False) -> Runtime:
    """A TFLite file in the LiteRT interpreter without delegates, with every tensor preserved.

    Tensors of four axes are in the order NCHW. `reference` asks for its reference kernels.
    """
    try:
        from ai_edge_litert import interpreter as litert
    except ImportError as error:
        raise _missing("ai-edge-litert", "the TFLite interpreter") from error
    try:
        kinds = litert.OpResolverType
        kernels = kinds.BUILTIN_REF if reference else kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        machine = litert.Interpreter(
            model_path=path,
            experimental_op_resolver_type=kernels,
            experimental_preserve_all_tensors=True,
        )
        machine.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise _refused("the TFLite interpreter", path, error) from error
    inputs = {detail["name"]: detail["index"] for detail in machine.get_input_details()}

    def run(arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        for name, array in arrays.items():
            machine.set_tensor(inputs[name], array)
        machine.invoke()
        found = {}
        for detail in machine.get_tensor_details():
            name = sanitized(str(detail["name"]).split(";")[0])
            values = _tensor(machine, detail["index"])
            if values is not None:
                found[name] = values.transpose(NCHW) if values.ndim == 4 else values
        return {**found, **{sanitized(name): array for name, array in arrays.items()}}

    return run


def _tensor(machine: Interpreter, index: int) -> np.ndarray | None:
    """None for what the interpreter keeps for itself."""
    try:
        return np.asarray(machine.get_tensor(index))
    except ValueError:
        return None


def _missing(package: str, what: str) -> VTAError:
    return VTAError(
        f"{package} is not installed; comparing with {what} needs it; run: "
        f"python -m pip install {package}, or compare with float"
    )


def _refused(what: str, path: str, error: Exception) -> VTAError:
    message = " ".join(str(error).split())
    return VTAError(
        f'{what} cannot load "{path}": {message}; it runs the file as it is; compare with float'
    )

