"""Collects layers into one Program: symbols, constants, instructions, tokens, layer map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import MemType
from vta_byoc.hw.program import Layer, Program, Relocation, Symbol, link

from .emit import UOPS, ZEROS, LeafEmitter
from .linear import CodegenError
from .stream import TokenAssigner, layer_spans
from .uops import BEST, FoldMode, UopBuffer
from .walk import Walker, lower


class ProgramBuilder:
    """Builds one Program from scheduled PrimFuncs, layer by layer.

    Declare the tensors with :meth:`symbol` and :meth:`constant`, add layers in execution order
    with :meth:`layer`, then :meth:`finish`.
    """

    def __init__(self, config: VTAConfig, fold: FoldMode = BEST):
        self._config = config
        self._fold = fold
        self._symbols: list[Symbol] = []
        self._names: set[str] = set()
        self._constants: dict[str, np.ndarray] = {}
        self._uops = UopBuffer(config, fold)
        self._tokens = TokenAssigner(config.capabilities.max_tokens)
        self._layers: list[tuple[str, str]] = []
        self._needs_zeros = False

    def symbol(
        self,
        name: str,
        kind: str,
        shape: Sequence[int],
        dtype: str,
        scope: str = "global",
        align: int | None = None,
    ) -> str:
        """Declare a tensor (kinds of :mod:`vta_byoc.hw.program`); returns its name.

        ``align`` is in bytes; by default the largest element of any memory type.
        """
        if name in self._names:
            raise CodegenError(f"symbol {name!r} is declared twice; give tensors distinct names")
        self._names.add(name)
        self._symbols.append(
            Symbol(name, kind, tuple(int(s) for s in shape), dtype, align or self._align(), scope)
        )
        return name

    def _align(self) -> int:
        return max(dram_elem_bytes(self._config, mem) for mem in MemType)

    def constant(
        self, name: str, value: np.ndarray, scope: str = "global", align: int | None = None
    ) -> str:
        """Declare a tensor with its contents, placed in the program's image."""
        self._constants[name] = value
        return self.symbol(name, "const", value.shape, str(value.dtype), scope, align)

    def layer(self, name: str, func: tirx.PrimFunc, args: Sequence[str]) -> None:
        """Emit the scheduled PrimFunc ``func`` with its parameters bound to symbols ``args``."""
        lowered = lower(func)
        if len(args) != len(lowered.params):
            raise CodegenError(
                f"layer {name}: {len(args)} symbols for {len(lowered.params)} parameters; "
                "bind each parameter once"
            )
        for param, arg in zip(lowered.params, args, strict=True):
            self._check_argument(name, param, arg)
        number = len(self._layers)
        self._layers.append((name, args[-1]))
        symbols = dict(zip(lowered.params, args, strict=True))
        emitter = LeafEmitter(self._config, self._uops, self._fold, symbols, number)
        try:
            Walker(self._config, lowered, emitter).run()
        except CodegenError as err:
            raise CodegenError(f"layer {name}: {err}") from err
        self._needs_zeros |= emitter.needs_zeros
        for insn in emitter.insns:
            self._tokens.add(insn)

    def _check_argument(self, layer: str, param: tirx.Var, arg: str) -> None:
        """A symbol must hold exactly the tensor that the function walks over."""
        symbol = next((s for s in self._symbols if s.name == arg), None)
        if symbol is None:
            raise CodegenError(f"layer {layer}: symbol {arg} is not declared; declare it first")
        if not hasattr(param, "shape"):
            raise CodegenError(
                f"layer {layer}: parameter {param.name} is a scalar; VTA functions take tensors; "
                "specialise it"
            )
        want = (int(np.prod([int(d) for d in param.shape], dtype=np.int64)), str(param.dtype))
        have = (int(np.prod(symbol.shape, dtype=np.int64)), symbol.dtype)
        if want != have:
            raise CodegenError(
                f"layer {layer}: parameter {param.name} is {want[0]} x {want[1]}, symbol {arg} "
                f"{have[0]} x {have[1]}; bind a tensor of the same size and type"
            )

    def finish(self) -> Program:
        """End the stream and link it."""
        self._tokens.finish(max(len(self._layers) - 1, 0))
        self._declare_tables()
        insns = self._tokens.out
        relocations = [
            Relocation(i, insn.symbol, insn.addend)
            for i, insn in enumerate(insns)
            if insn.symbol is not None
        ]
        layers = [Layer(*self._named(span)) for span in layer_spans(insns)] if self._layers else []
        return link(
            self._config,
            [(insn.opcode, insn.fields) for insn in insns],
            self._symbols,
            self._constants,
            relocations,
            layers,
        )

    def _named(self, span: tuple[int, int, int]) -> tuple[str, int, int, str]:
        number, begin, end = span
        name, output = self._layers[number]
        return name, begin, end, output

    def _declare_tables(self) -> None:
        if self._uops.words:
            words = np.array(self._uops.words, np.uint32)
            self._constants[UOPS] = words
            self.symbol(UOPS, "uop", words.shape, "uint32", align=self._config.uop_elem_bytes)
        if self._needs_zeros:
            self.constant(ZEROS, np.zeros(self._align(), np.int8))
