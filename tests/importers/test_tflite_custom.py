"""Operators that TFLite itself does not have, beside those that compute the same."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from importer_tflite_graph import Lite
from small_models import call

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model

SAME, VALID = 1, 2
"""Padding, as TFLite's runtime counts it."""


def network(rows: int, columns: int, padding: int, kernel: tuple[int, int]) -> Lite:
    """A transposed convolution with a bias."""
    g = Lite("TRANSPOSE_CONV", rows, columns, padding)
    sizes = ((5, rows, kernel[0]), (4, columns, kernel[1]))
    shape = [n * s if padding == SAME else (n - 1) * s + k for n, s, k in sizes]
    wanted, weight = g.const([2, *shape, 3]), g.weights(3, *kernel, 6)
    g.test(
        wanted,
        weight,
        g.tensor((2, 5, 4, 6)),
        g.weights(3),
        kind="TransposeConvOptions",
        padding=schema.Padding.SAME if padding == SAME else schema.Padding.VALID,
        strideH=rows,
        strideW=columns,
    )
    return g


def as_custom(file: bytes, options: bytes) -> bytes:
    """The file with MediaPipe's operator in place of TRANSPOSE_CONV."""
    import flatbuffers

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(file))
    (code,), (operator,) = model.operatorCodes, model.subgraphs[0].operators
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode = b"Convolution2DTransposeBias"
    _, weight, data, bias = operator.inputs
    operator.inputs = [data, weight, bias]
    operator.builtinOptionsType, operator.builtinOptions = 0, None
    operator.customOptions = np.frombuffer(options, "uint8")
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def saved(folder: Path, file: bytes) -> Path:
    path = folder / "net.tflite"
    path.write_bytes(file)
    return path


@pytest.mark.parametrize(
    ("rows", "columns", "padding", "kernel"),
    [(2, 2, SAME, (2, 2)), (2, 3, SAME, (3, 4)), (1, 2, VALID, (3, 2)), (3, 2, VALID, (2, 3))],
)
def test_transposed_convolution_with_bias(
    rows: int, columns: int, padding: int, kernel: tuple[int, int], tmp_path: Path
) -> None:
    g = network(rows, columns, padding, kernel)
    want = g.interpreter.get_tensor(g.outputs[0])
    options = struct.pack("<4i", padding, columns, rows, 0)
    path = saved(tmp_path, as_custom(g.file(g.made()), options))
    (got,) = call(load_model(path), *g.feed)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (b"\1\0", "has 2 bytes of options; it has 12 or more; download or export the model again"),
        (
            struct.pack("<3i", SAME, 0, 2),
            "has strides of 2 rows and 0 columns; both must be at least 1; download or export the "
            "model again",
        ),
    ],
)
def test_damaged_options(options: bytes, text: str, tmp_path: Path) -> None:
    g = network(2, 2, SAME, (2, 2))
    path = saved(tmp_path, as_custom(g.file(g.made()), options))
    with pytest.raises(VTAError) as caught:
        load_model(path)
    assert str(caught.value).endswith(f"(custom Convolution2DTransposeBias) {text}")
