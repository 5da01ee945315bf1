"""The function that a TFLite model becomes, while it is being written: QDQ Relax in NCHW.

TFLite computes in NHWC. Here every tensor of four axes is held as NCHW from the inputs of the
model to its outputs, so the only transposes are at these borders and where a reshape or a
transpose of the model itself needs the other order. Quantized tensors are dequantized where they
are read and quantized where they are made.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import numpy as np
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.imported import DTYPES
from vta_byoc.importers.tflite.model import Model, Operator, TFLiteTensor
from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    constant_of,
    sanitized,
    static_shape,
)

NCHW = (0, 3, 1, 2)
"""Axes of NHWC in the order of NCHW."""
NHWC = (0, 2, 3, 1)
COMPLEX = "complex64"


def stored_axis(rank: int, axis: int) -> int:
    """Where axis `axis` of a TFLite tensor is held; negative ones count from the end."""
    axis = axis % rank
    return NCHW.index(axis) if rank == 4 else axis


class TFLiteGraph:
    """The function being written. `op` is the operator that is being converted."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.writer = FunctionWriter()
        self.params: list[relax.Var] = []
        self.op: Operator = model.operators[0]
        self._stored: dict[int, relax.Expr] = {}
        """Tensor -> its values as the file has them (integers or floats), four axes as NCHW."""
        self._floats: dict[int, relax.Expr] = {}
        self._parts: dict[tuple[int, int], relax.Expr] = {}
        """Complex tensor and part -> its values."""
        self._part = 0

    # ------------------------------------------------------------ names
    @property
    def name(self) -> str:
        """Of the operator; where several were fused, of the first."""
        return _identifier(self.op.outputs[0])

    def emit(self, expr: relax.Expr, part: str) -> relax.Var:
        """Bind `expr`, one operator, to `<operator>__<part>`."""
        return self.writer.emit(expr, f"{self.name}{SEPARATOR}{part}")

    # ------------------------------------------------------------ reading
    def value(self, tensor: TFLiteTensor) -> relax.Expr:
        """`tensor` as floats; four axes as NCHW; of a complex tensor the part of `part`."""
        if tensor.dtype == COMPLEX:
            return self._complex_part(tensor)
        if tensor.index not in self._floats:
            self._floats[tensor.index] = self._value(tensor)
        return self._floats[tensor.index]

    def _value(self, tensor: TFLiteTensor) -> relax.Expr:
        if tensor.value is not None:
            return self.constant(tensor, NCHW if len(tensor.shape) == 4 else None)
        stored = self._made(tensor)
        if not tensor.is_quantized:
            return stored
        name = f"{_identifier(tensor)}{SEPARATOR}float"
        return self.writer.emit(tensor.quantization().dequantize(stored), name)

    def _complex_part(self, tensor: TFLiteTensor) -> relax.Expr:
        if (tensor.index, self._part) not in self._parts:
            raise self.error(
                f'reads the complex numbers "{tensor.name}", which no transform before it makes; '
                "only spectra of the model itself can be imported; use real numbers"
            )
        return self._parts[tensor.index, self._part]

    @contextlib.contextmanager
    def part(self, part: int) -> Iterator[None]:
        """Inside, complex tensors are read and stored as their real (0) or imaginary (1) part."""
        self._part, before = part, self._part
        yield
        self._part = before

    def _made(self, tensor: TFLiteTensor) -> relax.Expr:
        if tensor.index not in self._stored:
            raise self.error(
                f'comes before what makes the tensor "{tensor.name}"; operators stand in the order '
                "in which they run; convert the model again"
            )
        return self._stored[tensor.index]

    def constant(
        self,
        tensor: TFLiteTensor,
        order: tuple[int, ...] | None = None,
        shape: tuple[int, ...] = (),
    ) -> relax.Expr:
        """A constant, first reshaped (it keeps its channels), then transposed.

        Floats are float32, and quantized integers dequantized; others keep their dtype.
        """
        array, axis = np.asarray(tensor.value), tensor.axis
        if not tensor.is_quantized:
            array = array.reshape(shape or array.shape)
            moved = array if order is None else array.transpose(order)
            dtype = "float32" if "float" in tensor.dtype else tensor.dtype
            return relax.const(np.asarray(moved, dtype, order="C"))
        q = tensor.quantization()
        if shape:
            axis += len(shape) - array.ndim
            array = array.reshape(shape)
        if order is not None:
            array, axis = array.transpose(order), order.index(axis % array.ndim)
        kept = type(q)(q.dtype, q.scale, q.zero, axis)
        integers = relax.const(np.asarray(array, q.dtype, order="C"))
        return self.writer.emit(
            kept.dequantize(integers), f"{self.name}{SEPARATOR}{_identifier(tensor)}"
        )

    def plain(self, tensor: TFLiteTensor) -> relax.Expr:
        """`tensor` as floats, its axes in the order of the file."""
        value = self.value(tensor)
        return self.in_order(value) if len(tensor.shape) == 4 else value

    def in_order(self, value: relax.Expr) -> relax.Expr:
        """NCHW to the file's order of axes."""
        return self._permuted(value, NHWC)

    def integers(self, position: int) -> np.ndarray:
        """The constant input at `position`: axes, shapes, widths.

        Raises:
            VTAError: it is computed while the model runs.
        """
        tensor = self.op.inputs[position]
        if tensor is None or tensor.value is None:
            raise self.error(
                f"has an input {position} that is computed while the model runs; axes, shapes and "
                "widths must be constants; export the model with fixed shapes"
            )
        return tensor.value

    # ------------------------------------------------------------ writing
    def store(self, value: relax.Expr, output: int = 0) -> None:
        """The operator's result, from floats; four axes as NCHW."""
        tensor = self.op.outputs[output]
        name = _identifier(tensor)
        if tensor.is_quantized:
            value = self._bound(value, f"{name}{SEPARATOR}result")
            value = tensor.quantization().quantize(value)
        bound = self._bound(value, name)
        self._check_size(tensor, bound)
        if tensor.dtype == COMPLEX:
            self._parts[tensor.index, self._part] = bound
        else:
            self._stored[tensor.index] = bound

    def _check_size(self, tensor: TFLiteTensor, value: relax.Expr) -> None:
        """Files have ones for the dimensions that they leave open, whatever they come to be."""
        count = math.prod(static_shape(value))
        if count > 0 and count != math.prod(tensor.shape):  # inputs without elements are told later
            raise self.error(
                f'makes "{tensor.name}" of {count} elements, which the file gives the '
                f"shape {tensor.shape}; dimensions that are left open cannot be imported; convert "
                "the model with fixed shapes"
            )

    def store_plain(self, value: relax.Expr, output: int = 0) -> None:
        """The operator's result, from floats in the file's order of axes."""
        if len(self.op.outputs[output].shape) == 4:
            value = self._permuted(self._bound(value, f"{self.name}{SEPARATOR}plain"), NCHW)
        self.store(value, output)

    def _bound(self, value: relax.Expr, name: str) -> relax.Expr:
        return value if isinstance(value, relax.Var) else self.writer.emit(value, name)

    def _permuted(self, value: relax.Expr, order: tuple[int, ...]) -> relax.Expr:
        """A reshape where only axes of size 1 change places."""
        value = self._bound(value, f"{self.name}{SEPARATOR}value")
        shape = static_shape(value)
        moved = [shape[axis] for axis in order]
        large = [axis for axis in order if shape[axis] > 1]
        if large == sorted(large):
            return self.emit(relax.op.reshape(value, moved), "layout")
        return self.emit(relax.op.permute_dims(value, order), "layout")

    # ------------------------------------------------------------ the whole model
    def add_input(self, tensor: TFLiteTensor) -> None:
        """A parameter of `main`, with the file's shape and dtype."""
        if tensor.dtype not in DTYPES:
            raise VTAError(
                f'input "{tensor.name}" has dtype {tensor.dtype}; {", ".join(DTYPES)} are taken; '
                "quantize the model to 8 bits"
            )
        if tensor.is_quantized:
            tensor.quantization()
        param = relax.Var(tensor.name, relax.TensorType(tensor.shape, tensor.dtype))
        self.params.append(param)
        value: relax.Expr = param
        if len(tensor.shape) == 4:
            name = f"{_identifier(tensor)}{SEPARATOR}layout"
            value = self.writer.emit(relax.op.permute_dims(param, NCHW), name)
        self._stored[tensor.index] = value

    def result(self, tensor: TFLiteTensor) -> relax.Expr:
        """What `main` returns for an output of the model."""
        if tensor.dtype == COMPLEX:
            raise VTAError(
                f'output "{tensor.name}" is complex; outputs must be real; export the model with '
                "its magnitude, or its real and its imaginary part"
            )
        if tensor.value is not None:
            return constant_of(tensor.value)
        value = self._made(tensor)
        if len(tensor.shape) != 4:
            return value
        name = f"{_identifier(tensor)}{SEPARATOR}layout"
        return self.writer.emit(relax.op.permute_dims(value, NHWC), name)

    def error(self, text: str) -> VTAError:
        """An error that names the operator and goes on with `text`."""
        return VTAError(f'operator "{self.op.name}" ({self.op.code}) {text}')


def _identifier(tensor: TFLiteTensor) -> str:
    return sanitized(tensor.name.split(";")[0])
