"""The baseline of accuracy: ONNX Runtime's static quantization on the same inputs."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = list[np.ndarray]
Feed = Mapping[str, np.ndarray]
SCALES_BY_CHANNEL = 13
"""The ONNX operators of this version have a scale for each channel."""


def onnxruntime_int8(
    path: Path, calibration: Sequence[Arrays], samples: Sequence[Arrays]
) -> list[Arrays]:
    """What ONNX Runtime makes of `samples`, quantized (`int8_session`).

    Args:
        path: a float ONNX file.
        calibration: inputs that choose the scales, in the file's order.
        samples: inputs to run.
    """
    import onnxruntime

    names = [value.name for value in onnxruntime.InferenceSession(str(path)).get_inputs()]
    session = int8_session(path, [dict(zip(names, x, strict=True)) for x in calibration])
    return [session.run(None, dict(zip(names, x, strict=True))) for x in samples]


def int8_session(
    path: Path,
    calibration: Sequence[Feed],
    *,
    per_channel: bool = True,
    left_float: tuple[str, ...] = (),
) -> Any:
    """A float file after ONNX Runtime's static quantization: QDQ, int8, min-max.

    Every layer is computed in float between its quantize and dequantize, as the file states it: the
    int8 kernels saturate sums of two products at 16 bits where the processor has no VNNI.

    Args:
        path: a float ONNX file.
        calibration: inputs by name that choose the scales; dimensions that the file leaves open
            become theirs.
        per_channel: whether the weights of each channel have a scale.
        left_float: what the names of nodes end with that are not quantized.
    """
    import onnx
    import onnxruntime
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    feeds = iter(calibration)

    class Reader(quantization.CalibrationDataReader):
        def get_next(self) -> Any:
            return next(feeds, None)

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory() as folder, _without_warnings():
        fixed, ready, int8 = (f"{folder}/{stage}.onnx" for stage in ("fixed", "ready", "int8"))
        onnx.save(_with_shapes(onnx.load(path), calibration[0]), fixed)
        quant_pre_process(fixed, ready, skip_symbolic_shape=True)
        nodes = [node.name for node in onnx.load(ready).graph.node]
        quantization.quantize_static(
            ready,
            int8,
            Reader(),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=per_channel,
            nodes_to_exclude=[name for name in nodes if name.endswith(left_float)],
        )
        return onnxruntime.InferenceSession(int8, options, providers=["CPUExecutionProvider"])


def _with_shapes(model: Any, feed: Feed) -> Any:
    """The model with the shapes of `feed`, in operators that take a scale for each channel."""
    from onnx import version_converter

    if min(each.version for each in model.opset_import if not each.domain) < SCALES_BY_CHANNEL:
        model = version_converter.convert_version(model, SCALES_BY_CHANNEL)
    for name, array in feed.items():
        (value,) = [each for each in model.graph.input if each.name == name]
        for dim, size in zip(value.type.tensor_type.shape.dim, array.shape, strict=True):
            dim.dim_value = size
    return model


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Advice to prepare the file, and what it says of each tensor that stays float."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
