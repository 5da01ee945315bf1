"""PyTorch programs, float and quantized by pt2e (torchao), against PyTorch itself.

Needs the `torch` extra; what can be said without PyTorch is tested at the end.
"""

from __future__ import annotations

import builtins
import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from quantized_runs import assert_qdq, operators
from small_models import call

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model, output_names
from vta_byoc.ir.bindings import is_constant, op_name, source_name, straight_bindings

HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_PT2E = HAS_TORCH and importlib.util.find_spec("torchao") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed (extra: torch)")
needs_pt2e = pytest.mark.skipif(not HAS_PT2E, reason="torchao is not installed")


def network() -> Any:
    """Layers of every kind, BatchNorm among them."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
            self.bn = nn.BatchNorm2d(8)
            self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
            self.pool = nn.MaxPool2d(2)
            self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
            self.fc = nn.Linear(16, 5)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.bn(self.conv1(x)))
            y = nn.functional.relu6(self.depthwise(x))
            z = torch.relu(self.up(self.pool(x + y)))
            z = nn.functional.adaptive_avg_pool2d(torch.cat([z, y], 1), 1)
            return self.fc(z.flatten(1))

    torch.manual_seed(0)
    net = Net().eval()
    net.bn.running_mean.uniform_(-0.5, 0.5)
    net.bn.running_var.uniform_(0.5, 2)
    return net


def image() -> Any:
    import torch

    return torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def exported(net: Any, *args: Any) -> Any:
    import torch

    return torch.export.export(net, args)


def module_of(function: Callable[[Any], Any]) -> Any:
    import torch

    class Function(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    return Function()


def computes_the_same(function: Callable[[Any], Any], x: Any, atol: float = 1e-6) -> None:
    net = module_of(function)
    assert_same(load_model(exported(net, x)), net, x, atol=atol)


def assert_same(mod: Any, net: Any, *args: Any, atol: float = 1e-6) -> None:
    expected = net(*args).detach().numpy()
    (got,) = call(mod, *(arg.numpy() for arg in args))
    np.testing.assert_allclose(got, expected, atol=atol)


# ---------------------------------------------------------------- float
@needs_torch
def test_float_network() -> None:
    net, x = network(), image()
    mod = load_model(exported(net, x))
    assert_same(mod, net, x)
    assert "nn.batch_norm" not in operators(mod)
    assert [p.name for p in mod["main"].params] == ["x"]
    assert output_names(mod) == ["linear"]


@needs_torch
def test_variables_are_called_after_the_modules() -> None:
    mod = load_model(exported(network(), image()))
    layers = {"relax.nn.conv2d", "relax.nn.conv2d_transpose", "relax.matmul"}
    made = [b.var for b in straight_bindings(mod["main"]) if op_name(b.value) in layers]
    assert [source_name(var) for var in made] == ["conv1", "depthwise", "up", "fc"]


@needs_torch
def test_saved_program(tmp_path: Path) -> None:
    import torch

    net, x = network(), image()
    torch.export.save(exported(net, x), tmp_path / "net.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # PyTorch's, of what no user can change
        loaded = load_model(tmp_path / "net.pt2")
    assert_same(loaded, net, x)


@needs_torch
@pytest.mark.parametrize(
    "places",
    [
        ((slice(None), [[0, 1]], [[2], [1]])),  # where they are turned, the shape is the same
        ((slice(None), [0, 1], [1, 2])),
        ((slice(None), [0, -1], slice(None), [1, 2])),
        (([[0], [2]], slice(None), [[1, 2]])),
        ((1, [0, -1], [[3], [2], [1]], [2, 0])),
    ],
    ids=str,
)
def test_indices_name_elements_together(places: tuple[Any, ...]) -> None:
    """Indices are broadcast with each other; their axes come first where others are between."""
    import torch

    given = tuple(torch.tensor(p) if isinstance(p, list) else p for p in places)
    x = torch.randn(3, 4, 5, 6, generator=torch.Generator().manual_seed(1))
    computes_the_same(lambda x: x[given], x, atol=0)


@needs_torch
def test_columns_of_windows() -> None:
    """`unfold` of planes, which PyTorch writes as one index of two axes."""
    from torch.nn.functional import unfold

    computes_the_same(lambda x: unfold(x, (2, 3), padding=1, stride=(1, 2)).relu().sum(1), image())


@needs_torch
def test_the_window_of_a_number() -> None:
    import torch

    computes_the_same(lambda x: x.unfold(0, 1, 1) * 2, torch.tensor(3.5))


@needs_torch
def test_a_norm_of_a_single_row() -> None:
    import torch

    x = torch.randn(7, generator=torch.Generator().manual_seed(1))
    computes_the_same(lambda x: torch.nn.functional.rms_norm(x, (7,)), x)


@needs_torch
@pytest.mark.parametrize("running", ["cumsum", "cumprod"])
def test_running_totals_of_a_number(running: str) -> None:
    import torch

    computes_the_same(lambda x: getattr(torch, running)(x, 0) * 2, torch.tensor(3.5))


@needs_torch
def test_places_of_adaptive_maxima_are_refused() -> None:
    from torch.nn.functional import adaptive_max_pool2d

    net = module_of(lambda x: adaptive_max_pool2d(x, 2, return_indices=True)[1])
    refused(
        'node "adaptive_max_pool2d" (adaptive_max_pool2d.default) has its second result read, the '
        "places of the maxima; only the maxima of adaptive pools are imported; pool without "
        "return_indices",
        exported(net, image()),
    )


@needs_torch
def test_a_cut_file_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    """PyTorch logs one before it raises."""
    import logging

    import torch

    path, said = tmp_path / "net.pt2", []
    torch.export.save(exported(network(), image()), path)
    path.write_bytes(path.read_bytes()[:3000])
    handler = logging.Handler()
    handler.emit = said.append  # type: ignore[method-assign]
    logger = logging.getLogger("torch.export")
    logger.addHandler(handler)
    try:
        with pytest.raises(VTAError, match=r'^model file ".+" cannot be read: .+; it must be '):
            load_model(path)
        assert not said and not logger.disabled
    finally:
        logger.removeHandler(handler)


# ---------------------------------------------------------------- pt2e
def symmetric(**options: Any) -> Any:
    """int8 activations with zero points, int8 weights per channel: what XNNPACK runs."""
    from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True, **options)
    return xnnpack.XNNPACKQuantizer().set_global(config)


def per_tensor() -> Any:
    from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

    config = xnnpack.get_symmetric_quantization_config(is_per_channel=False)
    return xnnpack.XNNPACKQuantizer().set_global(config)


def unsigned() -> Any:
    """uint8 activations, int8 weights per channel."""
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    config = x86.get_default_x86_inductor_quantization_config()
    return x86.X86InductorQuantizer().set_global(config)


def narrow() -> Any:
    """uint8 activations of 7 bits."""
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    config = x86.get_default_x86_inductor_quantization_config(reduce_range=True)
    return x86.X86InductorQuantizer().set_global(config)


def quantized(net: Any, quantizer: Any, *args: Any) -> Any:
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(exported(net, *args).module(), quantizer)
    generator = torch.Generator().manual_seed(2)
    for _ in range(4):
        prepared(*(torch.randn(arg.shape, generator=generator) for arg in args))
    return convert_pt2e(prepared)


@needs_pt2e
@pytest.mark.parametrize("quantizer", [symmetric, per_tensor, unsigned, narrow])
def test_quantized_network(quantizer: Callable[[], Any]) -> None:
    x = image()
    net = quantized(network(), quantizer(), x)
    mod = load_model(exported(net, x))
    assert_qdq(mod)
    assert operators(mod).count("quantize") >= 3
    assert_same(mod, net, x)


@needs_pt2e
def test_quantized_program_from_a_file(tmp_path: Path) -> None:
    import torch

    x = image()
    net = quantized(network(), symmetric(), x)
    torch.export.save(exported(net, x), tmp_path / "net.pt2")
    assert_same(load_model(tmp_path / "net.pt2"), net, x)


@needs_pt2e
def test_weights_stay_integers_per_channel() -> None:
    x = image()
    mod = load_model(exported(quantized(network(), symmetric(), x), x))
    made = {b.var: b.value for b in straight_bindings(mod["main"])}
    layers = [c for c in made.values() if op_name(c) in ("relax.nn.conv2d", "relax.matmul")]
    weights = [made[layer.args[1]] for layer in layers]
    assert [weight.attrs.axis for weight in weights] == [0, 0, 1]
    for weight in weights:
        assert is_constant(weight.args[0]) and str(weight.args[0].ty.dtype) == "int8"
        assert weight.args[2].value.shape == () and not weight.args[2].value.numpy()
    assert "permute_dims" not in operators(mod)


# ---------------------------------------------------------------- refusals
def refused(text: str, model: Any, **options: Any) -> None:
    with pytest.raises(VTAError) as caught:
        load_model(model, **options)
    assert str(caught.value) == text


@needs_pt2e
def test_dynamic_quantization() -> None:
    x = image()
    net = quantized(network(), symmetric(is_dynamic=True), x)
    refused(
        'node "choose_qparams" (choose_qparams.tensor) computes a scale while the model runs '
        "(dynamic quantization); scales must be constants; quantize with is_dynamic=False",
        exported(net, x),
    )


@needs_torch
def test_dynamic_shape() -> None:
    import torch

    program = torch.export.export(
        torch.nn.ReLU(), (torch.ones(3, 4),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    with pytest.raises(VTAError) as caught:
        load_model(program)
    assert str(caught.value).startswith('input "input" has the dynamic shape (')
    assert str(caught.value).endswith(
        "every dimension must be known; export the model without dynamic_shapes"
    )


@needs_torch
def test_other_dtype_and_shape() -> None:
    import torch

    program = torch.export.export(torch.nn.ReLU(), (torch.ones(3, dtype=torch.float64),))
    refused(
        'input "input" has dtype float64; inputs must be tensors of float32, int8, uint8, int32, '
        "int64, bool; export the model with one of these",
        program,
    )
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(3),))
    refused(
        'shape (4,) given for "input"; the program was exported for (3,); export it again with '
        "an example of the shape",
        program,
        shapes={"input": (4,)},
    )
    refused(
        'shape given for "y"; the inputs of the model are input; use one of these names',
        program,
        shapes={"y": (3,)},
    )


@needs_torch
def test_unknown_operator() -> None:
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.lgamma(x)

    with pytest.raises(VTAError) as caught:
        load_model(exported(Net(), torch.ones(4)))
    assert str(caught.value).startswith(
        'node "lgamma" has the operator lgamma.default; TVM\'s PyTorch importer knows '
    )
    assert str(caught.value).endswith("export the model without it or cut the model before it")


@needs_torch
def test_no_program(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(b"no program")
    with pytest.raises(VTAError) as caught:
        load_model(path)
    assert str(caught.value).startswith(f'model file "{path}" cannot be read: ')
    assert str(caught.value).endswith(
        "it must be written by torch.export.save with this version of PyTorch; export the model "
        "again"
    )


# ---------------------------------------------------------------- without PyTorch
def test_a_program_without_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    path = tmp_path / "net.pt2"
    path.write_bytes(b"")
    refused(
        f"model file \"{path}\" needs PyTorch, which is not installed (No module named 'torch'); "
        'only ONNX and TFLite files load without it; install it: pip install "vta-byoc[torch]"',
        path,
    )


class Input:
    """A node of torch.fx whose value is known."""

    op = "placeholder"


@pytest.mark.parametrize("dtype, low, high", [("int8", -128, 127), ("uint8", 0, 127)])
def test_quantization_operators(dtype: str, low: int, high: int) -> None:
    """The converters alone: parameters in the dtypes of QDQ Relax, fewer integers as a clip."""
    from tvm import relax

    from vta_byoc.importers.torch.importer import QUANTIZATION

    data, source = relax.Var("x", relax.TensorType((2, 3), "float32")), Input()
    builder = SimpleNamespace(emit=lambda expr: expr)
    importer = SimpleNamespace(env={source: data}, block_builder=builder)
    node = SimpleNamespace(
        name="q",
        op="call_function",
        target=SimpleNamespace(__name__="quantize_per_tensor.default"),
        args=(source, 0.5, 3, low, high, dtype),
    )
    result = QUANTIZATION["quantize_per_tensor.default"](node, importer)
    assert str(result.attrs.out_dtype) == dtype
    assert (float(result.args[1].value.numpy()), int(result.args[2].value.numpy())) == (0.5, 3)
    assert str(result.args[2].ty.dtype) == dtype
    limited = result.args[0]
    if dtype == "int8":
        assert limited.same_as(data)
    else:
        bounds = [float(arg.value) for arg in limited.args[1:]]
        assert op_name(limited) == "relax.clip" and bounds == [-1.5, 62.0]
