"""The baseline of accuracy: ONNX Runtime's static quantization on the same inputs."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = list[np.ndarray]
SCALES_BY_CHANNEL = 13
"""The ONNX operators of this version have a scale for each channel."""


def onnxruntime_int8(
    path: Path, calibration: Sequence[Arrays], samples: Sequence[Arrays]
) -> list[Arrays]:
    """What ONNX Runtime makes of `samples`, quantized (QDQ, int8, min-max, weights per channel).

    Args:
        path: a float ONNX file.
        calibration: inputs that choose the scales, in the file's order.
        samples: inputs to run.
    """
    with tempfile.TemporaryDirectory() as folder, _without_warnings():
        session = _quantized_session(path, calibration, Path(folder))
        names = [value.name for value in session.get_inputs()]
        return [session.run(None, dict(zip(names, x, strict=True))) for x in samples]


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Advice to prepare the file, and what it says of each tensor that stays float."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _quantized_session(path: Path, calibration: Sequence[Arrays], folder: Path) -> Any:
    import onnx
    import onnxruntime
    from onnx import version_converter
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    model = onnx.load(path)
    names = [value.name for value in onnxruntime.InferenceSession(str(path)).get_inputs()]
    if min(each.version for each in model.opset_import if not each.domain) < SCALES_BY_CHANNEL:
        model = version_converter.convert_version(model, SCALES_BY_CHANNEL)
    for name, array in zip(names, calibration[0], strict=True):
        (value,) = [each for each in model.graph.input if each.name == name]
        for dim, size in zip(value.type.tensor_type.shape.dim, array.shape, strict=True):
            dim.dim_value = size
    fixed, ready, quantized = (folder / f"{stage}.onnx" for stage in ("fixed", "ready", "int8"))
    onnx.save(model, fixed)
    quant_pre_process(str(fixed), str(ready), skip_symbolic_shape=True)
    feeds = iter([dict(zip(names, x, strict=True)) for x in calibration])

    class Reader(quantization.CalibrationDataReader):
        def get_next(self) -> Any:
            return next(feeds, None)

    quantization.quantize_static(
        str(ready),
        str(quantized),
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
        per_channel=True,
    )
    return session_as_stated(quantized)


def session_as_stated(path: Path | str) -> Any:
    """A quantized file in ONNX Runtime, each layer in float between its quantize and dequantize.

    Its int8 kernels saturate sums of two products at 16 bits where the processor has no VNNI.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
