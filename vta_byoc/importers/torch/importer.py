"""PyTorch programs (`torch.export`) to Relax: float, and quantized by pt2e.

TVM's importer does the operators, on PyTorch's decomposition; here are names after the modules of
the network, and what is refused.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import tvm
from tvm import relax
from tvm.ir import Call

from vta_byoc.base.boundary import reason_of
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.torch.arguments import Converter
from vta_byoc.importers.torch.complex_numbers import (
    OF_COMPLEX_ALONE,
    check_complex,
    complex_value,
    split_weights,
    works_on_complex,
)
from vta_byoc.importers.torch.converters import OVERRIDES
from vta_byoc.importers.torch.operators import REFUSED, decomposed_program, known_operators
from vta_byoc.importers.torch.quantization import QUANTIZATION
from vta_byoc.importers.torch.static import Known
from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    op_name,
    sanitized,
    straight_bindings,
    substituted,
    with_main,
)
from vta_byoc.quantization.calibration.random_inputs import INPUT_DTYPES

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Graph, GraphModule, Node

COMPLEX_DTYPE = "complex64"
"""That of tensors which are pairs of float32 here (`complex_numbers`)."""
INSTALL = 'pip install "vta-byoc[torch]"'
COMPOSED = ("MultiheadAttention", "torch.nn.modules.transformer", "torch.nn.modules.rnn")
"""Modules of PyTorch that hold several layers: their operators keep names of their own."""


def is_program(model: object) -> bool:
    """Whether `model` is a torch.export.ExportedProgram; PyTorch is not imported for this."""
    kind = type(model)
    return kind.__name__ == "ExportedProgram" and kind.__module__.startswith("torch.")


def load(path: Path, shapes: dict[str, tuple[int, ...]]) -> tuple[tvm.IRModule, list[str]]:
    """The program that torch.export.save wrote, as `import_program` gives it.

    Raises:
        VTAError: see `read` and `import_program`.
    """
    return import_program(read(path), shapes)


def read(path: Path) -> ExportedProgram:
    """The program that torch.export.save wrote.

    Raises:
        VTAError: PyTorch is not installed, or the file is no such program.
    """
    try:
        import torch
        import torch.ao.quantization.fx._decomposed  # registers the operators of pt2e
    except ImportError as error:
        raise VTAError(
            f'model file "{path}" needs PyTorch, which is not installed ({error}); only ONNX and '
            f"TFLite files load without it; install it: {INSTALL}"
        ) from error
    try:
        with _own_warnings(), _silent("torch.export"):
            return torch.export.load(str(path))
    except Exception as error:
        raise VTAError(
            f'model file "{path}" cannot be read: {reason_of(error)}; it must be written by '
            "torch.export.save with this version of PyTorch; export the model again"
        ) from error


@contextlib.contextmanager
def _own_warnings() -> Iterator[None]:
    """Inside, PyTorch calls names of its own that it deprecates; no user can change that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


