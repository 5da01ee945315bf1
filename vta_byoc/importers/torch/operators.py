"""PyTorch operators: which of them can be in a program that is imported, and which are taken.

TVM's importer has a table of converters.  Many of its entries are never met, as PyTorch writes
these operators with others before a program is imported; some compute something else than PyTorch
for certain arguments.  Those are replaced here or refused.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vta_byoc.importers.torch.converters import OVERRIDES
from vta_byoc.importers.torch.quantization import QUANTIZATION

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.export.decomp_utils import CustomDecompTable

RANDOM = "draws random numbers; inference must compute the same every time; export in eval mode"
TRAINING = "belongs to training; only inference is compiled; export the model in eval mode"
DYNAMIC = (
    "makes a shape or a branch that depends on data; every shape must be known; export the model "
    "without it or cut the model before it"
)
SPARSE = "works on sparse tensors; only dense ones are compiled; export it with dense weights"
HAMMING = ("default", "periodic", "periodic_alpha", "periodic_alpha_beta")
WINDOW = (
    "makes a window while the model runs; windows must be constants; compute it when the model is "
    "built and keep it as a buffer"
)
REFUSED: Mapping[str, str] = {
    "_local_scalar_dense.default": DYNAMIC,
    "_native_batch_norm_legit_functional.default": TRAINING,
    "_sparse_addmm.default": SPARSE,
    **{f"hamming_window.{name}": WINDOW for name in HAMMING},
    "bernoulli.p": RANDOM,
    **{f"{name}.default": RANDOM for name in ("cauchy", "geometric", "log_normal", "uniform")},
    "cond": DYNAMIC,
    "exponential.default": RANDOM,
    "masked_select.default": DYNAMIC,
    "native_dropout.default": TRAINING,
    "normal_functional.default": RANDOM,
    "randn.default": RANDOM,
    "randn_like.default": RANDOM,
}
"""Operator -> why it is not taken: TVM's importer has a converter for most of them."""
WRITES = "complex.default"
"""Taken by `complex_numbers`: PyTorch's definition writes into a tensor, which no program may."""
SILENT = (
    "_assert_async.default",
    "_assert_async.msg",
    "_assert_scalar.default",
    "_assert_tensor_metadata.default",
    "getitem",
)
"""What computes nothing: assertions, and the elements of tuples."""


# ---------------------------------------------------------------- which there are
def _overload(name: str) -> torch._ops.OpOverload | None:
    """The operator called `name` ("add.Tensor") in TVM's importer; None: there is none."""
    import torch

    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload, None) if overload else None


def _can_be_left(name: str) -> bool:
    """Whether a decomposed program can have the operator.

    It computes something, changes no tensor in place, and PyTorch does not write it with other
    operators.
    """
    import torch

    operator = _overload(name)
    if operator is None or operator._schema.is_mutable or not operator._schema.returns:
        return False
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        operator.name(), "CompositeImplicitAutograd"
    )
    is_kept = name in KEPT_COMPOSITES
    return is_kept or not (is_composite or operator in _decomposed())


@functools.cache
def _decomposed() -> CustomDecompTable:
    """PyTorch's table of decompositions, which takes 0.1 s to make."""
    import torch

    return torch.export.default_decompositions()


KEPT_COMPOSITES = ("upsample_bilinear2d.vec", "upsample_nearest2d.vec")
"""What `torch.export` keeps though it could be written with other operators."""


@functools.cache
def taken_operators() -> frozenset[str]:
    """The operators of decomposed programs that are imported, as TVM's importer calls them."""
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    known = {*ExportedProgramImporter().convert_map, *OVERRIDES}
    return frozenset(name for name in known - set(REFUSED) if _can_be_left(name))


@functools.cache
def known_operators() -> frozenset[str]:
    """What a program that is imported may have: `taken_operators`, pt2e's, and assertions."""
    return frozenset({*taken_operators(), *QUANTIZATION, *SILENT})


# ---------------------------------------------------------------- written with others
def decomposed_program(program: ExportedProgram) -> ExportedProgram:
    """The program without the operators that PyTorch can write with others and nothing here takes.

    PyTorch's default table leaves operators alone for which it has definitions all the same, such
    as `addmv` and `dist`: what those definitions consist of is taken, or named when it is refused.
    """
    from torch._decomp import decomposition_table

    table = _decomposed().copy()
    found = program.run_decompositions(table)
    left = known_operators() | set(REFUSED) | {WRITES}
    while True:
        targets = {node.target for node in found.graph.nodes if node.op == "call_function"}
        new = {
            target: decomposition_table[target]
            for target in targets & set(decomposition_table)
            if target.__name__ not in left and target not in table
        }
        if not new:
            return found
        table.update(new)
        try:
            found = program.run_decompositions(table)
        except AssertionError:  # a definition that writes into a tensor, which no program may
            return found
