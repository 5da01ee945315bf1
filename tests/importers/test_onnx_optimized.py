"""Encoders in ONNX Runtime's own operators are equal to it in float.

One is written by its transformer optimizer, one by its graph optimizer, and one by hand with what
neither of them writes here: lengths and sums as further results. The first is compiled too: one
region, bit-exact.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import helper, numpy_helper
from small_models import call

import vta_byoc as vta
from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.onnx.fused import RUNTIME
from vta_byoc.pipeline import compile_module
from vta_byoc.validation.bit_exact import compare_layers

WORDS, TOKENS, WIDTH, HEADS = 50, 16, 32, 2
SIZE = WIDTH // HEADS
LEAST_SQNR = 24.0
"""dB of the quantized encoder against the float one."""
SIM = VTAConfig.preset("sim")


def sample() -> dict[str, np.ndarray]:
    """Ids, segments, and a mask that hides the last six tokens."""
    rng = np.random.default_rng(3)
    mask, segments = np.ones((1, TOKENS), "int64"), np.zeros((1, TOKENS), "int64")
    mask[:, 10:], segments[:, 5:] = 0, 1
    return {"ids": rng.integers(0, WORDS, (1, TOKENS)), "segments": segments, "mask": mask}


def check_float(
    path: Path, given: dict[str, np.ndarray]
) -> tuple[tvm.IRModule, list[np.ndarray], np.ndarray]:
    """Compare with ONNX Runtime; the module, its inputs and what the runtime computed."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options)
    fed = {value.name: given[value.name] for value in session.get_inputs()}
    wanted = np.asarray(session.run(None, fed)[0])
    mod = vta.load_model(path)
    arrays = [given[str(param.name)] for param in mod["main"].params]
    np.testing.assert_allclose(call(mod, *arrays)[0], wanted, rtol=1e-5, atol=1e-5)
    return mod, arrays, wanted


def check_integers(mod: tvm.IRModule, arrays: list[np.ndarray], wanted: np.ndarray) -> None:
    """Compare as integers, then what VTA stores."""
    qmod = vta.quantize(mod, calibration=[tuple(arrays)], config=SIM)
    (found,) = call(qmod, *arrays)
    noise = np.square(found - wanted).sum() / np.square(wanted).sum()
    assert -10 * np.log10(noise) >= LEAST_SQNR
    compiled = compile_module(qmod, SIM)
    assert len(compiled.programs) == 1
    rules = {op.why.rule for op in compiled.placement if op.device == "vta"}
    assert "pattern vta.attention" in rules
    assert not any(each.n_different for each in compare_layers(qmod, compiled, arrays))


def operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(str(path)).graph.node)


# ---------------------------------------------------------------- written by the optimizers
@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BERT in small, as PyTorch exports it: one block behind embeddings."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = (WORDS, 2, TOKENS)
            self.words, self.kinds, self.places = (nn.Embedding(n, WIDTH) for n in sizes)
            self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
            self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))

        def forward(self, ids: object, segments: object, mask: torch.Tensor) -> torch.Tensor:
            x = self.words(ids) + self.kinds(segments) + self.places(torch.arange(TOKENS)[None])
            x = self.norms[0](x)
            hidden = (1.0 - mask[:, None, None, :].float()) * -10000.0
            parts = (f(x).view(1, TOKENS, HEADS, SIZE) for f in (self.q, self.k, self.v))
            q, k, v = (part.permute(0, 2, 1, 3) for part in parts)
            shares = (q @ k.transpose(-1, -2) / SIZE**0.5 + hidden).softmax(-1)
            y = self.o((shares @ v).permute(0, 2, 1, 3).reshape(1, TOKENS, WIDTH))
            x = self.norms[1](x + y)
            return self.norms[2](x + self.down(nn.functional.gelu(self.up(x))))

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("exported") / "encoder.onnx"
    given = {name: torch.from_numpy(value) for name, value in sample().items()}
    torch.onnx.export(
        Encoder().eval(),
        tuple(given.values()),
        str(path),
        dynamo=False,
        opset_version=14,
        input_names=list(given),
    )
    return path


def test_what_the_transformer_optimizer_wrote(exported: Path, tmp_path: Path) -> None:
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
    path = tmp_path / "optimized.onnx"
    made = optimizer.optimize_model(
        str(exported), model_type="bert", num_heads=HEADS, hidden_size=WIDTH, opt_level=0
    )
    made.save_model_to_file(str(path))
    assert {"Attention", "SkipLayerNormalization", "BiasGelu"} <= set(operators(path))
    check_integers(*check_float(path, sample()))


def test_what_the_runtime_wrote(exported: Path, tmp_path: Path) -> None:
    path = tmp_path / "optimized.onnx"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(exported), options)
    assert {"FusedMatMul", "SkipLayerNormalization", "Gelu"} <= set(operators(path))
    check_float(path, sample())


# ---------------------------------------------------------------- written by hand
def test_lengths_and_sums_are_read(tmp_path: Path) -> None:
    """Embeddings give lengths to attention, and each sum goes on beside its normalized form."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype("float32")

    norm = {"g": 1 + weights(WIDTH), "b": weights(WIDTH)}
    constants = {
        **{"w": 3 * weights(WORDS, WIDTH), "p": weights(TOKENS, WIDTH), "s": weights(2, WIDTH)},
        **norm,
        **{"qkv": weights(WIDTH, 3 * WIDTH), "qkv_b": weights(3 * WIDTH)},
        **{"o": weights(WIDTH, WIDTH), "o_b": weights(WIDTH)},
        **{"up": weights(WIDTH, 64), "up_b": weights(64)},
        **{"down": weights(64, WIDTH), "down_b": weights(WIDTH)},
    }
    own = {"domain": RUNTIME}
    skip = {**own, "epsilon": 1e-5}
    inputs = ["ids", "segments", "w", "p", "s", "g", "b", "mask"]
    nodes = [
        helper.make_node("EmbedLayerNormalization", inputs, ["x", "ends", "sum"], "embed", **own),
        helper.make_node(
            "Attention", ["x", "qkv", "qkv_b", "ends"], ["y"], "attend", num_heads=HEADS, **own
        ),
        helper.make_node("MatMul", ["y", "o"], ["z"], "out"),
        helper.make_node(
            "SkipLayerNormalization",
            ["z", "sum", "g", "b", "o_b"],
            ["n", "", "", "t"],
            "n1",
            **skip,
        ),
        helper.make_node("MatMul", ["n", "up"], ["u"], "up_product"),
        helper.make_node("FastGelu", ["u", "up_b"], ["a"], "gelu", **own),
        helper.make_node("MatMul", ["a", "down"], ["d"], "down_product"),
        helper.make_node(
            "SkipSimplifiedLayerNormalization", ["d", "t", "g", "down_b"], ["out"], "n2", **skip
        ),
    ]
    given = {name: value.astype("int32") for name, value in sample().items()}
    fed = [
        helper.make_tensor_value_info(n, onnx.TensorProto.INT32, v.shape) for n, v in given.items()
    ]
    result = helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, (1, TOKENS, WIDTH))
    kept = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "encoder", fed, [result], kept)
    opsets = [helper.make_opsetid("", 14), helper.make_opsetid(RUNTIME, 1)]
    path = tmp_path / "encoder.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    check_float(path, given)
