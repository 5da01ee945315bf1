"""What the networks on images have in common: options, inputs, cache, command line."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from models import _build, _command
from models._blocks import BlockBuilder
from models._build import Tensor
from models._exact import F32
from models._filters import SPARE

Network = Callable[[BlockBuilder, int], Sequence[Tensor]]
Seeded = Callable[[int, int], F32]
"""(n, seed) -> n inputs, stacked."""


@dataclass(frozen=True)
class ImageModel:
    """A network on images `data`, float32 (1, 3, size, size).

    Attributes:
        network: emits all layers for a number of classes, returns the outputs.
        size, classes: defaults.
        step: `size` must be a multiple of it.
        images: how many the network is built on, at most.
        spare: as in `models._filters`; more for a network of many layers.
    """

    name: str
    network: Network
    size: int = 224
    classes: int = 1000
    step: int = 1
    images: int = 16
    spare: float = SPARE

    def build(
        self, *, size: int | None = None, classes: int | None = None, seed: int = 0
    ) -> onnx.ModelProto:
        """The network as a checked ONNX model, the same bytes on every machine."""
        b = self.builder(size=size, seed=seed)
        return b.build(*self.network(b, self.classes if classes is None else classes))

    def builder(self, *, size: int | None = None, seed: int = 0) -> BlockBuilder:
        """What `network` emits its layers with."""
        images = _build.build_images(self._size(size), self.images)
        return BlockBuilder(
            self.name, seed=seed, input_name="data", images=images, spare=self.spare
        )

    def cached(self, *, size: int | None = None, classes: int | None = None, seed: int = 0) -> Path:
        """The ONNX file of the same model, built on demand into `build/models`."""
        return _command.cached(
            self.name,
            self.build,
            options=self.options,
            source=Path(inspect.getfile(self.network)),
            size=self._size(size),
            classes=self.classes if classes is None else classes,
            seed=seed,
        )

    def calibration_inputs(self, n: int = 8, *, size: int | None = None) -> F32:
        """Images to calibrate quantization with, float32 (n, 3, size, size)."""
        return _build.calibration_inputs(self._size(size), n)

    def sample_inputs(self, n: int, seed: int, *, size: int | None = None) -> F32:
        """Other images, float32 (n, 3, size, size)."""
        return _build.sample_inputs(n, seed, self._size(size))

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """The command line; returns the exit code."""
        return _command.main(self.name, self.build, arguments, options=self.options)

    @property
    def options(self) -> tuple[_command.Option, ...]:
        return (
            dataclasses.replace(_command.SIZE, default=self.size, step=self.step),
            dataclasses.replace(_command.CLASSES, default=self.classes),
            _command.SEED,
        )

    def _size(self, size: int | None) -> int:
        return self.size if size is None else size


@dataclass(frozen=True)
class SignalModel:
    """A network of one fixed input, float32 (1, *shape).

    Attributes:
        network: emits all layers, returns the outputs.
        inputs: seeded inputs, (n, *shape).
        input_name: the name of the input.
        images: how many inputs the network is built on.
    """

    name: str
    network: Callable[[BlockBuilder], Sequence[Tensor]]
    inputs: Seeded
    input_name: str
    images: int = 16

    def build(self, *, seed: int = 0) -> onnx.ModelProto:
        """The network as a checked ONNX model, the same bytes on every machine."""
        b = self.builder(seed=seed)
        return b.build(*self.network(b))

    def builder(self, *, seed: int = 0) -> BlockBuilder:
        """What `network` emits its layers with."""
        given = self.calibration_inputs(self.images)
        return BlockBuilder(self.name, seed=seed, input_name=self.input_name, images=given)

    def cached(self, *, seed: int = 0) -> Path:
        """The ONNX file of the same model, built on demand into `build/models`."""
        source = Path(inspect.getfile(self.network))
        return _command.cached(
            self.name, self.build, options=(_command.SEED,), source=source, seed=seed
        )

    def calibration_inputs(self, n: int = 8) -> F32:
        """Inputs to calibrate quantization with, float32 (n, *shape)."""
        return self.inputs(n, _build.CALIBRATION_SEED)

    def sample_inputs(self, n: int, seed: int) -> F32:
        """Other inputs, float32 (n, *shape)."""
        return self.inputs(n, seed)

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """The command line; returns the exit code."""
        inputs = _command.Inputs(self.input_name, self._seeded)
        return _command.main(
            self.name, self.build, arguments, options=(_command.SEED,), inputs=inputs
        )

    def _seeded(self, n: int, seed: int | None, options: Mapping[str, int]) -> np.ndarray:
        return self.inputs(n, _build.CALIBRATION_SEED if seed is None else seed)
