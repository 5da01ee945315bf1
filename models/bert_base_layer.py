"""A layer of BERT-base (Devlin et al., 2019) on 128 tokens, with random weights, for cycles.

Run `python -m models.bert_base_layer -o bert_base_layer.onnx`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from models import _command
from models._bert import encoder_layer
from models._exact import F32
from models._vit import IR_VERSION, OPSET, BlockSizes, Drawn, Writer

NAME = "bert_base_layer"
TOKENS, WIDTH = 128, 768


SIZES = BlockSizes(tokens=TOKENS, width=WIDTH, heads=12, hidden=3072)


def build(*, seed: int = 0) -> onnx.ModelProto:
    """The model: tokens (1, 128, 768) to tokens, each sum normalized."""
    w = Writer(SIZES, Drawn(seed))
    x = encoder_layer(w, "data", "layer")
    shape = [1, TOKENS, WIDTH]
    graph = helper.make_graph(
        w.nodes,
        NAME,
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)],
        w.constants,
    )
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)


def cached() -> Path:
    """The ONNX file of the model, built on demand into `build/models`."""
    return _command.cached(NAME, build, options=())


def calibration_inputs(n: int = 8) -> F32:
    """Tokens to calibrate quantization with, float32 (n, 128, 768)."""
    return sample_inputs(n, 0)


def sample_inputs(n: int, seed: int) -> F32:
    """Tokens of normal numbers, float32 (n, 128, 768)."""
    rng = np.random.RandomState(seed)
    return rng.standard_normal((n, TOKENS, WIDTH)).astype(np.float32)


if __name__ == "__main__":
    sys.exit(_command.main(NAME, build, options=(_command.SEED,)))
