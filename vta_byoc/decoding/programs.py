"""The two programs of a decoder: one of all tokens of a bucket, one of a window of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.decoding.halves import Halves, halves_of, region_program
from vta_byoc.decoding.windows import Windows
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.ir.bindings import FunctionWriter, straight_bindings, substituted, with_main
from vta_byoc.options import BuildOptions
from vta_byoc.partitioning.appended import kept_caches
from vta_byoc.pipeline import partition_for_vta
from vta_byoc.strategies.attention.attention import packed_mask


@dataclass(frozen=True)
class DecoderPrograms:
    """A decoder compiled.

    Attributes:
        windows: what was compiled.
        prefill: all tokens of the bucket at once.
        step: a window of them, with the caches as states of its program.
        caches: the symbol of each cache: a result of `prefill`, a state of `step`.
        sliding: by the constants of the step's program that slide, one of the constants of
            `windows` that has its values.
    """

    windows: Windows
    prefill: Halves
    step: Halves
    caches: tuple[tuple[str, str], ...]
    sliding: Mapping[str, str]

    @property
    def config(self) -> VTAConfig:
        """The machine."""
        return self.step.program.config

    @property
    def vocabulary(self) -> int:
        """How many tokens there are: a logit for each."""
        return int(self.windows.prefill["main"].ret_ty.fields[0].shape[-1])


def compiled(
    windows: Windows, config: VTAConfig, options: BuildOptions | None = None
) -> DecoderPrograms:
    """Compile both functions of a decoder.

    Raises:
        VTAError: the machine does not run it as one region, or caches that are not in whole blocks.
    """
    chosen = dataclasses.replace(options or BuildOptions(), config=config)
    prefill = halves_of(partition_for_vta(windows.prefill, options=chosen), config)
    first, others = dict.fromkeys(windows.sliding, 0), _other_blocks(windows)
    with kept_caches():
        step = halves_of(partition_for_vta(_step(windows, first), options=chosen), config)
        other = region_program(partition_for_vta(_step(windows, others), options=chosen), config)
    states = [f"{cache.name}_full" for cache in windows.caches]
    found = {s.name for s in step.program.of_kind("state")}
    pairs = tuple(zip(prefill.others, states, strict=True))
    for cache, (whole, state) in zip(windows.caches, pairs, strict=True):
        if state not in found or not _alike(prefill, whole, step, state):
            raise VTAError(
                f"a cache of shape {cache.shape} has no one layout in both programs; heads and "
                f"lengths of whole blocks of {config.block} have; change the heads of the model"
            )
    sliding = _sliding(windows, step, config)
    _check_slides(windows, step.program, other, sliding)
    return DecoderPrograms(windows, prefill, step, pairs, sliding)


def _alike(prefill: Halves, whole: str, step: Halves, state: str) -> bool:
    one, two = prefill.program.symbol(whole), step.program.symbol(state)
    return (one.shape, one.dtype) == (two.shape, two.dtype)


def _other_blocks(windows: Windows) -> dict[str, int]:
    """By sliding constant the first window that has it otherwise than window 0; 0: none has."""
    found = {}
    for name, sliding in windows.sliding.items():
        first = sliding.at(0)
        blocks = range(1, windows.blocks)
        found[name] = next((b for b in blocks if not np.array_equal(sliding.at(b), first)), 0)
    return found


def _step(windows: Windows, blocks: Mapping[str, int]) -> tvm.IRModule:
    """The function of a window for VTA: integers of the windows ``blocks``, the logits alone."""
    main = windows.step["main"]
    env: dict[relax.Var, relax.Expr] = {}
    for param in main.params:
        sliding = windows.sliding.get(str(param.name))
        if sliding is not None and sliding.values.dtype.kind == "i":
            rows = sliding.at(blocks[str(param.name)])
            env[param] = relax.const(rows, str(rows.dtype))
    params = [param for param in main.params if param not in env]
    writer = FunctionWriter()
    for binding in straight_bindings(main):
        env[binding.var] = writer.emit(substituted(binding.value, env), str(binding.var.name))
    made = writer.finish(main, substituted(main.body.body.fields[0], env))
    short = relax.Function(params, made.body, ret_ty=made.ret_ty, attrs=made.attrs)
    return with_main(windows.step, short)


def _sliding(windows: Windows, step: Halves, config: VTAConfig) -> dict[str, str]:
    """The constants of the step's program that slide, by what they hold."""
    program = step.program
    found: dict[str, str] = {}
    left: dict[bytes, list[str]] = {}
    for name, sliding in windows.sliding.items():
        if sliding.values.dtype.kind == "i":
            left.setdefault(packed(windows, name, 0, config).tobytes(), []).append(name)
    for symbol in program.of_kind("const"):
        names = left.pop(_octets(program, symbol.name), None)
        if names is not None:
            found[symbol.name] = names[0]
    if left:
        raise VTAError(_no_layout(f'the constant "{next(iter(left.values()))[0]}"'))
    return found


def _check_slides(
    windows: Windows, first: Program, other: Program, sliding: Mapping[str, str]
) -> None:
    """Refuse constants that other windows have otherwise and that do not slide there.

    Bytes alone do not say that all constants were found: those of another layout may come from
    rows that are equal to some that were.
    """
    blocks = _other_blocks(windows)
    for symbol in (*first.of_kind("const"), *first.of_kind("uop")):
        name, wanted = sliding.get(symbol.name), _octets(first, symbol.name)
        if name is not None:
            wanted = packed(windows, name, blocks[name], first.config).tobytes()
        if _octets(other, symbol.name) != wanted:
            raise VTAError(_no_layout(f"a constant of shape {symbol.shape}"))
    assert np.array_equal(first.insns, other.insns), "windows differ in their constants alone"


def _octets(program: Program, name: str) -> bytes:
    """What a program's image has for a constant."""
    symbol = program.symbol(name)
    begin = symbol.offset - program.input_bytes
    return program.image[begin : begin + symbol.nbytes].tobytes()


def _no_layout(constant: str) -> str:
    return (
        f"{constant} has a row a token and lies in no layout that slides; give the model positions "
        "in its embedding"
    )


def packed(windows: Windows, name: str, block: int, config: VTAConfig) -> np.ndarray:
    """A constant that slides, as the program of window number ``block`` has it."""
    values = windows.sliding[name].at(block)
    if name in windows.masks:
        rows, keys = values.shape[-2:]
        return packed_mask(values.reshape(-1, rows, keys), config.block)
    return values
