"""A small bundle with a step of the host on both sides, and the example that opens it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tvm
from bundle_runs import SANITIZERS, built
from integer_models import IntegerNet
from tvm import relax

import vta_byoc as vta


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example under sanitizers of addresses and of undefined behaviour."""
    return built(tmp_path_factory.mktemp("sanitized"), "-O2", *SANITIZERS)


@pytest.fixture(scope="session")
def small_module() -> tvm.IRModule:
    """Float in, one convolution on VTA, a softmax out."""
    net = IntegerNet(5)
    net.params = [relax.Var("x", relax.TensorType((1, 3, 4, 5), "float32"))]
    scale, zero = relax.const(0.25, "float32"), relax.const(0, "int8")
    whole = net.op("quantize", net.params[0], scale, zero, axis=0, out_dtype="int8")
    made = net.conv(whole, 7, name="layer")
    real = net.op("dequantize", made, scale, zero, axis=0, out_dtype="float32")
    return net.module(net.op("nn.softmax", real, axis=1))


@pytest.fixture(scope="session")
def small_bundle(small_module: tvm.IRModule, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of `small_module`; tests copy it before they change it."""
    return vta.write_bundle(small_module, tmp_path_factory.mktemp("small") / "bundle")


@pytest.fixture
def copied(small_bundle: Path, tmp_path: Path) -> Path:
    """A bundle to change."""
    return Path(shutil.copytree(small_bundle, tmp_path / "copied"))
