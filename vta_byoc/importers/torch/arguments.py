"""Arguments of PyTorch's operators as Relax, in the dtype that PyTorch computes them in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import relax

if TYPE_CHECKING:
    import torch
    from torch.fx import Node
    from torch.fx.node import Argument
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

Converter = Callable[["Node", "ExportedProgramImporter"], relax.Expr]
"""(node of torch.fx, TVM's importer) -> the value, in the form of TVM's `custom_convert_map`."""


def argument(node: Node, position: int, name: str, default: Argument = None) -> Argument:
    """An argument, given by its place or by its name."""
    if len(node.args) > position:
        return node.args[position]
    return node.kwargs.get(name, default)


def emit(importer: ExportedProgramImporter, expr: relax.Expr) -> relax.Var:
    """`expr`, bound to a variable that is called after the node being imported."""
    return importer.block_builder.emit(expr)


def cast(importer: ExportedProgramImporter, value: relax.Expr, dtype: torch.dtype) -> relax.Expr:
    """`value` as `dtype`, a dtype of PyTorch."""
    name = str(dtype).removeprefix("torch.")
    return value if str(value.ty.dtype) == name else emit(importer, relax.op.astype(value, name))


def operand(importer: ExportedProgramImporter, value: Argument, dtype: torch.dtype) -> relax.Expr:
    """A tensor or a number as `dtype`."""
    if not hasattr(value, "op"):
        return relax.const(value, str(dtype).removeprefix("torch."))
    return cast(importer, importer.env[value], dtype)


def common_dtype(*values: Argument) -> torch.dtype:
    """The dtype that PyTorch computes an operator of nodes and numbers in."""
    import torch

    return torch.result_type(*(v.meta["val"] if hasattr(v, "op") else v for v in values))


def is_complex(value: object) -> bool:
    """Whether an argument of a node is a complex tensor."""
    meta = getattr(value, "meta", {}).get("val")
    return meta is not None and hasattr(meta, "is_complex") and bool(meta.is_complex())