@contextlib.contextmanager
def _silent(name: str) -> Iterator[None]:
    """Inside, a logger says nothing: PyTorch's prints a traceback where a file is damaged."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def import_program(
    program: ExportedProgram, shapes: dict[str, tuple[int, ...]]
) -> tuple[tvm.IRModule, list[str]]:
    """The program as Relax, parameters as constants, not yet normalized, and its outputs' names.

    Raises:
        VTAError: dynamic shapes, dynamic quantization, inputs of a dtype that is not among
            `INPUT_DTYPES`, an operator that is not supported.
    """
    _check_inputs(program, shapes)
    with _own_warnings():
        decomposed = decomposed_program(program)
    split_weights(decomposed)
    _check_operators(decomposed.graph)
    importer = _importer(Known(decomposed))
    try:
        mod = importer.from_exported_program(
            decomposed,
            keep_params_as_input=False,
            unwrap_unit_return_tuple=True,
            no_bind_return_tuple=False,
            custom_convert_map={**OF_COMPLEX_ALONE, **OVERRIDES, **QUANTIZATION},
        )
    except VTAError:
        raise
    except Exception as error:
        raise VTAError(
            f'node "{importer.node}" cannot be imported: {reason_of(error)}; TVM\'s PyTorch '
            "importer does not take this form; simplify the model"
        ) from error
    outputs = [str(name) for name in program.graph_signature.user_outputs]
    return _renamed(mod, importer.names), outputs


# ---------------------------------------------------------------- what is refused
def _check_inputs(program: ExportedProgram, shapes: dict[str, tuple[int, ...]]) -> None:
    inputs = {node.name: node.meta["val"] for node in _inputs(program)}
    for name in shapes:
        if name not in inputs:
            raise VTAError(
                f'shape given for "{name}"; the inputs of the model are {", ".join(inputs)}; '
                "use one of these names"
            )
    for name, value in inputs.items():
        dtype = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
        if dtype not in INPUT_DTYPES:
            raise VTAError(
                f'input "{name}" has dtype {dtype}; inputs must be tensors of '
                f"{', '.join(INPUT_DTYPES)}; export the model with one of these"
            )
        shape = tuple(value.shape)
        if not all(isinstance(dim, int) for dim in shape):
            raise VTAError(
                f'input "{name}" has the dynamic shape {shape}; every dimension must be known; '
                "export the model without dynamic_shapes"
            )
        if tuple(shapes.get(name, shape)) != shape:
            raise VTAError(
                f'shape {tuple(shapes[name])} given for "{name}"; the program was exported for '
                f"{shape}; export it again with an example of the shape"
            )


def _inputs(program: ExportedProgram) -> Iterator[Node]:
    """The placeholders of what the user feeds."""
    names = set(program.graph_signature.user_inputs)
    return (n for n in program.graph.nodes if n.op == "placeholder" and n.name in names)


def _check_operators(graph: Graph) -> None:
    known = known_operators()
    for node in graph.nodes:
        check_complex(node)
        is_call = node.op == "call_function" and not works_on_complex(node)
        if not is_call or node.target.__name__ in known:
            continue
        name = node.target.__name__
        if name in REFUSED:
            raise VTAError(f'node "{node.name}" ({name}) {REFUSED[name]}')
        if name.startswith(("choose_qparams", "quantize_per_token", "dequantize_per_token")):
            raise VTAError(
                f'node "{node.name}" ({name}) computes a scale while the model runs (dynamic '
                "quantization); scales must be constants; quantize with is_dynamic=False"
            )
        raise VTAError(
            f'node "{node.name}" has the operator {name}; TVM\'s PyTorch importer knows '
            f"{len(known)} operators and this is not one of them; export the model without it or "
            "cut the model before it"
        )


def _check_read(node: Node, made: object) -> None:
    """What an element of several results is read of; TVM gives the first whichever it is.

    Raises:
        VTAError: only the first result is imported, and this is another one.
    """
    source, place = node.args
    several = isinstance(source.meta.get("val"), tuple | list)
    one = isinstance(made, relax.Tuple) and len(made.fields) == 1
    if several and place and node.users and (one or _is_tensor(made)):
        raise VTAError(
            f'node "{source.name}" ({source.target.__name__}) has its result {place} read, counted '
            "from 0; only the first is imported; compute the other with operators of its own"
        )


def _is_tensor(made: object) -> bool:
    return isinstance(getattr(made, "ty", None), relax.TensorType)


def _check_result(node: Node, value: relax.Expr | None, builder: relax.BlockBuilder) -> None:
    """TVM's importer makes the tensors that PyTorch makes.

    Raises:
        VTAError: another shape or dtype, so other values too.
    """
    wanted = node.meta.get("val")
    if node.op != "call_function" or not hasattr(wanted, "dtype"):
        return
    ours = getattr(builder.normalize(value) if isinstance(value, Call) else value, "ty", None)
    theirs = (str(wanted.dtype).removeprefix("torch."), tuple(wanted.shape))
    if theirs[0] == COMPLEX_DTYPE:
        theirs = ("float32", (*theirs[1], 2))
    if not isinstance(ours, relax.TensorType) or _dtype_and_shape(ours) != theirs:
        raise VTAError(
            f'node "{node.name}" ({node.target.__name__}) makes {theirs[0]} of the shape '
            f"{theirs[1]}, and TVM's PyTorch importer makes {ours} of it; only what it imports as "
            "PyTorch computes it is compiled; write it with other operators"
        )


def _dtype_and_shape(tensor: relax.TensorType) -> tuple[str, tuple[int, ...] | None]:
    dims = [getattr(dim, "value", None) for dim in tensor.shape or ()]
    known = tuple(int(dim) for dim in dims if dim is not None)
    return str(tensor.dtype), known if len(known) == len(dims) else None


# ---------------------------------------------------------------- names
class _NamingImporter(Protocol):
    """TVM's importer, and which node made which variable.

    Attributes:
        names: variable -> node, or module; complete when the import has ended.
        node: the one that is being imported.
    """

    names: dict[str, str]
    node: str

    def from_exported_program(
        self,
        exported_program: ExportedProgram,
        keep_params_as_input: bool,
        unwrap_unit_return_tuple: bool,
        no_bind_return_tuple: bool,
        custom_convert_map: dict[str, Converter],
    ) -> tvm.IRModule: ...


def _importer(known: Known) -> _NamingImporter:
    """TVM's importer; afterwards `names` tells which node made which variable."""
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    class Importer(ExportedProgramImporter):
        def __init__(self) -> None:
            super().__init__()
            self.names: dict[str, str] = {}
            self.node = ""

        def _translate_fx_graph(
            self, module: GraphModule, nodes: Iterable[Node], *rest: object
        ) -> tuple[relax.Expr, ...]:
            def watched() -> Iterator[Node]:
                for node in nodes:
                    self.node = node.name
                    constant = known.value(node)
                    if constant is not None:
                        self.env[node] = constant
                        continue
                    if node.op == "call_function" and node.target.__name__ == "getitem":
                        _check_read(node, self.env.get(node.args[0]))
                    if works_on_complex(node):
                        self.env[node] = complex_value(node, self)
                    else:
                        yield node
                    _check_result(node, self.env.get(node), self.block_builder)

            result = super()._translate_fx_graph(module, watched(), *rest)
            for node, value in self.env.items():
                if isinstance(value, relax.Var) and node.op == "call_function":
                    self.names.setdefault(str(value.name), _node_name(node))
            return result

    return Importer()


def _node_name(node: Node) -> str:
    """The module that computes the node, where that is a layer; else the node's own name."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path, kind = stack[-1] if stack else ("", "")
    is_layer = "torch.nn.modules" in str(kind) and not any(c in str(kind) for c in COMPOSED)
    return sanitized(str(path) if path and is_layer else node.name)


def _renamed(mod: tvm.IRModule, names: dict[str, str]) -> tvm.IRModule:
    """Variables called after their nodes; what a node needs besides `<node>__<operator>`."""
    main, writer = mod["main"], FunctionWriter()
    bindings, hints, taken = straight_bindings(main), [], set()
    env: dict[relax.Var, relax.Expr] = {}
    owner = "output"
    for binding in reversed(bindings):
        owner = names.get(str(binding.var.name), owner)
        operator = op_name(binding.value).split(".")[-1] or "value"
        # The last variable of a layer carries its name alone.
        hints.append(f"{owner}{SEPARATOR}{operator}" if owner in taken else owner)
        taken.add(owner)
    for binding, hint in zip(bindings, reversed(hints), strict=True):
        env[binding.var] = writer.emit(substituted(binding.value, env), hint)
    return with_main(mod, writer.finish(main, substituted(main.body.body, env)))
