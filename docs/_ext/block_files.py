"""The files that shell blocks of the documentation name: small, made when a block needs them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import tvm
from installed import ROOT
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 3, 16, 16)
_RELAY = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 16, 8, 8), float32], %weight: Tensor[(16, 16, 3, 3), float32]) {
  nn.conv2d(%data, %weight, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3])
}
"""


def _noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("float32") / 4


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, tuple[int, ...]]],
    output: tuple[int, ...],
    weights: Mapping[str, np.ndarray],
) -> None:
    given = [helper.make_tensor_value_info(n, t, shape) for n, (t, shape) in inputs.items()]
    result = [helper.make_tensor_value_info("result", TensorProto.FLOAT, output)]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", given, result, constants)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def residual_network(path: Path) -> None:
    """Three convolutions and a sum with the names of ResNet-18's first ones; 16x16 pixels."""
    nodes = [
        helper.make_node("Conv", ["data", "w0"], ["conv1"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["conv1"], ["relu"], "relu"),
        helper.make_node("Conv", ["relu", "w1"], ["c1"], "layer1_0_conv1", pads=[1] * 4),
        helper.make_node("Conv", ["c1", "w2"], ["c2"], "layer1_0_conv2", pads=[1] * 4),
        helper.make_node("Add", ["c2", "relu"], ["sum"], "layer1_0_add"),
        helper.make_node("GlobalAveragePool", ["sum"], ["pooled"], "pooled"),
        helper.make_node("Flatten", ["pooled"], ["result"], "flatten"),
    ]
    shapes = ((16, 3, 3, 3), (16, 16, 3, 3), (16, 16, 3, 3))
    weights = {f"w{i}": _noise(*shape) for i, shape in enumerate(shapes)}
    _save(path, nodes, {"data": (TensorProto.FLOAT, SHAPE)}, (1, 16), weights)


def two_inputs(path: Path) -> None:
    """A convolution of `a`, and `b` added to it."""
    nodes = [
        helper.make_node("Conv", ["a", "w"], ["conv"], "conv", pads=[1] * 4),
        helper.make_node("Add", ["conv", "b"], ["result"], "sum"),
    ]
    shape = (1, 16, 8, 8)
    inputs = {name: (TensorProto.FLOAT, shape) for name in "ab"}
    _save(path, nodes, inputs, shape, {"w": _noise(16, 16, 3, 3)})


def tokens(path: Path) -> None:
    """An embedding under a mask, and a linear layer."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], "embed"),
        helper.make_node("Cast", ["mask"], ["shown"], "shown", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["rows", "shown"], ["masked"], "masked"),
        helper.make_node("MatMul", ["masked", "w"], ["result"], "dense"),
    ]
    inputs = {"ids": (TensorProto.INT64, (1, 8)), "mask": (TensorProto.INT64, (1, 8, 1))}
    weights = {"table": _noise(32, 16), "w": _noise(16, 16)}
    _save(path, nodes, inputs, (1, 8, 16), weights)


def gelu(path: Path) -> None:
    """A convolution, GELU as PyTorch's exporter wrote it until opset 19, and a convolution."""
    half, one, root = (np.float32(value) for value in (0.5, 1, 2**0.5))
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["first"], "first", pads=[1] * 4),
        helper.make_node("Div", ["first", "root"], ["scaled"], "act_scaled"),
        helper.make_node("Erf", ["scaled"], ["erf"], "act_erf"),
        helper.make_node("Add", ["erf", "one"], ["share"], "act_share"),
        helper.make_node("Mul", ["first", "share"], ["twice"], "act_twice"),
        helper.make_node("Mul", ["twice", "half"], ["act"], "act"),
        helper.make_node("Conv", ["act", "w1"], ["result"], "last", pads=[1] * 4),
    ]
    shape = (1, 16, 8, 8)
    weights = {"w0": _noise(16, 16, 3, 3), "w1": _noise(16, 16, 3, 3)}
    scalars = {name: np.array(v) for name, v in (("half", half), ("one", one), ("root", root))}
    _save(path, nodes, {"x": (TensorProto.FLOAT, shape)}, shape, weights | scalars)


