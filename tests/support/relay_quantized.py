"""Networks as `relay.quantize` realises them: texts in which scales are powers of two.

Every layer's shift is the one at which the accumulators of a sample image fill int8, so that
integers neither vanish nor saturate everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import relay_files
from relay_numpy_layers import LAYERS

SHORTEST = 1
"""The least right shift of a layer."""


@dataclass(frozen=True)
class Tensor:
    """A value of the text, and what it is for the sample image."""

    name: str
    value: np.ndarray


class QuantizedNet:
    """A text under construction; methods return the tensors they write."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = shape
        self.lines: list[str] = []
        self.constants: list[np.ndarray] = []
        image = self.rng.standard_normal(shape).astype("float32")
        self.input = Tensor("%data", image)

    def line(self, call: str, value: np.ndarray) -> Tensor:
        name = f"%{len(self.lines)}"
        dims = ", ".join(map(str, value.shape))
        comment = f"/* ty=Tensor[({dims}), {value.dtype}] */"
        self.lines.append(f"  {name} = {call} {comment};")
        return Tensor(name, value)

    def constant(self, value: np.ndarray) -> str:
        self.constants.append(value)
        dims = ", ".join(map(str, value.shape))
        number = len(self.constants) - 1
        return f"meta[relay.Constant][{number}] /* ty=Tensor[({dims}), {value.dtype}] */"

    # ------------------------------------------------------------ pieces
    def to_int8(self, x: Tensor) -> Tensor:
        """What stands before the first layer."""
        scaled = self.line(f"multiply({x.name}, 16f /* ty=float32 */)", x.value * np.float32(16))
        rounded = np.sign(scaled.value) * np.floor(np.abs(scaled.value) + 0.5)
        whole = self.line(f"round({scaled.name})", rounded.astype("float32"))
        kept = self._clip(whole)
        return self._stopped(
            self.line(f'cast({kept.name}, dtype="int8")', kept.value.astype("int8"))
        )

    def _clip(self, x: Tensor) -> Tensor:
        return self.line(f"clip({x.name}, a_min=-127f, a_max=127f)", np.clip(x.value, -127, 127))

    def _stopped(self, x: Tensor) -> Tensor:
        return self.line(f"annotation.stop_fusion({x.name})", x.value)

    def wide(self, x: Tensor) -> Tensor:
        return self.line(f'cast({x.name}, dtype="int32")', x.value.astype("int32"))

    def relu(self, x: Tensor) -> Tensor:
        return self.line(f"nn.relu({x.name})", np.maximum(x.value, 0))

    def shifted(self, x: Tensor) -> Tensor:
        """Back to int8: a rounded shift, a clip, a cast."""
        most = max(int(np.abs(x.value).max()), 1)
        shift = max(int(np.ceil(np.log2(most / 127))), SHORTEST)
        half = 1 << (shift - 1)
        rounded = self.line(f"add({x.name}, {half} /* ty=int32 */)", x.value + np.int32(half))
        call = f"right_shift({rounded.name}, {shift} /* ty=int32 */)"
        kept = self._clip(self.line(call, rounded.value >> shift))
        narrow = self.line(f'cast({kept.name}, dtype="int8")', kept.value.astype("int8"))
        return self._stopped(narrow)

    def conv(self, x: Tensor, channels: int, kernel: int, *, stride: int = 1, groups: int = 1,
             left: int = 0) -> Tensor:  # fmt: skip
        """A convolution and its bias, int32; `left`: the bias has a finer scale by that shift."""
        inputs = x.value.shape[1] // groups
        shape = (channels, inputs, kernel, kernel)
        weight = np.clip(np.rint(self.rng.standard_normal(shape) * 40), -127, 127).astype("int8")
        pad = kernel // 2
        attrs: dict[str, Any] = {
            "strides": [stride, stride],
            "padding": [pad] * 4,
            "groups": groups,
            "channels": channels,
            "kernel_size": [kernel, kernel],
            "out_dtype": "int32",
        }
        value = LAYERS["nn.conv2d"]([x.value, weight], attrs)
        listed = ", ".join(f"{k}={v!r}".replace("'", '"') for k, v in attrs.items())
        acc = self.line(f"nn.conv2d({x.name}, {self.constant(weight)}, {listed})", value)
        if left:
            raised = (acc.value.astype("int64") << left).astype("int32")
            acc = self.line(f"left_shift({acc.name}, {left} /* ty=int32 */)", raised)
        spread = max(int(np.abs(acc.value.astype("int64")).max()) // 8, 1)
        bias = self.rng.integers(-spread, spread + 1, (channels, 1, 1)).astype("int32")
        return self.line(f"add({acc.name}, {self.constant(bias)})", acc.value + bias)

    def add(self, a: Tensor, b: Tensor, left: int = 0) -> Tensor:
        """The sum of two int8 tensors in int32, the second at a coarser scale."""
        first, second = self.wide(a), self.wide(b)
        if left:
            call = f"left_shift({second.name}, {left} /* ty=int32 */)"
            second = self.line(call, second.value << left)
        return self.line(f"add({first.name}, {second.name})", first.value + second.value)

    def head(self, x: Tensor, classes: int) -> str:
        """Average, dense in int8, floats."""
        pooled = LAYERS["nn.global_avg_pool2d"]([x.value.astype("int32")], {})
        wide = self.wide(x)
        mean = self.line(f"nn.global_avg_pool2d({wide.name})", pooled)
        narrow = self.line(f'cast({mean.name}, dtype="int8")', mean.value.astype("int8"))
        flat = self.line(f"nn.batch_flatten({narrow.name})", narrow.value.reshape(len(pooled), -1))
        weight = self.rng.integers(-127, 128, (classes, flat.value.shape[1])).astype("int8")
        product = LAYERS["nn.dense"]([flat.value, weight], {"out_dtype": "int32"})
        call = f"nn.dense({flat.name}, {self.constant(weight)}, units={classes}"
        acc = self.line(f'{call}, out_dtype="int32")', product)
        bias = self.rng.integers(-999, 999, (classes,)).astype("int32")
        total = self.line(f"add({acc.name}, {self.constant(bias)})", acc.value + bias)
        real = self.line(f'cast({total.name}, dtype="float32")', total.value.astype("float32"))
        return self.line(f"multiply({real.name}, 0.000244141f)", real.value).name

    def text(self, result: str, *, with_metadata: bool = True) -> str:
        """The module."""
        dims = ", ".join(map(str, self.shape))
        head = f'#[version = "0.0.5"]\ndef @main(%data: Tensor[({dims}), float32]) {{\n'
        body = "\n".join([*self.lines, f"  {result}", "}", ""])
        return head + body + (relay_files.metadata(self.constants) if with_metadata else "")


def small(size: int = 12, seed: int = 0) -> str:
    """Three layers, one of them depthwise, and a dense one."""
    net = QuantizedNet((1, 3, size, size), seed)
    x = net.shifted(net.relu(net.conv(net.to_int8(net.input), 16, 3)))
    x = net.shifted(net.relu(net.conv(x, 16, 3, groups=16, left=12)))
    x = net.shifted(net.relu(net.conv(x, 32, 1)))
    return net.text(net.head(x, 10))


def resnet18(size: int = 64, classes: int = 1000, seed: int = 0) -> str:
    """ResNet-18, every layer quantized; sums of the blocks at two scales."""
    net = QuantizedNet((1, 3, size, size), seed)
    x = net.relu(net.conv(net.to_int8(net.input), 64, 7, stride=2))
    pooled = LAYERS["nn.max_pool2d"]([x.value], {"pool_size": [3, 3], "strides": [2, 2],
                                                 "padding": [1, 1, 1, 1]})  # fmt: skip
    call = f"nn.max_pool2d({x.name}, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])"
    x = net.shifted(net.line(call, pooled))
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            inner = net.shifted(net.relu(net.conv(x, channels, 3, stride=stride)))
            outer = net.shifted(net.conv(inner, channels, 3))
            if stride > 1:
                x = net.shifted(net.conv(x, channels, 1, stride=stride))
            x = net.shifted(net.relu(net.add(x, outer, left=block)))
    return net.text(net.head(x, classes))


def mobilenet_v1(size: int = 64, classes: int = 1000, seed: int = 0) -> str:
    """MobileNetV1, every layer quantized; the biases of depthwise layers at finer scales."""
    net = QuantizedNet((1, 3, size, size), seed)
    x = net.shifted(net.relu(net.conv(net.to_int8(net.input), 32, 3, stride=2)))
    blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5,
              (1024, 2), (1024, 1))  # fmt: skip
    for number, (channels, stride) in enumerate(blocks):
        width = x.value.shape[1]
        left = (12, 19, 0)[number % 3]
        depthwise = net.conv(x, width, 3, stride=stride, groups=width, left=left)
        x = net.shifted(net.relu(depthwise))
        x = net.shifted(net.relu(net.conv(x, channels, 1)))
    return net.text(net.head(x, classes))
