"""Inverted residuals with gates, which several networks share."""

from __future__ import annotations

from dataclasses import dataclass

from models._activations import RELU, Activation
from models._blocks import BlockBuilder
from models._build import Tensor
from models._smooth import HARD_SIGMOID, SIGMOID


def eighths(value: float) -> int:
    """The nearest multiple of 8, at least 8, not more than 10 % below the value."""
    near = max(8, int(value + 4) // 8 * 8)
    return near + 8 if near < 0.9 * value else near


@dataclass(frozen=True)
class V3Block:
    """A row of MobileNet v3's tables; `dilation` takes the place of the stride."""

    kernel: int
    expanded: int
    outputs: int
    gated: bool
    activation: Activation
    stride: int
    dilation: int = 1


@dataclass(frozen=True)
class Gate:
    """Squeeze and excitation: its inner channels and its two functions."""

    squeezed: int
    activation: Activation = RELU
    gate: Activation = SIGMOID


def v3_block(b: BlockBuilder, x: Tensor, name: str, block: V3Block) -> Tensor:
    """The layers of a row."""
    gate = Gate(eighths(block.expanded // 4), RELU, HARD_SIGMOID) if block.gated else None
    return inverted_residual(
        b, x, name, block.expanded, block.outputs, block.kernel,
        activation=block.activation, gate=gate, stride=block.stride, dilation=block.dilation,
    )  # fmt: skip


def inverted_residual(
    b: BlockBuilder,
    x: Tensor,
    name: str,
    expanded: int,
    outputs: int,
    kernel: int,
    *,
    activation: Activation,
    gate: Gate | None = None,
    stride: int = 1,
    dilation: int = 1,
) -> Tensor:
    """1x1 to more channels, a filter for each, an optional gate, 1x1 to few; a shortcut if it fits.

    A dilated block keeps the size, as in torchvision's networks for segmentation.
    """
    inputs, shortcut = x.data.shape[1], stride == 1 and x.data.shape[1] == outputs
    h = x
    if expanded != inputs:
        h = b.conv_bn(x, f"{name}.expand", expanded, activation=activation)
    h = b.conv_bn(
        h, f"{name}.dw", expanded, kernel, activation=activation, groups=expanded,
        stride=1 if dilation > 1 else stride, dilation=dilation,
    )  # fmt: skip
    if gate is not None:
        h = b.squeeze_excite(
            h, f"{name}.se", gate.squeezed, activation=gate.activation, gate=gate.gate
        )
    h = b.conv(h, f"{name}.project", b.filters(h, f"{name}.project", outputs, 1))
    if not shortcut:
        return b.bn(h, f"{name}.project.bn")
    return b.bn_add(h, x, f"{name}.project.bn", f"{name}.add")
