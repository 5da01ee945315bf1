"""Complex numbers of PyTorch programs: what is done with spectra, and rotations of pairs.

A complex tensor of shape s is a float tensor (*s, 2) here, as `torch.view_as_real` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.torch.arguments import Converter, argument, emit, is_complex
from vta_byoc.importers.torch.complex_moves import MOVES, not_compiled
from vta_byoc.importers.torch.spectra import SPECTRA, rank_of
from vta_byoc.importers.torch.static import as_real
from vta_byoc.ir.bindings import static_shape

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node
    from torch.fx.node import Argument
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter


def works_on_complex(node: Node) -> bool:
    """Whether a call takes complex numbers or makes some."""
    return node.op == "call_function" and any(map(is_complex, (node, *node.all_input_nodes)))


def complex_value(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """What a call gives that works on complex numbers.

    Raises:
        VTAError: an operator that is not taken for these.
    """
    return COMPLEX[node.target.__name__](node, importer)


def check_complex(node: Node) -> None:
    """Refuse what is not done with complex numbers here.

    Raises:
        VTAError: the operator, or that complex numbers are a result of the model.
    """
    if node.op == "output" and any(map(is_complex, node.all_input_nodes)):
        raise VTAError(
            f'result "{next(filter(is_complex, node.all_input_nodes)).name}" is complex; tensors '
            "of real numbers are compiled; return torch.view_as_real of it"
        )
    if works_on_complex(node) and node.target.__name__ not in COMPLEX:
        raise VTAError(
            f'node "{node.name}" ({node.target.__name__}) works on complex numbers; with these '
            f"{', '.join(sorted(COMPLEX))} are compiled; write it with real and imaginary parts"
        )


def split_weights(program: ExportedProgram) -> None:
    """Keep the parts of complex weights, and join them where the program reads a weight.

    The program is changed, tensors that it may share with another are not.
    """
    import torch

    signature = program.graph_signature
    named = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    weights = [n for n in program.graph.nodes if n.op == "placeholder" and is_complex(n)]
    if not weights:
        return
    kept = [dict(program.state_dict), dict(program.constants)]
    for node in weights:
        for values in kept:
            if named[node.name] in values:
                values[named[node.name]] = as_real(values[named[node.name]].detach())
        readers = list(node.users)
        with program.graph.inserting_after(node):
            joined = program.graph.call_function(torch.ops.aten.view_as_complex.default, (node,))
        joined.meta = dict(node.meta)
        for reader in readers:
            reader.replace_input_with(node, joined)
        node.meta["val"] = torch.view_as_real(node.meta["val"])
    program._state_dict, program._constants = kept


# ---------------------------------------------------------------- parts
def _same(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    return importer.env[node.args[0]]


def _part(importer: ExportedProgramImporter, value: relax.Expr, number: int) -> relax.Expr:
    """The real parts, 0, or the imaginary ones, 1."""
    last = len(static_shape(value)) - 1
    part = emit(importer, relax.op.strided_slice(value, [last], [number], [number + 1]))
    return emit(importer, relax.op.squeeze(part, [last]))


def _joined(
    importer: ExportedProgramImporter, real: relax.Expr, imaginary: relax.Expr
) -> relax.Expr:
    last = len(static_shape(real))
    both = [emit(importer, relax.op.expand_dims(part, last)) for part in (real, imaginary)]
    return emit(importer, relax.op.concat(both, last))


def _made(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """complex(real, imaginary)."""
    shape = tuple(node.meta["val"].shape)
    real, imaginary = (
        emit(importer, relax.op.broadcast_to(importer.env[part], shape)) for part in node.args
    )
    return _joined(importer, real, imaginary)


def _polar(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """polar(magnitude, angle)."""
    magnitude, angle = (importer.env[part] for part in node.args)
    real, imaginary = (
        emit(importer, relax.op.multiply(magnitude, emit(importer, wave(angle))))
        for wave in (relax.op.cos, relax.op.sin)
    )
    return _joined(importer, real, imaginary)


def _copied(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """_to_copy of real numbers, whose imaginary parts are zero, or of complex ones."""
    source = node.args[0]
    value = importer.env[source]
    if is_complex(source):
        return value if is_complex(node) else _part(importer, value, 0)
    if str(value.ty.dtype) != "float32":
        value = emit(importer, relax.op.astype(value, "float32"))
    return _joined(importer, value, relax.op.zeros_like(value))


def _filled(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """full(shape, number), or full_like(x, number)."""
    number = complex(node.args[1])
    values = np.empty((*node.meta["val"].shape, 2), "float32")
    values[:] = number.real, number.imag
    return relax.const(values)


def _written(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """copy(x, other): the elements of `other`, broadcast to the shape of `x`."""
    source, value = node.args[1], importer.env[node.args[1]]
    pairs = value if is_complex(source) else _joined(importer, value, relax.op.zeros_like(value))
    return emit(importer, relax.op.broadcast_to(pairs, (*node.meta["val"].shape, 2)))


def _magnitude(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    value = importer.env[node.args[0]]
    squares = emit(importer, relax.op.multiply(value, value))
    return emit(importer, relax.op.sqrt(emit(importer, relax.op.sum(squares, -1))))


def _angle(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    value = importer.env[node.args[0]]
    real, imaginary = (_part(importer, value, number) for number in (0, 1))
    return emit(importer, relax.op.atan2(imaginary, real))


def _conjugate(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    signs = relax.const(np.array([1, -1], "float32"))
    return emit(importer, relax.op.multiply(importer.env[node.args[0]], signs))


# ---------------------------------------------------------------- arithmetic
def _operands(node: Node, importer: ExportedProgramImporter) -> tuple[list[relax.Expr], list[bool]]:
    """Both operands with as many axes as the result and an axis of parts; which are complex."""
    rank = rank_of(node)
    given = list(node.args[:2])
    kinds = [is_complex(value) or isinstance(value, complex) for value in given]
    return [_with_parts(importer, value, rank) for value in given], kinds


def _with_parts(importer: ExportedProgramImporter, value: Argument, rank: int) -> relax.Expr:
    """(..., 2) of complex numbers, (..., 1) of real ones."""
    if not hasattr(value, "op"):
        if isinstance(value, complex):
            return relax.const(np.array([value.real, value.imag], "float32"))
        return relax.const(np.float32(value))
    found = importer.env[value]
    shape = static_shape(found)
    parts = (2,) if is_complex(value) else (1,)
    own = shape[:-1] if is_complex(value) else shape
    if str(found.ty.dtype) != "float32":
        found = emit(importer, relax.op.astype(found, "float32"))
    padded = (*[1] * (rank - len(own)), *own, *parts)
    return found if padded == shape else emit(importer, relax.op.reshape(found, padded))


def _added(op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Converter:
    """A sum or a difference of complex numbers, without a factor."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
        (left, right), kinds = _operands(node, importer)
        if not all(kinds) or argument(node, 2, "alpha", 1) != 1:
            raise not_compiled(node, "a number or a real tensor is added, or a factor is given")
        return emit(importer, op(left, right))

    return convert