def _trained(path: Path) -> None:
    shutil.copyfile(ROOT / "models" / "trained" / "resnet8_fold0.onnx", path)


def _quantized(path: Path) -> None:
    from models.quantized_networks import quantized_onnx, resnet18_like

    quantized_onnx(resnet18_like(), path)


def _integer_network(folder: Path) -> tvm.IRModule:
    import vta_byoc as vta
    from vta_byoc.quantization.calibration.samples import default_calibration

    model = folder / "resnet18.onnx"
    if not model.exists():
        residual_network(model)
    mod, config = vta.load_model(model), vta.VTAConfig.preset("sim")
    return vta.quantize(mod, calibration=default_calibration(mod), config=config)


def _program(path: Path) -> None:
    import vta_byoc as vta
    from vta_byoc.hw.program.file import save
    from vta_byoc.pipeline import compile_module

    qmod, config = _integer_network(path.parent), vta.VTAConfig.preset("sim")
    (program,) = compile_module(qmod, config, "null").programs.values()
    save(program, path)


def _bundle(path: Path) -> None:
    import vta_byoc as vta

    vta.write_bundle(_integer_network(path.parent), path)


def _space(path: Path) -> None:
    path.write_text('{"base": "sim", "vary": {"LOG_ACC_BUFF_SIZE": [16, 17]}}')


def _small_machine(path: Path) -> None:
    sizes = {"UOP": 10, "INP": 10, "WGT": 12, "ACC": 12}
    given = {f"LOG_{memory}_BUFF_SIZE": bits for memory, bits in sizes.items()}
    path.write_text(json.dumps({"LOG_BLOCK": 2, **given}))


def _parameters(path: Path) -> None:
    sys.path.append(str(ROOT / "tests" / "support"))
    import relay_files

    path.write_bytes(relay_files.params({"weight": _noise(16, 16, 3, 3)}))


def _calibration(path: Path) -> None:
    np.savez(path, data=_noise(4, *SHAPE[1:]))


def _digits(path: Path) -> None:
    from models import digits

    np.savez(path, image=digits.calibration_inputs(0, 8))


def _held_out(path: Path) -> None:
    from models import digits

    digits.main(["--fold", "0", "-o", str(path)])


def _labelled(path: Path) -> None:
    np.savez(path, data=_noise(4, *SHAPE[1:]), labels=np.arange(4))


FILES: Mapping[str, Callable[[Path], object]] = {
    "MODEL.onnx": residual_network,
    "model.onnx": residual_network,
    "resnet18.onnx": residual_network,
    "two_inputs.onnx": two_inputs,
    "bert.onnx": tokens,
    "gelu.onnx": gelu,
    "resnet8.onnx": _trained,
    "resnet8_qdq.onnx": _quantized,
    "net.relay": lambda path: path.write_text(_RELAY),
    "net.params": _parameters,
    "mine.vta": _program,
    "region0.vta": _program,
    "resnet18-bundle": _bundle,
    "small.json": _small_machine,
    "space.json": _space,
    "one.vta": _program,
    "two.vta": _program,
    "image.npy": lambda path: np.save(path, _noise(*SHAPE)),
    "a.npy": lambda path: np.save(path, _noise(1, 16, 8, 8)),
    "b.npy": lambda path: np.save(path, _noise(1, 16, 8, 8)),
    "input.bin": lambda path: _noise(*SHAPE).tofile(path),
    "ids.npy": lambda path: np.save(path, np.arange(8)[None]),
    "mask.npy": lambda path: np.save(path, np.ones((1, 8, 1), "int64")),
    "images.npz": _calibration,
    "calibration.npz": _digits,
    "samples.npz": _digits,
    "held-out.npz": _held_out,
    "data.npz": _labelled,
    "build": lambda path: path.mkdir(),
}
