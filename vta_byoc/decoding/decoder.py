"""A decoder for users: quantized once, compiled to two programs, sessions that generate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from vta_byoc.base.progress import Progress, shown
from vta_byoc.decoding.characters import Characters
from vta_byoc.decoding.programs import DecoderPrograms, compiled
from vta_byoc.decoding.session import Session
from vta_byoc.decoding.windows import windows_of
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.options import BuildOptions
from vta_byoc.quantize import QUANTIZATION, quantize


@dataclass(frozen=True)
class Generated:
    """What a decoder wrote.

    Attributes:
        ids: the tokens behind the prompt.
        text: the same as characters; empty where the model keeps none.
        traffic: bytes that the host copied, by name (`vta_byoc.decoding.session.Traffic`).
        runs: how often each program ran, by name.
    """

    ids: tuple[int, ...]
    text: str
    traffic: Mapping[str, int]
    runs: Mapping[str, int]


@dataclass(frozen=True)
class Decoder:
    """A decoder compiled for a machine.

    Attributes:
        qmod: the model in the integer dialect: the reference.
        programs: what runs.
        characters: what its tokens are; None where the model does not say.
    """

    qmod: tvm.IRModule
    programs: DecoderPrograms
    characters: Characters | None = None

    @property
    def tokens(self) -> int:
        """Of the longest sequence: the bucket."""
        return self.programs.windows.tokens

    def session(self, device: str = "sim") -> Session:
        """A new sequence on a device, whose memory keeps weights and caches."""
        return Session(self.programs, device)

    def encoded(self, prompt: str | Sequence[int]) -> list[int]:
        """A prompt as tokens.

        Raises:
            VTAError: text for a model without characters, or with others.
        """
        if not isinstance(prompt, str):
            return [int(each) for each in prompt]
        if self.characters is None:
            raise VTAError(
                f"the prompt is a text of {len(prompt)} characters; the model keeps no characters "
                '(metadata "characters" of an ONNX file); give the prompt as numbers of tokens'
            )
        return self.characters.encoded(prompt)

    def generate(
        self,
        prompt: str | Sequence[int],
        tokens: int,
        *,
        device: str = "sim",
        progress: Progress | None = None,
    ) -> Generated:
        """The likeliest token, `tokens` times, behind a prompt.

        Args:
            prompt: text, where the model keeps its characters, or tokens.
            tokens: how many are wanted.
            device: where the programs run.
            progress: called after each token with how many there are and are wanted; when None a
                terminal and a notebook show a bar.

        Raises:
            VTAError: prompt and result are no tokens, or longer than the bucket.
        """
        ids = self.encoded(prompt)
        self._check_length(len(ids), tokens)
        with self.session(device) as session, shown(progress, "generating") as told:
            found = []
            for token in _greedy(session, ids, tokens):
                found.append(token)
                if told is not None:
                    told(len(found), tokens)
            text = "" if self.characters is None else self.characters.decoded(found)
            return Generated(tuple(found), text, session.traffic.as_dict(), dict(session.runs))

    def _check_length(self, prompt: int, tokens: int) -> None:
        if tokens < 1:
            raise VTAError(f"{tokens} tokens are wanted; 1 or more are generated; ask for one")
        if prompt > self.tokens:
            raise VTAError(
                f"the prompt has {prompt} tokens; the bucket takes {self.tokens}; shorten the "
                "prompt, or export the model with more tokens"
            )
        if prompt + tokens - 1 > self.tokens:
            raise VTAError(
                f"{prompt} tokens of the prompt and {tokens} more fill the bucket, which takes "
                f"{self.tokens}; ask for {self.tokens - prompt + 1} or fewer, or export the model "
                "with more tokens"
            )


def _greedy(session: Session, ids: Sequence[int], tokens: int) -> Iterator[int]:
    """The likeliest tokens, one after the other."""
    logits = session.extend(ids)
    for number in range(tokens):
        token = int(np.argmax(logits))
        yield token
        if number + 1 < tokens:
            logits = session.extend([token])


def decoder(
    model: str | Path | tvm.IRModule | Any,  # or an exported program of PyTorch
    config: VTAConfig | None = None,
    *,
    calibration: Iterable[Any] | None = None,
    options: BuildOptions | None = None,
    **quantization: Any,  # of `vta_byoc.quantize`
) -> Decoder:
    """Compile a decoder of language: one program for prompts, one for the next token.

    Args:
        model: a file or program of `load_model`, its module, or one that is quantized: ids
            (1, T) to logits (1, T, vocabulary), causal. T is the longest sequence, the bucket: two
            blocks of the machine's vectors or more, in whole blocks. Its positions are in the
            embedding; rotary ones are refused.
        config: the machine; the default preset when None.
        calibration: sequences (1, T) to quantize with; when None the text that the model's file
            keeps.
        options: of both programs.
        quantization: options of `vta_byoc.quantize`.

    Raises:
        VTAError: a model that is no such decoder, a machine that does not run it as one region
            (without MUL, or with a BATCH), nothing to calibrate with.
    """
    machine = config or VTAConfig.preset("sim")
    characters = None
    if isinstance(model, (str, Path)) and str(model).endswith(".onnx"):
        mod = load_model(model)
        characters = Characters.of(Path(model))
    else:
        mod = model if isinstance(model, tvm.IRModule) else load_model(model)
    _check_machine(machine)
    if mod.attrs is None or QUANTIZATION not in mod.attrs:
        samples = calibration if calibration is not None else _kept(mod, characters)
        mod = quantize(mod, calibration=samples, config=machine, **quantization)
    windows = windows_of(mod, machine.block)
    return Decoder(mod, compiled(windows, machine, options), characters)


def _check_machine(config: VTAConfig) -> None:
    if not config.capabilities.mul:
        raise VTAError(
            f"machine {config.name} has no MUL; softmax and normalizations of a decoder multiply; "
            "use a machine with CAPABILITIES.mul"
        )
    if config.batch != 1:
        raise VTAError(
            f"machine {config.name} has BATCH {config.batch}; a decoder takes 1: a weight serves "
            "all images of a batch; use a machine with BATCH 1"
        )


def _kept(mod: tvm.IRModule, characters: Characters | None) -> list[np.ndarray]:
    """Samples of the text that the model's file keeps."""
    param = mod["main"].params[0]
    shape = [int(size) for size in param.ty.shape]
    if characters is None or len(shape) != 2 or len(characters.calibration) < shape[1]:
        raise VTAError(
            "calibration is None and the model keeps no text of its length; quantization reads "
            "samples; give sequences (1, T)"
        )
    return characters.samples(shape[1], str(param.ty.dtype))
