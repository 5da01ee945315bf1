"""The two programs of a decoder: one of all tokens of a bucket, one of a window of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.decoding.halves import Halves, halves_of, region_program
from vta_byoc.decoding.sliding import Held, layouts
from vta_byoc.decoding.windows import Cache, Windows
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.ir.bindings import (
    FunctionWriter,
    constant_of,
    straight_bindings,
    substituted,
    with_main,
)
from vta_byoc.options import BuildOptions
from vta_byoc.partitioning.appended import kept_caches
from vta_byoc.pipeline import partition_for_vta


@dataclass(frozen=True)
class DecoderPrograms:
    """A decoder compiled.

    Attributes:
        windows: what was compiled.
        prefill: all tokens of the bucket at once.
        step: a window of them, with the caches as states of its program.
        caches: the symbol of each cache: a result of `prefill`, a state of `step`.
        sliding: the constants of the step's program that slide, and which of the constants of
            `windows` each holds.
    """

    windows: Windows
    prefill: Halves
    step: Halves
    caches: tuple[tuple[str, str], ...]
    sliding: Mapping[str, Held]

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
    for cache in windows.caches:
        _check_head(cache, config)
    prefill = halves_of(partition_for_vta(windows.prefill, options=chosen), config)
    one, two = (_rows(windows, blocks) for blocks in _two_windows(windows))
    with kept_caches():
        step = halves_of(partition_for_vta(_step(windows, one), options=chosen), config)
        other = region_program(partition_for_vta(_step(windows, two), options=chosen), config)
    states = [f"{cache.name}_full" for cache in windows.caches]
    found = {s.name for s in step.program.of_kind("state")}
    pairs = tuple(zip(prefill.others, states, strict=True))
    for cache, (whole, state) in zip(windows.caches, pairs, strict=True):
        if state not in found or not _alike(prefill, whole, step, state):
            raise VTAError(
                f"a cache of shape {cache.shape} has no one layout in both programs; heads and "
                f"lengths of whole blocks of {config.block} have; change the heads of the model"
            )
    sliding = sliding_constants(windows, step.program, one)
    check_slides(windows, step.program, other, sliding, two)
    return DecoderPrograms(windows, prefill, step, pairs, sliding)


def _check_head(cache: Cache, config: VTAConfig) -> None:
    """Refuse heads of which keys and values are no whole blocks."""
    size, block = cache.head, config.block
    if size % block:
        raise VTAError(
            f"a head has {size} channels; caches keep keys and values in whole blocks of "
            f"{block}, the machine's BLOCK; export the model with heads of "
            f"{-(-size // block) * block} channels"
        )


def _alike(prefill: Halves, whole: str, step: Halves, state: str) -> bool:
    one, two = prefill.program.symbol(whole), step.program.symbol(state)
    return (one.shape, one.dtype) == (two.shape, two.dtype)


def _two_windows(windows: Windows) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """By sliding constant window 0, and the first that has it otherwise; 0 again: none has."""
    others = {}
    for name, sliding in windows.sliding.items():
        first = sliding.at(0)
        blocks = range(1, windows.blocks)
        others[name] = next((b for b in blocks if not np.array_equal(sliding.at(b), first)), 0)
    return dict.fromkeys(windows.sliding, 0), others


def _rows(windows: Windows, blocks: Mapping[str, int]) -> dict[str, np.ndarray]:
    """What the integer constants that slide are while a window is compiled.

    That of a mask is as it is: every window shows and hides.  Others reach as far as those of all
    windows, so that what is proven of one program holds for every window.
    """
    found = {}
    for name, sliding in windows.sliding.items():
        if sliding.values.dtype.kind == "i":
            block = blocks[name]
            mask = name in windows.masks
            found[name] = sliding.at(block) if mask else sliding.widest(block)
    return found


def _step(windows: Windows, rows: Mapping[str, np.ndarray]) -> tvm.IRModule:
    """The function of a window for VTA: with integer constants ``rows``, the logits alone."""
    main = windows.step["main"]
    env: dict[relax.Var, relax.Expr] = {}
    for param in main.params:
        values = rows.get(str(param.name))
        if values is not None:
            env[param] = constant_of(values)
    params = [param for param in main.params if param not in env]
    writer = FunctionWriter()
    for binding in straight_bindings(main):
        env[binding.var] = writer.emit(substituted(binding.value, env), str(binding.var.name))
    made = writer.finish(main, substituted(main.body.body.fields[0], env))
    short = relax.Function(params, made.body, ret_ty=made.ret_ty, attrs=made.attrs)
    return with_main(windows.step, short)


def sliding_constants(
    windows: Windows, program: Program, rows: Mapping[str, np.ndarray]
) -> dict[str, Held]:
    """The constants of the step's program that slide, by the bytes of ``rows`` in it.

    Constants of equal bytes may be held for each other, as those of queries and of keys, if they
    are equal in all windows.
    """
    found: dict[str, Held] = {}
    left = set(rows)
    for symbol in program.of_kind("const"):
        octets = _octets(program, symbol.name)
        for name in rows:
            held = _held(windows, name, rows[name], octets, program.config.block)
            if held is None:
                continue
            left.discard(name)
            first = found.setdefault(symbol.name, held).name
            sliding = windows.sliding
            if not np.array_equal(sliding[name].values, sliding[first].values):
                raise VTAError(_no_layout(f'the constant "{name}"'))
    if left:
        raise VTAError(_no_layout(f'the constant "{min(left)}"'))
    return found


def _held(
    windows: Windows, name: str, values: np.ndarray, octets: bytes, lanes: int
) -> Held | None:
    """How ``octets`` hold a constant; None where they do not."""
    sliding, mask = windows.sliding[name], name in windows.masks
    copies = 1 if mask else len(octets) // values.nbytes
    found = (Held(name, layout, copies) for layout in layouts(sliding, mask, lanes))
    return next((h for h in found if h.packed(sliding, values, lanes).tobytes() == octets), None)


def check_slides(
    windows: Windows,
    first: Program,
    other: Program,
    sliding: Mapping[str, Held],
    rows: Mapping[str, np.ndarray],
) -> None:
    """Refuse constants that another window, of ``rows``, has otherwise and that do not slide there.

    Bytes alone do not say that all constants were found: those of another layout may come from
    rows that are equal to some that were.
    """
    for symbol in (*first.of_kind("const"), *first.of_kind("uop")):
        held, wanted = sliding.get(symbol.name), _octets(first, symbol.name)
        if held is not None:
            values, lanes = rows[held.name], first.config.block
            wanted = held.packed(windows.sliding[held.name], values, lanes).tobytes()
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


def packed(windows: Windows, held: Held, block: int, config: VTAConfig) -> np.ndarray:
    """A constant that slides, flat, as the program of window number ``block`` has it."""
    sliding = windows.sliding[held.name]
    return held.packed(sliding, sliding.at(block), config.block)
