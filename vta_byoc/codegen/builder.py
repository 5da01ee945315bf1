"""Collects layers into one Program: symbols, constants, instructions, tokens, layer map."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from tvm import tirx

from vta_byoc.codegen.acc_places import place_accumulators
from vta_byoc.codegen.early_loads import early_loads
from vta_byoc.codegen.emit import ZEROS
from vta_byoc.codegen.kernel_streams import KernelStreams
from vta_byoc.codegen.linear import CodegenError
from vta_byoc.codegen.resident import Residency
from vta_byoc.codegen.stream import DRAM, Insn, Interval, TokenAssigner, layer_spans
from vta_byoc.codegen.uop_loads import UOPS, with_uop_loads
from vta_byoc.codegen.uops import BEST, LoopCompression, UopBuffer
from vta_byoc.codegen.views import View, check_view, views_of
from vta_byoc.codegen.weight_places import place_weights
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import MemType
from vta_byoc.hw.program.arena import ArenaPlan, Lifetime, Tenant, plan_arena
from vta_byoc.hw.program.program import STORED, Layer, Program, Relocation, Symbol, link, root_of

LOG = logging.getLogger(__name__)
ARENA = DRAM
"""The space of the symbols that may share bytes; no symbol has an empty name."""


def _placed(interval: Interval, places: Mapping[str, tuple[str, int]]) -> Interval:
    """An interval in a symbol as one in the space that it is a part of."""
    space, low, high = interval
    if space not in places:
        return interval
    whole, first = places[space]
    return whole, low + first, high + first


AHEAD_16 = 15
"""Sixteenths of the SRAM for weights that those which are loaded ahead have; others are beside."""


class ProgramBuilder:
    """Builds one Program from scheduled PrimFuncs, layer by layer.

    Declare the tensors with :meth:`symbol` and :meth:`constant`, add layers in execution order
    with :meth:`layer`, then :meth:`finish`.  A layer may be several PrimFuncs.
    ``reuse_resident`` leaves out every LOAD of what is in its place in SRAM already, ``join_uops``
    loads the micro-ops of a kernel together, and ``load_early`` loads what does not wait for a
    result before what does, in places of SRAM that are free by then.  ``weights_ahead`` gives
    weights all of SRAM for that.  ``streams`` are those of builders of the same kernels.
    """

    def __init__(
        self,
        config: VTAConfig,
        compression: LoopCompression = BEST,
        *,
        reuse_resident: bool = False,
        join_uops: bool = False,
        load_early: bool = False,
        weights_ahead: bool = False,
        streams: KernelStreams | None = None,
    ):
        self._config = config
        self._compression = compression
        self._kernels = streams or KernelStreams()
        self._symbols: list[Symbol] = []
        self._names: set[str] = set()
        self._constants: dict[str, np.ndarray] = {}
        self._uops = UopBuffer(config, compression)
        self._tokens = TokenAssigner(config.capabilities.max_tokens)
        self._streams: list[list[Insn]] = []
        self._join_uops, self._load_early, self._ahead = join_uops, load_early, weights_ahead
        self._layers: list[tuple[str, str]] = []
        self._needs_zeros = False
        self._plan: ArenaPlan | None = None
        self._residency = Residency(config) if reuse_resident else None

    def symbol(
        self,
        name: str,
        kind: str,
        shape: Sequence[int],
        dtype: str,
        scope: str = "global",
        align: int | None = None,
        inside: tuple[str, int] | None = None,
    ) -> str:
        """Declare a tensor (kinds of :mod:`vta_byoc.hw.program.program`); returns its name.

        ``align`` is in bytes; by default the largest element of any memory type.  ``inside``: the
        symbol that it is a part of, and its first byte there.
        """
        if name in self._names:
            raise CodegenError(f"symbol {name!r} is declared twice; give tensors distinct names")
        self._names.add(name)
        self._symbols.append(
            Symbol(
                name,
                kind,
                tuple(int(s) for s in shape),
                dtype,
                align or self._align(),
                scope,
                parent=inside[0] if inside else "",
                inside=inside[1] if inside else 0,
            )
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

    def share(self, lifetimes: Mapping[str, Lifetime]) -> None:
        """Let the temporaries and outputs declared so far share bytes where they can.

        ``lifetimes`` are by name, in steps: from the one that stores the tensor to the last that
        reads it, for an output to one behind the last.  A tensor without one, or with a part
        without one, and whatever is declared later, keeps a place of its own.

        Raises:
            CodegenError: a name is of no such tensor, or layers came before.
        """
        if self._layers:
            raise CodegenError(
                f"share() after {len(self._layers)} layers; tokens depend on which tensors share "
                "bytes; call it before the first layer"
            )
        by_name = {s.name: s for s in self._symbols}
        for name in lifetimes:
            if name not in by_name or by_name[name].kind not in STORED:
                raise CodegenError(
                    f"a lifetime for {name}; only temporaries and outputs that are declared have "
                    "one; declare it first"
                )
        family: dict[str, list[Symbol]] = {}
        for sym in self._symbols:
            if sym.kind in STORED:
                family.setdefault(root_of(sym, by_name)[0], []).append(sym)
        tenants = []
        for root, members in family.items():
            if all(s.name in lifetimes for s in members):
                alive = lifetimes[root]
                for sym in members:
                    alive = alive.union(lifetimes[sym.name])
                tenants.append(Tenant(root, by_name[root].nbytes, by_name[root].align, alive))
        self._plan = plan_arena(tenants)

    def _places(self) -> dict[str, tuple[str, int]]:
        """By space of a symbol: the space that it is a part of, and its first byte there."""
        by_name = {s.name: s for s in self._symbols}
        offsets = self._plan.offsets if self._plan is not None else {}
        places: dict[str, tuple[str, int]] = {}
        for sym in self._symbols:
            root, inside = root_of(sym, by_name)
            if root in offsets:
                places[DRAM + sym.name] = ARENA, offsets[root] + inside
            elif sym.parent:
                places[DRAM + sym.name] = DRAM + root, inside
        return places

    def _states(self) -> dict[str, Interval]:
        """By space of a state: all of it."""
        states = (s for s in self._symbols if s.kind == "state")
        return {DRAM + s.name: (DRAM + s.name, 0, s.nbytes) for s in states}

    def layer(self, name: str, func: tirx.PrimFunc, args: Sequence[str]) -> None:
        """Emit the scheduled PrimFunc ``func`` with its parameters bound to symbols ``args``.

        A parameter is all of its symbol, or a part where ``func`` has a view of it
        (:func:`~vta_byoc.codegen.with_views`); a symbol may be bound to several.  The name of the
        layer before adds a part to that layer.
        """
        lowered = self._kernels.lowered(func)
        room = self._config.wgt_depth * AHEAD_16 // 16 if self._ahead else 0
        try:
            self._check_arguments(lowered, args)
            number = self._number(name, args[-1])
            written = self._kernels.written(func, self._config, self._compression, room)
        except CodegenError as err:
            raise CodegenError(f"layer {name}: {err}") from err
        self._needs_zeros |= written.needs_zeros
        places = self._places()
        states = self._states()
        insns = written.bound(args, number)
        for insn in insns:
            if insn.symbol is None:
                continue
            if states:  # where in it a session lets the program store is not known yet
                insn.writes = [states.get(interval[0], interval) for interval in insn.writes]
            if places:
                insn.reads = [_placed(interval, places) for interval in insn.reads]
                insn.writes = [_placed(interval, places) for interval in insn.writes]
        self._streams.append(insns)

    def _number(self, name: str, output: str) -> int:
        """Number of layer ``name``: that of the last one if it is called so, or a new one."""
        if self._layers and self._layers[-1][0] == name:
            self._layers.pop()
        self._layers.append((name, output))
        return len(self._layers) - 1

    def _check_arguments(self, func: tirx.PrimFunc, args: Sequence[str]) -> None:
        """Every parameter must have a symbol that holds its tensor."""
        if len(args) != len(func.params):
            raise CodegenError(
                f"{len(args)} symbols for {len(func.params)} parameters; bind each parameter once"
            )
        views = views_of(func)
        for param, arg in zip(func.params, args, strict=True):
            self._check_argument(param, arg, views.get(param))

    def _check_argument(self, param: tirx.Var, arg: str, view: View | None) -> None:
        """A symbol must hold the tensor that the function walks over."""
        symbol = next((s for s in self._symbols if s.name == arg), None)
        if symbol is None:
            raise CodegenError(f"symbol {arg} is not declared; declare it first")
        if not hasattr(param, "shape"):
            raise CodegenError(
                f"parameter {param.name} is a scalar; VTA functions take tensors; specialise it"
            )
        want, dtype = int(np.prod([int(d) for d in param.shape], dtype=np.int64)), str(param.dtype)
        have = int(np.prod(symbol.shape, dtype=np.int64))
        if dtype != symbol.dtype or (view is None and want != have):
            raise CodegenError(
                f"parameter {param.name} is {want} x {dtype}, symbol {arg} {have} x "
                f"{symbol.dtype}; bind a tensor of the same size and type"
            )
        if view is not None:
            check_view(self._config, param, view, arg, have)

    def finish(self) -> Program:
        """End the stream and link it."""
        self._link()
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
            self._plan,
        )

    def _link(self) -> None:
        """One stream of the instructions of all kernels, with tokens.

        Where the order with early loads needs more tokens than the machine counts, the other one is
        taken.
        """
        insns, last = self._needed(), max(len(self._layers) - 1, 0)
        if self._load_early:
            kept = [insn.fields.copy() for insn in insns]
            try:
                self._assign(early_loads(insns, self._config, self._ahead), last)
                return
            except VTAError as err:
                LOG.info("loads keep their order: %s", err)
                for insn, fields in zip(insns, kept, strict=True):
                    insn.fields = fields
        self._assign(insns, last)

    def _assign(self, insns: Iterable[Insn], last: int) -> None:
        self._tokens = TokenAssigner(self._config.capabilities.max_tokens)
        for insn in insns:
            self._tokens.add(insn)
        self._tokens.finish(last)

    def _needed(self) -> list[Insn]:
        """The instructions in the order of the kernels, micro-ops and weights in their places."""
        if self._load_early:
            place_weights(self._streams, self._config.wgt_depth)
            if not self._ahead:  # the port is waited for most, which brings more micro-ops then
                place_accumulators(self._streams, self._config.acc_depth)
        found: list[Insn] = []
        for stream in self._streams:
            for insn in with_uop_loads(stream, self._uops, joined=self._join_uops):
                if self._residency is None or self._residency.needs(insn):
                    found.append(insn)
        return found

    def blocks(self) -> list[str]:
        """The block that each instruction of a finished program executes a part of, in order.

        It is "" for the instructions that move tokens only, FINISH among them.
        """
        return [insn.block for insn in self._tokens.out]

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
