"""Spectra of real signals in TFLite files: complex tensors as two real ones.

A complex tensor is held as its real and its imaginary part. A transform is a product with the
cosines and one with the sines, as is any linear layer, so VTA computes it; what moves data moves
either part. Parts that nothing reads are gone with everything else that nothing reads.
"""

from __future__ import annotations

from tvm import relax

from vta_byoc.importers.tflite.graph import COMPLEX, TFLiteGraph
from vta_byoc.importers.tflite.movement import Converter, inputs_of
from vta_byoc.importers.waves import waves
from vta_byoc.ir.bindings import static_shape

PARTS = (0, 1)
"""The real part and the imaginary one."""


def is_complex(g: TFLiteGraph) -> bool:
    """Whether the operator reads a complex tensor."""
    return any(tensor is not None and tensor.dtype == COMPLEX for tensor in g.op.inputs)


def of_parts(g: TFLiteGraph, move: Converter) -> None:
    """An operator that moves data, done to either part."""
    for part in PARTS:
        with g.part(part):
            move(g)


def _rfft2d(g: TFLiteGraph) -> None:
    """Of the last two axes, cut or filled with zeros to the length of the transform."""
    (data,) = inputs_of(g, 0)
    rows, columns = (int(size) for size in g.integers(1).reshape(-1))
    value = _sized(g, g.plain(data), (rows, columns))
    cosines, sines = waves(columns, columns // 2 + 1)
    real = g.emit(relax.op.matmul(value, relax.const(cosines, "float32")), "real")
    imaginary = g.emit(relax.op.matmul(value, relax.const(-sines, "float32")), "imaginary")
    if rows > 1:
        real, imaginary = _over_rows(g, real, imaginary, rows)
    for part, of_part in zip(PARTS, (real, imaginary), strict=True):
        with g.part(part):
            g.store_plain(of_part)


def _over_rows(
    g: TFLiteGraph, real: relax.Expr, imaginary: relax.Expr, rows: int
) -> tuple[relax.Expr, relax.Expr]:
    """The transform of the last axis but one: (C - iS)(A + iB)."""
    cosines, sines = (relax.const(each, "float32") for each in waves(rows, rows))

    def product(factor: relax.Expr, value: relax.Expr) -> relax.Expr:
        return g.emit(relax.op.matmul(factor, value), "rows")

    added = relax.op.add(product(cosines, real), product(sines, imaginary))
    taken = relax.op.subtract(product(cosines, imaginary), product(sines, real))
    return g.emit(added, "real"), g.emit(taken, "imaginary")


def _sized(g: TFLiteGraph, value: relax.Expr, wanted: tuple[int, int]) -> relax.Expr:
    """The last two axes with `wanted` elements, the first ones of what is there."""
    shape = static_shape(value)
    rank = len(shape)
    for axis, size in zip((rank - 2, rank - 1), wanted, strict=True):
        if shape[axis] > size:
            value = g.emit(relax.op.strided_slice(value, [axis], [0], [size]), "cut")
        elif shape[axis] < size:
            widths = [0] * (2 * rank)
            widths[2 * axis + 1] = size - shape[axis]
            value = g.emit(relax.op.nn.pad(value, widths, "constant", 0.0), "filled")
    return value


def _part(part: int) -> Converter:
    def convert(g: TFLiteGraph) -> None:
        with g.part(part):
            value = g.value(*inputs_of(g, 0))
        g.store(value)

    return convert


def _magnitude(g: TFLiteGraph) -> None:
    squares = []
    for part in PARTS:
        with g.part(part):
            value = g.value(*inputs_of(g, 0))
        squares.append(g.emit(relax.op.multiply(value, value), "square"))
    g.store(relax.op.sqrt(g.emit(relax.op.add(*squares), "sum")))


SPECTRA: dict[str, Converter] = {
    "COMPLEX_ABS": _magnitude,
    "IMAG": _part(PARTS[1]),
    "REAL": _part(PARTS[0]),
    "RFFT2D": _rfft2d,
}
"""TFLite operator -> converter."""
REAL_OF = {**SPECTRA, "CAST": SPECTRA["REAL"]}
"""What may read a complex tensor beside operators that move data; a cast takes the real part."""
