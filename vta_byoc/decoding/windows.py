"""A quantized decoder of a whole sequence as a function of a window of its tokens.

Every operator of a decoder works on each token by itself, but for the two products of attention.
So the same operators compute a window of the tokens, where the keys and values of all tokens come
from a cache: the window's own are written into it, and the attention reads all of it.  Nothing is
quantized again: every integer of the window is that of the whole sequence.

The bindings are followed one by one; what is known of each tensor is where its tokens are
(`vta_byoc.decoding.sliding.Place`).  Constants with a row a token become parameters (`Sliding`
there), of which a window takes its rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.decoding.sliding import Place, Sliding
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    is_constant,
    op_name,
    static_shape,
    straight_bindings,
    substituted,
    vars_in,
    with_main,
)
from vta_byoc.ir.chains import INT8_LOW
from vta_byoc.ir.views import RESHAPES
from vta_byoc.quantization.channels_first import REDUCTIONS

PERMUTE, MATMUL, TAKE = (f"relax.{name}" for name in ("permute_dims", "matmul", "take"))
NEXT = "export it as ids (1, T) to logits (1, T, vocabulary), causal"


@dataclass(frozen=True)
class Cache:
    """Keys or values of one attention: ``name`` is its parameter's in the function of a window.

    Tokens are along ``axis``, one of the last two.
    """

    name: str
    shape: tuple[int, ...]
    axis: int

    @property
    def head(self) -> int:
        """Channels of a head."""
        rank = len(self.shape)
        return self.shape[2 * rank - 3 - self.axis]


@dataclass(frozen=True)
class Windows:
    """A decoder as functions of the integer dialect.

    Attributes:
        prefill: all tokens to (logits, what the products of attention read: that is what the
            caches hold, or with its last two axes exchanged).
        step: a window of tokens, its positions int64 (window,), the rows of the sliding constants
            and the caches to (logits, the caches with the window).
        tokens: of the whole sequence.
        window: tokens of a window.
        sliding: by the name of their parameter.
        caches: in the order of the results.
        masks: the names of the sliding constants that hide later tokens.
    """

    prefill: tvm.IRModule
    step: tvm.IRModule
    tokens: int
    window: int
    sliding: Mapping[str, Sliding]
    caches: tuple[Cache, ...]
    masks: frozenset[str]

    @property
    def ids(self) -> str:
        """The name of the parameter that takes tokens."""
        return str(self.prefill["main"].params[0].name)

    @property
    def ids_dtype(self) -> str:
        """The dtype of tokens."""
        return str(self.prefill["main"].params[0].ty.dtype)

    @property
    def blocks(self) -> int:
        """Windows of the whole sequence."""
        return self.tokens // self.window


def windows_of(mod: tvm.IRModule, window: int) -> Windows:
    """A decoder of the integer dialect as a function of ``window`` of its tokens.

    Raises:
        VTAError: what makes the module no decoder, or one whose length is no whole number of
            windows, two or more.
    """
    return _Windows(mod, window).result()


class _Windows:
    def __init__(self, mod: tvm.IRModule, window: int) -> None:
        self.mod, self.main, self.window = mod, mod["main"], window
        self.tokens = _tokens_of(self.main, window)
        self.writer = FunctionWriter()
        self.env: dict[relax.Var, relax.Expr] = {}
        self.places: dict[relax.Var, Place] = {}
        self.defined = {b.var: b for b in straight_bindings(self.main)}
        self.cached = _second_operands(self.main)
        self.sliding: dict[str, Sliding] = {}
        self.sliding_params: list[relax.Var] = []
        self.caches: list[Cache] = []
        self.cache_params: list[relax.Var] = []
        self.appended: list[relax.Expr] = []
        self.whole: list[relax.Var] = []
        self.masks: set[str] = set()
        positions = relax.TensorType((window,), "int64")
        self.positions = relax.Var("positions", positions)

    def result(self) -> Windows:
        """All of it."""
        (given,) = self.main.params
        shape = static_shape(given)
        ids = relax.Var(given.name, relax.TensorType((1, self.window, *shape[2:]), given.ty.dtype))
        self.env[given], self.places[given] = ids, Place(1)
        for binding in self.defined.values():
            self._binding(binding)
        if not self.caches:
            raise VTAError(
                f"the model has no attention between its tokens; a decoder has one; {NEXT}"
            )
        if 2 * len(self.masks) != len(self.caches):
            raise VTAError(
                f"{len(self.masks)} of {len(self.caches) // 2} attentions have a causal mask; in a "
                f"decoder all have one; {NEXT}"
            )
        body = self.main.body.body
        logits = substituted(body, self.env)
        if not isinstance(body, relax.Var) or self.places.get(body) != Place(1):
            raise VTAError(f"the result of the model is no row of logits for each token; {NEXT}")
        params = [ids, self.positions, *self.sliding_params, *self.cache_params]
        step = self.writer.finish(self.main, relax.Tuple([logits, *self.appended]))
        step = relax.Function(params, step.body, ret_ty=step.ret_ty, attrs=step.attrs)
        return Windows(
            self._prefill(),
            with_main(self.mod, step),
            self.tokens,
            self.window,
            self.sliding,
            tuple(self.caches),
            frozenset(self.masks),
        )

    def _prefill(self) -> tvm.IRModule:
        """The model itself, with what the caches hold."""
        writer = FunctionWriter()
        env: dict[relax.Var, relax.Expr] = {}
        for var, binding in self.defined.items():
            env[var] = writer.emit(substituted(binding.value, env), str(var.name))
        results = [env[value] for value in (self.main.body.body, *self.whole)]
        result = relax.Tuple(results)
        return with_main(self.mod, writer.finish(self.main, result))

    # ---------------------------------------------------------------- one binding
    def _binding(self, binding: relax.VarBinding) -> None:
        var, value = binding.var, binding.value
        kind, name = op_name(value), str(var.name)
        known = {x: self.places[x] for x in vars_in(value) if x in self.places}
        if not known:
            self.env[var] = self.writer.emit(substituted(value, self.env), name)
            return
        place = self._place(var, value, kind, known)
        if kind in RESHAPES:
            call = relax.op.reshape(self.env[value.args[0]], self._cut(var, place))
        else:
            call = substituted(self._slid(binding, kind, place), self.env)
        found = self.writer.emit(call, name)
        if static_shape(found) != self._cut(var, place):
            raise VTAError(
                f'"{name}" ({kind}) has the shape {static_shape(found)} for {self.window} tokens, '
                f"not {self._cut(var, place)}; the operators of a decoder work on each token by "
                f"itself; {NEXT}"
            )
        self.env[var] = found
        if var in self.cached:
            self._cache(binding, place)
        else:
            self.places[var] = place

    def _cut(self, var: relax.Var, place: Place) -> tuple[int, ...]:
        """The shape of ``var`` for a window."""
        shape = list(static_shape(var))
        shape[place.axis] = shape[place.axis] // self.tokens * self.window
        return tuple(shape)

    def _place(
        self, var: relax.Var, value: relax.Expr, kind: str, known: Mapping[relax.Var, Place]
    ) -> Place:
        """Where the tokens of the result are."""
        first, place = next(iter(known.items()))
        rank, out = len(static_shape(first)), static_shape(var)
        found: Place | None = None
        if kind in RESHAPES:
            found = _viewed(static_shape(first), place, out, self.tokens)
        elif kind == PERMUTE:
            axes = value.attrs.axes
            order = [int(x) for x in axes] if axes is not None else list(range(rank))[::-1]
            found = Place(order.index(place.axis), place.inner)
        elif kind == TAKE:
            found = Place(int(value.attrs.axis or 0) + place.axis, place.inner)
        elif kind == MATMUL:
            left = value.args[0]
            if list(known) == [left] and place.axis < rank - 1 and rank == len(out):
                found = place
        elif kind in REDUCTIONS:
            axes = {int(x) % rank for x in value.attrs.axis or range(rank)}
            if place.axis not in axes:
                gone = 0 if value.attrs.keepdims else sum(x < place.axis for x in axes)
                found = Place(place.axis - gone, place.inner)
        else:
            ends = {(p.axis - len(static_shape(x)), p.inner) for x, p in known.items()}
            if len(ends) == 1:
                found = Place(place.axis - rank + len(out), place.inner)
        if found is None or found.axis >= len(out) or out[found.axis] % self.tokens:
            raise VTAError(
                f'"{var.name}" ({kind}) mixes tokens; in a decoder only causal attention does; '
                f"{NEXT}"
            )
        return found

    # ---------------------------------------------------------------- constants
    def _slid(self, binding: relax.VarBinding, kind: str, place: Place) -> relax.Expr:
        """The call with parameters for constants that have a row a token."""
        call = binding.value
        if kind in (MATMUL, TAKE, PERMUTE) or kind in REDUCTIONS:
            return call
        shape = static_shape(binding.var)
        end = place.axis - len(shape)
        args = []
        for number, arg in enumerate(call.args):
            here = len(static_shape(arg)) + end if is_constant(arg) else -1
            if here < 0 or static_shape(arg)[here] != shape[place.axis]:
                args.append(arg)
                continue
            name = f"{binding.var.name}{SEPARATOR}rows{number}"
            sliding = Sliding(arg.value.numpy(), Place(here, place.inner), self.tokens, self.window)
            self.sliding[name] = sliding
            first = sliding.at(0)
            param = relax.Var(name, relax.TensorType(first.shape, str(first.dtype)))
            self.sliding_params.append(param)
            self.env[param] = param
            args.append(param)
            self._mask(binding, name, sliding)
        return relax.Call(call.op, args, call.attrs, call.ty_args)

    def _mask(self, binding: relax.VarBinding, name: str, sliding: Sliding) -> None:
        """Remember a mask, and that it hides later tokens."""
        scores = self.defined.get(binding.value.args[0])
        if scores is None or op_name(scores.value) != MATMUL:
            return
        if not any(x in self.cached for x in vars_in(scores.value)):
            return
        depth = static_shape(scores.value.args[0])[-1]
        _check_causal(str(binding.var.name), sliding, 2 * depth * INT8_LOW**2)
        self.masks.add(name)

    # ---------------------------------------------------------------- caches
    def _cache(self, binding: relax.VarBinding, place: Place) -> None:
        """Write the window into a cache and let all that follows read the whole of it."""
        var, value, rank = binding.var, binding.value, len(static_shape(binding.var))
        if (
            place.inner != 1
            or place.axis < rank - 2
            or static_shape(var)[place.axis] != self.tokens
        ):
            raise VTAError(f'the tokens of "{var.name}" are spread over its axes; {NEXT}')
        if var.ty.dtype != "int8":
            raise VTAError(
                f'"{var.name}" of an attention is {var.ty.dtype}; caches hold int8; quantize it'
            )
        order = list(range(rank))
        order[-2:] = order[:-3:-1]
        source, before = var, order
        if op_name(value) == PERMUTE:
            axes = [int(x) for x in value.attrs.axes]
            source, before = value.args[0], [axes[i] for i in order]
        is_there = before == sorted(before)
        turned = self.env[source]
        if not is_there:
            turned = self.writer.emit(
                relax.op.permute_dims(turned, before), f"{var.name}{SEPARATOR}window"
            )
        axis = 2 * rank - 3 - place.axis
        shape = tuple(static_shape(var)[i] for i in order)
        name = f"cache{len(self.caches)}"
        param = relax.Var(name, relax.TensorType(shape, "int8"))
        spread = [1] * rank
        spread[axis] = self.window
        where = self.writer.emit(relax.op.reshape(self.positions, spread), f"{name}{SEPARATOR}at")
        wide = self.writer.emit(
            relax.op.broadcast_to(where, static_shape(turned)), f"{name}{SEPARATOR}places"
        )
        full = self.writer.emit(
            relax.op.scatter_elements(param, wide, turned, axis), f"{name}_full"
        )
        self.env[var] = self.writer.emit(
            relax.op.permute_dims(full, order), f"{var.name}{SEPARATOR}all"
        )
        self.caches.append(Cache(name, shape, axis))
        self.cache_params.append(param)
        self.appended.append(full)
        self.whole.append(var)


def _tokens_of(main: relax.Function, window: int) -> int:
    """The length of the sequence that a model takes."""
    shapes = [static_shape(param) for param in main.params]
    if len(shapes) != 1 or len(shapes[0]) < 2 or shapes[0][0] != 1:
        raise VTAError(
            f"the model takes {len(shapes)} inputs of shapes {', '.join(map(str, shapes))}; a "
            f"decoder takes one, ids (1, T); {NEXT}"
        )
    tokens = shapes[0][1]
    if tokens % window or tokens < 2 * window:
        raise VTAError(
            f"the model takes {tokens} tokens; a bucket is {2 * window} or more, in blocks of "
            f"{window}; export the model with such a length"
        )
    return tokens


def _second_operands(main: relax.Function) -> set[relax.Var]:
    """What products take as their second operand and the model computes."""
    products = (b.value for b in straight_bindings(main) if op_name(b.value) == MATMUL)
    return {p.args[1] for p in products if all(isinstance(arg, relax.Var) for arg in p.args)}


def _viewed(
    before: tuple[int, ...], place: Place, behind: tuple[int, ...], tokens: int
) -> Place | None:
    """Where the tokens are in a reshape: the distance of two of them stays."""
    stride = place.inner * math.prod(before[place.axis + 1 :])
    for axis in range(len(behind)):
        suffix = math.prod(behind[axis + 1 :])
        if suffix <= stride < suffix * behind[axis] and stride % suffix == 0:
            inner = stride // suffix
            return Place(axis, inner) if behind[axis] % (tokens * inner) == 0 else None
    return None


def _check_causal(name: str, sliding: Sliding, far: int) -> None:
    """Refuse a mask that shows a later token, or hides it less than others that it hides.

    What is ``far`` below is below every score that is shown: two scores are not as far apart.
    """
    values, tokens = sliding.values, sliding.tokens
    rows = np.moveaxis(values, sliding.place.axis, -2) if values.ndim > 1 else values
    split = rows.reshape(-1, tokens, sliding.place.inner, rows.shape[-1])
    later = np.triu(np.ones((tokens, tokens), bool), 1)
    if rows.shape[-1] != tokens or (split[:, :, 0][:, later] > values.min()).any():
        raise VTAError(
            f'the mask of "{name}" lets a token see a later one; a decoder is causal; {NEXT}'
        )
    if values.min() > -far:
        raise VTAError(f'the mask of "{name}" hides nothing; a decoder is causal; {NEXT}')
