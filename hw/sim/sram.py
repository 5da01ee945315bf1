# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""The interpreter's on-chip memories: how each is kept, filled and read back.

UOP is uint32, one word an element; ACC int32, batch by block; INP and WGT are int32 words whose
packing is that of ``hw/sim/dot.py``.  LOAD moves parts: an ACC vector, an INP row, a WGT row.

Depths and counters are said here again and not read from ``isa.MEMORY_TYPES``: the simulator is an
opinion of its own, which the tests compare with the table, the numpy model and the verifier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm.script import tirx as T

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES, dram_elem_bytes
from vta_byoc.hw.isa import MemType
from vta_byoc.hw.sim.dot import Dot, Expr, load, store, vector

SLOT = {name: i for i, name in enumerate(COUNTER_NAMES)}
"""Where each published counter stands in the counters of a run."""


@dataclass(frozen=True)
class Machine:
    """What the interpreter is specialised to: a configuration and a way to multiply."""

    config: VTAConfig
    dot: Dot

    @property
    def lanes(self) -> int:
        """int32 lanes of the vectors it computes with."""
        return self.dot.lanes

    @property
    def groups(self) -> int:
        """Words that hold the channels of one block."""
        return self.config.block // self.dot.group

    @property
    def inp_words(self) -> int:
        """int32 words of one INP element; the others likewise."""
        return self.config.batch * self.groups

    @property
    def wgt_words(self) -> int:
        """int32 words of one WGT element, its bias included."""
        return self.groups * self.config.block + self.dot.bias_words(self.config.block)

    @property
    def acc_words(self) -> int:
        """int32 words of one ACC element."""
        return self.config.batch * self.config.block

    @property
    def acc_vectors(self) -> int:
        """Vectors of `lanes` in one ACC element."""
        return self.acc_words // self.lanes


@dataclass(frozen=True)
class Memory:
    """A LOAD destination.

    An element is ``elem_bytes`` in DRAM, moved as ``parts`` of equal size.  ``put(m, s, element,
    part, bytes)`` emits the store of one part, given as an int8 vector; ``finish(m, s, element)``
    what follows once an element is complete.  ``counter`` names the counter of its bytes.
    """

    depth: int
    elem_bytes: int
    parts: int
    counter: str
    put: Callable[[Machine, Any, Expr, Expr, Expr], None]
    finish: Callable[[Machine, Any, Expr], None] = lambda m, s, element: None

    @property
    def part_bytes(self) -> int:
        """Bytes that are moved at a time."""
        return self.elem_bytes // self.parts


def memories(m: Machine) -> dict[MemType, Memory]:
    """Every memory type that LOAD takes."""
    c = m.config
    size = {t: dram_elem_bytes(c, t) for t in MemType}
    acc, acc_8bit = MemType.ACC, MemType.ACC_8BIT
    return {
        MemType.UOP: Memory(c.uop_depth, size[MemType.UOP], 1, "uop_load_nbytes", _put_uop),
        MemType.WGT: Memory(
            c.wgt_depth, size[MemType.WGT], c.block, "wgt_load_nbytes", _put_wgt, _put_bias
        ),
        MemType.INP: Memory(c.inp_depth, size[MemType.INP], c.batch, "inp_load_nbytes", _put_inp),
        acc: Memory(c.acc_depth, size[acc], m.acc_vectors, "acc_load_nbytes", _put_acc),
        acc_8bit: Memory(
            c.acc_depth, size[acc_8bit], m.acc_vectors, "acc_load_nbytes", _put_acc_8bit
        ),
    }


def _put_uop(m: Machine, s: Any, element: Expr, part: Expr, data: Expr) -> None:
    store(s.uop, element, 1, T.reinterpret("uint32", data))


def _put_inp(m: Machine, s: Any, element: Expr, part: Expr, data: Expr) -> None:
    at = element * m.inp_words + part * m.groups
    store(s.inp, at, m.groups, m.dot.encode_inp(data, m.config.block))


def _put_wgt(m: Machine, s: Any, element: Expr, part: Expr, data: Expr) -> None:
    """Scatter a row, the weights of lane ``part``, over the groups."""
    index = element * m.wgt_words + part
    if m.groups > 1:
        index = T.ramp(index, m.config.block, m.groups)
    T.buffer_store(s.wgt, m.dot.encode_wgt(data, m.config.block), [index])


def _put_bias(m: Machine, s: Any, element: Expr) -> None:
    start = m.groups * m.config.block
    for lane in range(0, m.dot.bias_words(m.config.block), m.lanes):
        words = [wgt_vector(m, s, element, g, lane) for g in range(m.groups)]
        store(s.wgt, element * m.wgt_words + start + lane, m.lanes, m.dot.bias(words))


def _put_acc(m: Machine, s: Any, element: Expr, part: Expr, data: Expr) -> None:
    values = T.reinterpret(vector("int32", m.lanes), data)
    store(s.acc, element * m.acc_words + part * m.lanes, m.lanes, values)


def _put_acc_8bit(m: Machine, s: Any, element: Expr, part: Expr, data: Expr) -> None:
    values = T.Cast(vector("int32", m.lanes), data)
    store(s.acc, element * m.acc_words + part * m.lanes, m.lanes, values)


# ---------------------------------------------------------------- reading
def wgt_vector(m: Machine, s: Any, element: Expr, group: int, lane: int) -> Expr:
    """The words of `group` for the output lanes from `lane`.

    The group after the last one is the bias.
    """
    return load(s.wgt, element * m.wgt_words + group * m.config.block + lane, m.lanes)


def inp_word(m: Machine, s: Any, element: Expr, row: Expr, group: int) -> Expr:
    """The word of ``group`` in one batch row."""
    return load(s.inp, element * m.inp_words + row * m.groups + group, 1)


def unpack_inp(m: Machine, s: Any, element: Expr, row: Expr, group: Expr) -> Expr:
    """The int8 channels of one INP word, for read-back."""
    return m.dot.decode_inp(load(s.inp, element * m.inp_words + row * m.groups + group, 1))


def unpack_wgt(m: Machine, s: Any, element: Expr, lane: Expr, group: Expr) -> Expr:
    """The int8 weights of one WGT word, for read-back."""
    at = element * m.wgt_words + group * m.config.block + lane
    return m.dot.decode_wgt(load(s.wgt, at, 1))
