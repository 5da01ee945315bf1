"""Nests of lowered PrimFuncs that fused consumers write: loops, a store, conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from tvm import ir, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_map, structural_walk

from vta_byoc.codegen import PRAGMA_KEY
from vta_byoc.codegen.alu import loads_of
from vta_byoc.codegen.nest import extent_of, leaf_chain
from vta_byoc.strategies.te.tir_builder import serial_for

Expr: TypeAlias = tirx.Expr
Node = TypeVar("Node", bound=ir.Node)
Chain: TypeAlias = tuple[list[tirx.For], SBlockRealize]
"""The loops of a nest and its block."""
LANES = 2
"""The innermost loops of every nest."""


@dataclass(frozen=True)
class Loop:
    """A loop from 0 to ``extent``."""

    var: tirx.Var
    extent: int


@dataclass(frozen=True)
class Store:
    """The nest that stores a tile, its lanes last; ``value`` is what STORE narrows to int8."""

    name: str
    loops: Sequence[Loop]
    predicate: Expr
    place: Sequence[Expr]
    value: Expr

    @property
    def acc(self) -> TensorLoad:
        """The accumulators that the store reads; the ALU changes them in place."""
        value = self.value
        while not isinstance(value, TensorLoad):
            parts = [value.a, value.b] if hasattr(value, "a") else list(value.args)
            value = next(part for part in parts if loads_of(part))
        return value


def chains(
    stmt: tirx.Stmt, around: tuple[Loop, ...] = ()
) -> Iterator[tuple[tuple[Loop, ...], Chain]]:
    """All nests in order, each with the loops around it."""
    if isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from chains(part, around)
        return
    chain = leaf_chain(stmt) if isinstance(stmt, tirx.For | SBlockRealize) else None
    if chain is not None:
        yield around, chain
    elif isinstance(stmt, tirx.For):
        yield from chains(stmt.body, (*around, Loop(stmt.loop_var, extent_of(stmt))))
    else:
        yield from chains(stmt.block.body, around)


def writes(chain: Chain, buffer: tirx.Buffer) -> bool:
    """Whether the nest is a store to ``buffer``."""
    body = chain[1].block.body
    return isinstance(body, tirx.BufferStore) and bool(body.buffer.same_as(buffer))


def conjuncts(condition: Expr | bool) -> list[Expr]:
    """The parts of ``condition`` that all hold, none of one that always does."""
    if isinstance(condition, tirx.And):
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [] if isinstance(condition, bool | tirx.IntImm) else [condition]


def all_of(conditions: Sequence[Expr]) -> Expr | bool:
    """The condition whose :func:`conjuncts` are ``conditions``."""
    return tirx.all(*conditions) if conditions else True


def store_of(loops: Sequence[tirx.For], real: SBlockRealize) -> Store:
    """The nest `real` in `loops`, which stores int8."""
    body = real.block.body
    return Store(
        str(real.block.name_hint),
        [Loop(loop.loop_var, extent_of(loop)) for loop in loops],
        real.predicate,
        list(body.indices),
        body.value.value,
    )


def reads(expr: Expr, var: tirx.Var) -> bool:
    """Whether ``var`` occurs in ``expr``."""
    found: list[tirx.Var] = []
    structural_walk(expr, (tirx.Var, found.append))
    return any(node.same_as(var) for node in found)


def with_loads(value: Expr, old: TensorLoad, new: TensorLoad) -> Expr:
    """``value`` with ``new`` in place of the accumulator ``old``."""

    def load(each: TensorLoad) -> TensorLoad:
        return new if each.source.same_as(old.source) else each

    return new if value.same_as(old) else structural_map(value, (TensorLoad, load))


def substituted(node: Node, values: Mapping[tirx.Var, Expr]) -> Node:
    """``node`` with ``values`` in place of variables."""
    return structural_map(node, (tirx.Var, lambda var: values.get(var, var)))


def nest(
    name: str, pragma: str, loops: Sequence[Loop], store: tirx.BufferStore, where: Expr | bool
) -> tirx.Stmt:
    """``store`` in loops of its own, which have the names of ``loops``."""
    fresh = {loop.var: tirx.Var(loop.var.name, "int32") for loop in loops}
    block = SBlock([], [], [], name, substituted(store, fresh))
    predicate = where if isinstance(where, bool) else substituted(where, fresh)
    stmt: tirx.Stmt = SBlockRealize([], predicate, block)
    notes: Mapping[str, str] = {PRAGMA_KEY: pragma}
    for loop in reversed(loops):
        stmt, notes = serial_for(fresh[loop.var], loop.extent, stmt, notes), {}
    return stmt