def _negated(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    return emit(importer, relax.op.negative(importer.env[node.args[0]]))


def _reduced(op: Callable[..., relax.Expr]) -> Converter:
    """The sum or the mean (x, dims, kept) of each part."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
        value, rank = importer.env[node.args[0]], rank_of(node.args[0])
        dims = [dim % rank for dim in argument(node, 1, "dim") or range(rank)]
        return emit(importer, op(value, dims, bool(argument(node, 2, "keepdim", False))))

    return convert


def _multiplied(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """A product: of a complex and a real number it is that of each part."""
    (left, right), kinds = _operands(node, importer)
    if not all(kinds):
        return emit(importer, relax.op.multiply(left, right))
    return _of_parts(importer, relax.op.multiply, left, right)


def _of_parts(
    importer: ExportedProgramImporter,
    op: Callable[[relax.Expr, relax.Expr], relax.Expr],
    left: relax.Expr,
    right: relax.Expr,
) -> relax.Expr:
    """A complex product by those of real and imaginary parts."""
    ours, theirs = ([_part(importer, each, n) for n in (0, 1)] for each in (left, right))
    products = [[emit(importer, op(x, y)) for y in theirs] for x in ours]
    real = emit(importer, relax.op.subtract(products[0][0], products[1][1]))
    return _joined(importer, real, emit(importer, relax.op.add(products[0][1], products[1][0])))


def _divided(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """A complex number by a real one."""
    (left, right), kinds = _operands(node, importer)
    if kinds != [True, False]:
        raise not_compiled(node, "it divides by a complex number")
    return emit(importer, relax.op.divide(left, right))


def _product(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """A product of matrices, both of them complex."""
    if not all(map(is_complex, node.args[:2])):
        raise not_compiled(node, "one matrix is real")
    left, right = (importer.env[value] for value in node.args[:2])
    return _of_parts(importer, relax.op.matmul, left, right)


COMPLEX: Mapping[str, Converter] = {
    "_conj.default": _conjugate,
    "_conj_physical.default": _conjugate,
    **MOVES,
    **SPECTRA,
    "_to_copy.default": _copied,
    "abs.default": _magnitude,
    "add.Tensor": _added(relax.op.add),
    "alias.default": _same,
    "angle.default": _angle,
    "bmm.default": _product,
    "clone.default": _same,
    "complex.default": _made,
    "copy.default": _written,
    "div.Tensor": _divided,
    "full.default": _filled,
    "full_like.default": _filled,
    "mean.dim": _reduced(relax.op.mean),
    "mm.default": _product,
    "mul.Tensor": _multiplied,
    "neg.default": _negated,
    "polar.default": _polar,
    "sub.Tensor": _added(relax.op.subtract),
    "sum.dim_IntList": _reduced(relax.op.sum),
    "view_as_complex.default": _same,
    "view_as_real.default": _same,
}
"""Operator -> its converter where a complex number is an operand or the result."""
OF_COMPLEX_ALONE = {
    name: COMPLEX[name]
    for name in COMPLEX
    if name.startswith(("_conj", "_fft", "angle", "complex", "polar", "view_as"))
}
"""Those that TVM's importer does not know at all."""
