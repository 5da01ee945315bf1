"""The model networks as Relay text and back: the same operators on the same constants."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import onnx
import pytest
import relay_files
from relay_printer import Printer, networks
from tvm_ffi import structural_equal

from models import digits
from vta_byoc.importers.load import load_model
from vta_byoc.importers.relay.read import read_text

SIZE = 64
LINES = 100_000
NARROW: dict[str, dict[str, object]] = {
    "resnet18": {"CHANNELS": (8, 16, 32, 64)},
    "resnet50": {"STAGES": ((8, 3), (16, 4), (24, 6), (32, 3))},
    "vgg16": {"STAGES": ((8, 2), (16, 2), (24, 3), (32, 3), (32, 3)), "HIDDEN": 48},
    "dcgan": {"CHANNELS": (64, 32, 24, 16)},
}
"""Channels of those with many weights: a text has the same operators for fewer."""


def network(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ONNX file, of small images where the network can be built for them."""
    if name == "resnet8":
        return digits.trained("resnet8", 0)
    module = importlib.import_module(f"models.{name}")
    if name not in NARROW:
        return module.cached(size=SIZE)
    for fact, value in NARROW[name].items():
        monkeypatch.setattr(module, fact, value)
    path = folder / "net.onnx"
    onnx.save(module.build() if name == "dcgan" else module.build(size=SIZE), path)
    return path


@pytest.mark.parametrize("name", networks())
def test_networks_go_out_and_back(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mod = load_model(network(name, tmp_path, monkeypatch))
    printer = Printer(mod)
    text, params = tmp_path / "net.relay", tmp_path / "net.params"
    text.write_text(printer.text(), encoding="utf-8")
    params.write_bytes(relay_files.params(printer.constants))
    back = load_model(text, params=params)
    first, second = (m["main"].without_attr("num_input") for m in (mod, back))
    assert structural_equal(first, second, map_free_vars=True)


def test_a_network_with_its_metadata(tmp_path: Path) -> None:
    mod = load_model(digits.trained("resnet8", 0))
    printer = Printer(mod, metadata=True)
    text = printer.text() + relay_files.metadata(list(printer.constants.values()))
    path = tmp_path / "net.txt"
    path.write_text(text, encoding="utf-8")
    first, second = (m["main"].without_attr("num_input") for m in (mod, load_model(path)))
    assert structural_equal(first, second, map_free_vars=True)


def test_long_texts_take_seconds() -> None:
    lines = ["def @main(%x: Tensor[(1, 16, 8, 8), float32], %w: Tensor[(16, 16, 3, 3), float32]) {"]
    value = "%x"
    kind = "Tensor[(1, 16, 8, 8), float32]"
    for number in range(LINES):
        attrs = "padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]"
        call = (f"nn.conv2d({value}, %w, {attrs})", f"nn.relu({value})")[number % 2]
        lines.append(f"  %{number} = {call} /* ty={kind} */;")
        value = f"%{number}"
    start = time.process_time()
    read_text("\n".join([*lines, f"  {value}\n}}"]), "the text")
    assert time.process_time() - start < 10
