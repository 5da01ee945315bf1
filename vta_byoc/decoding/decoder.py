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
from vta_byoc.decoding.windows import NEXT, windows_of
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.ir.bindings import static_shape
from vta_byoc.options import BuildOptions
from vta_byoc.quantization.qdq import is_quantized
from vta_byoc.quantize import QUANTIZATION, quantize


@dataclass(frozen=True)
class Generated:
    """What a decoder wrote.

    Attributes:
        ids: the tokens behind the prompt.
        text: the same as characters; empty where the model keeps none.
        logits: what each of them was chosen from, float32 (tokens, vocabulary).
        traffic: bytes that the host copied, by name (`vta_byoc.decoding.session.Traffic`).
        runs: how often each program ran, by name.
    """

    ids: tuple[int, ...]
    text: str
    logits: np.ndarray
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
        return encoded(prompt, self.characters)

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
        check_length(len(ids), tokens, self.tokens)
        with self.session(device) as session, shown(progress, "generating") as told:
            rows = []
            for logits in _greedy(session, ids, tokens):
                rows.append(logits)
                if told is not None:
                    told(len(rows), tokens)
            found = tuple(map(likeliest, rows))
            text = "" if self.characters is None else self.characters.decoded(found)
            traffic, runs = session.traffic.as_dict(), dict(session.runs)
            return Generated(found, text, np.stack(rows), traffic, runs)


def encoded(prompt: str | Sequence[int], characters: Characters | None) -> list[int]:
    """A prompt as tokens of a model with these characters.

    Raises:
        VTAError: text for a model without characters, or with others.
    """
    if not isinstance(prompt, str):
        return [int(each) for each in prompt]
    if characters is None:
        raise VTAError(
            f"the prompt is a text of {len(prompt)} characters; the model keeps no characters "
            '(metadata "characters" of an ONNX file); give the prompt as numbers of tokens'
        )
    return characters.encoded(prompt)


def check_length(prompt: int, tokens: int, bucket: int) -> None:
    """Refuse a prompt and wanted tokens that a bucket does not take.

    Raises:
        VTAError: no tokens, or more than the bucket takes.
    """
    if tokens < 1:
        raise VTAError(f"{tokens} tokens are wanted; 1 or more are generated; ask for one")
    if prompt > bucket:
        raise VTAError(
            f"the prompt has {prompt} tokens; the bucket takes {bucket}; shorten the "
            "prompt, or export the model with more tokens"
        )
    if prompt + tokens - 1 > bucket:
        raise VTAError(
            f"{prompt} tokens of the prompt and {tokens} more fill the bucket, which takes "
            f"{bucket}; ask for {bucket - prompt + 1} or fewer, or export the model "
            "with more tokens"
        )


def likeliest(logits: np.ndarray) -> int:
    """The token that is generated behind logits (vocabulary,): the first of the largest."""
    return int(np.argmax(logits))


def _greedy(session: Session, ids: Sequence[int], tokens: int) -> Iterator[np.ndarray]:
    """The logits of the likeliest tokens, one after the other."""
    logits = session.extend(ids)
    yield logits
    for _ in range(tokens - 1):
        logits = session.extend([likeliest(logits)])
        yield logits


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
            embedding or rotary.
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
    check_machine(machine)
    mod = model if isinstance(model, tvm.IRModule) else load_model(model)
    characters = Characters.of(model) if isinstance(model, (str, Path)) else None
    if mod.attrs is None or QUANTIZATION not in mod.attrs:
        check_ids(mod)
        samples = _calibration(mod, characters) if calibration is None else calibration
        mod = quantize(mod, calibration=samples, config=machine, **quantization)
    return compiled_decoder(mod, machine, options, characters)


def compiled_decoder(
    qmod: tvm.IRModule,
    config: VTAConfig,
    options: BuildOptions | None = None,
    characters: Characters | None = None,
) -> Decoder:
    """Compile a decoder that is quantized; see `decoder`.

    Raises:
        VTAError: a model that is no such decoder, or that is not one region.
    """
    windows = windows_of(qmod, config.block)
    return Decoder(qmod, compiled(windows, config, options), characters)


def check_machine(config: VTAConfig) -> None:
    """Refuse a machine that runs no decoder.

    Raises:
        VTAError: it has no MUL, or a BATCH.
    """
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


def check_ids(mod: tvm.IRModule) -> int:
    """The tokens of the bucket of a model whose one input is ids.

    Raises:
        VTAError: it has other inputs.
    """
    params = mod["main"].params
    shapes = [static_shape(param) for param in params]
    integers = all(str(param.ty.dtype).startswith(("int", "uint")) for param in params)
    if len(shapes) != 1 or len(shapes[0]) != 2 or shapes[0][0] != 1 or not integers:
        named = ", ".join(
            f"{param.name} {shape} {param.ty.dtype}"
            for param, shape in zip(params, shapes, strict=True)
        )
        raise VTAError(
            f"the model takes {named}; a decoder takes ids, integers (1, T), and nothing else; "
            f"{NEXT}"
        )
    return shapes[0][1]


def kept_samples(mod: tvm.IRModule, characters: Characters | None) -> list[np.ndarray] | None:
    """Samples of the text that a model's file keeps; None where it keeps none of its length."""
    param = mod["main"].params[0]
    tokens = static_shape(param)[1]
    if characters is None or len(characters.calibration) < tokens:
        return None
    return characters.samples(tokens, str(param.ty.dtype))


def _calibration(mod: tvm.IRModule, characters: Characters | None) -> list[np.ndarray] | None:
    """What to quantize with where nothing is given; None for a model that came quantized."""
    if is_quantized(mod):
        return None
    kept = kept_samples(mod, characters)
    if kept is None:
        raise VTAError(
            "calibration is None and the model keeps no text of its length; quantization reads "
            "samples; give sequences (1, T)"
        )
    return kept
