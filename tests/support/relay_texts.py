"""Relay texts in the form in which TVM printed them, and what tests do with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_models import flat, plain_machine
from tvm import runtime

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model

SMALL = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 3, 8, 8), float32] /* ty=Tensor[(1, 3, 8, 8), float32] */,
          %w: Tensor[(4, 3, 3, 3), float32] /* ty=Tensor[(4, 3, 3, 3), float32] */)
    -> Tensor[(1, 4, 8, 8), float32] {
  %0 = nn.conv2d(%data, %w, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]) /* ty=... */;
  nn.relu(%0) /* ty=Tensor[(1, 4, 8, 8), float32] span=features/act:0:0 */
}
"""
FUSED = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 6), float32], Inline=1, global_symbol="main")
    -> (Tensor[(2, 3), float32],) {
  %2 = fn (%p0: Tensor[(2, 6), float32], Primitive=1, hash="a1")
      -> (Tensor[(2, 3), float32], Tensor[(2, 3), float32]) {
    %0 = add(%p0, 1f /* ty=float32 */) /* ty=Tensor[(2, 6), float32] */;
    %1 = split(%0, indices_or_sections=2, axis=1);
    (%1.0, %1.1)
  } /* ty=fn (Tensor[(2, 6), float32]) -> (Tensor[(2, 3), float32], Tensor[(2, 3), float32]) */;
  %3 = %2(%x) /* ty=(Tensor[(2, 3), float32], Tensor[(2, 3), float32]) */;
  let %y: Tensor[(2, 3), float32] = multiply(%3.0, -2f);
  let %z = @double(%y);
  (maximum(%z, %3.1),)
}

def @double(%v: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {
  add(%v, %v)
}
"""


def run(path: Path, *feed: np.ndarray, **options: object) -> list[np.ndarray]:
    mod = load_model(path, **options)  # type: ignore[arg-type]
    machine = plain_machine(mod)
    return flat(machine["main"](*(runtime.tensor(x) for x in feed)))


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def error(tmp_path: Path, text: str, name: str = "net.relay", **options: object) -> str:
    path = write(tmp_path / name, text)
    with pytest.raises(VTAError) as caught:
        load_model(path, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(tmp_path) + "/", "")
